"""The arguments of a tool as a JSON text that a program sends, and answers as JSON texts."""

import json
from collections.abc import Mapping
from typing import Any, NoReturn

from memotree_storage.errors import FieldViolation

from memotree.gateways.catalogue import InvalidArgumentsError


def arguments_of(tool: str, text: str | bytes) -> dict[str, Any]:
    """The arguments; none if the text is empty.

    Args:
        tool: The tool, for the message.
        text: What was sent.

    Raises:
        InvalidArgumentsError: It is no JSON object, or its texts are no Unicode.
    """
    try:
        found = json.loads(text, parse_constant=_no_number) if text.strip() else {}
        if not isinstance(found, dict):
            raise _refused(tool, "is no JSON object; send the arguments of the tool as one.")
        text_of(found).encode()
    except UnicodeEncodeError:
        raise _refused(tool, "has half of a surrogate pair, which is no character.") from None
    except (ValueError, RecursionError):  # bytes that are no UTF-8 are a ValueError, too
        raise _refused(tool, "is no JSON; send the arguments of the tool as a JSON object.") from None
    return found


def text_of(values: Mapping[str, Any]) -> str:
    """A JSON object as text, with its names in their order."""
    return json.dumps(values, ensure_ascii=False)


def _no_number(name: str) -> NoReturn:
    raise ValueError(name)


def _refused(tool: str, why: str) -> InvalidArgumentsError:
    return InvalidArgumentsError(tool, [FieldViolation("arguments", why)])
