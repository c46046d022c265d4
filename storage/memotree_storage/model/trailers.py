"""Commit trailers: MemoTree writes them at the end of a commit message and reads them after a crash or in a rebuild."""

import re
from collections.abc import Mapping
from typing import Final

SESSION: Final = "MemoTree-Session"
AGENT: Final = "MemoTree-Agent"
TOOL: Final = "MemoTree-Tool"
REQUEST: Final = "MemoTree-Request"
TAG: Final = "MemoTree-Tag"
JOB: Final = "MemoTree-Job"

_TRAILER: Final = re.compile(r"([A-Za-z][A-Za-z0-9-]*): (.*)")


def with_trailers(message: str, trailers: Mapping[str, str]) -> str:
    """Append the trailers to a message as its last paragraph; trailers with an empty value are left out."""
    lines = [f"{key}: {value}" for key, value in trailers.items() if value]
    body = message.rstrip("\n")
    return f"{body}\n\n" + "\n".join(lines) + "\n" if lines else body + "\n"


def trailers_of(message: str) -> dict[str, str]:
    """Read the trailers of a message: its last paragraph, if every line of that paragraph is a trailer."""
    paragraphs = message.rstrip("\n").split("\n\n")
    if len(paragraphs) < 2:  # noqa: PLR2004 - a subject alone holds no trailers
        return {}
    found = [_TRAILER.fullmatch(line) for line in paragraphs[-1].split("\n")]
    return {match[1]: match[2] for match in found if match} if all(found) else {}
