"""The record of erasures in a repository: who erased what kind of thing, when and why, and which commits became which.

Each erasure is a commit on `ERASURES_REF` with two files: ``<id>.json`` tells about it, and ``<id>.commits`` has a line
with the old and the new id of each commit. The text itself is nowhere; a salted hash lets somebody who knows it check
that it was the one.
"""

import hashlib
import json
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Final

from memotree_storage.errors import CorruptError, NotFoundError
from memotree_storage.git.records import NewRecord, read_record, write_record
from memotree_storage.model.erasure import ERASURES_REF, ErasureTarget
from memotree_storage.model.node import is_id
from memotree_storage.model.workspace import service_signature
from memotree_storage.ports import CommitReader, CommitStore, Signature

_FOLDER: Final = "erasures"
_INDEX: Final = f"{_FOLDER}/index.json"
_ABOUT: Final = """\
# Erasures

Each file `erasures/<id>.json` tells who erased something from the whole history of this workspace, when and why. What
was erased is in none of them; `sha256` is a hash of the salt and the text, so that who knows the text can check it.
`erasures/<id>.commits` has the old and the new id of each commit that was rewritten.
"""
_LINE: Final = 82


class ErasureNotFoundError(NotFoundError):
    """There is no such erasure."""

    reason = "ERASURE_NOT_FOUND"

    def __init__(self, erasure_id: str) -> None:
        super().__init__(
            f"There is no erasure {erasure_id!r} in this workspace. List them with ListErasures.",
            "erasure",
            erasure_id,
        )


class ErasuresDamagedError(CorruptError):
    """The record of erasures cannot be read."""

    reason = "ERASURES_DAMAGED"


@dataclass(frozen=True, slots=True)
class ErasureStub:
    """What stays of an erasure.

    Attributes:
        erasure_id: Its id.
        kind: ``node``, ``field``, ``document`` or ``text``.
        by: Who asked for it.
        erased_at: When the history was rewritten.
        why: Why, in the words of who asked.
        node_ids: The nodes or archive that were named; none for a text.
        fields: The fields that were named; none for whole nodes.
        salt: Random digits, hashed with the text.
        sha256: The hash, in hex.
        commits: How many commits have another id.
        files: How many files of nodes and archives changed or went.
        tags: How many annotated tags have another id.
        signatures: How many signatures of commits and tags went, since they were of other bytes.
    """

    erasure_id: str
    kind: str
    by: str
    erased_at: str
    why: str
    node_ids: tuple[str, ...]
    fields: tuple[str, ...]
    salt: str
    sha256: str
    commits: int
    files: int
    tags: int
    signatures: int


def salted_hash(target: ErasureTarget) -> tuple[str, str]:
    """A new salt, and the hash of it and what is erased."""
    salt = secrets.token_hex(16)
    return salt, hashlib.sha256(salt.encode() + (target.text.encode() or target.encode())).hexdigest()


def write_erasure(repository: CommitStore, stub: ErasureStub, commits: Mapping[str, str], author: Signature) -> None:
    """Record an erasure; durable when this returns.

    Raises:
        RecordRacedError: Another program moved the ref at the same moment.
    """
    ids = [each.erasure_id for each in read_erasures(repository)]
    lines = "".join(f"{old} {new}\n" for old, new in sorted(commits.items()))
    files = {
        f"{_FOLDER}/{stub.erasure_id}.json": _json(asdict(stub)),
        f"{_FOLDER}/{stub.erasure_id}.commits": lines.encode(),
        _INDEX: _json([*ids, stub.erasure_id]),
    }
    message = f"Erase a {stub.kind} from the whole history\n\n{stub.why}\n"
    new = NewRecord(files, message, author, service_signature(datetime.now(UTC)))
    write_record(repository, ERASURES_REF, repository.ref(ERASURES_REF), new, _ABOUT)


def _json(value: object) -> bytes:
    return (json.dumps(value, ensure_ascii=False, indent=2) + "\n").encode()


def read_erasures(repository: CommitReader) -> list[ErasureStub]:
    """All erasures of a workspace, the oldest first.

    Raises:
        ErasuresDamagedError: The record cannot be read.
    """
    index = read_record(repository, ERASURES_REF, _INDEX)
    return [] if index is None else [read_erasure(repository, each) for each in _ids(index)]


def _ids(index: bytes) -> list[str]:
    try:
        return [each for each in json.loads(index) if is_id(each)]
    except (ValueError, TypeError) as error:
        raise ErasuresDamagedError(f"{_INDEX} on {ERASURES_REF} cannot be read; restore the ref.") from error


def read_erasure(repository: CommitReader, erasure_id: str) -> ErasureStub:
    """One erasure.

    Raises:
        ErasureNotFoundError: There is none with this id.
        ErasuresDamagedError: It cannot be read.
    """
    path = f"{_FOLDER}/{erasure_id}.json"
    data = read_record(repository, ERASURES_REF, path) if is_id(erasure_id) else None
    if data is None:
        raise ErasureNotFoundError(erasure_id)
    try:
        found = json.loads(data)
        return ErasureStub(**{**found, "node_ids": tuple(found["node_ids"]), "fields": tuple(found["fields"])})
    except (ValueError, KeyError, TypeError) as error:
        raise ErasuresDamagedError(f"{path} on {ERASURES_REF} cannot be read; restore the ref.") from error


def rewritten_commits(repository: CommitReader, erasure_id: str = "") -> dict[str, str]:
    """The present id of each commit that erasures have rewritten, by each id that it had; or those of one erasure.

    A later erasure writes the files of the earlier ones again, with its own new ids; so no chain is left to follow.

    Raises:
        ErasuresDamagedError: The record cannot be read.
    """
    index = read_record(repository, ERASURES_REF, _INDEX)
    found: dict[str, str] = {}
    for each in _ids(index) if index is not None else ():
        if erasure_id and each != erasure_id:
            continue
        data = read_record(repository, ERASURES_REF, f"{_FOLDER}/{each}.commits") or b""
        if len(data) % _LINE:
            raise ErasuresDamagedError(f"{_FOLDER}/{each}.commits on {ERASURES_REF} cannot be read; restore the ref.")
        text = data.decode("ascii", "replace")
        found.update((text[at : at + 40], text[at + 41 : at + 81]) for at in range(0, len(text), _LINE))
    return found
