"""The documentation as web pages: complete, without warnings, and without anything from another host."""

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
DOCS: Final = ROOT / "docs"
LOADED: Final = {"script": "src", "img": "src", "iframe": "src", "link": "href", "source": "src", "video": "src"}

pytestmark = pytest.mark.requirement("USE-11")


class Loaded(HTMLParser):
    """Collects the addresses that a page loads by itself; links that a reader may follow are not among them."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        address = dict(attrs).get(LOADED.get(tag, ""))
        if address:
            self.addresses.append(address)


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(  # noqa: S603 - our own scripts
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=False, timeout=170
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    done = run("docs/site/build.py", "--without-diagrams", "--out", str(out))
    assert done.returncode == 0, done.stderr
    return out


def test_every_page_is_built_and_can_be_reached_from_the_first(site: Path) -> None:
    pages = {path.relative_to(DOCS).with_suffix("").as_posix() for path in DOCS.rglob("*.md")}
    first = (site / "index.html").read_text(encoding="utf-8")
    assert all((site / f"{page}.html").exists() for page in pages)
    assert all(f'href="{page}.html"' in first for page in pages - {"README"})


def test_no_page_loads_anything_from_another_host(site: Path) -> None:
    for path in site.rglob("*.html"):
        page = Loaded()
        page.feed(path.read_text(encoding="utf-8"))
        foreign = [address for address in page.addresses if re.match(r"(https?:)?//", address)]
        assert not foreign, f"{path.name} loads {foreign}"
    for path in site.rglob("*.css"):
        assert not re.search(r"url\(\s*['\"]?(https?:)?//|@import", path.read_text(encoding="utf-8")), path.name


def test_a_diagram_is_marked_for_the_script_that_draws_it(site: Path) -> None:
    page = (site / "explanation" / "architecture.html").read_text(encoding="utf-8")
    text = (DOCS / "explanation" / "architecture.md").read_text(encoding="utf-8")
    assert page.count('class="diagram') == text.count("```mermaid") > 0


def test_the_made_pages_are_what_the_code_says() -> None:
    done = run("docs/pages", "--check")
    assert done.returncode == 0, done.stderr


def test_the_reference_names_every_call_tool_and_public_name() -> None:
    from memotree import client  # noqa: PLC0415
    from memotree.gateways.tool_definitions import TOOLS  # noqa: PLC0415
    from memotree.server.binding import contract  # noqa: PLC0415

    grpc, tools, python = (
        set(re.findall(r"^##+ (.+)$", (DOCS / "reference" / name).read_text(encoding="utf-8"), re.MULTILINE))
        for name in ("grpc.md", "mcp-tools.md", "python.md")
    )
    assert {method.name for service in contract().values() for method in service.methods} <= grpc
    assert {tool.name for tool in TOOLS} <= tools
    public = {name for name in client.__all__ if not name.startswith("Async")}
    assert public - {"DEFAULT_ADDRESS", "Change", "QueryEvent"} <= python


def test_the_picture_of_a_terminal_shows_what_the_commands_print() -> None:
    done = run("docs/assets/cast.py", "--check")
    assert done.returncode == 0, done.stderr


def test_the_picture_of_a_terminal_loads_nothing_and_can_be_still() -> None:
    text = (DOCS / "assets" / "cast.svg").read_text(encoding="utf-8")
    picture = ET.fromstring(text)  # noqa: S314 - our own file
    assert not re.search(r"url\(|@import|href|<script|<image", text)
    assert "prefers-reduced-motion" in text
    assert "memotree recall" in "".join(picture.itertext())


def test_everything_that_the_readme_links_to_exists() -> None:
    targets = re.findall(r"\]\(([^)\s#]+)[^)]*\)", (ROOT / "README.md").read_text(encoding="utf-8"))
    missing = [target for target in targets if "://" not in target and not (ROOT / target).exists()]
    assert not missing, f"the README links to {missing}"


def test_every_project_that_the_readme_compares_has_its_facts_and_sources() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    compared = (DOCS / "explanation" / "comparison.md").read_text(encoding="utf-8")
    facts, _, sources = compared.partition("## Sources")
    rows = re.findall(r"^\| \*\*([^*|]+)\*\* \|", readme.partition("## Why not")[2].partition("\n## ")[0], re.MULTILINE)
    names = {name.strip() for row in rows for name in row.split(",")}
    assert names >= {"mem0", "Letta", "basic-memory", "Zep", "Graphiti", "lakeFS", "Dolt", "plain Git"}
    for name in names:
        assert name in facts, f"{name} is not in the comparison"
        assert name in sources or name == "plain Git", f"{name} has no source"
