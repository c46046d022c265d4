"""What a function returns, as the data of a result."""

import json
import math
from typing import Any, Final

from memotree_storage.errors import TooLargeError
from pydantic_core import to_jsonable_python

MOST_BYTES: Final = 4 << 20
"""The most bytes of the JSON of one result."""

VALUE: Final = "value"
"""The name in the data under which a result stands that is no object."""


class ToolResultTooLargeError(TooLargeError):
    """A tool returned more than one result may have."""

    reason = "TOOL_RESULT_TOO_LARGE"

    def __init__(self, tool: str) -> None:
        super().__init__(f"The answer of {tool} has more than {MOST_BYTES >> 20} MiB; ask for less.")


def as_text(value: Any) -> str:
    """A value that a function returned as the text of a JSON object: a model, a data class, or what JSON has.

    What JSON does not have is replaced: half a surrogate pair (of a file name, for one) by a question mark, a number
    that is not finite by its name.
    """
    plain = to_jsonable_python(value, bytes_mode="base64")
    data = plain if isinstance(plain, dict) else {} if plain is None else {VALUE: plain}
    try:
        text = json.dumps(data, ensure_ascii=False, allow_nan=False)
        text.encode()
    except ValueError:
        return json.dumps(_replaced(data), ensure_ascii=False, allow_nan=False)
    return text


def _replaced(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {_replaced(key): _replaced(each) for key, each in value.items()}
    return [_replaced(each) for each in value] if isinstance(value, list) else value


def read_text(tool: str, text: str) -> dict[str, Any]:
    """The data of such a text.

    Raises:
        ToolResultTooLargeError: It is too long.
    """
    if len(text.encode()) > MOST_BYTES:
        raise ToolResultTooLargeError(tool)
    data: dict[str, Any] = json.loads(text)
    return data
