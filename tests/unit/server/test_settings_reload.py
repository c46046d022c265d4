"""A reload takes in what can change while the server runs, tells what needs a restart, and nothing of a bad file."""

import asyncio

import pytest
from unit.server.test_settings import written

from memotree.maintenance.running_settings import RunningSettings, SettingsOperations
from memotree.models.rate_limit import RateLimiter
from memotree.settings import InvalidSettingsError, Settings, load_settings, read_settings
from memotree.v1 import settings_service_pb2 as pb

pytestmark = pytest.mark.requirement("TOOL-11")


class Part:
    """A part of the server that notes the settings that it is given."""

    def __init__(self) -> None:
        self.seen: list[Settings] = []

    def apply(self, settings: Settings) -> None:
        self.seen.append(settings)


@pytest.fixture
def part() -> Part:
    return Part()


@pytest.fixture
def running(part: Part) -> RunningSettings:
    """The settings of a server that was started with a port as an argument, and a file."""
    written('[log]\nlevel = "info"\n')
    found = RunningSettings(load_settings(port=7), lambda: read_settings(port=7))
    found.when_changed("log_level", "log_format", apply=part.apply)
    return found


async def reloaded(running: RunningSettings) -> list[tuple[str, str, str, str, bool]]:
    answer = await SettingsOperations(running).reload_settings(pb.ReloadSettingsRequest())
    return [(each.name, each.old_value, each.new_value, each.place, each.in_effect) for each in answer.changed]


async def test_a_reload_without_changes_does_nothing(running: RunningSettings, part: Part) -> None:
    assert await reloaded(running) == []
    assert part.seen == []


async def test_what_can_change_takes_effect_once_and_the_rest_is_told(running: RunningSettings, part: Part) -> None:
    written('host = "::1"\n[log]\nlevel = "debug"\nformat = "json"\n')
    host = ("host", "127.0.0.1", "::1", "host in memotree.toml, line 1", False)
    assert await reloaded(running) == [
        host,
        ("log_level", "info", "debug", "log.level in memotree.toml, line 3", True),
        ("log_format", "auto", "json", "log.format in memotree.toml, line 4", True),
    ]
    (seen,) = part.seen
    assert (seen.log_level, seen.log_format) == ("debug", "json")
    assert seen.host == "127.0.0.1", "the server still listens there"
    assert await reloaded(running) == [host], "it still needs a restart"
    written("")
    assert await reloaded(running) == [
        ("log_level", "debug", "info", "", True),
        ("log_format", "json", "auto", "", True),
    ]


async def test_a_bad_file_changes_nothing_and_every_fault_is_told(running: RunningSettings, part: Part) -> None:
    written('prot = 1\n[log]\nlevel = "debug"\nformat = "pretty"\n')
    with pytest.raises(InvalidSettingsError) as refused:
        await reloaded(running)
    assert [each.field for each in refused.value.violations] == [
        "log.format in memotree.toml, line 4",
        "prot in memotree.toml, line 1",
    ]
    assert part.seen == []
    written("")
    assert await reloaded(running) == []


async def test_reloads_at_once_come_one_after_the_other(running: RunningSettings, part: Part) -> None:
    written('log_level = "error"\n')
    answers = await asyncio.gather(*(reloaded(running) for _ in range(5)))
    assert sum(bool(answer) for answer in answers) == 1
    assert len(part.seen) == 1


async def test_secrets_that_change_are_not_told(running: RunningSettings) -> None:
    written('[qdrant]\nurl = "http://me:old-secret@h:1"\napi_key = "new-secret"\n')
    found = await reloaded(running)
    assert [(name, new) for name, _, new, *_ in found] == [("qdrant_url", "http://***@h:1"), ("qdrant_api_key", "***")]


async def test_settings_that_a_program_gave_do_not_change(part: Part) -> None:
    running = RunningSettings(load_settings())
    running.when_changed("log_level", apply=part.apply)
    written('log_level = "error"\n')
    assert await reloaded(running) == []


async def test_another_rate_of_calls_holds_from_the_next_call_on() -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    limiter = RateLimiter(1, 60, sleep)
    for _ in range(2):
        async with limiter.slot():
            pass
    limiter.change(0)
    async with limiter.slot():
        pass
    assert len(waits) == 1
    assert 0 < waits[0] <= 1
