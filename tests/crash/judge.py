"""Checks what must hold after a kill: in Git, in PostgreSQL and over the API of the restarted server."""

import random
from pathlib import Path

import grpc
import psycopg
from crash.workload import WORKSPACE, Services, Writer
from memotree_storage.git.entry_files import entry_files
from memotree_storage.git.repository import GitRepository
from memotree_storage.mirror.catch_up import mirrored_refs
from memotree_storage.model import trailers
from memotree_storage.model.codec import decode_entry
from memotree_storage.model.node import Node
from memotree_storage.model.paths import parse_path
from memotree_storage.ports import CommitInfo
from memotree_storage.postgres import tree
from memotree_storage.postgres.tree import Snapshot, State
from unit.storage.git.judge import Judge as Git

from memotree.v1 import workspace_service_pb2


class Judge:
    """Compares a data folder with the answers that its writers got; a failed check raises ``AssertionError``."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self._compared: set[str] = set()

    async def check(self, services: Services, writers: list[Writer], rng: random.Random) -> None:
        """Run all checks, the ones whose failure explains most first."""
        found = await services.workspaces.GetWorkspace(workspace_service_pb2.GetWorkspaceRequest(workspace=WORKSPACE))
        workspace_id = found.workspace.id
        with GitRepository.open(self._data / found.workspace.repository) as repository:
            Git(repository.path).check()
            self._check_commits(repository, writers)
            for writer in writers:
                looked_at = writer.touched | set(rng.sample(sorted(writer.nodes), min(5, len(writer.nodes))))
                await self._check_session(services, writer, looked_at if self._compared else set(writer.nodes))
            await self._repeat(services, repository, writers)
            self._check_commits(repository, writers)
            await self._check_mirror(repository, workspace_id)
            await self._check_search(services, repository, rng)
        for writer in writers:
            writer.made.clear()

    def _check_commits(self, repository: GitRepository, writers: list[Writer]) -> None:
        """Check that the branch has the acknowledged commits, with their tags and the edits acknowledged before."""
        refs = repository.refs()
        by_request = _by_request(repository)
        chain = {info.commit_id for info in by_request.values()}
        for writer in writers:
            for made in writer.made:
                commit_id = made.response.commit_id
                assert commit_id in chain, f"the acknowledged commit {commit_id} is not on the branch"
                assert by_request[made.request.request_id].commit_id == commit_id
                if made.request.create_tag:
                    tag = refs.get(f"refs/tags/{made.request.tag_name}")
                    assert tag is not None, f"the tag {made.request.tag_name} is missing"
                    assert repository.commit_info(tag).commit_id == commit_id
                for node_id, text in made.before.items():
                    there = _content(repository, commit_id, node_id)
                    assert there in writer.nodes[node_id].not_older(text), (
                        f"{node_id} was acknowledged as {text!r} before commit {commit_id}, which has {there!r}"
                    )
        for request_id, info in by_request.items():
            tag_name = trailers.trailers_of(info.message).get(trailers.TAG)
            if tag_name:
                tag = refs.get(f"refs/tags/{tag_name}")
                assert tag is not None, f"commit {info.commit_id} of {request_id} asked for the tag {tag_name}"
                assert repository.commit_info(tag).commit_id == info.commit_id

    @staticmethod
    async def _check_session(services: Services, writer: Writer, node_ids: set[str]) -> None:
        """Check that every acknowledged edit is committed or still staged: the session shows it."""
        for node_id in sorted(node_ids):
            truth = writer.nodes[node_id]
            text = await services.read(node_id, writer.session_id)
            assert truth.may_be(text), (
                f"{node_id} of {writer.session_id} is {text!r}, acknowledged was {truth.acknowledged!r}, "
                f"possible {truth.unknown!r}"
            )
            truth.seen(text)
        writer.touched.clear()

    @staticmethod
    async def _repeat(services: Services, repository: GitRepository, writers: list[Writer]) -> None:
        """Check that a repeated request returns its commit, or makes it if it was not made the first time."""
        by_request = _by_request(repository)
        for writer in writers:
            for made in writer.made[-3:]:
                assert await services.sessions.CommitChanges(made.request) == made.response
            for request in writer.unknown:
                try:
                    first = await services.sessions.CommitChanges(request)
                except grpc.aio.AioRpcError as error:
                    # The commit was never made, and another request has committed its changes meanwhile.
                    refused = error.code() in {grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.NOT_FOUND}
                    if request.request_id in by_request or not refused:
                        raise
                else:
                    again = await services.sessions.CommitChanges(request)
                    assert again.commit_id == first.commit_id
                    if made_before := by_request.get(request.request_id):
                        assert first.commit_id == made_before.commit_id
            writer.unknown.clear()

    async def _check_mirror(self, repository: GitRepository, workspace_id: str) -> None:
        """Check that the mirror has exactly Git's commits and refs, and at each commit exactly Git's blobs."""
        refs = mirrored_refs(repository.refs())
        history = repository.history(sorted(set(refs.values())), lambda _: False)
        async with await psycopg.AsyncConnection.connect(conninfo(self._data), autocommit=True) as conn:
            rows = await (
                await conn.execute("select name, object_id from mirror.ref where workspace_id = %s", (workspace_id,))
            ).fetchall()
            assert dict(rows) == refs
            rows = await (
                await conn.execute("select commit_id from mirror.commit where workspace_id = %s", (workspace_id,))
            ).fetchall()
            assert sorted(row[0] for row in rows) == sorted(info.commit_id for info in history)
            for info in history:
                if info.commit_id not in self._compared:
                    mirrored = await tree.everything(Snapshot(conn, State(workspace_id, info.commit_id)))
                    assert {version.entry_id: version.blob for version in mirrored} == blobs(repository, info.commit_id)
                    self._compared.add(info.commit_id)

    def forget(self) -> None:
        """Compare every commit again at the next check."""
        self._compared.clear()

    @staticmethod
    async def verify(services: Services) -> None:
        """Check that the server's own verification of its three stores finds no difference."""
        assert await services.differences() == []

    @staticmethod
    async def _check_search(services: Services, repository: GitRepository, rng: random.Random) -> None:
        """Check that search at the head finds the committed texts by their unique words."""
        head = repository.refs()["refs/heads/main"]
        ids = sorted(blobs(repository, head))
        for node_id in rng.sample(ids, min(3, len(ids))):
            text = _content(repository, head, node_id)
            if text is None or "zq" not in text:
                continue
            found = await services.search(text.split()[-1])
            assert found == [node_id], f"the search for {text.split()[-1]} in {node_id}"


def _by_request(repository: GitRepository) -> dict[str, CommitInfo]:
    """The commits of the branch by their request id (by their own id if they have none)."""
    found: dict[str, CommitInfo] = {}
    for commit in repository.history([repository.refs()["refs/heads/main"]], lambda _: False):
        info = repository.commit_info(commit.commit_id)
        request_id = trailers.trailers_of(info.message).get(trailers.REQUEST, info.commit_id)
        assert request_id not in found, f"two commits of request {request_id}"
        found[request_id] = info
    return found


def blobs(repository: GitRepository, commit_id: str) -> dict[str, str]:
    """The blob of every entry in a commit, by the entry's id."""
    found = {}
    for change in repository.diff(None, commit_id):
        parsed = parse_path(change.path)
        if parsed is not None:
            found[parsed[1]] = change.new_blob or ""
    return found


def _content(repository: GitRepository, commit_id: str, node_id: str) -> str | None:
    files = entry_files(repository, commit_id, [node_id])[node_id]
    entry = decode_entry(files[0].path, repository.read_blob(files[0].blob)) if files else None
    return entry.content if isinstance(entry, Node) else None


def conninfo(data: Path) -> str:
    """The connection string of a running server's embedded PostgreSQL."""
    folder = data / "postgres"
    note = folder / "socket-folder"
    sockets = note.read_text(encoding="utf-8") if note.exists() else str(folder / "run")
    return f"host={sockets} dbname=memotree user=memotree"
