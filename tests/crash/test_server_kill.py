"""The whole server dies with SIGKILL, at random moments and at each named point of a commit: nothing is lost."""

import random
from pathlib import Path

import pytest
from crash.campaign import Campaign


@pytest.mark.requirement("STORE-1", "STORE-2", "STORE-3", "STORE-6", "GIT-1")
async def test_kills_at_random_moments_lose_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    tally = await Campaign(tmp_path, random.randrange(2**32)).run([""] * 4)
    assert tally.kills == 4
