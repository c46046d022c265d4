"""Formats answers as text for a language model: short, with every id that a next call may need."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from memotree.gateways.results import Failure
from memotree.request.quoted_text import has_lines, quoted

Data = Mapping[str, Any]


def readable(data: Data) -> str:
    """The text of a response; fields without a special format are listed as names and values."""
    for name, write in _WHOLE.items():
        if data.get(name):
            return write(data).strip()
    if "passages" in data and not data["passages"] and not data.get("nodes"):
        return "Nothing is remembered about this."
    parts = [_PARTS[name](value) for name, value in data.items() if name in _PARTS and value]
    rest = {name: value for name, value in data.items() if name not in _UNTOLD and not (name in _PARTS and value)}
    parts += ["\n".join(_listed(rest))] if rest else []
    return "\n\n".join(part for part in parts if part) or "Done; there is nothing to show."


def listed(data: Data) -> str:
    """The text of an answer without a special format: names and values."""
    return "\n".join(_listed(data)) or "Done; there is nothing to show."


def refusal(failure: Failure) -> str:
    """The text of a failure, with its faults, conflicts and nodes."""
    lines = [f"{failure.code}: {failure.message}"]
    details = failure.details
    faults = [fault for fault in details.get("violations", ()) if fault["description"] not in failure.message]
    lines += [f"- {fault['field']}: {fault['description']}" for fault in faults]
    lines += [
        f"- {clash['node_id']} {clash['field']}: {clash['description']}".replace("  ", " ")
        for clash in details.get("conflicts", ())
    ]
    lines += [f"- {node['id']} {node['title']}" for node in details.get("nodes", ())]
    return "\n".join(lines)


def _node(node: Data, score: float | None = None) -> str:
    """A node: a line with title, id and facts, then its content, or its summary or brief if it has none."""
    facts = [str(node.get("type", "")), *(f"#{tag}" for tag in node.get("tags", ()))]
    if node.get("child_count"):
        facts.append(f"{node['child_count']} below")
    if score is not None:
        facts.append(f"score {score:.2f}")
    head = f"{node.get('title', '')} [{node.get('id', '')}] ({', '.join(fact for fact in facts if fact)})"
    body = node.get("content") or node.get("summary") or node.get("brief") or ""
    return f"{head}\n{quoted(body)}" if body else head


def _nodes(nodes: list[Data]) -> str:
    return "\n\n".join(_scored(node) for node in nodes)


def _scored(found: Data) -> str:
    """A node, with its score if there is one."""
    return _node(found["node"], found.get("score")) if "node" in found else _node(found)


def _similar(found: list[Data]) -> str:
    """Notes that a text resembles, each with what a reader should do about it."""
    lines = ["Similar notes:"]
    for each in found:
        node = each["node"]
        told = one_line(str(node.get("summary") or node.get("brief") or ""))
        meaning = _RESEMBLANCE.get(str(each.get("similarity", "")), "is similar")
        lines.append(f"- {node.get('title', '')} [{node.get('id', '')}] {meaning}: {told}")
    return "\n".join(lines)


def _before(node: Data) -> str:
    """What a revised note said, so that a model sees when it has revised another one than it meant."""
    said = one_line(str(node.get("summary") or node.get("brief") or ""))
    return f"Before, it was: {node.get('title', '')}{f': {said}' if said else ''}"


_RESEMBLANCE: Final = {
    "DUPLICATE": "probably says the same",
    "SUPERSEDED": "says something else of the same subject; forget or revise it if it is out of date",
}


def _tree(data: Data) -> str:
    """Nodes of a tree, indented."""
    lines = [f"{'  ' * each.get('depth', 0)}- {_node(each['node']).partition(chr(10))[0]}" for each in data["nodes"]]
    if data.get("truncated"):
        lines.append(f"… and {data['truncated']} more below")
    return "\n".join([*lines, *_more(data)])


def _node_list(data: Data) -> str:
    if "depth" in data["nodes"][0]:
        return _tree(data)
    parts = [_nodes(data["nodes"])]
    if data.get("below_threshold"):
        parts.append(f"{data['below_threshold']} more below the threshold.")
    return "\n\n".join([*parts, *_more(data)])


def _hits(data: Data) -> str:
    parts = []
    for hit in data["hits"]:
        node = {**hit["node"], "content": hit.get("preview", "")}
        parts.append("\n".join(line for line in (_node(node, hit.get("score")), hit.get("reason", "")) if line))
    return "\n\n".join(parts)


def _candidates(data: Data) -> str:
    """The nodes that a name may mean, each with its path."""
    lines = [f"{_node(each['node'])}\npath: {each['path']}" for each in data["candidates"]]
    if len(lines) > 1:
        lines.insert(0, "The name could be each of these nodes:")
    return "\n\n".join([*lines, *(["There are more."] if data.get("more") else [])])


def _answer(data: Data) -> str:
    """The answer, then its numbered citations."""
    text = data["text"]
    lines = [quoted(text) if "citations" in data and has_lines(text) else text]  # that of a recall has quotations
    for number, citation in enumerate(data.get("citations", ()), 1):
        lines.append(f"[{number}] {citation.get('title', '')} [{citation.get('node_id', '')}]{_span(citation)}")
    facts = []
    if data.get("confidence"):
        likelihood = f" ({data['likelihood']:.2f})" if data.get("likelihood") else ""
        facts.append(f"Confidence: {data['confidence']}{likelihood}")
    if data.get("commit_id"):
        facts.append(f"Read at commit {data['commit_id'][:10]}")
    return "\n".join([*lines, *(["", ". ".join(facts)] if facts else [])])


def _commits(data: Data) -> str:
    """Commits, newest first: one line each, then what each changed; trailers are left out."""
    parts = []
    for commit in data["commits"]:
        author, when = commit.get("author", {}).get("name", ""), str(commit.get("commit_time", ""))
        head = f"{when[:16].replace('T', ' ')} {author}: {commit.get('subject', '')} [{commit.get('id', '')[:10]}]"
        told = [part for part in str(commit.get("message", "")).split("\n\n")[1:] if not part.startswith("MemoTree-")]
        parts.append("\n".join([head, *map(quoted, told)]))
    return "\n\n".join([*parts, *_more(data)])


def _span(citation: Data) -> str:
    """The document, page and characters that a passage comes from."""
    source = citation.get("source")
    if not source:
        return ""
    page = f"page {source['page']}" if source.get("page") else ""
    characters = f"characters {source['start']}-{source['end']}"
    return "".join(f", {part}" for part in (source.get("document_id", ""), page, characters) if part)


def one_line(text: str, limit: int = 200) -> str:
    """The text on one line, cut at ``limit`` characters."""
    text = " ".join(text.split())
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _more(data: Data) -> list[str]:
    return [f"More: page_token {data['next_page_token']}"] if data.get("next_page_token") else []


def _listed(value: Any, indent: str = "") -> list[str]:
    """Names and values, one per line; list items with dashes."""
    lines: list[str] = []
    for name, each in value.items():
        if isinstance(each, Mapping):
            lines += [f"{indent}{name}:", *_listed(each, f"{indent}  ")]
        elif isinstance(each, list) and each and isinstance(each[0], Mapping):
            lines.append(f"{indent}{name}:")
            for item in each:
                first, *others = _listed(item, f"{indent}    ") or [f"{indent}    (nothing)"]
                lines += [f"{indent}  - {first.strip()}", *others]
        elif isinstance(each, list) and any(has_lines(str(item)) for item in each):
            lines += [
                f"{indent}{name}:",
                *(f"{indent}{line}" for item in each for line in quoted(str(item)).splitlines()),
            ]
        elif isinstance(each, list):
            lines.append(f"{indent}{name}: {', '.join(str(item) for item in each) or 'none'}")
        elif isinstance(each, str) and has_lines(each):
            lines += [f"{indent}{name}:", *(f"{indent}{line}" for line in quoted(each).splitlines())]
        else:
            lines.append(f"{indent}{name}: {each}")
    return lines


def _ingested(data: Data) -> str:
    """What became of a document."""
    made = data["ingestion"]
    counted = ", ".join(f"{made.get(f'{name}_leaves', 0)} {name}" for name in ("created", "kept", "removed"))
    if not made.get("commit_id"):
        return f"{data.get('subject', '')} had not changed; its archive is {made.get('archive_id', '')}."
    return (
        f"Ingested {data.get('subject', '')}: leaves {counted}. "
        f"Archive {made.get('archive_id', '')}, commit {made['commit_id'][:10]}"
    )


_WHOLE: Final[Mapping[str, Callable[[Data], str]]] = {
    "markdown": lambda data: str(data["markdown"]),
    "text": lambda data: _answer(data) if "citations" in data or "node" not in data else quoted(str(data["text"])),
    "hits": _hits,
    "candidates": _candidates,
    "commits": _commits,
    "ingestion": _ingested,
    "nodes": _node_list,
}
"""Fields that make up the whole answer if they are present."""

_PARTS: Final[Mapping[str, Callable[[Any], str]]] = {
    "node": _node,
    "children": _nodes,
    "previous": _before,
    "similar": _similar,
}
"""Fields of an answer that have a special format."""

_UNTOLD: Final = frozenset({"warnings"})
