"""How deep nodes of a commit are, and which are below themselves."""

from collections.abc import Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from memotree_storage.mirror.tree_check import _Check
from memotree_storage.model.node import Node
from steps import LINEAR, growth


def depths(parents: Mapping[str, str | None], above: Mapping[str, list[str]]) -> dict[str, int | None]:
    nodes = {key: Node(key, "archive", parent, "a0") for key, parent in parents.items()}
    nothing: Any = None
    check = _Check(nothing, nothing, nodes, set(), None, is_merge=True)
    return check._depths(list(nodes.values()), above)


def plain(parents: Mapping[str, str | None], above: Mapping[str, list[str]], key: str) -> int | None:
    """Walk up from one node until its root, itself, or a node that was passed."""
    seen = [key]
    way = parents[key]
    while way:
        if way == key:
            return None
        if way in seen:
            break
        seen.append(way)
        if way in parents:
            way = parents[way]
        else:
            ancestors = above.get(way, [])
            way = ancestors[-1] if ancestors else None
    return len(seen) - 1


@given(st.dictionaries(st.sampled_from("abcdefg"), st.none() | st.sampled_from("abcdefgxyz"), max_size=7))
def test_they_are_those_of_a_plain_walk(parents: dict[str, str | None]) -> None:
    chain = ["x", "y", "z"]  # z below y below x at the head, and x is a root
    above = {one: chain[:at] for at, one in enumerate(chain)}
    parents = {key: parent if parent in {*parents, *chain} else None for key, parent in parents.items()}
    assert depths(parents, above) == {key: plain(parents, above, key) for key in parents}


def test_a_long_chain_takes_steps_in_proportion_to_its_length() -> None:
    def chain(length: int) -> dict[str, int | None]:
        return depths({str(number): str(number + 1) if number + 1 < length else None for number in range(length)}, {})

    assert growth(chain, 500) < LINEAR
