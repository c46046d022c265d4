"""What users of LangGraph's stores expect, kept by ours; and what is special about ours: notes in Git."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from langgraph.store.base import GetOp, InvalidNamespaceError, ListNamespacesOp, MatchCondition, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore

from memotree.client import AsyncWorkspace, Client, NotFoundError, Workspace
from memotree.integrations import langgraph_store, port
from memotree.integrations.langgraph_store import AsyncMemoTreeStore, MemoTreeStore

pytestmark = pytest.mark.requirement("USE-6")

ADA = ("users", "ada")
ODD = ("odd\n", " label ")


@pytest.fixture
def store(workspace: Workspace) -> MemoTreeStore:
    return MemoTreeStore(workspace)


@pytest.fixture
async def async_store(async_workspace: AsyncWorkspace) -> AsyncMemoTreeStore:
    return AsyncMemoTreeStore(async_workspace)


def value(store: MemoTreeStore, namespace: tuple[str, ...], key: str) -> dict[str, Any] | None:
    item = store.get(namespace, key)
    return item.value if item else None


def subjects(workspace: Workspace) -> list[str]:
    return [commit.subject for commit in workspace.log()][:-1]


# --- Items ---


def test_an_item_is_got_as_it_was_put_and_replaced_as_a_whole(store: MemoTreeStore) -> None:
    assert store.get(ADA, "drink") is None
    store.put(ADA, "drink", {"text": "Ada prefers tea.", "score": 3})
    first = store.get(ADA, "drink")
    assert first is not None
    assert (first.namespace, first.key, first.value) == (ADA, "drink", {"text": "Ada prefers tea.", "score": 3})
    assert first.created_at <= first.updated_at
    store.put(ADA, "drink", {"a": 3})
    second = store.get(ADA, "drink")
    assert second is not None
    assert (second.value, second.created_at) == ({"a": 3}, first.created_at)
    assert second.updated_at > first.updated_at


VALUES: list[dict[str, Any]] = [
    {},
    {"theme": "dark"},
    {"text": "One.\r\n\n```json\n{}\n```"},
    {"text": "```", "n": None},
    {"a/b~c": [1, {"deep": "some words here"}], "": 1.5, "t": True},
    {"text": "a\x01b \ud800", "nested": {"text": "  blanks around  "}},
    {"这": "这是 中文"},
    {"text": "x" * 5000, "more": list(range(1000))},
]


def test_a_value_of_any_shape_comes_back(store: MemoTreeStore) -> None:
    keys = {f'a "key"\n{number}': given for number, given in enumerate(VALUES)}
    store.batch([PutOp(ADA, key, {"text": "Something else was here before."}) for key in keys])
    store.batch([PutOp(namespace, key, given) for namespace in (ADA, ODD) for key, given in keys.items()])
    for namespace in (ADA, ODD):
        for key, given in keys.items():
            assert value(store, namespace, key) == given, key
    assert [(item.namespace, item.key) for item in store.search(ODD[:1])] == [(ODD, key) for key in keys]


def test_a_key_can_be_deleted_and_put_again_also_by_another_process(store: MemoTreeStore, workspace: Workspace) -> None:
    other = MemoTreeStore(workspace)
    store.delete(ADA, "k")
    store.put(ADA, "k", {"n": 1})
    other.put(ADA, "k", {"n": 2})
    other.delete(ADA, "k")
    assert store.get(ADA, "k") is None
    store.put(ADA, "k", {"n": 3})
    assert value(other, ADA, "k") == {"n": 3}
    store.delete(ADA, "k")
    assert value(other, ADA, "k") is None


def test_what_cannot_be_stored_is_refused(store: MemoTreeStore, workspace: Workspace) -> None:
    for namespace in [(), ("a.b",), ("a", ""), ("langgraph", "a"), ("a", 1)]:
        with pytest.raises(InvalidNamespaceError):
            store.put(namespace, "k", {"n": 1})  # type: ignore[arg-type] # on purpose
    with pytest.raises(TypeError):
        store.put(ADA, "k", {"n": object()})
    assert subjects(workspace) == []


def test_an_item_is_gone_when_its_time_is_over_and_stays_in_the_history(
    store: MemoTreeStore, workspace: Workspace
) -> None:
    store.put(ADA, "long", {"text": "The oak is tall."}, ttl=5)
    store.put(ADA, "short", {"text": "The oak is small."}, ttl=1e-4)  # it is over before the put has returned
    assert value(store, ADA, "long") == {"text": "The oak is tall."}
    assert value(store, ADA, "short") is None
    assert [item.key for item in store.search(ADA)] == ["long"]
    assert [item.key for item in store.search(ADA, query="How tall is the oak?")] == ["long"]
    assert len(subjects(workspace)) == 2
    store.put(ADA, "short", {"text": "The oak is small."})
    assert value(store, ADA, "short") == {"text": "The oak is small."}


def test_a_workspace_that_does_not_exist_is_an_error(address: str) -> None:
    with Client(address) as client:
        store = MemoTreeStore(client.workspace("nowhere"))
        calls: list[Callable[[], Any]] = [
            lambda: store.get(ADA, "k"),
            lambda: store.put(ADA, "k", {}),
            lambda: store.search(ADA),
            lambda: store.search(ADA, query="tea"),
            store.list_namespaces,
        ]
        for call in calls:
            with pytest.raises(NotFoundError, match="nowhere"):
                call()


# --- Batches ---


def test_a_batch_answers_in_order_reads_before_it_writes_and_is_one_commit(
    store: MemoTreeStore, workspace: Workspace
) -> None:
    store.put(ADA, "old", {"n": 1})
    results = store.batch([
        PutOp(ADA, "new", {"n": 2}),
        GetOp(ADA, "old"),
        PutOp(("teams", "x"), "new", {"n": 3}),
        SearchOp(ADA),
        GetOp(ADA, "new"),
        ListNamespacesOp(),
        PutOp(ADA, "old", None),
        PutOp(ADA, "new", {"n": 4}),
    ])  # fmt: skip
    assert [results[number] for number in (0, 2, 4, 6, 7)] == [None] * 5
    assert results[1] is not None
    assert [item.key for item in results[3]] == ["old"]  # type: ignore[union-attr, misc] # the result of a SearchOp
    assert results[5] == [ADA]
    assert (value(store, ADA, "old"), value(store, ADA, "new")) == (None, {"n": 4})
    assert subjects(workspace) == ["Put and delete 3 items: users.ada, teams.x", "Put users.ada: old"]


def test_a_batch_larger_than_one_call_is_still_one_commit(
    store: MemoTreeStore, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(port, "_MOST_CHANGES", 50)
    monkeypatch.setattr(langgraph_store, "_MOST_FOUND", 50)
    store.batch([PutOp(("many",), f"k{number}", {"n": number}) for number in range(105)])
    assert len(store.search(("many",), limit=2000)) == 105
    assert subjects(workspace) == ["Put 105 items: many"]


# --- Searching ---


@pytest.fixture
def people(store: MemoTreeStore) -> MemoTreeStore:
    texts = {
        ("users", "ada"): ["Ada drinks tea in the morning.", "Ada plays chess on Sundays.", "The cat of Ada is grey."],
        ("users", "bob"): ["Bob drinks coffee all day.", "Bob lives near the harbour of Hamburg."],
        ("users2",): ["Nobody drinks milk here."],
    }
    store.batch([
        PutOp(
            namespace,
            f"k{number}",
            {"text": text, "n": number, "who": {"name": namespace[-1]}, "tags": ["a", number]},
        )
        for namespace, every in texts.items()
        for number, text in enumerate(every)
    ])  # fmt: skip
    return store


def test_a_search_finds_by_words_and_by_meaning_best_first(people: MemoTreeStore) -> None:
    assert people.search(("users",), query="Who plays a board game like chess?")[0].value["n"] == 1
    assert people.search(("users",), query="beverage in the morning")[0].key == "k0"
    scores = [item.score for item in people.search(("users",), query="Who drinks what?")]
    assert scores == sorted(scores, key=lambda score: -(score or 0))
    assert all(score is not None and 0 < score <= 1 for score in scores)


def test_a_search_covers_exactly_the_namespaces_below_a_prefix(people: MemoTreeStore) -> None:
    assert {item.namespace for item in people.search(("users",), query="drinks")} == {
        ("users", "ada"),
        ("users", "bob"),
    }
    assert {item.namespace for item in people.search(("users", "bob"), query="drinks")} == {("users", "bob")}
    assert ("users2",) in {item.namespace for item in people.search((), query="drinks milk")}
    assert people.search(("nobody",), query="drinks") == []
    assert len(people.search(("users",))) == 5
    assert len(people.search(())) == 6
    assert people.search(("nobody",)) == []


def test_a_search_without_a_query_lists_a_namespace_in_the_order_of_creation_and_by_pages(
    people: MemoTreeStore,
) -> None:
    assert [item.key for item in people.search(ADA)] == ["k0", "k1", "k2"]
    assert [item.key for item in people.search(ADA, limit=1, offset=1)] == ["k1"]
    everything = [(item.namespace, item.key) for item in people.search((), limit=100)]
    paged = [(i.namespace, i.key) for offset in range(0, 8, 2) for i in people.search((), limit=2, offset=offset)]
    assert paged == everything


FILTERS: list[tuple[dict[str, Any], list[str]]] = [
    ({"n": 1}, ["k1"]),
    ({"n": {"$eq": 1}}, ["k1"]),
    ({"n": {"$ne": 1}}, ["k0", "k2"]),
    ({"n": {"$gt": 0, "$lt": 2}}, ["k1"]),
    ({"n": {"$gte": 1}}, ["k1", "k2"]),
    ({"n": {"$lte": 0}}, ["k0"]),
    ({"who": {"name": "ada"}, "n": 2}, ["k2"]),
    ({"tags": ["a", 1]}, ["k1"]),
    ({"missing": None}, ["k0", "k1", "k2"]),
    ({"missing": {"$gt": 0}}, []),
    ({"text": {"$gt": 0}}, []),
]


def test_a_filter_compares_values(people: MemoTreeStore) -> None:
    for wanted, keys in FILTERS:
        assert [item.key for item in people.search(ADA, filter=wanted)] == keys, wanted
    with pytest.raises(ValueError, match=r"\$near"):
        people.search(ADA, filter={"n": {"$near": 1}})


def test_a_filter_with_a_query_ranks_what_passes_and_leaves_nothing_out_that_does(people: MemoTreeStore) -> None:
    found = people.search(("users",), query="tea in the morning", filter={"who": {"name": "ada"}})
    assert found[0].key == "k0"
    assert Counter(item.namespace for item in found) == {ADA: 3}
    assert people.search(("users",), query="tea", filter={"n": 0}, limit=1)[0].namespace == ADA


def test_a_search_finds_what_was_put_last_and_is_indexed(store: MemoTreeStore, workspace: Workspace) -> None:
    store.put(ADA, "secret", {"text": "The code is walrus."}, index=False)
    store.put(ADA, "zebra", {"text": "The pet of Ada is a hamster."})
    assert [item.key for item in store.search(ADA, query="walrus")] == ["zebra"]
    assert list(workspace.search("zebra")) == [], "the records of the store are no words"
    assert [hit.node.title for hit in workspace.search("hamster")] == ["The pet of Ada is a hamster."]
    store.put(ADA, "zebra", {"text": "The pet of Ada is a parrot."})
    assert [item.value["text"] for item in store.search(ADA, query="parrot")] == ["The pet of Ada is a parrot."]
    assert [item.key for item in store.search(ADA)] == ["secret", "zebra"]
    store.delete(ADA, "zebra")
    assert store.search(ADA, query="parrot") == []


# --- Namespaces ---


def test_namespaces_are_listed_by_prefix_suffix_wildcard_depth_and_page(store: MemoTreeStore) -> None:
    every = [("a", "b"), ("a", "b", "d", "e"), ("a", "c", "f"), ("b", "a", "f"), ("b2",)]
    store.batch([PutOp(each, "k", {"n": 1}) for each in every])
    assert store.list_namespaces() == every
    assert store.list_namespaces(prefix=("a",)) == every[:3]
    assert store.list_namespaces(prefix=("b",)) == [("b", "a", "f")]
    assert store.list_namespaces(suffix=("f",)) == every[2:4]
    assert store.list_namespaces(prefix=("a", "*", "f")) == [("a", "c", "f")]
    assert store.list_namespaces(prefix=("a",), suffix=("f",)) == [("a", "c", "f")]
    assert store.list_namespaces(max_depth=2) == [("a", "b"), ("a", "c"), ("b", "a"), ("b2",)]
    assert store.list_namespaces(limit=2, offset=1) == every[1:3]
    assert store.list_namespaces(prefix=("nothing",)) == []
    found = store.batch([ListNamespacesOp((MatchCondition("prefix", ("a", "b")), MatchCondition("suffix", ("e",))))])
    assert found == [[("a", "b", "d", "e")]]
    store.delete(("b2",), "k")
    assert store.list_namespaces() == every[:-1], "without those that have no items"


def test_the_empty_namespace_is_the_root_of_all_as_in_the_store_of_langgraph(
    store: MemoTreeStore, workspace: Workspace
) -> None:
    for each in (store, InMemoryStore()):
        each.batch([PutOp((), "k", {"text": "At the root."}), PutOp(ADA, "drink", {"text": "Tea."})])
        got, named, found = each.batch([GetOp((), "k"), ListNamespacesOp(), SearchOp(())])
        assert (got.namespace, got.key, got.value) == ((), "k", {"text": "At the root."})
        assert named == [(), ADA]
        assert {(item.namespace, item.key) for item in found} == {((), "k"), (ADA, "drink")}
        each.batch([PutOp((), "k", None)])
        assert each.batch([GetOp((), "k")]) == [None]
    assert subjects(workspace)[0] == "Delete k", "the key alone names it"


# --- Several writers ---


def test_of_concurrent_puts_one_wins_and_no_other_item_is_lost(workspace: Workspace) -> None:
    stores = [MemoTreeStore(workspace) for _ in range(4)]

    def write(number: int) -> None:
        stores[number].batch([PutOp(ADA, "shared", {"by": number, "text": f"By writer {number}."}),
                              PutOp(ADA, f"own{number}", {"by": number})])  # fmt: skip

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    found = {item.key: item.value for item in stores[0].search(ADA, limit=20)}
    assert found.keys() == {"shared", "own0", "own1", "own2", "own3"}
    winner = found["shared"]["by"]
    assert found["shared"] == {"by": winner, "text": f"By writer {winner}."}
    assert all(found[f"own{number}"] == {"by": number} for number in range(4))


def test_a_namespace_that_a_person_deleted_is_made_again(store: MemoTreeStore, workspace: Workspace) -> None:
    store.put(ADA, "k", {"n": 1})
    users = next(iter(workspace.children(archive="langgraph")))
    with workspace.session() as session:
        session.delete(users, recursive=True)
        session.commit("Forget all users")
    store.put(ADA, "k", {"n": 2})
    for reader in (store, MemoTreeStore(workspace)):
        assert value(reader, ADA, "k") == {"n": 2}
        assert [item.value for item in reader.search(("users",))] == [{"n": 2}]


# --- With an event loop ---


async def test_the_asynchronous_store_keeps_the_same_promises_also_from_another_thread(
    async_store: AsyncMemoTreeStore, store: MemoTreeStore
) -> None:
    await store.aput(ADA, "blocking", {"n": 1})
    assert (found := await store.aget(ADA, "blocking")) is not None
    assert found.value == {"n": 1}
    await store.adelete(ADA, "blocking")
    await async_store.aput(ADA, "drink", {"text": "Ada prefers tea."})
    await async_store.aput(ADA, "drink", {"text": "Ada prefers coffee."})
    assert (found := await async_store.aget(ADA, "drink")) is not None
    assert found.value == {"text": "Ada prefers coffee."}
    assert [item.key for item in await async_store.asearch(("users",), query="coffee")] == ["drink"]
    assert await async_store.alist_namespaces() == [ADA]
    await async_store.adelete(ADA, "drink")
    assert await async_store.aget(ADA, "drink") is None
    await asyncio.to_thread(async_store.put, ADA, "k", {"n": 1})
    assert await asyncio.to_thread(async_store.get, ADA, "k") == await async_store.aget(ADA, "k")


async def test_puts_at_the_same_time_are_one_commit(async_store: AsyncMemoTreeStore, workspace: Workspace) -> None:
    await asyncio.gather(*(async_store.aput(ADA, f"k{number}", {"n": number}) for number in range(50)))
    items = await asyncio.gather(*(async_store.aget(ADA, f"k{number}") for number in range(50)))
    assert [item.value for item in items if item] == [{"n": number} for number in range(50)]
    assert subjects(workspace) == ["Put 50 items: users.ada"]


# --- What people see ---


def test_an_item_is_a_note_that_people_read_and_can_change(store: MemoTreeStore, workspace: Workspace) -> None:
    store.put(ADA, "drink", {"text": "Ada prefers tea.", "score": 3})
    users = next(iter(workspace.children(archive="langgraph")))
    (ada,) = workspace.children(users)
    (note,) = workspace.children(ada, level="DETAIL")
    assert (users.title, ada.title, note.title) == ("users", "ada", "Ada prefers tea.")
    text, block = note.content.split("\n\n```json\n")
    assert text == "Ada prefers tea."
    assert json.loads(block.removesuffix("\n```")) == {"score": 3, "text": None}
    with workspace.session(agent="person") as session:
        session.update(note, content=note.content.replace("tea", "cocoa"))
        session.commit("Correct what Ada drinks")
    assert value(store, ADA, "drink") == {"text": "Ada prefers cocoa.", "score": 3}
    assert subjects(workspace) == ["Correct what Ada drinks", "Put users.ada: drink"]
