"""The settings of a running server: read again when somebody asks, and put into effect where that is possible."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import structlog
from memotree_storage.errors import FieldViolation

from memotree.settings import InvalidSettingsError, LoadedSettings, Settings
from memotree.settings_shown import ShownSetting, shown_setting
from memotree.v1 import settings_service_pb2 as pb

Apply = Callable[[Settings], None]
"""Puts settings into effect; it does not fail, since they were checked."""

Check = Callable[[LoadedSettings], Sequence[FieldViolation]]
"""Finds what is wrong with settings whose values are valid by themselves, as a start does; it may block."""

log: Final = structlog.get_logger("memotree.settings")


@dataclass(frozen=True, slots=True)
class Change:
    """A setting with another value than before.

    Attributes:
        old: What the server ran with.
        new: What is given now.
        in_effect: Whether the server runs with it from now on; else it needs a restart.
    """

    old: ShownSetting
    new: ShownSetting
    in_effect: bool


class RunningSettings:
    """The settings with which a server runs; belongs to one event loop.

    Args:
        settings: Those it was started with.
        reread: Reads them again, as at the start; without it they never change.
    """

    def __init__(self, settings: Settings, reread: Callable[[], LoadedSettings] | None = None) -> None:
        self._running = LoadedSettings(settings, {}, None)
        self._reread = reread
        self._applied: dict[str, Apply] = {}
        self._checks: list[Check] = []
        self._turn = asyncio.Lock()

    def when_changed(self, *names: str, apply: Apply) -> None:
        """Call ``apply`` with all settings when some of ``names`` have changed; the others take effect at a start."""
        self._applied |= dict.fromkeys(names, apply)

    def check_with(self, check: Check) -> None:
        """Refuse settings in which ``check`` finds faults, before anything of them takes effect."""
        self._checks.append(check)

    async def reload(self) -> list[Change]:
        """Read the settings again, and put into effect what can change while the server runs.

        Raises:
            InvalidSettingsError: Some values are wrong; nothing has changed.
        """
        async with self._turn:
            given = self._running if self._reread is None else await asyncio.to_thread(self._read, self._reread)
            names = [name for name in Settings.model_fields if self._value(name) != getattr(given.settings, name)]
            changes = [
                Change(shown_setting(self._running, name), shown_setting(given, name), name in self._applied)
                for name in names
            ]
            new: dict[str, Any] = {name: getattr(given.settings, name) for name in names if name in self._applied}
            running = self._running.settings.model_copy(update=new)
            for apply in dict.fromkeys(self._applied[name] for name in new):
                apply(running)
            self._running = LoadedSettings(running, {}, None)
        log.info("settings reloaded", in_effect=list(new), need_restart=[name for name in names if name not in new])
        return changes

    def _read(self, reread: Callable[[], LoadedSettings]) -> LoadedSettings:
        given = reread()
        faults = [fault for check in self._checks for fault in check(given)]
        if faults:
            raise InvalidSettingsError(faults)
        return given

    def _value(self, name: str) -> Any:
        return getattr(self._running.settings, name)


class SettingsOperations:
    """The operations of SettingsService."""

    def __init__(self, settings: RunningSettings) -> None:
        self._settings = settings

    async def reload_settings(self, _request: pb.ReloadSettingsRequest) -> pb.ReloadSettingsResponse:
        """Read the settings again."""
        return pb.ReloadSettingsResponse(
            changed=[
                pb.ChangedSetting(
                    name=each.new.name,
                    old_value=each.old.text,
                    new_value=each.new.text,
                    place=each.new.place,
                    in_effect=each.in_effect,
                )
                for each in await self._settings.reload()
            ]
        )
