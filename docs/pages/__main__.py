"""Writes the pages of ``docs/reference`` that are made from code: ``python docs/pages``.

``--check`` only compares them, and ends with 1 if a page differs. The pages of errors and settings are made by
``memotree.server.reference``.
"""

import runpy
import sys
from collections.abc import Mapping
from pathlib import Path

import grpc_page
import mcp_page
import python_page

FOLDER = Path(__file__).resolve().parents[1] / "reference"


def pages() -> Mapping[str, str]:
    """The text of each page by the name of its file."""
    commands = runpy.run_path(str(FOLDER / "cli_page.py"))
    return {
        "cli.md": commands["page"](),
        "grpc.md": grpc_page.page(),
        "mcp-tools.md": mcp_page.page(),
        "python.md": python_page.page(),
    }


def main() -> int:
    """Write the pages or compare them."""
    check = "--check" in sys.argv
    stale = []
    for name, text in pages().items():
        path = FOLDER / name
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if not check:
            path.write_text(text, encoding="utf-8")
    if check and stale:
        sys.stderr.write(f"docs/reference is not what the code says: {', '.join(stale)}. Run `make docs`.\n")
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
