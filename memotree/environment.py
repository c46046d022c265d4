"""The environment variables of MemoTree by name, for the command line, which starts without loading the settings."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

PREFIX: Final = "MEMOTREE_"
CONFIG_VARIABLE: Final = f"{PREFIX}CONFIG"

ENVIRONMENT_NAMES: Final = {"data_folder": f"{PREFIX}DATA"}
"""The settings whose variable is not the prefix followed by the setting's name."""

API_KEY_VARIABLE: Final = f"{PREFIX}API_KEY"
"""The API key of a person or program; the terminal, the client and git's hooks read it."""

TLS_VARIABLE: Final = f"{PREFIX}TLS"
"""Asks clients to use TLS: 1, or a PEM file with the certificates to trust."""

CERTIFICATE_VARIABLE: Final = f"{PREFIX}CERTIFICATE"
"""A PEM file with the certificate that a client presents, and those between it and the root."""

CERTIFICATE_KEY_VARIABLE: Final = f"{PREFIX}CERTIFICATE_KEY"
"""The PEM file with the key of that certificate; the same file if it is not given."""

NOT_SETTINGS: Final = (
    CONFIG_VARIABLE,
    API_KEY_VARIABLE,
    TLS_VARIABLE,
    CERTIFICATE_VARIABLE,
    CERTIFICATE_KEY_VARIABLE,
    *(f"{PREFIX}{name}" for name in ("ADDRESS", "WORKSPACE", "SESSION", "AGENT")),
    *(f"{PREFIX}{name}" for name in ("PUSH_AUTHOR", "PUSH_BRANCHES", "PUSH_COMMITTER")),
    *(f"{PREFIX}{name}" for name in ("PAGER", "DEBUG", "FAULT_", "TEST_")),
)
"""Variables that are no settings: the command line, the client and crash tests read them.

A name that ends in ``_`` stands for all variables that begin with it.
"""

SETTINGS: Final = (
    "data_folder",
    "host",
    "port",
    "authentication",
    "oidc_issuer",
    "oidc_audience",
    "oidc_claim",
    "tls_certificate",
    "tls_key",
    "tls_client_ca",
    "tls_client_required",
    "tls_client_port",
    "tls_in_front",
    "http_enabled",
    "http_port",
    "default_workspace",
    "mcp_tools",
    "mcp_max_sessions",
    "mcp_session_idle",
    "tools_enabled",
    "tools_disabled",
    "tools_timeout",
    "tools_max_concurrency",
    "tools_folders",
    "tools_hosts",
    "tools_search_url",
    "tools_memory",
    "tools_sandbox",
    "tools_level",
    "tools_allowed",
    "tools_calls_per_minute",
    "tools_burst",
    "tools_builtin",
    "tools_custom",
    "postgres_url",
    "postgres_pool_min",
    "postgres_pool_max",
    "postgres_statement_timeout",
    "qdrant_url",
    "qdrant_api_key",
    "git_remote_url",
    "signing_key",
    "chat_url",
    "chat_model",
    "chat_api_key",
    "embedding_url",
    "embedding_model",
    "embedding_api_key",
    "embedding_dimensions",
    "rerank_url",
    "rerank_model",
    "rerank_api_key",
    "model_timeout",
    "model_attempts",
    "model_concurrency",
    "model_requests_per_minute",
    "max_content_bytes",
    "max_depth",
    "max_message_bytes",
    "max_concurrent_calls",
    "session_ttl",
    "request_retention",
    "document_time",
    "document_memory",
    "job_concurrency",
    "job_retention",
    "renew_summaries",
    "recall_cache_bytes",
    "recall_scan_leaves",
    "stop_grace",
    "committer_name",
    "committer_email",
    "author_email",
    "log_level",
    "log_format",
    "metrics_port",
    "metrics_host",
    "trace_url",
    "trace_share",
    "audit_log",
    "audit_retention",
)
"""The settings, as ``memotree.settings`` defines them; a test compares the two."""


def variable(setting: str) -> str:
    """The environment variable of a setting."""
    return ENVIRONMENT_NAMES.get(setting, PREFIX + setting.upper())


def given(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The variables, with their values, that are not empty and can only be settings."""
    for name, value in environment.items():
        if value and name.startswith(PREFIX) and not _is_of_others(name):
            yield name, value


def unknown(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The variables that look like settings and are none, each with what is wrong, as ``memotree serve`` says it."""
    known = {variable(each) for each in SETTINGS}
    for name, _ in given(environment):
        if name not in known:
            yield name, no_such(name, SETTINGS)


def no_such(name: str, settings: Iterable[str]) -> str:
    """What is wrong with the name of a setting or variable that does not exist, with the most similar name."""
    import difflib  # noqa: PLC0415 - clients import this module for the names alone

    names = list(settings)
    if name.startswith(PREFIX):
        names = [variable(each) for each in names] + [each for each in NOT_SETTINGS if not each.endswith("_")]
    close = difflib.get_close_matches(name, names, n=1)
    return f"there is no such setting{f'; did you mean {close[0]}?' if close else ''}"


def _is_of_others(name: str) -> bool:
    """Whether a variable is not a setting: ``MEMOTREE_SESSION`` is not, ``MEMOTREE_SESSION_TTL`` is."""
    return any(name == other or (other.endswith("_") and name.startswith(other)) for other in NOT_SETTINGS)
