"""What the chat model is told, one JSON document a prompt; `leaf_summary`, `parent_summary` and `agentic_loop`.

A document is sent as it is, as the system's message, and never has a text put into it: what the prompt is about
follows as JSON data in a message of its own, under the key ``input_data``. Whoever changes a document gives it the next
version, which is a part of the key under which its answers are kept.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from typing import Any, Final


@dataclass(frozen=True)
class Prompt:
    """A prompt: its name, its version, and the document that the model reads."""

    name: str
    version: int
    document: Mapping[str, Any]

    @property
    def label(self) -> str:
        """Name and version: ``leaf_summary@1``."""
        return f"{self.name}@{self.version}"

    @cached_property
    def system(self) -> str:
        """The message of the system."""
        told = {key: value for key, value in self.document.items() if key not in {"name", "version"}}
        return json.dumps(told, ensure_ascii=False, indent=1)

    @staticmethod
    def user(data: Mapping[str, Any]) -> str:
        """The message that carries the data."""
        text = json.dumps({"input_data": data}, ensure_ascii=False, indent=1)
        # Half a surrogate pair, which a text may hold, has no UTF-8.
        return text.encode("utf-8", "replace").decode()


def load(name: str) -> Prompt:
    """The prompt of a file beside this one."""
    text = (resources.files(__package__) / f"{name}.json").read_text(encoding="utf-8")
    document = json.loads(text)
    return Prompt(document["name"], document["version"], document)


LEAF_SUMMARY: Final = load("leaf_summary")
"""A leaf's summary from its text."""

PARENT_SUMMARY: Final = load("parent_summary")
"""A node's summary from those of its children."""

AGENTIC_LOOP: Final = load("agentic_loop")
"""The decision between ANSWER and EXPLORE."""
