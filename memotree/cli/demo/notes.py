"""The demo's steps on notes: found by their titles, right after a correction, and silent about what nobody stored."""

from typing import Final

from rich.padding import Padding
from rich.text import Text

from memotree.cli.demo.steps import DemoSteps
from memotree.cli.output import counted, short
from memotree.client import Answer, Client, Node, RecallResult, Workspace, changes

WORKSPACE: Final = "notebook"
ARCHIVE: Final = "facts"
FACTS: Final = (
    ("Retries", "At most five, with growing pauses."),
    ("Phone number of Nora", "0151 2345"),
    ("Budget", "The budget is 40k a year."),
)
CORRECTED: Final = "The budget is 45k a year."
UNKNOWN: Final = "What is the capital of France?"


class NotesDemo:
    """The steps on notes."""

    def __init__(self, stage: DemoSteps, client: Client) -> None:
        self._stage = stage
        self._client = client

    def run(self) -> None:
        """Runs all steps in their order."""
        self._client.create_workspace(WORKSPACE, "What an agent has learned")
        workspace = self._client.workspace(WORKSPACE)
        budget = self._remember(workspace)
        self._recall(workspace)
        self._correct(workspace, budget)
        self._ask(workspace)

    def _remember(self, workspace: Workspace) -> Node:
        stage = self._stage
        stage.step("Store facts as notes", f"memotree node create --archive {ARCHIVE} --title Retries -c TEXT")
        with workspace.session(agent="learner") as session:
            archive = session.create_archive(ARCHIVE)
            made = session.apply([changes.create(title, text, archive=archive.id) for title, text in FACTS])
            commit = session.commit("Remember three facts")
        stage.say(f"commit {short(commit.commit_id)}, {counted(len(made), 'note')}", commit=commit.commit_id)
        return workspace.node(made[-1].node)

    def _recall(self, workspace: Workspace) -> None:
        stage = self._stage
        stage.step("Recall a note by its title", "memotree recall retries")
        found = workspace.recall("retries", token_budget=20)
        self._best(found)
        stage.say(f"confidence: {found.confidence} ({found.likelihood:.2f})", confidence=found.confidence)

    def _best(self, found: RecallResult) -> None:
        """Shows the best passage."""
        for passage in sorted(found.passages, key=lambda passage: -passage.score)[:1]:
            self._stage.show(Padding(Text(passage.text), (0, 3), expand=False))

    def _correct(self, workspace: Workspace, budget: Node) -> None:
        stage = self._stage
        stage.step("Correct a fact; brief and summary follow in the same commit", "memotree node update NODE -c TEXT")
        with workspace.session(agent="learner") as session:
            session.update(budget, content=CORRECTED)
            commit = session.commit("The budget was raised")
        self._best(workspace.recall("What is the budget?", token_budget=20))
        old, new = len(workspace.search("40k")), len(workspace.search("45k"))
        stage.say(
            f"commit {short(commit.commit_id)}; a search for 40k has {counted(old, 'hit')}, one for 45k {new}",
            commit=commit.commit_id,
            hits=[old, new],
        )

    def _ask(self, workspace: Workspace) -> None:
        stage = self._stage
        stage.step("Ask what nobody has stored", f"memotree ask '{UNKNOWN}'")
        answer = next(event for event in workspace.ask(UNKNOWN) if isinstance(event, Answer))
        stage.show(Padding(Text(answer.text), (0, 3), expand=False))
        stage.say(f"confidence: {answer.confidence}", confidence=answer.confidence)
