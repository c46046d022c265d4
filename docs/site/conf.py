"""Builds ``docs/`` as web pages with Sphinx: ``make site``.

The pages stay plain Markdown that reads well without being built, so what the site needs besides is made here: the
navigation from the lists of ``docs/README.md``, and diagrams from the blocks that are named ``mermaid``.
"""

import re
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

project = "MemoTree"
version = release = version_of("memotree")
html_title = f"MemoTree {release}"

extensions = ["myst_parser"]
root_doc = "README"
exclude_patterns = ["assets", "pages", "site"]
myst_heading_anchors = 4
myst_fence_as_directive = ["mermaid"]
nitpicky = True

html_theme = "furo"
html_static_path: list[str] = []
html_copy_source = False
html_show_copyright = False
html_last_updated_fmt = None

_SECTION = re.compile(r"^## (?P<title>.+?)\n(?P<body>.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_PAGE = re.compile(r"^- \[[^\]]+\]\((?P<page>[^)#:]+)\.md\)", re.MULTILINE)


class Mermaid(SphinxDirective):
    """A diagram: its text, which the script in the page draws; without the script the text is shown."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """The text in an element that mermaid looks for."""
        block = nodes.literal_block("\n".join(self.content), "\n".join(self.content))
        block["classes"] = ["mermaid"]
        block["language"] = "text"
        return [nodes.container("", block, classes=["diagram"])]


def navigation(_app: Sphinx, page: str, source: list[str]) -> None:
    """Append a hidden table of contents for each section of the index; a page that is in none is an error."""
    if page != root_doc:
        return
    for section in _SECTION.finditer(source[0]):
        listed = "\n".join(found["page"] for found in _PAGE.finditer(section["body"]))
        source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {section['title']}\n\n{listed}\n```\n"


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the above, and the script for diagrams if ``make site`` fetched it."""
    app.add_directive("mermaid", Mermaid)
    app.connect("source-read", navigation)
    app.add_config_value("mermaid_script", "", "html")
    app.connect("builder-inited", _with_diagrams)
    return {"parallel_read_safe": True}


def _with_diagrams(app: Sphinx) -> None:
    script = app.config.mermaid_script
    if not script:
        return
    app.config.html_static_path.append(str(Path(script).resolve()))
    app.add_js_file(Path(script).name)
    app.add_js_file(None, body=_DRAW)


_DRAW = """
document.addEventListener("DOMContentLoaded", () => {
  document.querySelectorAll(".diagram pre").forEach((block) => {
    const drawing = document.createElement("pre");
    drawing.className = "mermaid";
    drawing.textContent = block.textContent;
    block.closest(".diagram").replaceChildren(drawing);
  });
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  mermaid.initialize({ startOnLoad: false, theme: dark ? "dark" : "default" });
  mermaid.run({ querySelector: ".mermaid" });
});
"""
