"""What PostgreSQL keeps of the values of a conflict is as it was."""

import json

from hypothesis import given
from hypothesis import strategies as st
from memotree_storage.conflicts import (
    Absence,
    ArchiveValue,
    ChildValue,
    FieldValue,
    NodeValue,
    Place,
    RelationValue,
    SourceValue,
    value_from_json,
    value_to_json,
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


@given(VALUES)
def test_a_value_is_read_from_json_as_it_was_written(value: FieldValue | None) -> None:
    assert value_from_json(json.loads(json.dumps(value_to_json(value)))) == value
