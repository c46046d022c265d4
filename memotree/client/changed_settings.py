"""What a reload of the server's settings changed."""

from dataclasses import dataclass
from typing import Self

from memotree.v1 import settings_service_pb2 as pb


@dataclass(frozen=True, slots=True)
class ChangedSetting:
    """A setting with another value than before.

    Attributes:
        name: The setting.
        old_value: What the server ran with; ``***`` for a secret.
        new_value: What is given now.
        place: Where it is given: a variable, or a key with its file and line; empty for a default.
        in_effect: Whether the server runs with it from now on; else it needs a restart.
    """

    name: str
    old_value: str
    new_value: str
    place: str
    in_effect: bool

    @classmethod
    def from_wire(cls, message: pb.ChangedSetting) -> Self:
        """Reads the message."""
        return cls(message.name, message.old_value, message.new_value, message.place, message.in_effect)
