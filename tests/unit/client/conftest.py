"""A fake server for each test that needs one."""

from collections.abc import Iterator

import pytest
from unit.client.fake_memotree import FakeMemoTree, serving

from memotree.client import Client


@pytest.fixture
def fake() -> Iterator[FakeMemoTree]:
    with serving(FakeMemoTree()) as server:
        yield server


@pytest.fixture
def client(fake: FakeMemoTree) -> Iterator[Client]:
    with Client(fake.address, timeout=300.0) as opened:
        yield opened
