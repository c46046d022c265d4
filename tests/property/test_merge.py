"""The merge of nodes against a plain model, a flat dictionary of independent facts; and of texts beside git's."""

import shutil
import subprocess
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from campaigns import effort
from entry_strategies import nodes
from hypothesis import assume, given
from hypothesis import strategies as st
from memotree_storage.conflicts import Conflict
from memotree_storage.model.merge import merge_entries
from memotree_storage.model.node import Node, Relation, Source
from memotree_storage.model.provenance import without_provenance
from memotree_storage.model.text_merge import merge_texts
from memotree_storage.model.validation import canonical_node

ID = "7xk2m9qd4tnvw0ha"
OTHERS = ["c41hz8rjy6ksm3pe", "0d9vq2fgw7bnx5tj", "5sc6yp1ewk8mz3rb"]

words = st.sampled_from(["", "a", "b", "c"])


@st.composite
def small_nodes(draw: st.DrawFn) -> Node:
    """Nodes from few values, so that sides agree and collide often."""
    targets = draw(st.lists(st.sampled_from(OTHERS), unique=True, max_size=2))
    return canonical_node(
        Node(
            id=ID,
            archive_id=draw(st.sampled_from(OTHERS[:2])),
            parent_id=draw(st.sampled_from([None, *OTHERS[:2]])),
            position=draw(st.sampled_from(["a0", "a1", "a2"])),
            type=draw(st.sampled_from(["note", "code"])),
            title=draw(words),
            brief=draw(words),
            summary=draw(words),
            content=draw(words),
            tags=tuple(draw(st.lists(st.sampled_from("xyz"), unique=True, max_size=3))),
            relations=tuple(Relation("EXTENDS", target, draw(words)) for target in targets),
            attributes=draw(st.dictionaries(st.sampled_from("pqr"), words, max_size=3)),
            source=draw(st.none() | st.builds(Source, st.sampled_from(["d", "e"]))),
        )
    )


ABSENT = object()


def facts(node: Node) -> dict[str, Any]:
    """The independent facts of a node; placement without the position."""
    found: dict[str, Any] = {
        name: getattr(node, name) for name in ("type", "title", "brief", "summary", "content", "source")
    }
    found["parent"] = (node.archive_id, node.parent_id)
    found |= {f"tags.{tag}": True for tag in node.tags}
    found |= {f"attributes.{key}": value for key, value in without_provenance(node.attributes).items()}
    found |= {f"relations.{relation.type}.{relation.target_id}": relation.description for relation in node.relations}
    return found


def model_merge(base: Node, ours: Node, theirs: Node) -> tuple[dict[str, Any], set[str]]:
    """Merge fact by fact: the side that changed it wins; ours if both changed it differently."""
    start, our, their = facts(base), facts(ours), facts(theirs)
    merged, conflicts = {}, set()
    for key in {*start, *our, *their}:
        a, b, c = start.get(key, ABSENT), our.get(key, ABSENT), their.get(key, ABSENT)
        value = c if a == b else b
        if a not in (b, c) and b != c:
            conflicts.add(key)
        if value is not ABSENT:
            merged[key] = value
    return merged, conflicts


def _swapped(conflict: Conflict) -> Conflict:
    return replace(conflict, ours=conflict.theirs, theirs=conflict.ours)


@pytest.mark.requirement("GIT-6")
@given(small_nodes(), small_nodes(), small_nodes())
def test_every_fact_merges_as_in_the_plain_model(base: Node, ours: Node, theirs: Node) -> None:
    result = merge_entries(base, ours, theirs)
    expected, conflicts = model_merge(base, ours, theirs)
    assert isinstance(result.entry, Node)
    assert facts(result.entry) == expected
    assert {conflict.field for conflict in result.conflicts} == conflicts
    assert canonical_node(result.entry) == result.entry


@pytest.mark.requirement("GIT-6")
@given(st.none() | small_nodes(), st.none() | small_nodes(), st.none() | small_nodes())
def test_conflicts_do_not_depend_on_whose_side_is_ours(
    base: Node | None, ours: Node | None, theirs: Node | None
) -> None:
    forth, back = merge_entries(base, ours, theirs), merge_entries(base, theirs, ours)
    assert [conflict.field for conflict in forth.conflicts] == [conflict.field for conflict in back.conflicts]
    for left, right in zip(forth.conflicts, back.conflicts, strict=True):
        assert replace(left, description="") == replace(_swapped(right), description="")
    if not forth.conflicts and isinstance(forth.entry, Node) and isinstance(back.entry, Node):
        assert replace(forth.entry, position="a0") == replace(back.entry, position="a0")


@given(small_nodes(), small_nodes())
def test_a_side_that_changed_nothing_takes_the_other(base: Node, changed: Node) -> None:
    for result in (
        merge_entries(base, base, changed),
        merge_entries(base, changed, base),
        merge_entries(base, changed, changed),
    ):
        assert result.entry == changed
        assert result.conflicts == ()


INDEPENDENT = [
    *(
        (name,)
        for name in ("type", "title", "brief", "summary", "content", "source", "attributes", "tags", "relations")
    ),
    ("archive_id", "parent_id", "position"),
]
"""Fields that are changed together."""


def taken(node: Node, other: Node, names: tuple[str, ...]) -> Node:
    return replace(node, **{name: getattr(other, name) for name in names})


@pytest.mark.requirement("GIT-6")
@pytest.mark.requirement("STORE-2")
@given(nodes(), nodes(), nodes(), st.sets(st.integers(0, len(INDEPENDENT) - 1)))
def test_edits_of_different_fields_never_conflict_and_none_is_lost(
    base: Node, first: Node, second: Node, chosen: set[int]
) -> None:
    ours = theirs = expected = base
    for index, names in enumerate(INDEPENDENT):
        if index in chosen:
            ours, expected = taken(ours, first, names), taken(expected, first, names)
        else:
            theirs, expected = taken(theirs, second, names), taken(expected, second, names)
    result = merge_entries(base, ours, theirs)
    assert result.conflicts == ()
    assert isinstance(result.entry, Node)
    assert replace(result.entry, attributes=without_provenance(result.entry.attributes)) == expected


@given(small_nodes(), small_nodes())
def test_a_change_and_a_deletion_are_one_conflict_about_the_node(base: Node, changed: Node) -> None:
    assume(base != changed)
    for result in (merge_entries(base, None, changed), merge_entries(base, changed, None)):
        assert [conflict.field for conflict in result.conflicts] == [""]


def test_the_merge_knows_every_field_of_a_node() -> None:
    known = {*facts(Node(ID, OTHERS[0], None, "a0")), "id", "archive_id", "parent_id", "position"} - {"parent"}
    assert {field.name for field in fields(Node)} == known | {"tags", "attributes", "relations"}


# --- Texts ------------------------------------------------------------------------------------------------------------

NEW = [f"new {number}" for number in range(12)]


@st.composite
def sides(draw: st.DrawFn) -> tuple[list[str], list[str], list[str]]:
    """A text of distinct lines, and two edits of it; both may add the same lines."""
    base = [f"old {number}" for number in range(draw(st.integers(0, 12)))]
    return base, draw(edits(base)), draw(edits(base))


@st.composite
def edits(draw: st.DrawFn, base: list[str]) -> list[str]:
    lines = list(base)
    fresh = draw(st.permutations(NEW))
    for line in fresh[: draw(st.integers(0, 4))]:
        at = draw(st.integers(0, len(lines)))
        removed = draw(st.integers(0, min(2, len(lines) - at)))
        lines[at : at + removed] = [line] if draw(st.booleans()) else []
    return lines


def by_git(folder: Path, *texts: str) -> str | None:
    """What git makes of base, ours and theirs; ``None`` for a conflict."""
    names = [folder / name for name in ("base", "ours", "theirs")]
    for name, text in zip(names, texts, strict=True):
        name.write_text(f"{text}\n", encoding="utf-8")
    base, ours, theirs = names
    command = ["git", "merge-file", "-p", "-q", str(ours), str(base), str(theirs)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - git and our own files
    return ended.stdout.removesuffix("\n") if ended.returncode == 0 else None


@pytest.mark.requirement("GIT-6")
@pytest.mark.skipif(shutil.which("git") is None, reason="the git program is not installed")
@effort(40)
@given(sides())
def test_what_git_merges_has_the_same_result_and_no_edit_is_lost(
    tmp_path: Path, texts: tuple[list[str], list[str], list[str]]
) -> None:
    base, ours, theirs = texts
    joined = ["\n".join(lines) for lines in texts]
    merged = merge_texts(*joined)
    assert merge_texts(joined[0], joined[2], joined[1]) == merged
    theirs_by_git = by_git(tmp_path, *joined)
    if theirs_by_git is not None:
        assert merged == theirs_by_git
    if merged is None:
        return
    result = merged.split("\n")
    for side in (ours, theirs):
        assert set(side) - set(base) <= set(result)
        assert not (set(base) - set(side)) & set(result)


@pytest.mark.requirement("GIT-6")
@given(*[st.text("ab.\n `|", max_size=14)] * 3)
def test_any_three_texts_merge_alike_from_both_sides(base: str, ours: str, theirs: str) -> None:
    assert merge_texts(base, ours, theirs) == merge_texts(base, theirs, ours)
    assert merge_texts(base, base, ours) == merge_texts(base, ours, ours) == ours
