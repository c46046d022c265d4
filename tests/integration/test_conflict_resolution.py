"""Conflicts are kept in a session until they are resolved: by a side, a value, part by part, or by an edit."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pytest
from integration.wires import Wire, family

from memotree.v1 import types_pb2

pytestmark = pytest.mark.requirement("GIT-6")

OURS: Final = types_pb2.CONFLICT_SIDE_OURS
THEIRS: Final = types_pb2.CONFLICT_SIDE_THEIRS
BASE: Final = types_pb2.CONFLICT_SIDE_BASE

TEXT: Final = "# Oven\n\nHeat it. Wait. Bake for an hour.\n\nServe warm.\n\nKeep the rest."
OUR_TEXT: Final = "# Oven\n\nHeat it. Wait. Bake for two hours.\n\nServe warm.\n\nFreeze the rest."
THEIR_TEXT: Final = "# Big oven\n\nHeat it. Wait. Bake for three hours.\n\nServe warm.\n\nEat the rest."

Call = tuple[str, Mapping[str, Any]]


async def rebased(wire: Wire, ours: Sequence[Call], theirs: Sequence[Call]) -> list[types_pb2.Conflict]:
    """The conflicts that a session keeps after another one has committed."""
    other = await wire.other()
    for method, fields in ours:
        await wire(method, **fields)
    for method, fields in theirs:
        await other(method, **fields)
    await other.commit("Theirs")
    refusal = await wire.refused("RebaseSession")
    assert (refusal.code, refusal.reason) == ("ABORTED", "CONFLICT")
    session = (await wire("RebaseSession", keep_conflicts=True)).session
    found = list((await wire("ListConflicts")).conflicts)
    assert session.conflict_count == len(found)
    assert (await wire.refused("CommitChanges", message="Too early")).reason == "CONFLICT"
    return found


async def resolve(wire: Wire, *resolutions: Mapping[str, Any], **fields: Any) -> Any:
    return await wire("ResolveConflicts", resolutions=resolutions, **fields)


async def clash(
    wire: Wire, base: Mapping[str, Any], ours: Mapping[str, Any], theirs: Mapping[str, Any], count: int = 1
) -> list[str]:
    """The ids of nodes whose fields both sides have changed, in a session that keeps the conflicts."""
    ids = [(await wire.create(**base)).id for _ in range(count)]
    await wire.commit()
    await rebased(wire, *([("UpdateNode", {"node_id": key, **fields}) for key in ids] for fields in (ours, theirs)))
    return ids


async def test_a_side_is_taken_and_the_other_fields_of_both_sides_stay(wire: Wire) -> None:
    base = {"title": "Base", "attributes": {"kept": "1", "place": "roof"}}
    ours = {"title": "Ours", "tags": ["our"], "attributes": {"kept": "2"}}
    ids = await clash(wire, base, ours, {"title": "Theirs", "attributes": {"place": "cellar"}}, count=3)
    assert (await wire.get(ids[0])).title == "Ours"
    sides = {OURS: "Ours", THEIRS: "Theirs", BASE: "Base"}
    chosen = [{"node_id": key, "field": "title", "side": side} for key, side in zip(ids, sides, strict=True)]
    answer = await resolve(wire, *chosen, request_id="once")
    assert (answer.session.conflict_count, answer.resolved_count) == (0, 3)
    assert await resolve(wire, *chosen, request_id="once") == answer
    await wire.commit()
    for key, title in zip(ids, sides.values(), strict=True):
        node = await wire.get(key, "main")
        assert (node.title, list(node.tags)) == (title, ["our"])
        assert (node.attributes["kept"], node.attributes["place"]) == ("2", "cellar")


async def test_every_field_of_a_node_at_once_and_values_of_ones_own(wire: Wire) -> None:
    fields = ("title", "content", "brief", "summary")
    base, ours, theirs = ({name: f"{side} {name}" for name in fields} for side in ("base", "our", "their"))
    (node_id,) = await clash(
        wire,
        {**base, "attributes": {"mood": "calm"}},
        {**ours, "attributes": {"mood": "glad"}},
        {**theirs, "attributes": {"mood": "sad"}},
    )
    found = (await wire("ListConflicts")).conflicts
    assert [one.field for one in found] == ["title", "content", "summary", "brief", "attributes.mood"]
    assert {one.kind for one in found} == {types_pb2.CONFLICT_KIND_BOTH_CHANGED}
    await resolve(
        wire,
        {"node_id": node_id, "field": "title", "text": "A third one"},
        {"node_id": node_id, "field": "attributes.mood", "remove": True},
        others=THEIRS,
    )
    await wire.commit()
    node = await wire.get(node_id, "main")
    assert (node.title, node.content, node.summary) == ("A third one", "their content", "their summary")
    assert (node.brief, dict(node.attributes)) == ("their brief", {})


async def test_part_by_part(wire: Wire) -> None:
    (node_id,) = await clash(wire, {"content": TEXT}, {"content": OUR_TEXT}, {"content": THEIR_TEXT})
    (conflict,) = (await wire("ListConflicts")).conflicts
    assert [(hunk.base, hunk.ours, hunk.theirs) for hunk in conflict.hunks] == [
        ("Bake for an hour.", "Bake for two hours.", "Bake for three hours."),
        ("Keep the rest.", "Freeze the rest.", "Eat the rest."),
    ]
    hunks = {"hunks": [{"side": THEIRS}, {"text": "Keep it cold."}]}
    assert (await wire.refused("ResolveConflicts", resolutions=[{"node_id": node_id, "hunks": {"hunks": []}}])).code
    await resolve(wire, {"node_id": node_id, "field": "content", "hunks": hunks})
    await wire.commit()
    expected = "# Big oven\n\nHeat it. Wait. Bake for three hours.\n\nServe warm.\n\nKeep it cold."
    node = await wire.get(node_id, "main")
    assert node.content == expected
    assert "three hours" in node.summary, "the summary follows"


async def test_an_edit_ends_a_conflict(wire: Wire) -> None:
    ids = await clash(wire, {"title": "Base"}, {"title": "Ours"}, {"title": "Theirs"}, count=3)
    updated, deleted, discarded = ids
    await wire("UpdateNode", node_id=updated, tags=["another-field"])
    assert len((await wire("ListConflicts")).conflicts) == 3
    await wire("UpdateNode", node_id=updated, title="A third one")
    await wire("DeleteNode", node_id=deleted)
    await wire("DiscardChanges", node_ids=[discarded])
    assert list((await wire("ListConflicts")).conflicts) == []
    assert (await wire.get(discarded)).title == "Theirs"
    await wire.commit()
    assert (await wire.get(updated, "main")).title == "A third one"
    assert (await wire.refused("GetNode", node_id=deleted, revision="main")).code == "NOT_FOUND"


async def test_a_node_that_one_side_deleted(wire: Wire) -> None:
    cases = [(side, deleted) for side in (OURS, THEIRS, BASE) for deleted in (OURS, THEIRS)]
    ids = [(await wire.create("Base", content="What it says.")).id for _ in cases]
    await wire.commit()
    calls: dict[int, list[Call]] = {OURS: [], THEIRS: []}
    for key, (_, deleted) in zip(ids, cases, strict=True):
        for side, made in calls.items():
            fields = {"node_id": key} if side == deleted else {"node_id": key, "title": "Changed"}
            made.append(("DeleteNode" if side == deleted else "UpdateNode", fields))
    found = await rebased(wire, calls[OURS], calls[THEIRS])
    assert {each.node_id for each in found} == set(ids)
    assert {(each.kind, each.field) for each in found} == {(types_pb2.CONFLICT_KIND_CHANGED_AND_DELETED, "")}
    await resolve(wire, *({"node_id": key, "side": side} for key, (side, _) in zip(ids, cases, strict=True)))
    staged = {change.node_id for change in (await wire("ListChanges")).changes}
    changed = {key for key, (side, _) in zip(ids, cases, strict=True) if side != THEIRS}
    assert staged == changed, "their side is as the branch is"
    await wire.commit()
    for key, (side, deleted) in zip(ids, cases, strict=True):
        if side == deleted:
            assert (await wire.refused("GetNode", node_id=key, revision="main")).code == "NOT_FOUND"
        else:
            node = await wire.get(key, "main")
            assert (node.title, node.content) == ("Base" if side == BASE else "Changed", "What it says.")


async def test_moves_that_do_not_fit_together(wire: Wire) -> None:
    other = (await wire("CreateArchive", name="other")).archive.id
    one, two, root, leaf = [await wire.create(title) for title in ("One", "Two", "Root", "Leaf")]
    await wire.commit()
    found = await rebased(
        wire,
        [
            ("MoveNode", {"node_id": one.id, "parent_id": two.id}),
            ("MoveNode", {"node_id": root.id, "archive_id": other}),
            ("MoveNode", {"node_id": leaf.id, "parent_id": two.id}),
        ],
        [
            ("MoveNode", {"node_id": two.id, "parent_id": one.id}),
            ("CreateNode", {"title": "New", "parent_id": root.id}),
            ("MoveNode", {"node_id": leaf.id, "parent_id": one.id}),
        ],
    )
    assert types_pb2.CONFLICT_KIND_CYCLE in [conflict.kind for conflict in found]
    (place,) = (each for each in found if each.node_id == leaf.id)
    assert (place.field, place.their_value.place.parent_id) == ("parent", one.id)
    answer = await resolve(wire, *({"node_id": node.id, "side": THEIRS} for node in (one, leaf)), others=OURS)
    assert answer.session.conflict_count == 0
    assert sorted(await wire.tree()) == [("Leaf", 1), ("One", 0), ("Two", 1)]
    assert await wire.tree(archive="other") == [("Root", 0), ("New", 1)]
    await wire.commit()


@pytest.mark.parametrize("side", [THEIRS, BASE, None])
async def test_a_parent_that_the_other_side_deleted(wire: Wire, side: int | None) -> None:
    root, child, leaf = await family(wire)
    await wire.commit()
    node = await wire.create("New")
    await wire.commit()
    ours = [
        ("MoveNode", {"node_id": node.id, "parent_id": child.id}),
        ("CreateNode", {"title": "Newer", "parent_id": child.id}),
    ]
    found = await rebased(wire, ours, [("DeleteNode", {"node_id": child.id, "recursive": True})])
    assert {one.kind for one in found} == {types_pb2.CONFLICT_KIND_PARENT_DELETED}
    assert (await resolve(wire, others=OURS)).session.conflict_count == 2
    if side is None:
        place = {"archive_id": root.archive_id, "parent_id": root.id}
        answer = await resolve(wire, *({"node_id": one.node_id, "place": place} for one in found))
    else:
        answer = await resolve(wire, others=side)
        assert answer.session.conflict_count == 1, "what has no other place would be deleted, so it is not decided"
        (left,) = (await wire("ListConflicts")).conflicts
        answer = await resolve(wire, {"node_id": left.node_id, "side": side})
    assert answer.session.conflict_count == 0
    assert (await wire.children(root.id) == []) == (side is not None)
    if side is None:
        assert sorted(await wire.children(root.id)) == sorted(one.node_id for one in found)
        await wire.commit()
    else:
        assert await wire.children() == [root.id, node.id]
    assert leaf.id not in await wire.children(root.id)


async def test_a_node_that_got_a_child_on_the_other_side(wire: Wire) -> None:
    roots = [(await wire.create(f"Root {number}")).id for number in range(3)]
    await wire.commit()
    found = await rebased(
        wire,
        [("DeleteNode", {"node_id": root}) for root in roots],
        [("CreateNode", {"title": f"New {number}", "parent_id": root}) for number, root in enumerate(roots)],
    )
    assert [each.kind for each in found] == [types_pb2.CONFLICT_KIND_HAS_CHILDREN] * 3
    sides = [{"node_id": root, "side": side} for root, side in zip(roots, (OURS, THEIRS, BASE), strict=True)]
    assert (await resolve(wire, *sides)).session.conflict_count == 0
    assert [title for title, _ in await wire.tree()] == ["Root 1", "New 1", "Root 2", "New 2"]


async def test_a_name_that_another_archive_took(wire: Wire) -> None:
    choices: list[dict[str, Any]] = [{"side": BASE}, {"side": THEIRS}, {"text": "ours"}]
    mine = [(await wire("CreateArchive", name=f"mine {number}")).archive.id for number in range(3)]
    await wire.commit()
    found = await rebased(
        wire,
        [("UpdateArchive", {"archive": key, "name": f"shared {number}"}) for number, key in enumerate(mine)],
        [("CreateArchive", {"name": f"shared {number}"}) for number in range(3)],
    )
    assert [each.kind for each in found] == [types_pb2.CONFLICT_KIND_NAME_TAKEN] * 3
    await resolve(wire, *({"node_id": key, **choice} for key, choice in zip(mine, choices, strict=True)))
    assert list((await wire("ListConflicts")).conflicts) == []
    names = {archive.name for archive in (await wire("ListArchives", revision=wire.session)).archives}
    assert names == {"notes", "shared 0", "shared 1", "shared 2", "mine 0", "mine 1", "ours"}


async def test_conflicts_are_listed_in_pages_and_whole(wire: Wire) -> None:
    long = "x" * 3000
    nodes = [await wire.create(f"Node {number}") for number in range(5)]
    await wire.commit()
    calls = [
        [("UpdateNode", {"node_id": node.id, "title": f"{side} {node.id}", "content": side + long}) for node in nodes]
        for side in ("Ours", "Theirs")
    ]
    whole = await rebased(wire, *calls)
    assert len(whole) == 10
    paged: list[types_pb2.Conflict] = []
    token = ""
    while token or not paged:
        page = await wire("ListConflicts", page_size=3, page_token=token)
        paged += page.conflicts
        token = page.next_page_token
    assert paged == whole
    assert {len(one.our_value.text) for one in whole if one.field == "content"} == {len("Ours" + long)}


async def test_what_cannot_be_resolved_is_refused_and_changes_nothing(wire: Wire) -> None:
    (node_id,) = await clash(wire, {"title": "Base"}, {"title": "Ours"}, {"title": "Theirs"})
    before = await wire.snapshot()
    title = {"node_id": node_id, "field": "title"}
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"resolutions": []}, "resolutions"),
        ({"resolutions": [title]}, "resolutions[0]"),
        ({"resolutions": [{**title, "side": 7}]}, "resolutions[0].side"),
        ({"resolutions": [{**title, "side": OURS}] * 2}, "resolutions[1]"),
        ({"resolutions": [{**title, "place": {}}]}, "resolutions[0].place"),
        ({"resolutions": [{**title, "remove": True}]}, "resolutions[0].remove"),
        ({"resolutions": [{**title, "remove": False}]}, "resolutions[0].remove"),
        ({"resolutions": [{**title, "hunks": {}}]}, "resolutions[0].hunks"),
        ({"resolutions": [{"node_id": "a", "side": OURS}]}, "resolutions[0].node_id"),
        ({"others": 9}, "others"),
    ]
    for fields, path in wrong:
        refusal = await wire.refused("ResolveConflicts", **fields)
        assert (refusal.code, refusal.fields) == ("INVALID_ARGUMENT", (path,)), fields
    for unknown in ({"node_id": node_id, "field": "content"}, {"node_id": "0000"}):
        refusal = await wire.refused("ResolveConflicts", resolutions=[{**unknown, "side": OURS}])
        assert (refusal.code, refusal.reason) == ("NOT_FOUND", "CONFLICT_NOT_FOUND")
    many = [{**title, "side": OURS}] * 1001
    assert (await wire.refused("ResolveConflicts", resolutions=many)).fields == ("resolutions",)
    empty = {**title, "text": ""}
    assert (await wire.refused("ResolveConflicts", resolutions=[empty])).code == "INVALID_ARGUMENT"
    assert await wire.snapshot() == before
    assert (await wire("GetSession")).session.conflict_count == 1
