"""The demo's steps on documents: a folder becomes trees, and a question finds the place in them."""

import hashlib
import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import Final

from rich.padding import Padding
from rich.text import Text

from memotree.cli.demo.steps import DemoSteps, command_line, recall_command
from memotree.cli.terminal.output import counted, short
from memotree.client import Citation, IngestedFile, IngestionProgress, Passage, Workspace

PACKAGES: Final = ("rich", "typer", "openai", "qdrant-client", "structlog", "httpx", "pypdf", "wordllama")
"""Packages that MemoTree depends on and whose descriptions are in Markdown with headings."""

FOLDER: Final = "handbook"
DOCUMENT_QUESTION: Final = "How do I show a progress bar with Rich?"
DOCUMENT_BUDGET: Final = 300
_SHOWN_CHARS: Final = 240


class DocumentsDemo:
    """The steps on documents."""

    def __init__(self, stage: DemoSteps, workspace: Workspace, folder: Path) -> None:
        self._stage = stage
        self._workspace = workspace
        self._folder = folder / FOLDER

    def run(self) -> None:
        """Runs all steps in their order."""
        self._ingest()
        self._recall()

    def _ingest(self) -> None:
        stage = self._stage
        characters = write_documents(self._folder)
        stage.step("Ingest a folder: the manuals of packages that MemoTree uses", command_line("ingest", self._folder))
        begun = time.monotonic()
        files: list[IngestedFile] = []
        with stage.output.progress() as bar:
            for event in self._workspace.ingest_files(self._folder, agent="librarian"):
                if isinstance(event, IngestionProgress):
                    bar.at("Documents", event.done, event.total)
                elif isinstance(event, IngestedFile):
                    files.append(event)
        for failed in (each for each in files if not each.is_committed):
            raise RuntimeError(f"{failed.path}: {failed.message}")
        results = [each.job.ingestion for each in files if each.job and each.job.ingestion]
        leaves, above = sum(each.created_leaves for each in results), sum(each.summary_nodes for each in results)
        stage.say(
            f"{counted(len(files), 'document')} of {characters:,} characters became {leaves} leaves under "
            f"{above} summaries in {time.monotonic() - begun:.1f} s, in one commit",
            documents=len(files),
            leaves=leaves,
            summary_nodes=above,
        )

    def _recall(self) -> None:
        stage = self._stage
        stage.step(
            f"Ask the documents, for at most {DOCUMENT_BUDGET} tokens, with citations",
            recall_command(DOCUMENT_QUESTION, DOCUMENT_BUDGET),
        )
        begun = time.monotonic()
        found = self._workspace.recall(DOCUMENT_QUESTION, token_budget=DOCUMENT_BUDGET)
        milliseconds = (time.monotonic() - begun) * 1000
        best = max(found.passages, key=lambda passage: passage.score)
        self._passage(best)
        stage.say(
            f"{counted(len(found.passages), 'passage')}, {found.tokens_used} tokens of {found.leaves_considered} "
            f"leaves, {milliseconds:.0f} ms; confidence: {found.confidence} ({found.likelihood:.2f})",
            tokens=found.tokens_used,
            archive=best.archive_name,
            confidence=found.confidence,
        )
        self._check(next(node.citation for node in best.nodes if node.citation))

    def _check(self, citation: Citation) -> None:
        """Shows where a passage is from, and reads it there again."""
        cited = self._workspace.at(citation.commit_id).node(citation.node_id)
        is_same = hashlib.sha256(cited.content.encode()).hexdigest() == citation.content_sha256
        place = f", characters {citation.source.start} to {citation.source.end}" if citation.source else ""
        self._stage.say(
            f"cited: {citation.archive_name}{place}, node {citation.node_id} at commit {short(citation.commit_id)}; "
            f"its hash is {'right' if is_same else 'wrong'}",
            is_same=is_same,
        )

    def _passage(self, passage: Passage) -> None:
        place = " > ".join([passage.archive_name, *passage.headings])
        text = " ".join(passage.text.split())
        shown = text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "…"
        self._stage.show(Padding(Text.assemble((place, "bold"), "\n", shown), (0, 3), expand=False))


def write_documents(folder: Path) -> int:
    """Writes the documents into ``folder``; returns their characters together."""
    folder.mkdir()
    characters = 0
    for name, text in descriptions():
        (folder / f"{name}.md").write_text(text, encoding="utf-8")
        characters += len(text)
    return characters


def descriptions() -> Iterator[tuple[str, str]]:
    """Yields the name and description of each package that is installed; they need no network."""
    for name in PACKAGES:
        try:
            text = str(metadata(name).json.get("description", ""))
        except PackageNotFoundError:
            continue
        if text.strip():
            yield name, text
