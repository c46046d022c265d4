"""Reads the memory blocks of an agent file of Letta (``.af``), which is JSON; messages and tools are no memory."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from memotree.client.markdown.folder_faults import FileFault, MarkdownFolderError
from memotree.client.markdown.folder_reading import MOST_BYTES
from memotree.client.markdown.foreign_notes import ForeignFolder, ForeignNote
from memotree.client.markdown.vault import LETTA, one_line

SUFFIX: Final = ".af"
_KEPT: Final = ("limit", "read_only")


def read_agent_file(path: Path) -> ForeignFolder:
    """The blocks of each agent of a file, below a note with the agent's name if there are several agents.

    Raises:
        MarkdownFolderError: It is no agent file.
    """
    if path.stat().st_size > 4 * MOST_BYTES:
        raise _invalid(path, f"has more than {4 * MOST_BYTES:,} bytes")
    try:
        document: Any = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise _invalid(path, f"is no JSON ({error})") from None
    if not isinstance(document, dict) or not ("blocks" in document or "core_memory" in document):
        raise _invalid(path, "has neither 'blocks' nor 'core_memory'")
    try:
        notes = list(_notes(document))
    except (KeyError, TypeError, AttributeError) as error:
        raise _invalid(path, f"has a block that is not as Letta writes it ({error})") from None
    messages = sum(len(agent.get("messages") or ()) for agent in _agents(document))
    warnings = [f"left out, since they are no memory blocks: {messages:,} messages"] if messages else []
    return ForeignFolder(LETTA, notes, warnings)


def _invalid(path: Path, why: str) -> MarkdownFolderError:
    return MarkdownFolderError([FileFault(path.name, f"{why}; give an agent file of Letta")])


def _agents(document: dict[str, Any]) -> list[dict[str, Any]]:
    agents = document.get("agents")
    return [agent for agent in agents if isinstance(agent, dict)] if isinstance(agents, list) else [document]


def _notes(document: dict[str, Any]) -> Iterator[ForeignNote]:
    """The blocks below their agents; what several agents share stands below the first, what none has at the top."""
    taken: Counter[str] = Counter()
    if "blocks" not in document:  # the first version of the format
        for block in document["core_memory"]:
            yield _note(block, "", taken)
        return
    blocks = {block["id"]: block for block in document["blocks"]}
    agents = _agents(document) if isinstance(document.get("agents"), list) else []
    for agent in agents:
        home = f"{agent['id']}/" if len(agents) > 1 else ""
        if home:
            described = one_line(agent.get("description") or "")
            yield ForeignNote(home, "", str(agent.get("name") or agent["id"]), brief=described or None)
        own = [blocks.pop(block_id) for block_id in agent.get("block_ids") or () if block_id in blocks]
        for block in own:
            yield _note(block, home, taken)
    for block in blocks.values():
        yield _note(block, "", taken)


def _note(block: dict[str, Any], home: str, taken: Counter[str]) -> ForeignNote:
    label = str(block["label"])
    key = f"{home}{label}"
    taken[key] += 1
    attributes = {name: json.dumps(block[name]) for name in _KEPT if block.get(name) not in (None, False)}
    return ForeignNote(
        key=key if taken[key] == 1 else f"{key} {taken[key]}",
        home=home,
        title=label,
        content=str(block.get("value") or ""),
        attributes={**attributes, "label": label},
        brief=one_line(block.get("description") or "") or None,
    )
