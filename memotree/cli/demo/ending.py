"""The commands that the demo ends with; they work as they are printed."""

import shlex
import socket
from pathlib import Path
from typing import Final

from memotree.cli.demo.documents import DOCUMENT_BUDGET, DOCUMENT_QUESTION
from memotree.cli.demo.notes import NOTE_BUDGET, QUESTION, TAG, WORKSPACE
from memotree.cli.demo.steps import command_line, recall_command
from memotree.cli.target import DEFAULT_ADDRESS

_ANOTHER: Final = "A refund is paid within three days."


def next_commands(folder: Path) -> list[str]:
    """The command that starts a server on the data of the demo, and then those to try in another terminal.

    The environment variables lead to that server, even when another one runs with the user's own data.
    """
    server = ["serve", "--data", str(folder)]
    if not _default_ports_are_free():
        server += ["--port", "0", "--http-port", "0"]
    return [
        command_line(*server),
        f"export MEMOTREE_DATA={shlex.quote(str(folder))} MEMOTREE_WORKSPACE={WORKSPACE}",
        recall_command(QUESTION, NOTE_BUDGET),
        recall_command(QUESTION, NOTE_BUDGET, TAG),
        command_line("remember", _ANOTHER, "--title", "Refunds"),
        recall_command(DOCUMENT_QUESTION, DOCUMENT_BUDGET),
        command_line("log", "--oneline"),
    ]


def _default_ports_are_free() -> bool:
    """Whether a server could listen on the default ports now."""
    host, _, port = DEFAULT_ADDRESS.rpartition(":")
    return all(is_free(host, number) for number in (int(port), int(port) + 1))


def is_free(host: str, port: int) -> bool:
    """Whether a server could listen on this port now."""
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((host, port))
        except OSError:
            return False
    return True
