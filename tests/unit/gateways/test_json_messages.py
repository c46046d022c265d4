"""Messages as JSON: what an answer has can be given back."""

import pytest

from memotree.gateways.json_messages import from_json, to_json
from memotree.v1 import forest_service_pb2 as pb

RECEIPT = pb.RecallReceipt.DESCRIPTOR


def test_bytes_are_hexadecimal_digits_in_both_directions() -> None:
    receipt = pb.RecallReceipt(commit_id="0" * 40, term_counts=b"\x00\xff")
    shown = to_json(receipt)
    assert shown["term_counts"] == "00ff"
    assert from_json(RECEIPT, shown) == (receipt, [])


@pytest.mark.parametrize("value", ["f", "zz", 1, None, ["00"]])
def test_what_is_no_bytes_is_a_fault_with_its_path(value: object) -> None:
    message, faults = from_json(RECEIPT, {"term_counts": value})
    assert message == pb.RecallReceipt()
    assert [fault.field for fault in faults] == ([] if value is None else ["term_counts"])
