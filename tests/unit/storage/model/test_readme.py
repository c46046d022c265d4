"""The README of a repository names the version of its layout."""

import pytest
from memotree_storage.model.readme import FORMAT_VERSION, describe_layout, raise_version, read_format_version


def test_a_readme_of_this_version_or_without_one_is_not_changed() -> None:
    assert read_format_version(describe_layout()) == FORMAT_VERSION == 2
    assert read_format_version(b"\xff nothing") is None
    for readme in (describe_layout(), b"", b"# Notes\n", b"Format version: 999\n", b"\xff"):
        assert raise_version(readme) is None


@pytest.mark.parametrize("ending", ["\n", "\r\n", ""])
def test_in_a_readme_that_a_person_edited_only_the_version_changes(ending: str) -> None:
    edited = f"# Ours{ending}\nFormat version: 1{ending}\nFormat version: 1{ending}".encode()
    raised = raise_version(edited)
    assert raised == edited.replace(b": 1", b": %d" % FORMAT_VERSION, 1)
    assert read_format_version(raised) == FORMAT_VERSION


def test_the_readme_of_version_1_becomes_the_present_one() -> None:
    assert raise_version(README_1.encode()) == describe_layout()
    assert b"-its-title.md" in describe_layout()


README_1 = """\
# A MemoTree workspace

This repository holds knowledge as a tree of small Markdown files. Each commit is one change that a person or an agent
made on purpose; the history is the record of who knew what, and when. Everything is plain text: `git log`, `git show`,
`git blame` and `git clone` work as in any other repository.

Format version: 1

## Where things are

| Path | What it is |
|---|---|
| `nodes/ab/cd/abcd….md` | one node: a piece of knowledge. The folders are the first four characters of its id |
| `archives/….md` | one archive: a tree of nodes (or several) that belongs to one agent or model |

A node never changes its path, so `git log -- nodes/ab/cd/abcd….md` is its whole life. Where it hangs in the tree is
recorded in the line `parent:` of the file, not by the folder.

## What a node looks like

    ---
    id: 7xk2m9qd4tnvw0ha
    archive: c41hz8rjy6ksm3pe
    parent: 0d9vq2fgw7bnx5tj
    position: a1Zk
    type: note
    title: Why we chose Git
    brief: One line about it
    summary: A paragraph about it
    tags:
      - decision
    attributes:
      status: accepted
    relations:
      - SUPERSEDES 5sc6yp1ewk8mz3rb because the old store lost its history
    ---
    The content, in Markdown, as long as it needs to be.

| Key | Meaning |
|---|---|
| `id` | 16 characters, chosen at random, the same for ever |
| `archive` | the id of the archive that the node belongs to |
| `parent` | the id of the node above it; a root has none |
| `position` | orders the nodes below one parent, by plain comparison of the characters |
| `type` | what kind of knowledge it is |
| `title`, `brief`, `summary` | the node in a few words, in one line, in one paragraph |
| `tags`, `attributes` | words to find it by, and free keys with values |
| `relations` | arrows to other nodes: type, the id of the target, and why |
| `source` | the document that the text was taken from, and where in it |

An archive's file has `id`, `name`, `model` and `attributes`, and its description as the text below.

## Changing files by hand

Edit, commit and push as you like: MemoTree reads what you commit, and reports a file that it cannot read. Keep the `id`
line and the file's name as they are. To make a new node, copy a file, choose a new id and rename the file to match.
"""
