"""How many files a server lets itself open."""

import resource

import pytest

from memotree.server.starting import allow_many_files

NONE = resource.RLIM_INFINITY


@pytest.mark.requirement("STORE-8")
@pytest.mark.parametrize(
    ("soft", "hard", "most"),
    [
        (1024, 4096, 4096),
        (1024, NONE, 65_536),
        (1024, 1_073_741_816, 65_536),
        (1_048_576, 1_073_741_816, 1_048_576),
        (4096, 4096, 4096),
        (NONE, NONE, NONE),
    ],
)
def test_a_server_opens_as_many_files_as_the_system_permits_and_as_are_of_use(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, most: int
) -> None:
    limits = {resource.RLIMIT_NOFILE: (soft, hard)}
    monkeypatch.setattr(resource, "getrlimit", limits.__getitem__)
    monkeypatch.setattr(resource, "setrlimit", limits.__setitem__)
    allow_many_files()
    assert limits == {resource.RLIMIT_NOFILE: (most, hard)}
