"""Stages the plan of an import in a session, in batches; what a server refuses is told with the file it comes from."""

from __future__ import annotations

import re
from itertools import groupby
from typing import TYPE_CHECKING, Final

from memotree.client.errors import MemoTreeClientError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from memotree.client.markdown.planning import ImportPlan, PlannedChange
    from memotree.client.session import AsyncSession

_MOST_CHANGES: Final = 500
_MOST_BYTES: Final = 2 << 20
_NUMBER: Final = re.compile(r"(?:batch|changes)\[(\d+)\]")


async def stage(session: AsyncSession, plan: ImportPlan) -> None:
    """Stages all of a plan.

    Raises:
        MemoTreeClientError: The server refuses a change; the message names the file.
    """
    for archive in plan.new_archives:
        try:
            await session.create_archive(
                archive.name,
                model_id=archive.model_id or "",
                description=archive.description or "",
                archive=archive.id,
            )
        except MemoTreeClientError as error:
            raise _of_file(error, archive.file) from None
    for archive, new in plan.archives:
        try:
            await session.update_archive(archive.id, **new)
        except MemoTreeClientError as error:
            raise _of_file(error, archive.file) from None
    for batch in _batches(plan.changes):
        try:
            await session.apply(each.change for each in batch)
        except MemoTreeClientError as error:
            raise _of_file(error, _file_of(error, batch)) from None
    for archive_id in plan.deleted_archives:
        await session.delete_archive(archive_id)


def _batches(planned: Sequence[PlannedChange]) -> Iterator[list[PlannedChange]]:
    batch: list[PlannedChange] = []
    size = 0
    for each in planned:
        length = each.change.ByteSize()
        if batch and (len(batch) == _MOST_CHANGES or size + length > _MOST_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(each)
        size += length
    if batch:
        yield batch


def _file_of(error: MemoTreeClientError, batch: Sequence[PlannedChange]) -> str:
    told = _NUMBER.search(" ".join([error.message, *(each.field for each in error.violations)]))
    if told is not None and int(told[1]) < len(batch):
        return batch[int(told[1])].file
    files = [file for file, _ in groupby(each.file for each in batch)]
    return files[0] if len(files) == 1 else ""


def _of_file(error: MemoTreeClientError, file: str) -> MemoTreeClientError:
    """The error, with the file before its message."""
    if error.reason == "NODE_EXISTS":
        error.message = "This note was imported or deleted before. Export again, and make the edit there."
    if file:
        error.message = f"{file}: {error.message}"
        error.args = (error.message,)
    return error
