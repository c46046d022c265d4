"""An export comes back whole: with equal ids in an empty workspace, and without any change in its own."""

import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from campaigns import effort
from entry_strategies import keys, sources, tags, texts, titles
from hypothesis import given
from hypothesis import strategies as st
from integration.markdown.states import state
from memotree_storage.model.node import new_id

from memotree.client import Archive, Relation, Source, Workspace, changes
from memotree.client.markdown.note_file import BEGIN

pytestmark = pytest.mark.requirement("GIT-11")

NASTY = st.sampled_from(
    [
        "```\n# no heading\n```",
        "---\nid: 4f8rjw2m6tq0x9ka\ntitle: not mine\n---\n",
        "<!-- memotree: relations -->\n- EXTENDS 4f8rjw2m6tq0x9ka\n<!-- memotree: end -->\n",
        "line\r\nline  \n\ttab\r\n",
        "# A heading\n\ntext   \n\n\n",
        "[[Retries]] ![[picture.png]] [a](b.md) #tag",
        "👩\u200d🔬 \u202eabc\u202c e\u0301",
        "\n\n",
    ]
)
TITLES = st.one_of(
    titles, st.sampled_from(["Notes", "notes", "NOTES", "a/b\\c", "con", "..", "x" * 200, "é" * 200, "a.md", "README"])
)
CONTENTS = st.one_of(NASTY, texts, st.just(""))
SOURCE = ("document_id", "start", "end", "page", "heading", "sha256")
TYPES = st.sampled_from(["note", "concept", "leaf_chunk", "summary_node", "task"])


@st.composite
def trees(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Nodes as arguments of `changes.create`, each with the number of its parent or ``None``, and its relations."""
    found: list[dict[str, Any]] = []
    for number in range(draw(st.integers(0, 7))):
        kind = draw(TYPES)
        source = draw(st.none() | sources())
        found.append(
            {
                "title": draw(TITLES),
                "content": "" if kind == "summary_node" else draw(CONTENTS),
                "node_type": kind,
                "parent": draw(st.none() | st.integers(0, number - 1)) if number else None,
                "tags": draw(tags),
                "attributes": draw(st.dictionaries(keys, texts, max_size=2)),
                # Not what MemoTree itself makes of a text: it takes that for its own.
                "brief": draw(st.none() | titles.map("Given: {}".format)),
                "summary": draw(st.none() | (titles | NASTY).map("Given: {}".format)),
                "position": draw(st.none() | st.integers(0, 3)),
                "source": Source(*(getattr(source, name) for name in SOURCE)) if source else None,
                "relations": draw(
                    st.dictionaries(
                        st.tuples(st.sampled_from(["EXTENDS", "ABOUT"]), st.integers(0, number - 1)),
                        st.one_of(st.just(""), titles),
                        max_size=2,
                    )
                )
                if number
                else {},
            }
        )
    return found


ARCHIVES = st.lists(st.tuples(TITLES, CONTENTS, trees()), max_size=3, unique_by=lambda each: each[0])


def creation(archive: Archive, node: dict[str, Any], ids: list[str], number: int) -> changes.Change:
    given = dict(node)
    parent, relations = given.pop("parent"), given.pop("relations")
    return changes.create(
        **given,
        node_id=ids[number],
        parent=None if parent is None else ids[parent],
        archive=archive,
        relations=[Relation(kind, ids[to], why) for (kind, to), why in relations.items()],
    )


def fill(workspace: Workspace, archives: list[Any]) -> None:
    with workspace.session(agent="ada") as session:
        for name, description, nodes in archives:
            archive = session.create_archive(name, description=description)
            ids = [new_id() for _ in nodes]
            if nodes:
                session.apply(creation(archive, node, ids, number) for number, node in enumerate(nodes))
        if archives:
            session.commit("Fill")


@effort(4, shrink=False)
@given(archives=ARCHIVES)
def test_any_tree_comes_back_as_it_was(archives: list[Any], new_workspace: Callable[[], Workspace]) -> None:
    workspace = new_workspace()
    fill(workspace, archives)
    with TemporaryDirectory() as name:
        folder = Path(name) / "export"
        exported = workspace.export_markdown(folder)
        first = contents(folder)
        assert workspace.import_markdown(folder).edits == ()
        assert contents(folder) == first

        empty = new_workspace()
        imported = empty.import_markdown(folder)
        assert state(empty) == state(workspace)
        assert len(imported.edits) == exported.archives + exported.nodes
        assert empty.import_markdown(folder).edits == ()

        again = Path(name) / "again"
        workspace.export_markdown(again)
        assert contents(again) == first


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@effort(4, shrink=False)
@given(archives=ARCHIVES, data=st.data())
def test_any_edits_make_the_workspace_what_the_files_say(
    archives: list[Any], data: st.DataObject, new_workspace: Callable[[], Workspace]
) -> None:
    """An import that compares with a commit, and one that makes all anew, give the same."""
    workspace = new_workspace()
    fill(workspace, archives)
    with TemporaryDirectory() as name:
        folder, copy = Path(name) / "export", Path(name) / "copy"
        workspace.export_markdown(folder)
        for _ in range(data.draw(st.integers(1, 4))):
            change_a_file(folder, data)
        shutil.copytree(folder, copy)
        if data.draw(st.booleans()):
            workspace.remember("Committed meanwhile.", archive="elsewhere")
        told = workspace.import_markdown(folder, delete=True, preview=True)
        done = workspace.import_markdown(folder, delete=True)
        assert done.edits == told.edits

        empty = new_workspace()
        empty.import_markdown(copy)
        assert {key: nodes for key, nodes in state(workspace).items() if key[1] != "elsewhere"} == state(empty)
        assert workspace.import_markdown(folder, delete=True).edits == ()


def change_a_file(folder: Path, data: st.DataObject) -> None:
    """Edits, moves or removes the file of a node, as a person might."""
    notes = sorted(path for path in folder.rglob("*.md") if path.parent != folder and path.is_file())
    if not notes:
        return
    file = data.draw(st.sampled_from(notes))
    head, body = file.read_bytes().decode().removeprefix("---\n").split("\n---\n", 1)
    kind = data.draw(st.sampled_from(["content", "title", "tags", "move", "remove"]))
    if kind == "content" and "type: summary_node" not in head and BEGIN not in body:
        file.write_bytes(f"---\n{head}\n---\n{data.draw(CONTENTS.filter(lambda text: BEGIN not in text))}\n".encode())
    elif kind == "title":
        lines = ["title: Another title" if line.startswith("title: ") else line for line in head.split("\n")]
        file.write_bytes(("---\n" + "\n".join(lines) + f"\n---\n{body}").encode())
    elif kind == "tags" and "\ntags:" not in head:
        file.write_bytes(f"---\n{head}\ntags: [one, two]\n---\n{body}".encode())
    elif kind == "move":
        homes = sorted({path.with_suffix("") for path in notes} | {path.parent for path in notes})
        home = data.draw(st.sampled_from(homes))
        own = file.with_name(file.name[:-3])
        if own not in (home, *home.parents) and not own.exists() and not (home / file.name).exists():
            home.mkdir(exist_ok=True)
            file.rename(home / file.name)
    elif kind == "remove" and not file.with_name(file.name[:-3]).exists() and folder.name == "export":
        others = "".join(path.read_bytes().decode() for path in notes if path != file)
        if head.partition("id: ")[2].partition("\n")[0].strip('"') not in others:
            file.unlink()
