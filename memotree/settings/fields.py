"""The settings, with their types, defaults and descriptions, and the check of those that depend on each other."""

import os
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import ClassVar, Final, Literal

from pydantic import BaseModel, ByteSize, ConfigDict, Field, SecretStr, model_validator

from memotree.setting_types import (
    Count,
    Duration,
    Folder,
    Folders,
    HttpUrl,
    Identity,
    IpAddress,
    IssuerUrl,
    ModelUrl,
    PostgresUrl,
    RemoteUrl,
    Texts,
    ToolPatterns,
)
from memotree.settings.of_tools import BuiltinTool, CustomTool, ToolLevel, ToolSandbox

LOCAL_EMBEDDING_MODELS: Final = ("all-minilm-l6-v2", "use-multilingual-3")
"""The embedding models that run in this process if no URL is given and the package with their weights is installed."""

LogFormat = Literal["auto", "console", "json"]

_LAST_PORT: Final = 65_535


def _default_data_folder() -> Path:
    """The folder ``memotree`` below the user's data folder, as the XDG base directory specification says."""
    base = Path(os.environ.get("XDG_DATA_HOME", ""))
    return (base if base.is_absolute() else Path.home() / ".local" / "share") / "memotree"


class Settings(BaseModel):
    """All settings of the server. Create it with ``load_settings``, which reports errors that a person can read."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    data_folder: Folder = Field(
        default_factory=_default_data_folder, description="Where repositories and embedded stores live."
    )
    host: str = Field(
        default="127.0.0.1", description="The address to listen on; other machines reach it only with API keys and TLS."
    )
    port: int = Field(default=7319, ge=0, le=65_535, description="The port to listen on; 0 takes any free one.")
    authentication: Literal["none", "keys"] = Field(
        default="none",
        description="Who may call: `none` for everybody on this machine, `keys` for whoever has an API key, with the "
        "roles that `memotree access` tells. The first start makes an administrator's key, in `admin.key` of the data "
        "folder.",
    )
    oidc_issuer: IssuerUrl | None = Field(
        default=None,
        description="The URL of an OpenID provider whose tokens (JWT) prove who calls, beside API keys; its users are "
        "the principals `oidc:` and their name.",
    )
    oidc_audience: str = Field(
        default="",
        description="What tokens must be for: the name that the provider has of this server. For MCP clients, the URL "
        "of MCP, such as `https://memory.example.org:7320/mcp`.",
    )
    oidc_claim: str = Field(
        default="sub",
        min_length=1,
        description="The claim of a token that names the user: one that users cannot change.",
    )
    tls_certificate: Folder | None = Field(
        default=None,
        description="A PEM file with the certificate of the server, and those between it and the root: gRPC and HTTP "
        "speak TLS then. It is read again when it changes.",
    )
    tls_key: Folder | None = Field(
        default=None, description="The PEM file with the key of that certificate, without a passphrase."
    )
    tls_client_ca: Folder | None = Field(
        default=None,
        description="A PEM file with the certificates that sign those of clients: such a certificate proves who calls, "
        "beside API keys. It is read again when it changes.",
    )
    tls_client_required: bool = Field(
        default=False, description="Whether every connection over TLS needs a client certificate."
    )
    tls_client_port: int | None = Field(
        default=None,
        ge=0,
        le=_LAST_PORT,
        description="The port for gRPC with client certificates, unless all connections need one; two after `port` "
        "(7321) when not given, 0 takes any free one.",
    )
    tls_in_front: bool = Field(
        default=False,
        description="Whether a proxy in front of the server speaks TLS with its clients, so that `host` may be an "
        "address that other machines reach.",
    )
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
    mcp_max_sessions: Count = Field(
        default=1_000,
        description="Sessions of MCP over HTTP without a running request; one too many ends the oldest one of whoever "
        "has most.",
    )
    mcp_session_idle: Duration = Field(
        default=timedelta(minutes=30), description="Idle time after which such a session ends."
    )
    tools_enabled: bool = Field(
        default=True, description="Whether there are tools that are functions, such as the calculator."
    )
    tools_disabled: Texts = Field(default=(), description="The names of tools that are turned off.")
    tools_timeout: Duration = Field(
        default=timedelta(seconds=30), description="How long one call of such a tool may take."
    )
    tools_max_concurrency: Count = Field(default=16, description="Calls of such tools that run at once; others wait.")
    tools_folders: Folders = Field(
        default=(), description="Folders whose files tools may read; there is no `read_file` without one."
    )
    tools_hosts: Texts = Field(
        default=(),
        description="Hosts that tools may reach at public addresses: `name`, `name:port`, `*.name`, or `*` for all; "
        "there is no `http_request` without one.",
    )
    tools_search_url: ModelUrl | None = Field(
        default=None,
        description="The search engine of the tool `search_web`, with the JSON interface of SearXNG, such as "
        "`https://search.example/search`; there is no such tool without it.",
    )
    tools_memory: ByteSize = Field(
        default=ByteSize(2**30), ge=2**28, description="The memory of a process that runs such tools, in bytes."
    )
    tools_sandbox: ToolSandbox = Field(
        default="auto",
        description="Whether bubblewrap keeps such a process from writing files, from secrets, and from the network "
        "unless its tool says that it reaches out: `auto` where it works, `off`, or `required`.",
    )
    tools_level: ToolLevel = Field(
        default="permissive",
        description="Which tools anybody may call: `strict` only those that read the store, `normal` none that delete, "
        "overwrite or call out, `permissive` all that roles permit.",
    )
    tools_allowed: ToolPatterns = Field(
        default=(),
        description="The tools that anybody may call: names, and beginnings of names with `*`; all others are denied. "
        "All may be called if it is empty.",
    )
    tools_calls_per_minute: int = Field(
        default=0,
        ge=0,
        le=1_000_000,
        description="Calls of tools per minute of each principal; 0 means no limit. Those without a role share one.",
    )
    tools_burst: Count = Field(default=60, description="How many of these calls may come at once, after a pause.")
    tools_builtin: Mapping[str, BuiltinTool] = Field(
        default={},
        description="Settings of single tools that MemoTree brings along, by name: `enabled`; for functions `timeout`; "
        "`folders`, `hosts` or `url` for those that need them.",
    )
    tools_custom: Mapping[str, CustomTool] = Field(
        default={},
        description="Settings of tools of other packages, by name: `enabled`, `timeout`, and what the tool itself "
        "reads, such as the key of a service.",
    )
    postgres_url: PostgresUrl | None = Field(
        default=None, description="A PostgreSQL server to use; without it MemoTree runs its own."
    )
    postgres_pool_min: Count = Field(default=2, description="Connections to PostgreSQL that are kept open.")
    postgres_pool_max: Count = Field(default=16, description="Connections to PostgreSQL at most.")
    postgres_statement_timeout: Duration = Field(
        default=timedelta(seconds=30), description="How long one SQL statement may run."
    )
    qdrant_url: HttpUrl | None = Field(
        default=None, description="A Qdrant server to use (its gRPC port); without it MemoTree runs its own."
    )
    qdrant_api_key: SecretStr | None = Field(default=None, description="The key of that Qdrant server.")
    git_remote_url: RemoteUrl | None = Field(
        default=None,
        description="The Git remotes that get each commit in the background, with `{id}` or `{name}` for that of the"
        " workspace, such as `https://git.example/memory/{id}.git`.",
    )
    signing_key: Folder | None = Field(
        default=None,
        description="A private SSH key without a passphrase that signs all commits and tags of MemoTree; they are not "
        "signed without it.",
    )
    chat_url: ModelUrl | None = Field(
        default=None,
        description="An OpenAI-compatible endpoint for summaries and answers; without it summaries are extractive.",
    )
    chat_model: str = Field(default="", description="The chat model's name there.")
    chat_api_key: SecretStr | None = Field(default=None, description="The key of that endpoint.")
    embedding_url: ModelUrl | None = Field(
        default=None, description="An OpenAI-compatible endpoint for embeddings; without it the built-in model is used."
    )
    embedding_model: str = Field(
        default="",
        description="The embedding model's name there, or without a URL a local one, `all-minilm-l6-v2` or "
        "`use-multilingual-3`; "
        "`memotree reindex --embedding` changes the index to it.",
    )
    embedding_api_key: SecretStr | None = Field(default=None, description="The key of that endpoint.")
    embedding_dimensions: int | None = Field(
        default=None,
        ge=1,
        le=65_536,
        description="The vector length to ask that endpoint for; without it one call at the first start finds it out.",
    )
    rerank_url: ModelUrl | None = Field(
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

    metrics_port: int | None = Field(
        default=None,
        ge=0,
        le=_LAST_PORT,
        description="The port of `/metrics` for Prometheus; without it, none.",
    )
    metrics_host: IpAddress = Field(
        default="127.0.0.1",
        description="The address of `/metrics`. It needs no key; it tells how much is done, and no names and no texts.",
    )
    trace_url: HttpUrl | None = Field(
        default=None,
        description="The collector of traces (OTLP, gRPC), such as `http://127.0.0.1:4317`; needs the extra `tracing`.",
    )
    trace_share: float = Field(
        default=1.0, ge=0, le=1, description="Which part is kept of the traces that no caller has begun, from 0 to 1."
    )
    audit_log: bool = Field(
        default=True,
        description="Whether changes, refusals and calls of tools are recorded; `memotree audit` lists them.",
    )
    audit_retention: Duration = Field(default=timedelta(days=90), description="How long such a record is kept.")

    @property
    def port_for_http(self) -> int:
        """The port for HTTP: ``http_port`` if given, else the one after ``port``; 0 (any free one) if ``port`` is 0."""
        if self.http_port is not None:
            return self.http_port
        return self.port + 1 if 0 < self.port < _LAST_PORT else 0

    @property
    def port_for_certificates(self) -> int | None:
        """The port for gRPC with client certificates: ``tls_client_port``, or the second after ``port``, or any (0).

        ``None`` if there is none of its own: the settings name no authorities, or all connections need a certificate.
        """
        if self.tls_client_ca is None or self.tls_client_required:
            return None
        if self.tls_client_port is not None:
            return self.tls_client_port
        return self.port + 2 if 0 < self.port < _LAST_PORT - 1 else 0

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
        if self.oidc_issuer is not None and not self.oidc_audience:
            faults.append("oidc_audience is needed with oidc_issuer, or tokens for other servers would be valid here")
        if self.oidc_issuer is not None and self.authentication == "none":
            faults.append("authentication must be keys with oidc_issuer; API keys are accepted beside its tokens")
        if (self.tls_certificate is None) != (self.tls_key is None):
            given, missing = ("certificate", "key") if self.tls_key is None else ("key", "certificate")
            faults.append(f"tls_{missing} is needed with tls_{given}")
        if self.qdrant_api_key is not None and self.qdrant_url is None:
            faults.append("qdrant_api_key needs qdrant_url")
        faults += [*self._client_certificate_faults(), *self._watching_faults(), *self._model_faults()]
        if faults:
            raise ValueError("\n".join(faults))
        return self

    def _client_certificate_faults(self) -> Iterator[str]:
        """Yield a fault for each setting of client certificates that does not agree with others."""
        if self.tls_client_ca is None:
            if self.tls_client_required:
                yield "tls_client_ca is needed with tls_client_required"
            if self.tls_client_port is not None:
                yield "tls_client_ca is needed with tls_client_port"
            return
        if self.tls_certificate is None:
            yield "tls_certificate is needed with tls_client_ca: only TLS of the server itself sees client certificates"
        if self.authentication == "none":
            yield "authentication must be keys with tls_client_ca; API keys are accepted beside certificates"
        if self.tls_client_required and self.tls_client_port is not None:
            yield "tls_client_port is not needed with tls_client_required: every port needs a certificate then"
        if self.port_for_certificates and self.port_for_certificates in {
            self.port,
            self.http_enabled and self.port_for_http,
        }:
            yield "tls_client_port must not be the same as the port of gRPC or of HTTP"

    def _watching_faults(self) -> Iterator[str]:
        """Yield a fault for each setting of metrics and traces that does not agree with others."""
        ports = {self.port, self.http_enabled and self.port_for_http, self.port_for_certificates}
        if self.metrics_port and self.metrics_port in ports:
            yield "metrics_port must not be the same as the port of gRPC or of HTTP"
        if self.trace_share != 1 and self.trace_url is None:
            yield "trace_share needs trace_url"

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
                elif self.embedding_model not in LOCAL_EMBEDDING_MODELS:
                    yield f"{name} needs {kind}_url, unless it is {' or '.join(LOCAL_EMBEDDING_MODELS)}"
