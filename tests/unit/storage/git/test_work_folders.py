"""A work folder is gone when its work ends, and after a kill with the next clearing, but never while it is used."""

import subprocess
import sys
from pathlib import Path

import pytest
from memotree_storage.git.work_folders import clear_work_folders, work_folder

pytestmark = pytest.mark.requirement("USE-8")

WORKER = """
import sys
from pathlib import Path
from memotree_storage.git.work_folders import work_folder

with work_folder(Path(sys.argv[1]), "backup") as folder:
    (folder / "half.bundle").write_bytes(b"half")
    print(folder.name, flush=True)
    sys.stdin.read()
"""


def test_the_folder_of_a_living_process_is_kept_and_that_of_a_killed_one_is_removed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WORKER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as worker:  # noqa: S603 - the program above
        assert worker.stdout is not None
        folder = tmp_path / worker.stdout.readline().strip()
        clear_work_folders(tmp_path, "backup", "restore")
        assert (folder / "half.bundle").is_file()
        worker.kill()
        worker.wait()
    assert folder.is_dir()
    clear_work_folders(tmp_path, "restore")
    assert folder.is_dir()
    clear_work_folders(tmp_path, "backup", "restore")
    assert list(tmp_path.iterdir()) == []


def test_the_folder_is_removed_when_the_work_fails(tmp_path: Path) -> None:
    def fail() -> None:
        with work_folder(tmp_path, "restore") as folder:
            (folder / "file").touch()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_other_files_are_left_alone(tmp_path: Path) -> None:
    kept = [tmp_path / "monday.backup.unfinished", tmp_path / "backup.unfinished-file", tmp_path / "elsewhere"]
    kept[0].touch()
    kept[1].touch()
    kept[2].mkdir()
    (tmp_path / "backup.unfinished-link").symlink_to(kept[2])
    clear_work_folders(tmp_path, "backup")
    assert all(path.exists() for path in kept)
