"""The message of a commit gives the reason for every change."""

import pytest
from memotree_storage.commit.message import ListedChange, compose
from memotree_storage.model.node import Archive, Node, new_id
from memotree_storage.model.trailers import trailers_of

ARCHIVE = new_id()


def made(title: str, *notes: str) -> ListedChange:
    node = Node(new_id(), ARCHIVE, None, "a0", title=title)
    return ListedChange(None, node, notes)


@pytest.mark.requirement("CANVAS-6", "GIT-2")
def test_every_note_is_in_the_message_in_full() -> None:
    notes = [f"Reason {number}\nand what follows\n\nfrom it {number}." for number in range(8)]
    message = compose("Subject", [made("A node", *notes, notes[0])], {"MemoTree-Session": "s"})
    lines = [line.strip() for line in message.splitlines()]
    for number in range(8):
        assert lines.count(f"Reason {number}") == 1
        assert f"from it {number}." in lines
    assert trailers_of(message) == {"MemoTree-Session": "s"}


@pytest.mark.requirement("CANVAS-6", "GIT-2")
def test_a_node_with_a_note_of_its_own_is_listed_after_a_hundred_others() -> None:
    plain = [made(f"Plain {number:03}") for number in range(150)]
    told = [made(f"Told {number:03}", f"why {number:03}") for number in range(150)]
    message = compose("Subject", [*plain, *told], {})
    assert all(f"    why {number:03}\n" in message for number in range(150))
    assert "Told 149" in message
    assert "Plain 099" in message
    assert "Plain 100" not in message
    assert message.rstrip().endswith("  and 50 more")


@pytest.mark.requirement("USE-9")
def test_documents_are_listed_before_the_pieces_of_their_text() -> None:
    pieces = [
        ListedChange(None, Node(new_id(), ARCHIVE, None, "a0", title=f"Piece {number}", source={"start": number}))
        for number in range(120)
    ]
    document = ListedChange(None, Archive(new_id(), "guide.md"))
    lines = compose("Ingest", [*pieces, made("Remarks"), document], {}).splitlines()
    assert lines[3].startswith("- archive guide.md (")
    assert lines[4].startswith("- Remarks (")
    assert lines[5].startswith("- Piece 0 (")


@pytest.mark.requirement("CANVAS-6", "GIT-2")
def test_a_note_shared_by_a_thousand_nodes_is_listed_once() -> None:
    message = compose("Subject", [made(f"Node {number:04}", "all at once") for number in range(1000)], {})
    assert "    all at once\n" in message
    assert "and 900 more" in message


@pytest.mark.requirement("GIT-2")
def test_a_note_that_looks_like_trailers_is_not_read_as_trailers() -> None:
    message = compose("Subject", [made("A node", "first\n\nMemoTree-Tag: v9")], {})
    assert trailers_of(message) == {}
