"""The peers, their pinned packages, and an environment of its own for each of them."""

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

OUT: Final = Path(__file__).parents[1] / "out"
OURS: Final = "MemoTree"

_INSTALL_SECONDS: Final = 600
_LAST_LINES: Final = 3


class NotInstalledError(Exception):
    """The packages of a peer cannot be installed; the message says why."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of peer.

    Attributes:
        name: What people call it.
        program: The module in this package that runs it.
        requirements: Pinned packages of its environment; empty if this Python runs it.
        server: The server that the bench starts for it.
    """

    name: str
    program: str
    requirements: tuple[str, ...] = ()
    server: Literal["none", "postgres", "memotree"] = "none"


PSYCOPG: Final = "psycopg[binary]==3.3.9"

KINDS: Final = (
    Kind(OURS, "memotree_program", server="memotree"),
    Kind("PostgreSQL by hand", "postgres_program", (PSYCOPG,), "postgres"),
    Kind("LangGraph store", "langgraph_program", ("langgraph-checkpoint-postgres==3.2.0", PSYCOPG), "postgres"),
    Kind("LanceDB", "lancedb_program", ("lancedb==0.40.0", "pyarrow==26.0.1")),
    Kind("mem0", "mem0_program", ("mem0ai==2.2.1", "langchain==1.5.2")),
    Kind("git program", "git_program"),
)
"""Every peer; MemoTree is the first one."""


async def python_of(kind: Kind, folder: Path = OUT / "peers") -> Path:
    """Return the Python that runs a peer; its environment is made if it is missing or has other pins.

    Args:
        kind: The peer.
        folder: Where the environments are.

    Raises:
        NotInstalledError: Its packages cannot be installed.
    """
    if not kind.requirements:
        return Path(sys.executable)
    place = folder / kind.program.removesuffix("_program")
    python, stamp = place / "venv" / "bin" / "python", place / "installed"
    wanted = "\n".join(kind.requirements)
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted and python.exists():
        return python
    place.mkdir(parents=True, exist_ok=True)
    await _run(sys.executable, "-m", "venv", "--clear", str(place / "venv"))
    await _run(str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *kind.requirements)
    stamp.write_text(wanted, encoding="utf-8")
    return python


async def _run(*command: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        output, _ = await asyncio.wait_for(process.communicate(), _INSTALL_SECONDS)
    except TimeoutError as error:
        process.kill()
        await process.wait()
        raise NotInstalledError(f"its installation took more than {_INSTALL_SECONDS} s") from error
    if process.returncode:
        said = [line for line in output.decode(errors="replace").splitlines() if not line.startswith("WARNING")]
        raise NotInstalledError(f"it cannot be installed: {' '.join(said[-_LAST_LINES:])}")
