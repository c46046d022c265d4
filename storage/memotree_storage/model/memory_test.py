"""A memory test: a question to the memory, and what the answer must and must not have.

Memory tests are files of a branch, ``memory-tests/<name>.yaml``, so they are versioned, merged and reviewed with the
memory that they are about, and people may write them with git.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from memotree_storage.errors import FieldViolation, InvalidInputError
from memotree_storage.model.front_matter_parsing import FrontMatterError, Tree, parse_front_matter
from memotree_storage.model.node import is_id
from memotree_storage.model.scalars import write_scalar
from memotree_storage.model.validation import text_faults

FOLDER: Final = "memory-tests/"
MOST_TOKENS: Final = 200_000
MOST_ITEMS: Final = 20

_SUFFIX: Final = ".yaml"
_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?")
_MOST_BYTES: Final = 256 << 10
_QUESTION_CHARS: Final = 8192
_TEXT_CHARS: Final = 2000
_LISTS: Final = ("nodes", "texts", "unwanted", "archives")


class InvalidMemoryTestError(InvalidInputError):
    """A memory test breaks a rule."""

    reason = "INVALID_MEMORY_TEST"


@dataclass(frozen=True, slots=True)
class MemoryTest:
    """A question, and what Recall must find for it.

    Attributes:
        name: That of its file, without folder and suffix.
        question: The question.
        nodes: The ids of nodes or archives that the answer must cite: each, or a node below it.
        texts: What the answer must have; letter case and white space do not count.
        unwanted: What it must not have, likewise.
        budget: The most tokens of the answer; 0 for the default.
        archives: The archives that are asked, by id or name; all if there are none.
    """

    name: str
    question: str
    nodes: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    unwanted: tuple[str, ...] = ()
    budget: int = 0
    archives: tuple[str, ...] = ()


def check_memory_test(test: MemoryTest, field: str = "test") -> None:
    """Refuse a memory test that breaks a rule.

    Raises:
        InvalidMemoryTestError: With every fault.
    """
    faults = list(_faults(test, field))
    if faults:
        told = "; ".join(f"{fault.field} {fault.description}" for fault in faults)
        raise InvalidMemoryTestError(f"The memory test cannot be stored: {told}.", faults)


def _faults(test: MemoryTest, field: str) -> Iterator[FieldViolation]:
    if not is_test_name(test.name):
        yield FieldViolation(f"{field}.name", "must be 1 to 64 lower-case letters, digits and '-', not at an end")
    yield from text_faults(f"{field}.question", test.question, multiline=True, required=True, max_chars=_QUESTION_CHARS)
    if not (test.nodes or test.texts or test.unwanted):
        yield FieldViolation(field, "expects nothing; name nodes or texts that the answer must or must not have")
    for node_id in test.nodes:
        if not is_id(node_id):
            yield FieldViolation(f"{field}.expected_node_ids", f"{node_id[:40]!r} is no whole id")
    for name, texts in (
        ("expected_texts", test.texts),
        ("unwanted_texts", test.unwanted),
        ("archives", test.archives),
    ):
        for text in texts:
            yield from text_faults(f"{field}.{name}", text, multiline=True, required=True, max_chars=_TEXT_CHARS)
    for name, values in (
        ("expected_node_ids", test.nodes),
        ("expected_texts", test.texts),
        ("unwanted_texts", test.unwanted),
        ("archives", test.archives),
    ):
        if len(values) > MOST_ITEMS:
            yield FieldViolation(f"{field}.{name}", f"has {len(values)} items, over the limit of {MOST_ITEMS}")
    if not 0 <= test.budget <= MOST_TOKENS:
        yield FieldViolation(f"{field}.token_budget", f"must be from 0 to {MOST_TOKENS}")


def is_test_name(name: str) -> bool:
    """Whether a text can be the name of a memory test."""
    return _NAME.fullmatch(name) is not None


def path_of_test(name: str) -> str:
    """The path of the file of a memory test."""
    return f"{FOLDER}{name}{_SUFFIX}"


def name_of_test(path: str) -> str | None:
    """The name of the memory test in a file; ``None`` if the file is none."""
    name = path.removeprefix(FOLDER).removesuffix(_SUFFIX)
    return name if path == path_of_test(name) and is_test_name(name) else None


def encode_memory_test(test: MemoryTest) -> bytes:
    """The file of a memory test."""
    lines = [f"question: {write_scalar(test.question)}"]
    for key in _LISTS:
        values: Sequence[str] = getattr(test, key)
        if values:
            lines += [f"{key}:", *(f"  - {write_scalar(value)}" for value in values)]
    if test.budget:
        lines.append(f"budget: {test.budget}")
    return ("\n".join(lines) + "\n").encode()


def decode_memory_test(name: str, data: bytes) -> MemoryTest:
    """Read the file of a memory test, which a person may have written.

    Raises:
        InvalidMemoryTestError: It is none, or breaks a rule.
    """
    if len(data) > _MOST_BYTES:
        raise InvalidMemoryTestError(f"{path_of_test(name)} has over {_MOST_BYTES} bytes; shorten it.")
    try:
        test = _read(name, parse_front_matter(data.decode()))
    except (FrontMatterError, UnicodeDecodeError, ValueError) as error:
        raise InvalidMemoryTestError(f"{path_of_test(name)} cannot be read: {error}.") from error
    check_memory_test(test, path_of_test(name))
    return test


def _read(name: str, tree: Tree) -> MemoryTest:
    unknown = sorted(tree.keys() - {"question", "budget", *_LISTS})
    if unknown:
        message = f"it has the unknown key {unknown[0]!r}; the keys are question, budget, {', '.join(_LISTS)}"
        raise ValueError(message)
    question, budget = tree.get("question", ""), tree.get("budget", "0")
    lists = {key: tree.get(key, []) for key in _LISTS}
    if not isinstance(question, str) or not isinstance(budget, str):
        message = "question and budget must be single values"
        raise ValueError(message)  # noqa: TRY004 - all faults of the file are one kind of error
    found = {key: tuple([value] if isinstance(value, str) else value) for key, value in lists.items()}
    if any(isinstance(value, dict) for value in lists.values()):
        message = f"{', '.join(_LISTS)} must be lists"
        raise ValueError(message)
    if not budget.isascii() or not budget.isdigit():
        message = "budget must be a number"
        raise ValueError(message)
    return MemoryTest(name, question, budget=int(budget[:9]), **found)
