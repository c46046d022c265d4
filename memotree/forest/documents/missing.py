"""Imports the libraries of the extra ``documents`` when a document needs one."""

from importlib import import_module
from types import ModuleType

from memotree.forest.documents.document import UnreadableDocumentError, quoted


class MissingReaderError(UnreadableDocumentError):
    """The library that reads this kind of document is not installed."""

    reason = "DOCUMENT_READER_MISSING"

    def __init__(self, name: str, what: str, library: str) -> None:
        super().__init__(
            f"{quoted(name)} is {what}, and the library {library!r} that reads it is not installed; install"
            " 'memotree[documents]' on the server and ingest it again."
        )


def library(module: str, *, name: str, what: str) -> ModuleType:
    """Returns a module of a library of the extra ``documents``.

    Args:
        module: Its name.
        name: The name of the document that needs it, for the message.
        what: The kind of the document, such as ``a Word document``.

    Raises:
        MissingReaderError: If the library is not installed.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise MissingReaderError(name, what, module.partition(".")[0].replace("_", "-")) from error
