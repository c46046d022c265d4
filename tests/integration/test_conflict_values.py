"""Over gRPC, a conflict has the value of each side as what it is: a text, a place, a relation and so on."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pytest
from integration.wires import Wire
from memotree_storage.model.node import new_id

from memotree.v1 import types_pb2

pytestmark = pytest.mark.requirement("GIT-6", "STORE-2")

Call = tuple[str, Mapping[str, Any]]
Values = tuple[types_pb2.FieldValue, types_pb2.FieldValue, types_pb2.FieldValue]
"""Base, ours, theirs."""

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


async def clash(wire: Wire, ours: Sequence[Call], theirs: Sequence[Call]) -> dict[tuple[str, str], Values]:
    """The conflicts by node and field that refuse the commit of ``ours`` after another session committed ``theirs``.

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
    found = {(each.node_id, each.field): (each.base_value, each.our_value, each.their_value) for each in listed}
    assert len(found) == len(listed)
    return found


async def test_what_both_sides_changed_or_created_or_one_has_deleted(wire: Wire) -> None:
    node = await wire.create("t", content="c", brief="b", summary="s", attributes={"kept": "1"})
    one, two, moved, *gone = [await wire.create(title) for title in ("One", "Two", "Moved", "Before", "Before")]
    archive = (await wire("CreateArchive", name="a", model_id="m", description="d")).archive.id
    await wire.commit()
    names = ("title", "content", "brief", "summary")
    changes: list[list[Call]] = []
    new = {"archive_id": "notes", "node_id": new_id(), "title": "T", "content": "The same."}
    source = types_pb2.Source(document_id="book", start=3, end=9, page=2, heading="A > B", sha256="0" * 64)
    for side, kept, added, kind, parent, made, (deleted, changed) in (
        ("our", "2", "DELETED", "plan", one, new, gone),
        ("their", "3", "", "task", two, {**new, "source": source}, reversed(gone)),
    ):
        texts = {name: f"{side} {name}" for name in names}
        changes.append([
            ("UpdateNode", {"node_id": node.id, "attributes": {"kept": kept, "new": added}, "type": kind, **texts}),
            ("AddRelation", {"node_id": moved.id, "relation": relation(one.id, side).relation}),
            ("MoveNode", {"node_id": moved.id, "parent_id": parent.id}),
            ("CreateNode", made),
            ("UpdateArchive", {"archive": "a", "name": side, "model_id": kept}),
            ("DeleteNode", {"node_id": deleted.id}),
            ("UpdateNode", {"node_id": changed.id, "title": "After"}),
        ])  # fmt: skip
    found = await clash(wire, *changes)
    here, there = await wire.get(moved.id), await wire.get(moved.id, "")
    assert (here.parent_id, there.parent_id) == (one.id, two.id)
    assert found == {
        **{(node.id, name): (text(name[0]), text(f"our {name}"), text(f"their {name}")) for name in names},
        (node.id, "type"): (text("note"), text("plan"), text("task")),
        (node.id, "attributes.kept"): (text("1"), text("2"), text("3")),
        (node.id, "attributes.new"): (NONE, text("DELETED"), text("")),
        (moved.id, f"relations.ABOUT.{one.id}"): (NONE, relation(one.id, "our"), relation(one.id, "their")),
        (moved.id, "parent"): (place_of(moved), place_of(here), place_of(there)),
        (new["node_id"], "source"): (NONE, NONE, types_pb2.FieldValue(source=source)),
        (gone[0].id, ""): (whole(gone[0]), DELETED, whole(await wire.get(gone[0].id, ""))),
        (gone[1].id, ""): (whole(gone[1]), whole(await wire.get(gone[1].id)), DELETED),
        (archive, "name"): (text("a"), text("our"), text("their")),
        (archive, "model_id"): (text("m"), text("2"), text("3")),
    }


async def test_what_does_not_fit_into_one_tree(wire: Wire) -> None:
    names = ("Without child", "Without parent", "Moved", "One", "Two")
    childless, parent, moved, one, two = [await wire.create(title) for title in names]
    a, b, c, mine = [
        (await wire("CreateArchive", name=name, description="d")).archive.id for name in ("a", "b", "c", "mine")
    ]
    await wire.commit()
    child, below, inside, root, under, taken = (new_id() for _ in range(6))
    ours: list[Call] = [
        ("DeleteNode", {"node_id": childless.id}),
        ("CreateNode", {"parent_id": parent.id, "title": "Below", "node_id": below}),
        ("CreateNode", {"archive_id": "a", "title": "In it", "node_id": inside}),
        ("DeleteArchive", {"archive": b}),
        ("CreateNode", {"parent_id": moved.id, "title": "Below", "node_id": under}),
        ("MoveNode", {"node_id": one.id, "parent_id": two.id}),
        ("UpdateArchive", {"archive": mine, "name": "taken"}),
    ]
    found = await clash(wire, ours, [
        ("CreateNode", {"parent_id": childless.id, "title": "Below", "node_id": child}),
        ("DeleteNode", {"node_id": parent.id}),
        ("DeleteArchive", {"archive": a}),
        ("CreateNode", {"archive_id": "b", "title": "In it", "node_id": root}),
        ("MoveNode", {"node_id": moved.id, "archive_id": "c"}),
        ("MoveNode", {"node_id": two.id, "parent_id": one.id}),
        ("CreateArchive", {"archive_id": taken, "name": "taken", "description": "x"}),
    ])  # fmt: skip
    deleted_archive = types_pb2.FieldValue(archive=types_pb2.Archive(id=b, name="b", description="d"))
    other_archive = types_pb2.FieldValue(archive=types_pb2.Archive(id=taken, name="taken", description="x"))
    assert found == {
        (childless.id, ""): (whole(childless), DELETED, types_pb2.FieldValue(child_id=child)),
        (below, "parent"): (NONE, place_of(await wire.get(below)), DELETED),
        (inside, "archive"): (NONE, place_of(await wire.get(inside)), DELETED),
        (b, ""): (deleted_archive, DELETED, types_pb2.FieldValue(child_id=root)),
        (under, "archive"): (NONE, place_of(await wire.get(under)), place(c, moved.id)),
        (one.id, "parent"): (place_of(one), place_of(await wire.get(one.id)), place_of(one)),
        (mine, "name"): (text("mine"), text("taken"), other_archive),
    }
