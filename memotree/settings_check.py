"""Checks without starting a server what its start would refuse, for ``memotree config check``.

The settings themselves are checked when they are loaded; here is what they name: folders, ports, keys, libraries.
"""

import asyncio
import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from memotree_storage.errors import FieldViolation, MemoTreeError

from memotree.environment import variable
from memotree.extras import install, is_installed
from memotree.gateways.tool_definitions import chosen_tools
from memotree.gateways.tool_settings import tool_violations
from memotree.local.server_process import announced_process_lives
from memotree.server.announcement import read_announcement
from memotree.server.certificates import Certificates
from memotree.server.listen import listening_host, refuse_taken
from memotree.server.logs import configure_logging
from memotree.server.preflight import check_repositories, check_stores
from memotree.settings import SECRETS, LoadedSettings
from memotree.tools.builtin.services import NAMES

_OTHERS_READ: Final = 0o044
_OTHERS: Final = 0o077


def faults_of(loaded: LoadedSettings, *, ask_stores: bool = False) -> list[FieldViolation]:
    """What keeps a server from starting with valid settings, each with the place of the setting to change.

    Args:
        loaded: The settings.
        ask_stores: Whether to connect to the PostgreSQL and Qdrant that they name; waits up to a minute for one that is
            starting.
    """
    checks = [_listening, _certificate, _data_folder, _signing_key, _tools, _libraries]
    found = [fault for check in checks for fault in check(loaded)]
    if ask_stores:
        found += _stores(loaded)
    return found


def warnings_of(loaded: LoadedSettings) -> list[FieldViolation]:
    """What a start permits and an operator should change: secrets that other users may read."""
    found = []
    secrets = [name for name in SECRETS if name in loaded.given]
    in_file = [name for name in secrets if loaded.given[name].source == "file" and not loaded.given[name].written]
    if loaded.file is not None and in_file and (_mode(loaded.file) or 0) & _OTHERS_READ:
        found.append(_readable(loaded.file, f"has {', '.join(sorted(in_file))}"))
    keys = [key for key in (loaded.settings.signing_key, loaded.settings.tls_key) if key is not None]
    return found + [_readable(key, "is a private key") for key in keys if (_mode(key) or 0) & _OTHERS]


def _mode(path: Path) -> int | None:
    """The mode of a file or folder; ``None`` if there is none, or this user may not look."""
    try:
        return path.stat().st_mode
    except OSError:
        return None


def _readable(path: Path, why: str) -> FieldViolation:
    return FieldViolation(
        str(path), f"{why}, and other users of this machine may read it: chmod 600 {shlex.quote(str(path))}"
    )


def _listening(loaded: LoadedSettings) -> Iterator[FieldViolation]:
    """Yield what is wrong with the addresses to listen on; a server that runs on the data folder may have them."""
    settings = loaded.settings
    try:
        host = listening_host(settings)
    except MemoTreeError as error:
        yield FieldViolation(loaded.place("host"), error.message)
        return
    own = _own_ports(settings.data_folder)
    if own and settings.tls_certificate is not None:
        # announced is the port on loopback, for which commands need no TLS
        own |= {str(settings.port), str(settings.port_for_certificates)}
    ports = {"port": settings.port} | ({"http_port": settings.port_for_http} if settings.http_enabled else {})
    if settings.port_for_certificates is not None:
        ports["tls_client_port"] = settings.port_for_certificates
    for name, port in ports.items():
        if str(port) in own:
            continue
        try:
            refuse_taken(host, port, variable(name))
        except MemoTreeError as error:
            yield FieldViolation(loaded.place(name), error.message)


def _own_ports(data_folder: Path) -> set[str]:
    """The ports of the server that runs on the data folder."""
    announced = read_announcement(data_folder) if announced_process_lives(data_folder) else None
    return set() if announced is None else {each.rpartition(":")[2] for each in (announced.address, announced.url)}


def _certificate(loaded: LoadedSettings) -> Iterator[FieldViolation]:
    try:
        Certificates.of(loaded.settings)
    except MemoTreeError as error:
        yield FieldViolation(loaded.place("tls_certificate"), error.message)


def _data_folder(loaded: LoadedSettings) -> Iterator[FieldViolation]:
    folder = loaded.settings.data_folder
    place = loaded.place("data_folder")
    nearest = next(each for each in (folder, *folder.parents) if _mode(each) is not None)
    if not nearest.is_dir():
        yield FieldViolation(place, f"{nearest} is not a folder; name a folder on a local disk")
    elif not os.access(nearest, os.W_OK | os.X_OK):
        what = "write to" if nearest == folder else f"make {folder} in"
        yield FieldViolation(place, f"this user ({os.geteuid()}) may not {what} {nearest}; change its owner or mode")
    else:
        try:
            check_repositories(folder)
        except MemoTreeError as error:
            yield FieldViolation(place, error.message)


def _signing_key(loaded: LoadedSettings) -> Iterator[FieldViolation]:
    key = loaded.settings.signing_key
    if key is None:
        return
    if not is_installed("signing"):
        yield FieldViolation(loaded.place("signing_key"), f"needs a library: {install('signing')}")
        return
    from memotree_storage.git.signing import load_signer  # noqa: PLC0415 - few settings name a key

    try:
        load_signer(key)
    except MemoTreeError as error:
        yield FieldViolation(loaded.place("signing_key"), error.message)


def _tools(loaded: LoadedSettings) -> Iterator[FieldViolation]:
    try:
        chosen_tools(loaded.settings.mcp_tools, NAMES)
    except MemoTreeError as error:
        yield FieldViolation(loaded.place("mcp_tools"), error.message)
    yield from tool_violations(loaded)


def _libraries(loaded: LoadedSettings) -> Iterator[FieldViolation]:
    settings = loaded.settings
    urls = [name for name in ("chat_url", "embedding_url", "rerank_url") if getattr(settings, name) is not None]
    if settings.tls_client_ca is not None and not is_installed("mtls"):
        yield FieldViolation(loaded.place("tls_client_ca"), f"needs a library: {install('mtls')}")
    if urls and not is_installed("models"):
        yield FieldViolation(loaded.place(urls[0]), f"needs a library: {install('models')}")
    if settings.embedding_url is None and settings.embedding_model:
        from memotree.models.embeddings import LOCAL  # noqa: PLC0415 - loads numpy
        from memotree.models.local_model import LocalModelMissingError  # noqa: PLC0415 - see above

        try:
            LOCAL[settings.embedding_model].read()
        except LocalModelMissingError as error:
            yield FieldViolation(loaded.place("embedding_model"), error.message)


def _stores(loaded: LoadedSettings) -> Iterator[FieldViolation]:
    """Yield why one of the stores cannot be used; the other is asked only if the first one can."""
    configure_logging(loaded.settings.log_level, loaded.settings.log_format)  # it tells for what it waits
    try:
        asyncio.run(check_stores(loaded.settings))
    except MemoTreeError as error:
        name = "qdrant_url" if "QDRANT" in error.reason else "postgres_url"
        yield FieldViolation(loaded.place(name), error.message)
