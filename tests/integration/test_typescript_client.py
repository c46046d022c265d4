"""A typed client in another language: TypeScript, with code that is generated from ``proto/``."""

import asyncio
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
from crash.service import start
from integration.node_packages import FOLDER as DYNAMIC
from integration.node_packages import NODE, needs_node, node_modules

PROTO: Final = Path(__file__).parents[2] / "proto"
FOLDER: Final = Path(__file__).parent / "typescript_client"
BUF: Final = Path(sys.executable).parent / "buf"

pytestmark = [pytest.mark.campaign, needs_node]


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


@pytest.mark.requirement("SERVE-1", "GIT-6")
async def test_a_typescript_program_reads_the_typed_values_of_conflicts_and_pages(
    project: Path, tmp_path: Path
) -> None:
    assert await run(project, BUF, "generate", PROTO, "--template", "buf.gen.yaml") == (0, "")
    assert await run(project, NODE or "node", "node_modules/typescript/bin/tsc") == (0, ""), "the types fit"
    service = await start(tmp_path / "data", tmp_path / "server.log")
    try:
        status, out = await run(project, NODE or "node", "dist/client.js", service.address)
    finally:
        service.kill()
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


@pytest.mark.parametrize("folder", [FOLDER, DYNAMIC], ids=lambda folder: folder.name)
def test_the_lock_file_names_no_registry(folder: Path) -> None:
    lock = json.loads((folder / "package-lock.json").read_text(encoding="utf-8"))
    assert all("resolved" not in facts for facts in lock["packages"].values())
