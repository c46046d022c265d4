"""Finds the server, workspace and session of a command: from options, the environment, and earlier choices.

The choices made with ``ws use`` and ``session use`` are saved per server in a small file in the user's configuration
folder, so that later commands need no options.
"""

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import typer

from memotree.cli.errors import CliError
from memotree.environment import API_KEY_VARIABLE
from memotree.identity.key_file import read_key
from memotree.server.announcement import read_announcement

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = "7319"
DEFAULT_ADDRESS = f"{DEFAULT_HOST}:{DEFAULT_PORT}"

_ADDRESS_SETTINGS = ("host", "port", "authentication", "tls_certificate", "tls_key", "tls_in_front")
"""The settings from which the address of a server follows; of the others, a command need not know the secrets."""


class TargetUnknownError(CliError):
    """The settings with the server's address are invalid; a guess could reach another server."""

    reason = "INVALID_SETTINGS"


@dataclass(frozen=True, slots=True)
class Choice:
    """The workspace and session that commands use without options; empty for none."""

    workspace: str = ""
    session: str = ""


def data_folder() -> Path:
    """The data folder of this user's server.

    The settings are loaded only if there is a settings file, since loading them takes longer than most commands.
    """
    if _has_settings_file():
        from memotree_storage.errors import MemoTreeError  # noqa: PLC0415 - see above

        from memotree.settings import load_settings  # noqa: PLC0415 - see above

        with suppress(MemoTreeError):  # `memotree serve` reports what is wrong with them
            return load_settings(only=("data_folder",)).data_folder
    given = os.environ.get("MEMOTREE_DATA")
    if given:
        return Path(given).expanduser()
    base = Path(os.environ.get("XDG_DATA_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".local" / "share") / "memotree"


def _has_settings_file() -> bool:
    return bool(os.environ.get("MEMOTREE_CONFIG")) or Path("memotree.toml").exists()


def find_address(given: str | None) -> str:
    """The given address (by option or environment), else that of the announced server, else that of the settings.

    Errors: ``TargetUnknownError`` if no server is announced and ``memotree serve`` would refuse the settings, or if the
    address is a URL.
    """
    if given:
        if "://" in given:
            raise TargetUnknownError(
                f"{given!r} is a URL; commands take the host and port of gRPC, such as {DEFAULT_ADDRESS} "
                "(--address or MEMOTREE_ADDRESS)."
            )
        return given
    announced = read_announcement(data_folder())
    return announced.address if announced else _settings_address()


def find_key(address: str) -> str:
    """The API key for a server: that of the environment, else that in the data folder if its server is meant."""
    given = os.environ.get(API_KEY_VARIABLE, "").strip()
    if given:
        return given
    folder = data_folder()
    announced = read_announcement(folder)
    return read_key(folder) if announced is not None and announced.address == address else ""


def announced_url(address: str) -> str:
    """The URL of the server at an address, if it runs on this machine and serves HTTP; else empty."""
    announced = read_announcement(data_folder())
    return announced.url if announced is not None and announced.address == address else ""


def _settings_address() -> str:
    """The address on which ``memotree serve`` would listen; port 0 (any free port) never reaches a server."""
    host, port = (os.environ.get(f"MEMOTREE_{name}") for name in ("HOST", "PORT"))
    if not (host or port or _has_settings_file()):
        return DEFAULT_ADDRESS
    from memotree_storage.errors import MemoTreeError  # noqa: PLC0415 - see `data_folder`

    from memotree.server.listen import address, listening_host  # noqa: PLC0415 - likewise
    from memotree.settings import load_settings  # noqa: PLC0415 - likewise

    try:
        settings = load_settings(only=_ADDRESS_SETTINGS)
        return address(listening_host(settings), settings.port)
    except MemoTreeError as error:
        raise TargetUnknownError(
            f"{error.message}\nThe server's address comes from them: correct them, or give it with --address."
        ) from None


def _state_file() -> Path:
    return Path(typer.get_app_dir("memotree")) / "state.json"


def _read_state() -> dict[str, Any]:
    try:
        state = json.loads(_state_file().read_text(encoding="utf-8"))
    except (OSError, ValueError):  # missing or damaged: it is easy to choose again
        return {}
    return state if isinstance(state, dict) else {}


def read_choice(address: str) -> Choice:
    """The saved choice for the server at ``address``."""
    facts = _read_state().get(address)
    if not isinstance(facts, dict):
        return Choice()
    return Choice(str(facts.get("workspace", "")), str(facts.get("session", "")))


def write_choice(address: str, choice: Choice) -> None:
    """Saves the choice for the server at ``address``."""
    path = _state_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.write_text(json.dumps({**_read_state(), address: asdict(choice)}, indent=2), encoding="utf-8")
    fresh.replace(path)


def forget_session(address: str, session_id: str) -> None:
    """Removes a closed session from the saved choice."""
    choice = read_choice(address)
    if choice.session == session_id:
        write_choice(address, replace(choice, session=""))
