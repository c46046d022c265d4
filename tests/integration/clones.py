"""Clones of a workspace's repository, and what a push shows to its author."""

import subprocess
from pathlib import Path

import pytest
from memotree_storage.model.codec import encode_entry
from memotree_storage.model.node import Node, new_id
from memotree_storage.model.paths import entry_path

from memotree.client.blocking import Workspace


class Clone:
    """A clone of a workspace's repository, as a person has it."""

    def __init__(self, folder: Path, repository: Path | str, *, name: str = "A person") -> None:
        self.folder, self._name = folder, name
        subprocess.run(["git", "clone", "-q", repository, folder], check=True, capture_output=True)  # noqa: S603, S607

    def run(self, *arguments: str) -> str:
        """What git writes about itself; in a push, the lines of the remote are there."""
        command = ["git", "-c", f"user.name={self._name}", "-c", "user.email=a@example.org", "-C", str(self.folder)]
        done = subprocess.run([*command, *arguments], check=True, capture_output=True, text=True, timeout=120)  # noqa: S603
        return done.stderr

    def write(self, path: str, data: bytes) -> None:
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)

    def commit(self, *nodes: Node) -> None:
        """Commit what was written, and these nodes."""
        for node in nodes:
            self.write(entry_path(node), encode_entry(node))
        self.run("add", "-A")
        self.run("commit", "-q", "-m", "Change files")

    @property
    def head(self) -> str:
        """The commit of its main branch."""
        return (self.folder / ".git" / "refs" / "heads" / "main").read_text().strip()


def new_node(notes: Workspace, title: str, content: str, parent: str | None = None) -> Node:
    """A node of the only archive, as a root or below another one."""
    (archive,) = notes.at("main").archives()
    return Node(new_id(), archive.id, parent, "a5", title=title, content=content)


def lost_node(notes: Workspace, title: str = "Lost") -> Node:
    """A node below one that is not there, which is a fault."""
    return new_node(notes, title, "Below nothing.", parent=new_id())


def remote_lines(output: str) -> list[str]:
    """What the hook said, without the padding that git adds."""
    lines = [line.removeprefix("remote: ").rstrip() for line in output.splitlines() if line.startswith("remote: ")]
    return [line for line in lines if line]


def refused(clone: Clone, *arguments: str) -> list[str]:
    """What the hooks say about a push that they refuse."""
    with pytest.raises(subprocess.CalledProcessError) as failed:
        clone.run("push", "origin", *arguments)
    return [line for line in remote_lines(failed.value.stderr) if not line.startswith("error: hook declined")]
