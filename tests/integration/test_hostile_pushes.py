"""What anybody can push: values that no store can take stop neither their workspace nor another one, and are told."""

import secrets
from collections.abc import Callable
from typing import Any
from unittest.mock import ANY

import psycopg
import pytest
from by_hand import tags_of_tags
from integration.histories import git
from integration.pushes import OpenAgain, differences, push, push_files, rows, session_of
from integration.worlds import World
from memotree_storage.git import diff, entry_files, packfile
from memotree_storage.git.database import ObjectDatabase
from memotree_storage.git.objects import BLOB, COMMIT, TREE, encode_commit
from memotree_storage.git.pack import PackWriter
from memotree_storage.git.repository import GitRepository
from memotree_storage.git.trees import PathTakenError
from memotree_storage.index.search import SearchQuery
from memotree_storage.mirror import catch_up
from memotree_storage.mirror.catch_up import CommitNotMirroredError
from memotree_storage.model import trailers
from memotree_storage.model.node import ID_ALPHABET, new_id
from memotree_storage.model.paths import node_path
from memotree_storage.model.workspace import service_signature
from memotree_storage.ports import CommitDraft, CommitInfo, Signature, TagDraft
from memotree_storage.postgres import archive_versions
from memotree_storage.postgres.database import DatabaseFailedError, DatabaseFullError
from memotree_storage.postgres.reach import DatabaseUnavailableError
from memotree_storage.postgres.tree import Snapshot, State
from memotree_storage.store import Store

from memotree.history import HistoryOperations
from memotree.maintenance import MaintenanceOperations
from memotree.request import pages
from memotree.request.pages import PageTokens
from memotree.v1 import history_service_pb2 as pb
from memotree.v1 import maintenance_service_pb2 as maintenance_pb

pytestmark = pytest.mark.requirement("STORE-8")


def noise(characters: int) -> str:
    """Text that no compression shortens."""
    return secrets.token_hex(characters // 2)


def commit_by_hand(repository: GitRepository, message: str, *, name: str = "A person") -> str:
    """A commit on main that changes no file."""
    head = repository.refs()["refs/heads/main"]
    by = Signature(name, "person@example.org", service_signature().when)
    made = repository.write_commit(CommitDraft(head, {}, message, by, by)).commit_id
    assert repository.move_ref("refs/heads/main", head, made)
    return made


async def mend(world: World, bad: str, good: str) -> None:
    """Move main back with git, which the errors name as the way out; then all is as it was."""
    assert world.repository.move_ref("refs/heads/main", bad, good)
    assert await world.put(world.node())
    assert await differences(world.store, world.workspace) == []


async def reasons(store: Store, limits: object) -> dict[str, str]:
    """What `GetStatus` says about workspaces that take no changes."""
    status = await MaintenanceOperations(store, PageTokens(), limits).get_status(maintenance_pb.GetStatusRequest())  # type: ignore[arg-type]
    return {each.workspace_id: each.reason for each in status.set_aside}


async def test_a_long_document_id_stops_nothing(world: World) -> None:
    """It is an attribute, which anybody can write over the API, too."""
    name = noise(4000)
    similar = name[:2000] + noise(2000)
    nodes = [world.node(attributes={"document_id": each, "sha256": "x"}) for each in (name, similar)]
    await world.put(nodes[0])
    push(world, "main", nodes[1])
    assert await world.put(world.node())
    async with world.store.database.connection() as conn:
        snapshot = Snapshot(conn, State(world.workspace, await world.head()))
        found = await archive_versions.documents(snapshot, [similar])
    assert [each.entry_id for each in found] == [nodes[1].id]


async def test_trailers_that_are_no_ids_are_not_taken_for_ids(world: World, again: OpenAgain) -> None:
    long = push(world, "main", world.node(), request=noise(6000), session=noise(6000))
    odd = push(world, "main", world.node(), request="a\x07b", session="not an id")
    assert await world.put(world.node())
    found = await rows(
        world.store, "select session_id, request_id from mirror.commit where commit_id = any(%s)", [long, odd]
    )
    assert found == [(None, None), (None, None)]
    assert await differences(world.store, world.workspace) == []
    async with again() as store:
        assert store.set_aside == {}
        assert await differences(store, world.workspace) == []


async def test_a_ref_with_a_name_that_is_too_long_is_ignored_and_told(world: World, again: OpenAgain) -> None:
    head = world.repository.refs()["refs/heads/main"]
    packed = world.repository.path / "packed-refs"
    name = "refs/heads/" + "/".join(noise(200) for _ in range(18))
    packed.write_text(f"# pack-refs with: peeled fully-peeled sorted\n{head} {name}\n")
    assert await world.put(world.node())
    [told] = await differences(world.store, world.workspace)
    assert "longer than 1024 bytes; rename it with git" in told
    assert len(told) < 500
    async with again() as store:
        assert store.set_aside == {}


async def test_long_names_and_messages_are_cut_in_the_mirror_alone(world: World) -> None:
    message = f"A subject\n\n{'word ' * 100_000}\n\nMemoTree-Request: of-a-program\n"
    made = commit_by_hand(world.repository, message, name="name " * 10_000)
    assert await world.put(world.node())
    [(name, kept, request)] = await rows(
        world.store, "select author_name, message, request_id from mirror.commit where commit_id = %s", made
    )
    assert (len(name), request) == (1000, "of-a-program")
    assert kept.startswith("A subject\n\nword ")
    assert kept.endswith("\n…\n\nMemoTree-Request: of-a-program\n")
    assert len(kept) <= 32_768
    assert git(world, "log", "-1", "--format=%B", made).rstrip() == message.rstrip()
    assert await differences(world.store, world.workspace) == []


async def test_of_long_messages_only_what_is_kept_is_handed_on(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few kilobytes that are pushed may be many commits with a message of 40 MB."""
    handed_on: list[int] = []
    for reader in ("trailers_of", "cut_message"):
        function = getattr(trailers, reader)

        def noted(message: str, *rest: Any, function: Callable[..., Any] = function) -> Any:
            handed_on.append(len(message))
            return function(message, *rest)

        monkeypatch.setattr(trailers, reader, noted)
    held: list[int] = []
    mirror = catch_up._mirror

    async def counted(conn: Any, workspace_id: str, repository: Any, commits: list[CommitInfo], *rest: Any) -> None:
        held.append(sum(len(commit.message) for commit in commits))
        await mirror(conn, workspace_id, repository, commits, *rest)

    monkeypatch.setattr(catch_up, "_mirror", counted)
    monkeypatch.setattr(catch_up, "_BATCH", 2)
    made = [commit_by_hand(world.repository, "A subject\n\n" + "a: b\n" * 200_000) for _ in range(6)]
    read = noted_reads(monkeypatch)
    await world.store.catch_up(world.workspace)
    assert sum(map(read.count, made)) <= 2 * len(made) + 2, "to walk the history, and to mirror; the tip also as a ref"
    assert len(held) == 3
    assert max(held) <= 2 * 32_768
    assert max(handed_on) < 200_000


def noted_reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The id of each object that is read from now on."""
    read: list[str] = []
    reading = ObjectDatabase.read
    monkeypatch.setattr(ObjectDatabase, "read", lambda self, name: (read.append(name.hex()), reading(self, name))[1])
    return read


async def test_tags_that_lead_to_no_commit_are_followed_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    head = world.repository.refs()["refs/heads/main"]
    blob = next(world.repository.diff(None, head)).new_blob
    assert blob is not None
    *_, astray = tags_of_tags(world.repository, blob, BLOB, 30)
    for number in range(20):
        assert world.repository.move_ref(f"refs/tags/astray-{number}", None, astray)
    read = noted_reads(monkeypatch)
    await world.open()
    assert read.count(astray) == 1
    assert len(read) < 30
    read.clear()
    await world.open()
    assert read == []


async def test_messages_of_tags_are_cut_and_a_page_of_tags_ends_early(world: World, history: HistoryOperations) -> None:
    head = world.repository.refs()["refs/heads/main"]
    for number in range(40):
        tag = TagDraft(f"tag-{number:02}", f"{number} says {'x' * 100_000}\n", service_signature())
        assert world.repository.move_ref(f"refs/tags/{tag.name}", None, world.repository.write_tag(tag, head))
    await world.store.catch_up(world.workspace)
    request = pb.ListTagsRequest(workspace=world.workspace, page_size=1000)
    page = await history.list_tags(request)
    assert 1 < len(page.tags) < 40
    assert page.ByteSize() < 4 << 20, "what a client takes by default"
    assert {len(tag.message) for tag in page.tags} == {65_535}
    request.page_token = page.next_page_token
    rest = await history.list_tags(request)
    assert [tag.message.split()[0] for tag in (*page.tags, *rest.tags)] == [str(number) for number in range(40)]
    assert rest.next_page_token == ""


async def test_a_commit_that_postgresql_refuses_sets_only_its_workspace_aside(world: World, again: OpenAgain) -> None:
    """Whatever the next unforeseen value is: the others go on, and the way out is told."""
    other = await World.create(world.store, world.pages, world.limits, name="other")
    async with world.store.database.connection() as conn:
        await conn.execute("alter table mirror.commit add constraint unforeseen check (message not like 'Bad%')")
    before = world.repository.refs()["refs/heads/main"]
    bad = commit_by_hand(world.repository, "Bad luck\n")
    with pytest.raises(CommitNotMirroredError, match=f"Commit {bad} cannot be mirrored") as refused:
        await world.put(world.node())
    assert await other.put(other.node())
    assert await reasons(world.store, world.limits) == {world.workspace: refused.value.message}
    assert any("takes no changes" in told for told in await differences(world.store, world.workspace))
    async with again() as store:
        assert set(store.set_aside) == {world.workspace}
        assert await other.on(store).put(other.node())
    await mend(world, bad, before)
    assert await reasons(world.store, world.limits) == {}


async def test_a_small_tree_that_stands_for_a_thousand_million_files_is_walked_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each folder names the same one again and again; a file there is no entry, since its id is of another folder.

    Not even the million folders are gone through: each commit of a push of many would take seconds.
    """
    monkeypatch.setattr(diff, "MOST_NAMES", 10_000)
    push_tree(world.repository, "x", nested_trees(*[[f"{each:x}" for each in range(100)]] * 50))
    node = world.node()
    assert await world.put(world.node())
    assert await differences(world.store, world.workspace) == [], "outside the folders of entries it costs nothing"
    made = push_tree(world.repository, "nodes", nested_trees(TWO, TWO, [f"{each:016}.md" for each in range(1_000)]))
    assert await world.put(node)
    assert await world.alive(await world.head()) == {node.id: ANY, world.archive.id: ANY}
    assert await rows(world.store, "select 1 from mirror.version v join mirror.commit c using (line_id)"
                      " where c.commit_id = %s and v.from_seq = c.seq and not v.dead", made) == []  # fmt: skip


@pytest.mark.requirement("GIT-8", "SERVE-2")
async def test_a_file_where_the_nodes_are_kept_is_told_as_a_state_to_be_mended(world: World) -> None:
    head = world.repository.refs()["refs/heads/main"]
    made = push_tree(world.repository, "nodes", lambda _, blob: blob, mode=b"100644")
    with pytest.raises(PathTakenError, match="'nodes' is a file where a folder is needed"):
        await world.put(world.node())
    await mend(world, made, head)


async def test_folders_that_list_too_much_set_a_workspace_aside(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diff, "MOST_NAMES", 1_000)
    head = world.repository.refs()["refs/heads/main"]
    made = push_tree(world.repository, "nodes", nested_trees(TWO, TWO, ["a.md"]))
    with pytest.raises(diff.TreeTooLargeError, match="list more than"):
        await world.put(world.node())
    assert set(await reasons(world.store, world.limits)) == {world.workspace}
    assert any("list more than" in told for told in await differences(world.store, world.workspace))
    asked = maintenance_pb.ListFaultsRequest(workspace=world.workspace)
    with pytest.raises(diff.TreeTooLargeError, match="list more than"):
        await MaintenanceOperations(world.store, world.pages, world.limits).list_faults(asked)
    await mend(world, made, head)


TWO = [one + two for one in ID_ALPHABET for two in ID_ALPHABET]
"""The names of all folders of ids."""


def nested_trees(*levels: list[str]) -> Callable[[PackWriter, bytes], bytes]:
    """Writes a tree for each level, whose names all lead to the next one; those of the last are files."""

    def write(pack: PackWriter, blob: bytes) -> bytes:
        below, mode = blob, b"100644 "
        for names in reversed(levels):
            encoded = sorted(name.encode() for name in names)
            below = pack.add(TREE, b"".join(mode + name + b"\0" + below for name in encoded))
            mode = b"40000 "
        return below

    return write


def push_tree(
    repository: GitRepository, name: str, write: Callable[[PackWriter, bytes], bytes], mode: bytes = b"40000"
) -> str:
    """A commit on main with a folder (or a file) of its own in the place of one of that name; the other files stay."""
    head = repository.refs()["refs/heads/main"]
    by = Signature("A person", "person@example.org", service_signature().when)
    with PackWriter(repository.path / "objects" / "pack") as pack:
        root = repository._trees.load(repository._root(head)).copy()
        root.put(name.encode() + b"/", None)
        key = name.encode() + (b"/" if mode == b"40000" else b"")
        root.put(key, mode + b" " + name.encode() + b"\0" + write(pack, pack.add(BLOB, b"no entry")))
        tree = pack.add(TREE, root.encode())
        made = pack.add(COMMIT, encode_commit(tree, [head], by, by, "Change something\n")).hex()
        pack.finish()
    assert repository.move_ref("refs/heads/main", head, made)
    return made


async def test_a_file_that_is_too_large_is_never_unpacked(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    large, small = world.node("Large", content="x" * 20_000), world.node("Small")
    push(world, "main", large, small)
    monkeypatch.setattr(packfile, "LARGEST_OBJECT", 10_000)
    assert await world.put(world.node())
    assert small.id in await world.alive(await world.head())
    assert large.id not in await world.alive(await world.head())
    [told] = await differences(world.store, world.workspace)
    assert "has 20," in told
    assert "reads at most" in told
    assert world.store.set_aside == {}


async def test_a_file_of_many_faults_is_told_briefly_and_a_page_of_faults_ends_early(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "PAGE_BYTES", 200_000)
    ids = sorted(new_id() for _ in range(60))
    keys = "".join(f"{chr(0x1F600) * 60}{number:06}: x\n" for number in range(100))
    push_files(world, {node_path(entry_id): f"---\nid: {entry_id}\n{keys}---\n".encode() for entry_id in ids})
    operations = MaintenanceOperations(world.store, world.pages, world.limits)
    asked = maintenance_pb.ListFaultsRequest(workspace=world.workspace, page_size=1000)
    found = []
    while not found or asked.page_token:
        page = await operations.list_faults(asked)
        assert 0 < len(page.faults) < 60
        assert page.ByteSize() < 210_000
        found += page.faults
        asked.page_token = page.next_page_token
    assert [fault.node_id for fault in found] == ids
    assert max(len(fault.description) for fault in found) < 2_500
    assert max(map(len, await differences(world.store, world.workspace))) < 3_000


async def test_a_text_under_many_names_sets_the_workspace_aside(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_files, "MOST_BYTES", 100_000)
    head = world.repository.refs()["refs/heads/main"]
    many = [world.node(f"Node {number}", content="x" * 10_000) for number in range(11)]
    assert await world.put(*many[:9])
    before = world.repository.refs()["refs/heads/main"]
    made = push(world, "main", *many, parent=head)
    with pytest.raises(entry_files.CommitTooLargeError, match="more than 100,000 bytes together"):
        await world.put(world.node())
    assert set(await reasons(world.store, world.limits)) == {world.workspace}
    await mend(world, made, before)


async def test_a_file_of_many_megabytes_is_indexed_by_its_beginning_and_search_goes_on(world: World) -> None:
    other = world.node("Lighthouse", content="The lighthouse keeper counts ships.")
    await world.put(other)
    huge = world.node("Huge", content="anchor " + "harbour " * 500_000 + "beacon")
    push(world, "main", huge)
    await world.store.catch_up(world.workspace)
    state = State(world.workspace, await world.head())

    async def found(query: str) -> list[str]:
        return [hit.version.entry_id for hit in await world.store.search.find(state, SearchQuery(query, 5, words=True))]

    assert await found("lighthouse") == [other.id]
    assert await found("anchor") == [huge.id]
    assert await found("beacon") == []


@pytest.mark.requirement("GIT-8")
async def test_a_push_while_refs_are_followed_hides_no_branch(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its new tip is not mirrored yet, so the branch stays where it was in the mirror, until it is."""
    node = world.node()
    await world.put(node)
    session_id = await world.open()
    pushed, due, history = list[str](), [True], GitRepository.history

    def listed(repository: GitRepository, *arguments: Any) -> list[CommitInfo]:
        """The commits to mirror; if it is due, somebody pushes after they were listed, before refs are followed."""
        found = history(repository, *arguments)
        if due:
            due.clear()
            pushed.append(push(world, "main", world.node()))
        return found

    monkeypatch.setattr(GitRepository, "history", listed)
    push(world, "main", world.node())
    await world.store.catch_up(world.workspace)
    assert len(pushed) == 1
    assert await world.head()
    assert (await session_of(world, session_id)).state == "open", "its branch is still there"
    assert await world.put(world.node())  # mirrors what was pushed, and goes on from there
    due.append(True)
    await world.store.rebuild(world.workspace)
    assert len(pushed) == 2
    assert node.id in await world.alive(await world.head())
    await world.stage(session_id, world.node())
    assert await world.commit(session_id) == await world.head()
    assert await differences(world.store, world.workspace) == []


async def test_only_a_lost_connection_is_called_one(world: World) -> None:
    for error, becomes in [
        (psycopg.errors.ProgramLimitExceeded, psycopg.errors.ProgramLimitExceeded),
        (psycopg.errors.DiskFull, DatabaseFullError),
        (psycopg.errors.OutOfMemory, DatabaseFullError),
        (psycopg.errors.IoError, DatabaseFailedError),
        (psycopg.errors.UndefinedFile, DatabaseFailedError),
        (psycopg.errors.LockNotAvailable, DatabaseFailedError),
        (psycopg.errors.TooManyConnections, DatabaseUnavailableError),
        (psycopg.errors.AdminShutdown, DatabaseUnavailableError),
        (psycopg.OperationalError, DatabaseUnavailableError),
    ]:
        with pytest.raises(becomes):
            async with world.store.database.transaction():
                raise error
