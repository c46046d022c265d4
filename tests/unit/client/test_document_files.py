"""Which files are ingested, and under which names."""

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memotree.client.document_files import find_files
from memotree.client.document_names import LONGEST_NAME, name_before, name_in_folder, shortened

pytestmark = pytest.mark.requirement("USE-9")

PARTS = st.text(alphabet="abc.", min_size=1, max_size=3).filter(lambda part: part not in {".", ".."})


def written(folder: Path, files: dict[str, str]) -> Path:
    """A folder with these files."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def names(folder: Path, **options: bool) -> list[str]:
    return [each.path.relative_to(folder).as_posix() for each in find_files([folder], **options).files]


def test_gitignore_files_mean_what_they_mean_to_git(tmp_path: Path) -> None:
    files = ["a.md", "a.log", "keep.log", "build/x.md", "sub/build/y.md", "sub/a.md", "sub/b.md", "sub/deep/b.md"]
    files += ["docs/c.tmp", "docs/d.tmp", "docs/own/d.tmp", "only/here.md", "other/only/here.md", "#a.md", "sp ace.md"]
    rules = {
        ".gitignore": "# a comment\n*.log\n!keep.log\nbuild/\n/only\n\\#a.md\n",
        "sub/.gitignore": "b.md\n!deep/b.md\n",
        "docs/.gitignore": "**/*.tmp\n!d.tmp\n",
    }
    top = written(tmp_path / "top", dict.fromkeys(files, "Text.") | rules)
    subprocess.run(["git", "init", "-q", str(top)], check=True)  # noqa: S603, S607 - git, with our arguments
    told = subprocess.run(  # noqa: S603 - git, with our arguments
        ["git", "-C", str(top), "-c", "core.quotepath=off", "ls-files", "-co", "--exclude-standard"],  # noqa: S607
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    wanted = {name for name in told if not name.rpartition("/")[2].startswith(".")}
    assert set(names(top)) == wanted
    assert set(names(top / "sub")) == {name.removeprefix("sub/") for name in wanted if name.startswith("sub/")}
    assert set(names(top, ignored=True)) == set(files)


def test_links_of_a_folder_are_left_out_and_hide_no_file(tmp_path: Path) -> None:
    """A folder that somebody else made must not take in what its links lead to, such as the files of a system."""
    secret = tmp_path / "secret.txt"
    secret.write_text("The password.")
    top = written(tmp_path / "top", {"a.md": "A.", "sub/b.md": "B."})
    links = {"sub/up": top, "alias.md": top / "sub" / "b.md", "gone.md": top / "nowhere", "shadow.txt": secret}
    for name, target in links.items():
        (top / name).symlink_to(target)
    found = find_files([top, top / "sub", top / "a.md"])
    assert [each.name for each in found.files] == ["top/a.md", "top/sub/b.md"]
    assert {(Path(each.path).name, each.why) for each in found.left_out} == {
        *(("up", "a link to a folder"), ("gone.md", "not a file")),
        *(("alias.md", "a link to a file"), ("shadow.txt", "a link to a file")),
    }
    assert [each.path.name for each in find_files([top / "shadow.txt"]).files] == ["shadow.txt"], "named itself"


def test_what_is_no_document_is_left_out_but_taken_if_it_is_named(tmp_path: Path) -> None:
    heads = {
        "wide.txt": "Text.".encode("utf-16"),
        "paper.pdf": b"%PDF-1.7\0",
        "damaged.PDF": b"\0%PDF-1.7",  # ingesting it fails, and says why
        **dict.fromkeys(("book.epub", "Report.DOCX", "library.zip"), b"PK\x03\x04\0"),
        **dict.fromkeys(("cp.1.gz", "backup.tar.gz"), b"\x1f\x8b\x08\0"),
        "picture.bin": b"\x89PNG\0",
        "photo.jpg": b"\xff\xd8\xff\0",
        "empty.md": b"",
    }
    for name, head in heads.items():
        (tmp_path / name).write_bytes(head)
    os.mkfifo(tmp_path / "pipe")
    found = find_files([tmp_path])
    left_out = {Path(each.path).name: each.why for each in found.left_out}
    no_text = dict.fromkeys(("picture.bin", "photo.jpg", "library.zip", "backup.tar.gz"), "not text")
    assert left_out == {"empty.md": "empty", "pipe": "not a file", **no_text}
    assert {each.path.name for each in found.files} == heads.keys() - left_out.keys()
    assert [each.path.name for each in find_files([tmp_path / "picture.bin"]).files] == ["picture.bin"]


def test_names_are_lines_of_valid_text(tmp_path: Path) -> None:
    top = written(tmp_path / "top", {"a\nb.md": "A.", "tab\t.md": "T."})
    (top / os.fsdecode(b"latin-\xe9.md")).write_text("L.")
    for each in find_files([top]).named(()).files:
        assert each.name.encode()
        assert each.name.isprintable()
    assert shortened("x/" * 200 + "a.md") != shortened("y/" * 200 + "a.md")
    assert len(shortened("x" * 500)) == LONGEST_NAME


@given(st.lists(PARTS, min_size=2, max_size=6), st.data())
def test_a_folder_and_any_part_of_it_name_a_file_alike_once_it_is_known(parts: list[str], data: st.DataObject) -> None:
    path = "/" + "/".join(parts)
    first = data.draw(st.integers(1, len(parts) - 1))
    known = {shortened(name_in_folder("/" + "/".join(parts[:first]), path))}
    again = data.draw(st.integers(first, len(parts) - 1))
    name = name_in_folder("/" + "/".join(parts[:again]), path)
    assert {name_before(path, name, known)} == known
    assert name_before(path, name, ()) == name


def test_documents_that_were_named_by_absolute_paths_keep_their_names() -> None:
    assert name_before("/x/docs/a.md", "docs/a.md", {"/x/docs/a.md", "docs/a.md"}) == "/x/docs/a.md"
