"""In a sandbox a function writes no files, sees no secrets, reaches no network, no socket, and leaves no process."""

import asyncio
import contextlib
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import slow_tools
from unit.tools.test_plugins import NoCaller, install, packages

from memotree.composition.tools import folders_of_tools
from memotree.gateways.functions import Asked, LocalFunctions
from memotree.gateways.tool_settings import tool_setting_faults
from memotree.settings import Settings
from memotree.tools.builtin.files import Files
from memotree.tools.executor import Executor, ToolFailedError, ToolLimits, ToolMemoryError, ToolTimeoutError
from memotree.tools.function_tool import FunctionTool
from memotree.tools.plugins import Plugins
from memotree.workers import sandbox as module
from memotree.workers.pool import Program
from memotree.workers.sandbox import Sandbox, find_sandbox

__all__ = ["packages"]

pytestmark = pytest.mark.requirement("TOOL-4")

needs_bubblewrap = pytest.mark.skipif(find_sandbox() is None, reason="this machine has no bubblewrap that works")


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder on disk: a sandbox has a /dev of its own, so it does not see the files of tests in /dev/shm."""
    with tempfile.TemporaryDirectory(prefix="memotree-sandbox-") as folder:
        yield Path(folder)


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A folder of a server, with a key."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "admin.key").write_text("secret", encoding="utf-8")
    (tmp_path / "tls.key").write_text("secret", encoding="utf-8")
    return tmp_path


@pytest.fixture
async def executor(secret: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Executor]:
    monkeypatch.setenv("PYTHONPATH", slow_tools.PATHS)
    hidden = [str(secret / "data"), str(secret / "tls.key"), str(secret / "missing")]
    made = Executor(ToolLimits(timedelta(seconds=60), memory=400 << 20), find_sandbox(hidden, [str(secret)]))
    yield made
    await made.close()


@contextlib.contextmanager
def greeting(listening: socket.socket) -> Iterator[None]:
    """The listener says something to whoever connects."""

    def greet() -> None:
        with contextlib.suppress(OSError), listening.accept()[0] as connection:  # or nobody comes
            connection.send(b"hello")

    threading.Thread(target=greet, daemon=True).start()
    yield
    with contextlib.suppress(OSError):
        listening.shutdown(socket.SHUT_RDWR)  # or the thread waits for ever


@pytest.fixture
def port() -> Iterator[int]:
    """A port of this machine."""
    with socket.create_server(("127.0.0.1", 0)) as listening, greeting(listening):
        yield listening.getsockname()[1]


async def run(executor: Executor, function: Any, **values: Any) -> Any:
    return (await executor.run(FunctionTool(function), values))["value"]


@needs_bubblewrap
async def test_files_are_read_and_not_written(executor: Executor, secret: Path) -> None:
    (secret / "note").write_text("a note", encoding="utf-8")
    assert await run(executor, slow_tools.read_text, path=str(secret / "note")) == "a note"
    for path in (secret / "note", secret / "new", secret / "data" / "new", Path("/etc/x"), Path("/dev/x")):
        with pytest.raises(ToolFailedError):
            await executor.run(FunctionTool(slow_tools.write_file), {"path": str(path)})
    assert (secret / "note").read_text() == "a note"
    assert not (secret / "new").exists()


@needs_bubblewrap
async def test_secrets_of_the_server_are_missing(executor: Executor, secret: Path) -> None:
    for path in (secret / "data" / "admin.key", secret / "tls.key", Path(f"/proc/{os.getpid()}/environ")):
        with pytest.raises(ToolFailedError, match=r"No such file|Permission denied"):
            await run(executor, slow_tools.read_text, path=str(path))


@pytest.fixture(params=["/tmp", "/var/tmp", "/run"])  # noqa: S108 - for sockets
def unix_socket(request: pytest.FixtureRequest) -> Iterator[str]:
    """A Unix socket in a folder where programs make theirs."""
    try:
        made = tempfile.TemporaryDirectory(dir=request.param)
    except OSError:
        pytest.skip(f"nothing can be written to {request.param}")
    with made as folder, socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"{folder}/socket")
        listening.listen()
        with greeting(listening):
            yield f"{folder}/socket"


@needs_bubblewrap
@pytest.mark.parametrize("network", [False, True])
def test_sockets_of_other_programs_are_not_there(unix_socket: str, network: bool) -> None:
    connect = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
    done = sandboxed(find_sandbox(), connect, unix_socket, network=network)
    assert done.returncode != 0
    assert "No such file" in done.stderr
    assert subprocess.run([sys.executable, "-c", connect, unix_socket], check=False).returncode == 0  # noqa: S603 - ours


def sandboxed(
    sandbox: Sandbox | None, text: str, *arguments: str, network: bool = False, **environment: str
) -> "subprocess.CompletedProcess[str]":
    """What a Python program does in a sandbox."""
    assert sandbox is not None
    variables = {**os.environ, **environment}
    command = sandbox.command([sys.executable, "-P", "-c", text, *arguments], network=network, environment=variables)
    return subprocess.run(command, env=variables, check=False, capture_output=True, text=True)  # noqa: S603 - ours


LIST = "import os, sys; print(*sorted(os.listdir(sys.argv[1])))"


@needs_bubblewrap
def test_the_folders_of_temporary_files_have_only_what_python_needs(tmp_path: Path) -> None:
    (tmp_path / "packages").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "packages" / "there.py").write_text("print('imported')", encoding="utf-8")
    (tmp_path / "link").symlink_to("packages")
    shown = f"import there; {LIST}"
    paths = {"PYTHONPATH": str(tmp_path / "link")}
    done = sandboxed(find_sandbox(), shown, str(tmp_path), **paths)
    assert done.stdout.split() == ["imported", "link", "packages"], done.stderr
    write = "open(__import__('sys').argv[1], 'w')"
    for folder in (tmp_path, tmp_path / "packages", Path("/tmp")):  # noqa: S108 - nothing is written there
        assert "Read-only file system" in sandboxed(find_sandbox(), write, str(folder / "new"), **paths).stderr


@needs_bubblewrap
async def test_folders_of_tools_are_shown_to_the_functions_of_the_server_alone(tmp_path: Path, packages: Path) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "a.txt").write_text("a note", encoding="utf-8")
    (tmp_path / "link").symlink_to(notes)
    install(packages, "looking", PACKAGE)
    executor = Executor(ToolLimits(timedelta(seconds=60)), find_sandbox(shown=[str(tmp_path / "link")]))
    files = Files((str(tmp_path / "link"),))
    try:
        for allowed in (files, files.within([str(notes)])):
            found = await executor.run(FunctionTool(allowed.read_file), {"path": "a.txt"})
            assert found["content"] == "a note"
        with pytest.raises(ToolFailedError, match="No such file"):
            await executor.run_plugin("looking", "look", {"path": str(notes / "a.txt")}, None)
    finally:
        await executor.close()


@needs_bubblewrap
def test_temporary_files_may_be_in_a_folder_of_tools_or_in_that_of_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.txt").write_text("a note", encoding="utf-8")
    (tmp_path / "data" / "temporary").mkdir(parents=True)
    for temporary in (tempfile.gettempdir(), str(tmp_path / "data" / "temporary")):
        monkeypatch.setenv("TMPDIR", temporary)
        sandbox = find_sandbox([str(tmp_path / "data")], ["/tmp", str(tmp_path)])  # noqa: S108 - it is read
        assert sandboxed(sandbox, LIST, str(tmp_path)).stdout.split() == ["a.txt", "data"]
        assert sandboxed(sandbox, LIST, str(tmp_path / "data")).stdout.split() == []


def test_folders_of_all_tools_are_shown(tmp_path: Path) -> None:
    own = {"read_file": {"folders": [str(tmp_path / "b"), str(tmp_path / "a")]}, "list_folder": {"enabled": True}}
    settings = Settings(data_folder=tmp_path, tools_folders=(tmp_path / "a",), tools_builtin=own)  # type: ignore[arg-type]  # as a file has it
    assert folders_of_tools(settings) == (str(tmp_path / "a"), str(tmp_path / "b"))


@needs_bubblewrap
async def test_a_function_reaches_no_network_sees_no_other_process_and_leaves_none(
    executor: Executor, port: int
) -> None:
    with pytest.raises(ToolFailedError, match=r"Connection refused|unreachable"):
        await run(executor, slow_tools.reach, port=port)
    assert max(await run(executor, slow_tools.show_processes)) < 20
    with pytest.raises(ToolMemoryError):
        await executor.run(FunctionTool(slow_tools.fill_memory), {})
    name = secrets.token_hex(8)
    with pytest.raises(ToolTimeoutError):
        await executor.run(FunctionTool(slow_tools.leave_behind), {"name": name})
    for _ in range(1200):
        if not running(name):
            return
        await asyncio.sleep(0.05)
    pytest.fail("what the function has started goes on")


def running(name: str) -> list[str]:
    """The processes with a name in their command."""
    found = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += [str(each)] if name.encode() in each.read_bytes() else []
        except OSError:
            continue
    return found


PACKAGE = """
import socket
from pathlib import Path
from memotree.tools import tool

@tool(category="tests", open_world=True)
def reach(port: int) -> str:
    'Connect to a port of this machine.'
    with socket.create_connection(("127.0.0.1", port), 5) as connection:
        return str(connection.recv(10), "ascii")

@tool(category="tests")
def look(path: str) -> str:
    'Read a file.'
    return Path(path).read_text()

tools = [reach, look]
"""


@needs_bubblewrap
async def test_a_tool_of_a_package_has_a_network_if_it_reaches_out(packages: Path, port: int) -> None:
    install(packages, "reaching", PACKAGE)
    executor = Executor(ToolLimits(timedelta(seconds=60)), find_sandbox())
    plugins = Plugins(executor, ())
    try:
        found = (await plugins.tools())["reach"]
        assert found.declaration.open_world
        functions = LocalFunctions([], executor, NoCaller(), plugins=plugins)
        result = await functions.run(Asked("reach", {"port": port}, "main", "", ""))
        assert result.data == {"value": "hello"}
        with pytest.raises(ToolFailedError, match=r"Connection refused|unreachable"):
            await executor.run_plugin("reaching", "reach", {"port": port}, None)
    finally:
        await executor.close()


def test_settings_that_require_a_sandbox_are_wrong_without_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not list(tool_setting_faults(Settings(data_folder=tmp_path)))
    (fault,) = tool_setting_faults(Settings(data_folder=tmp_path, tools_sandbox="required"))
    assert (fault.setting, "bubblewrap" in fault.fault) == ("tools_sandbox", True)


def test_without_the_program_or_where_it_does_not_work_there_is_no_sandbox(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_sandbox() is None
    for text in ("#!/bin/sh\nexit 1\n", "no program at all"):
        (tmp_path / "bwrap").write_text(text, encoding="utf-8")
        (tmp_path / "bwrap").chmod(0o755)
        assert find_sandbox() is None


def test_hidden_places_that_do_not_exist_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    made = Sandbox("bwrap", (str(tmp_path / "file"), str(tmp_path), str(tmp_path / "missing")))
    command = made.command(["true"])
    assert command[-2:] == ["--", "true"]
    assert str(tmp_path / "missing") not in command
    assert command[command.index(str(tmp_path)) - 1] == "--tmpfs"
    assert "--unshare-net" not in made.command(["true"], network=True)
    assert Program("m").command[-2:] == ["-m", "m"]


def options_of(sandbox: Sandbox, *wanted: str, **environment: str) -> list[tuple[str, ...]]:
    """The options of some kinds, each with its one or two arguments, in their order."""
    command = sandbox.command(["true"], environment=environment)
    sizes = {"--tmpfs": 2, "--remount-ro": 2, "--ro-bind": 3, "--symlink": 3}
    return [tuple(command[at : at + sizes[each]]) for at, each in enumerate(command) if each in wanted]


def test_a_folder_of_temporary_files_is_emptied_wherever_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary = tmp_path / "project" / "temporary"
    (temporary / "site").mkdir(parents=True)
    monkeypatch.setattr(module, "_WITH_SOCKETS", (str(tmp_path), "/missing"))
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(sys, "path", [*map(str, (tmp_path, tmp_path / "project", temporary, temporary / "site"))])
    found = options_of(Sandbox("bwrap"), "--tmpfs", "--ro-bind")
    assert [each for each in found if str(tmp_path) in each[1]] == [
        ("--tmpfs", str(tmp_path)),
        ("--ro-bind", str(tmp_path / "project"), str(tmp_path / "project")),
        ("--tmpfs", str(temporary)),
        ("--ro-bind", str(temporary / "site"), str(temporary / "site")),
    ]
    assert ("--remount-ro", str(temporary)) in options_of(Sandbox("bwrap"), "--remount-ro")


def test_what_is_needed_is_shown_in_the_memory_of_the_sandbox_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MEMORY", str(tmp_path))
    (tmp_path / "site").mkdir()
    site = str(tmp_path / "site")
    assert ("--ro-bind", site, site) in options_of(Sandbox("bwrap"), "--ro-bind", PYTHONPATH=site)


def test_links_that_lead_to_what_is_needed_are_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "real" / "site").mkdir(parents=True)
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to(tmp_path / "real")
    (tmp_path / "loop").symlink_to("loop")
    monkeypatch.setattr(module, "_WITH_SOCKETS", (str(tmp_path),))
    monkeypatch.setattr(sys, "path", [])
    named = os.pathsep.join(str(tmp_path / each) for each in ("one/../one/site", "loop/site", "missing"))
    made = options_of(Sandbox("bwrap"), "--ro-bind", "--symlink", PYTHONPATH=named)
    assert [each for each in made if str(tmp_path) in each[1] + each[2]] == [
        ("--ro-bind", str(tmp_path / "real" / "site"), str(tmp_path / "real" / "site")),
        ("--symlink", "two", str(tmp_path / "one")),
        ("--symlink", str(tmp_path / "real"), str(tmp_path / "two")),
        ("--symlink", "loop", str(tmp_path / "loop")),
    ]
