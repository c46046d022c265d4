"""Lists what other programs committed that stands nowhere in its tree, or cannot be read."""

from collections.abc import Mapping
from typing import Final

from memotree_storage.concurrency.threads import in_store_thread
from memotree_storage.errors import InvalidInputError
from memotree_storage.git.objects import is_hex_id
from memotree_storage.mirror.push_check import push_faults, state_behind
from memotree_storage.mirror.tree_faults import (
    NAME_TAKEN,
    TOO_DEEP,
    UNREADABLE,
    TreeFault,
    tell_fault,
    tree_faults,
    unreadable_files,
)
from memotree_storage.postgres.misplaced import CYCLE, NO_ARCHIVE, ORPHAN, OTHER_ARCHIVE
from memotree_storage.postgres.tree import Snapshot
from memotree_storage.store import Store

from memotree.request import lookup
from memotree.request.pages import PageTokens, fitting, page_size
from memotree.v1 import maintenance_service_pb2 as pb

_KINDS: Final[Mapping[str, pb.FaultKind.ValueType]] = {
    ORPHAN: pb.FAULT_KIND_ORPHAN,
    NO_ARCHIVE: pb.FAULT_KIND_NO_ARCHIVE,
    CYCLE: pb.FAULT_KIND_CYCLE,
    OTHER_ARCHIVE: pb.FAULT_KIND_OTHER_ARCHIVE,
    NAME_TAKEN: pb.FAULT_KIND_NAME_TAKEN,
    UNREADABLE: pb.FAULT_KIND_UNREADABLE,
    TOO_DEEP: pb.FAULT_KIND_TOO_DEEP,
}
_MOST_OF_A_PUSH: Final = 100
_CURSOR: Final[Mapping[str, type]] = {"node": str, "path": str, **lookup.PINNED}
"""Where the next page begins: after a node, or after the path of a file if all nodes were listed."""


async def list_faults(store: Store, pages: PageTokens, request: pb.ListFaultsRequest) -> pb.ListFaultsResponse:
    """The faults of a revision: nodes and archives by id, then files that cannot be read by path.

    Raises:
        NotFoundError: There is no such workspace or revision.
        InvalidPageTokenError: The token was not given for this call.
    """
    size = page_size(request.page_size)
    cursor = pages.read(request, _CURSOR)
    found: list[TreeFault] = []
    async with store.database.connection() as conn:
        place = await lookup.page_revision(conn, request.workspace, request.revision, cursor)
        snapshot = Snapshot(conn, place.state)
        repository = await in_store_thread(store.repositories.get, place.workspace.workspace_id)
        if cursor is None or not cursor["path"]:
            rows = await tree_faults(snapshot, cursor["node"] if cursor else "", size + 1)
            found += await in_store_thread(lambda: [tell_fault(repository, place.state.commit_id, row) for row in rows])
        if len(found) <= size:
            after = cursor["path"] if cursor else ""
            found += await unreadable_files(snapshot, repository, after, size + 1 - len(found))
    shown = fitting(_message(fault) for fault in found[:size])
    more = None
    if len(found) > len(shown):
        last = found[len(shown) - 1]
        is_file = last.kind == UNREADABLE
        more = {"node": "" if is_file else last.entry_id, "path": last.path if is_file else ""}
    return pb.ListFaultsResponse(
        faults=shown, next_page_token=pages.write(request, {**more, **lookup.pinned(place)} if more else None)
    )


async def check_push(store: Store, workspace_id: str, request: pb.CheckPushRequest) -> pb.CheckPushResponse:
    """The faults that a branch would get by a push.

    Raises:
        NotFoundError: There is no such commit.
        InvalidInputError: An id is none.
    """
    for field, value in (("commit_id", request.commit_id), ("old_commit_id", request.old_commit_id)):
        if not is_hex_id(value) and (value or field == "commit_id"):
            raise InvalidInputError.at(field, "must be the whole id of a commit: 40 hexadecimal digits.")
    repository = await in_store_thread(store.repositories.get, workspace_id)
    async with store.database.connection() as conn:
        behind = request.old_commit_id or request.commit_id
        state = await state_behind(conn, workspace_id, repository, behind)
        found = await push_faults(
            Snapshot(conn, state), repository, request.commit_id, max_depth=store.max_depth, limit=_MOST_OF_A_PUSH
        )
    return pb.CheckPushResponse(faults=fitting(_message(fault) for fault in found))


def _message(fault: TreeFault) -> pb.Fault:
    return pb.Fault(
        kind=_KINDS[fault.kind],
        node_id=fault.entry_id,
        title=fault.title,
        path=fault.path,
        line=fault.line,
        description=fault.sentence,
        way_out=fault.way_out,
    )
