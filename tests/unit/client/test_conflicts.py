"""The values of conflicts, typed for a program and as texts for a person."""

import pytest

from memotree.client import Absence, Archive, ChildNode, Conflict, Node, Place, Relation, Source
from memotree.client.conflicts import FieldValue, readable
from memotree.v1 import types_pb2

pytestmark = pytest.mark.requirement("GIT-6")
ID, ARCHIVE, PARENT = "7xk2m9qd4tnvw0ha", "c41hz8rjy6ksm3pe", "0d9vq2fgw7bnx5tj"
CASES: list[tuple[types_pb2.FieldValue, FieldValue, str]] = [
    (types_pb2.FieldValue(text="DELETED"), "DELETED", "DELETED"),
    (types_pb2.FieldValue(text=""), "", ""),
    (types_pb2.FieldValue(absence=types_pb2.ABSENCE_NONE), Absence.NONE, "not there"),
    (types_pb2.FieldValue(absence=types_pb2.ABSENCE_DELETED), Absence.DELETED, "deleted"),
    (
        types_pb2.FieldValue(place=types_pb2.Place(archive_id=ARCHIVE, parent_id=PARENT, position="a1")),
        Place(ARCHIVE, PARENT, "a1"),
        f"below {PARENT} in archive {ARCHIVE}",
    ),
    (types_pb2.FieldValue(place=types_pb2.Place(archive_id=ARCHIVE)), Place(ARCHIVE), f"a root of archive {ARCHIVE}"),
    (
        types_pb2.FieldValue(
            relation=types_pb2.Relation(type=types_pb2.RELATION_TYPE_ABOUT, target_id=PARENT, description="why")
        ),
        Relation("ABOUT", PARENT, "why"),
        f"ABOUT {PARENT} why",
    ),
    (
        types_pb2.FieldValue(source=types_pb2.Source(document_id="d", start=1, end=9, page=2, heading="H")),
        Source("d", 1, 9, 2, "H"),
        "d 1-9 page 2 H",
    ),
    (
        types_pb2.FieldValue(node=types_pb2.Node(id=ID, title="T", level=types_pb2.LEVEL_OF_DETAIL_TITLE)),
        Node(ID, title="T"),
        "T",
    ),
    (
        types_pb2.FieldValue(archive=types_pb2.Archive(id=ARCHIVE, name="notes")),
        Archive(ARCHIVE, "notes"),
        f"archive notes ({ARCHIVE})",
    ),
    (types_pb2.FieldValue(child_id=PARENT), ChildNode(PARENT), f"has {PARENT} below it"),
]


@pytest.mark.parametrize(("message", "value", "words"), CASES)
def test_each_kind_of_value_is_read_and_has_words(message: types_pb2.FieldValue, value: FieldValue, words: str) -> None:
    conflict = Conflict.from_wire(types_pb2.Conflict(node_id=ID, field="f", our_value=message, description="Both."))
    assert (conflict.our_value, type(conflict.our_value)) == (value, type(value))
    assert conflict.in_words() == {
        "node_id": ID,
        "field": "f",
        "base": "",
        "ours": words,
        "theirs": "",
        "description": "Both.",
    }
    assert readable(value) == words


def test_every_kind_of_the_contract_is_tried() -> None:
    kinds = {field.name for field in types_pb2.FieldValue.DESCRIPTOR.oneofs_by_name["kind"].fields}
    assert {message.WhichOneof("kind") for message, _, _ in CASES} == kinds


def test_a_value_that_is_not_known_or_of_a_kind_of_a_newer_server_has_no_words() -> None:
    newer = types_pb2.FieldValue.FromString(b"\xfa\x01\x00")  # field 31
    conflict = Conflict.from_wire(types_pb2.Conflict(our_value=newer))
    assert (conflict.base_value, conflict.our_value, conflict.ours) == (None, None, "")
