"""The git program over a folder of Markdown files."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from bench.peers.program import TOP, Note, serve

_CONFIGURATION = {
    "user.name": "Bench",
    "user.email": "bench@example.org",
    "gc.auto": "0",
    "core.fsync": "all",
    "core.fsyncMethod": "batch",
}


class GitProgram:
    """A repository with a file for each note, a hundred to a folder."""

    durability = "the repository is on disk (core.fsync=all), files of the work tree are not"
    lacks: ClassVar[Mapping[str, str]] = {"search_vector": "no vectors", "search_hybrid": "no vectors"}

    def __init__(self, folder: Path, _: str) -> None:
        self._folder = folder
        self._marked = ""
        settings = [part for name, value in _CONFIGURATION.items() for part in ("-c", f"{name}={value}")]
        self._command = ["git", "-C", str(folder), *settings]
        self.versions = {"git": self._run("--version").split()[2]}
        self._run("init", "-q")

    def load(self, notes: Sequence[Note]) -> None:
        self.update(notes)

    def settle(self) -> None:
        self._run("gc", "-q")

    def mark(self) -> None:
        self._marked = self._run("rev-parse", "HEAD").strip()

    def update(self, notes: Sequence[Note]) -> None:
        for note in notes:
            path = self._folder / _path(note.key)
            path.parent.mkdir(exist_ok=True)
            path.write_text(note.text, encoding="utf-8")
        self._run("add", "--pathspec-from-file=-", given="\n".join(_path(note.key) for note in notes))
        self._run("commit", "-q", "-m", "Change some notes")

    def search_words(self, text: str) -> list[str]:
        words = [part for word in text.split() for part in ("-e", word)]
        found = self._run("grep", "-l", "-i", "-w", "-F", *words, none_found=1)
        return [Path(line).stem for line in found.splitlines()[:TOP]]

    def history_of_one(self, key: str) -> int:
        return len(self._run("log", "--format=%H %ct %s", "--", _path(key)).splitlines())

    def read_as_of(self, key: str) -> str:
        return self._run("show", f"{self._marked}:{_path(key)}")

    def _run(self, *arguments: str, given: str | None = None, none_found: int = 0) -> str:
        done = subprocess.run(
            [*self._command, *arguments], input=given, capture_output=True, text=True, encoding="utf-8", check=False
        )
        if done.returncode not in {0, none_found}:
            raise OSError(f"git {arguments[0]} failed: {done.stderr.strip()}")
        return done.stdout


def _path(key: str) -> str:
    return f"{int(key.rpartition('-')[2]) // 100:04}/{key}.md"


if __name__ == "__main__":
    serve(GitProgram)
