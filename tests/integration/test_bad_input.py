"""Bad ids, texts, sizes, pages and queries get a clear error over gRPC: code, reason, fields; and change nothing."""

import json
import re
from typing import Any

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from integration.prepared import AMBIGUOUS, CHILD, GONE, LEAF, ROOT, STAGED, TWINS, UNKNOWN, creation
from integration.wires import PAGE_KEY, Refusal, Wire
from memotree_storage.model.node import new_id

from memotree.request.pages import PageTokens
from memotree.v1 import node_service_pb2 as pb
from memotree.v1 import types_pb2

LONG_NAME = "a/" * 50_001
INVALID = "INVALID_ARGUMENT"
SEARCHES = (pb.SEARCH_TYPE_FULL_TEXT, pb.SEARCH_TYPE_SEMANTIC, pb.SEARCH_TYPE_HYBRID)


# --- Ids --------------------------------------------------------------------------------------------------------------

NAMING_ONE_NODE: list[tuple[str, str, dict[str, Any]]] = [
    ("GetNode", "node_id", {}),
    ("ListChildren", "node_id", {}),
    ("GetTree", "node_id", {}),
    ("ExpandNode", "node_id", {}),
    ("CollapseNode", "node_id", {}),
    ("CreateNode", "parent_id", {"title": "t"}),
    ("UpdateNode", "node_id", {"title": "t"}),
    ("DeleteNode", "node_id", {}),
    ("MoveNode", "node_id", {"position": 0}),
    ("MoveNode", "parent_id", {"node_id": ROOT}),
    ("SplitNode", "node_id", {"parts": [pb.SplitPart(title="a"), pb.SplitPart(title="b")]}),
    ("AddRelation", "node_id", {"relation": types_pb2.Relation(type=1, target_id=ROOT)}),
    ("RemoveRelation", "node_id", {"type": 1, "target_id": ROOT}),
    ("SearchNodes", "scope_node_id", {"query": "q", "scope": pb.SEARCH_SCOPE_SUBTREE}),
    ("ListNodeRevisions", "node_id", {}),
]
READS = {"GetNode", "ListChildren", "GetTree", "ExpandNode", "CollapseNode", "SearchNodes", "ListNodeRevisions"}


async def named(wire: Wire, method: str, field: str, text: str, fields: dict[str, Any]) -> Refusal:
    where = {"revision": wire.session} if method in READS and method != "ListNodeRevisions" else {}
    name = "parent_id" if method == "ListChildren" else field
    return await wire.refused(method, **{name: text}, **where, **fields)


@pytest.mark.requirement("CANVAS-13", "CANVAS-7")
async def test_an_unknown_ambiguous_impossible_or_deleted_id_is_refused(untouched: Wire) -> None:
    for method, field, fields in NAMING_ONE_NODE:
        for missing in (UNKNOWN, GONE):
            if (method, missing) != ("ListNodeRevisions", GONE):  # the history of a deleted node can be read
                refusal = await named(untouched, method, field, missing, fields)
                assert (refusal.code, refusal.reason) == ("NOT_FOUND", "NODE_NOT_FOUND"), method
                assert missing in refusal.message, method
        ambiguous = await named(untouched, method, field, AMBIGUOUS, fields)
        assert (ambiguous.code, ambiguous.reason) == (INVALID, "AMBIGUOUS_ID"), method
        assert [node.id for node in ambiguous.nodes] == list(TWINS), method
        for text in ("abc", "ABCDEFGH", "'; drop schema mirror; --", f"{ROOT}0", "a" * 5000, "..", "ilouilou"):
            impossible = await named(untouched, method, field, text, fields)
            assert (impossible.code, impossible.reason, len(impossible.fields)) == (INVALID, "INVALID_ID", 1), (
                method,
                text,
            )


ABOUT_UNKNOWN = types_pb2.Relation(type=1, target_id=UNKNOWN)
MISSING_OBJECTS: list[tuple[str, dict[str, Any], str]] = [
    ("GetWorkspace", {"workspace": "unheard-of"}, "WORKSPACE_NOT_FOUND"),
    ("GetNode", {"workspace": "unheard-of", "node_id": ROOT}, "WORKSPACE_NOT_FOUND"),
    ("CreateNode", {"workspace": "unheard-of", "title": "t"}, "WORKSPACE_NOT_FOUND"),
    ("GetSession", {"session_id": UNKNOWN}, "SESSION_NOT_FOUND"),
    ("CommitChanges", {"session_id": UNKNOWN, "message": "m"}, "SESSION_NOT_FOUND"),
    ("CreateNode", creation(session_id=UNKNOWN), "SESSION_NOT_FOUND"),
    ("CreateNode", creation(session_id="'; drop schema mirror; --"), "SESSION_NOT_FOUND"),
    ("GetNode", {"node_id": ROOT, "revision": "unheard-of"}, "REVISION_NOT_FOUND"),
    ("GetNode", {"node_id": ROOT, "revision": "0" * 40}, "REVISION_NOT_FOUND"),
    ("CreateNode", {"archive_id": "unheard-of", "title": "t"}, "ARCHIVE_NOT_FOUND"),
    ("GetArchive", {"archive": UNKNOWN}, "ARCHIVE_NOT_FOUND"),
    ("OpenSession", {"branch": "unheard-of"}, "BRANCH_NOT_FOUND"),
    ("CreateBranch", {"name": "new", "revision": "unheard-of"}, "REVISION_NOT_FOUND"),
    ("DeleteBranch", {"name": "unheard-of"}, "BRANCH_NOT_FOUND"),
    ("DeleteTag", {"name": "unheard-of"}, "TAG_NOT_FOUND"),
    ("GetCommit", {"revision": "unheard-of"}, "REVISION_NOT_FOUND"),
    ("DeleteView", {"view_name": "unheard-of"}, "VIEW_NOT_FOUND"),
    ("AddRelation", {"node_id": ROOT, "relation": ABOUT_UNKNOWN}, "NODE_NOT_FOUND"),
]


@pytest.mark.requirement("CANVAS-7")
async def test_a_missing_object_is_named_in_the_error(untouched: Wire) -> None:
    for method, fields, reason in MISSING_OBJECTS:
        refusal = await untouched.refused(method, **fields)
        assert (refusal.code, refusal.reason) == ("NOT_FOUND", reason), (method, fields)


MISSING: list[tuple[str, dict[str, Any], str]] = [
    ("GetWorkspace", {"workspace": ""}, "workspace"),
    ("GetNode", {"node_id": ""}, "node_id"),
    ("CreateNode", creation(session_id=""), "session_id"),
    ("CreateNode", creation(archive_id=""), "archive_id"),
    ("CreateNode", creation(title=""), "title"),
    ("CommitChanges", {"message": ""}, "message"),
    ("CommitChanges", {"message": "m", "session_id": ""}, "session_id"),
    ("CreateArchive", {"name": ""}, "name"),
    ("CreateTag", {"name": ""}, "name"),
    ("CreateBranch", {"name": ""}, "name"),
    ("SearchNodes", {"query": ""}, "query"),
    ("AddRelation", {"node_id": ROOT}, "relation"),
    ("AddRelation", {"node_id": ROOT, "relation": types_pb2.Relation(target_id=CHILD)}, "relation.type"),
    ("AddRelation", {"node_id": ROOT, "relation": types_pb2.Relation(type=1)}, "relation.target_id"),
    ("BatchChangeNodes", {"changes": []}, "changes"),
    ("BatchChangeNodes", {"changes": [pb.NodeChange()]}, "changes[0]"),
    ("SplitNode", {"node_id": ROOT, "parts": [pb.SplitPart(title="alone")]}, "parts"),
    ("MergeNodes", {"node_ids": [ROOT]}, "node_ids"),
    ("DiscardChanges", {"node_ids": []}, "node_ids"),
    ("ListChildren", {}, "archive"),
    ("CreateWorkspace", {"name": ""}, "name"),
]
OUT_OF_RANGE: list[tuple[str, dict[str, Any], str]] = [
    ("GetNode", {"node_id": ROOT, "level": 9}, "level"),
    ("UpdateNode", {"node_id": ROOT, "title": "t", "mode": 9}, "mode"),
    ("MoveNode", {"node_id": CHILD, "position": -1}, "position"),
    ("SearchNodes", {"query": "q", "search_type": 9}, "search_type"),
    ("SearchNodes", {"query": "q", "scope": 9}, "scope"),
    ("SearchNodes", {"query": "q", "max_results": -1}, "max_results"),
    ("SearchNodes", {"query": "q", "preview_length": -1}, "preview_length"),
    ("SearchNodes", {"query": "q", "preview_length": 2001}, "preview_length"),
    ("SearchNodes", {"query": "q", "max_depth": 6}, "max_depth"),
    ("SearchNodes", {"query": "q", "relation_types": [99]}, "relation_types"),
    ("CreateNode", creation(initial_level=99), "initial_level"),
    ("RenderView", {"token_budget": -1}, "token_budget"),
    ("GetTree", {"archive": "notes", "max_depth": -1}, "max_depth"),
    ("GetTree", {"archive": "notes", "max_nodes": -1}, "max_nodes"),
    ("AddRelation", {"node_id": ROOT, "relation": types_pb2.Relation(type=99, target_id=CHILD)}, "relation.type"),  # type: ignore[arg-type]
    ("RemoveRelation", {"node_id": ROOT, "type": 99, "target_id": CHILD}, "type"),
    *(
        (
            "CommitChanges",
            {"message": "m", "author": types_pb2.CommitAuthor(name="Ada", timestamp=when)},
            "author.timestamp",
        )
        for when in (Timestamp(seconds=seconds) for seconds in (-1, 253402300800, 2**62, -(2**62)))
    ),
]
TOO_LONG: list[tuple[str, dict[str, Any], str]] = [  # nothing can be named so, and it is not looked for
    ("GetNode", {"node_id": LONG_NAME}, "node_id"),
    ("GetNode", {"workspace": LONG_NAME, "node_id": ROOT}, "workspace"),
    ("GetNode", {"revision": LONG_NAME, "node_id": ROOT}, "revision"),
    ("UpdateNode", {"session_id": LONG_NAME, "node_id": ROOT, "title": "t"}, "session_id"),
    ("ListChildren", {"archive": LONG_NAME}, "archive"),
    ("ResolveNode", {"name": LONG_NAME}, "name"),
    ("CreateBranch", {"name": LONG_NAME}, "name"),
    ("SearchNodes", {"query": "q", "tags": ["t"] * 65}, "tags"),
    *(("SearchNodes", {"query": "word " * 20_000, "search_type": kind}, "query") for kind in SEARCHES),
]
NUL = "a\x00b"
WITH_NUL: list[tuple[str, dict[str, Any], str]] = [
    ("CreateNode", creation(content=NUL), "content"),
    ("CreateNode", creation(summary=NUL), "summary"),
    ("CreateNode", creation(attributes={"k": NUL}), "attributes['k']"),
    ("CreateNode", creation(view_name=NUL), "view_name"),
    ("UpdateNode", {"node_id": ROOT, "content": NUL, "mode": pb.UPDATE_MODE_APPEND}, "content"),
    ("SearchNodes", {"query": NUL}, "query"),
    ("CommitChanges", {"message": NUL}, "message"),
    ("CreateArchive", {"name": "n", "description": NUL}, "description"),
    ("CreateWorkspace", {"name": "w", "description": NUL}, "description"),
    ("ExpandNode", {"node_id": ROOT, "view_name": NUL}, "view_name"),
]
NO_VALUES: list[tuple[str, dict[str, Any], str]] = [
    ("CreateTag", {"name": "a..b"}, "name"),
    ("CreateBranch", {"name": "a b"}, "name"),
    ("CommitChanges", {"message": "m", "create_tag": True, "tag_name": "a~b"}, "tag_name"),
    ("CommitChanges", {"message": "m", "create_tag": True}, "tag_name"),
    ("CommitChanges", {"message": "m", "tag_name": "v2"}, "create_tag"),
    ("CreateWorkspace", {"name": "con"}, "name"),
    ("UpdateWorkspace", {"name": "a b"}, "name"),
    ("CommitChanges", {"message": "m", "author": types_pb2.CommitAuthor(name="a<b")}, "author.name"),
    ("CommitChanges", {"message": "m", "author": types_pb2.CommitAuthor(name="Ada", email="a\nb")}, "author.email"),
    ("CreateNode", creation(node_id="../../../etc/pass"), "node_id"),
    ("CreateArchive", {"name": "one\u2028two"}, "name"),
    ("CreateNode", creation(tags=[str(number) for number in range(65)]), "tags"),
    ("CreateNode", creation(attributes={"k": "x" * 4097}), "attributes['k']"),
    ("CreateNode", creation(position=-1), "position"),
    ("CreateNode", creation(commit_message="x" * 2001), "commit_message"),
    ("CreateNode", creation(request_id="x" * 129), "request_id"),
    ("CreateNode", creation(request_id="a\nb"), "request_id"),
    ("CreateNode", creation(source=types_pb2.Source(document_id="d", start=-1)), "source.start"),
]


@pytest.mark.requirement("CANVAS-3", "CANVAS-4", "CANVAS-5", "CANVAS-6", "CANVAS-7", "CANVAS-11", "CANVAS-15")
@pytest.mark.requirement("GIT-3", "STORE-8")
async def test_an_argument_that_is_missing_out_of_its_range_or_no_value_is_named_in_the_error(untouched: Wire) -> None:
    for method, fields, field in (*MISSING, *OUT_OF_RANGE, *TOO_LONG, *WITH_NUL, *NO_VALUES):
        refusal = await untouched.refused(method, **fields)
        assert (refusal.code, refusal.fields) == (INVALID, (field,)), (method, fields)
        assert refusal.reason, (method, fields)
        assert (method, fields, field) not in TOO_LONG or re.search("over|at most", refusal.message)


@pytest.mark.requirement("CANVAS-10")
async def test_a_node_cannot_be_moved_below_itself_or_a_descendant(untouched: Wire) -> None:
    for parent in (ROOT, CHILD, LEAF, STAGED):
        refusal = await untouched.refused("MoveNode", node_id=ROOT, parent_id=parent)
        assert (refusal.code, refusal.reason, refusal.fields) == (INVALID, "CYCLE", ("parent_id",)), parent


@pytest.mark.requirement("CANVAS-10")
async def test_a_new_node_cannot_be_its_own_parent_and_no_node_has_a_relation_to_itself(untouched: Wire) -> None:
    own = new_id()
    refusal = await untouched.refused("CreateNode", title="t", node_id=own, parent_id=own)
    assert refusal.code == "NOT_FOUND"
    refusal = await untouched.refused("AddRelation", node_id=ROOT, relation=types_pb2.Relation(type=1, target_id=ROOT))
    assert (refusal.code, refusal.fields) == (INVALID, ("relation.target_id",))


# --- Text -------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("CANVAS-7", "SERVE-1")
async def test_a_lone_surrogate_is_no_text(untouched: Wire) -> None:
    raw = untouched.request("CreateNode", **creation(content="a@@@b")).SerializeToString()
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await untouched.send("CreateNode", raw.replace(b"@@@", b"\xed\xa0\x80"))
    refusal = Refusal.of(caught.value)
    assert (refusal.code, refusal.reason) == (INVALID, "MALFORMED_REQUEST")


LEGAL = [
    "---", "a: b", "- [x] {y} &z *w !tag | > % @ `", "'single' \"double\" \\back\\", "null", "1e5", "2024-01-01",
    "#no comment", "<script>alert(1)</script>", "'; drop table mirror.version; --", "\U0001f468\u200d\U0001f469",
    "\u202eright to left\u202c \u200f\u05e9", "e\u0301 is not \u00e9", "\ufeffbom and \u00a0 blanks \u3000",
    "学" * 500,
]  # fmt: skip


@pytest.mark.requirement("CANVAS-3", "GIT-1")
async def test_legal_text_is_kept_exactly_through_session_commit_and_reading(wire: Wire) -> None:
    made = {}
    for text in LEGAL:
        content = f"---\n{text}\n---\n\r\n\ttext\n\n"
        node = await wire.create(
            text, content=content, brief=text, summary=content[:8000], tags=[text[:100].replace(",", "")],
            attributes={"key": content}, commit_message=text,
        )  # fmt: skip
        made[node.id] = (text, content)
        assert (node.title, node.content, node.brief, node.attributes["key"]) == (text, content, text, content)
    await wire.commit("\n\n".join(LEGAL))
    for node_id, (text, content) in made.items():
        node = await wire.get(node_id, "")
        assert (node.title, node.content, node.brief, node.attributes["key"]) == (text, content, text, content)
        assert list(node.tags) == [text[:100].replace(",", "").strip()]


# --- Sizes ------------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("CANVAS-3", "CANVAS-4")
async def test_content_over_the_limit_is_refused_with_the_limit(untouched: Wire) -> None:
    limit = 2**20
    split = [pb.SplitPart(title="a"), pb.SplitPart(title="b", content="学" * (limit // 3 + 1))]
    calls: list[tuple[str, dict[str, Any]]] = [
        ("CreateNode", creation(content="学" * (limit // 3 + 1))),
        ("UpdateNode", {"node_id": ROOT, "content": "x" * (limit + 1)}),
        ("SplitNode", {"node_id": ROOT, "parts": split}),
    ]
    for method, fields in calls:
        refusal = await untouched.refused(method, **fields)
        assert (refusal.code, refusal.reason) == ("RESOURCE_EXHAUSTED", "CONTENT_TOO_LARGE")
        assert str(limit) in refusal.message
    joined = await untouched.refused("UpdateNode", node_id=ROOT, content="x" * limit, mode=pb.UPDATE_MODE_APPEND)
    assert joined.reason == "CONTENT_TOO_LARGE"


# --- States -----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("CANVAS-4", "CANVAS-15", "STORE-2")
async def test_a_stale_etag_and_a_workspace_name_in_use_are_refused(untouched: Wire) -> None:
    for method, fields in (("UpdateNode", {"node_id": ROOT, "title": "t"}), ("DeleteArchive", {"archive": "notes"})):
        refusal = await untouched.refused(method, etag="nonsense", **fields)
        assert (refusal.code, refusal.reason) == ("ABORTED", "STALE_ETAG")
    refusal = await untouched.refused("CreateWorkspace", name=untouched.workspace)
    assert (refusal.code, refusal.reason) == ("ALREADY_EXISTS", "WORKSPACE_EXISTS")


@pytest.mark.requirement("CANVAS-6")
async def test_the_first_and_the_last_time_can_be_committed(wire: Wire) -> None:
    for seconds in (0, 253402300799):
        await wire.create()
        author = types_pb2.CommitAuthor(name="Ada", timestamp=Timestamp(seconds=seconds))
        commit_id = await wire.commit(author=author)
        assert (await wire("GetCommit", revision=commit_id)).commit.author.timestamp.seconds == seconds


@pytest.mark.requirement("CANVAS-15", "STORE-5")
async def test_a_session_of_another_workspace_is_not_found(untouched: Wire, wire: Wire) -> None:
    foreign = wire.session
    calls: list[tuple[str, dict[str, Any]]] = [
        ("CreateNode", creation(session_id=foreign)),
        ("CommitChanges", {"session_id": foreign, "message": "m"}),
        ("GetSession", {"session_id": foreign}),
        ("RebaseSession", {"session_id": foreign}),
        ("DiscardChanges", {"session_id": foreign, "node_ids": [ROOT]}),
        ("GetNode", {"revision": foreign, "node_id": ROOT}),
        ("RenderView", {"revision": foreign}),
    ]
    before = await wire.snapshot()
    for method, fields in calls:
        refusal = await untouched.refused(method, **fields)
        assert refusal.code == "NOT_FOUND", method
        assert refusal.reason in {"SESSION_NOT_FOUND", "REVISION_NOT_FOUND"}, method
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
async def test_a_page_size_is_bounded_and_one_below_zero_or_a_forged_token_refused(untouched: Wire) -> None:
    for method, fields in LISTS:
        usual = await untouched(method, page_size=0, **fields)
        great = await untouched(method, page_size=1_000_000, **fields)
        if not usual.next_page_token:
            assert great == usual, method
        refusal = await untouched.refused(method, page_size=-(2**31), **fields)
        assert (refusal.code, refusal.reason, refusal.fields) == (INVALID, "INVALID_PAGE_SIZE", ("page_size",)), method
        for token in (json.dumps({"id": "a"}), "\u4e2d", "x" * 100_000):
            refusal = await untouched.refused(method, page_token=token, **fields)
            told = (refusal.code, refusal.reason, refusal.fields)
            assert told == (INVALID, "INVALID_PAGE_TOKEN", ("page_token",)), method


@pytest.mark.requirement("SERVE-1")
async def test_a_page_token_whose_commit_is_not_there_any_more_is_refused(untouched: Wire, wire: Wire) -> None:
    foreign = (await wire("ListCommits")).commits[0].id  # in another workspace
    for commit in ("", "'; drop schema mirror cascade; --", "0" * 40, foreign):
        cursor = {"after": "", "commit": commit, "session": ""}
        token = PageTokens(PAGE_KEY).write(untouched.request("ListCommits"), cursor)
        assert (await untouched.refused("ListCommits", page_token=token)).code in {INVALID, "NOT_FOUND"}, commit


# --- Queries ----------------------------------------------------------------------------------------------------------

SYNTAX = [
    "'; drop schema mirror cascade; --", "' or '1'='1", '" & | ! ( ) :* <->', "title:apple -pear +fig ~2 ^3", "%_%",
    "$1 %s %(workspace)s {0}", '{"must": [{"key": "workspace", "match": {"any": ["x"]}}]}', "\\", "\\x00", "(" * 1000,
    "*" * 8192, "a" * 8192, "学" * 8192, "a.b" * 2000, "\u202e\u200f\ufeff", "\U0001f600",
]  # fmt: skip


@pytest.mark.requirement("CANVAS-5")
async def test_a_query_is_text_and_never_syntax_and_its_words_are_found(untouched: Wire) -> None:
    for kind in SEARCHES:
        for query in SYNTAX:
            found = await untouched("SearchNodes", revision=untouched.session, query=query, search_type=kind)
            assert all(0 <= hit.score <= 1 for hit in found.hits), kind
        for name in ("'; drop schema mirror cascade; --", "%", '"'):
            assert not (await untouched("SearchNodes", query="apple", search_type=kind, tags=[name])).hits, kind
            assert not (await untouched("SearchNodes", query="apple", search_type=kind, node_types=[name])).hits, kind
    for query in ("apple'; drop schema mirror; --", "apple & !pear | (fig", '{"must": "apple"}'):
        found = await untouched("SearchNodes", query=query)
        assert [hit.node.id for hit in found.hits] == [ROOT], query


@pytest.mark.requirement("CANVAS-5")
async def test_a_query_of_stop_words_only_finds_the_nodes_that_have_them(wire: Wire) -> None:
    await wire.create("To be", content="to be or not to be that is the question")
    await wire.create("Other", content="elephants swim")
    assert await wire.search("to be or not to be") == ["To be"]
    assert await wire.search("the") == ["To be"]
    assert await wire.search("... !!! ???") == []
