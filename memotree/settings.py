"""What can be set, by environment variables or a TOML file, and checked before anything starts.

Only this module and the command line read the environment. A value given in code (by a flag of the command line) comes
before the environment, the environment before the file, the file before the default.
"""

import difflib
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal
from urllib.parse import urlsplit

from memotree_storage.errors import FieldViolation, InvalidInputError
from pydantic import AfterValidator, BeforeValidator, ByteSize, Field, SecretStr, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

PREFIX: Final = "MEMOTREE_"
CONFIG_VARIABLE: Final = f"{PREFIX}CONFIG"
CONFIG_NAME: Final = "memotree.toml"

ENVIRONMENT_NAMES: Final = {"data_folder": f"{PREFIX}DATA"}
"""The variables that are not the prefix and the setting's own name."""

NOT_SETTINGS: Final = (
    CONFIG_VARIABLE,
    *(f"{PREFIX}{name}" for name in ("ADDRESS", "WORKSPACE", "SESSION", "DEBUG", "FAULT_", "TEST_")),
)
"""The variables that the command line, the client and crash tests read; with a ``_`` at the end, all that begin so."""

LogFormat = Literal["auto", "console", "json"]

_UNITS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400, "": 1}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|)")


class InvalidSettingsError(InvalidInputError):
    """Settings that the server cannot start with; one line for each fault."""

    reason = "INVALID_SETTINGS"

    def __init__(self, violations: list[FieldViolation]) -> None:
        lines = [f"  {violation.field}: {violation.description}" for violation in violations]
        super().__init__("\n".join(["The settings need a change before MemoTree can start:", *lines]), violations)


def _duration(value: object) -> object:
    """``7d``, ``12h``, ``30m``, ``45s``, ``500ms`` or a number of seconds."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return timedelta(seconds=value)
    if isinstance(value, str):
        match = _DURATION.fullmatch(value.strip())
        if match is None:
            raise ValueError("give a number with a unit: 500ms, 45s, 30m, 12h or 7d")
        return timedelta(seconds=float(match[1]) * _UNITS[match[2]])
    return value


def _identity(value: str) -> str:
    """A name or address as Git takes it."""
    if not value.isprintable() or "<" in value or ">" in value:
        raise ValueError('write it without "<", ">" and line breaks')
    return value


def _postgres_url(value: SecretStr) -> SecretStr:
    if urlsplit(value.get_secret_value()).scheme not in {"postgresql", "postgres"}:
        raise ValueError("give a URL like postgresql://user:password@host:5432/database")
    return value


def _http_url(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError("give a URL like http://host:6334")
    return value


def _folder(value: Path) -> Path:
    return value.expanduser().absolute()


def _default_data_folder() -> Path:
    """``memotree`` below the user's data folder, as the XDG base directories say."""
    base = Path(os.environ.get("XDG_DATA_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".local" / "share") / "memotree"


Duration = Annotated[timedelta, BeforeValidator(_duration), Field(gt=timedelta())]
Identity = Annotated[str, AfterValidator(_identity)]
Count = Annotated[int, Field(ge=1, le=10_000)]


class Settings(BaseSettings):
    """Everything that can be set. ``load_settings`` makes one with errors that a person can read."""

    model_config: ClassVar[SettingsConfigDict] = SettingsConfigDict(frozen=True, extra="forbid")

    data_folder: Annotated[Path, AfterValidator(_folder)] = Field(
        default_factory=_default_data_folder, description="Where repositories and embedded stores live."
    )
    host: str = Field(default="127.0.0.1", description="The address to listen on; loopback only.")
    port: int = Field(default=7319, ge=0, le=65_535, description="The port to listen on; 0 takes any free one.")
    postgres_url: Annotated[SecretStr, AfterValidator(_postgres_url)] | None = Field(
        default=None, description="A PostgreSQL server to use; without it MemoTree runs its own."
    )
    postgres_pool_min: Count = Field(default=2, description="Connections to PostgreSQL that are kept open.")
    postgres_pool_max: Count = Field(default=16, description="Connections to PostgreSQL at most.")
    postgres_statement_timeout: Duration = Field(
        default=timedelta(seconds=30), description="The longest that one statement may run."
    )
    qdrant_url: Annotated[str, AfterValidator(_http_url)] | None = Field(
        default=None, description="A Qdrant server to use (its gRPC port); without it MemoTree runs its own."
    )
    qdrant_api_key: SecretStr | None = Field(default=None, description="The key of that Qdrant server.")
    max_content_bytes: ByteSize = Field(
        default=ByteSize(2**20), ge=1024, le=2**28, description="The most bytes of content a node may have."
    )
    max_message_bytes: ByteSize = Field(
        default=ByteSize(2**24), ge=4096, le=2**30, description="The most bytes a request may have."
    )
    max_concurrent_calls: Count = Field(
        default=512, description="Calls that run at once; one more answers RESOURCE_EXHAUSTED."
    )
    session_ttl: Duration = Field(
        default=timedelta(days=7), description="Idle time after which a session expires, unless its opener says."
    )
    request_retention: Duration = Field(
        default=timedelta(days=7), description="How long the result of a request id is remembered."
    )
    stop_grace: Duration = Field(
        default=timedelta(seconds=30), description="How long a stop lets running calls finish before it cancels them."
    )
    committer_name: Identity = Field(default="MemoTree", min_length=1, description="The committer of every commit.")
    committer_email: Identity = Field(default="memotree@localhost", description="The committer's address.")
    author_email: Identity = Field(
        default="agent@localhost", description="The address of an author that is named by the session's agent alone."
    )
    page_token_key: SecretStr | None = Field(
        default=None,
        min_length=32,
        description="Signs page tokens; give it to servers that share their stores. Else a key file is made.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="The least level that is logged."
    )
    log_format: LogFormat = Field(
        default="auto", description="`console` for people, `json` for programs, `auto` by the terminal."
    )

    @model_validator(mode="after")
    def _agree(self) -> "Settings":
        """Settings that only make sense together; one line for each fault."""
        faults = []
        if self.postgres_pool_min > self.postgres_pool_max:
            faults.append("postgres_pool_min must not be greater than postgres_pool_max")
        if self.max_content_bytes >= self.max_message_bytes:
            faults.append("max_content_bytes must be less than max_message_bytes, or no message can carry such a node")
        if self.qdrant_api_key is not None and self.qdrant_url is None:
            faults.append("qdrant_api_key needs qdrant_url")
        if faults:
            raise ValueError("\n".join(faults))
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The sources of values, the first one wins; our own refuse unknown names, which pydantic's would pass over."""
        del env_settings, dotenv_settings, file_secret_settings
        return init_settings, _Environment(settings_cls), _ConfigFile(settings_cls)


def variable(setting: str) -> str:
    """The environment variable of a setting."""
    return ENVIRONMENT_NAMES.get(setting, PREFIX + setting.upper())


def config_path() -> Path:
    """The TOML file: the one that ``MEMOTREE_CONFIG`` names, else ``memotree.toml`` in the working folder."""
    return Path(os.environ.get(CONFIG_VARIABLE) or CONFIG_NAME)


class _Source(PydanticBaseSettingsSource):
    """A source that is read as a whole."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """The value of one field, as the base class wants to be able to ask."""
        del field
        return self().get(field_name), field_name, False


class _Environment(_Source):
    """Every variable of ours that is not empty; an unknown one keeps its name and is refused as an unknown setting."""

    def __call__(self) -> dict[str, Any]:
        known = {variable(name): name for name in self.settings_cls.model_fields}
        return {
            known.get(name, name): value
            for name, value in os.environ.items()
            if value and name.startswith(PREFIX) and not _is_of_others(name)
        }


def _is_of_others(name: str) -> bool:
    """Whether a variable is no setting; ``MEMOTREE_SESSION`` is none, and ``MEMOTREE_SESSION_TTL`` is one."""
    return any(name == other or (other.endswith("_") and name.startswith(other)) for other in NOT_SETTINGS)


class _ConfigFile(_Source):
    """The TOML file; a file that ``MEMOTREE_CONFIG`` names must be there."""

    def __call__(self) -> dict[str, Any]:
        path = config_path()
        try:
            return tomllib.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            if CONFIG_VARIABLE not in os.environ:
                return {}
            fault = f"there is no file {path}; name one that exists, or unset the variable"
            raise InvalidSettingsError([FieldViolation(CONFIG_VARIABLE, fault)]) from None
        except (OSError, ValueError) as error:  # ValueError: no TOML, or not UTF-8
            cause = error.strerror if isinstance(error, OSError) else error
            raise InvalidSettingsError([FieldViolation(str(path), f"cannot be read as TOML: {cause}")]) from None


def load_settings(**given: Any) -> Settings:
    """The settings of this process; values that are ``None`` count as not given.

    Errors: ``InvalidSettingsError`` with a line for each fault, which names where the value stands.
    """
    values = {name: value for name, value in given.items() if value is not None}
    try:
        return Settings(**values)
    except ValidationError as error:
        faults = [fault for detail in error.errors(include_url=False) for fault in _faults(detail, values)]
    raise InvalidSettingsError(faults)


def _faults(detail: Mapping[str, Any], given: Mapping[str, Any]) -> Iterator[FieldViolation]:
    """What one finding of pydantic says, in our words; a secret is never repeated."""
    if not detail["loc"]:  # of several settings together
        for line in str(detail["ctx"]["error"]).splitlines():
            name, _, rest = line.partition(" ")
            yield FieldViolation(_place(name, given), rest)
        return
    name = str(detail["loc"][0])
    if detail["type"] == "extra_forbidden":
        yield FieldViolation(_place(name, given), f"there is no such setting{_guess(name)}")
        return
    own = detail.get("ctx", {}).get("error")
    fault = str(own) if own is not None else str(detail["msg"]).removeprefix("Input ")
    shown = "" if name in _SECRETS else f" (it is {detail['input']!r})"
    yield FieldViolation(_place(name, given), fault + shown)


_SECRETS: Final = frozenset(
    name for name, field in Settings.model_fields.items() if "SecretStr" in str(field.annotation)
)


def _place(name: str, given: Mapping[str, Any]) -> str:
    """Where a value stands that is to be changed."""
    if name in given or name.startswith(PREFIX):
        return name
    if not os.environ.get(variable(name)) and name in _ConfigFile(Settings)():
        return f"{name} in {config_path()}"
    return variable(name)


def _guess(name: str) -> str:
    """The setting that was probably meant."""
    names = [variable(known) for known in Settings.model_fields] if name.startswith(PREFIX) else Settings.model_fields
    close = difflib.get_close_matches(name, names, n=1)
    return f"; did you mean {close[0]}?" if close else ""
