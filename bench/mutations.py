"""Changes one small thing of a module at a time, and asks whether its tests notice.

Run as ``python bench/mutations.py PART [--count N] [--seed S]``. A change that no test notices is printed with its
line: either a test is missing there, or the change means nothing (a bound that is never met, an order that nobody
promises). The modules are changed in a copy of the project, one change at a time. SQL is changed as well as Python:
most of what the store promises is said in SQL.
"""

import argparse
import ast
import copy
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

_ROOT: Final = Path(__file__).parents[1]
_SECONDS: Final = 600
"""A change that makes the tests run longer is taken for noticed."""

_STORE: Final = "storage/memotree_storage"


@dataclass(frozen=True)
class Part:
    """A part of the write path or of search: its modules, and the tests that are asked, the fastest first."""

    modules: tuple[str, ...]
    tests: tuple[str, ...]


PARTS: Final = {
    "commit": Part(
        (f"{_STORE}/commit/session_commit.py", f"{_STORE}/mirror/tree_check.py", f"{_STORE}/commit/transaction.py"),
        (
            "tests/unit/storage/commit",
            "tests/integration/test_commits.py",
            "tests/integration/test_partial_commits.py",
            "tests/integration/test_recovered_sessions.py",
            "tests/integration/test_recovery.py",
            "tests/integration/test_forgotten_requests.py",
            "tests/integration/test_conflict_values.py",
            "tests/integration/test_node_structure.py",
            "tests/integration/test_session_edges.py",
            "tests/property/test_sessions.py",
        ),
    ),
    "merge": Part(
        (f"{_STORE}/model/merge.py",),
        (
            "tests/unit/storage/model/test_merge.py",
            "tests/unit/storage/model/test_merge_summaries.py",
            "tests/property/test_merge.py",
        ),
    ),
    "projector": Part(
        (f"{_STORE}/postgres/projector.py",),
        (
            "tests/integration/test_history.py",
            "tests/integration/test_refs.py",
            "tests/integration/test_hostile_pushes.py",
            "tests/integration/test_collection.py",
            "tests/property/test_lines.py",
        ),
    ),
    "search": Part(
        (f"{_STORE}/index/search.py",),
        (
            "tests/integration/test_searching.py",
            "tests/integration/test_overridden_versions.py",
            "tests/integration/models/test_another_model.py",
            "tests/property/test_search_alive.py",
        ),
    ),
    "settle": Part(
        (f"{_STORE}/postgres/staging.py",),
        (
            "tests/integration/test_recovered_sessions.py",
            "tests/integration/test_partial_commits.py",
            "tests/integration/test_commits.py",
            "tests/integration/test_session_edges.py",
            "tests/property/test_sessions.py",
        ),
    ),
    "outbox": Part(
        (f"{_STORE}/postgres/outbox.py", f"{_STORE}/index/indexer.py"),
        (
            "tests/integration/test_searching.py",
            "tests/integration/test_recovery.py",
            "tests/integration/test_collection.py",
            "tests/integration/test_leaf_features.py",
            "tests/integration/test_verify.py",
            "tests/property/test_search_alive.py",
        ),
    ),
    "git": Part(
        (
            f"{_STORE}/git/pack.py",
            f"{_STORE}/git/disk.py",
            f"{_STORE}/git/refs.py",
            f"{_STORE}/git/repository.py",
            f"{_STORE}/git/trees.py",
        ),
        ("tests/unit/storage/git", "tests/crash/test_power_loss.py", "tests/integration/test_refs.py"),
    ),
    "rebase": Part(
        (f"{_STORE}/commit/write_path.py", f"{_STORE}/commit/rebase.py", f"{_STORE}/commit/direct_import.py"),
        (
            "tests/integration/test_commits.py",
            "tests/integration/test_bulk.py",
            "tests/integration/test_partial_commits.py",
            "tests/integration/test_big_commits.py",
            "tests/integration/test_join_archives.py",
            "tests/property/test_sessions.py",
        ),
    ),
    "cycles": Part(
        ("memotree/canvas/moves.py", f"{_STORE}/postgres/misplaced.py"),
        (
            "tests/integration/test_node_structure.py",
            "tests/integration/test_broken_trees.py",
            "tests/integration/test_places.py",
            "tests/integration/recall/test_validity.py",
            "tests/property/test_lines.py",
        ),
    ),
}

_OTHER: Final[dict[type[ast.AST], type[Any]]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}

_IN_SQL: Final = (
    (re.compile(r"\s+and (?:not )?[\w.]+ (?:=|<>|<=|>=|<|>) [\w.%()]+(?=[\s)]|$)"), ""),
    (re.compile(r" <= "), " < "),
    (re.compile(r" < "), " <= "),
    (re.compile(r" >= "), " > "),
    (re.compile(r" > "), " >= "),
    (re.compile(r"\bnot exists\b"), "exists"),
    (re.compile(r"\bis not null\b"), "is null"),
    (re.compile(r"\bis null\b"), "is not null"),
    (re.compile(r"\band not\b"), "and"),
    (re.compile(r" desc\b"), ""),
    (re.compile(r"\bunion all\b"), "union"),
    (re.compile(r"\bdistinct "), ""),
    (re.compile(r" for update\b"), ""),
)
_IS_SQL: Final = re.compile(r"\b(?:select|update|insert|delete|where|from) ")


@dataclass(frozen=True)
class Mutation:
    """One change: the line, what it says, what it says instead, and the whole module with it."""

    line: int
    before: str
    after: str
    module: str


def mutations(source: str) -> list[Mutation]:
    """Return every change of a module, in the order of its syntax tree."""
    tree = ast.parse(source)
    said = _only_said(tree)
    found = []
    for number, node in enumerate(ast.walk(tree)):
        for change in () if id(node) in said else _changes(node):
            changed = copy.deepcopy(tree)
            place = next(each for index, each in enumerate(ast.walk(changed)) if index == number)
            before = ast.unparse(place)
            change(place)
            after = ast.unparse(place)
            if before != after:
                text = ast.unparse(ast.fix_missing_locations(changed))
                found.append(Mutation(getattr(node, "lineno", 0), before, after, text))
    return found


def _only_said(tree: ast.AST) -> set[int]:
    """The nodes of docstrings and annotations, which change nothing."""
    parts: list[ast.AST | None] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            parts.append(node.value)
        elif isinstance(node, ast.AnnAssign | ast.arg):
            parts.append(node.annotation)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            parts.append(node.returns)
    return {id(each) for part in parts if part is not None for each in ast.walk(part)}


def _changes(node: ast.AST) -> Iterator[Callable[[Any], None]]:
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _OTHER:
        yield lambda place: place.ops.__setitem__(0, _OTHER[type(place.ops[0])]())
    elif isinstance(node, ast.BoolOp) or (isinstance(node, ast.BinOp) and type(node.op) in _OTHER):
        yield lambda place: setattr(place, "op", _OTHER[type(place.op)]())
    elif isinstance(node, ast.If | ast.IfExp | ast.While):
        yield lambda place: setattr(place, "test", ast.UnaryOp(ast.Not(), place.test))
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield lambda place: setattr(place, "operand", ast.UnaryOp(ast.Not(), place.operand))
    elif _gives_value(node):
        yield lambda place: setattr(place, "value", ast.Constant(None))
    elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _IS_SQL.search(node.value):
        yield from _sql_changes(node.value)


def _gives_value(node: ast.AST) -> bool:
    """Whether it returns a value that is computed, or makes a call that needs no answer and is more than a log line."""
    if isinstance(node, ast.Return):
        return node.value is not None and not isinstance(node.value, ast.Constant)
    if not isinstance(node, ast.Expr):
        return False
    called = ast.unparse(node.value.func) if isinstance(node.value, ast.Call) else ""
    return isinstance(node.value, ast.Await) or bool(called and not called.startswith(("_log.", "faults.")))


def _sql_changes(text: str) -> Iterator[Callable[[Any], None]]:
    for pattern, other in _IN_SQL:
        for found in pattern.finditer(text):
            changed = text[: found.start()] + other + text[found.end() :]
            yield partial(_set_value, changed)


def _set_value(changed: str, place: Any) -> None:
    place.value = changed


def run(name: str, count: int, seed: int) -> dict[str, Any]:
    """Try changes of a part's modules; return how many were tried and those that no test noticed."""
    part, survivors, tried = PARTS[name], [], 0
    with tempfile.TemporaryDirectory(prefix="memotree-mutations-") as folder:
        copied = Path(folder) / "project"
        shutil.copytree(_ROOT, copied, ignore=shutil.ignore_patterns(".git", ".venv", "node_modules", "__pycache__"))
        every = [(module, found) for module in part.modules for found in mutations((copied / module).read_text())]
        if not _pass(copied, part.tests):
            raise SystemExit("The tests fail without a change.")
        for module, mutation in random.Random(seed).sample(every, min(count, len(every))):
            file = copied / module
            original = file.read_text()
            file.write_text(mutation.module)
            try:
                noticed = not _pass(copied, part.tests)
            finally:
                file.write_text(original)
            tried += 1
            if not noticed:
                survivors.append(f"{module}:{mutation.line}: {_difference(mutation)}")
                print(survivors[-1], file=sys.stderr, flush=True)
    return {"part": name, "changes there are": len(every), "tried": tried, "survived": survivors, "seed": seed}


def _pass(project: Path, tests: tuple[str, ...]) -> bool:
    """Whether the tests of a copy of the project pass."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider", *tests]
    paths = os.pathsep.join([str(project), str(project / "storage")])
    try:
        done = subprocess.run(
            command,
            cwd=project,
            env={**os.environ, "PYTHONPATH": paths},
            capture_output=True,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def _difference(mutation: Mutation) -> str:
    """What a change removes and adds, with a few characters before it."""
    before, after = mutation.before, mutation.after
    start = _same(before, after)
    end = _same(before[start:][::-1], after[start:][::-1])
    around = max(start - 30, 0)
    return f"…{before[around:start]}[{before[start : len(before) - end]} → {after[start : len(after) - end]}]"


def _same(one: str, other: str) -> int:
    """How many characters two texts have in common from their beginning."""
    pairs = zip(one, other, strict=False)
    return next((number for number, (left, right) in enumerate(pairs) if left != right), min(len(one), len(other)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=sorted(PARTS))
    parser.add_argument("--count", type=int, default=15)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(json.dumps(run(options.part, options.count, options.seed), indent=2, ensure_ascii=False))
