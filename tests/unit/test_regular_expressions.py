"""Regular expressions that mean the same to every version of Python that is supported."""

import pkgutil
import re
from collections.abc import Iterable, Iterator
from importlib import import_module
from re import _constants as codes  # type: ignore[attr-defined]  # the parser of the standard library, without types
from re import _parser as parser  # type: ignore[attr-defined]
from types import ModuleType
from typing import Any

import memotree_storage

import memotree

_ONE_CHARACTER = (codes.LITERAL, codes.NOT_LITERAL, codes.ANY, codes.IN)


def modules() -> Iterator[ModuleType]:
    for package in (memotree, memotree_storage):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not found.name.endswith("__main__") and ".v1." not in found.name:
                yield import_module(found.name)


def expressions(value: object) -> Iterator[str]:
    """The texts of the compiled expressions in a value of a module."""
    if isinstance(value, re.Pattern):
        yield value.pattern if isinstance(value.pattern, str) else value.pattern.decode("latin-1")
    elif isinstance(value, list | tuple | set | frozenset):
        for each in value:
            yield from expressions(each)
    elif isinstance(value, dict):
        yield from expressions([*value.keys(), *value.values()])


def possessive_groups(parsed: Iterable[Any]) -> Iterator[Any]:
    """What is repeated possessively and is more than one character."""
    for code, value in parsed:
        if code is codes.POSSESSIVE_REPEAT:
            repeated = value[2]
            if len(repeated) != 1 or repeated[0][0] not in _ONE_CHARACTER:
                yield repeated
        for part in value if isinstance(value, list | tuple) else [value]:
            for one in part if isinstance(part, list | tuple) else [part]:
                if isinstance(one, parser.SubPattern):
                    yield from possessive_groups(one)


def test_no_group_is_repeated_possessively() -> None:
    """Python before 3.11.5 finds wrong matches for it (python/cpython#106052); an atomic group means the same."""
    assert len(list(possessive_groups(parser.parse("(?:a(?:bc?)++|d)")))) == 1
    found = {
        f"{module.__name__}.{name}"
        for module in modules()
        for name, value in vars(module).items()
        for text in expressions(value)
        if list(possessive_groups(parser.parse(text)))
    }
    assert found == set()
