"""Reads a text from an option, a file, stdin or an editor."""

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from memotree.cli.errors import CliError, FileError


class TwoSourcesError(CliError):
    """The text was given by two options."""

    reason = "TWO_SOURCES"


class EditorError(CliError):
    """The editor could not be started or failed."""

    reason = "EDITOR_FAILED"


def read_content(content: str | None, file: str | None, *, edit: bool = False, present: str = "") -> str | None:
    """The text that the options give, or ``None`` if they give none.

    Args:
        content: The text itself; ``-`` reads stdin.
        file: A path; ``-`` reads stdin.
        edit: Whether the text (or the ``present`` one) is opened in an editor.
        present: The text that the editor shows if no other text is given.
    """
    if content is not None and file is not None:
        raise TwoSourcesError("Give the text once: by --content or by --file.")
    text = content
    if file is not None:
        text = _stdin() if file == "-" else _read(Path(file))
    elif content == "-":
        text = _stdin()
    return _edited(present if text is None else text) if edit else text


def _decoded(data: bytes, name: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FileError(f"{name} is not UTF-8 text (byte {error.start}); convert it first.") from None


def _stdin() -> str:
    return _decoded(sys.stdin.buffer.read(), "stdin")


def _read(path: Path) -> str:
    try:
        return _decoded(path.read_bytes(), str(path))
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror}.") from None


def edit(text: str, name: str) -> str:
    """``text`` after the user has edited it in their editor, in a file of the given name.

    Raises:
        EditorError: The editor cannot be started, or failed.
    """
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_text(text, encoding="utf-8", newline="")
        if sys.stderr.isatty():
            sys.stderr.write(f"Waiting for the editor {editor} ($EDITOR chooses another); save and close to go on.\n")
        try:
            ended = subprocess.run([*shlex.split(editor), str(path)], check=False)  # noqa: S603 - the user's own editor
        except OSError as error:
            raise EditorError(f"The editor {editor} cannot be started ({error.strerror}); set $EDITOR.") from None
        if ended.returncode:
            raise EditorError(f"The editor {editor} ended with exit code {ended.returncode}; nothing was changed.")
        return _read(path)


def _edited(text: str) -> str:
    """``text`` after the user has edited it; its line ends stay those that it had.

    An editor ends the last line and may write other line ends. So a text whose lines all end with CRLF keeps that, and
    one without a last line end gets none.
    """
    written = edit(text, "node.md")
    if text and "\n" not in text.replace("\r\n", ""):
        ends_with_crlf = "\r\n" in text
        written = written.replace("\r\n", "\n").replace("\n", "\r\n") if ends_with_crlf else written
    if text.endswith("\n"):
        return written
    return written.removesuffix("\r\n") if written.endswith("\r\n") else written.removesuffix("\n")
