"""How nodes, commits and differences look to a person."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from rich.console import Group
from rich.padding import Padding
from rich.text import Text
from rich.tree import Tree as RichTree

from memotree.cli.output import facts, short, when

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import RenderableType

    from memotree.client import Commit, EntryChange, FieldChange, Node, SearchHit, Tree

CHANGE_STYLES = {"CREATED": ("+ created", "green"), "UPDATED": ("~ updated", "yellow"), "DELETED": ("- deleted", "red")}
_MARKED = re.compile(r"\*\*([^*\s](?:[^*]*[^*\s])?)\*\*")
_INDENT = 6
_STEM = 3
"""Characters that every form of a word shares, for telling marks of ours from asterisks of the text."""
_DIFF_STYLES = {"+": "green", "-": "red", "@": "cyan", "\\": "dim"}


def change_kind(kind: str) -> Text:
    """What happened to a node, coloured."""
    return Text(*CHANGE_STYLES[kind])


def node(found: Node) -> RenderableType:
    """One node with its facts, then its text."""
    relations = Text("\n").join(
        Text.assemble(f"{each.type} ", (each.target_id, "yellow"), f"  {each.description}" if each.description else "")
        for each in found.relations
    )
    source = found.source
    head = facts(
        [
            ("node", Text(found.id, "yellow")),
            ("archive", found.archive_id),
            ("parent", found.parent_id or ""),
            ("type", found.type),
            ("tags", ", ".join(found.tags)),
            ("attributes", "\n".join(f"{name}={value}" for name, value in sorted(found.attributes.items()))),
            ("relations", relations),
            ("source", f"{source.document_id} {source.start}-{source.end} {source.heading}" if source else ""),
            ("children", str(found.child_count) if found.child_count else ""),
            ("version", f"{short(found.commit_id)}  {when(found.update_time)}" if found.commit_id else "staged"),
            ("etag", found.etag),
            ("tokens", str(found.content_tokens)),
            ("brief", found.brief),
            ("summary", found.summary),
        ]
    )
    parts: list[RenderableType] = [Text(found.title, "bold cyan"), head]
    if found.content:
        parts += [Text(""), Text(found.content)]
    return Group(*parts)


def node_line(found: Node) -> Text:
    """A node on one line: title, id, type and tags."""
    line = Text.assemble(found.title, "  ", (found.id, "yellow"))
    if found.type not in {"", "note"}:
        line.append(f"  {found.type}", "magenta")
    if found.tags:
        line.append("  " + " ".join(f"#{tag}" for tag in found.tags), "dim")
    return line


def tree(found: Tree, name: str) -> RichTree:
    """A tree of titles and ids."""
    root = RichTree(Text(name, "bold cyan"), guide_style="dim")
    stack = [root]
    for each in found.nodes:
        del stack[each.depth + 1 :]
        stack.append(stack[-1].add(node_line(each.node)))
    if found.truncated:
        root.add(Text(f"… and {found.truncated} nodes more; --max-nodes or --depth shows others", "dim"))
    return root


def commit_head(commit: Commit) -> Text:
    """The head of a commit as `git log` shows it."""
    head = Text.assemble((f"commit {commit.id}", "yellow"))
    if commit.tags:
        head.append(" (", "yellow")
        head.append(", ".join(f"tag: {tag}" for tag in commit.tags), "bold bright_yellow")
        head.append(")", "yellow")
    author = f"{commit.author.name} <{commit.author.email}>" if commit.author.email else commit.author.name
    head.append(f"\nAuthor: {author}\nDate:   {_long(commit)}\n")
    return head


def _long(commit: Commit) -> str:
    time = commit.author.time or commit.commit_time
    return time.astimezone().strftime("%a %b %-d %H:%M:%S %Y %z") if time else ""


def commit_block(commit: Commit, *, whole: bool = False) -> Text:
    """A commit as `git log` shows it, with its subject or its whole message."""
    message = (commit.message if whole else "") or commit.subject
    text = commit_head(commit)
    for line in message.rstrip("\n").split("\n"):
        text.append(f"\n    {line}" if line else "\n")
    return text.append("\n")


def commit_line(commit: Commit) -> Text:
    """A commit on one line: id, tags and subject."""
    tags = "".join(f"(tag: {tag}) " for tag in commit.tags)
    return Text.assemble((short(commit.id), "yellow"), " ", (tags, "bold bright_yellow"), commit.subject)


def entry_line(change: EntryChange) -> Text:
    """One changed node or archive on one line."""
    what = "archive" if change.is_archive else "node"
    line = Text.assemble(
        change_kind(change.kind), f" {what} ", (change.node_id, "yellow"), "  ", (change.title, "bold")
    )
    if change.summary:
        line.append(f"  {change.summary}", "dim")
    return line


def unified(diff: str) -> Text:
    """A unified diff in its colours."""
    text = Text()
    for line in diff.splitlines(keepends=True):
        heading = line.startswith(("+++", "---"))
        text.append(line, "bold" if heading else _DIFF_STYLES.get(line[:1], ""))
    return text


def field_change(change: FieldChange) -> Text:
    """One field that differs."""
    text = Text.assemble("  ", (change.field, "bold"))
    if change.diff:
        text.append("\n")
        text.append_text(unified(change.diff.rstrip("\n")))
        return text
    for sign, value in (("-", change.old_value), ("+", change.new_value)):
        for line in value.splitlines():
            text.append(f"\n{sign}{line}", _DIFF_STYLES[sign])
    return text


def entries(changes: Iterable[EntryChange]) -> Group:
    """Changed nodes and archives, each with its fields."""
    parts: list[RenderableType] = []
    for change in changes:
        parts.append(entry_line(change))
        parts += [field_change(each) for each in change.fields]
        if change.fields:
            parts.append(Text(""))
    return Group(*parts)


def marked(preview: str, terms: Sequence[str]) -> Text:
    """A preview with the matched terms, which the server puts between pairs of asterisks, highlighted.

    A text may have such pairs of its own; those around anything but a matched term (or a form of it) stay as they are.
    """
    begins = [term[:_STEM].casefold() for term in terms]
    text = Text()
    end = 0
    for match in _MARKED.finditer(preview):
        if any(begin in match[1].casefold() for begin in begins):
            text.append(preview[end : match.start()])
            text.append(match[1], "bold black on yellow")
            end = match.end()
    text.append(preview[end:])
    return text


def hits(found: Sequence[SearchHit]) -> Group:
    """Search hits, best first."""
    parts: list[RenderableType] = []
    for hit in found:
        parts.append(
            Text.assemble(
                (f"{hit.score:.2f}", "green"), "  ", (hit.node.title, "bold cyan"), "  ", (hit.node.id, "yellow")
            )
        )
        if hit.preview:
            preview = marked(" ".join(hit.preview.split()), hit.matched_terms)
            parts.append(Padding(preview, (0, 0, 0, _INDENT), expand=False))
        for step in hit.relation_path:
            arrow = "→" if step.outgoing else "←"
            title = step.node.title if step.node else step.relation.target_id
            parts.append(Text(f"{' ' * _INDENT}{arrow} {step.relation.type} {title}", "magenta"))
        parts += [Padding(Text(hit.reason, "dim"), (0, 0, 0, _INDENT), expand=False), Text("")]
    return Group(*parts)
