"""The values of conflicts, typed for a program and as texts for a person."""

import pytest

from memotree.client import Absence, Archive, ChildNode, Conflict, Node, Place, Relation, Source
from memotree.client.conflicts import FieldValue, readable
from memotree.v1 import types_pb2 as pb

pytestmark = pytest.mark.requirement("GIT-6")
ID, ARCHIVE, PARENT = "7xk2m9qd4tnvw0ha", "c41hz8rjy6ksm3pe", "0d9vq2fgw7bnx5tj"
CASES: list[tuple[pb.FieldValue, FieldValue, str]] = [
    (pb.FieldValue(text="DELETED"), "DELETED", "DELETED"),
    (pb.FieldValue(text=""), "", ""),
    (pb.FieldValue(absence=pb.ABSENCE_NONE), Absence.NONE, "not there"),
    (pb.FieldValue(absence=pb.ABSENCE_DELETED), Absence.DELETED, "deleted"),
    (
        pb.FieldValue(place=pb.Place(archive_id=ARCHIVE, parent_id=PARENT, position="a1")),
        Place(ARCHIVE, PARENT, "a1"),
        f"below {PARENT} in archive {ARCHIVE}",
    ),
    (pb.FieldValue(place=pb.Place(archive_id=ARCHIVE)), Place(ARCHIVE), f"a root of archive {ARCHIVE}"),
    (
        pb.FieldValue(relation=pb.Relation(type=pb.RELATION_TYPE_ABOUT, target_id=PARENT, description="why")),
        Relation("ABOUT", PARENT, "why"),
        f"ABOUT {PARENT} why",
    ),
    (
        pb.FieldValue(source=pb.Source(document_id="d", start=1, end=9, page=2, heading="H")),
        Source("d", 1, 9, 2, "H"),
        "d 1-9 page 2 H",
    ),
    (pb.FieldValue(node=pb.Node(id=ID, title="T", level=pb.LEVEL_OF_DETAIL_TITLE)), Node(ID, title="T"), "T"),
    (pb.FieldValue(archive=pb.Archive(id=ARCHIVE, name="n")), Archive(ARCHIVE, "n"), f"archive n ({ARCHIVE})"),
    (pb.FieldValue(child_id=PARENT), ChildNode(PARENT), f"has {PARENT} below it"),
]


@pytest.mark.parametrize(("message", "value", "words"), CASES)
def test_each_kind_of_value_is_read_and_has_words(message: pb.FieldValue, value: FieldValue, words: str) -> None:
    conflict = Conflict.from_wire(pb.Conflict(node_id=ID, field="f", our_value=message, description="Both."))
    assert (conflict.our_value, type(conflict.our_value)) == (value, type(value))
    texts = {"base": "", "ours": words, "theirs": ""}
    assert conflict.in_words() == {"node_id": ID, "field": "f", **texts, "description": "Both."}
    assert readable(value) == words


def test_every_kind_of_the_contract_is_tried() -> None:
    kinds = {field.name for field in pb.FieldValue.DESCRIPTOR.oneofs_by_name["kind"].fields}
    assert {message.WhichOneof("kind") for message, _, _ in CASES} == kinds


def test_a_value_that_is_not_known_or_of_a_kind_of_a_newer_server_has_no_words() -> None:
    newer = pb.FieldValue.FromString(b"\xfa\x01\x00")  # field 31
    conflict = Conflict.from_wire(pb.Conflict(our_value=newer))
    assert (conflict.base_value, conflict.our_value, conflict.ours) == (None, None, "")
