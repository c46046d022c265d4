"""A document is read in a process with limits: whatever it costs there, the server and its other documents go on."""

import asyncio
import contextlib
import os
import resource
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
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


@pytest.fixture
async def own_reader() -> AsyncIterator[DocumentReader]:
    """A reader whose processes are those that this process gets as children in the test."""
    async with reading() as reader:
        yield reader


@asynccontextmanager
async def reading(**limits: Any) -> AsyncIterator[DocumentReader]:
    reader = DocumentReader(ReadingLimits(**limits))
    try:
        yield reader
    finally:
        await reader.close()


@pytest.fixture(scope="module")
def bomb() -> bytes:
    """A document that takes minutes."""
    return pdf_bomb(3000, 20_000)


async def test_a_document_or_the_error_of_its_reader_is_the_same_wherever_it_is_read(
    own_reader: DocumentReader,
) -> None:
    page, code = "<h1>One</h1><p>two</p>" * 400, "def one():\n    return 1\n\n" * 300
    good = [(LONG, "a.md"), (LONG.encode(), "a.md"), (LONG.encode("utf-16"), "a.txt"), (b"small", ""), ("small", "")]
    for data, name in [*good, (page, "a.html"), ("a,b\n" + "1,2\n" * 2000, "a.csv"), (code, "a.py")]:
        assert await own_reader.read(data, name=name) == read_document(data, name=name)
    for bad, name in ((b"\x00\x01" * 4000, "a.bin"), (b"%PDF-1.7 broken", "a.pdf"), (b"", "")):
        with pytest.raises(UnreadableDocumentError) as here:
            read_document(bad, name=name)
        with pytest.raises(UnreadableDocumentError) as there:
            await own_reader.read(bad, name=name)
        assert type(there.value) is type(here.value)
        assert there.value.message == here.value.message
        assert [fault.description for fault in there.value.violations] == [here.value.message]
    assert (await own_reader.read(LONG)).text == LONG


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
    bomb: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    statuses: list[int] = []
    ended = Process.ended
    monkeypatch.setattr(Process, "ended", lambda process: (statuses.append(ended(process)), statuses[-1])[1])
    async with reading(time=timedelta(seconds=1)) as reader:
        with pytest.raises(DocumentTooCostlyError, match=r"'bomb.pdf' needs more than 1 seconds of processor time"):
            await reader.read(bomb, name="bomb.pdf")
        assert statuses == [-signal.SIGXCPU], "the system has ended it, not the longer limit of the server"
        assert (await reader.read(LONG)).text == LONG


async def test_the_time_of_one_document_is_not_that_of_all(own_reader: DocumentReader) -> None:
    """A process is kept for the next document, which has the whole time again."""
    before, one = set(children()), pdf_bomb(4, 2000)
    await own_reader.read(LONG)
    [kept] = set(children()) - before
    used, limit = used_seconds(kept), most_seconds(kept)
    while used_seconds(kept) < used + 1:
        await own_reader.read(one, name="a.pdf")
    await own_reader.read(LONG)
    assert most_seconds(kept) > limit


async def test_a_document_that_takes_too_much_memory_or_has_too_much_text_is_refused() -> None:
    async with reading(memory=300 << 20) as reader:
        with pytest.raises((DocumentTooCostlyError, UnpackedTooLargeError), match=r"300 MiB of memory|unpacked"):
            await reader.read(b"x" * (150 << 20), name="long.txt")
        assert (await reader.read(LONG)).text == LONG
    async with reading(characters=10_000) as reader:
        with pytest.raises(DocumentTooLongError, match="has more than 10,000 characters; give it in parts"):
            await reader.read(LONG, name="long.md")


async def test_a_crash_of_a_library_is_told(own_reader: DocumentReader, bomb: bytes) -> None:
    task = asyncio.create_task(own_reader.read(bomb, name="a.pdf"))
    for _ in range(2):
        [began] = await new_children(set(children()), 1)
        os.kill(began, signal.SIGSEGV)
    with pytest.raises(DocumentCrashesReaderError, match=r"'a.pdf' crashed the library that reads it"):
        await task
    assert (await own_reader.read(LONG)).text == LONG


async def test_a_document_is_read_though_the_process_that_was_kept_has_ended(own_reader: DocumentReader) -> None:
    before = set(children())
    await own_reader.read(LONG)
    [kept] = set(children()) - before
    os.kill(kept, signal.SIGTERM)
    assert (await own_reader.read(LONG)).text == LONG


async def test_a_cancelled_call_ends_its_process(own_reader: DocumentReader, bomb: bytes) -> None:
    before = set(children())
    tasks = [asyncio.create_task(own_reader.read(bomb, name="bomb.pdf")) for _ in range(8)]
    await new_children(before, 2)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert set(children()) <= before
    assert (await own_reader.read(LONG)).text == LONG


async def new_children(before: set[int], count: int) -> set[int]:
    """Wait for so many new children of this process."""
    for _ in range(6_000):
        if len(new := set(children()) - before) >= count:
            return new
        await asyncio.sleep(0.01)
    pytest.fail(f"waited in vain until {count} processes began")


def used_seconds(process: int) -> float:
    """The processor time that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def most_seconds(process: int) -> int:
    """The processor time that a process may use until the system ends it."""
    return resource.prlimit(process, resource.RLIMIT_CPU)[0]


def children() -> list[int]:
    """The children of this process, whichever of its threads began them."""
    found = []
    for path in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):  # the thread has ended
            found += [int(pid) for pid in path.read_text().split()]
    return found
