"""The prompts of the chat model, one JSON document each, such as `leaf_summary` and `agentic_loop`.

A document is sent unchanged as the system message; no text is ever inserted into it. The input follows as JSON data in
a message of its own, under the key ``input_data``. If you change a document, increase its version, which is part of the
cache key of its answers.
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
        """The system message."""
        shown = {key: value for key, value in self.document.items() if key not in {"name", "version"}}
        return json.dumps(shown, ensure_ascii=False, indent=1)

    @staticmethod
    def user(data: Mapping[str, Any]) -> str:
        """Returns the user message, which has the data."""
        text = json.dumps({"input_data": data}, ensure_ascii=False, indent=1)
        # A text may contain a lone surrogate, which cannot be encoded as UTF-8.
        return text.encode("utf-8", "replace").decode()


def load(name: str) -> Prompt:
    """Loads a prompt from a JSON file in this folder."""
    text = (resources.files(__package__) / f"{name}.json").read_text(encoding="utf-8")
    document = json.loads(text)
    return Prompt(document["name"], document["version"], document)


LEAF_SUMMARY: Final = load("leaf_summary")
"""Summarises the text of a leaf."""

PARENT_SUMMARY: Final = load("parent_summary")
"""Summarises a node from the summaries of its children."""

AGENTIC_LOOP: Final = load("agentic_loop")
"""Decides between ANSWER and EXPLORE."""

QUERY: Final = load("query")
"""Answers a question with tools."""

QUERY_PLAN: Final = load("query_plan")
"""Plans the calls of tools for a question."""
