"""Every command and Python example of ``docs/`` does what its page says, on a real server of the test's own.

A page is run from top to bottom, as by a reader, step by step (`documented_steps`). Where it shows no output, only the
exit status is checked.
"""

import contextlib
import io
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import psycopg
import pytest
from endpoints import endpoint_in_a_thread
from forked import ForkedProgram, command_folder, forked_servers
from integration.documented_steps import Bindings, Step, blocks, steps
from integration.node_packages import needs_node, node_modules
from memotree_storage.embedded.qdrant import EmbeddedQdrant
from ports import kept_ports
from psycopg import conninfo
from typer.testing import CliRunner

from memotree.cli.app import app
from memotree.local.server_process import START_SECONDS, STOP_SECONDS
from memotree.server.announcement import read_announcement

DOCS: Final = Path(__file__).resolve().parents[2] / "docs"
PROJECT: Final = DOCS.parent
TUTORIAL: Final = "tutorial/first-session.md"
SERVERS: Final = "how-to/use-real-servers.md"
MODELS: Final = "how-to/use-a-language-model.md"
WITH_TOOLS: Final = "how-to/ask-with-tools.md"
FRAMEWORKS: Final = "how-to/use-with-agent-frameworks.md"
"""Its frameworks take seconds to import."""
RUN: Final = frozenset({"console", "python"})
SHOWN: Final = frozenset(
    {"text", "mermaid", "toml", "sql", "proto", "markdown", "javascript", "ini", "diff", "json", "yaml"}
)

# Placeholders on the pages for values that differ from machine to machine.
HOME: Final = "/home/ada"
ADDRESS: Final = "127.0.0.1:7319"
HTTP_ADDRESS: Final = "127.0.0.1:7320"
METRICS_PORT: Final = "9464"
POSTGRES_URL: Final = "postgresql://memotree:secret@db.example/memotree"
MODELS_URL: Final = "https://models.example/v1"
QDRANT_URL: Final = "http://vectors.example:6334"
QDRANT_KEY: Final = "the-key-of-qdrant"
CHECKOUT: Final = "~/memotree"
LINES: Final = {" 40000 ": " 10000 "}
"""The lines of a text on which a job works for a while, and of one with which it is still cancelled in time."""

_LINK: Final = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_SHELL: Final = re.compile(r"[|<>&;`$*?]")
_ASKS: Final = re.compile(r"command(?!export ).*(memotree|curl|127\.0\.0\.1)", re.DOTALL)
"""A step that needs a server."""
_QUOTED: Final = re.compile(r"""'[^']*'|"[^"`$]*\"""")

pytestmark = pytest.mark.requirement("SERVE-4")


def pages() -> list[str]:
    return sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))


class Reader:
    """A simulated person with a home, a shell and a server, who follows the pages."""

    def __init__(self, home: Path, commands: Path) -> None:
        self.home = home
        self.bindings = Bindings()
        self.stand_ins: dict[str, str] = {}
        # The same for every server: choices are stored by address.
        port, http_port, self.metrics_port = map(str, kept_ports(3))
        self._base = {name: value for name, value in os.environ.items() if not name.startswith(("MEMOTREE_", "XDG_"))}
        self._base |= {
            "HOME": str(home),
            "COLUMNS": "100",
            "PATH": os.pathsep.join(
                [str(commands), str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]
            ),
            "TERM": "dumb",
            "TZ": "UTC",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_PAGER": "cat",
            "MEMOTREE_PORT": port,
            "MEMOTREE_HTTP_PORT": http_port,
        }
        self._server: ForkedProgram | None = None
        self._has_settings = False
        self._has_chosen = True
        self._log = home / "server.log"
        self.begin()

    def begin(self) -> None:
        """Begin a page: in the home folder, without exported variables and bindings, and a server that had some."""
        if self._server is not None and self._has_settings:
            self.stop()
        self.environment = dict(self._base)
        self.folder = self.home
        self.names: dict[str, Any] = {"__name__": "__main__"}

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._base['MEMOTREE_PORT']}"

    @property
    def http_address(self) -> str:
        return f"127.0.0.1:{self._base['MEMOTREE_HTTP_PORT']}"

    def close(self) -> None:
        if self._server is not None:
            self.stop()

    def play(self, page: str) -> None:
        """Do all actions of a page; for all pages but the tutorial a server runs already, if anything asks it."""
        self.begin()
        self._has_chosen = page == TUTORIAL
        for step in steps((DOCS / page).read_text(encoding="utf-8")):
            told = self.do(step)
            if step.shown is not None:
                shown = step.shown.replace(CHECKOUT, str(PROJECT))
                pattern = self.bindings.check(shown, self._as_shown(told))
                assert not pattern, f"{page}:{step.line}: {step.text}\n--- it says\n{shown}\n--- it was\n{told}"

    def do(self, step: Step) -> str:
        """Do one action; return the output of the terminal."""
        text = self._as_real(step.text)
        is_serve = text.startswith("memotree serve")
        if not self._has_chosen and not is_serve and (step.kind == "python" or _ASKS.match(step.kind + step.text)):
            self._choose()
        match step.kind:
            case "file":
                (self.folder / step.title).write_text(text, encoding="utf-8")
                return ""
            case "stop":
                if self._server is not None or self._has_chosen:
                    self.stop()
                return ""
            case "python":
                return self._python(text)
        word, *rest = text.split(maxsplit=1)
        builtins = {"cd": self._cd, "export": self._export, "npm": self._npm, "pip": self._pip}
        builtin: Callable[[str], str] | None = builtins.get(word)
        if builtin is not None:
            return builtin(rest[0])
        if is_serve:
            return self.serve(shlex.split(text)[1:])
        failing = bool(re.search(r"\A(.*\n)?error:|^error:.*\Z", (step.shown or "").strip(), re.MULTILINE))
        code, told = self._run(text)
        assert failing == bool(code), f"line {step.line}: {text}\nended with {code}:\n{told}"
        return told

    def _choose(self) -> None:
        """Have a server, and use the workspace of the tutorial: another page may have chosen one of its own."""
        self._has_chosen = True
        if self._server is None:
            self.serve(["serve"])
        code, told = self._run("memotree ws use handbook")
        assert not code, told

    def serve(self, arguments: list[str]) -> str:
        """Start the server as a process of its own; return its output until it listens."""
        assert self._server is None, "a server runs already; the page has to stop it first"
        folder = Path(self.environment["HOME"], ".local/share/memotree")
        with self._log.open("wb") as log:
            command = [sys.executable, "-m", "memotree.cli", *arguments]
            environment = {**self.environment, "COLUMNS": "1000"}  # a test folder has a longer name than a home folder
            exported = self.environment.keys() - self._base.keys()
            self._has_settings = any(name.startswith("MEMOTREE_") for name in exported)
            self._server = ForkedProgram(command, stdout=log, stderr=log, cwd=self.folder, env=environment)
        for _ in range(int(START_SECONDS / 0.05)):
            announced = read_announcement(folder)
            said = self._log.read_text(encoding="utf-8")
            if announced is not None and announced.pid == self._server.pid and "Ctrl-C" in said:
                if not self._has_chosen:
                    self._choose()
                return "".join(said.partition("Ctrl-C stops it.")[:2])  # a job may log something after it
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._server.wait(0.05)
                break
        self._server.kill()
        self._server.wait()
        self._server = None  # the next page starts one of its own
        raise AssertionError(f"the server did not start:\n{self._log.read_text(encoding='utf-8')}")

    def stop(self) -> None:
        """Press Ctrl-C in the server's terminal."""
        assert self._server is not None, "there is no server to stop"
        server, self._server = self._server, None
        server.send_signal(signal.SIGINT)
        try:
            assert server.wait(STOP_SECONDS) == 0
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
            raise

    def _run(self, text: str) -> tuple[int, str]:
        if text.startswith("memotree ") and not _SHELL.search(_QUOTED.sub("", text)):
            with contextlib.chdir(self.folder), patch.dict(os.environ, self.environment, clear=True):
                result = CliRunner().invoke(app, shlex.split(text)[1:])
            if result.exception is not None and not isinstance(result.exception, SystemExit):
                raise result.exception
            return result.exit_code, result.output
        done = subprocess.run(  # noqa: S603 - a command of our own pages
            ["bash", "-c", text],  # noqa: S607 - a shell is what the page is for
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=500,
        )
        return done.returncode, done.stdout

    def _python(self, text: str) -> str:
        printed = io.StringIO()
        with contextlib.chdir(self.folder), contextlib.redirect_stdout(printed), forked_servers():
            exec(compile(text, "<docs>", "exec"), self.names)  # noqa: S102 - an example of our own pages
        return printed.getvalue()

    def _cd(self, target: str) -> str:
        self.folder = (self.folder / target.replace("~", str(self.home))).resolve(strict=True)
        return ""

    def _export(self, pair: str) -> str:
        name, _, value = shlex.split(pair)[0].partition("=")
        self.environment[name] = value
        return ""

    def _pip(self, arguments: str) -> str:
        """Install the package in this folder as pip would, without a network: its modules and its entry points."""
        assert arguments == "install ."
        project = tomllib.loads((self.folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        told = self.home / "site" / f"{project['name']}-{project['version']}.dist-info"
        told.mkdir(parents=True)
        for module in self.folder.glob("*.py"):
            shutil.copy(module, told.parent)
        entries = [
            f"[{group}]\n" + "".join(f"{name} = {place}\n" for name, place in named.items())
            for group, named in project["entry-points"].items()
        ]
        (told / "entry_points.txt").write_text("".join(entries), encoding="utf-8")
        head = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
        (told / "METADATA").write_text(head, encoding="utf-8")
        before = self.environment.get("PYTHONPATH")  # of a checkout that is not the installed one
        self.environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(told.parent), before)))
        return ""

    def _npm(self, arguments: str) -> str:
        """Provide the packages of the Node.js client's lock file."""
        packages = node_modules()
        wanted = [word for word in arguments.split() if word.startswith("@")]
        assert all((packages / name).is_dir() for name in wanted)
        (self.folder / "node_modules").symlink_to(packages)
        return ""

    def _as_real(self, text: str) -> str:
        text = self.bindings.real(text).replace(ADDRESS, self.address).replace(HOME, str(self.home))
        text = text.replace(HTTP_ADDRESS, self.http_address).replace(METRICS_PORT, self.metrics_port)
        for shown, real in {**self.stand_ins, **LINES, CHECKOUT: str(PROJECT)}.items():
            text = text.replace(shown, real)
        return text

    def _as_shown(self, told: str) -> str:
        told = told.replace(self.address, ADDRESS).replace(self.http_address, HTTP_ADDRESS)
        told = re.sub(r"(?m)^(remote: .*?) +$", r"\1", told)  # git pads what a hook says
        told = re.sub(r'(?m)^\{.*"level": "warning".*\}\n', "", told)  # of the workspaces of other pages
        return told.replace(str(self.home), HOME)


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """A reader who has done the tutorial; every other page continues from there."""
    with command_folder(tmp_path_factory.mktemp("programs") / "bin") as commands:
        person = Reader(tmp_path_factory.mktemp("ada"), commands)
        try:
            person.play(TUTORIAL)
            yield person
        finally:
            person.close()


@pytest.fixture
async def servers(postgres: str, reader: Reader, tmp_path: Path) -> AsyncIterator[None]:
    """An external PostgreSQL and Qdrant, under the addresses that the pages name."""
    facts = conninfo.conninfo_to_dict(postgres)
    async with await psycopg.AsyncConnection.connect(postgres, autocommit=True) as conn:
        await conn.execute("create database docs")
    engine = EmbeddedQdrant(tmp_path / "engine")
    endpoint = await engine.start()
    reader.stand_ins = {
        POSTGRES_URL: f"postgresql://{facts['user']}@/docs?host={facts['host']}&port={facts['port']}",
        QDRANT_URL: endpoint.url,
        QDRANT_KEY: endpoint.api_key or "",
    }
    yield
    reader.stand_ins = {}
    await engine.stop()


def _with_steps() -> Iterator[Any]:
    """The pages that can be run anywhere and in any order."""
    for page in pages():
        found = steps((DOCS / page).read_text("utf-8"))
        if found and page not in {TUTORIAL, SERVERS, MODELS, WITH_TOOLS}:
            marks = [needs_node] if any(step.text.startswith("npm ") for step in found) else []
            yield pytest.param(page, marks=[*marks, pytest.mark.campaign] if marks or page == FRAMEWORKS else [])


def test_the_tutorial_works_as_it_is_written(reader: Reader) -> None:
    assert reader.bindings.known


@pytest.mark.usefixtures("servers")
def test_moving_to_other_servers_works_as_it_is_written(reader: Reader) -> None:
    reader.play(SERVERS)


@pytest.mark.parametrize("page", [MODELS, WITH_TOOLS])
def test_using_a_language_model_works_as_it_is_written(reader: Reader, page: str) -> None:
    with endpoint_in_a_thread() as endpoint:
        reader.stand_ins = {MODELS_URL: endpoint.url}
        reader.play(page)
        reader.stand_ins = {}
        assert endpoint.keys == {"the-key-of-the-models"}


@pytest.mark.parametrize("page", list(_with_steps()))
def test_every_example_of_a_page_gives_the_output_on_the_page(reader: Reader, page: str) -> None:
    reader.play(page)


@pytest.mark.parametrize("page", pages())
def test_every_block_is_run_or_cannot_be_run_and_every_link_has_a_target(page: str) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    languages = {language for language, *_ in blocks(text)}
    assert languages <= RUN | SHOWN, f"name the language of each block; {languages - RUN - SHOWN} is none of ours"
    assert not re.search(r"^[ \t]+```", text, re.MULTILINE), "a block inside a list is not run; put it at the margin"
    targets = [target.partition("#")[0] for target in _LINK.findall(text)]
    local = [target for target in targets if target and "://" not in target]
    missing = [target for target in local if not ((DOCS / page).parent / target).exists()]
    assert not missing, f"{page} links to {missing}"


def test_every_page_is_in_the_index() -> None:
    listed = set(_LINK.findall((DOCS / "README.md").read_text(encoding="utf-8")))
    assert set(pages()) - {"README.md"} <= listed
