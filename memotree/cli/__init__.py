"""The ``memotree`` command: every job a person has with MemoTree. ``main`` is the entry point; import nothing else."""

import os
import sys

DEBUG_VARIABLE = "MEMOTREE_DEBUG"
"""Set, an error that nobody foresaw shows its traceback."""


def main() -> None:
    """Runs the command line; an error that nobody foresaw still ends in one sentence."""
    from memotree.cli.app import app  # noqa: PLC0415 - keeps `import memotree.cli` free of everything

    try:
        app()
    except Exception as error:  # the last door: a person gets a sentence, never a traceback
        if os.environ.get(DEBUG_VARIABLE):
            raise
        sys.stderr.write(
            f"memotree failed in a way nobody foresaw ({type(error).__name__}: {error}). "
            f"Run it again with {DEBUG_VARIABLE}=1 and report what it shows.\n"
        )
        sys.exit(1)
