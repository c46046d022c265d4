"""A document is changed in any way any number of times, and the updated tree always has the document's text."""

import asyncio
import hashlib
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from memotree_storage.model.node import LEAF_TYPE, Node
from memotree_storage.postgres.rows import staged_version

from memotree.forest.chunking.splitting import split
from memotree.forest.documents import Document, read_document
from memotree.forest.ingestion.existing_tree import ExistingTree
from memotree.forest.ingestion.known_document import align_with
from memotree.forest.ingestion.tree_update import TreeUpdater
from memotree.forest.tree_building.builder import BuildContext, TreeBuilder
from memotree.forest.tree_building.options import ChunkingOptions
from memotree.models.cache import AnswerCache
from memotree.models.gateway import Models
from memotree.models.meter import Meter

pytestmark = pytest.mark.requirement("FOREST-5")

ARCHIVE, DOCUMENT, CHUNK = "0" * 16, "a document", 60
MODELS = Models(AnswerCache(None))  # type: ignore[arg-type]  # built-in models ask no cache

WORDS = st.sampled_from(["river", "tree", "记忆", "森林。", "alpha", "beta", "x", "the same again"])
PARAGRAPH = st.lists(WORDS, min_size=1, max_size=14).map(" ".join)
HEADING = st.builds(lambda level, words: f"{'#' * level} {words}", st.integers(1, 4), PARAGRAPH.map(lambda p: p[:20]))
BLOCKS = st.lists(st.one_of(PARAGRAPH, PARAGRAPH, HEADING), min_size=1, max_size=12)
EDIT = st.tuples(
    st.sampled_from(["insert", "remove", "change", "move"]), st.integers(0, 99), st.integers(0, 99), BLOCKS
)


def edited(blocks: list[str], edits: list[tuple[str, int, int, list[str]]]) -> list[str]:
    """The blocks after some edits."""
    found = list(blocks)
    for what, first, second, new in edits:
        at, to = first % (len(found) + 1), second % (len(found) + 1)
        if what == "insert":
            found[at:at] = new[:3]
        elif what == "remove":
            del found[at : at + 1 + second % 3]
        elif what == "change":
            found[at : at + 1] = new[:1]
        else:
            some = found[at : at + 2]
            del found[at : at + 2]
            found[to:to] = some
    return found or ["x"]


def document(blocks: list[str]) -> Document:
    return read_document("\n\n".join(blocks), media_type="text/markdown")


async def silent(_step: str, _done: int, _total: int) -> None:
    """Report no progress."""


def builder(job: int, threshold: float) -> TreeBuilder:
    context = BuildContext(f"job {job}", ARCHIVE, DOCUMENT, (), ChunkingOptions(CHUNK, threshold, 4 * CHUNK))
    return TreeBuilder(MODELS, Meter(), context, silent)


def in_order(nodes: Mapping[str, Node]) -> Iterator[str]:
    """The ids in pre-order; nodes in a cycle or below a missing parent are not reached."""
    below: dict[str, list[Node]] = defaultdict(list)
    for node in nodes.values():
        below[node.parent_id or ""].append(node)
    waiting = sorted(below[""], key=lambda node: (node.position, node.id), reverse=True)
    while waiting:
        node = waiting.pop()
        yield node.id
        waiting += sorted(below[node.id], key=lambda each: (each.position, each.id), reverse=True)


def existing_tree(nodes: Mapping[str, Node]) -> ExistingTree:
    order = list(in_order(nodes))
    assert len(order) == len(nodes), "every node hangs in the tree"
    leaves = {node.id: node for node in nodes.values() if node.type == LEAF_TYPE}
    return ExistingTree(DOCUMENT, order, {node.id: staged_version(node, "") for node in nodes.values()}, leaves)


def check(nodes: Mapping[str, Node], read: Document) -> None:
    order = list(in_order(nodes))
    assert len(order) == len(nodes)
    leaves = [nodes[node_id] for node_id in order if nodes[node_id].type == LEAF_TYPE]
    assert "".join(leaf.content for leaf in leaves) == read.text
    parents = {node.parent_id for node in nodes.values()}
    assert all(node.id in parents for node in nodes.values() if node.type == "summary_node"), "none is childless"
    titles = [section.title for section in read.outline]
    sections = [nodes[node_id].title for node_id in order if "section" in nodes[node_id].attributes]
    left = iter(titles)
    assert all(title in left for title in sections), "sections stand in the order of the headings"


@given(
    BLOCKS, st.lists(st.lists(EDIT, min_size=1, max_size=3), min_size=1, max_size=4), st.sampled_from([-1.0, 0.5, 1.0])
)
def test_after_any_edits_the_leaves_joined_are_the_new_text_and_notes_are_kept(
    blocks: list[str], rounds: list[list[tuple[str, int, int, list[str]]]], threshold: float
) -> None:
    async def run() -> None:
        now = blocks
        read = document(now)
        nodes_made = await builder(0, threshold).build(read, split(read, CHUNK))
        nodes = {node.id: node for node in nodes_made}
        check(nodes, read)
        for number, edits in enumerate(rounds, 1):
            home = list(in_order(nodes))[edits[0][1] % len(nodes)]
            note = Node(f"{number:016}", ARCHIVE, home, "a0", title=f"Note {number}", content="mine")
            nodes[note.id] = note
            before = existing_tree(nodes)
            now = edited(now, edits)
            read = document(now)
            kept = align_with(read, before)
            tree_update = await TreeUpdater(builder(number, threshold), before, read, kept).update()
            assert not tree_update.gone & tree_update.after.keys()
            nodes = {node_id: node for node_id, node in nodes.items() if node_id not in tree_update.gone}
            for node_id, node in tree_update.after.items():
                assert node_id not in nodes or node != nodes[node_id] or before.is_own(node_id)
                if node_id in before.versions and not before.is_own(node_id):  # for notes, it has only the place
                    place = {"archive_id": node.archive_id, "parent_id": node.parent_id, "position": node.position}
                    nodes[node_id] = replace(nodes[node_id], **place)
                else:
                    nodes[node_id] = node
            check(nodes, read)
            leaves = [node for node in nodes.values() if node.type == LEAF_TYPE]
            assert tree_update.kept + tree_update.created == len(leaves)
            assert tree_update.removed + tree_update.kept == len(before.leaves)
            notes = [node for node in nodes.values() if node.type == "note"]
            assert [each.content for each in notes] == ["mine"] * number

    asyncio.run(run())


@pytest.mark.requirement("STORE-8")
def test_updates_of_one_place_again_and_again_do_not_deepen_the_tree() -> None:
    levels = 6

    def few_levels(job: int) -> TreeBuilder:
        options = ChunkingOptions(CHUNK, -1.0, 100 * CHUNK)
        return TreeBuilder(MODELS, Meter(), BuildContext(f"job {job}", ARCHIVE, DOCUMENT, (), options, levels), silent)

    async def run() -> None:
        words = [f"The word {number} of the first version." for number in range(40)]
        read = document([" ".join(words)])
        nodes = {node.id: node for node in await few_levels(0).build(read, split(read, CHUNK))}
        for number in range(1, 30):
            words[19:21] = [f"A word {number}.{place} of a later version." for place in range(4)]
            read = document([" ".join(words)])
            before = existing_tree(nodes)
            kept = align_with(read, before)
            update = await TreeUpdater(few_levels(number), before, read, kept).update()
            nodes = {node_id: node for node_id, node in nodes.items() if node_id not in update.gone} | dict(
                update.after
            )
            check(nodes, read)
        depths = {"": -1}
        for node_id in in_order(nodes):
            depths[node_id] = depths[nodes[node_id].parent_id or ""] + 1
        assert max(depths.values()) == levels

    asyncio.run(run())


@given(BLOCKS, st.sampled_from([-1.0, 0.5, 1.0]))
def test_the_same_text_again_changes_nothing(blocks: list[str], threshold: float) -> None:
    async def run() -> None:
        read = document(blocks)
        nodes_made = await builder(0, threshold).build(read, split(read, CHUNK))
        existing = existing_tree({node.id: node for node in nodes_made})
        tree_update = await TreeUpdater(builder(1, threshold), existing, read, align_with(read, existing)).update()
        assert not tree_update.after
        assert not tree_update.gone
        assert tree_update.created == tree_update.removed == 0

    asyncio.run(run())


def digest_of_a_tree() -> str:
    """The digest of a tree of many nodes, which is printed by another process too."""
    words = ("river", "tree", "search", "kettle", "violin", "harbour", "engine")
    said = "Part {} tells of the {} and its {}."
    parts = [[said.format(n, words[(n + k) % 7], words[n * k % 7]) for k in range(9)] for n in range(24)]
    read = document([" ".join(part) for part in parts])
    nodes = asyncio.run(builder(0, -1.0).build(read, split(read, 600)))
    return hashlib.sha256(repr([replace(node, position="") for node in nodes]).encode()).hexdigest()  # it is random


@pytest.mark.requirement("FOREST-2")
def test_a_tree_is_the_same_in_every_process() -> None:
    """A job that is repeated in another process, where hashes differ, must make the same nodes."""
    program = "from property.test_tree_updates import digest_of_a_tree; print(digest_of_a_tree())"
    other = subprocess.run(  # noqa: S603 - this interpreter and the program above
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": str(Path(__file__).parents[1])},
        capture_output=True,
        text=True,
        check=True,
    )
    assert other.stdout.strip() == digest_of_a_tree()
