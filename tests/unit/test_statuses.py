"""One table maps errors to statuses; server and client have exactly its classes."""

import pytest

from memotree.client import errors as client_errors
from memotree.error_mapping import FAMILIES
from memotree.error_statuses import CLIENT_CODES, ERROR_STATUSES, FAMILY_CODES

pytestmark = pytest.mark.requirement("SERVE-2")


def test_each_status_is_listed_once() -> None:
    assert len({each.code for each in ERROR_STATUSES}) == len(ERROR_STATUSES) == len(CLIENT_CODES)
    assert len(FAMILY_CODES) == sum(bool(each.family) for each in ERROR_STATUSES)


def test_the_families_of_the_table_are_those_of_the_server() -> None:
    assert {kind.__name__: code for kind, code in FAMILIES.items()} == FAMILY_CODES
    assert all(kind.reason == code.name for kind, code in FAMILIES.items())


def test_the_classes_of_the_table_are_those_of_the_client() -> None:
    classes = client_errors.MemoTreeClientError.__subclasses__()
    assert {kind.__name__: kind.code for kind in classes if kind.__module__ == client_errors.__name__} == CLIENT_CODES
    assert client_errors.MemoTreeClientError.code == "UNKNOWN"


def test_an_error_below_one_of_the_client_keeps_its_status() -> None:
    class StaleError(client_errors.AbortedError):
        pass

    assert StaleError.code == "ABORTED"
