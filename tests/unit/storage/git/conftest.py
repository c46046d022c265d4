"""One repository per test, and the git program to check it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from memotree_storage.git.repository import GitRepository
from unit.storage.git.judge import Judge


@pytest.fixture
def store(tmp_path: Path) -> Iterator[GitRepository]:
    with GitRepository.create(tmp_path / "store.git", description="under test") as repository:
        yield repository


@pytest.fixture
def judge(store: GitRepository) -> Judge:
    return Judge(store.path)
