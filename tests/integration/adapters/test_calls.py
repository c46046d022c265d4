"""How many calls to the server each operation of the store costs, in one that has many other items."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from memotree.client import Workspace
from memotree.client.blocking import coroutines_of
from memotree.client.transport import Transport

pytestmark = pytest.mark.requirement("USE-6")

OPEN_STAGE_COMMIT_CLOSE = ["OpenSession", "BatchChangeNodes", "CommitChanges", "DiscardSession"]


@pytest.fixture
def called(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The names of the calls that were made."""
    transport: Transport = coroutines_of(workspace)._transport
    names: list[str] = []
    send = transport.call

    async def call(request: Any, answer: Any) -> Any:
        names.append(type(request).__name__.removesuffix("Request"))
        return await send(request, answer)

    monkeypatch.setattr(transport, "call", call)
    return names


@pytest.fixture
def store(workspace: Workspace, called: list[str]) -> Any:
    from langgraph.store.base import PutOp  # noqa: PLC0415 - it loads for long, and only here

    from memotree.integrations.langgraph_store import MemoTreeStore  # noqa: PLC0415 - likewise

    made = MemoTreeStore(workspace)
    made.batch([PutOp(("users", f"u{number % 10}"), f"k{number}", {"text": f"Fact {number}"}) for number in range(100)])
    called.clear()
    return made


OPERATIONS: list[tuple[Callable[[Any], Any], list[str]]] = [
    (lambda store: store.get(("users", "u1"), "k1"), ["GetNode"]),
    (lambda store: store.get(("users", "u1"), "missing"), ["GetNode", "ListNodeRevisions"]),
    (lambda store: store.search(("users",), query="Fact 7"), ["Recall"]),
    (lambda store: store.search(("users", "u1")), ["GetNode", "ListChildren"]),
    (lambda store: store.list_namespaces(prefix=("users",)), ["GetNode", *["ListChildren"] * 11]),
    (lambda store: store.put(("users", "u1"), "k1", {"text": "Another"}), OPEN_STAGE_COMMIT_CLOSE),
    (lambda store: store.put(("users", "new"), "new", {"text": "New"}), OPEN_STAGE_COMMIT_CLOSE),
    (lambda store: store.delete(("users", "u1"), "k1"), OPEN_STAGE_COMMIT_CLOSE),
]


def test_an_operation_costs_as_many_calls_with_few_items_as_with_many(store: Any, called: list[str]) -> None:
    for number, (operation, calls) in enumerate(OPERATIONS):
        called.clear()
        operation(store)
        assert called == calls, f"operation {number}"


def test_what_is_no_workspace_is_refused_by_name() -> None:
    from memotree.integrations.langgraph_store import MemoTreeStore  # noqa: PLC0415 - they load for long
    from memotree.integrations.openai_agents_session import MemoTreeSession  # noqa: PLC0415 - likewise

    for wrong in ("graph", None):
        with pytest.raises(TypeError, match=r"such as client\.workspace\('main'\), not"):
            MemoTreeStore(wrong)  # type: ignore[arg-type] # on purpose
        with pytest.raises(TypeError, match="A workspace is needed"):
            MemoTreeSession("talk", wrong)  # type: ignore[arg-type] # on purpose
