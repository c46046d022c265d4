"""The server's settings, read from environment variables and a TOML file and checked before anything starts.

Only this module and the command line read the environment. A value given in code (by a flag of the command line)
overrides the environment, the environment overrides the file, the file overrides the default.
"""

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

from memotree import environment
from memotree.environment import CONFIG_VARIABLE, PREFIX, variable

CONFIG_NAME: Final = "memotree.toml"

LOCAL_EMBEDDING_MODEL: Final = "all-minilm-l6-v2"
"""The embedding model that runs in this process if no URL is given and the package with its weights is installed."""

LogFormat = Literal["auto", "console", "json"]

_LAST_PORT: Final = 65_535
_UNITS: Final = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400, "": 1}
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|)")


class InvalidSettingsError(InvalidInputError):
    """The server cannot start with these settings; the message has one line for each fault."""

    reason = "INVALID_SETTINGS"

    def __init__(self, violations: list[FieldViolation]) -> None:
        lines = [f"  {violation.field}: {violation.description}" for violation in violations]
        super().__init__("\n".join(["The settings need a change before MemoTree can start:", *lines]), violations)


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


def _folder(value: Path) -> Path:
    return value.expanduser().absolute()


def _default_data_folder() -> Path:
    """The folder ``memotree`` below the user's data folder, as the XDG base directory specification says."""
    base = Path(os.environ.get("XDG_DATA_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".local" / "share") / "memotree"


Duration = Annotated[timedelta, BeforeValidator(_duration), Field(gt=timedelta())]
Identity = Annotated[str, AfterValidator(_identity)]
Count = Annotated[int, Field(ge=1, le=10_000)]


class Settings(BaseSettings):
    """All settings of the server. Create it with ``load_settings``, which reports errors that a person can read."""

    model_config: ClassVar[SettingsConfigDict] = SettingsConfigDict(frozen=True, extra="forbid")

    data_folder: Annotated[Path, AfterValidator(_folder)] = Field(
        default_factory=_default_data_folder, description="Where repositories and embedded stores live."
    )
    host: str = Field(default="127.0.0.1", description="The address to listen on; loopback only.")
    port: int = Field(default=7319, ge=0, le=65_535, description="The port to listen on; 0 takes any free one.")
    http_enabled: bool = Field(default=True, description="Whether to serve HTTP and MCP beside gRPC.")
    http_port: int | None = Field(
        default=None,
        ge=0,
        le=65_535,
        description="The port for HTTP and MCP; the one after `port` (7320) when not given, 0 takes any free one.",
    )
    default_workspace: str = Field(
        default="main", min_length=1, description="The workspace of a tool call that names none."
    )
    mcp_tools: str = Field(
        default="everyday",
        description="The tools that MCP offers: `everyday` (those of an agent's day), `all`, or names separated by "
        "commas.",
    )
    postgres_url: Annotated[SecretStr, AfterValidator(_postgres_url)] | None = Field(
        default=None, description="A PostgreSQL server to use; without it MemoTree runs its own."
    )
    postgres_pool_min: Count = Field(default=2, description="Connections to PostgreSQL that are kept open.")
    postgres_pool_max: Count = Field(default=16, description="Connections to PostgreSQL at most.")
    postgres_statement_timeout: Duration = Field(
        default=timedelta(seconds=30), description="How long one SQL statement may run."
    )
    qdrant_url: Annotated[str, AfterValidator(_http_url)] | None = Field(
        default=None, description="A Qdrant server to use (its gRPC port); without it MemoTree runs its own."
    )
    qdrant_api_key: SecretStr | None = Field(default=None, description="The key of that Qdrant server.")
    git_remote_url: Annotated[str, AfterValidator(_remote_url)] | None = Field(
        default=None,
        description="The Git remotes that get each commit in the background, with `{id}` or `{name}` for that of the"
        " workspace, such as `https://git.example/memory/{id}.git`.",
    )
    signing_key: Annotated[Path, AfterValidator(_folder)] | None = Field(
        default=None,
        description="A private SSH key without a passphrase that signs all commits and tags of MemoTree; they are not "
        "signed without it.",
    )
    chat_url: Annotated[str, AfterValidator(_model_url)] | None = Field(
        default=None,
        description="An OpenAI-compatible endpoint for summaries and answers; without it summaries are extractive.",
    )
    chat_model: str = Field(default="", description="The chat model's name there.")
    chat_api_key: SecretStr | None = Field(default=None, description="The key of that endpoint.")
    embedding_url: Annotated[str, AfterValidator(_model_url)] | None = Field(
        default=None, description="An OpenAI-compatible endpoint for embeddings; without it the built-in model is used."
    )
    embedding_model: str = Field(
        default="",
        description="The embedding model's name there, or `all-minilm-l6-v2` without a URL for that local model; "
        "`memotree reindex --embedding` changes the index to it.",
    )
    embedding_api_key: SecretStr | None = Field(default=None, description="The key of that endpoint.")
    embedding_dimensions: int | None = Field(
        default=None,
        ge=1,
        le=65_536,
        description="The vector length to ask that endpoint for; without it one call at the first start finds it out.",
    )
    rerank_url: Annotated[str, AfterValidator(_model_url)] | None = Field(
        default=None,
        description="An endpoint that ranks texts (`/rerank` of Cohere, Jina, vLLM); without it ranking is built in.",
    )
    rerank_model: str = Field(default="", description="The reranking model's name there.")
    rerank_api_key: SecretStr | None = Field(default=None, description="The key of that endpoint.")
    model_timeout: Duration = Field(default=timedelta(seconds=60), description="How long one call of a model may take.")
    model_attempts: int = Field(
        default=5, ge=1, le=20, description="How often a call is tried when the endpoint is busy or does not answer."
    )
    model_concurrency: Count = Field(default=8, description="Calls of models that run at once.")
    model_requests_per_minute: int = Field(
        default=0, ge=0, le=1_000_000, description="Calls of models per minute, evenly spread; 0 means no limit."
    )
    max_content_bytes: ByteSize = Field(
        default=ByteSize(2**20), ge=1024, le=2**28, description="The largest content of a node, in bytes."
    )
    max_depth: int = Field(
        default=128, ge=8, le=10_000, description="The greatest depth of a node in its tree; a root has depth 0."
    )
    max_message_bytes: ByteSize = Field(
        default=ByteSize(2**24), ge=4096, le=2**30, description="The largest request, in bytes."
    )
    max_concurrent_calls: Count = Field(
        default=512,
        description="Calls that run at once, a quarter of them on one connection; further ones get `TOO_MANY_CALLS`.",
    )
    session_ttl: Duration = Field(
        default=timedelta(days=7),
        description="Idle time after which a session expires, unless another is given when it is opened.",
    )
    request_retention: Duration = Field(
        default=timedelta(days=7), description="How long the result of a call is kept under its request id."
    )
    document_time: Duration = Field(
        default=timedelta(seconds=120), description="The processor time that reading one document may take."
    )
    document_memory: ByteSize = Field(
        default=ByteSize(2**31), ge=2**28, description="The memory of a process that reads documents, in bytes."
    )
    job_concurrency: int = Field(default=2, ge=1, le=64, description="Jobs that run at once.")
    job_retention: Duration = Field(default=timedelta(days=30), description="How long a finished job is kept.")
    renew_summaries: bool = Field(
        default=True,
        description="Whether summaries above a change follow: built-in ones in the same commit, those of a chat model "
        "in the background, in a further commit.",
    )
    recall_cache_bytes: ByteSize = Field(
        default=ByteSize(2**29),
        ge=2**20,
        description="The most memory for the trees that recall caches, in bytes, and the most room on the disk for"
        " those that it saves for the next start. Trees that need more are read again by each call, which warns of it; "
        "a leaf needs about 2 kB.",
    )
    recall_scan_leaves: int = Field(
        default=200_000,
        ge=1_000,
        description="Recall scores all leaves up to this number of leaves; beyond it, the index chooses the archives.",
    )
    stop_grace: Duration = Field(
        default=timedelta(seconds=30),
        description="How long the server, when it stops, waits for running calls before it cancels them.",
    )
    committer_name: Identity = Field(default="MemoTree", min_length=1, description="The committer of every commit.")
    committer_email: Identity = Field(default="memotree@localhost", description="The committer's address.")
    author_email: Identity = Field(
        default="agent@localhost", description="The author's address when only the session's agent names the author."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="The lowest level that is logged."
    )
    log_format: LogFormat = Field(
        default="auto",
        description="`console` for people, `json` for programs, `auto` for `console` on a terminal and else `json`.",
    )

    @property
    def port_for_http(self) -> int:
        """The port for HTTP: ``http_port`` if given, else the one after ``port``; 0 (any free one) if ``port`` is 0."""
        if self.http_port is not None:
            return self.http_port
        return self.port + 1 if 0 < self.port < _LAST_PORT else 0

    @model_validator(mode="after")
    def _agree(self) -> "Settings":
        """Check settings that depend on each other; the error has one line for each fault."""
        faults = []
        if self.postgres_pool_min > self.postgres_pool_max:
            faults.append("postgres_pool_min must not be greater than postgres_pool_max")
        if self.max_content_bytes >= self.max_message_bytes:
            faults.append("max_content_bytes must be less than max_message_bytes, or no message can carry such a node")
        if self.http_enabled and self.http_port and self.http_port == self.port:
            faults.append("http_port must not be the same as port")
        if self.qdrant_api_key is not None and self.qdrant_url is None:
            faults.append("qdrant_api_key needs qdrant_url")
        faults += self._model_faults()
        if faults:
            raise ValueError("\n".join(faults))
        return self

    def _model_faults(self) -> Iterator[str]:
        """Yield a fault for each endpoint without a model name, and for each model option without an endpoint."""
        for kind in ("chat", "embedding", "rerank"):
            has_url = getattr(self, f"{kind}_url") is not None
            if has_url and not getattr(self, f"{kind}_model"):
                yield f"{kind}_model is missing: name the model to use at {kind}_url"
            for name in (f"{kind}_model", f"{kind}_api_key", "embedding_dimensions" if kind == "embedding" else ""):
                if not name or has_url or not getattr(self, name):
                    continue
                if name != "embedding_model":
                    yield f"{name} needs {kind}_url"
                elif self.embedding_model != LOCAL_EMBEDDING_MODEL:
                    yield f"{name} needs {kind}_url, unless it is {LOCAL_EMBEDDING_MODEL}"

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The sources of values; the first one wins. Ours refuse unknown names, which pydantic's would ignore."""
        del env_settings, dotenv_settings, file_secret_settings
        return init_settings, _Environment(settings_cls), _ConfigFile(settings_cls)


def config_path() -> Path:
    """The TOML file: the one that ``MEMOTREE_CONFIG`` names, else ``memotree.toml`` in the working folder."""
    return Path(os.environ.get(CONFIG_VARIABLE) or CONFIG_NAME)


class _Source(PydanticBaseSettingsSource):
    """A source whose values are all read at once."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """The value of one field; the base class requires this method."""
        del field
        return self().get(field_name), field_name, False


class _Environment(_Source):
    """All non-empty variables with our prefix; an unknown one keeps its name and is refused as an unknown setting."""

    def __call__(self) -> dict[str, Any]:
        known = {variable(name): name for name in self.settings_cls.model_fields}
        return {known.get(name, name): value for name, value in environment.given(os.environ)}


class _ConfigFile(_Source):
    """The TOML file; a file that ``MEMOTREE_CONFIG`` names must exist."""

    def __call__(self) -> dict[str, Any]:
        path = config_path()
        try:
            return tomllib.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            if CONFIG_VARIABLE not in os.environ:
                return {}
            fault = f"there is no file {path}; name one that exists, or unset the variable"
            raise InvalidSettingsError([FieldViolation(CONFIG_VARIABLE, fault)]) from None
        except (OSError, ValueError) as error:  # ValueError: not TOML, or not UTF-8
            cause = error.strerror if isinstance(error, OSError) else error
            raise InvalidSettingsError([FieldViolation(str(path), f"cannot be read as TOML: {cause}")]) from None


def load_settings(**given: Any) -> Settings:
    """The settings of this process; values that are ``None`` count as not given.

    Raises:
    InvalidSettingsError: Some values are wrong; each line names one fault and where its value was given.
    """
    values = {name: value for name, value in given.items() if value is not None}
    try:
        return Settings(**values)
    except ValidationError as error:
        faults = [fault for detail in error.errors(include_url=False) for fault in _faults(detail, values)]
    raise InvalidSettingsError(faults)


def _faults(detail: Mapping[str, Any], given: Mapping[str, Any]) -> Iterator[FieldViolation]:
    """Yield the faults of one pydantic error in our own words; the value of a secret is never included."""
    if not detail["loc"]:  # a fault of several settings together
        for line in str(detail["ctx"]["error"]).splitlines():
            name, _, rest = line.partition(" ")
            yield FieldViolation(_place(name, given), rest)
        return
    name = str(detail["loc"][0])
    if detail["type"] == "extra_forbidden":
        yield FieldViolation(_place(name, given), environment.no_such(name, Settings.model_fields))
        return
    own = detail.get("ctx", {}).get("error")
    fault = str(own) if own is not None else str(detail["msg"]).removeprefix("Input ")
    shown = "" if name in _SECRETS or _has_password(detail["input"]) else f" (it is {detail['input']!r})"
    yield FieldViolation(_place(name, given), fault + shown)


_SECRETS: Final = frozenset(
    name for name, field in Settings.model_fields.items() if "SecretStr" in str(field.annotation)
)


def _has_password(value: object) -> bool:
    """Whether a value is a URL with a password, which no message may show."""
    try:
        return urlsplit(str(value)).password is not None
    except ValueError:
        return True


def _place(name: str, given: Mapping[str, Any]) -> str:
    """Where the value to change was given: an argument, a key of the TOML file, or an environment variable."""
    if name in given or name.startswith(PREFIX):
        return name
    if not os.environ.get(variable(name)) and name in _ConfigFile(Settings)():
        return f"{name} in {config_path()}"
    return variable(name)
