"""The limit on the depth of a tree: what an agent can unfold, and what every path in every answer is made of."""

from memotree_storage.errors import InvalidInputError
from memotree_storage.postgres import tree

from memotree.sessions.editing import SessionEditor


class TooDeepError(InvalidInputError):
    """A node would stand deeper in the tree than the service allows."""

    reason = "TOO_DEEP"


def check_depth(editor: SessionEditor, depth: int, field: str) -> None:
    """Check the depth of a new place; a root of an archive has depth 0.

    Raises:
        TooDeepError: It exceeds the limit.
    """
    most = editor.limits.max_depth
    if depth > most:
        raise too_deep(field, depth, most)


async def check_moved_depth(editor: SessionEditor, entry_id: str, depth: int, field: str) -> None:
    """Check a move of a node with all that is below it; a move upwards or sideways is always allowed.

    Trees that git merged or pushed may be deeper than the limit already.

    Args:
        editor: The session; the node has its old place there.
        entry_id: The node.
        depth: Its new depth.
        field: The field of the request that gives its new place.

    Raises:
        TooDeepError: It or a node below it would exceed the limit.
    """
    before = len((await tree.ancestors(editor.snapshot, [entry_id]))[entry_id])
    if depth <= before:
        return
    check_depth(editor, depth, field)
    room = editor.limits.max_depth - depth
    below = await tree.subtree(editor.snapshot, [entry_id], max_depth=room + 1)
    deepest = max((item.depth for item in below), default=0)
    if deepest > room:
        raise too_deep(field, depth + deepest, editor.limits.max_depth)


def too_deep(field: str, depth: int, most: int) -> InvalidInputError:
    """The refusal of a place; ``most`` is the limit."""
    return TooDeepError.at(
        field,
        f"would put a node at depth {depth}, and the limit is {most}. Choose a place nearer to its root, "
        "or start the server with a higher MEMOTREE_MAX_DEPTH.",
    )
