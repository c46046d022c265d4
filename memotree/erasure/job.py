"""The job that erases. It survives kills: each part can be repeated, and a note says which ones are done."""

import json
from collections.abc import Awaitable, Callable
from typing import Final

from memotree_storage import faults
from memotree_storage.concurrency.threads import in_store_thread
from memotree_storage.erasure import remains, rewriting
from memotree_storage.git.erasures import read_erasure
from memotree_storage.model.erasure import ErasureTarget
from memotree_storage.model.workspace import service_signature
from memotree_storage.ports import Signature
from memotree_storage.postgres import jobs
from memotree_storage.store import Store

from memotree.erasure.messages import erasure_message
from memotree.jobs.job_context import JobContext
from memotree.jobs.runner import JobRunner
from memotree.v1 import erase_service_pb2 as pb
from memotree.v1 import job_service_pb2

ERASE: Final = "erase"
TARGET: Final = "target"
"""The input that has what is erased. It is deleted before the tables are written anew."""

_REMOVED: Final = "removed"
"""The note that the rows and files are gone; it has how many staged changes changed."""


def register(
    runner: JobRunner,
    store: Store,
    author_email: str,
    optimise: Callable[[], Awaitable[None]] | None,
    git_remote_url: str | None = None,
) -> None:
    """Registers ``erase``; it can be restarted at any point.

    Args:
        runner: Runs the jobs.
        store: An open store.
        author_email: The address of the author of the record.
        optimise: Writes the files of an embedded index anew; ``None`` for a Qdrant of one's own.
        git_remote_url: Where workspaces are pushed to, if they are.
    """

    async def erase(context: JobContext) -> job_service_pb2.ErasureResult:
        result = await _erase(store, context, author_email, optimise)
        if git_remote_url is not None:
            result.left.append(
                f"The remote {git_remote_url} gets the new history, and keeps the old objects until they are removed"
                " there: run `git gc --prune=now` in it, or make it anew."
            )
        return result

    runner.register(ERASE, erase)


def lane(workspace_id: str) -> str:
    """Returns the lane of erasures: that of the rebuilds, since each replaces the rows of the workspace."""
    return f"{workspace_id}/mirrors"


async def _erase(
    store: Store, context: JobContext, author_email: str, optimise: Callable[[], Awaitable[None]] | None
) -> job_service_pb2.ErasureResult:
    job = context.job
    request = context.request(pb.EraseRequest)
    staged = await context.kept(_REMOVED)
    if staged is None:
        target = ErasureTarget.decode(await context.input(TARGET))
        author = Signature(request.by, author_email, service_signature().when)
        order = rewriting.Order(job.id, job.workspace_id, target, request.by, request.reason, author)
        await context.progress("history")
        await rewriting.rewrite_history(store, order, context.report)
        await context.progress("index")
        await store.index_rows(job.workspace_id, context.report)
        await store.indexes.delete_retired()  # they have not heard of it
        await context.progress("rows and files")
        changed = await remains.remove_texts(store, order)
        async with store.database.transaction() as conn:
            await jobs.put_note(conn, job.id, _REMOVED, json.dumps(changed).encode())
            await jobs.drop_input(conn, job.id, TARGET)
        staged = json.dumps(changed).encode()
        faults.point("erase.text-forgotten")
    await context.progress("files of the databases")
    left = await remains.compact(store, optimise)
    repository = await in_store_thread(store.repositories.get, job.workspace_id)
    stub = await in_store_thread(read_erasure, repository, job.id)
    left.append("Clones, backups elsewhere and what clients have read cannot be reached from here.")
    return job_service_pb2.ErasureResult(erasure=erasure_message(stub), staged_changes=json.loads(staged), left=left)
