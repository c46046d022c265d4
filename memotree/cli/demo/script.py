"""The steps of the demo; it uses only the public client."""

import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from memotree_storage.model.node import new_id
from rich.console import Group
from rich.padding import Padding
from rich.text import Text

from memotree.cli import display
from memotree.cli.demo.documents import DocumentsDemo
from memotree.cli.demo.language_reference import Section, once_each, reference
from memotree.cli.demo.notes import NotesDemo
from memotree.cli.demo.steps import DemoSteps
from memotree.cli.output import counted, short
from memotree.client import Change, Client, Revision, SearchType, Session, Workspace, changes

WORKSPACE: Final = "python-docs"
ARCHIVE: Final = "language-reference"
BATCH: Final = 100
_SHOWN_HITS: Final = 3
_SHOWN_LINES: Final = 90
ADDITION: Final = "Where no context manager is needed, contextlib.nullcontext stands in for one."
NOTE: Final = "上下文管理器在进入和离开 with 语句时获取和释放资源。即使抛出异常，资源也会被释放。"  # noqa: RUF001 - Chinese commas


class Demo:
    """The steps; later ones use what the earlier ones created."""

    def __init__(self, stage: DemoSteps, client: Client, folder: Path) -> None:
        self._stage = stage
        self._client = client
        self._folder = folder
        self._ids: dict[int, str] = {}
        self._topics: dict[str, str] = {}
        self._trees: Mapping[str, Section] = {}

    def run(self) -> None:
        """Runs all steps in their order."""
        info = self._client.create_workspace(WORKSPACE, "The Python language reference, by section")
        workspace = self._client.workspace(WORKSPACE)
        self._import(workspace)
        self._check(workspace)
        self._search(workspace)
        self._edit(workspace)
        self._compare(workspace)
        self._git(self._folder / info.repository)
        DocumentsDemo(self._stage, self._client).run()
        NotesDemo(self._stage, self._client).run()

    def _import(self, workspace: Workspace) -> None:
        stage = self._stage
        stage.step(
            "Create a workspace and open a session",
            f"memotree ws create {WORKSPACE} && memotree session open --agent librarian",
        )
        with workspace.session(agent="librarian") as session:
            stage.say(
                f"session {session.id}: its staged changes are durable, and visible only inside it", session=session.id
            )
            archive = session.create_archive(ARCHIVE, model_id="demo", description="Topics of pydoc, by section")
            trees, parts = once_each(reference())
            self._trees = trees
            described = [change for tree in trees.values() for change in self._describe(tree, archive.id)]
            self._topics = {name: self._ids[id(section)] for name, section in {**trees, **parts}.items()}
            stage.step(
                f"Import {len(trees)} texts as a tree of {len(described)} sections",
                "memotree node create --title TITLE --file SECTION.txt --parent NODE",
            )
            stage.say(f"{len(parts)} further topics are chapters of these texts", texts=len(trees), chapters=len(parts))
            begun = time.monotonic()
            with stage.output.progress() as bar:
                for start in range(0, len(described), BATCH):
                    session.apply(described[start : start + BATCH])
                    bar.at("Staging sections", min(start + BATCH, len(described)), len(described))
            seconds = time.monotonic() - begun
            stage.say(
                f"staged {len(described)} nodes in {seconds:.1f} s, in all-or-nothing batches of up to {BATCH}",
                nodes=len(described),
                seconds=round(seconds, 2),
            )
            stage.step("Commit and tag", "memotree commit -m 'Import the Python language reference' --tag v1")
            with stage.output.waiting("Committing"):
                begun = time.monotonic()
                commit = session.commit("Import the Python language reference", tag="v1")
            stage.say(
                f"commit {short(commit.commit_id)} on {commit.branch}, tag v1, {commit.change_count} files, "
                f"{time.monotonic() - begun:.1f} s",
                commit=commit.commit_id,
                changes=commit.change_count,
            )

    def _describe(self, topic: Section, archive: str) -> Iterator[Change]:
        """The changes that create the nodes of one topic, parents first; children use ids that are chosen here."""
        ids = {id(section): new_id() for section in topic.walk()}
        self._ids |= ids
        yield changes.create(
            topic.title, topic.text, archive=archive, node_type="reference", node_id=ids[id(topic)], tags=["topic"]
        )
        for section in topic.walk():
            for below in section.below:
                yield changes.create(
                    below.title, below.text, parent=ids[id(section)], node_type="reference", node_id=ids[id(below)]
                )

    def _check(self, workspace: Workspace) -> None:
        stage = self._stage
        shown = self._topics["compound"]
        stage.step("Read it back at the tag", f"memotree node tree {shown[:6]} --at v1 --depth 1")
        revision = workspace.at("v1")
        lines = display.tree_lines(revision.tree(shown, max_depth=1).nodes)
        stage.show(Padding(Group(Text(ARCHIVE, "bold cyan"), *lines), (0, 3), expand=False))
        texts = {name: text for name, text in reference().items() if name in self._trees}
        with stage.output.progress() as bar:
            same = 0
            for number, (name, text) in enumerate(texts.items(), 1):
                same += "".join(_texts(revision, self._topics[name])) == text
                bar.at("Comparing texts", number, len(texts))
        stage.say(
            f"{same} of {len(texts)} texts are identical to the input, character by character",
            same=same,
            texts=len(texts),
        )

    def _search(self, workspace: Workspace) -> None:
        for way, query in (
            ("full_text", "context manager __exit__"),
            ("semantic", "clean up a resource even if an error happens"),
            ("hybrid", "what happens when a name is not found"),
        ):
            self._stage.step(f"Search: {way.replace('_', ' ')}", f"memotree search --by {way} '{query}'")
            self._find(workspace, query, way)

    def _find(self, revision: Revision, query: str, way: str) -> None:
        begun = time.monotonic()
        found = revision.search(query, search_type=SearchType(way.upper()), max_results=_SHOWN_HITS, preview_length=160)
        milliseconds = (time.monotonic() - begun) * 1000
        self._stage.show(Padding(display.hits(found), (0, 3), expand=False))
        self._stage.say(
            f"{counted(len(found), 'hit')} in {milliseconds:.0f} ms",
            query=query,
            hits=[{"id": hit.node.id, "title": hit.node.title, "score": round(hit.score, 3)} for hit in found],
        )

    def _edit(self, workspace: Workspace) -> None:
        stage = self._stage
        target, other = self._topics["with"], self._topics["for"]
        stage.step(
            "Edit two nodes and add one, in a second session",
            f"memotree session open --agent editor && memotree node append {target[:6]} -c TEXT -m WHY",
        )
        with workspace.session(agent="editor") as session:
            session.update(
                target,
                content=ADDITION,
                mode="APPEND",
                tags=["contextlib"],
                regenerate_summary=True,
                message="Point to nullcontext",
            )
            session.update(other, title='The "for" statement: iterating', message="Say what it is for")
            session.create("上下文管理器", NOTE, parent=target, tags=["中文"], message="A note in Chinese")
            for change in session.changes():
                line = Text.assemble("   ", display.change_kind(change.kind), "  ", change.title)
                stage.show(line.append(f"  {', '.join(change.commit_messages)}", "dim"))
            self._search_staged(workspace, session)
            stage.step("Commit", "memotree commit -m 'Explain context managers further'")
            commit = session.commit("Explain context managers further")
            stage.say(
                f"commit {short(commit.commit_id)}, {commit.change_count} changed",
                commit=commit.commit_id,
                changes=commit.change_count,
            )

    def _search_staged(self, workspace: Workspace, session: Session) -> None:
        stage = self._stage
        for query in ("nullcontext", "资源"):
            stage.step("Search in the session, before the commit", f"memotree search --by full_text {query}")
            self._find(session, query, "full_text")
            outside = len(workspace.search(query))
            stage.say(
                f"outside of the session, {counted(outside, 'hit')}: nobody else sees staged changes", outside=outside
            )

    def _compare(self, workspace: Workspace) -> None:
        stage = self._stage
        node = self._topics["with"]
        stage.step("Read a node as it was, and as it is", f"memotree node get {node[:6]} --at v1")
        then, now = workspace.at("v1").node(node), workspace.node(node)
        for name, each in (("at v1", then), ("now", now)):
            last = each.content.strip().splitlines()[-1]
            stage.show(Text.assemble((f"   {name:6}", "bold"), f"{each.content_tokens:5} tokens, ends: {last[-90:]}"))
        stage.fact(then_tokens=then.content_tokens, now_tokens=now.content_tokens)
        stage.step("See what differs", "memotree diff v1 main")
        difference = workspace.diff("v1", "main")
        stage.show(Padding(display.entries(difference.changes), (0, 3), expand=False))
        stage.say(difference.summary, changed=len(difference.changes))

    def _git(self, repository: Path) -> None:
        stage = self._stage
        git = shutil.which("git")
        if git is None:
            stage.step("Audit it with git")
            stage.say("there is no git program on this machine, so this step is skipped", git=False)
            return
        node = self._topics["with"]
        for title, arguments in (
            ("Audit it with git: the history", ["log", "--oneline", "--decorate", "--shortstat"]),
            ("Audit it with git: the history of one node", ["log", "--oneline", "--", _file(node)]),
            ("Audit it with git: the last commit", ["show", "--stat=100", "--patch", "main"]),
        ):
            stage.step(title, f"git -C {readable(repository)} {' '.join(arguments)}")
            colour = "always" if stage.output.out.is_terminal and not stage.output.out.no_color else "never"
            command = [git, "-c", f"color.ui={colour}", "-c", "safe.directory=*", "-C", str(repository), "--no-pager"]
            done = subprocess.run([*command, *arguments], capture_output=True, check=False)  # noqa: S603 - git, read only
            lines = (done.stdout or done.stderr).decode("utf-8", "replace").splitlines()
            for line in lines[:_SHOWN_LINES]:
                stage.show(Text.assemble("   ", Text.from_ansi(line)))
            if len(lines) > _SHOWN_LINES:
                stage.show(Text(f"   … {len(lines) - _SHOWN_LINES} more lines", "dim"))
            stage.fact(exit_code=done.returncode, lines=len(lines))


def _texts(revision: Revision, node: str) -> Iterator[str]:
    """Yields the contents of a node and of all nodes below it, in the order of the tree."""
    found = revision.node(node)
    yield found.content
    if found.child_count:
        for child in revision.children(node):
            yield from _texts(revision, child.id)


def _file(node: str) -> str:
    """The path of a node's file in the repository."""
    return f"nodes/{node[:2]}/{node[2:4]}/{node}.md"


def readable(path: Path) -> str:
    """The path relative to the working folder if it is inside it."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
