"""Formats nodes, commits and differences for a person."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from memotree_storage.model.attribute_names import (
    CHUNK_SIZE,
    DOCUMENT_ID,
    INGESTION,
    MEDIA_TYPE,
    MERGE_LIMIT,
    RESERVED,
    SHA256,
    SIMILARITY_THRESHOLD,
    SPLITTER,
)
from rich.console import Group
from rich.padding import Padding
from rich.text import Text

from memotree.cli.terminal.listed_entries import counts, paragraphs
from memotree.cli.terminal.output import ID, Column, facts, short, table, when

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from rich.console import RenderableType

    from memotree.client import (
        Commit,
        Difference,
        EntryChange,
        Fault,
        FieldChange,
        Node,
        SearchHit,
        Source,
        TextPart,
        TreeNode,
    )

CHANGE_STYLES = {"CREATED": ("+ created", "green"), "UPDATED": ("~ updated", "yellow"), "DELETED": ("- deleted", "red")}
_COUNT_STYLES = {"+": "green", "~": "yellow", "-": "red"}
TYPE_ICONS = {"summary_node": "∑", "task": "☐", "goal": "◎", "project": "▣"}
"""The sign of a node's type on its line; other types have none."""
_MARKED = re.compile(r"\*\*([^*\s](?:[^*]*[^*\s])?)\*\*")
_NO_LINE_END = re.compile(r"^\\.*\n?", re.MULTILINE)
"""The remark of a unified diff that a last line has no end."""
_INDENT = 6
_UNTOLD = frozenset({"position", "source"})
_RECORDED = RESERVED | {
    DOCUMENT_ID,
    SHA256,
    INGESTION,
    MEDIA_TYPE,
    CHUNK_SIZE,
    MERGE_LIMIT,
    SIMILARITY_THRESHOLD,
    SPLITTER,
}
"""Attributes that MemoTree sets by itself, on nodes and on the archives of documents."""
_DIFF_SIGNS = ("+", "-")
_STEM = 3
"""How many characters the forms of a word share; this tells our marks from asterisks in the text."""
_DIFF_STYLES = {"+": "green", "-": "red", "@": "cyan", "\\": "dim"}

_PART_MARKS = {
    "KEPT": ("", "", ""),
    "REMOVED": ("[-", "-]", "red"),
    "ADDED": ("{+", "+}", "green"),
    "OMITTED": ("@@ ", " @@\n", "cyan"),
}


def change_kind(kind: str) -> Text:
    """The kind of a change, coloured."""
    return Text(*CHANGE_STYLES[kind])


def source_place(source: Source) -> str:
    """The place in a document: its id, character range and page."""
    page = f", page {source.page}" if source.page else ""
    return f"{source.document_id} {source.start}-{source.end}{page}"


def summary_of(found: Node) -> str:
    """The summary of a node, with a remark if it is older than the content."""
    return f"{found.summary} (older than the content)" if found.summary_older else found.summary


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
            ("source", f"{source_place(source)} {source.heading}" if source else ""),
            ("children", str(found.child_count) if found.child_count else ""),
            ("version", f"{short(found.commit_id)}  {when(found.update_time)}" if found.commit_id else "staged"),
            ("etag", found.etag),
            ("tokens", str(found.content_tokens)),
            ("brief", found.brief),
            ("summary", summary_of(found)),
        ]
    )
    parts: list[RenderableType] = [Text(found.title, "bold cyan"), head]
    if found.content:
        parts += [Text(""), Text(found.content)]
    if found.content_cut:
        parts.append(Text("… this content is cut short; its children have all of the text", "dim"))
    return Group(*parts)


def node_line(found: Node) -> Text:
    """A node on one line: title, id, type and tags."""
    line = Text.assemble(found.title, "  ", (found.id, "yellow"))
    if found.type in TYPE_ICONS:
        line.append(f"  {TYPE_ICONS[found.type]}", "magenta")
    if found.tags:
        line.append("  " + " ".join(f"#{tag}" for tag in found.tags), "dim")
    return line


def tree_lines(found: Iterable[TreeNode]) -> Iterator[Text]:
    """The lines of a tree, parents first: guides, titles and ids.

    They are made one by one, since a large tree is shown while it arrives.
    """
    open_above: list[bool] = []  # by depth: whether a sibling follows further down
    for each in found:
        del open_above[each.depth :]
        guides = "".join("│   " if more else "    " for more in open_above)
        yield Text.assemble((f"{guides}{'└── ' if each.last else '├── '}", "dim"), node_line(each.node))
        open_above.append(not each.last)


def _names(commit: Commit, branches: Iterable[str]) -> Text:
    """The branches and tags of a commit as `git log` shows them, after a space; empty if there are none."""
    names = [(branch, "bold green") for branch in branches]
    names += [(f"tag: {tag}", "bold bright_yellow") for tag in commit.tags]
    if not names:
        return Text()
    return Text.assemble((" (", "yellow"), Text(", ", "yellow").join(Text(*each) for each in names), (")", "yellow"))


def commit_head(commit: Commit, branches: Iterable[str] = ()) -> Text:
    """The head of a commit as `git log` shows it."""
    head = Text.assemble((f"commit {commit.id}", "yellow"), _names(commit, branches))
    author = f"{commit.author.name} <{commit.author.email}>" if commit.author.email else commit.author.name
    head.append(f"\nAuthor: {author}\nDate:   {_long(commit)}\n")
    return head


def _long(commit: Commit) -> str:
    time = commit.author.time or commit.commit_time
    return time.astimezone().strftime("%a %b %-d %H:%M:%S %Y %z") if time else ""


def commit_block(commit: Commit, branches: Iterable[str] = (), message: str = "") -> Text:
    """A commit as `git log` shows it, with the given message or its subject."""
    text = commit_head(commit, branches)
    for line in (message or commit.subject).rstrip("\n").split("\n"):
        text.append(f"\n    {line}" if line else "\n")
    return text.append("\n")


def commit_line(commit: Commit, branches: Iterable[str] = ()) -> Text:
    """A commit on one line: id, branches, tags, subject, how many entries it changed, and author."""
    line = Text.assemble((short(commit.id), "yellow"), _names(commit, branches), " ", commit.subject)
    for sign in counts(commit.message).split():
        line.append(f" {sign}", _COUNT_STYLES[sign[0]])
    return line.append(f" ({commit.author.name})", "dim")


def commit_with_entries(commit: Commit, changes: Sequence[EntryChange], branches: Iterable[str] = ()) -> Group:
    """A commit with its message and the entries it changed, without naming any entry twice.

    The message lists the entries too, for people who read it with Git. Here those lists are removed, and the reasons in
    them are shown with the entries; a list that has anything else stays in the message.
    """
    shown = {change.node_id for change in changes}
    kept, reasons = [], dict[str, str]()
    for each in paragraphs(commit.message):
        if each.sign and {entry.id for entry in each.entries} <= shown:
            reasons.update({entry.id: entry.reason for entry in each.entries if entry.reason})
        else:
            kept.append(each.text)
    return Group(commit_block(commit, branches, "\n\n".join(kept)), entries(changes, reasons))


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
    """A unified diff, coloured."""
    text = Text()
    for line in diff.splitlines(keepends=True):
        heading = line.startswith(("+++", "---"))
        text.append(line, "bold" if heading else _DIFF_STYLES.get(line[:1], ""))
    return text


def text_parts(parts: Iterable[TextPart]) -> Text:
    """A text compared by words, with the marks of ``git diff --word-diff``."""
    text = Text()
    for part in parts:
        before, after, style = _PART_MARKS[part.kind]
        if part.kind == "OMITTED" and text and not text.plain.endswith("\n"):
            before = f"\n{before}"
        text.append(f"{before}{part.text}{after}", style)
    text.rstrip()
    return text


def field_change(change: FieldChange, *, exact: bool = True) -> Text:
    """One field that differs."""
    text = Text.assemble("  ", (change.field, "bold"))
    if change.parts:
        text.append("\n")
        text.append_text(text_parts(change.parts))
        return text
    if change.diff:
        text.append("\n")
        diff = change.diff if exact else _NO_LINE_END.sub("", change.diff)
        text.append_text(unified(diff.rstrip("\n")))
        return text
    for sign, value in (("-", change.old_value), ("+", change.new_value)):
        for line in value.splitlines():
            text.append(f"\n{sign}{line}", _DIFF_STYLES[sign])
    return text


def entries(changes: Iterable[EntryChange], reasons: Mapping[str, str] | None = None, *, exact: bool = False) -> Group:
    """Changed nodes and archives, each with its changed fields and the reason given for its id.

    Only if ``exact``: positions among siblings, whether a last line has an end, what MemoTree records by itself, and
    of a new or deleted node with a content the fields beside it.
    """
    parts: list[RenderableType] = []
    for change in changes:
        parts.append(entry_line(change))
        if reasons and change.node_id in reasons:
            parts.append(Padding(Text(reasons[change.node_id]), (0, 0, 0, _INDENT), expand=False))
        shown = change.fields if exact else _told(change)
        parts += [field_change(each, exact=exact) for each in shown]
        if shown:
            parts.append(Text(""))
    return Group(*parts)


def _told(change: EntryChange) -> list[FieldChange]:
    """The fields of a change that say something to a person."""
    fields = {each.field: each for each in change.fields}
    if change.kind != "UPDATED" and "content" in fields:
        return [fields["content"]]
    untold = _UNTOLD if change.kind == "UPDATED" else {*_UNTOLD, "name", "title"}  # the head has it
    return [each for each in change.fields if each.field not in untold and not _is_recorded(each)]


def _is_recorded(change: FieldChange) -> bool:
    """Whether only attributes that MemoTree sets by itself differ."""
    if change.field != "attributes":
        return False
    if change.diff:
        lines = {line[1:] for line in change.diff.splitlines() if line[:1] in _DIFF_SIGNS}
    else:
        lines = set(change.old_value.splitlines()) ^ set(change.new_value.splitlines())
    names = {line.partition(":")[0] for line in lines if line.strip()}
    return names <= _RECORDED


REBUILD = "A rebuild of the workspace repairs it."
"""The last sentence of each difference that a rebuild repairs; it is removed here since the command says it once."""


def differences(found: Sequence[Difference], *, narrow: bool) -> RenderableType:
    """The differences that a verification found: a table, or one block each on a narrow terminal."""
    rows = [
        (each.store, each.what, short(each.commit_id), each.node_id, each.description.removesuffix(REBUILD).rstrip())
        for each in found
    ]
    if not narrow or not rows:
        columns: list[Column] = [("Store", "bold red"), "What", ("Commit", ID), ("Node", ID), "Description"]
        return table(columns, rows, empty="Git, PostgreSQL and Qdrant agree.")
    parts: list[RenderableType] = []
    for store, what, commit, entry, description in rows:
        head = Text.assemble((store, "bold red"), f" {what}")
        for name, value in (("commit", commit), ("node", entry)):
            if value:
                head.append_text(Text.assemble(f"  {name} ", (value, ID)))
        parts += [head, Padding(Text(description), (0, 0, 0, _INDENT), expand=False)]
    return Group(*parts)


def fault(found: Fault) -> RenderableType:
    """What is wrong with a file that another program committed, where, and what to do."""
    place = f"{found.path}:{found.line}" if found.line else found.path
    head = Text.assemble((found.kind, "bold red"), " ", (found.node_id, ID), f" {found.title}" if found.title else "")
    body = Text(f"{place}\n{found.description} {found.way_out}")
    return Group(head, Padding(body, (0, 0, 0, _INDENT), expand=False))


def marked(preview: str, terms: Sequence[str]) -> Text:
    """A preview with the matched terms highlighted, which the server puts between pairs of asterisks.

    The text may have asterisks of its own; pairs around anything else than a matched term (or a form of it) stay.
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
