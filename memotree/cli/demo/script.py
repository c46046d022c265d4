"""The steps of the demo, in their order; they use only the public client, and at the end plain git."""

import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Final

from rich.text import Text

from memotree.cli.demo.documents import DocumentsDemo
from memotree.cli.demo.notes import WORKSPACE, NotesDemo
from memotree.cli.demo.steps import DemoSteps
from memotree.client import Client

_SHOWN_LINES: Final = 30


class Demo:
    """The steps; later ones use what the earlier ones created."""

    def __init__(self, stage: DemoSteps, client: Client, folder: Path) -> None:
        self._stage = stage
        self._client = client
        self._folder = folder

    def run(self) -> None:
        """Runs all steps in their order."""
        info = self._client.create_workspace(WORKSPACE, "What an agent knows")
        workspace = self._client.workspace(WORKSPACE)
        NotesDemo(self._stage, workspace).run()
        DocumentsDemo(self._stage, workspace, self._folder).run()
        self._audit(self._folder / info.repository)

    def _audit(self, repository: Path) -> None:
        """Shows the same work as git sees it."""
        stage = self._stage
        title = "Audit it with plain git: who changed what, and why"
        git = shutil.which("git")
        arguments = ["log", "--graph", "--branches", "--decorate", "--format=%h %<(9)%an %s%d"]
        shown = shlex.join(["git", "-C", str(repository), *arguments])
        stage.step(title, shown)
        if git is None:
            stage.say("there is no git program on this machine, so this step is skipped", git=False)
            return
        command = [git, "-c", "safe.directory=*", "-C", str(repository), "--no-pager"]
        done = subprocess.run([*command, *arguments], capture_output=True, check=False)  # noqa: S603 - git, read only
        lines = (done.stdout or done.stderr).decode("utf-8", "replace").splitlines()
        for line in lines[:_SHOWN_LINES]:
            stage.show(Text(f"   {line}"))
        stage.fact(exit_code=done.returncode, lines=len(lines))
