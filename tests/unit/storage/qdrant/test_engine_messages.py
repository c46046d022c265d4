"""How the engine decodes Qdrant's messages."""

import json
from uuid import UUID

import pytest
import qdrant_client  # noqa: F401 - before the engine's own loading of its messages
from hypothesis import given, settings
from hypothesis import strategies as st
from memotree_storage.qdrant.engine import values
from memotree_storage.qdrant.engine.errors import MalformedError, UnsupportedError, only
from memotree_storage.qdrant.engine.wire import qdrant

INTEGERS = st.integers(-(2**63), 2**63 - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
PLAIN = st.none() | st.booleans() | INTEGERS | st.floats(allow_nan=False) | TEXTS
PAYLOADS = st.dictionaries(
    TEXTS, st.recursive(PLAIN, lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner), max_leaves=8)
)


@settings(max_examples=40)
@given(PAYLOADS)
def test_payloads_survive_encoding_and_decoding(payload: dict[str, object]) -> None:
    point = qdrant.PointStruct(payload=values.write_payload(payload))
    read = values.read_payload(qdrant.PointStruct.FromString(point.SerializeToString()).payload)
    assert json.dumps(read, sort_keys=True) == json.dumps(payload, sort_keys=True)  # distinguishes 1, 1.0 and True


@given(st.integers(0, 2**64 - 1) | st.uuids())
def test_ids_survive_encoding_and_decoding(key: int | UUID) -> None:
    assert values.read_id(values.write_id(key)) == key


def with_vectors(vectors: qdrant.Vectors) -> qdrant.PointStruct:
    return qdrant.PointStruct(id=qdrant.PointId(num=1), vectors=vectors)


def test_the_older_form_of_vectors_is_read_too_and_one_of_an_unknown_kind_is_refused() -> None:
    old = qdrant.Vector(data=[1.0, 2.0])
    sparse = qdrant.Vector(data=[1.0], indices=qdrant.SparseIndices(data=[7]))
    named = qdrant.NamedVectors(vectors={"summary": old, "text": sparse})
    assert values.read_point(with_vectors(qdrant.Vectors(vectors=named))).id == 1
    many = qdrant.NamedVectors(vectors={"summary": qdrant.Vector(multi_dense=qdrant.MultiDenseVector())})
    with pytest.raises(UnsupportedError, match="multi_dense"):
        values.read_point(with_vectors(qdrant.Vectors(vectors=many)))
    with pytest.raises(UnsupportedError, match="unnamed"):
        values.read_point(with_vectors(qdrant.Vectors(vector=qdrant.Vector(data=[1.0]))))
    with pytest.raises(MalformedError, match="as many"):
        values.read_sparse(qdrant.SparseVector(indices=[1, 2], values=[1.0]))


def test_an_explicit_false_is_not_ignored() -> None:
    with pytest.raises(UnsupportedError, match="wait"):
        only(qdrant.UpsertPoints(wait=False), "collection_name")
    only(qdrant.UpsertPoints(wait=False), "wait")
