"""What PostgreSQL keeps of a conflict has every value as it was."""

import json

from hypothesis import given
from hypothesis import strategies as st
from memotree_storage.conflicts import (
    Absence,
    ArchiveValue,
    ChildValue,
    Conflict,
    FieldValue,
    NodeValue,
    Place,
    RelationValue,
    SourceValue,
)

TEXTS = st.text(max_size=8)
VALUES: st.SearchStrategy[FieldValue | None] = st.one_of(
    st.none(),
    TEXTS,
    st.sampled_from(Absence),
    st.builds(Place, TEXTS, TEXTS, TEXTS),
    st.builds(RelationValue, TEXTS, TEXTS, TEXTS),
    st.builds(SourceValue, TEXTS, st.integers(), st.integers(), st.integers(), TEXTS, TEXTS),
    st.builds(NodeValue, TEXTS, TEXTS, TEXTS, TEXTS, TEXTS, TEXTS),
    st.builds(ArchiveValue, TEXTS, TEXTS, TEXTS, TEXTS),
    st.builds(ChildValue, TEXTS),
)


@given(st.builds(Conflict, TEXTS, TEXTS, VALUES, VALUES, VALUES, TEXTS))
def test_a_conflict_is_read_from_json_as_it_was_written(conflict: Conflict) -> None:
    assert Conflict.from_json(conflict.node_id, json.loads(json.dumps(conflict.to_json()))) == conflict


def test_texts_that_were_kept_before_values_had_kinds_are_texts() -> None:
    kept = ["parent", "", "a root of archive a", "deleted", "Its parent was deleted."]
    assert Conflict.from_json("n", kept) == Conflict("n", *kept)
