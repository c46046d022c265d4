"""A typed client in another language: TypeScript, with code that is generated from ``proto/``."""

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
from crash.service import Service, start
from integration.node_packages import FOLDER as DYNAMIC
from integration.node_packages import NODE, needs_node, node_modules

PROTO: Final = Path(__file__).parents[2] / "proto"
FOLDER: Final = Path(__file__).parent / "typescript_client"
BUF: Final = Path(sys.executable).parent / "buf"

pytestmark = [pytest.mark.campaign, needs_node]


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Service]:
    service = await start(tmp_path / "data", tmp_path / "server.log")
    try:
        yield service
    finally:
        service.kill()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with the program and the installed packages."""
    folder = tmp_path / "project"
    folder.mkdir()
    for name in ("client.ts", "package.json", "tsconfig.json", "buf.gen.yaml"):
        shutil.copyfile(FOLDER / name, folder / name)
    (folder / "node_modules").symlink_to(node_modules(FOLDER))
    return folder


async def run(folder: Path, *command: str | Path) -> tuple[int | None, str]:
    """The exit status of a program and what it wrote."""
    process = await asyncio.create_subprocess_exec(
        *command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    out, _ = await asyncio.wait_for(process.communicate(), 120)
    return process.returncode, out.decode()


async def built(folder: Path) -> tuple[int | None, str]:
    """What the compiler says about the program with the code that is generated from the contract."""
    assert await run(folder, BUF, "generate", PROTO, "--template", "buf.gen.yaml") == (0, "")
    return await run(folder, NODE or "node", folder / "node_modules" / "typescript" / "bin" / "tsc")


@pytest.mark.requirement("SERVE-1", "GIT-6")
async def test_a_typescript_program_reads_the_typed_values_of_conflicts_and_pages(
    project: Path, server: Service
) -> None:
    assert await built(project) == (0, "")
    status, out = await run(project, NODE or "node", "dist/client.js", server.address)
    assert status == 0, out
    saw: dict[str, Any] = json.loads(out)
    ids, archive = saw["ids"], saw["archive"]
    found = {(each["node"], each["field"]): (each["base"], each["ours"], each["theirs"]) for each in saw["conflicts"]}
    about = f"relations.ABOUT.{ids['apples']}"
    assert found == {
        (ids["quinces"], "title"): (["text", "Quinces"], ["text", "Quince trees"], ["text", "Quince shrubs"]),
        (ids["quinces"], "attributes.taste"): (["absence", "NONE"], ["text", "sour"], ["text", ""]),
        (ids["quinces"], "parent"): (
            ["place", [archive, "", True]],
            ["place", [archive, ids["apples"], True]],
            ["place", [archive, ids["pears"], True]],
        ),
        (ids["pears"], about): (
            ["absence", "NONE"],
            ["relation", ["ABOUT", ids["apples"], "mine"]],
            ["relation", ["ABOUT", ids["apples"], "yours"]],
        ),
        (ids["plums"], ""): (
            ["node", [ids["plums"], "Plums"]],
            ["absence", "DELETED"],
            ["node", [ids["plums"], "Damsons"]],
        ),
    }
    assert saw["pages"] == [["Apples", "Pears"], ["Damsons", "Medlars"]], "the quinces are below the pears"


@pytest.mark.requirement("SERVE-1")
async def test_the_compiler_refuses_a_field_that_the_contract_does_not_have(project: Path) -> None:
    program = project / "client.ts"
    program.write_text(program.read_text(encoding="utf-8").replace("conflict.ourValue", "conflict.ours"), "utf-8")
    status, out = await built(project)
    assert status != 0
    assert "'ours' does not exist on type 'Conflict'" in out


@pytest.mark.parametrize("folder", [FOLDER, DYNAMIC], ids=lambda folder: folder.name)
def test_the_lock_file_names_no_registry(folder: Path) -> None:
    lock = json.loads((folder / "package-lock.json").read_text(encoding="utf-8"))
    assert all("resolved" not in facts for facts in lock["packages"].values())
