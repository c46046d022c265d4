"""The storage library by itself: a workspace, a session and its commit, without the service."""

import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from memotree_storage.commit.refs import create_branch
from memotree_storage.commit.session_commit import CommitOrder, NothingToCommitError, commit_session
from memotree_storage.commit.transaction import workspace_transaction
from memotree_storage.commit.workspaces import create_workspace
from memotree_storage.concurrency.cancellation import CommitPoint
from memotree_storage.model.node import Archive, Node, new_id
from memotree_storage.model.workspace import WorkspaceInfo, service_signature
from memotree_storage.ports import Signature
from memotree_storage.postgres import refs, sessions, staging, tree
from memotree_storage.postgres.refs import BRANCHES
from memotree_storage.postgres.staging import Edit
from memotree_storage.postgres.tree import Snapshot, State
from memotree_storage.store import Store

NOW = datetime.now(UTC).replace(microsecond=0)


async def head_of(store: Store, workspace_id: str) -> State:
    async with store.database.connection() as conn:
        found = await refs.find_ref(conn, workspace_id, BRANCHES, "main")
    assert found is not None
    return State(workspace_id, found.commit_id)


async def session_on(store: Store, head: State) -> str:
    session_id = new_id()
    async with store.database.transaction() as conn:
        await sessions.open_session(
            Snapshot(conn, head), session_id, branch="main", agent="a-program", ttl=timedelta(hours=1)
        )
    return session_id


def log_of(store: Store, workspace_id: str) -> list[str]:
    command = ["git", "-C", str(store.repositories.path(workspace_id)), "log", "--format=%an: %s", "main"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()  # noqa: S603 - our own


@pytest.mark.requirement("STORE-1", "GIT-2")
async def test_the_library_alone_commits_a_session_and_names_the_commit(store: Store) -> None:
    created = await create_workspace(store, WorkspaceInfo(new_id(), "library", "", NOW))
    workspace_id = created.workspace_id
    session_id = await session_on(store, await head_of(store, workspace_id))
    archive = Archive(new_id(), "notes", "a-program", "")
    node = Node(new_id(), archive.id, None, "a0", title="Retries", content="Only calls that may be repeated.")
    async with store.database.transaction() as conn:
        session = await sessions.hold_session(conn, workspace_id, session_id)
        await staging.stage(conn, session, [Edit(archive, None), Edit(node, None, "Because they fail twice.")])
    order = CommitOrder(
        "Note how retries work", Signature("Ada", "ada@example.org", NOW), service_signature(), tag="v1"
    )
    result = await commit_session(store, workspace_id, session_id, order)
    assert (result.branch, result.tag, result.changes, result.remaining, result.warnings) == ("main", "v1", 2, 0, ())
    async with store.database.connection() as conn:
        found = await tree.versions(Snapshot(conn, State(workspace_id, result.commit_id)), [node.id])
    assert found[node.id].title == "Retries"
    assert log_of(store, workspace_id) == [
        "Ada: Note how retries work",
        "MemoTree: Create workspace library",
    ]
    with pytest.raises(NothingToCommitError):
        await commit_session(store, workspace_id, session_id, replace(order, tag=""))

    async def find_commit() -> str:
        return result.commit_id

    async with workspace_transaction(store, workspace_id, CommitPoint()) as held:
        assert (await create_branch(held, "next", find_commit)).commit_id == result.commit_id


def test_the_library_imports_nothing_of_the_service() -> None:
    program = (
        "import memotree_storage.commit.session_commit, memotree_storage.verify, sys;"
        "print([name for name in sys.modules if name == 'memotree' or name.startswith('memotree.')])"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)  # noqa: S603
    assert answer.stdout.strip() == "[]"
