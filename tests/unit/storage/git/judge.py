"""Checks with the git program what the store has written."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Judge:
    path: Path

    def run(self, *arguments: str, stdin: bytes | None = None) -> str:
        return self.output(*arguments, stdin=stdin).decode()

    def output(self, *arguments: str, stdin: bytes | None = None) -> bytes:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")} | {
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "LC_ALL": "C.UTF-8",
        }
        who = ("-c", "user.name=Judge", "-c", "user.email=judge@example.org", "-c", "core.quotePath=false")
        done = subprocess.run(  # noqa: S603 - git with the tests' own arguments
            ["git", "-C", str(self.path), *who, *arguments],  # noqa: S607 - whichever git there is
            capture_output=True,
            input=stdin,
            env=environment,
            check=False,
        )
        assert done.returncode == 0, (arguments, done.stderr.decode())
        return done.stdout

    def check(self) -> None:
        """Check that no object is broken or missing; unreachable objects are allowed.

        A server may combine packs meanwhile: git complains of those that it has listed and that are gone then.
        """
        while True:
            packs = self._packs()
            try:
                self.run("fsck", "--full", "--strict", "--no-dangling", "--no-progress")
            except AssertionError:
                if self._packs() == packs:
                    raise
            else:
                return

    def _packs(self) -> set[str]:
        return {path.name for path in (self.path / "objects" / "pack").glob("*.pack")}

    def files(self, revision: str) -> dict[str, bytes]:
        listed = self.output("ls-tree", "-r", "-z", revision)
        files = {}
        for line in filter(None, listed.split(b"\0")):
            head, path = line.split(b"\t", 1)
            files[path.decode()] = self.output("cat-file", "blob", head.split()[2].decode())
        return files

    def clone(self, path: Path) -> "Judge":
        self.run("clone", "-q", str(self.path), str(path))
        return Judge(path)
