"""The documentation as web pages: complete, without anything from another host; and the README, with its example."""

import os
import re
import runpy
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Final, NamedTuple
from xml.etree import ElementTree as ET

import pytest
from forked import command_folder, forked_servers

ROOT: Final = Path(__file__).resolve().parents[2]
DOCS: Final = ROOT / "docs"
README: Final = ROOT / "README.md"
PAGE: Final = "explanation/architecture.md"
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


class Site(NamedTuple):
    """A built site, and the folder of its sources."""

    docs: Path
    out: Path


BUILD: Final = """
import sys
from pathlib import Path
import build
build.DOCS = Path(sys.argv[1])
sys.exit(build.main(["--without-diagrams", "--out", sys.argv[2]]))
"""


def one_page(folder: Path) -> Path:
    """The sources of a site with one page, which has a diagram, without its links to others."""
    shutil.copytree(DOCS / "site", folder / "site")
    page = (DOCS / PAGE).read_text(encoding="utf-8")
    (folder / PAGE).parent.mkdir()
    (folder / PAGE).write_text(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", page), encoding="utf-8")
    (folder / "README.md").write_text(f"# Small\n\n## Explanation\n\n- [Architecture]({PAGE})\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="module", params=["one page", pytest.param("all pages", marks=pytest.mark.campaign)])
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Site:
    """A small site; `make lint` builds all pages too."""
    docs = DOCS if request.param == "all pages" else one_page(tmp_path_factory.mktemp("docs"))
    out = tmp_path_factory.mktemp("site")
    done = subprocess.run(  # noqa: S603 - our own script
        [sys.executable, "-c", BUILD, str(docs), str(out)],
        cwd=DOCS / "site",
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr
    return Site(docs, out)


def test_every_page_is_built_and_can_be_reached_from_the_first(site: Site) -> None:
    pages = {path.relative_to(site.docs).with_suffix("").as_posix() for path in site.docs.rglob("*.md")}
    first = (site.out / "index.html").read_text(encoding="utf-8")
    assert pages
    assert all((site.out / f"{page}.html").exists() for page in pages)
    assert all(f'href="{page}.html"' in first for page in pages - {"README"})


def test_no_page_loads_anything_from_another_host_and_a_diagram_is_marked_for_its_script(site: Site) -> None:
    for path in site.out.rglob("*.html"):
        page = Loaded()
        page.feed(path.read_text(encoding="utf-8"))
        foreign = [address for address in page.addresses if re.match(r"(https?:)?//", address)]
        assert not foreign, f"{path.name} loads {foreign}"
    for path in site.out.rglob("*.css"):
        assert not re.search(r"url\(\s*['\"]?(https?:)?//|@import", path.read_text(encoding="utf-8")), path.name
    drawn = (site.out / PAGE).with_suffix(".html").read_text(encoding="utf-8")
    text = (site.docs / PAGE).read_text(encoding="utf-8")
    assert drawn.count('class="diagram') == text.count("```mermaid") > 0


def test_the_made_pages_are_what_the_code_says() -> None:
    made = runpy.run_path(str(DOCS / "pages"), run_name="pages")
    for name, text in made["pages"]().items():
        assert (DOCS / "reference" / name).read_text(encoding="utf-8") == text, f"{name}: run `make docs`"


def test_the_picture_of_a_terminal_shows_what_the_commands_print(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["cast.py", "--check"])
    cast = runpy.run_path(str(DOCS / "assets" / "cast.py"))
    with command_folder(tmp_path / "bin") as commands, forked_servers():
        path = f"{commands}{os.pathsep}{os.environ['PATH']}"
        environment = cast["_environment"]
        monkeypatch.setitem(cast["main"].__globals__, "_environment", lambda *to: {**environment(*to), "PATH": path})
        assert cast["main"]() == 0, capsys.readouterr().err
    text = (DOCS / "assets" / "cast.svg").read_text(encoding="utf-8")
    picture = ET.fromstring(text)  # noqa: S314 - our own file
    assert not re.search(r"url\(|@import|href|<script|<image", text), "it loads nothing"
    assert "prefers-reduced-motion" in text, "it can be still"
    assert "memotree recall" in "".join(picture.itertext())


def test_everything_that_the_readme_links_to_exists() -> None:
    targets = re.findall(r"\]\(([^)\s#]+)[^)]*\)", README.read_text(encoding="utf-8"))
    missing = [target for target in targets if "://" not in target and not (ROOT / target).exists()]
    assert not missing, f"the README links to {missing}"


def test_every_project_that_the_readme_compares_has_its_facts_and_sources() -> None:
    readme = README.read_text(encoding="utf-8")
    compared = (DOCS / "explanation" / "comparison.md").read_text(encoding="utf-8")
    facts, _, sources = compared.partition("## Sources")
    rows = re.findall(r"^\| \*\*([^*|]+)\*\* \|", readme.partition("## Why not")[2].partition("\n## ")[0], re.MULTILINE)
    names = {name.strip() for row in rows for name in row.split(",")}
    assert names >= {"mem0", "Letta", "basic-memory", "Zep", "Graphiti", "lakeFS", "Dolt", "plain Git"}
    for name in names:
        assert name in facts, f"{name} is not in the comparison"
        assert name in sources or name == "plain Git", f"{name} has no source"


@pytest.mark.requirement("SERVE-4", "USE-7")
def test_the_example_of_the_readme_does_what_it_shows(tmp_path: Path) -> None:
    code = re.search(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert code is not None
    done = subprocess.run(  # noqa: S603 - the example
        [sys.executable, "-c", code[1]], capture_output=True, text=True, check=False, timeout=500, cwd=tmp_path
    )
    assert done.stderr == ""
    *recalled, before = done.stdout.splitlines()
    assert any("At most three retries." in line for line in recalled)
    assert before == "At most five retries."
