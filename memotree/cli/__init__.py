"""The ``memotree`` command line, for everything a person does with MemoTree. Import only ``main``, its entry point."""

import gc
import os
import sys

from memotree.extras import advice

DEBUG_VARIABLE = "MEMOTREE_DEBUG"
"""The variable that, if set, makes unexpected errors show their traceback."""


def version_line() -> str:
    """The name and version of the installed package."""
    from importlib.metadata import version  # noqa: PLC0415 - only this option needs it

    return f"memotree {version('memotree')}"


def _show_first_page() -> bool:
    """Shows the first page of the help, if rich is installed and nothing asks for another look of it."""
    try:
        from memotree.cli.terminal import first_page  # noqa: PLC0415 - what is missing is told by `main`
    except ModuleNotFoundError:
        return False
    shown = first_page.is_asked_for(sys.argv[1:])
    if shown:
        first_page.show()
    return shown


def main() -> None:
    """Runs the command line; even an unexpected error is reported in one sentence."""
    if sys.argv[1:] == ["--version"]:  # answered without the libraries of the command line, which may be missing
        sys.stdout.write(f"{version_line()}\n")
        return
    if sys.argv[1:] in (["--help"], ["-h"]) and _show_first_page():
        return
    gc.disable()  # imports make many objects and little garbage; the command itself runs with collection again
    try:
        from memotree.cli.app import app  # noqa: PLC0415 - keeps `import memotree.cli` free of other imports

        app()
    except Exception as error:  # the last resort: a person gets a sentence, not a traceback
        if os.environ.get(DEBUG_VARIABLE):
            raise
        if isinstance(error, ModuleNotFoundError) and (told := advice(error)):
            sys.stderr.write(f"{told}\n")
            sys.exit(1)
        sys.stderr.write(
            f"memotree failed with an unexpected error ({type(error).__name__}: {error}). "
            f"Run it again with {DEBUG_VARIABLE}=1 and report the output.\n"
        )
        sys.exit(1)
    finally:
        gc.enable()
