"""JSON as text: what a program sends as the arguments of a tool, and what it is answered."""

import json
import re
from collections.abc import Mapping
from typing import Any, Final, NoReturn

from memotree.request.json_objects import RepeatedNameError, distinct

_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")
"""Matches what may be half of a surrogate pair; a whole one is a character."""


class NotJsonError(ValueError):
    """A text is no JSON; the message is the end of a sentence that begins with the name of the text."""


def parsed(text: str) -> Any:
    """The value that a text of JSON stands for.

    Raises:
        NotJsonError: It is no JSON, is nested too deeply, has a name twice in one object, or has numbers or characters
            that no other program reads.
    """
    try:
        found = json.loads(text, parse_constant=_refused, object_pairs_hook=distinct)
        if _SURROGATE.search(text):
            text_of(found).encode()
    except NotJsonError:
        raise
    except RepeatedNameError as error:
        raise NotJsonError(str(error)) from None
    except UnicodeEncodeError:
        raise NotJsonError("has half a surrogate pair, which is not valid text; leave it out.") from None
    except RecursionError:
        raise NotJsonError("is nested too deeply.") from None
    except json.JSONDecodeError as error:
        raise NotJsonError(f"must be JSON, and is not: {error.msg} at offset {error.pos}.") from None
    except ValueError:
        raise NotJsonError("has a number with too many digits.") from None
    return found


def text_of(values: Mapping[str, Any]) -> str:
    """A JSON object as text, with its names in their order."""
    return json.dumps(values, ensure_ascii=False)


def _refused(name: str) -> NoReturn:
    raise NotJsonError(f"has {name}, which JSON does not have.")
