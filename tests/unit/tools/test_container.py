"""Services, built from what their constructors name, and their tools."""

from typing import Protocol

import pytest

from memotree.tools.container import Container, DependencyError
from memotree.tools.function_tool import tool

pytestmark = pytest.mark.requirement("TOOL-8")


class Store(Protocol):
    def text(self) -> str: ...


class Memory:
    def text(self) -> str:
        return "kept"


class Reader:
    def __init__(self, store: Store, limit: int = 3) -> None:
        self.store = store
        self.limit = limit

    @tool(category="tests", read_only=True)
    async def read_text(self) -> str:
        """Read the text."""
        return self.store.text()[: self.limit]


class Writer:
    def __init__(self, reader: Reader, store: Store) -> None:
        self.reader = reader
        self.store = store

    @tool(category="tests")
    async def write_text(self) -> str:
        """Write the text."""
        return self.store.text()


class Egg:
    def __init__(self, hen: "Hen") -> None: ...


class Hen:
    def __init__(self, egg: Egg) -> None: ...


class Untyped:
    def __init__(self, store) -> None: ...  # type: ignore[no-untyped-def] # noqa: ANN001


@tool(category="tests")
async def lone() -> None:
    """Stand alone."""


async def test_services_are_built_from_what_they_need_once() -> None:
    container = Container()
    container.register(Writer)
    container.add(lone)
    container.register(Reader)
    container.register(Memory, Store)
    writer = container.get(Writer)
    assert writer.reader is container.get(Reader)
    assert writer.store is writer.reader.store is container.get(Store)  # type: ignore[type-abstract]
    assert writer.reader.limit == 3, "a default stays where nothing is provided"
    assert [each.name for each in container.tools()] == ["write_text", "lone", "read_text"]
    assert [each.name for each in container.tools(Reader)] == ["read_text"]
    assert await container.tools(Reader)[0].function() == "kep"


def test_a_value_that_is_provided_is_given_and_a_type_has_one_service() -> None:
    container = Container()
    container.provide(2)
    container.provide(Memory(), Store)
    container.register(Reader)
    assert container.get(Reader).limit == 2
    with pytest.raises(DependencyError, match="two services of the type Store"):
        container.provide(Memory(), Store)


def test_services_that_need_each_other_are_named() -> None:
    container = Container()
    container.register(Egg)
    container.register(Hen)
    with pytest.raises(DependencyError, match="Egg needs Hen needs Egg"):
        container.get(Egg)


def test_what_is_missing_is_named_with_who_needs_it() -> None:
    container = Container()
    container.register(Writer)
    with pytest.raises(DependencyError, match="no service of the type Reader; Writer needs it"):
        container.tools()
    with pytest.raises(DependencyError, match="no service of the type Memory; register"):
        container.get(Memory)
    container.register(Untyped)
    with pytest.raises(DependencyError, match="The argument store of Untyped has no type"):
        container.get(Untyped)
