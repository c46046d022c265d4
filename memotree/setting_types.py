"""The types of the settings' values: what a person may write, checked and turned into what the program uses."""

import ipaddress
import re
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlsplit

from memotree_storage.model.tool_patterns import is_tool_pattern
from pydantic import AfterValidator, BeforeValidator, ByteSize, Field, SecretStr

_UNITS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400, "": 1}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|)")
_TIMES: Final = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1))
_BYTES: Final = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))


def _duration(value: object) -> object:
    """Parse a duration: ``7d``, ``12h``, ``30m``, ``45s``, ``500ms`` or a number of seconds."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return timedelta(seconds=value)
    if isinstance(value, str):
        match = _DURATION.fullmatch(value.strip())
        if match is None:
            raise ValueError("give a number with a unit: 500ms, 45s, 30m, 12h or 7d")
        return timedelta(seconds=float(match[1]) * _UNITS[match[2]])
    return value


def _identity(value: str) -> str:
    """Check that Git accepts a name or address."""
    if not value.isprintable() or "<" in value or ">" in value:
        raise ValueError('write it without "<", ">" and line breaks')
    return value


def _postgres_url(value: SecretStr) -> SecretStr:
    """Check the form of the URL; what is wrong with a part of it is told without showing it, since it may be a secret.

    A sign of the password that divides URLs would make the rest of the password a host, and every error would name it.
    """
    parts = urlsplit(value.get_secret_value())
    if parts.scheme not in {"postgresql", "postgres"}:
        raise ValueError("give a URL like postgresql://user:password@host:5432/database")
    after = parts.path + parts.fragment + (parts.query if parts.netloc and "@" not in parts.netloc else "")
    if parts.netloc.count("@") > 1 or "@" in after:
        raise ValueError(
            "the user or password has a sign that divides URLs; write @ as %40, : as %3A, / as %2F, ? as %3F, # as "
            "%23, [ as %5B, ] as %5D and % as %25"
        )
    return value


def _ip_address(value: str) -> str:
    try:
        return str(ipaddress.ip_address(value.strip("[]")))
    except ValueError:
        raise ValueError("give an IP address, like 127.0.0.1") from None


def _http_url(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("give a URL like http://host:6334")
    return value


def _remote_url(value: str) -> str:
    """Check the URL of a remote; with a password in it, the status and the log would show that."""
    if value.replace("{id}", "").replace("{name}", "") == value or set(value) & set("\0\n\r\t "):
        raise ValueError("give a URL with {id} or {name} for the workspace, like https://git.example/memory/{id}.git")
    parts = urlsplit(value)
    if parts.scheme not in {"file", "http", "https", "ssh"}:
        raise ValueError("give a URL that begins with https://, http://, ssh:// or file://")
    if parts.password or (parts.username and parts.scheme != "ssh"):
        raise ValueError("leave the name and password out of the URL; git's credential helper has them")
    return value


def _model_url(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("give a URL like https://models.example/v1")
    if parts.username or parts.password:
        raise ValueError("leave the name and password out of the URL; a key is a setting of its own")
    return value.rstrip("/")


def _issuer_url(value: str) -> str:
    parts = urlsplit(value)
    if not parts.hostname or not (
        parts.scheme == "https" or (parts.scheme == "http" and parts.hostname == "127.0.0.1")
    ):
        raise ValueError("give a URL like https://login.example.org, exactly as the provider's tokens name it")
    return value


def _folder(value: Path) -> Path:
    return value.expanduser().absolute()


def _texts(value: object) -> object:
    """Read a list: in an environment variable, it is separated by commas."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _tool_pattern(value: str) -> str:
    if not is_tool_pattern(value):
        raise ValueError("give the name of a tool, or the beginning of names and *, in small letters")
    return value


Duration = Annotated[timedelta, BeforeValidator(_duration), Field(gt=timedelta())]
Identity = Annotated[str, AfterValidator(_identity)]
Count = Annotated[int, Field(ge=1, le=10_000)]
Folder = Annotated[Path, AfterValidator(_folder)]
Texts = Annotated[tuple[str, ...], BeforeValidator(_texts)]
ToolPatterns = Annotated[tuple[Annotated[str, AfterValidator(_tool_pattern)], ...], BeforeValidator(_texts)]
Folders = Annotated[tuple[Folder, ...], BeforeValidator(_texts)]
PostgresUrl = Annotated[SecretStr, AfterValidator(_postgres_url)]
IpAddress = Annotated[str, AfterValidator(_ip_address)]
HttpUrl = Annotated[str, AfterValidator(_http_url)]
RemoteUrl = Annotated[str, AfterValidator(_remote_url)]
IssuerUrl = Annotated[str, AfterValidator(_issuer_url)]
ModelUrl = Annotated[str, AfterValidator(_model_url)]


def has_password(value: object) -> bool:
    """Whether a value is a URL with a password, which no message may show."""
    try:
        return urlsplit(str(value)).password is not None
    except ValueError:
        return True


def written(value: object) -> str:
    """A value as a person would write it in the TOML file, without quotation marks."""
    if isinstance(value, timedelta):
        milliseconds = round(value.total_seconds() * 1000)
        return next(f"{milliseconds // size}{unit}" for unit, size in _TIMES if milliseconds % size == 0)
    if isinstance(value, ByteSize):
        return next((f"{value // size}{unit}" for unit, size in _BYTES if value % size == 0), str(int(value)))
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return str(value)
