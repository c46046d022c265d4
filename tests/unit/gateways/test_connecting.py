"""A program that connects over standard input and output does not wait for what only a server needs."""

import subprocess
import sys

import pytest


@pytest.mark.requirement("USE-5")
def test_the_stores_are_not_loaded_before_a_client_may_connect() -> None:
    heavy = (
        *("memotree.composition", "memotree.server.app", "memotree.server.starting", "memotree_storage.store"),
        *("qdrant_client", "langchain_text_splitters", "numpy", "openai", "wordllama", "psycopg"),
    )
    program = f"import sys, memotree.gateways.stdio; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)  # noqa: S603
    assert done.stdout.strip() == "[]"
