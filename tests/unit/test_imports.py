"""What an import loads: a start waits for nothing that it does not need, and a client needs no store."""

import subprocess
import sys

import pytest

from memotree.server import starting

HEAVY = {"numpy", "psycopg", "qdrant_client", "openai"}

MODELS = """
from qdrant_client import AsyncQdrantClient, models
unbuilt = [each for each in vars(models).values() if not getattr(each, "__pydantic_complete__", True)]
assert len(unbuilt) > 50, len(unbuilt)
inner = models.Filter(must=[models.FieldCondition(key="a", match=models.MatchValue(value="b"))])
outer = models.Filter(must=[inner], must_not=[models.HasIdCondition(has_id=["a"])])
assert models.Filter.model_validate(outer.model_dump()) == outer
"""
"""Models of Qdrant are built when they are used, and then as usual."""


def loaded(*statements: str) -> list[set[str]]:
    """The modules of a new interpreter after each statement."""
    program = "import sys\nfor each in sys.argv[1:]:\n    exec(each)\n    print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program, *statements], capture_output=True, text=True, check=False)  # noqa: S603 - our own program
    assert done.returncode == 0, done.stderr
    return [set(line.split()) for line in done.stdout.splitlines()]


@pytest.mark.requirement("USE-5", "USE-7")
def test_a_client_loads_no_store_and_a_program_over_standard_input_nothing_that_only_a_server_needs() -> None:
    before, package, client, stdio = loaded(
        "import importlib, typing",
        "import memotree",
        "from memotree import Client; import memotree.client.aio, memotree.client.blocking",
        "import memotree.gateways.stdio",
    )
    assert {name.partition(".")[0] for name in package - before} == {"memotree"}
    assert "memotree.client.errors" in client
    assert not client & (HEAVY | {"memotree_storage", "dulwich", "pydantic", "qdrant_edge", "rich", "typer", "mcp"})
    of_servers = {"memotree.composition", "memotree.server.app", "memotree.server.starting", "memotree_storage.store"}
    assert not stdio & (HEAVY | of_servers | {"langchain_text_splitters", "wordllama"})


def test_a_server_loads_what_is_used_later_when_it_is_used() -> None:
    engine, start, root, _ = loaded(
        "from memotree_storage.qdrant.engine.server import build",
        "import memotree.server.starting",
        "memotree = sys.modules['memotree']; memotree.server.starting._import_root()",
        MODELS,
    )
    assert not engine & {"httpx", "pydantic", "numpy", "qdrant_client"}
    of_root = {starting.COMPOSITION_ROOT, "memotree_storage.store", "qdrant_client"}
    assert not start & (of_root | {"mcp", "langchain_core", "pypdf"})
    assert of_root <= root
    later = {"pypdf", "charset_normalizer", "langchain_core", "tokenizers", "openai", "mcp", "typer"}
    assert not root & later
