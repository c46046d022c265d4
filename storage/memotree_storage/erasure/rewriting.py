"""The first part of an erasure: the history is rewritten and takes the place of the old one, and the rows follow.

It is done when the record of erasures in the repository names it, so a job that was killed can begin again anywhere.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import structlog

from memotree_storage import faults
from memotree_storage.concurrency.cancellation import CommitPoint, finish_past_commit_point
from memotree_storage.concurrency.threads import in_store_thread
from memotree_storage.erasure.finding import redaction_of, refuse_names
from memotree_storage.git.erasures import ErasureNotFoundError, ErasureStub, read_erasure, salted_hash, write_erasure
from memotree_storage.git.generations import (
    ErasedMark,
    GenerationRacedError,
    PackSink,
    all_refs,
    begin_generation,
    complete_generation,
    give_up_generation,
    new_place,
    put_in_place,
    read_mark,
    remove_erased_mark,
    remove_old_generation,
    write_refs,
)
from memotree_storage.git.maintenance import MaintenanceFailedError, no_maintenance, pack_whole
from memotree_storage.git.repository import GitRepository
from memotree_storage.git.rewriting import HistoryRewriter
from memotree_storage.git.signing import Signer
from memotree_storage.maintenance.erased import follow_generation
from memotree_storage.mirror.catch_up import Report
from memotree_storage.model.erasure import ErasureTarget, Redaction
from memotree_storage.model.workspace import WorkspaceInfo
from memotree_storage.ports import Signature
from memotree_storage.postgres import projector
from memotree_storage.store import Store

_ATTEMPTS: Final = 5
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Order:
    """An erasure that was confirmed.

    Attributes:
        erasure_id: Its id, the same for each attempt.
        workspace_id: The workspace.
        target: What goes.
        by: Who asked for it.
        why: Why.
        author: Who is the author of the commit that records it.
    """

    erasure_id: str
    workspace_id: str
    target: ErasureTarget
    by: str
    why: str
    author: Signature


async def rewrite_history(store: Store, order: Order, report: Report | None = None) -> ErasureStub:
    """Put a new generation of the repository, without what goes, in its place, and let the rows follow.

    Commits can be made while the history is rewritten. The workspace takes none while what came meanwhile is rewritten
    too and its rows are written anew; all of it can be read until the end.

    Raises:
        GenerationRacedError: Pushes moved refs, or commits changed what goes, every time.
        NameHasTextError: A branch or tag has the text in its name.
    """
    done = await _done(store, order)
    for _ in range(_ATTEMPTS):
        if done is not None:
            return done
        done = await _attempt(store, order, report)
    if done is None:
        raise GenerationRacedError
    return done


async def _attempt(store: Store, order: Order, report: Report | None) -> ErasureStub | None:
    """Rewrite the history and put it in its place; ``None`` if others were faster, and nothing was changed."""
    place = store.repositories.path(order.workspace_id)
    await store.catch_up(order.workspace_id)
    async with store.database.connection() as conn:
        redaction = await redaction_of(conn, order.workspace_id, order.target)
    await in_store_thread(begin_generation, place, redaction.raw)
    sink = PackSink(new_place(place))
    rewriter = HistoryRewriter(place, redaction, sink)
    try:
        refs = await in_store_thread(all_refs, place)
        new = await in_store_thread(rewriter.rewrite, refs, _told(report, "history"))
        await in_store_thread(_packed, sink, new_place(place), new)
        faults.point("erase.rewritten")

        async def switch(commit_point: CommitPoint) -> ErasureStub:
            commit_point.reached = True  # Git and the rows must change together, whoever leaves meanwhile
            return await _switch(store, order, redaction, rewriter, report)

        return await finish_past_commit_point(switch)
    except GenerationRacedError:
        return None
    finally:
        await in_store_thread(rewriter.close)
        sink.drop()
        await in_store_thread(give_up_generation, place)


def _packed(sink: PackSink, draft: Path, refs: dict[str, str]) -> None:
    """Write the objects of the new generation, and let git make deltas of them, while commits go on."""
    sink.finish()
    write_refs(draft, refs)
    try:
        pack_whole(draft)
    except MaintenanceFailedError as error:  # the packs are as they were, only larger
        _log.warning("the new generation of a repository was not packed", why=error.message)


async def _done(store: Store, order: Order) -> ErasureStub | None:
    """The stub of an erasure whose first part is done; rows that a failure kept from following do it now."""
    repository = await in_store_thread(store.repositories.get, order.workspace_id)
    try:
        stub = await in_store_thread(read_erasure, repository, order.erasure_id)
    except ErasureNotFoundError:
        return None
    mark = await in_store_thread(read_mark, repository.path)
    if mark is not None:
        info = await in_store_thread(store.repositories.describe, order.workspace_id)
        async with store.locks.workspaces.of(order.workspace_id), store.held(order.workspace_id) as conn:
            await follow_generation(conn, info, repository, mark)
    await _after_switch(store, order.workspace_id)
    return stub


async def _switch(
    store: Store, order: Order, redaction: Redaction, rewriter: HistoryRewriter, report: Report | None
) -> ErasureStub:
    """Rewrite what came meanwhile, write the rows anew, and put the new generation in its place; all under the lock."""
    workspace_id = order.workspace_id
    repository = await in_store_thread(store.repositories.get, workspace_id)
    async with store.locks.workspaces.of(workspace_id), store.held(workspace_id) as conn:
        if await redaction_of(conn, workspace_id, order.target) != redaction:
            raise GenerationRacedError
        await projector.forget(conn, workspace_id)  # from here on no session can be opened on an old commit
        refs = await in_store_thread(all_refs, repository.path)
        refuse_names(redaction, refs)
        signer = store.repositories.signer
        stub, mark = await in_store_thread(_complete, order, repository.path, refs, rewriter, signer)
        faults.point("erase.completed")
        info = await in_store_thread(store.repositories.describe, workspace_id)
        with await in_store_thread(GitRepository.open, new_place(repository.path)) as draft:
            await follow_generation(conn, _redacted(info, redaction), draft, mark, report)
        await in_store_thread(_replace, repository, refs)
        store.repositories.replaced(workspace_id)
        faults.point("erase.before-commit")
    await _after_switch(store, workspace_id)
    return stub


def _redacted(info: WorkspaceInfo, redaction: Redaction) -> WorkspaceInfo:
    return replace(info, name=redaction.text(info.name), description=redaction.text(info.description))


def _complete(
    order: Order, place: Path, refs: dict[str, str], rewriter: HistoryRewriter, signer: Signer | None
) -> tuple[ErasureStub, ErasedMark]:
    """Rewrite what came meanwhile, and write refs, record and mark of the new generation."""
    draft = new_place(place)
    late = PackSink(draft)
    rewriter.sink = late
    try:
        new = rewriter.rewrite(refs)
        late.finish()
    finally:
        late.drop()
    found = rewriter.findings
    mark = ErasedMark(order.erasure_id, found.blobs)
    complete_generation(place, new, mark)
    salt, digest = salted_hash(order.target)
    named = tuple(filter(None, (order.target.node_id, order.target.archive_id)))
    stub = ErasureStub(
        erasure_id=order.erasure_id,
        kind=order.target.kind,
        by=order.by,
        erased_at=datetime.now(UTC).isoformat(timespec="seconds"),
        why=order.why,
        node_ids=named,
        fields=order.target.fields,
        salt=salt,
        sha256=digest,
        commits=len(found.commits),
        files=len(found.blobs),
        tags=len(found.tags),
        signatures=found.signatures,
    )
    with GitRepository.open(draft, signer=signer) as repository:
        write_erasure(repository, stub, found.commits, order.author)
    return stub, mark


def _replace(repository: GitRepository, refs: dict[str, str]) -> None:
    with no_maintenance(repository.path), repository.replaced():
        put_in_place(repository.path, refs)


async def _after_switch(store: Store, workspace_id: str) -> None:
    place = store.repositories.path(workspace_id)
    store.forget_cached(workspace_id)
    store.placed.clear()
    store.entries.forget()
    await in_store_thread(remove_erased_mark, place)
    faults.point("erase.mark-removed")
    await in_store_thread(remove_old_generation, place)
    store.notice_commit(workspace_id)
    faults.point("erase.old-removed")


def _told(report: Report | None, step: str) -> Callable[[int, int], None]:
    def tell(done: int, total: int) -> None:
        if report is not None:
            report(step, done, total)

    return tell
