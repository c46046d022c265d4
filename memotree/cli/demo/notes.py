"""The demo's steps on notes: remember, recall, correct, look back, try something out on a branch, merge and undo it."""

from typing import Final

from rich.padding import Padding
from rich.text import Text

from memotree.cli.demo.steps import DemoSteps, command_line, recall_command
from memotree.cli.terminal.output import counted, short
from memotree.client import (
    Answer,
    Author,
    ConflictSide,
    FailedPreconditionError,
    RecallResult,
    Resolution,
    Workspace,
)

WORKSPACE: Final = "memory"
FACTS: Final = (
    ("Payment retries", "A failed payment is sent again at most five times."),
    ("Deployments", "We deploy on Tuesdays and Thursdays, never before a holiday."),
    ("Contact for invoices", "Nora Lindt answers questions about invoices, phone 0151 2345."),
)
CORRECTED: Final = "A failed payment is sent again at most three times."
QUESTION: Final = "How often is a failed payment sent again?"
BEFORE: Final = "How often was a failed payment sent again before?"
UNKNOWN: Final = "What is the capital of France?"
NOT_SAID: Final = "What is the mail address of Nora Lindt?"
TAG: Final = "monday"
BRANCH: Final = "trial"
TRIED: Final = ("Payment provider", "Payments go through the new provider Paylane.")
ON_MAIN: Final = "We deploy on Wednesdays and Thursdays, never before a holiday."
ON_BRANCH: Final = "We deploy on Mondays and Thursdays, never before a holiday."
MERGER: Final = "reviewer"
PROPOSED: Final = "Nora Lindt answers questions about invoices, phone 0151 6789."
PROPOSAL: Final = "The new number of Nora"
TRIED_WORD: Final = "Paylane"
TRIED_QUESTION: Final = "Which provider do payments go through?"
NOTE_BUDGET: Final = 20
"""The tokens of an answer from notes: one note."""

WIDER_BUDGET: Final = 60
"""The tokens of a longer note, or of one and what it said before."""


class NotesDemo:
    """The steps on notes."""

    def __init__(self, stage: DemoSteps, workspace: Workspace) -> None:
        self._stage = stage
        self._workspace = workspace

    def run(self) -> None:
        """Runs all steps in their order."""
        self._remember()
        self._recall(f"Recall within {NOTE_BUDGET} tokens", QUESTION)
        self._ask_the_unknown()
        self._recall(
            "Ask what no note says about a person; the answer tells what is missing", NOT_SAID, budget=WIDER_BUDGET
        )
        self._correct()
        self._recall("Ask what was so before the correction", BEFORE, budget=WIDER_BUDGET)
        self._recall(f"Ask the past: the same question at the tag {TAG}", QUESTION, TAG)
        self._try_on_a_branch()
        self._undo(self._merge())
        self._review()

    def _remember(self) -> None:
        title, text = FACTS[0]
        self._stage.step(
            f"Remember {len(FACTS)} facts, one call and one commit each",
            command_line("remember", text, "--title", title, "--agent", "planner"),
            command_line("tag", "create", TAG),
        )
        commits = [self._workspace.remember(text, title=title, agent="planner").commit_id for title, text in FACTS]
        self._workspace.tag(TAG)
        self._stage.say(f"commits {', '.join(map(short, commits))}; the last one has the tag {TAG}", commits=commits)

    def _recall(self, title: str, question: str, at: str = "", budget: int = NOTE_BUDGET) -> None:
        self._stage.step(title, recall_command(question, budget, at))
        found = (self._workspace.at(at) if at else self._workspace).recall(question, token_budget=budget)
        self._answer(found)
        for warning in found.warnings:
            self._stage.say(warning)
        self._stage.fact(answer=_best(found), confidence=found.confidence, warnings=list(found.warnings))

    def _answer(self, found: RecallResult) -> None:
        """Shows the best passage and the confidence."""
        self._stage.show(Padding(Text(_best(found), "bold"), (0, 3), expand=False))
        self._stage.say(f"confidence: {found.confidence} ({found.likelihood:.2f})")

    def _ask_the_unknown(self) -> None:
        self._stage.step("Ask what nobody has stored; nothing is made up", command_line("ask", UNKNOWN))
        answer = next(event for event in self._workspace.ask(UNKNOWN) if isinstance(event, Answer))
        self._stage.show(Padding(Text(answer.text, "bold"), (0, 3), expand=False))
        self._stage.say(f"confidence: {answer.confidence}", confidence=answer.confidence)

    def _correct(self) -> None:
        title, _ = FACTS[0]
        self._stage.step(
            "Correct a fact; the next answer knows it",
            command_line("revise", title, CORRECTED, "--agent", "reviewer"),
            recall_command(QUESTION, NOTE_BUDGET),
        )
        revised = self._workspace.revise(query=title, text=CORRECTED, agent="reviewer")
        found = self._workspace.recall(QUESTION, token_budget=NOTE_BUDGET)
        self._answer(found)
        self._stage.say(
            f"commit {short(revised.commit_id)}; the old text stays in the history",
            commit=revised.commit_id,
            answer=_best(found),
        )

    def _try_on_a_branch(self) -> None:
        title, text = TRIED
        self._stage.step(
            "Try something out on a branch; main does not see it",
            command_line("branch", "create", BRANCH),
            command_line("remember", text, "--title", title, "--branch", BRANCH, "--agent", "planner"),
            recall_command(TRIED_QUESTION, NOTE_BUDGET, BRANCH),
            command_line("search", TRIED_WORD, "--by", "full_text"),
        )
        self._workspace.branch(BRANCH)
        self._workspace.remember(text, title=title, branch=BRANCH, agent="planner")
        there = self._workspace.at(BRANCH).recall(TRIED_QUESTION, token_budget=NOTE_BUDGET)
        on_main = len(self._workspace.search(TRIED_WORD, search_type="FULL_TEXT"))
        self._answer(there)
        self._stage.say(
            f"that is the answer on {BRANCH}; on main, a search for {TRIED_WORD} has {counted(on_main, 'hit')}",
            on_branch=_best(there),
            hits_on_main=on_main,
        )

    def _merge(self) -> str:
        """Merges the branch, and resolves what conflicts; the id of the merge commit."""
        title, _ = FACTS[1]
        message = f"Take over what {BRANCH} has shown"
        self._stage.step(
            "Merge the branch; a sentence that both sides changed waits to be decided",
            command_line("revise", title, ON_MAIN, "--agent", MERGER),
            command_line("revise", title, ON_BRANCH, "--branch", BRANCH, "--agent", "planner"),
            command_line("branch", "merge", BRANCH, "--resolve", "--agent", MERGER),
            command_line("session", "resolve", title, "content", "--take", "theirs"),
            command_line("commit", "--message", message),
        )
        node = self._workspace.revise(query=title, text=ON_MAIN, agent=MERGER).node
        self._workspace.revise(query=title, text=ON_BRANCH, branch=BRANCH, agent="planner")
        session = self._workspace.session(agent=MERGER)
        session.merge_branch(BRANCH)
        (conflict,) = session.conflicts()
        for name, side in (("before", conflict.base), ("ours", conflict.ours), ("theirs", conflict.theirs)):
            self._stage.say(f"{name:<7} {side}")
        session.resolve([Resolution(conflict.node_id, conflict.field, side=ConflictSide.THEIRS)])
        made = session.commit(message)
        session.discard()
        parents = len(self._workspace.show(made.commit_id).commit.parent_ids)
        self._stage.say(
            f"commit {short(made.commit_id)} has {parents} parents, as any merge in git",
            commit=made.commit_id,
            parents=parents,
            merged=self._workspace.node(node.id).content,
        )
        return made.commit_id

    def _undo(self, commit_id: str) -> None:
        """Takes the merge back."""
        self._stage.step(
            "Undo it: a new commit takes back all that the merge brought",
            f"MEMOTREE_AGENT={MERGER} {command_line('undo', '--yes')}",
            command_line("search", TRIED_WORD, "--by", "full_text"),
        )
        made = self._workspace.revert(commit_id, parent_number=1, author=Author(MERGER))
        on_main = len(self._workspace.search(TRIED_WORD, search_type="FULL_TEXT"))
        self._stage.say(
            f"commit {short(made.commit_id)}: {counted(made.change_count, 'note')} as before; a search for "
            f"{TRIED_WORD} has {counted(on_main, 'hit')} again",
            hits_on_main=on_main,
            changes=made.change_count,
        )

    def _review(self) -> None:
        """Protects main, so that a change of it has to be proposed, and merges what another one has approved."""
        title, _ = FACTS[2]
        self._stage.step(
            "Protect main; a change is proposed, somebody else approves it, and only then it answers",
            command_line("branch", "protect", "main"),
            command_line("session", "open", "--agent", "planner"),
            command_line("node", "update", title, "--content", PROPOSED),
            command_line("proposal", "create", PROPOSAL),
            command_line("proposal", "approve", 1, "--agent", "planner"),
            command_line("proposal", "approve", 1, "--agent", MERGER),
            command_line("proposal", "merge", 1, "--agent", "planner"),
            command_line("branch", "unprotect", "main"),
        )
        workspace = self._workspace
        workspace.protect("main", author=Author(MERGER))
        with workspace.session(agent="planner") as session:
            session.update(session.named(title)[0].node, content=PROPOSED)
            made = workspace.propose(PROPOSAL, session=session.id)
        try:
            workspace.approve(made.number, made.head_commit_id, reviewer=Author("planner"))
        except FailedPreconditionError as error:
            refused = error.message
            self._stage.say(refused)
        workspace.approve(made.number, made.head_commit_id, reviewer=Author(MERGER))
        merged = workspace.merge_proposal(made.number, author=Author("planner"))
        workspace.unprotect("main", author=Author(MERGER))
        self._stage.say(
            f"commit {short(merged.merge_commit_id)}: approved by {', '.join(merged.approved_by)}",
            refused=refused,
            commit=merged.merge_commit_id,
            approved_by=list(merged.approved_by),
        )


def _best(found: RecallResult) -> str:
    """The text of the best passage."""
    return max(found.passages, key=lambda passage: passage.score).text.strip()
