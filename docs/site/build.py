"""Builds the site into ``dist/site``: ``python docs/site/build.py``; any warning is an error.

The site loads nothing from elsewhere. Its one script that Sphinx does not bring, mermaid for the diagrams, is fetched
once with npm and checked against its hash; ``--without-diagrams``, or a machine without npm, shows their text instead.
"""

import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

from sphinx.cmd.build import build_main

DOCS: Final = Path(__file__).resolve().parents[1]
OUT: Final = DOCS.parent / "dist"
MERMAID: Final = "12.3.0"
MERMAID_SHA256: Final = "336df803d87a38b70a01e736e666c8f7601d2ce42f5e47c8fafe5d721074b9a3"


def mermaid() -> Path | None:
    """The script, fetched if it is not there yet; ``None`` if npm is missing or cannot fetch it."""
    script = OUT / f"mermaid-{MERMAID}.min.js"
    if not script.exists():
        found = _fetched()
        if found is None:
            return None
        if hashlib.sha256(found).hexdigest() != MERMAID_SHA256:
            raise SystemExit(f"mermaid {MERMAID} is not the file that {Path(__file__).name} names; do not use it.")
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_bytes(found)
    return script


def _fetched() -> bytes | None:
    npm = shutil.which("npm")
    if npm is None:
        sys.stderr.write("There is no npm to fetch mermaid with; diagrams are shown as text.\n")
        return None
    with tempfile.TemporaryDirectory() as folder:
        command = [npm, "pack", "--silent", "--pack-destination", folder, f"mermaid@{MERMAID}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)  # noqa: S603 - our own arguments
        if done.returncode:
            sys.stderr.write(f"npm could not fetch mermaid; diagrams are shown as text.\n{done.stderr}")
            return None
        with tarfile.open(Path(folder, f"mermaid-{MERMAID}.tgz")) as package:
            member = package.extractfile("package/dist/mermaid.min.js")
            return member.read() if member is not None else None


def main(arguments: list[str]) -> int:
    """Build; the exit status is Sphinx's."""
    out = Path(arguments[arguments.index("--out") + 1]) if "--out" in arguments else OUT / "site"
    script = None if "--without-diagrams" in arguments else mermaid()
    options = ["-D", f"mermaid_script={script}"] if script is not None else []
    options += ["--quiet", "--fresh-env", "--fail-on-warning", "--conf-dir", str(DOCS / "site")]
    with tempfile.TemporaryDirectory() as trees:
        status = build_main([*options, "--doctree-dir", trees, "--builder", "html", str(DOCS), str(out)])
    if status == 0:
        shutil.copyfile(out / "README.html", out / "index.html")  # what a web server shows for the folder
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
