"""A view within a token budget: which nodes are collapsed, in which order, and that a possible budget is kept."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from memotree_storage.model.tokens import count_tokens
from memotree_storage.postgres.rows import Version

from memotree.canvas.derived_content import Text
from memotree.canvas.view_rendering import Rendered, Shown, ShownNode, rendered
from memotree.request.messages import BRIEF, DETAIL, SUMMARY, TITLE

ARCHIVE = "a" * 16


def entry(number: int) -> str:
    return f"{number:016}"


def version(number: int, parent: str, text: str) -> Version:
    place, texts = (ARCHIVE, parent, "a0"), (f"Node {number} {text[:3]}", text[:20], text[:60])
    return Version(entry(number), False, False, "", *place, "note", *texts, [], {}, [], None, count_tokens(text))  # noqa: FBT003


def view(rows: Sequence[tuple[int, int, int, str]]) -> tuple[Shown, dict[str, Text]]:
    """Rows of depth, level, used and text, in the order of the tree; a depth may be one more than the one before."""
    nodes: list[ShownNode] = []
    texts: dict[str, Text] = {}
    above: list[str] = []
    for number, (wanted, level, used, text) in enumerate(rows):
        depth = min(wanted, len(above))
        above = above[:depth]
        made = version(number, above[-1] if above else "", text)
        nodes.append(ShownNode(made, DETAIL.__class__(level), depth, used, hidden_below=number % 3))
        texts[made.entry_id] = Text(text, made.tokens)
        above.append(made.entry_id)
    return Shown(nodes, [], []), texts


def whole(rows: Sequence[tuple[int, int, int, str]], budget: int = 0) -> Rendered:
    return rendered(*view(rows), budget)


rows = st.lists(
    st.tuples(
        st.integers(0, 4),
        st.sampled_from([TITLE, TITLE, BRIEF, SUMMARY, DETAIL]),
        st.integers(0, 50),
        st.text("ab \u4e2d\n", max_size=80),
    ),
    min_size=1,
    max_size=25,
)


@pytest.mark.requirement("CANVAS-11")
@given(rows, st.integers(1, 600))
def test_the_budget_is_kept_whenever_the_collapsed_view_keeps_it(
    nodes: list[tuple[int, int, int, str]], budget: int
) -> None:
    found = whole(nodes, budget)
    assert found.usage.tokens_used == count_tokens(found.markdown)
    least = whole(nodes, 1)
    assert least.usage.nodes_expanded == 0
    assert least.usage.nodes_shown == sum(1 for line in least.markdown.splitlines() if line.startswith("# "))
    assert found.fits == (found.usage.tokens_used <= budget)
    assert found.fits or found.markdown == least.markdown
    if least.usage.tokens_used <= budget:
        assert found.usage.tokens_used <= budget


@pytest.mark.requirement("CANVAS-11")
@given(rows)
def test_a_larger_budget_never_shows_less(nodes: list[tuple[int, int, int, str]]) -> None:
    full = whole(nodes)
    assert whole(nodes, max(full.usage.tokens_used, 1)).markdown == full.markdown
    before = whole(nodes, 1)
    for budget in range(2, full.usage.tokens_used, 7):
        found = whole(nodes, budget)
        assert found.collapsed == before.collapsed[: len(found.collapsed)]
        assert found.usage.nodes_shown >= before.usage.nodes_shown
        before = found


@pytest.mark.requirement("CANVAS-2", "CANVAS-11")
def test_a_collapsed_node_hides_and_counts_its_children() -> None:
    nodes = [(0, DETAIL, 1, "word " * 10), (1, TITLE, 2, ""), (1, TITLE, 3, ""), (0, DETAIL, 9, "more " * 10)]
    full = whole(nodes)
    found = whole(nodes, full.usage.tokens_used - 1)
    assert found.collapsed == [entry(0)]
    assert f"# Node 0 wor [{entry(0)}] (+2)\n\n# Node 3 mor" in found.markdown
    assert (found.usage.nodes_shown, found.usage.nodes_expanded) == (2, 1)


@pytest.mark.requirement("CANVAS-11")
def test_a_node_expanded_below_a_collapsed_one_stays_if_it_was_used_later() -> None:
    nodes = [(0, DETAIL, 1, "word " * 30), (1, TITLE, 2, ""), (2, DETAIL, 9, "deep " * 30), (0, BRIEF, 5, "x" * 20)]
    full = whole(nodes)
    first = whole(nodes, full.usage.tokens_used - 1)
    assert first.collapsed == [entry(0)]
    assert "deep deep" in first.markdown
    second = whole(nodes, first.usage.tokens_used - 1)
    assert second.collapsed == [entry(0), entry(3)]
    assert "deep deep" in second.markdown
    third = whole(nodes, second.usage.tokens_used - 1)
    assert third.collapsed == [entry(0), entry(3), entry(2)]
    last = whole(nodes, third.usage.tokens_used - 1)
    assert (last.usage.nodes_shown, last.fits) == (3, True)
    assert whole(nodes, 1).usage.nodes_shown == 2
