"""What the engine refuses, and how each refusal looks on the wire."""

from typing import Any, ClassVar

import grpc
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet


class EngineFaultError(Exception):
    """A request that the engine does not carry out; ``code`` is its gRPC status."""

    code: ClassVar[grpc.StatusCode] = grpc.StatusCode.INTERNAL


class UnsupportedError(EngineFaultError):
    """The request asks for something Qdrant can do and the embedded engine cannot."""

    code = grpc.StatusCode.UNIMPLEMENTED

    def __init__(self, what: str) -> None:
        super().__init__(f"The embedded engine does not implement {what}; use a Qdrant server for it.")


class MalformedError(EngineFaultError):
    """The request can never be right."""

    code = grpc.StatusCode.INVALID_ARGUMENT


class CollectionMissingError(EngineFaultError):
    """No collection (or alias) has that name."""

    code = grpc.StatusCode.NOT_FOUND

    def __init__(self, name: str) -> None:
        super().__init__(f"Not found: Collection `{name}` doesn't exist!")


class CollectionExistsError(EngineFaultError):
    """A collection (or alias) of that name is there already."""

    code = grpc.StatusCode.ALREADY_EXISTS

    def __init__(self, name: str) -> None:
        super().__init__(f"Collection `{name}` already exists!")


def only(message: Message, *names: str) -> None:
    """Refuse a message with any field beyond ``names``, whether we know the field or not.

    A part of a filter that is passed over in silence would show one tenant's nodes to another.
    """
    # Presence, not truth: an explicit ``false`` in an optional field is a wish as well.
    for field, _ in message.ListFields():
        if field.name not in names:
            raise UnsupportedError(f"the field {field.name} of {message.DESCRIPTOR.name}")
    if len(UnknownFieldSet(message)):
        raise UnsupportedError(f"a field of {message.DESCRIPTOR.name} that is newer than this engine")


def variant(message: Message, oneof: str) -> str:
    """The name of the field set in a oneof; ``MalformedError`` when none is."""
    name: Any = message.WhichOneof(oneof)
    if name is None:
        raise MalformedError(f"{message.DESCRIPTOR.name} needs one of its variants.")
    return str(name)
