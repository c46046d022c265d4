"""Commits in an order in which they can be replayed: parents before children."""

from collections.abc import Callable, Sequence

from memotree_storage.git.database import ObjectDatabase
from memotree_storage.git.objects import COMMIT, parse_commit, raw_id
from memotree_storage.ports import CommitParents


def walk_history(database: ObjectDatabase, tips: Sequence[str], known: Callable[[str], bool]) -> list[CommitParents]:
    """Return all commits that the tips reach and that are not known, each once, parents before children.

    Walks depth-first, first parents first, so that a first-parent chain comes out in one piece as far as the order
    allows. The walk has its own stack, since histories are deeper than Python can recurse. It does not go past a known
    commit. Tips may be annotated tags; a tip that does not lead to a commit is skipped. Only the ids are kept, since
    anybody may push many commits with long messages.

    Raises:
        ObjectMissingError: A tip or a parent is missing from the repository.
    """
    found: list[CommitParents] = []
    settled: set[str] = set()
    waiting: dict[str, CommitParents] = {}
    ids: dict[str, str] = {}
    for tip in tips:
        peeled, kind, _ = database.peel(raw_id(tip, "commit"))
        stack = [peeled.hex()] if kind == COMMIT else []
        while stack:
            commit_id = stack[-1]
            commit = waiting.pop(commit_id, None)
            if commit is not None:
                found.append(commit)
                settled.add(commit_id)
            elif commit_id not in settled and known(commit_id):
                settled.add(commit_id)
            if commit_id in settled:
                stack.pop()
                continue
            data = database.read_kind(raw_id(commit_id, "commit"), COMMIT, "commit")
            parents = tuple(ids.setdefault(parent, parent) for parent in parse_commit(commit_id, data).parents)
            waiting[commit_id] = CommitParents(ids.setdefault(commit_id, commit_id), parents)
            stack.extend(parent for parent in reversed(parents) if parent not in settled)
    return found
