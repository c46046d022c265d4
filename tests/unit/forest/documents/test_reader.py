"""A document is read in a process with limits: whatever it costs there, the server and its other documents go on."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from nasty_documents import pdf_bomb

from memotree.forest.documents import UnreadableDocumentError, read_document
from memotree.forest.documents.packed import UnpackedTooLargeError
from memotree.forest.documents.reader import (
    DocumentCrashesReaderError,
    DocumentReader,
    DocumentTooCostlyError,
    DocumentTooLongError,
    ReadingLimits,
)
from memotree.workers.pool import Process

pytestmark = pytest.mark.requirement("STORE-8", "FOREST-3")

LONG = "# A heading\n\nSome text of a section.\n\n" * 500
SECOND = timedelta(seconds=1)


@pytest.fixture
async def reader() -> AsyncIterator[DocumentReader]:
    made = DocumentReader()
    yield made
    await made.close()


@pytest.mark.parametrize(
    ("data", "fields"),
    [
        (LONG, {"name": "a.md"}),
        (LONG.encode(), {"name": "a.md"}),
        (LONG.encode("utf-16"), {"name": "a.txt"}),
        ("<h1>One</h1><p>two</p>" * 400, {"media_type": "text/html"}),
        ("a,b\n" + "1,2\n" * 2000, {"name": "a.csv"}),
        ("def one():\n    return 1\n\n" * 300, {"name": "a.py"}),
        (b"small", {}),
        ("small", {}),
    ],
)
async def test_a_document_is_the_same_wherever_it_is_read(
    reader: DocumentReader, data: bytes | str, fields: dict[str, Any]
) -> None:
    assert await reader.read(data, **fields) == read_document(data, **fields)


async def test_a_document_that_cannot_be_read_has_the_error_of_its_reader(reader: DocumentReader) -> None:
    for data, fields in ((b"\x00\x01" * 4000, {"name": "a.bin"}), (b"%PDF-1.7 broken", {"name": "a.pdf"}), (b"", {})):
        with pytest.raises(UnreadableDocumentError) as here:
            read_document(data, **fields)
        with pytest.raises(UnreadableDocumentError) as there:
            await reader.read(data, **fields)
        assert type(there.value) is type(here.value)
        assert there.value.message == here.value.message
        assert [fault.description for fault in there.value.violations] == [here.value.message]
    assert (await reader.read(LONG)).text == LONG


def test_the_errors_of_all_readers_are_known_although_their_libraries_are_not_loaded() -> None:
    """A process tells the reason; the server makes the error of it, and has read no document itself."""
    program = """
import pkgutil, importlib, memotree.forest.documents as package
from memotree.forest.documents import reader
def reasons(): return {kind.reason for kind in reader._kinds(reader.UnreadableDocumentError)}
known = reasons()
for module in pkgutil.iter_modules(package.__path__): importlib.import_module(f"{package.__name__}.{module.name}")
assert reasons() == known, reasons() - known
"""
    subprocess.run([sys.executable, "-c", program], check=True)  # noqa: S603 - this interpreter


async def test_a_document_that_takes_too_long_is_refused_and_the_next_one_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    statuses: list[int] = []
    ended = Process.ended
    monkeypatch.setattr(Process, "ended", lambda process: (statuses.append(ended(process)), statuses[-1])[1])
    reader = DocumentReader(ReadingLimits(time=SECOND))
    with pytest.raises(DocumentTooCostlyError, match=r"'bomb.pdf' needs more than 1 seconds of processor time"):
        await reader.read(pdf_bomb(3000, 20_000), name="bomb.pdf")
    assert statuses == [-signal.SIGXCPU], "the system has ended it, not the longer limit of the server"
    assert (await reader.read(LONG)).text == LONG
    await reader.close()


async def test_the_time_of_one_document_is_not_that_of_all() -> None:
    """A process is kept for the next document, which has the whole time again."""
    reader = DocumentReader(ReadingLimits(time=3 * SECOND))
    one = pdf_bomb(4, 4000)
    for _ in range(10):
        assert (await reader.read(one, name="a.pdf")).pages
    await reader.close()


async def test_a_document_that_takes_too_much_memory_is_refused() -> None:
    reader = DocumentReader(ReadingLimits(memory=300 << 20))
    with pytest.raises((DocumentTooCostlyError, UnpackedTooLargeError), match=r"300 MiB of memory|unpacked"):
        await reader.read(b"x" * (150 << 20), name="long.txt")
    assert (await reader.read(LONG)).text == LONG
    await reader.close()


async def test_a_document_with_too_much_text_is_refused() -> None:
    reader = DocumentReader(ReadingLimits(characters=10_000))
    with pytest.raises(DocumentTooLongError, match="has more than 10,000 characters; give it in parts"):
        await reader.read(LONG, name="long.md")
    await reader.close()


async def test_a_crash_of_a_library_is_told(reader: DocumentReader) -> None:
    task = asyncio.create_task(reader.read(pdf_bomb(3000, 20_000), name="a.pdf"))
    for _ in range(2):
        os.kill(await child(), signal.SIGSEGV)
    with pytest.raises(DocumentCrashesReaderError, match=r"'a.pdf' crashed the library that reads it"):
        await task
    assert (await reader.read(LONG)).text == LONG


async def test_a_document_is_read_though_the_process_that_was_kept_has_ended(reader: DocumentReader) -> None:
    before = set(children())
    await reader.read(LONG)
    [kept] = set(children()) - before
    os.kill(kept, signal.SIGTERM)
    assert (await reader.read(LONG)).text == LONG


async def test_a_cancelled_call_ends_its_process(reader: DocumentReader) -> None:
    before = set(children())
    tasks = [asyncio.create_task(reader.read(pdf_bomb(3000, 20_000), name="bomb.pdf")) for _ in range(8)]
    while len(set(children()) - before) < 2:  # noqa: ASYNC110 - another process decides
        await asyncio.sleep(0.01)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert set(children()) <= before
    assert (await reader.read(LONG)).text == LONG


async def child() -> int:
    """The newest child of this process."""
    before = set(children())
    while not (new := set(children()) - before):  # noqa: ASYNC110 - another process decides
        await asyncio.sleep(0.01)
    return new.pop()


def children() -> list[int]:
    """The children of this process, whichever of its threads began them."""
    found = []
    for path in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):  # the thread has ended
            found += [int(pid) for pid in path.read_text().split()]
    return found
