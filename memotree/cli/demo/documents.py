"""The demo's steps on documents: builds trees from the descriptions of installed packages and asks questions."""

import hashlib
import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, metadata
from typing import Final

from rich.padding import Padding
from rich.text import Text

from memotree.cli.demo.steps import DemoSteps
from memotree.cli.output import counted, short
from memotree.client import Answer, Client, Ingestion, Job, Passage, Workspace

WORKSPACE: Final = "handbook"
PACKAGES: Final = ("rich", "typer", "openai", "qdrant-client", "structlog", "httpx", "pypdf", "wordllama")
"""Packages that MemoTree depends on and whose descriptions are in Markdown with headings."""

QUESTIONS: Final = (
    "How do I print a table with colours in the terminal?",
    "How can I stream the answer of a language model?",
)
BUDGET: Final = 300
CHANGED: Final = "rich"
PARAGRAPH: Final = "\nMemoTree draws the trees, tables and progress bars of its command line with Rich.\n"
_SHOWN_CHARS: Final = 260


class DocumentsDemo:
    """The steps on documents."""

    def __init__(self, stage: DemoSteps, client: Client) -> None:
        self._stage = stage
        self._client = client

    def run(self) -> None:
        """Runs all steps in their order."""
        self._client.create_workspace(WORKSPACE, "The descriptions of the packages behind MemoTree")
        workspace = self._client.workspace(WORKSPACE)
        texts = dict(descriptions())
        self._take_in(workspace, texts)
        self._recall(workspace)
        self._ask(workspace)
        self._update(workspace, texts)

    def _take_in(self, workspace: Workspace, texts: dict[str, str]) -> None:
        stage = self._stage
        characters = sum(map(len, texts.values()))
        stage.step(
            f"Build trees from {len(texts)} documents",
            f"memotree ingest --workspace {WORKSPACE} README.md MANUAL.pdf …",
        )
        begun = time.monotonic()
        results: list[Ingestion] = []
        with stage.output.progress() as bar:
            for number, (name, text) in enumerate(texts.items(), 1):
                results.append(_ingested(workspace, name, text))
                bar.at("Documents", number, len(texts))
        leaves, above = sum(each.created_leaves for each in results), sum(each.summary_nodes for each in results)
        stage.say(
            f"{characters:,} characters became {leaves} leaves under {above} summaries in "
            f"{time.monotonic() - begun:.1f} s, one commit for each document",
            characters=characters,
            leaves=leaves,
            summary_nodes=above,
        )

    def _recall(self, workspace: Workspace) -> None:
        for question in QUESTIONS:
            self._stage.step(f"Recall, in {BUDGET} tokens", f"memotree recall --budget {BUDGET} '{question}'")
            begun = time.monotonic()
            found = workspace.recall(question, token_budget=BUDGET)
            milliseconds = (time.monotonic() - begun) * 1000
            for passage in found.passages[:2]:
                self._passage(passage)
            self._stage.say(
                f"{counted(len(found.passages), 'passage')}, {found.tokens_used} tokens of "
                f"{found.leaves_considered} leaves, {milliseconds:.0f} ms",
                question=question,
                tokens=found.tokens_used,
                archives=list(dict.fromkeys(passage.archive_name for passage in found.passages)),
            )

    def _passage(self, passage: Passage) -> None:
        place = " > ".join([passage.archive_name, *passage.headings])
        text = " ".join(passage.text.split())
        shown = text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "…"
        self._stage.show(Padding(Text.assemble((place, "bold"), "\n", shown), (0, 3), expand=False))

    def _ask(self, workspace: Workspace) -> None:
        question = QUESTIONS[1]
        self._stage.step("Ask; without a chat model the answer is the cited passages", f"memotree ask '{question}'")
        answer = next(event for event in workspace.ask(question, token_budget=BUDGET) if isinstance(event, Answer))
        checked = 0
        for citation in answer.citations:
            content = workspace.at(citation.commit_id).node(citation.node_id).content
            checked += hashlib.sha256(content.encode()).hexdigest() == citation.content_sha256
        self._stage.say(
            f"{counted(len(answer.citations), 'citation')} with node, commit and place in the document; "
            f"{checked} checked by hash",
            citations=len(answer.citations),
            checked=checked,
        )

    def _update(self, workspace: Workspace, texts: dict[str, str]) -> None:
        stage = self._stage
        stage.step("Ingest a new version of a document", "memotree ingest README.md")
        paragraphs = texts[CHANGED].split("\n\n")
        middle = len(paragraphs) // 2
        changed = "\n\n".join([*paragraphs[:middle], PARAGRAPH, *paragraphs[middle:]])
        result = _ingested(workspace, CHANGED, changed)
        stage.say(
            f"commit {short(result.commit_id)}: {counted(result.kept_leaves, 'piece')} kept, "
            f"{result.created_leaves} new, {result.removed_leaves} removed",
            kept=result.kept_leaves,
            created=result.created_leaves,
            removed=result.removed_leaves,
        )


def descriptions() -> Iterator[tuple[str, str]]:
    """Yields the name and description of each package."""
    for name in PACKAGES:
        try:
            text = str(metadata(name).json.get("description", ""))
        except PackageNotFoundError:
            continue
        if text.strip():
            yield name, text


def _ingested(workspace: Workspace, name: str, text: str) -> Ingestion:
    """Ingest one document and wait until the job ends."""
    job: Job | None = None
    for event in workspace.ingest(text, name=name, document_id=f"{name}.md", media_type="text/markdown"):
        if isinstance(event, Job):
            job = event
    if job is None or job.ingestion is None:
        cause = job.message if job else "the server sent no job"
        raise RuntimeError(cause)
    return job.ingestion
