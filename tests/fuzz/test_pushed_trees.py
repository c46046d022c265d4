"""Any tree and commit, pushed past the server into a repository: it is taken in, or told, and harms nobody.

Entries without parents, below themselves or of other archives, two files of one entry, files that are none, names and
modes that git would not make: whatever was pushed, each call about it is answered, the stores agree after a rebuild as
before, and when the branch is moved back, the workspace takes changes.
"""

import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from campaigns import effort
from fuzz.corpus import damaged, parts, seeds, texts
from fuzz.requests import filled, request_of
from fuzz.server import BrokenPromiseError
from fuzz.world import World
from hypothesis import given, note
from hypothesis import strategies as st
from integration.prepared import CHILD, GONE, LEAF, ROOT, TWINS
from integration.wires import Refusal
from memotree_storage.git.objects import KIND_NAMES, object_id

pytestmark = pytest.mark.requirement("GIT-8", "STORE-8")

COMMIT, TREE, BLOB = 1, 2, 3
NEW: Final = [f"{letter}new{number:012d}" for number, letter in enumerate("mnpqrs")]
IDS: Final = [ROOT, CHILD, LEAF, GONE, *TWINS, *NEW]
MODES: Final = ["100644"] * 6 + ["100755", "120000", "160000", "40000", "100664"]
NAMES: Final = ["", "-a-title", "-\u4e2d\u6587", "-" + "x" * 200, "-a b", "-\\"]
ODD_PATHS: Final = texts("paths")


@st.composite
def entry_files(draw: st.DrawFn) -> tuple[str, str, bytes]:
    """A path, a mode and the bytes of a file."""
    entry_id, parent = draw(st.sampled_from(IDS)), draw(st.sampled_from([*IDS, "", "~", "zzzzzzzzzzzzzzzz"]))
    archive = draw(st.sampled_from(["{archive}", "{archive}", "{book}", *NEW, ROOT]))
    title = draw(st.sampled_from(["Root", "A title", "\u6811", "x" * 600, '"\\u202e"']))
    facts = {
        "id": entry_id,
        "archive": archive,
        "parent": parent,
        "position": f"a{draw(st.integers(0, 3))}",
        "type": "note",
        "title": title,
    }
    node = "---\n" + "".join(f"{key}: {value}\n" for key, value in facts.items()) + "---\nWords of it.\n"
    of_archive = f"---\nid: {entry_id}\nname: {draw(st.sampled_from(['notes', 'A book', 'more']))}\n---\n"
    whole = draw(st.sampled_from([node, node, node, of_archive])).encode()
    folder = draw(
        st.sampled_from([f"nodes/{entry_id[:2]}/{entry_id[2:4]}"] * 5 + ["archives", f"nodes/{entry_id[:2]}", "other"])
    )
    path = f"{folder if whole != of_archive.encode() else 'archives'}/{entry_id}{draw(st.sampled_from(NAMES))}.md"
    if draw(st.integers(0, 5)) == 0:
        path = draw(st.sampled_from(ODD_PATHS))
    if draw(st.integers(0, 3)) == 0:
        whole = draw(damaged([whole, *seeds("entry_files")], parts("entry_files")))
    return path, draw(st.sampled_from(MODES)), whole


class Repository:
    """A repository that git alone writes to, objects without any check."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def git(self, *arguments: str, data: bytes = b"") -> bytes:
        """The output of a git command."""
        done = subprocess.run(  # noqa: S603 - git, with arguments of ours
            ["git", "-C", str(self._path), *arguments],  # noqa: S607 - the one of the machine
            input=data,
            capture_output=True,
            check=True,
        )
        return done.stdout.strip()

    def write(self, kind: int, data: bytes) -> str:
        """Write an object; return its id."""
        made = object_id(kind, data).hex()
        told = self.git(
            "hash-object", "-t", KIND_NAMES[kind].decode(), "-w", "--stdin", "--literally", data=data
        ).decode()
        assert told == made
        return made

    def tree(self, files: Mapping[str, tuple[str, str]]) -> str:
        """Write a tree of modes and ids by path."""
        here: dict[str, tuple[str, str]] = {}
        below: dict[str, dict[str, tuple[str, str]]] = {}
        for path, file in files.items():
            name, _, rest = path.partition("/")
            if rest:
                below.setdefault(name, {})[rest] = file
            else:
                here[name] = file
        here |= {name: ("40000", self.tree(inner)) for name, inner in below.items()}
        rows = sorted(
            (name + ("/" if mode == "40000" else ""), name, mode, made) for name, (mode, made) in here.items()
        )
        return self.write(
            TREE, b"".join(f"{mode} {name}".encode() + b"\0" + bytes.fromhex(made) for _, name, mode, made in rows)
        )

    def files(self, revision: str) -> dict[str, tuple[str, str]]:
        """The modes and ids of all files by path."""
        found = {}
        for row in self.git("ls-tree", "-r", "-z", revision).split(b"\0"):
            if row:
                facts, _, path = row.partition(b"\t")
                mode, _, made = facts.decode().split(" ")
                found[path.decode()] = (mode, made)
        return found


READS: Final[tuple[tuple[str, Mapping[str, Any]], ...]] = (
    ("ListArchives", {}),
    ("GetTree", {"archive": "notes"}),
    ("GetTree", {"archive": "A book"}),
    ("SearchNodes", {"query": "words", "max_results": 20}),
    ("Recall", {"query": "words of it"}),
    ("ListCommits", {}),
    ("GetCommit", {"revision": "main"}),
    ("DiffRevisions", {"old_revision": "v1", "new_revision": "main", "include_fields": True}),
    ("ListStaleSummaries", {}),
    ("RenderView", {}),
    ("ResolveNode", {"name": "notes/Root/Child"}),
)
READS_OF_A_NODE: Final = (
    ("GetNode", "node_id"),
    ("BlameNode", "node_id"),
    ("ListNodeRevisions", "node_id"),
    ("ListChildren", "parent_id"),
)


def ask(world: World, method: str, **fields: Any) -> Any:
    """The answer to a call, or its refusal, which must be one that a client can act on."""
    request = request_of(method, **fields, workspace="{workspace}")
    answer = world.server.send(method, filled(request, world.known).SerializeToString())
    if isinstance(answer, Refusal):
        world.server.check_refusal(answer, request)
        return answer
    return answer[-1] if method not in {"VerifyWorkspace", "RebuildWorkspace"} else answer


def differences(world: World) -> list[str]:
    """What `VerifyWorkspace` tells."""
    events = ask(world, "VerifyWorkspace")
    assert not isinstance(events, Refusal), events
    return sorted(each.difference.description for each in events if each.WhichOneof("event") == "difference")


def test_any_tree_that_is_pushed(world: World) -> None:
    @effort(3, shrink=False)
    @given(st.lists(entry_files(), max_size=8), st.lists(st.sampled_from(IDS), max_size=2), st.booleans(), st.data())
    def check(files: list[tuple[str, str, bytes]], removed: list[str], odd: bool, data: st.DataObject) -> None:
        note(repr(files))
        world.begin()
        repository = Repository(world.server.data / "workspaces" / f"{world.known['{workspace_id}']}.git")
        before = repository.git("rev-parse", "refs/heads/main").decode()
        tree = {
            path: file for path, file in repository.files("main").items() if not any(each in path for each in removed)
        }
        for path, mode, whole in files:
            for name, value in world.known.items():
                whole = whole.replace(name.encode(), value.encode())  # noqa: PLW2901 - what stands in braces
            blob = before if mode == "160000" else repository.write(BLOB, whole)
            tree = {
                known: file
                for known, file in tree.items()
                if not known.startswith(f"{path}/") and not path.startswith(f"{known}/")
            }
            tree[path] = ("40000", repository.tree({"a.md": ("100644", blob)})) if mode == "40000" else (mode, blob)
        by = "A <a@b> 1700000000 +0100"
        head = f"tree {repository.tree(tree)}\nparent {before}\nauthor {by}\ncommitter {by}\n\nPush\n"
        commit = head.encode()
        if odd:
            rest = commit.partition(b"\n")[2].partition(b"\n")[2]
            commit = commit[: len(commit) - len(rest)] + data.draw(damaged([rest], parts("commits")))
        try:
            pushed = {each for each in IDS if any(each in path or each.encode() in whole for path, _, whole in files)}
            push(world, repository, before, repository.write(COMMIT, commit), sorted(pushed | {*removed, ROOT}))
        finally:
            world.known = {}

    check()


def push(world: World, repository: Repository, before: str, made: str, asked: Iterable[str]) -> None:
    repository.git("update-ref", "refs/heads/main", made, before)
    opened = ask(world, "OpenSession", agent="tester", branch="main")
    for method, fields in READS:
        ask(world, method, **fields)
    for node_id in asked:
        for method, name in READS_OF_A_NODE:
            ask(world, method, **{name: node_id})
    told = differences(world)
    world.server.settle()
    world.server.check_log()
    rebuilt = ask(world, "RebuildWorkspace")
    if not isinstance(rebuilt, Refusal) and differences(world) != told:
        raise BrokenPromiseError(f"after a rebuild, other differences are told: {told} {differences(world)}")
    if not isinstance(opened, Refusal):
        ask(world, "Remember", text="It goes on.", archive="more notes")
    world.server.check_log()
    now = repository.git("rev-parse", "refs/heads/main").decode()
    repository.git("update-ref", "refs/heads/main", before, now)
    answer = ask(world, "Remember", text="It takes changes again.", archive="notes")
    assert not isinstance(answer, Refusal), answer
    assert differences(world) == []
    world.server.check_log()
