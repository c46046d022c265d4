"""The errors of the engine and their gRPC statuses."""

from typing import Any, ClassVar

import grpc
from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet


class EngineFaultError(Exception):
    """A request that the engine does not carry out; ``code`` is its gRPC status."""

    code: ClassVar[grpc.StatusCode] = grpc.StatusCode.INTERNAL


class UnsupportedError(EngineFaultError):
    """The request needs a feature of Qdrant that the embedded engine does not have."""

    code = grpc.StatusCode.UNIMPLEMENTED

    def __init__(self, what: str) -> None:
        super().__init__(f"The embedded engine does not implement {what}; use a Qdrant server for it.")


class MalformedError(EngineFaultError):
    """The request is malformed."""

    code = grpc.StatusCode.INVALID_ARGUMENT


class CollectionMissingError(EngineFaultError):
    """No collection (or alias) has this name."""

    code = grpc.StatusCode.NOT_FOUND

    def __init__(self, name: str) -> None:
        super().__init__(f"Not found: Collection `{name}` doesn't exist!")


class CollectionExistsError(EngineFaultError):
    """A collection (or alias) with this name exists already."""

    code = grpc.StatusCode.ALREADY_EXISTS

    def __init__(self, name: str) -> None:
        super().__init__(f"Collection `{name}` already exists!")


def only(message: Message, *names: str) -> None:
    """Refuse a message with any field besides ``names``, whether this code knows the field or not.

    If a part of a filter were silently ignored, one tenant could see another tenant's nodes.
    """
    # Check presence, not truth: an explicit ``false`` in an optional field is a request, too.
    for field, _ in message.ListFields():
        if field.name not in names:
            raise UnsupportedError(f"the field {field.name} of {message.DESCRIPTOR.name}")
    if len(UnknownFieldSet(message)):
        raise UnsupportedError(f"a field of {message.DESCRIPTOR.name} that is newer than this engine")


def variant(message: Message, oneof: str) -> str:
    """Return the name of the field that is set in a oneof.

    Raises:
        MalformedError: No field is set.
    """
    name: Any = message.WhichOneof(oneof)
    if name is None:
        raise MalformedError(f"{message.DESCRIPTOR.name} needs one of its variants.")
    return str(name)
