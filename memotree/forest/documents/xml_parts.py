"""Checks the XML parts of packed documents before anything parses them.

A part may not define entities, because a few lines of them can stand for gigabytes, nor be nested or divided without
end. Expat, which checks this, uses no memory for it.
"""

from typing import Final
from xml.parsers import expat

from memotree.forest.documents.document import TooDeepDocumentError, UnreadableDocumentError, quoted

DEEPEST: Final = 128
"""The greatest depth of nested elements; a table in a table in a text box has about forty."""

MOST_ELEMENTS: Final = 1_000_000
"""The most elements of one part; a novel has about thirty thousand."""


class UnsafeXmlError(UnreadableDocumentError):
    """A part of the document defines entities, or has too many elements."""

    reason = "UNSAFE_XML"

    def __init__(self, name: str, what: str) -> None:
        super().__init__(f"{quoted(name)} has a part that {what}; save it again in its program and ingest that.")


class DamagedOfficeDocumentError(UnreadableDocumentError):
    """A Word document or book lacks a part, or has one that is not what it should be."""

    reason = "DAMAGED_OFFICE_DOCUMENT"

    def __init__(self, name: str, what: str) -> None:
        super().__init__(f"{quoted(name)} is a damaged {what}; open it in its program, save it again and ingest that.")


class _Refused(Exception):  # noqa: N818 - it never leaves this module
    """Ends the parsing; ``args`` are the reason."""


def check_part(data: bytes, *, name: str, what: str) -> None:
    """Checks one XML part.

    Args:
        data: The part.
        name: The name of the document, for messages.
        what: The kind of the document, such as ``Word document``.

    Raises:
        UnsafeXmlError: If it defines entities, or has over `MOST_ELEMENTS` elements.
        TooDeepDocumentError: If it is nested more than `DEEPEST` deep.
        DamagedOfficeDocumentError: If it is not XML.
    """
    depth = count = 0

    def opens(*_: object) -> None:
        nonlocal depth, count
        depth += 1
        count += 1
        if depth > DEEPEST:
            raise _Refused("depth")
        if count > MOST_ELEMENTS:
            raise _Refused(f"has over {MOST_ELEMENTS} elements")

    def closes(_: str) -> None:
        nonlocal depth
        depth -= 1

    def defines(*_: object) -> None:
        raise _Refused("defines entities")

    parser = expat.ParserCreate()
    parser.StartElementHandler, parser.EndElementHandler, parser.EntityDeclHandler = opens, closes, defines
    try:
        parser.Parse(data, True)  # noqa: FBT003 - expat takes its arguments by position
    except expat.ExpatError as error:
        raise DamagedOfficeDocumentError(name, what) from error
    except _Refused as error:
        if error.args[0] == "depth":
            what = f"XML nested over {DEEPEST} elements deep"
            raise TooDeepDocumentError(name, what, "one with less nesting") from None
        raise UnsafeXmlError(name, str(error.args[0])) from None
