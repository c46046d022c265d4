"""What a workspace has, as plain values that can be compared, whatever their positions are called."""

from typing import Any, NamedTuple

from memotree.client import Node, Revision
from memotree.client.markdown.note_file import given_texts, own_attributes


class Shown(NamedTuple):
    """A node with its place in the order of the tree; texts that MemoTree made are left out."""

    id: str
    depth: int
    type: str
    title: str
    content: str
    given: tuple[str | None, str | None]
    tags: tuple[str, ...]
    attributes: dict[str, str]
    relations: set[Any]
    source: Any


def shown(node: Node, depth: int) -> Shown:
    return Shown(
        node.id,
        depth,
        node.type,
        node.title,
        node.content,
        given_texts(node),
        node.tags,
        own_attributes(node.attributes),
        set(node.relations),
        node.source,
    )


def state(at: Revision) -> dict[tuple[str, str, str, str], list[Shown]]:
    """The nodes of each archive, which is told by its id, name, model and description."""
    return {
        (archive.id, archive.name, archive.model_id, archive.description): [
            shown(each.node, each.depth) for each in at.walk(archive=archive, level="DETAIL")
        ]
        for archive in at.archives()
    }
