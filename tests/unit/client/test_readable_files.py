"""Which files of a folder are taken for documents."""

from pathlib import Path

import pytest

from memotree.client.document_files import _why_unreadable


@pytest.mark.requirement("USE-9")
@pytest.mark.parametrize(
    ("name", "head", "expected"),
    [
        ("notes.txt", b"words", True),
        ("empty.txt", b"", False),
        ("photo.jpg", b"\xff\xd8\xff\x00\x00", False),
        ("paper.pdf", b"%PDF-1.7\x00", True),
        ("Report.DOCX", b"PK\x03\x04\x14\x00\x00", True),
        ("book.epub", b"PK\x03\x04\x14\x00\x00", True),
        ("cp.1.gz", b"\x1f\x8b\x08\x00\x00", True),
        ("backup.tar.gz", b"\x1f\x8b\x08\x00\x00", False),
        ("library.zip", b"PK\x03\x04\x14\x00\x00", False),
    ],
)
def test_documents_are_told_from_other_files(tmp_path: Path, name: str, head: bytes, expected: bool) -> None:
    path = tmp_path / name
    path.write_bytes(head)
    assert (_why_unreadable(path) == "") is expected
