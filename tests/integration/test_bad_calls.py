"""Bad names, authors, times, states, pages and queries get a clear error over gRPC, and change nothing."""

import json
from datetime import UTC, datetime
from typing import Any

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from integration.prepared import ROOT, creation
from integration.wires import PAGE_KEY, Refusal, Wire

from memotree.request.pages import PageTokens
from memotree.v1 import node_service_pb2 as pb
from memotree.v1 import types_pb2

INVALID = "INVALID_ARGUMENT"


# --- Names, authors, times --------------------------------------------------------------------------------------------

REFUSED_BY_GIT = [
    "", "a b", "a..b", "-a", "a.lock", "a/", "/a", "a//b", ".a", "a/.b", "a.", "a~b", "a^b", "a:b", "a?b", "a*b",
    "a[b", "a\\b", "a@{b", "@", "HEAD", "a\x7fb", "a\nb", "x" * 300,
]  # fmt: skip


@pytest.mark.requirement("CANVAS-6", "GIT-3")
async def test_names_that_git_refuses_are_refused_for_tags_and_branches(
    untouched: Wire, subtests: pytest.Subtests
) -> None:
    for name in REFUSED_BY_GIT:
        with subtests.test(name=name):
            calls: list[tuple[str, dict[str, Any], str]] = [
                ("CreateTag", {"name": name}, "name"),
                ("CreateBranch", {"name": name}, "name"),
                ("CommitChanges", {"message": "m", "create_tag": True, "tag_name": name}, "tag_name"),
            ]
            for method, fields, field in calls:
                refusal = await untouched.refused(method, **fields)
                assert (refusal.code, refusal.fields) == (INVALID, (field,))
                assert refusal.reason


@pytest.mark.requirement("CANVAS-6", "GIT-3")
async def test_a_tag_or_branch_that_exists_is_refused(untouched: Wire) -> None:
    refusal = await untouched.refused("CommitChanges", message="m", create_tag=True, tag_name="v1")
    assert (refusal.code, refusal.reason) == ("ALREADY_EXISTS", "TAG_EXISTS")
    assert (await untouched.refused("CreateTag", name="v1")).reason == "TAG_EXISTS"
    assert (await untouched.refused("CreateBranch", name="side")).reason == "BRANCH_EXISTS"
    refusal = await untouched.refused("CommitChanges", message="m", tag_name="v2")
    assert (refusal.code, refusal.fields) == (INVALID, ("create_tag",))


NO_WORKSPACE_NAMES = [
    "..", ".", "../up", "a/b", "/etc", "\\\\host\\share", "C:", "C:\\x", "a b", ".hidden", "-x", "con", "NUL.txt",
    "a..b", "end.", "x" * 65, "a\x00b", "e\u0301", "*", "a\nb",
]  # fmt: skip


@pytest.mark.requirement("CANVAS-15")
async def test_a_workspace_name_cannot_leave_its_folder(untouched: Wire, subtests: pytest.Subtests) -> None:
    for name in NO_WORKSPACE_NAMES:
        with subtests.test(name=name):
            for method in ("CreateWorkspace", "UpdateWorkspace"):
                refusal = await untouched.refused(method, name=name)
                assert (refusal.code, refusal.reason, set(refusal.fields)) == (INVALID, "INVALID_NAME", {"name"})


@pytest.mark.requirement("CANVAS-15")
async def test_a_workspace_name_in_use_is_refused(untouched: Wire) -> None:
    refusal = await untouched.refused("CreateWorkspace", name=untouched.workspace)
    assert (refusal.code, refusal.reason) == ("ALREADY_EXISTS", "WORKSPACE_EXISTS")


NO_AUTHORS: list[str] = ["a<b", "a>b", "a\nb", "a\rb", "a\x00b", " a", "a ", "x" * 201]


@pytest.mark.requirement("CANVAS-6")
async def test_an_author_that_git_cannot_write_is_refused(untouched: Wire, subtests: pytest.Subtests) -> None:
    for text in NO_AUTHORS:
        with subtests.test(text=text):
            author = types_pb2.CommitAuthor(name=text, email="a@example.org")
            refusal = await untouched.refused("CommitChanges", message="m", author=author)
            assert (refusal.code, refusal.reason, set(refusal.fields)) == (INVALID, "INVALID_AUTHOR", {"author.name"})
            author = types_pb2.CommitAuthor(name="Ada", email=text)
            refusal = await untouched.refused("CommitChanges", message="m", author=author)
            assert (refusal.code, refusal.reason, set(refusal.fields)) == (INVALID, "INVALID_AUTHOR", {"author.email"})
            refusal = await untouched.refused("OpenSession", agent=text)
            assert (refusal.code, refusal.reason) == (INVALID, "INVALID_AUTHOR")


NO_TIMES: list[int] = [-1, -(2**40), 253402300800, 2**62, -(2**62)]


@pytest.mark.requirement("CANVAS-6")
async def test_times_before_1970_and_after_9999_are_refused(untouched: Wire, subtests: pytest.Subtests) -> None:
    for seconds in NO_TIMES:
        with subtests.test(seconds=seconds):
            author = types_pb2.CommitAuthor(name="Ada", timestamp=Timestamp(seconds=seconds))
            refusal = await untouched.refused("CommitChanges", message="m", author=author)
            assert (refusal.code, refusal.reason, refusal.fields) == (INVALID, "INVALID_TIME", ("author.timestamp",))


TIMES: list[int] = [0, 253402300799]


@pytest.mark.requirement("CANVAS-6")
async def test_the_first_and_the_last_time_can_be_committed(wire: Wire, subtests: pytest.Subtests) -> None:
    for seconds in TIMES:
        with subtests.test(seconds=seconds):
            await wire.create()
            author = types_pb2.CommitAuthor(name="Ada", timestamp=Timestamp(seconds=seconds))
            commit_id = await wire.commit(author=author)
            assert (await wire("GetCommit", revision=commit_id)).commit.author.timestamp.seconds == seconds


# --- States -----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("CANVAS-6")
async def test_an_empty_commit_is_refused(wire: Wire) -> None:
    before = await wire.snapshot()
    refusal = await wire.refused("CommitChanges", message="Nothing", create_tag=True, tag_name="v1")
    assert (refusal.code, refusal.reason) == ("FAILED_PRECONDITION", "NOTHING_TO_COMMIT")
    assert await wire.snapshot() == before


@pytest.mark.requirement("CANVAS-4", "STORE-2")
async def test_a_stale_etag_is_refused(untouched: Wire) -> None:
    for etag in ("0" * 40, "nonsense"):
        for method, fields in (("UpdateNode", {"title": "t"}), ("MoveNode", {"position": 0}), ("DeleteNode", {})):
            refusal = await untouched.refused(method, node_id=ROOT, etag=etag, **fields)  # type: ignore[arg-type]
            assert (refusal.code, refusal.reason) == ("ABORTED", "STALE_ETAG")
    assert (await untouched.refused("DeleteArchive", archive="notes", etag="0" * 40)).reason == "STALE_ETAG"


@pytest.mark.requirement("CANVAS-15", "STORE-5")
async def test_a_session_of_another_workspace_is_not_found(untouched: Wire, wire: Wire) -> None:
    foreign = wire.session
    calls: list[tuple[str, dict[str, Any]]] = [
        ("CreateNode", creation(session_id=foreign)),
        ("CommitChanges", {"session_id": foreign, "message": "m"}),
        ("GetSession", {"session_id": foreign}),
        ("ListChanges", {"session_id": foreign}),
        ("DiscardSession", {"session_id": foreign}),
        ("RebaseSession", {"session_id": foreign}),
        ("DiscardChanges", {"session_id": foreign, "node_ids": [ROOT]}),
        ("GetNode", {"revision": foreign, "node_id": ROOT}),
        ("SearchNodes", {"revision": foreign, "query": "apple"}),
        ("RenderView", {"revision": foreign}),
    ]
    before = await wire.snapshot()
    for method, fields in calls:
        refusal = await untouched.refused(method, **fields)
        assert (refusal.code, refusal.reason) in {
            ("NOT_FOUND", "SESSION_NOT_FOUND"),
            ("NOT_FOUND", "REVISION_NOT_FOUND"),
        }, method
    assert await wire.snapshot() == before


# --- Pages ------------------------------------------------------------------------------------------------------------

LISTS: list[tuple[str, dict[str, Any]]] = [
    ("ListWorkspaces", {}),
    ("ListArchives", {}),
    ("ListSessions", {"include_closed": True}),
    ("ListChanges", {}),
    ("ListChildren", {"archive": "notes"}),
    ("ListViews", {}),
    ("ListCommits", {}),
    ("ListBranches", {}),
    ("ListTags", {}),
    ("ListNodeRevisions", {"node_id": ROOT}),
    ("DiffRevisions", {"old_revision": "v1", "new_revision": "main"}),
]


@pytest.mark.requirement("SERVE-1")
async def test_a_page_size_of_zero_or_a_million_is_bounded_and_below_zero_refused(
    untouched: Wire, subtests: pytest.Subtests
) -> None:
    for method, fields in LISTS:
        with subtests.test(method=method, fields=fields):
            usual = await untouched(method, page_size=0, **fields)
            great = await untouched(method, page_size=1_000_000, **fields)
            if not usual.next_page_token:
                assert great == usual
            for size in (-1, -(2**31)):
                refusal = await untouched.refused(method, page_size=size, **fields)
                assert (refusal.code, refusal.reason, refusal.fields) == (INVALID, "INVALID_PAGE_SIZE", ("page_size",))


@pytest.mark.requirement("SERVE-1")
async def test_a_forged_page_token_is_refused(untouched: Wire, subtests: pytest.Subtests) -> None:
    for method, fields in LISTS:
        with subtests.test(method=method, fields=fields):
            for token in ("x", "AAAA" * 10, json.dumps({"id": "a"}), "%", "\u4e2d", "x" * 100_000, "' or 1=1 --"):
                refusal = await untouched.refused(method, page_token=token, **fields)
                assert (refusal.code, refusal.reason, refusal.fields) == (
                    INVALID,
                    "INVALID_PAGE_TOKEN",
                    ("page_token",),
                )


CURSORS: dict[str, tuple[str, ...]] = {
    "ListWorkspaces": ("name",),
    "ListArchives": ("name", "id", "commit", "session"),
    "ListSessions": ("used", "id"),
    "ListChanges": ("id",),
    "ListChildren": ("position", "id", "commit", "session"),
    "ListViews": ("name",),
    "ListCommits": ("after", "commit", "session"),
    "ListBranches": ("after",),
    "ListTags": ("after",),
    "ListNodeRevisions": ("after", "commit", "session"),
    "DiffRevisions": ("old", "new", "after", "summary"),
}


@pytest.mark.requirement("SERVE-1")
async def test_a_page_token_of_the_server_with_unusual_values_is_harmless(
    untouched: Wire, wire: Wire, subtests: pytest.Subtests
) -> None:
    for method, fields in LISTS:
        with subtests.test(method=method, fields=fields):
            foreign = (await wire("ListCommits")).commits[0].id  # in another workspace
            request = untouched.request(method, **fields)
            whole = await untouched(method, page_size=1000, **fields)
            listed = whole.DESCRIPTOR.fields[0].name
            for text in ("", "'; drop schema mirror cascade; --", "%", "\uffff", "0" * 40, foreign):
                for when in (datetime.min, datetime(2024, 1, 1), datetime.max):  # noqa: DTZ001, DTZ901 - the zone follows
                    values = {"used": when.replace(tzinfo=UTC), "session": ""}
                    cursor = {name: values.get(name, text) for name in CURSORS[method]}
                    token = PageTokens(PAGE_KEY).write(request, cursor)
                    try:
                        answer = await untouched(method, page_size=1000, page_token=token, **fields)
                    except grpc.aio.AioRpcError as error:
                        assert Refusal.of(error).code in {INVALID, "NOT_FOUND"}  # noqa: PT017 - both ends are right
                    else:
                        some = getattr(answer, listed)
                        assert method == "DiffRevisions" or all(one in getattr(whole, listed) for one in some)


@pytest.mark.requirement("SERVE-1")
async def test_a_page_token_of_another_call_is_refused(untouched: Wire) -> None:
    token = (await untouched("ListChildren", archive="notes", page_size=1)).next_page_token
    assert token
    assert (await untouched("ListChildren", archive="notes", page_size=2, page_token=token)).nodes
    for method, fields in (
        ("ListChildren", {"archive": "notes", "revision": "v1"}),
        ("ListChildren", {"parent_id": ROOT}),
        ("ListCommits", {}),
    ):
        refusal = await untouched.refused(method, page_token=token, **fields)
        assert refusal.reason == "INVALID_PAGE_TOKEN"


# --- Calls ------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("SERVE-1", "CANVAS-8")
async def test_a_deadline_that_has_passed_changes_nothing(untouched: Wire) -> None:
    for method, fields in (
        ("CreateNode", creation()),
        ("CommitChanges", {"message": "m"}),
        ("DeleteNode", {"node_id": ROOT}),
    ):
        refusal = await untouched.refused(method, timeout=-1, **fields)  # type: ignore[arg-type]
        assert refusal.code == "DEADLINE_EXCEEDED"


SYNTAX = [
    "'; drop schema mirror cascade; --",
    "' or '1'='1",
    '" & | ! ( ) :* <->',
    "apple & !pear | (fig",
    "title:apple -pear +fig ~2 ^3",
    "%_%",
    "$1 %s %(workspace)s {0}",
    '{"must": [{"key": "workspace", "match": {"any": ["x"]}}]}',
    "\\",
    "\\x00",
    "(" * 1000,
    "*" * 8192,
    "a" * 8192,
    "学" * 8192,
    "a.b" * 2000,
    "\u202e\u200f\ufeff",
    "\U0001f600",
]


KINDS_OF_SEARCH: list[int] = [pb.SEARCH_TYPE_FULL_TEXT, pb.SEARCH_TYPE_SEMANTIC, pb.SEARCH_TYPE_HYBRID]


@pytest.mark.requirement("CANVAS-5")
async def test_a_query_is_text_and_never_syntax(untouched: Wire, subtests: pytest.Subtests) -> None:
    for kind in KINDS_OF_SEARCH:
        with subtests.test(kind=kind):
            for query in SYNTAX:
                found = await untouched("SearchNodes", revision=untouched.session, query=query, search_type=kind)
                assert all(0 <= hit.score <= 1 for hit in found.hits)
            for name in ("'; drop schema mirror cascade; --", "%", '"'):
                assert not (await untouched("SearchNodes", query="apple", search_type=kind, tags=[name])).hits
                assert not (await untouched("SearchNodes", query="apple", search_type=kind, node_types=[name])).hits


@pytest.mark.requirement("CANVAS-5")
async def test_words_are_found_among_syntax(untouched: Wire) -> None:
    for query in ("apple'; drop schema mirror; --", "apple & !pear | (fig", '{"must": "apple"}'):
        found = await untouched("SearchNodes", query=query)
        assert [hit.node.id for hit in found.hits] == [ROOT], query


@pytest.mark.requirement("CANVAS-5")
async def test_a_query_of_100_000_characters_is_refused_with_the_limit(untouched: Wire) -> None:
    for kind in (pb.SEARCH_TYPE_FULL_TEXT, pb.SEARCH_TYPE_SEMANTIC, pb.SEARCH_TYPE_RELATION, pb.SEARCH_TYPE_HYBRID):
        refusal = await untouched.refused("SearchNodes", query="word " * 20_000, search_type=kind)
        assert (refusal.code, refusal.fields) == (INVALID, ("query",))
        assert "8192" in refusal.message


@pytest.mark.requirement("CANVAS-5")
async def test_a_query_of_stop_words_only_finds_the_nodes_that_have_them(wire: Wire) -> None:
    await wire.create("To be", content="to be or not to be that is the question")
    await wire.create("Other", content="elephants swim")
    assert await wire.search("to be or not to be") == ["To be"]
    assert await wire.search("the") == ["To be"]
    assert await wire.search("... !!! ???") == []
