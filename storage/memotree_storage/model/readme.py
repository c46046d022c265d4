"""The README of a workspace's repository: it explains the layout to people who clone it, and names its version."""

import re
from hashlib import sha1
from typing import Final

FORMAT_VERSION: Final = 2
"""The version of the repository layout and file format; a reader refuses a repository with a greater version.

In version 1, a file was named by its id alone. Such files are read as ever, and a branch gets version 2 with the first
commit that MemoTree makes on it: a reader of version 1 would take a file with a title in its name for no node at all.
"""

README_PATH: Final = "README.md"
"""The path of the file that `describe_layout` writes."""

_VERSION_LINE: Final = re.compile(r"^Format version: ([0-9]{1,9})\s*$", re.MULTILINE)
_README_1: Final = "f97258cbfd191e93d0b6bcd5198c8d1d0c855f6d"
"""The SHA-1 of the README of version 1."""


def describe_layout() -> bytes:
    """Return the README for the root of a workspace's repository; it names the format version."""
    return _README.format(version=FORMAT_VERSION).encode()


def read_format_version(readme: bytes) -> int | None:
    """Return the format version that a README of `describe_layout` names; ``None`` if it does not name one."""
    found = _VERSION_LINE.search(readme.decode("utf-8", "replace"))
    return int(found[1]) if found else None


def raise_version(readme: bytes) -> bytes | None:
    """Return the README of an older version as this version has it; ``None`` if it needs no change.

    If a person has edited it, only the number is replaced.
    """
    version = read_format_version(readme)
    if version is None or version >= FORMAT_VERSION:
        return None
    if sha1(readme, usedforsecurity=False).hexdigest() == _README_1:
        return describe_layout()
    return re.sub(rb"(?m)^(Format version: )[0-9]{1,9}", rb"\g<1>%d" % FORMAT_VERSION, readme, count=1)


_README: Final = """\
# A MemoTree workspace

This repository holds knowledge as a tree of small Markdown files. Each commit is one change that a person or an agent
made on purpose; the history is the record of who knew what, and when. Everything is plain text: `git log`, `git show`,
`git blame` and `git clone` work as in any other repository.

Format version: {version}

## Where things are

| Path | What it is |
|---|---|
| `nodes/ab/cd/abcd…-its-title.md` | one node: a piece of knowledge. The folders are the start of its id |
| `archives/…-its-name.md` | one archive: a tree of nodes (or several) that belongs to one agent or model |

The name of a file is an id of 16 characters, which never changes, and the title, which may. So
`git log -- 'nodes/ab/cd/abcd…*'` (quoted, with the whole id and a star) is the whole life of a node. Where it hangs in
the tree is recorded in the line `parent:` of the file, not by the folder. If git prints titles as `\\346\\226…`, run
`git config core.quotePath false`.

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
line and the id in the file's name as they are. After the id, a name may say anything or nothing; MemoTree writes the
present title there when it next changes the file. Only one file may have an id. To make a new node, copy a file, choose
a new id and rename the file to match.
"""
