"""Over gRPC, a conflict has the value of each side as what it is: a text, a place, a relation and so on."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pytest
from integration.wires import Wire
from memotree_storage.model.node import new_id

from memotree.v1 import types_pb2

pytestmark = pytest.mark.requirement("GIT-6", "STORE-2")

Call = tuple[str, Mapping[str, Any]]

NONE: Final = types_pb2.FieldValue(absence=types_pb2.ABSENCE_NONE)
DELETED: Final = types_pb2.FieldValue(absence=types_pb2.ABSENCE_DELETED)


def text(value: str) -> types_pb2.FieldValue:
    return types_pb2.FieldValue(text=value)


def place(archive_id: str, parent_id: str = "", position: str = "") -> types_pb2.FieldValue:
    return types_pb2.FieldValue(place=types_pb2.Place(archive_id=archive_id, parent_id=parent_id, position=position))


def place_of(node: types_pb2.Node) -> types_pb2.FieldValue:
    return place(node.archive_id, node.parent_id, node.position)


def whole(node: types_pb2.Node) -> types_pb2.FieldValue:
    fields = ("id", "archive_id", "parent_id", "position", "type", "title")
    titled = types_pb2.Node(**{name: getattr(node, name) for name in fields}, level=types_pb2.LEVEL_OF_DETAIL_TITLE)
    return types_pb2.FieldValue(node=titled)


def relation(target: str, description: str) -> types_pb2.FieldValue:
    return types_pb2.FieldValue(
        relation=types_pb2.Relation(type=types_pb2.RELATION_TYPE_ABOUT, target_id=target, description=description)
    )


def values(conflict: types_pb2.Conflict) -> tuple[types_pb2.FieldValue, ...]:
    """Base, ours, theirs."""
    return conflict.base_value, conflict.our_value, conflict.their_value


async def clash(wire: Wire, ours: Sequence[Call], theirs: Sequence[Call]) -> dict[str, types_pb2.Conflict]:
    """The conflicts by field that refuse the commit of ``ours`` after another session committed ``theirs``.

    A change of a further node is committed alone before that, and ListChanges must then have the same conflicts.
    """
    other = await wire.other()
    further = await wire.create("Another")
    for method, fields in ours:
        await wire(method, **fields)
    for method, fields in theirs:
        await other(method, **fields)
    await other.commit("Theirs")
    await wire.commit("Another", specific_nodes=[further.id])
    refusal = await wire.refused("CommitChanges", message="Ours")
    assert (refusal.code, refusal.reason) == ("ABORTED", "CONFLICT")
    listed = [found for change in (await wire("ListChanges")).changes for found in change.conflicts]
    assert sorted(listed, key=str) == sorted(refusal.conflicts, key=str)
    found = {conflict.field: conflict for conflict in refusal.conflicts}
    assert len(found) == len(refusal.conflicts)
    return found


async def test_texts_and_attributes(wire: Wire) -> None:
    node = await wire.create("t", content="c", brief="b", summary="s", attributes={"kept": "1"})
    await wire.commit()
    names = ("title", "content", "brief", "summary")
    ours = {"node_id": node.id, "attributes": {"kept": "2", "new": "DELETED"}, "type": "plan"}
    theirs = {"node_id": node.id, "attributes": {"kept": "3", "new": ""}, "type": "task"}
    ours |= {name: f"our {name}" for name in names}
    theirs |= {name: f"their {name}" for name in names}
    found = await clash(wire, [("UpdateNode", ours)], [("UpdateNode", theirs)])
    assert {name: values(conflict) for name, conflict in found.items()} == {
        **{name: (text(name[0]), text(f"our {name}"), text(f"their {name}")) for name in names},
        "type": (text("note"), text("plan"), text("task")),
        "attributes.kept": (text("1"), text("2"), text("3")),
        "attributes.new": (NONE, text("DELETED"), text("")),
    }
    assert {conflict.node_id for conflict in found.values()} == {node.id}


async def test_relations_and_places(wire: Wire) -> None:
    one, two, node = [await wire.create(title) for title in ("One", "Two", "Node")]
    await wire.commit()
    ours, theirs = ({"node_id": node.id, "relation": relation(one.id, side).relation} for side in ("ours", "theirs"))
    found = await clash(
        wire,
        [("AddRelation", ours), ("MoveNode", {"node_id": node.id, "parent_id": one.id})],
        [("AddRelation", theirs), ("MoveNode", {"node_id": node.id, "parent_id": two.id})],
    )
    assert values(found[f"relations.ABOUT.{one.id}"]) == (NONE, relation(one.id, "ours"), relation(one.id, "theirs"))
    moved = await wire.get(node.id)
    there = await wire.get(node.id, "")
    assert (moved.parent_id, there.parent_id) == (one.id, two.id)
    assert values(found["parent"]) == (place_of(node), place_of(moved), place_of(there))


async def test_nodes_that_both_created(wire: Wire) -> None:
    node_id = new_id()
    source = types_pb2.Source(document_id="book", start=3, end=9, page=2, heading="A > B", sha256="0" * 64)
    made = {"archive_id": "notes", "node_id": node_id, "title": "T", "content": "The same."}
    found = await clash(wire, [("CreateNode", made)], [("CreateNode", {**made, "source": source})])
    assert values(found["source"]) == (NONE, NONE, types_pb2.FieldValue(source=source))
    assert set(found) == {"source"}


@pytest.mark.parametrize("deletes_here", [True, False])
async def test_a_deletion_and_a_change(wire: Wire, *, deletes_here: bool) -> None:
    node = await wire.create("Before")
    await wire.commit()
    deletion, change = ("DeleteNode", {"node_id": node.id}), ("UpdateNode", {"node_id": node.id, "title": "After"})
    found = await clash(wire, *(([deletion], [change]) if deletes_here else ([change], [deletion])))
    changed = await wire.get(node.id, "" if deletes_here else None)
    ours, theirs = (DELETED, whole(changed)) if deletes_here else (whole(changed), DELETED)
    assert values(found[""]) == (whole(node), ours, theirs)


async def test_archives(wire: Wire) -> None:
    archive = (await wire("CreateArchive", name="a", model_id="m", description="d")).archive
    node = await wire.create("Node")
    await wire.commit()
    found = await clash(
        wire,
        [("UpdateArchive", {"archive": "a", "name": "ours", "model_id": "m1"})],
        [("UpdateArchive", {"archive": "a", "name": "theirs", "model_id": "m2"})],
    )
    assert values(found["name"]) == (text("a"), text("ours"), text("theirs"))
    assert values(found["model_id"]) == (text("m"), text("m1"), text("m2"))
    await wire("DiscardChanges", node_ids=[archive.id])
    await wire("RebaseSession")
    other = await wire.other()
    taken = (await other("CreateArchive", name="taken", description="x")).archive
    await other.commit()
    (found_name,) = (await _refused(wire, ("UpdateArchive", {"archive": archive.id, "name": "taken"}))).values()
    theirs = types_pb2.FieldValue(archive=types_pb2.Archive(id=taken.id, name="taken", description="x"))
    assert values(found_name) == (text("theirs"), text("taken"), theirs)
    assert node.archive_id != archive.id


async def _refused(wire: Wire, *calls: Call) -> dict[str, types_pb2.Conflict]:
    for method, fields in calls:
        await wire(method, **fields)
    return {found.field: found for found in (await wire.refused("RebaseSession")).conflicts}


async def test_what_is_deleted_above(wire: Wire) -> None:
    archive = (await wire("CreateArchive", name="a")).archive
    top = await wire.create("Top")
    await wire.commit()
    found = await clash(
        wire,
        [("CreateNode", {"parent_id": top.id, "title": "Below", "node_id": new_id()})],
        [("DeleteNode", {"node_id": top.id})],
    )
    (below,) = (await wire("ListChanges")).changes
    assert values(found["parent"]) == (NONE, place_of(await wire.get(below.node_id)), DELETED)
    await wire("DiscardChanges", node_ids=[below.node_id])
    wire = await wire.other()
    found = await clash(
        wire,
        [("CreateNode", {"archive_id": "a", "title": "In it", "node_id": new_id()})],
        [("DeleteArchive", {"archive": archive.id})],
    )
    (inside,) = (await wire("ListChanges")).changes
    assert values(found["archive"]) == (NONE, place_of(await wire.get(inside.node_id)), DELETED)


async def test_what_stands_below_a_deleted_node(wire: Wire) -> None:
    top = await wire.create("Top")
    await wire.commit()
    child = new_id()
    found = await clash(
        wire,
        [("DeleteNode", {"node_id": top.id})],
        [("CreateNode", {"parent_id": top.id, "title": "Below", "node_id": child})],
    )
    assert values(found[""]) == (whole(top), DELETED, types_pb2.FieldValue(child_id=child))
    await wire("DiscardChanges", node_ids=[top.id])
    wire = await wire.other()
    archive = (await wire("CreateArchive", name="a", description="d")).archive
    await wire.commit()
    root = new_id()
    found = await clash(
        wire,
        [("DeleteArchive", {"archive": archive.id})],
        [("CreateNode", {"archive_id": "a", "title": "In it", "node_id": root})],
    )
    described = types_pb2.FieldValue(archive=types_pb2.Archive(id=archive.id, name="a", description="d"))
    assert values(found[""]) == (described, DELETED, types_pb2.FieldValue(child_id=root))


async def test_a_parent_that_went_to_another_archive_and_a_cycle(wire: Wire) -> None:
    archive = (await wire("CreateArchive", name="a")).archive
    one, two, top = [await wire.create(title) for title in ("One", "Two", "Top")]
    await wire.commit()
    below = new_id()
    found = await clash(
        wire,
        [
            ("CreateNode", {"parent_id": top.id, "title": "Below", "node_id": below}),
            ("MoveNode", {"node_id": one.id, "parent_id": two.id}),
        ],
        [
            ("MoveNode", {"node_id": top.id, "archive_id": "a"}),
            ("MoveNode", {"node_id": two.id, "parent_id": one.id}),
        ],
    )
    assert found["archive"].node_id == below
    assert values(found["archive"]) == (NONE, place_of(await wire.get(below)), place(archive.id, top.id))
    assert values(found["parent"]) == (place_of(one), place_of(await wire.get(one.id)), place_of(one))
