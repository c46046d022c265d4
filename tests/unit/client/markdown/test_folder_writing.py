"""A folder is the old export or the new one, whenever the program that writes it is killed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from memotree.client.markdown.folder_writing import ExportFolderError, FolderWriting
from memotree.client.markdown.manifest import Manifest, digest_of, read_manifest

pytestmark = pytest.mark.requirement("GIT-11")

MANIFEST = Manifest("w", "c", ("a",))


class KilledError(Exception):
    """Stands for a kill: nothing runs after it."""


def written(folder: Path, text: str, *, replace: bool = False) -> None:
    writing = FolderWriting(folder, replace=replace)
    writing.write("a.md", text.encode())
    writing.write("a/b.md", text.encode())
    writing.finish(MANIFEST)


def contents(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): path.read_text()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "memotree-export.json"
    }


def killing(real: Callable[..., Any], left: list[int]) -> Callable[..., Any]:
    def call(*args: Any, **options: Any) -> Any:
        if left[0] == 0:
            raise KilledError
        left[0] -= 1
        return real(*args, **options)

    return call


@pytest.mark.parametrize("steps", range(8))
def test_a_kill_at_any_rename_leaves_one_whole_export(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    folder = tmp_path / "export"
    written(folder, "old")
    (folder / ".git").mkdir()
    (folder / ".git/HEAD").write_text("ref")
    (folder / "a/picture.png").write_text("png")
    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", killing(Path.rename, [steps]))
        try:
            written(folder, "new")
        except KilledError:
            assert steps < 4
    writing = FolderWriting(folder)  # the next export, which recovers first
    writing.clear()
    found = contents(folder)
    assert found.pop(".git/HEAD") == "ref"
    assert found.pop("a/picture.png") == "png"
    assert found in ({"a.md": "old", "a/b.md": "old"}, {"a.md": "new", "a/b.md": "new"})
    manifest = read_manifest(folder)
    assert manifest is not None
    assert manifest.digest == digest_of(folder)
    assert [path.name for path in tmp_path.iterdir()] == ["export"]


def test_an_export_that_fails_leaves_nothing_and_a_hidden_folder_of_somebody_else_stays(tmp_path: Path) -> None:
    writing = FolderWriting(tmp_path / "export")
    writing.write("a.md", b"text")
    writing.clear()
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "vault" / ".obsidian").mkdir(parents=True)
    written(tmp_path / "vault", "new")
    assert (tmp_path / "vault" / ".obsidian").is_dir()


def test_a_file_or_link_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path)
    for name, told in {"file": "is no folder", "link": "is no folder", "file/export": "cannot be written"}.items():
        with pytest.raises(ExportFolderError, match=told):
            FolderWriting(tmp_path / name)
