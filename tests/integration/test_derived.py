"""The content of a summary node is built from its leaves on each read, and a summary has its provenance."""

from dataclasses import replace
from typing import Any

import pytest
from integration.wires import Wire
from integration.worlds import World
from memotree_storage.commit.direct_import import commit_entries
from memotree_storage.model.attribute_names import BRIEF_BY, SUMMARY_BY, SUMMARY_OF
from memotree_storage.model.node import Node, Source
from memotree_storage.model.position import many_between
from memotree_storage.model.provenance import hash_of_children, hash_of_content, with_provenance
from memotree_storage.model.tokens import count_tokens
from memotree_storage.model.validation import Limits

from memotree.canvas import NodeOperations, ViewOperations, derived_content, node_messages
from memotree.request.limits import ServiceLimits
from memotree.v1 import node_service_pb2 as pb
from memotree.v1 import types_pb2, view_service_pb2, workspace_service_pb2
from memotree.workspaces import WorkspaceOperations

DETAIL = types_pb2.LEVEL_OF_DETAIL_DETAIL


def nodes_of(world: World, limit: int = 1 << 20) -> NodeOperations:
    return NodeOperations(world.store, world.pages, ServiceLimits(node=Limits(content_bytes=limit)))


async def read(world: World, node: Node, revision: str = "", limit: int = 1 << 20, **fields: Any) -> types_pb2.Node:
    request = pb.GetNodeRequest(workspace=world.workspace, node_id=node.id, revision=revision, **fields)
    return (await nodes_of(world, limit).get_node(request)).node


def summary(world: World, title: str, **fields: Any) -> Node:
    return world.node(title, **{"type": "summary_node", "content": "", **fields})


def chunk(world: World, text: str, parent: Node, position: str, **fields: Any) -> Node:
    return world.node(text, **{"parent": parent, "type": "leaf_chunk", "content": text, "position": position, **fields})


async def document(world: World, *, leaves: int = 40, text: str = "leaf {} ä端 ") -> tuple[Node, list[Node], str]:
    """A binary tree over leaves, as an ingestion makes it: the root, the leaves, and their text."""
    places = many_between(None, None, leaves)
    root = summary(world, "Root")
    level = [world.node(f"L{n}", type="leaf_chunk", content=text.replace("{}", str(n))) for n in range(leaves)]
    everything, kept = [root], list(level)
    while len(level) > 1:
        above = []
        for first in range(0, len(level), 2):
            pair = level[first : first + 2]
            top = summary(world, "Inner") if len(level) > 2 else root
            everything += [
                replace(one, parent_id=top.id, position=place) for one, place in zip(pair, places[:2], strict=False)
            ]
            above.append(top)
        level = above
    await commit_entries(world.store, world.workspace, "main", everything, "Ingest")
    return root, kept, "".join(one.content for one in kept)


@pytest.mark.requirement("FOREST-2")
async def test_a_summary_node_reads_as_its_leaves_in_order(world: World) -> None:
    root, _, text = await document(world)
    node = await read(world, root)
    assert (node.content, node.content_cut) == (text, False)
    assert node.content_tokens == count_tokens(text)
    assert (await read(world, root, level=types_pb2.LEVEL_OF_DETAIL_SUMMARY)).content == ""


@pytest.mark.requirement("FOREST-2")
async def test_a_leaf_with_children_comes_before_them(world: World) -> None:
    root = summary(world, "Root")
    first, second = chunk(world, "1 ", root, "a0"), chunk(world, "4 ", root, "a1")
    middle = summary(world, "Middle", parent=first, position="a1")
    below, deep = chunk(world, "2 ", first, "a0"), chunk(world, "3 ", middle, "a0")
    await world.put(root, first, second, middle, below, deep)
    assert (await read(world, root)).content == "1 2 3 4 "
    assert (await read(world, middle)).content == "3 "
    assert (await read(world, first)).content == "1 ", "only a summary node's content is derived"


@pytest.mark.requirement("FOREST-2")
async def test_pieces_of_one_document_are_joined_as_they_were_and_notes_by_a_blank_line(world: World) -> None:
    root = summary(world, "Root")
    cut = [
        world.node(text, parent=root, content=text, position=place, source=Source(document, 0, 1))
        for text, place, document in (("a", "a0", "d"), ("b", "a1", "d"), ("c", "a2", "e"))
    ]
    note = world.node("note", parent=root, content="note", position="a3")
    await world.put(root, *cut, note)
    assert (await read(world, root)).content == "ab\n\nc\n\nnote"


@pytest.mark.requirement("FOREST-2")
async def test_a_derived_content_is_cut_at_the_limit_and_says_so(world: World) -> None:
    root, _, text = await document(world)
    for limit in (1, 7, 8, 9, 100, 479):
        node = await read(world, root, limit=limit)
        assert node.content_cut, limit
        assert text.startswith(node.content), limit
        assert limit - 2 <= len(node.content.encode()) <= limit
        assert node.content_tokens == count_tokens(node.content), limit
    exact = await read(world, root, limit=len(text.encode()))
    assert (exact.content, exact.content_cut) == (text, False)


@pytest.mark.requirement("FOREST-2")
async def test_a_cut_content_reads_no_more_leaves_than_it_needs(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    root, _, text = await document(world, leaves=300, text="{} " * 100)
    world.store.entries._cache.clear()
    asked: list[int] = []
    load = world.store.entries.load

    async def counted(workspace_id: str, versions: Any) -> Any:
        chosen = list(versions)
        asked.append(len(chosen))
        return await load(workspace_id, chosen)

    monkeypatch.setattr(world.store.entries, "load", counted)
    node = await read(world, root, limit=2000)
    assert node.content_cut
    assert text.startswith(node.content)
    assert sum(asked) < 100


@pytest.mark.requirement("FOREST-2")
async def test_a_derived_content_is_that_of_its_revision(world: World) -> None:
    root, leaves, text = await document(world, leaves=4)
    first = await world.head()
    placed = await read(world, leaves[1])
    kept = replace(leaves[1], parent_id=placed.parent_id, position=placed.position)
    await world.put(replace(kept, content="changed "))
    now = text.replace(leaves[1].content, "changed ")
    assert (await read(world, root)).content == now
    assert (await read(world, root, revision=first)).content == text
    session = await world.open()
    await world.stage(session, replace(kept, content="staged "), delete=[leaves[0]])
    kept_text = "".join(leaf.content for leaf in leaves[2:])
    assert (await read(world, root, revision=session)).content == "staged " + kept_text
    assert (await read(world, root)).content == now


@pytest.mark.requirement("CANVAS-1")
async def test_expanding_and_rendering_show_the_derived_content(world: World) -> None:
    root, _, text = await document(world, leaves=6)
    session = await world.open()
    answer = await nodes_of(world).expand_node(
        pb.ExpandNodeRequest(workspace=world.workspace, revision=session, node_id=root.id, level=DETAIL)
    )
    assert answer.node.content == text
    assert answer.text == f"Root\n\n{text}"
    assert answer.usage.tokens_used > count_tokens(text)
    request = view_service_pb2.RenderViewRequest(workspace=world.workspace, revision=session)
    view = await ViewOperations(world.store, world.pages).render_view(request)
    assert text in view.markdown
    assert not view.warnings
    few = ViewOperations(world.store, world.pages, ServiceLimits(node=Limits(content_bytes=20)))
    view = await few.render_view(request)
    assert text not in view.markdown
    assert any(root.id in warning and "20 bytes" in warning for warning in view.warnings)
    children = await nodes_of(world, 20).list_children(
        pb.ListChildrenRequest(workspace=world.workspace, parent_id=root.id, level=DETAIL)
    )
    assert sum(len(node.content.encode()) for node in children.nodes) <= 20, "one limit for all of a page"
    assert all(node.content_cut for node in children.nodes)


@pytest.mark.requirement("FOREST-2")
async def test_a_tree_deeper_than_wide_is_read_as_well(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(derived_content, "_MOST_ROUNDS", 5)
    above = root = summary(world, "Root")
    everything, text = [root, chunk(world, "outside", root, "a9", parent_id=None)], ""
    for number in range(30):
        leaf = chunk(world, f"{number} ", above, "a0")
        above = summary(world, f"Level {number}", parent=above, position="a1")
        everything += [leaf, above]
        text += leaf.content
    await commit_entries(world.store, world.workspace, "main", everything, "Ingest")
    assert (await read(world, root)).content == text
    cut = await read(world, root, limit=50)
    assert (cut.content, cut.content_cut) == (text[:50], True)


async def test_nodes_of_a_pushed_cycle_are_visited_once(world: World) -> None:
    root, inner = summary(world, "Root"), summary(world, "Inner", position="a1")
    leaf = chunk(world, "x", inner, "a0")
    await world.put(root, replace(inner, parent_id=root.id), leaf)
    session = await world.open()
    await world.stage(session, replace(root, parent_id=inner.id), replace(inner, parent_id=root.id, title="again"))
    assert (await read(world, root, revision=session)).content == "x"


# --- where a summary comes from --------------------------------------------------------------------------------------


async def provenanced(wire: Wire) -> types_pb2.Node:
    """A leaf with a made summary."""
    node = await wire.create("Leaf", type="leaf_chunk", content="Birds sing. They sing at dawn in the trees.")
    return (await wire("UpdateNode", node_id=node.id, regenerate_summary=True)).node


@pytest.mark.requirement("FOREST-5")
async def test_the_summary_of_a_summary_node_is_made_from_those_of_its_children(wire: Wire) -> None:
    top = await wire.create("Top", type="summary_node")
    a = await wire.create("A", parent_id=top.id, content="x", summary="Birds sing at dawn in tall trees.")
    b = await wire.create("B", parent_id=top.id, content="y", summary="Fish swim in the deep blue sea.")
    made = (await wire("UpdateNode", node_id=top.id, regenerate_summary=True)).node
    assert "Birds" in made.summary
    assert "Fish" in made.summary
    assert made.attributes[SUMMARY_OF] == hash_of_children([(a.id, a.summary), (b.id, b.summary)])
    assert made.content == "x\n\ny", "the answer has the derived content"


@pytest.mark.requirement("FOREST-5")
async def test_a_summary_written_by_a_person_has_no_provenance(wire: Wire) -> None:
    node = await provenanced(wire)
    by_hand = (await wire("UpdateNode", node_id=node.id, summary="My words.", attributes={"k": "v"})).node
    assert dict(by_hand.attributes) == {"k": "v", BRIEF_BY: "extractive-1"}, "the brief is not theirs"
    again = (await wire("UpdateNode", node_id=node.id, regenerate_summary=True)).node
    assert again.attributes[SUMMARY_OF] == hash_of_content(node.content)
    both = (await wire("UpdateNode", node_id=node.id, summary="Mine.", regenerate_summary=True)).node
    assert (both.summary, dict(both.attributes)) == ("Mine.", {"k": "v", BRIEF_BY: "extractive-1"})
    brief = (await wire("UpdateNode", node_id=node.id, brief="Mine, too.")).node
    assert dict(brief.attributes) == {"k": "v"}


@pytest.mark.requirement("FOREST-5")
async def test_a_generated_summary_follows_its_content_and_says_what_it_was_made_of(wire: Wire) -> None:
    node = await provenanced(wire)
    assert dict(node.attributes) == {SUMMARY_BY: "extractive-1", SUMMARY_OF: hash_of_content(node.content)}
    note = await wire.create("Note", content="Mine alone.")
    again = (await wire("UpdateNode", node_id=note.id, regenerate_summary=True)).node
    of_note = {SUMMARY_BY: "extractive-1", SUMMARY_OF: hash_of_content("Mine alone.")}
    assert dict(again.attributes) == dict(note.attributes) == of_note
    changed = await wire("UpdateNode", node_id=node.id, content="Fish.")
    assert dict(changed.node.attributes) == {SUMMARY_BY: "extractive-1", SUMMARY_OF: hash_of_content("Fish.")}
    assert changed.node.summary == "Fish."
    assert not changed.warnings
    back = (await wire("UpdateNode", node_id=node.id, content=node.content)).node
    assert (dict(back.attributes), back.summary) == (dict(node.attributes), node.summary)
    new = (await wire("UpdateNode", node_id=node.id, content="Cats.", regenerate_summary=True)).node
    assert dict(new.attributes) == {SUMMARY_BY: "extractive-1", SUMMARY_OF: hash_of_content("Cats.")}


@pytest.mark.requirement("CANVAS-4")
async def test_reserved_attributes_are_refused_and_kept(wire: Wire) -> None:
    node = await provenanced(wire)
    for call, fields in (
        ("CreateNode", {"archive_id": "notes", "title": "x"}),
        ("UpdateNode", {"node_id": node.id}),
        ("UpdateNode", {"node_id": node.id, "mode": pb.UPDATE_MODE_REPLACE}),
    ):
        refusal = await wire.refused(call, attributes={SUMMARY_OF: "0" * 16, "k": "v"}, **fields)
        assert (refusal.code, refusal.reason) == ("INVALID_ARGUMENT", "RESERVED_ATTRIBUTE")
        assert refusal.fields == (f"attributes['{SUMMARY_OF}']",)
    for given, own in (({**node.attributes, "k": "v"}, {"k": "v"}), ({"j": "w"}, {"j": "w"})):
        answer = await wire("UpdateNode", node_id=node.id, attributes=given, mode=pb.UPDATE_MODE_REPLACE)
        assert dict(answer.node.attributes) == {**node.attributes, **own}


async def test_the_parts_of_a_split_leaf_record_the_provenance_of_their_summaries(world: World) -> None:
    made = with_provenance({"speaker": "Ada"}, "gpt-x leaf_summary@1", "0" * 16, "content")
    leaf = world.node("Leaf", type="leaf_chunk", content="One. Two.", attributes=made)
    await world.put(leaf)
    session = await world.open()
    parts = [pb.SplitPart(title=text, content=text) for text in ("One.", "Two.")]
    answer = await nodes_of(world).split_node(
        pb.SplitNodeRequest(workspace=world.workspace, session_id=session, node_id=leaf.id, parts=parts)
    )
    for part in answer.nodes:
        told = {"speaker": "Ada", SUMMARY_BY: "extractive-1", SUMMARY_OF: hash_of_content(part.content)}
        assert dict(part.attributes) == told


async def test_an_archive_keeps_its_attributes_when_it_is_renamed(world: World) -> None:
    await world.put(replace(world.archive, attributes={"document_id": "d"}))
    session = await world.open()
    operations = WorkspaceOperations(world.store, world.pages, world.limits)
    named = {"workspace": world.workspace, "archive": world.archive.id}
    request = workspace_service_pb2.UpdateArchiveRequest(**named, session_id=session, name="renamed")
    assert dict((await operations.update_archive(request)).archive.attributes) == {"document_id": "d"}
    await world.commit(session)
    found = await operations.get_archive(workspace_service_pb2.GetArchiveRequest(**named))
    assert (found.archive.name, dict(found.archive.attributes)) == ("renamed", {"document_id": "d"})


@pytest.mark.requirement("CANVAS-1")
@pytest.mark.parametrize("kind", ["note", "summary_node"])
async def test_a_node_committed_from_its_session_during_a_read_is_read_completely(
    world: World, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    session = await world.open()
    node = world.node("Roses", type=kind, content="" if kind == "summary_node" else "Roses need water.")
    leaf = chunk(world, "Roses need water.", node, "a0")
    await world.stage(session, node, *([leaf] if kind == "summary_node" else []))
    real, takes = derived_content.read_nodes, ["a commit"]

    async def read_nodes(*args: Any) -> dict[str, Node]:
        if takes:
            takes.clear()
            await world.commit(session)
        return await real(*args)

    monkeypatch.setattr(derived_content, "read_nodes", read_nodes)
    monkeypatch.setattr(node_messages, "read_nodes", read_nodes)
    assert (await read(world, node, session)).content == "Roses need water."
    assert not takes
