"""Changes one small thing of a module at a time, and asks whether its tests notice.

``python bench/mutations.py PART [--count N] [--seed S]`` makes random changes of syntax trees. A change that no test
notices is printed with its line: either a test is missing there, or the change means nothing (a bound that is never
met, an order that nobody promises). SQL is changed as well as Python: most of what the store promises is said in SQL.

``python bench/mutations.py --made [--room R] [--only N] [--tests-of COMMIT] [--jobs J]`` makes the mistakes that
``mutations.toml`` lists, each a mistake that a maintainer could make, and prints which test notices it. With the tests
of another commit it shows what the suite noticed there. It exits with 1 if a mistake is not noticed.

The modules are changed in a copy of the project, one change at a time.
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
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final

_ROOT: Final = Path(__file__).parents[1]
_SECONDS: Final = 600
"""A change that makes the tests run longer is taken for noticed."""

_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - a folder of its own is made there
_LIST: Final = Path(__file__).with_suffix(".toml")
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
        copied = _copied(Path(folder) / "project")
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


def _copied(project: Path) -> Path:
    shutil.copytree(_ROOT, project, ignore=shutil.ignore_patterns(".git", ".venv", "node_modules", "__pycache__"))
    return project


def _pass(project: Path, tests: tuple[str, ...]) -> bool:
    """Whether the tests of a copy of the project pass."""
    return _asked(project, ("-x", "-p", "no:cacheprovider", *tests))[0] == 0


def _asked(project: Path, arguments: tuple[str, ...]) -> tuple[int, str]:
    """Run pytest in a copy of the project; return its exit code and output, 1 if it takes too long."""
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", *arguments]
    paths = os.pathsep.join([str(project), str(project / "storage")])
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    try:
        done = subprocess.run(
            command,
            cwd=project,
            env={**environment, "PYTHONPATH": paths},
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return 1, f"FAILED to end within {_SECONDS} seconds"
    return done.returncode, done.stdout + done.stderr


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


@dataclass(frozen=True, slots=True)
class Made:
    """A mistake of the list: the text that it changes, the promise that it breaks, and the tests that notice it."""

    number: int
    room: str
    module: str
    before: str
    after: str
    breaks: str
    tests: tuple[str, ...]

    def mutated(self, source: str) -> str:
        """Return the module with the mistake.

        Raises:
            ValueError: The text to be changed does not stand exactly once in the module.
        """
        if (count := source.count(self.before)) != 1:
            raise ValueError(
                f"{self.number}: the text to be changed stands {count} times in {self.module}; quote more."
            )
        return source.replace(self.before, self.after)

    def asked(self, project: Path) -> tuple[str, ...]:
        """Return those of its tests that a copy of the project has: tests move from commit to commit."""
        found = tuple(test for test in self.tests if (project / test.partition("::")[0]).exists())
        if not found:
            raise ValueError(
                f"{self.number}: no test of {', '.join(self.tests)} exists; name the test that notices it."
            )
        return found


def made_mutations() -> list[Made]:
    """Return the mistakes of ``mutations.toml``, numbered from 1."""
    listed = tomllib.loads(_LIST.read_text())["mutation"]
    return [Made(number, **{**each, "tests": tuple(each["tests"])}) for number, each in enumerate(listed, 1)]


def run_made(chosen: list[Made], tests_of: str, jobs: int) -> int:
    """Make each mistake, print which test notices it; return how many no test notices."""
    for each in chosen:
        each.mutated((_ROOT / each.module).read_text())
    with tempfile.TemporaryDirectory(prefix="mutations-", dir=_MEMORY if _MEMORY.exists() else None) as folder:
        projects: SimpleQueue[Path] = SimpleQueue()
        for number in range(jobs):
            projects.put(_with_tests_of(tests_of, _copied(Path(folder) / str(number))))
        project = projects.get()
        code, output = _asked(project, _arguments(project, *{test for each in chosen for test in each.asked(project)}))
        projects.put(project)
        if code:
            raise SystemExit(f"The tests fail without a change:\n{output}")
        with ThreadPoolExecutor(jobs) as pool:
            noticed = list(pool.map(partial(_try, projects), chosen))
    rooms, unseen = Counter(each.room for each in chosen), Counter[str]()
    unseen.update(each.room for each, seen in zip(chosen, noticed, strict=True) if not seen)
    for room, count in [*rooms.items(), ("all", rooms.total())]:
        print(f"{room}: {count} made, {unseen.total() if room == 'all' else unseen[room]} SURVIVED")
    return unseen.total()


def _with_tests_of(commit: str, project: Path) -> Path:
    if commit:
        shutil.rmtree(project / "tests")
        archive = subprocess.run(["git", "archive", commit, "tests"], cwd=_ROOT, capture_output=True, check=True)
        subprocess.run(["tar", "-x"], cwd=project, input=archive.stdout, check=True)
    return project


def _arguments(project: Path, *tests: str) -> tuple[str, ...]:
    """How the tests are run: in the order of the files and with fixed seeds, so that the table can be repeated."""
    seeds = ("--randomly-seed=1", "--randomly-dont-reorganize", "--hypothesis-seed=1")
    return (*seeds, "-p", "no:cacheprovider", "-m", "not campaign", f"--basetemp={project}.t", *sorted(tests))


def _try(projects: "SimpleQueue[Path]", made: Made) -> bool:
    project = projects.get()
    file = project / made.module
    original = file.read_text()
    file.write_text(made.mutated(original))
    try:
        code, output = _asked(project, ("-x", *_arguments(project, *made.asked(project))))
    finally:
        file.write_text(original)
        projects.put(project)
    if code not in {0, 1}:
        raise SystemExit(f"{made.number}: the tests do not run with this change:\n{output}")
    by = re.search(r"^(?:FAILED|ERROR) (.*?)(?: - |$)", output, re.MULTILINE)
    seen = "SURVIVED" if code == 0 else f"noticed by {by[1] if by else 'an exit code'}"
    print(f"{made.number:4} {made.room:11} {made.module:56} {seen}", flush=True)
    return code == 1


def main() -> None:
    """Make random changes of a part, or the mistakes of the list."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=sorted(PARTS), nargs="?")
    parser.add_argument("--count", type=int, default=15)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--made", action="store_true", help="the mistakes of mutations.toml")
    parser.add_argument("--room", help="only those of a room")
    parser.add_argument("--only", type=int, nargs="+", help="only those of these numbers")
    parser.add_argument("--tests-of", default="", metavar="COMMIT", help="asks the tests of another commit")
    parser.add_argument("--jobs", type=int, default=1, help="how many copies of the project are asked side by side")
    options = parser.parse_args()
    if options.made == bool(options.part):
        parser.error("name a part, or --made")
    if options.part:
        print(json.dumps(run(options.part, options.count, options.seed), indent=2, ensure_ascii=False))
        return
    chosen = [
        each
        for each in made_mutations()
        if options.room in {None, each.room} and (not options.only or each.number in options.only)
    ]
    sys.exit(1 if run_made(chosen, options.tests_of, options.jobs) else 0)


if __name__ == "__main__":
    main()
