"""Files in allowed folders, and every way out of these that could be thought of."""

import base64
import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from memotree_storage.errors import MemoTreeError

from memotree.tools.builtin import files as module
from memotree.tools.builtin.files import MOST_BYTES, FileNotAllowedError, FileNotReadableError, Files, NoSuchFileError
from memotree.tools.function_tool import FunctionTool
from memotree.tools.results import as_text

pytestmark = pytest.mark.requirement("TOOL-6")

OTHERS = "what another wrote"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret.txt").write_text(OTHERS, encoding="utf-8")
    return folder


@pytest.fixture
def shelf(tmp_path: Path, outside: Path) -> Path:
    folder = tmp_path / "shelf"
    (folder / "sub" / "deep").mkdir(parents=True)
    (folder / "a.txt").write_text("hello", encoding="utf-8")
    (folder / "sub" / "b.txt").write_text("below", encoding="utf-8")
    (folder / ".hidden").write_text(OTHERS, encoding="utf-8")
    (folder / "sub" / ".git").mkdir()
    (folder / "sub" / ".git" / "config").write_text(OTHERS, encoding="utf-8")
    (folder / "in").symlink_to(folder / "sub" / "b.txt")
    (folder / "up").symlink_to("sub/../a.txt")
    (folder / "to_hidden").symlink_to(".hidden")
    (folder / "out").symlink_to(outside)
    (folder / "out.txt").symlink_to(outside / "secret.txt")
    (folder / "out_by_dots").symlink_to("../outside/secret.txt")
    (folder / "loop").symlink_to("loop")
    (folder / "dangling").symlink_to(outside / "nothing")
    (folder / "proc").symlink_to("/proc/self/environ")
    return folder


@pytest.fixture
def files(shelf: Path) -> Files:
    return Files((str(shelf),))


def test_a_file_is_read(files: Files, shelf: Path) -> None:
    relative = ("a.txt", "./a.txt", "sub/../a.txt", "sub//..//a.txt", "up")
    for path in (*relative, f"{shelf}/a.txt", f"{shelf}/../shelf/a.txt"):
        found = files.read_file(path)
        assert (found["content"], found["size"], found["path"]) == ("hello", 5, path)
        assert "next_offset" not in found
    assert files.read_file("in")["content"] == "below"


def test_no_spelling_leads_out_of_the_folder(files: Files, shelf: Path, outside: Path) -> None:
    for path in (
        *("../outside/secret.txt", "sub/../../outside/secret.txt", "sub/deep/../../../outside/secret.txt"),
        *("./.././outside/secret.txt", "..//outside//secret.txt", "nothing/../../outside/secret.txt"),
        *("a.txt/../../outside/secret.txt", "out/secret.txt", "out/../outside/secret.txt", "out.txt", "out_by_dots"),
        *("sub/../out.txt", "dangling", "proc", "/etc/passwd", "//etc/passwd", "/proc/self/environ"),
        *("/proc/self/root/etc/passwd", "/proc/self/cwd", "/dev/zero", "/dev/stdin", f"{outside}/secret.txt"),
        *(f"{shelf}/../outside/secret.txt", f"{shelf}x/secret.txt", f"{shelf}/out.txt", f"{shelf}/sub/.git/config"),
        *(".hidden", "to_hidden", "sub/.git/config", "..", "../", "/", "~root/.bashrc", "loop"),
    ):
        for call in (files.read_file, files.list_folder):
            with pytest.raises((FileNotAllowedError, NoSuchFileError, FileNotReadableError)) as refused:
                call(path)
            assert OTHERS not in str(refused.value)


def test_what_only_looks_like_a_way_out_is_a_name(files: Files) -> None:
    for path in (
        *(quote("../outside/secret.txt", safe=""), "..%2foutside/secret.txt", "..\\outside\\secret.txt"),
        *("\uff0e\uff0e/outside/secret.txt", "..\u2215outside\u2215secret.txt", "....//outside/secret.txt"),
        *("..;/outside/secret.txt", "file:///etc/passwd", "a.txt\n../outside/secret.txt", "\udc80", "x" * 4096),
        *("/" + "x/" * 2000, "nothing", "sub/nothing", "a.txt/more"),
    ):
        with pytest.raises(MemoTreeError) as refused:
            files.read_file(path)
        assert refused.value.reason in {"FILE_NOT_ALLOWED", "FILE_NOT_FOUND", "FILE_NOT_READABLE"}, path
        assert "\n" not in refused.value.message
        refused.value.message.encode()
    with pytest.raises(MemoTreeError) as refused:
        files.read_file("a.txt\0.png")
    assert refused.value.reason == "INVALID_ARGUMENT"


def test_whether_a_file_exists_outside_is_not_told(files: Files, outside: Path) -> None:
    told = set()
    for name in ("secret.txt", "nothing.txt"):
        with pytest.raises(FileNotAllowedError) as refused:
            files.read_file(str(outside / name))
        told.add(refused.value.message.replace(name, ""))
    assert len(told) == 1


Swap = Callable[[Path, Path], None]


def swap_file(shelf: Path, outside: Path) -> None:
    (shelf / "sub" / "b.txt").unlink()
    (shelf / "sub" / "b.txt").symlink_to(outside / "secret.txt")


def swap_folder(shelf: Path, outside: Path) -> None:
    (outside / "b.txt").write_text(OTHERS, encoding="utf-8")
    (shelf / "sub").rename(shelf / "moved")
    (shelf / "sub").symlink_to(outside)


def swap_above(shelf: Path, outside: Path) -> None:
    """Put a link above the folder of a role."""
    (outside / "deep").mkdir()
    (outside / "deep" / "c.txt").write_text(OTHERS, encoding="utf-8")
    swap_folder(shelf, outside)


@pytest.mark.parametrize(
    ("swap", "folder", "path"),
    [(swap_file, "", "sub/b.txt"), (swap_folder, "", "sub/b.txt"), (swap_above, "sub/deep", "c.txt")],
)
def test_a_link_that_is_put_there_after_the_check_leads_nowhere(
    shelf: Path, outside: Path, swap: Swap, folder: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (shelf / "sub" / "deep" / "c.txt").write_text("deep", encoding="utf-8")
    files = Files((str(shelf),)).within([str(shelf / folder)])
    assert files.read_file(path)["content"] in {"below", "deep"}
    place = Files._place

    def swapped(self: Files, path: str) -> Any:
        found = place(self, path)
        swap(shelf, outside)
        return found

    monkeypatch.setattr(Files, "_place", swapped)
    with pytest.raises((FileNotAllowedError, FileNotReadableError)):
        files.read_file(path)


@pytest.mark.parametrize("swap", [swap_file, swap_folder])
def test_a_link_that_is_put_there_between_look_and_opening_leads_nowhere(
    files: Files, shelf: Path, outside: Path, swap: Swap, monkeypatch: pytest.MonkeyPatch
) -> None:
    look, done = module._refuse_special, []

    def looked(path: str, known: os.stat_result, *, is_last: bool) -> None:
        look(path, known, is_last=is_last)
        if is_last is (swap is swap_file) and not done:
            done.append(swap(shelf, outside))

    monkeypatch.setattr(module, "_refuse_special", looked)
    with pytest.raises((FileNotAllowedError, FileNotReadableError, NoSuchFileError)):
        files.read_file("sub/b.txt")
    assert done


def test_a_link_above_the_folder_of_a_role_leads_nowhere(files: Files, shelf: Path, outside: Path) -> None:
    (shelf / "sub" / "deep" / "c.txt").write_text("deep", encoding="utf-8")
    limited = files.within([str(shelf / "sub" / "deep")])
    assert limited.read_file("c.txt")["content"] == "deep"
    assert limited.list_folder(str(shelf / "sub" / "deep"))["entries"][0]["name"] == "c.txt"
    swap_above(shelf, outside)
    for narrower in (limited, limited.within(limited.folders), files.within([str(shelf / "sub" / "deep")])):
        for path in ("c.txt", f"{shelf}/sub/deep/c.txt", f"{outside}/deep/c.txt"):
            with pytest.raises((FileNotAllowedError, NoSuchFileError)):
                narrower.read_file(path)


def test_devices_pipes_and_sockets_are_not_opened(files: Files, shelf: Path) -> None:
    os.mkfifo(shelf / "pipe")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(shelf / "socket"))
        for name in ("pipe", "socket"):
            with pytest.raises(FileNotReadableError, match="no regular file"):
                files.read_file(name)
            with pytest.raises(FileNotReadableError):
                files.list_folder(name)
    devices = Files(("/dev",))
    for name in ("zero", "null", "tty", "random"):
        with pytest.raises((FileNotReadableError, NoSuchFileError)):
            devices.read_file(name)


def test_the_data_of_the_server_is_not_read_even_in_an_allowed_folder(shelf: Path, tmp_path: Path) -> None:
    kept = shelf / "data"
    kept.mkdir()
    (kept / "keys").write_text(OTHERS, encoding="utf-8")
    (shelf / "memotree.toml").write_text(OTHERS, encoding="utf-8")
    (tmp_path / "alias").symlink_to(kept)
    excluded = (str(tmp_path / "alias"), str(shelf / "memotree.toml"), str(tmp_path / "nothing"))
    os.link(shelf / "memotree.toml", shelf / "linked.toml")
    for folders in ((str(shelf),), (str(kept),), ("/",)):
        files = Files(folders, excluded)
        for path in (kept / "keys", shelf / "memotree.toml", shelf / "linked.toml"):
            with pytest.raises(FileNotAllowedError):
                files.read_file(str(path))
        with pytest.raises(FileNotAllowedError):
            files.list_folder(str(kept))
    assert Files((str(shelf),), excluded).read_file("a.txt")["content"] == "hello"


def test_a_file_is_read_page_by_page(files: Files, shelf: Path) -> None:
    text = "aé€😀" * 1000
    (shelf / "long.txt").write_text(text, encoding="utf-8")
    for size in (16, 17, 18, 19, 1000):
        read, offset = "", 0
        while True:
            page = files.read_file("long.txt", offset, size)
            read += page["content"]
            if "next_offset" not in page:
                break
            offset = page["next_offset"]
        assert read == text
    assert files.read_file("long.txt", 2)["offset"] == 3, "it begins with a whole character"
    assert files.read_file("long.txt", 10**9)["content"] == ""
    with pytest.raises(FileNotReadableError, match="is a folder"):
        files.read_file("sub")


def test_other_bytes_are_read_in_base_64(files: Files, shelf: Path) -> None:
    data = bytes(range(256)) * 10
    (shelf / "bytes").write_bytes(data)
    (shelf / "large").write_bytes(b"x" * (MOST_BYTES + 1))
    with pytest.raises(FileNotReadableError, match="base64"):
        files.read_file("bytes")
    assert base64.b64decode(files.read_file("bytes", encoding="base64")["content"]) == data[: 1 << 14]
    page = files.read_file("large", most_bytes=MOST_BYTES)
    assert (len(page["content"]), page["next_offset"]) == (MOST_BYTES, MOST_BYTES)


def test_a_folder_is_listed_page_by_page_without_what_is_hidden(files: Files, shelf: Path) -> None:
    assert files.list_folder() == {"folders": [str(shelf)]}
    names, after = [], ""
    while True:
        page = files.list_folder(".", 3, after)
        names += [(entry["name"], entry["kind"]) for entry in page["entries"]]
        if "next_after" not in page:
            break
        after = page["next_after"]
    assert names == sorted(names)
    assert dict(names)["sub"] == "folder"
    assert dict(names)["a.txt"] == "file"
    assert dict(names)["out"] == "link"
    assert not [name for name, _ in names if name.startswith(".")]
    with pytest.raises(FileNotReadableError, match="is no folder"):
        files.list_folder("a.txt")
    assert files.list_folder("sub")["entries"][0]["size"] == 5


def test_a_folder_with_names_that_are_no_text_is_listed_to_its_end(files: Files, shelf: Path) -> None:
    for name in (b"sub/deep/\xe9t\xe9", b"sub/deep/\xe8", b"sub/deep/a", b"sub/deep/z", b"sub/deep/" + b"\xff" * 255):
        (shelf / os.fsdecode(name)).touch()
    names, after = [], ""
    for _ in range(5):
        page = json.loads(as_text(files.list_folder("sub/deep", 1, after)))
        names += [entry["name"] for entry in page["entries"]]
        after = page.get("next_after", "")
        assert FunctionTool(files.list_folder).signature.read({"path": "sub/deep", "after": after})[1] == []
    assert after == ""
    assert sorted(names) == ["\\udce8", "\\udce9t\\udce9", "\\udcff" * 255, "a", "z"]
    assert names == sorted(names)


def test_a_relative_path_is_looked_for_in_each_folder(shelf: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "c.txt").write_text("there", encoding="utf-8")
    files = Files((str(shelf), str(other)))
    assert files.read_file("c.txt")["content"] == "there"
    assert files.read_file("a.txt")["content"] == "hello"
    with pytest.raises(NoSuchFileError):
        files.read_file("d.txt")
    with pytest.raises(NoSuchFileError):
        Files((str(tmp_path / "gone"),)).read_file("a.txt")


PARTS = st.lists(
    st.sampled_from(["..", ".", "", "sub", "out", "in", "a.txt", "secret.txt", "outside", "shelf", "\0", "é"])
)


@given(parts=PARTS, absolute=st.booleans())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_path_of_known_parts_leads_out(files: Files, shelf: Path, parts: list[str], absolute: bool) -> None:
    path = "/".join([str(shelf) if absolute else ".", *parts])
    try:
        assert files.read_file(path)["content"] != OTHERS
    except MemoTreeError as refused:
        assert OTHERS not in refused.message  # noqa: PT017 - either is right
