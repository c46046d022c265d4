"""Verification names every difference between the stores; a rebuild removes them."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from integration.damage import change, differences, kinds
from integration.pushes import push, push_files, rows
from integration.worlds import World
from memotree_storage.git.objects import COMMIT
from memotree_storage.git.pack import PackWriter
from memotree_storage.git.repository import GitRepository
from memotree_storage.index.points import point_id
from memotree_storage.index.terms import query_terms
from memotree_storage.model.node import new_id
from memotree_storage.model.workspace import service_signature
from memotree_storage.ports import IndexPoint, Override, TagDraft, TermVector
from memotree_storage.postgres import tree
from memotree_storage.qdrant.index import QdrantIndex
from memotree_storage.verify import Difference, Step, verify

from memotree.canvas import NodeOperations
from memotree.history import HistoryOperations
from memotree.v1 import history_service_pb2, node_service_pb2

pytestmark = pytest.mark.own_store


@pytest.mark.requirement("STORE-4")
async def test_stores_that_agree_have_no_differences_and_progress_ends_with_everything_done(lived_in: World) -> None:
    events = [event async for event in verify(lived_in.store, lived_in.workspace)]
    assert [event for event in events if not isinstance(event, Step)] == []
    last = {step.name: step for step in events if isinstance(step, Step)}
    assert list(last) == ["structure", "trees", "commits", "index"]
    assert all(step.done == step.total > 0 for step in last.values())
    await lived_in.stage(await lived_in.open(), lived_in.node())
    assert await differences(lived_in) == [], "with staged changes"
    await lived_in.store.reindex(lived_in.workspace)
    assert await differences(lived_in) == [], "points made again have their ends, and what overrides them elsewhere"
    history = HistoryOperations(lived_in.store, lived_in.pages, lived_in.limits)
    await history.delete_branch(history_service_pb2.DeleteBranchRequest(workspace=lived_in.workspace, name="side"))
    assert await differences(lived_in) == [], "with commits of a deleted branch"


async def test_commits_made_meanwhile_are_no_differences(world: World) -> None:
    assert await differences(world) == [], "an empty workspace has none"
    number = 0
    async for event in verify(world.store, world.workspace):
        assert isinstance(event, Step)
        number += 1
        await world.put(world.node(f"Meanwhile {number}"))
    assert number > 6


DAMAGE = {
    "a changed title": ("row", "update mirror.version set title = 'Forged' where title = 'Below' and from_seq = 3"),
    "another summary": ("row", "update mirror.version set summary = 'Forged' where summary = 'On the side.'"),
    "another blob": ("row", "update mirror.version set blob = repeat('0', 40) where title = 'Top'"),
    "a relation's target": ("row", "update mirror.version set targets = '{x}' where title = 'Top'"),
    "a version that is dead": ("row point", "update mirror.version set dead = true where title = 'Top'"),
    "a missing version": ("row count point", "delete from mirror.version where title = 'Top'"),
    "a version that ends too late": (
        "row point",
        "update mirror.version set to_seq = to_seq + 1 where title in ('Node 0', 'Node 1') and to_seq is not null",
    ),
    "a version that has ended": (
        "row point",
        "update mirror.version set to_seq = 99 where title = 'Top' and to_seq is null",
    ),
    "a missing override": ("row point", "delete from mirror.overridden"),
    "a version of nothing": (
        "row count",
        (
            "insert into mirror.version (line_id, entry_id, from_seq, is_archive, dead, blob, archive_id, parent_id,"
            " position, type, title, brief, summary, tags, attributes, relations, targets, tokens) select line_id,"
            " 'zzzzzzzzzzzzzzzz', seq, true, true, '', '', '', '', '', '', '', '', '{}', '{}', '[]', '{}', 0"
            " from mirror.commit where seq = 3"
        ),
    ),
    "a ref at another commit": (
        "ref",
        (
            "update mirror.ref set commit_id = (select commit_id from mirror.commit where seq = 2 limit 1)"
            " where name = 'refs/heads/main'"
        ),
    ),
    "a ref that is missing": ("ref", "delete from mirror.ref where name = 'refs/tags/v1'"),
    "a ref too many": (
        "ref",
        (
            "insert into mirror.ref select workspace_id, 'refs/heads/ghost', object_id, commit_id from mirror.ref"
            " where name = 'refs/heads/main'"
        ),
    ),
    "a wrong count": ("count", "update mirror.workspace set version_count = version_count + 1"),
    "another name": ("workspace", "update mirror.workspace set name = 'forged'"),
    "a missing placement": ("count placement", "delete from mirror.placement where from_seq = 5 and dead"),
    "a wrong parent": (
        "placement",
        "update mirror.placement set parent_id = '' where parent_id <> '' and from_seq = 3",
    ),
    "a placement that ends too early": (
        "placement",
        "update mirror.placement set to_seq = to_seq - 1 where to_seq = 4",
    ),
    "a commit with another author": ("commit", "update mirror.commit set author_name = 'Forged' where seq = 3"),
    "a commit at another place": ("row line", "update mirror.commit set seq = 99 where seq = 6"),
    "a fault that is none": (
        "fault",
        "insert into mirror.fault select workspace_id, commit_id, 'nodes/x.md', 'bad' from mirror.commit where seq = 3",
    ),
    "a tip too far": ("line", "update mirror.line set tip_seq = tip_seq + 1 where parent_line is null"),
    "a line that forks elsewhere": (
        "line",
        "update mirror.line set fork_seq = fork_seq - 1 where fork_seq is not null",
    ),
    "a term in one version too many": (
        "term",
        "update mirror.term set documents = documents + 1 where term = (select max(term) from mirror.term)",
    ),
    "a term that is missing": ("term", "delete from mirror.term where term = (select max(term) from mirror.term)"),
    "a term of nothing": ("term", "insert into mirror.term select workspace_id, 4711, 1 from mirror.workspace"),
    "a leaf with other words": (
        "passage",
        "update mirror.passage set terms = overlay(terms placing '\\x00' from 1 for 1) where length > 1",
    ),
    "a leaf with other tokens": ("passage", "update mirror.passage set tokens = tokens + 1"),
    "a leaf with the vector of another text": (
        "passage",
        "update mirror.passage set vector = overlay(vector placing '\\x0000803f' from 1 for 4)",
    ),
    "a leaf without features": ("passage", "delete from mirror.passage"),
    "another number of versions": ("term", "update mirror.term set documents = documents - 1 where term = -1"),
}
"""Statements that damage the mirror, each with the kinds of the differences; those of points are in the index."""


@pytest.mark.requirement("STORE-4")
async def test_damage_of_the_mirror_is_named_and_repaired(lived_in: World) -> None:
    missed = {}
    for damage, (expected, statement) in DAMAGE.items():
        await lived_in.store.indexer.current(lived_in.workspace)
        await change(lived_in, statement)
        found = kinds(await differences(lived_in))
        if not {("qdrant" if kind == "point" else "postgres", kind) for kind in expected.split()} <= found:
            missed[damage] = found
        await lived_in.store.rebuild(lived_in.workspace)
    assert missed == {}
    assert await differences(lived_in) == []


@pytest.mark.requirement("STORE-4")
async def test_a_wrong_row_is_reported_with_its_commit_node_and_field_and_not_answered_from_memory(
    world: World,
) -> None:
    node = world.node("Top")
    commit_id = await world.put(node)
    generation = world.store.generations[world.workspace]
    assert await differences(world) == []
    assert world.store.generations[world.workspace] == generation
    await change(world, "update mirror.version set title = 'Forged' where title = 'Top'")
    (found,) = await differences(world)
    assert (found.node_id, found.commit_id) == (node.id, commit_id)
    assert commit_id in found.description
    assert "title is 'Forged', but Git says 'Top'" in found.description
    assert world.store.generations[world.workspace] > generation


@pytest.mark.requirement("STORE-4")
async def test_wrong_counts_are_reported_with_their_terms_and_the_right_counts_up_to_a_few(world: World) -> None:
    await world.put(world.node("Many", content=" ".join(f"word{number}" for number in range(500))))
    await world.store.indexer.current(world.workspace)
    (many,) = (term.id for term in query_terms("many"))
    await change(world, "update mirror.term set documents = 99 where term = %s", many)
    await change(world, "update mirror.term set documents = documents + 1 where term = -1")
    versions, term = await differences(world)
    assert "counts 2 versions of nodes in this workspace, but Git has 1" in versions.description
    assert f"counts 99 versions that have the term {many}, but Git has 1" in term.description
    await change(world, "update mirror.term set documents = 1 where term = -1")
    await change(world, "delete from mirror.term where term > 0")
    found = await differences(world)
    assert kinds(found) == {("postgres", "term")}
    assert len(found) == 11
    assert "49" in found[-1].description
    assert "more terms" in found[-1].description


async def test_versions_that_wait_to_be_indexed_are_no_differences_and_hide_no_wrong_count(world: World) -> None:
    await world.store.indexer.current(world.workspace)
    await world.store.indexer.stop()
    await world.put(*world.nodes(3))
    assert await world.store.indexer.pending(world.workspace) == 3
    assert await differences(world) == []
    await change(world, "update mirror.term set documents = documents + 3 where term = -1")
    (found,) = await differences(world)
    assert found.what == "term"


async def test_what_the_server_remembers_wrongly_is_named_and_forgotten_and_nothing_is_while_rows_are_rebuilt(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = NodeOperations(world.store, world.pages, world.limits)
    node = world.node("Right")
    await world.put(node)
    request = node_service_pb2.GetNodeRequest(workspace=world.workspace, node_id=node.id)
    await nodes.get_node(request)
    ((key, placed),) = world.store.placed.items()
    world.store.placed.put(key, placed._replace(version=replace(placed.version, title="Forged")))
    assert (await nodes.get_node(request)).node.title == "Forged"
    (told,) = await differences(world)
    assert (told.store, told.node_id) == ("cache", node.id)
    assert (await nodes.get_node(request)).node.title == "Right"
    assert await differences(world) == []
    await change(world, "update mirror.version set title = 'Forged' where title = 'Right'")
    world.store.placed.clear()
    one, read, may_go_on = tree.one, asyncio.Event(), asyncio.Event()

    async def late(snapshot: tree.Snapshot, entry_id: str) -> tree.PlacedVersion | None:
        placed = await one(snapshot, entry_id)
        read.set()
        await may_go_on.wait()
        return placed

    with monkeypatch.context() as patch:
        patch.setattr(tree, "one", late)
        reading = asyncio.create_task(nodes.get_node(request))
        await read.wait()
    await world.store.rebuild(world.workspace)
    may_go_on.set()
    assert (await reading).node.title == "Forged", "that call read the old rows"
    assert (await nodes.get_node(request)).node.title == "Right"


async def test_a_commit_that_the_mirror_lost_and_one_that_git_never_had_are_named(lived_in: World) -> None:
    head, ghost = await lived_in.head("side"), "f" * 40
    await change(lived_in, "update mirror.commit set commit_id = %s where commit_id = %s", ghost, head)
    found = {one.commit_id: one for one in await differences(lived_in) if one.what == "commit"}
    assert "not in Git" in found[ghost].description
    assert "not mirrored" in found[head].description
    lose = "delete from mirror.line where line_id = (select line_id from mirror.commit where commit_id = %s)"
    await change(lived_in, lose, ghost)
    lost = await differences(lived_in)
    assert ("postgres", "commit") in kinds(lost)
    assert head in {one.commit_id for one in lost}


# --- the index -------------------------------------------------------------------------------------------------------


async def _point(world: World) -> IndexPoint:
    """The point of a node's newest version."""
    ((node_id, from_seq),) = await rows(
        world.store, "select entry_id, from_seq from mirror.version where not dead and title = 'Top'"
    )
    found = [each async for each in world.store.index.scan(world.workspace)]
    (entry,) = (each for each in found if (each.node_id, each.from_seq) == (node_id, from_seq))
    return IndexPoint(
        *(entry.point_id, world.workspace, node_id, entry.line_id, from_seq, entry.to_seq),
        *(world.archive.id, "note", (), None, TermVector((1,), (1.0,))),
    )


async def _plant(world: World, damage: str) -> str:
    """Damage a point; return its node."""
    point, index = await _point(world), world.store.index
    match damage:
        case "another line":
            await index.upsert([replace(point, line_id=4711)])
        case "another start":
            await index.upsert([replace(point, from_seq=1)])
        case "another end":
            await index.close_versions([(point.point_id, 3)])
        case "another override":
            await index.override_versions([(point.point_id, [Override(2, 3)])])
        case "a leftover":
            point = replace(point, node_id=(node_id := new_id()), point_id=point_id("", node_id, "", ""))
            await index.upsert([point])
    return point.node_id


@pytest.mark.requirement("STORE-4")
async def test_wrong_and_missing_points_are_each_named_and_repaired(lived_in: World, shared_index: QdrantIndex) -> None:
    for damage in ("another line", "another start", "another end", "another override", "a leftover"):
        await lived_in.store.indexer.current(lived_in.workspace)
        node_id = await _plant(lived_in, damage)
        found = await differences(lived_in)
        assert [(one.store, one.what, one.node_id) for one in found] == [("qdrant", "point", node_id)], damage
        await lived_in.store.rebuild(lived_in.workspace)
    assert await differences(lived_in) == []
    count = await shared_index.count(lived_in.workspace)
    await shared_index.delete(lived_in.workspace)
    found = await differences(lived_in)
    assert len(found) == count > 0
    assert all("has no point" in one.description for one in found)
    await lived_in.store.rebuild(lived_in.workspace)
    assert await differences(lived_in) == []


# --- Git -------------------------------------------------------------------------------------------------------------


async def test_a_push_is_named_until_it_is_mirrored_and_a_file_that_is_no_entry_until_it_is_corrected(
    world: World,
) -> None:
    path = "nodes/zz/zz/zzzzzzzzzzzzzzzz.md"
    assert world.repository.move_ref("refs/heads/pushed", None, await world.head())
    (found,) = await differences(world)
    assert (found.store, found.what) == ("postgres", "ref")
    assert "refs/heads/pushed" in found.description
    commit_id = push_files(world, {path: b"no front matter"})
    await world.store.catch_up(world.workspace)
    (found,) = await differences(world)
    assert (found.store, found.what, found.commit_id) == ("git", "file", commit_id)
    assert found.description.count("commit") == 1, "it is said once what to do"
    assert found.description.count(path) == 1
    assert found.description.endswith("A rebuild cannot repair it.")
    push_files(world, {path: None})
    await world.store.catch_up(world.workspace)
    assert await differences(world) == []


async def test_odd_texts_of_commits_made_with_git_are_mirrored(world: World) -> None:
    repository = world.repository
    for encoding in ("utf-8", "unicode_escape", "idna", "nonsense"):
        head = repository.refs()["refs/heads/main"]
        text = (
            f"tree {repository.commit_info(head).tree_id}\nparent {head}\nauthor A\\ud800 <a> 99999999999999 +9999\n"
            f"committer C <c> -1 -0000\nencoding {encoding}\n\nA \0 and \\ud800\n"
        ).encode()
        with PackWriter(repository.path / "objects" / "pack") as pack:
            commit_id = pack.add(COMMIT, text).hex()
            pack.finish()
        assert repository.move_ref("refs/heads/main", head, commit_id)
        await world.store.catch_up(world.workspace)
        assert await world.head() == commit_id, encoding
        assert await differences(world) == [], encoding


def packs_with(repository: GitRepository, *object_ids: str) -> list[Path]:
    """The packs that have any of these objects; each has the pack of its commit or tag."""
    indexes = (repository.path / "objects" / "pack").glob("*.idx")
    wanted = [bytes.fromhex(object_id) for object_id in object_ids]
    return [path.with_suffix(".pack") for path in indexes if any(each in path.read_bytes() for each in wanted)]


def lose(repository: GitRepository, *object_ids: str) -> None:
    """Delete the packs that have these objects."""
    for pack in packs_with(repository, *object_ids):
        pack.unlink()
        pack.with_suffix(".idx").unlink()


@pytest.mark.requirement("STORE-4")
async def test_what_git_has_lost_is_named_though_the_server_has_read_it(lived_in: World) -> None:
    repository = lived_in.repository
    commit_id = push(lived_in, "lost", lived_in.node("Lost"), parent=await lived_in.head())
    tag_id = repository.write_tag(TagDraft("lost", "Lost\n", service_signature()), await lived_in.head())
    assert repository.move_ref("refs/tags/lost", None, tag_id)
    await lived_in.store.catch_up(lived_in.workspace)
    assert await differences(lived_in) == []
    lose(repository, commit_id, tag_id)
    assert repository.peel(commit_id) == commit_id, "the server still has it"
    found = [one.description for one in await differences(lived_in) if (one.store, one.what) == ("git", "ref")]
    for ref, object_id in (("refs/heads/lost", commit_id), ("refs/tags/lost", tag_id)):
        (told,) = (one for one in found if one.startswith(f"{ref} points to an object that is missing"))
        assert object_id in told


@pytest.mark.requirement("STORE-4")
async def test_a_commit_that_is_damaged_after_the_walk_is_a_difference(lived_in: World) -> None:
    head = push(lived_in, "main", lived_in.node("Damaged"))
    await lived_in.store.catch_up(lived_in.workspace)
    found: list[Difference | Step] = []
    async for each in verify(lived_in.store, lived_in.workspace):
        found.append(each)
        if isinstance(each, Step) and (each.name, each.done) == ("commits", 0):
            damage(lived_in.repository, head)
    (told,) = (each for each in found if isinstance(each, Difference) and each.commit_id == head)
    assert (told.store, told.what) == ("git", "object")
    assert told.description.startswith(f"Commit {head} cannot be read completely. Object {head}")
    assert isinstance(found[-1], Step)
    assert found[-1].name == "index", "everything else was compared"


def damage(repository: GitRepository, object_id: str) -> None:
    """Overwrite the pack that has this object, where it is."""
    (pack,) = packs_with(repository, object_id)
    pack.chmod(0o600)
    with pack.open("r+b") as file:
        file.write(bytes(pack.stat().st_size))
