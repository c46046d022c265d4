"""Bad ids, texts and sizes get a clear error over gRPC: code, reason, fields; and change nothing."""

import re
from typing import Any

import grpc
import pytest
from integration.prepared import AMBIGUOUS, CHILD, GONE, LEAF, ROOT, STAGED, TWINS, UNKNOWN, creation
from integration.wires import Refusal, Wire
from memotree_storage.model.node import new_id

from memotree.v1 import node_service_pb2 as pb
from memotree.v1 import types_pb2

LONG_NAME = "a/" * 50_001
INVALID = "INVALID_ARGUMENT"


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
async def test_an_unknown_ambiguous_or_impossible_id_is_refused(untouched: Wire, subtests: pytest.Subtests) -> None:
    for method, field, fields in NAMING_ONE_NODE:
        with subtests.test(method=method, field=field, fields=fields):
            unknown = await named(untouched, method, field, UNKNOWN, fields)
            assert (unknown.code, unknown.reason) == ("NOT_FOUND", "NODE_NOT_FOUND")
            assert UNKNOWN in unknown.message
            ambiguous = await named(untouched, method, field, AMBIGUOUS, fields)
            assert (ambiguous.code, ambiguous.reason) == (INVALID, "AMBIGUOUS_ID")
            assert [node.id for node in ambiguous.nodes] == list(TWINS)
            for text in ("abc", "ABCDEFGH", "'; drop schema mirror; --", f"{ROOT}0", "a" * 5000, "..", "ilouilou"):
                impossible = await named(untouched, method, field, text, fields)
                assert (impossible.code, impossible.reason, len(impossible.fields)) == (INVALID, "INVALID_ID", 1), text


@pytest.mark.requirement("CANVAS-13")
async def test_a_deleted_node_is_not_found(untouched: Wire, subtests: pytest.Subtests) -> None:
    for method, field, fields in NAMING_ONE_NODE:
        with subtests.test(method=method, field=field, fields=fields):
            if method == "ListNodeRevisions":
                continue  # the history of a deleted node can be read
            refusal = await named(untouched, method, field, GONE, fields)
            assert (refusal.code, refusal.reason) == ("NOT_FOUND", "NODE_NOT_FOUND")


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
    (
        "AddRelation",
        {"node_id": ROOT, "relation": types_pb2.Relation(type=1, target_id=UNKNOWN)},
        "NODE_NOT_FOUND",
    ),
]


@pytest.mark.requirement("CANVAS-7")
async def test_a_missing_object_is_named_in_the_error(untouched: Wire, subtests: pytest.Subtests) -> None:
    for method, fields, reason in MISSING_OBJECTS:
        with subtests.test(method=method, fields=fields, reason=reason):
            refusal = await untouched.refused(method, **fields)
            assert (refusal.code, refusal.reason) == ("NOT_FOUND", reason)


MISSING: list[tuple[str, dict[str, Any], str]] = [
    ("GetWorkspace", {"workspace": ""}, "workspace"),
    ("GetNode", {"workspace": "", "node_id": ROOT}, "workspace"),
    ("GetNode", {"node_id": ""}, "node_id"),
    ("CreateNode", creation(session_id=""), "session_id"),
    ("CreateNode", creation(archive_id=""), "archive_id"),
    ("CreateNode", creation(title=""), "title"),
    ("CreateNode", creation(title=" \u3000 "), "title"),
    ("CommitChanges", {"message": ""}, "message"),
    ("CommitChanges", {"message": " \n "}, "message"),
    ("CommitChanges", {"message": "m", "session_id": ""}, "session_id"),
    ("CreateArchive", {"name": ""}, "name"),
    ("CreateTag", {"name": ""}, "name"),
    ("CreateBranch", {"name": ""}, "name"),
    ("SearchNodes", {"query": ""}, "query"),
    ("SearchNodes", {"query": " \t\n"}, "query"),
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
]


@pytest.mark.requirement("CANVAS-4", "CANVAS-5", "CANVAS-7", "CANVAS-11", "STORE-8")
async def test_a_missing_argument_or_one_out_of_its_range_is_named_in_the_error(
    untouched: Wire, subtests: pytest.Subtests
) -> None:
    for method, fields, field in (*MISSING, *OUT_OF_RANGE, *TOO_LONG):
        with subtests.test(method=method, fields=fields, field=field):
            refusal = await untouched.refused(method, **fields)
            assert (refusal.code, refusal.fields) == (INVALID, (field,))
            assert refusal.reason
            assert (method, fields, field) not in TOO_LONG or re.search("over|at most", refusal.message)


@pytest.mark.requirement("CANVAS-10")
async def test_a_node_cannot_be_moved_below_itself_or_a_descendant(untouched: Wire, subtests: pytest.Subtests) -> None:
    for parent in (ROOT, CHILD, LEAF, STAGED):
        with subtests.test(parent=parent):
            refusal = await untouched.refused("MoveNode", node_id=ROOT, parent_id=parent)
            assert (refusal.code, refusal.reason, refusal.fields) == (INVALID, "CYCLE", ("parent_id",))


@pytest.mark.requirement("CANVAS-10")
async def test_a_new_node_cannot_be_its_own_parent_and_no_node_has_a_relation_to_itself(untouched: Wire) -> None:
    own = new_id()
    refusal = await untouched.refused("CreateNode", title="t", node_id=own, parent_id=own)
    assert refusal.code == "NOT_FOUND"
    refusal = await untouched.refused("AddRelation", node_id=ROOT, relation=types_pb2.Relation(type=1, target_id=ROOT))
    assert (refusal.code, refusal.fields) == (INVALID, ("relation.target_id",))


NO_IDS: list[str] = ["abc", "ABCDEFGHJKMNPQRS", "../../../etc/pass", "o" * 16, "0" * 17]


@pytest.mark.requirement("CANVAS-3")
async def test_an_id_given_by_the_caller_must_have_the_form_of_an_id(
    untouched: Wire, subtests: pytest.Subtests
) -> None:
    for node_id in NO_IDS:
        with subtests.test(node_id=node_id):
            refusal = await untouched.refused("CreateNode", **creation(node_id=node_id))
            assert (refusal.code, refusal.reason) == (INVALID, "INVALID_NODE")
            assert refusal.fields == ("node_id",)


# --- Text -------------------------------------------------------------------------------------------------------------

TEXTS: list[tuple[str, dict[str, Any], str]] = [
    ("CreateNode", {"title": "?"}, "title"),
    ("CreateNode", {"title": "t", "content": "?"}, "content"),
    ("CreateNode", {"title": "t", "brief": "?"}, "brief"),
    ("CreateNode", {"title": "t", "summary": "?"}, "summary"),
    ("CreateNode", {"title": "t", "tags": ["?"]}, "tags[0]"),
    ("CreateNode", {"title": "t", "attributes": {"k": "?"}}, "attributes['k']"),
    ("CreateNode", {"title": "t", "commit_message": "?"}, "commit_message"),
    ("CreateNode", {"title": "t", "view_name": "?"}, "view_name"),
    ("UpdateNode", {"node_id": ROOT, "title": "?"}, "title"),
    ("UpdateNode", {"node_id": ROOT, "content": "?", "mode": pb.UPDATE_MODE_APPEND}, "content"),
    ("SearchNodes", {"query": "?"}, "query"),
    ("CommitChanges", {"message": "?"}, "message"),
    ("CreateArchive", {"name": "?"}, "name"),
    ("CreateArchive", {"name": "n", "description": "?"}, "description"),
    ("OpenSession", {"agent": "?"}, "agent"),
    ("CreateWorkspace", {"name": "w", "description": "?"}, "description"),
    ("ExpandNode", {"node_id": ROOT, "view_name": "?"}, "view_name"),
]


def with_text(value: Any, text: str) -> Any:
    """The value with the text in place of each question mark."""
    if isinstance(value, str):
        return value.replace("?", text)
    if isinstance(value, list):
        return [with_text(item, text) for item in value]
    if isinstance(value, dict):
        return {key: with_text(item, text) for key, item in value.items()}
    return value


@pytest.mark.requirement("CANVAS-3", "CANVAS-4", "CANVAS-7")
async def test_a_nul_or_control_character_is_refused(untouched: Wire, subtests: pytest.Subtests) -> None:
    for method, fields, field in TEXTS:
        with subtests.test(method=method, fields=fields, field=field):
            home = {"archive_id": "notes"} if method == "CreateNode" else {}
            # A query is only compared, so it may be any text that the stores accept: anything without a NUL.
            characters = "\x00" if method == "SearchNodes" else "\x00\x07\x1b\x7f\x85\x9f"
            for character in characters:
                refusal = await untouched.refused(method, **home, **with_text(fields, f"a{character}b"))
                assert (refusal.code, refusal.fields) == (INVALID, (field,))
                assert refusal.reason


FIELDS_OF_TEXT: list[tuple[str, str]] = [("CreateNode", "title"), ("CreateNode", "content"), ("SearchNodes", "query")]


@pytest.mark.requirement("CANVAS-7", "SERVE-1")
async def test_a_lone_surrogate_is_no_text(untouched: Wire, subtests: pytest.Subtests) -> None:
    for method, field in FIELDS_OF_TEXT:
        with subtests.test(method=method, field=field):
            fields = {"archive_id": "notes"} if method == "CreateNode" else {}
            raw = untouched.request(method, **fields, **{field: "a@@@b"}).SerializeToString()
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await untouched.send(method, raw.replace(b"@@@", b"\xed\xa0\x80"))
            refusal = Refusal.of(caught.value)
            assert (refusal.code, refusal.reason) == (INVALID, "MALFORMED_REQUEST")


@pytest.mark.requirement("SERVE-1")
async def test_bytes_that_cannot_be_decoded_are_refused(untouched: Wire) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await untouched.send("CreateNode", b"\xff\xff\xff not a message")
    assert Refusal.of(caught.value).reason == "MALFORMED_REQUEST"


LINE_ENDS: list[str] = ["\n", "\r", "\r\n", "\t", "\x0b", "\x0c", "\u2028", "\u2029"]


@pytest.mark.requirement("CANVAS-3")
async def test_a_title_brief_tag_or_name_is_one_line(untouched: Wire, subtests: pytest.Subtests) -> None:
    for separator in LINE_ENDS:
        with subtests.test(separator=separator):
            text = f"one{separator}two"
            for fields in ({"title": text}, {"brief": text}, {"tags": [text]}):
                refusal = await untouched.refused("CreateNode", **creation(**fields))
                assert (refusal.code, refusal.reason) == (INVALID, "INVALID_NODE")
                assert refusal.fields[0].startswith(next(iter(fields)))
            assert (await untouched.refused("CreateArchive", name=text)).fields == ("name",)


LEGAL = [
    "---",
    "...",
    "a: b",
    "- [x] {y} &z *w !tag | > % @ `",
    "'single' \"double\" \\back\\",
    "null",
    "yes",
    "1e5",
    "0x1F",
    "2024-01-01",
    "#no comment",
    "<script>alert(1)</script>",
    "'; drop table mirror.version; --",
    "\U0001f600 \U0001f468\u200d\U0001f469\u200d\U0001f467",
    "\u202eright to left\u202c \u200f\u05e9\u05dc\u05d5\u05dd",
    "e\u0301 is not \u00e9",
    "\ufeffbom and \u00a0 blanks \u3000",
    "x" * 500,
    "学" * 500,
]


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
    for content in ("x" * (limit + 1), "学" * (limit // 3 + 1)):
        calls: list[tuple[str, dict[str, Any]]] = [
            ("CreateNode", creation(content=content)),
            ("UpdateNode", {"node_id": ROOT, "content": content}),
            (
                "SplitNode",
                {"node_id": ROOT, "parts": [pb.SplitPart(title="a"), pb.SplitPart(title="b", content=content)]},
            ),
        ]
        for method, fields in calls:
            refusal = await untouched.refused(method, **fields)
            assert (refusal.code, refusal.reason) == ("RESOURCE_EXHAUSTED", "CONTENT_TOO_LARGE")
            assert str(limit) in refusal.message
    joined = await untouched.refused("UpdateNode", node_id=ROOT, content="x" * limit, mode=pb.UPDATE_MODE_APPEND)
    assert joined.reason == "CONTENT_TOO_LARGE"


OVER_LIMITS: list[tuple[dict[str, Any], list[str]]] = [
    ({"title": "x" * 501}, ["title"]),
    ({"brief": "x" * 501}, ["brief"]),
    ({"summary": "x" * 8193}, ["summary"]),
    ({"tags": [str(number) for number in range(65)]}, ["tags"]),
    ({"tags": ["x" * 101]}, ["tags[0]"]),
    ({"tags": ["a,b"]}, ["tags[0]"]),
    ({"tags": [""]}, ["tags[0]"]),
    ({"attributes": {str(number): "" for number in range(65)}}, ["attributes"]),
    ({"attributes": {"": "v"}}, ["attributes['']"]),
    ({"attributes": {"a b": "v"}}, ["attributes['a b']"]),
    ({"attributes": {"k": "x" * 4097}}, ["attributes['k']"]),
    ({"type": "unheard_of"}, ["type"]),
    ({"type": "NOTE"}, ["type"]),
    ({"position": -1}, ["position"]),
    ({"commit_message": "x" * 2001}, ["commit_message"]),
    ({"request_id": "x" * 129}, ["request_id"]),
    ({"request_id": "a\nb"}, ["request_id"]),
    ({"initial_level": 17, "view_name": "v"}, ["initial_level"]),
    ({"source": types_pb2.Source(start=1)}, ["source.document_id", "source.end"]),
    ({"source": types_pb2.Source(document_id="d", start=-1, page=-1)}, ["source.start", "source.page"]),
    ({"title": "", "brief": "a\nb", "type": "x", "tags": ["a,b"]}, ["type", "title", "brief", "tags[0]"]),
]


@pytest.mark.requirement("CANVAS-3")
async def test_one_error_names_every_field_over_its_limit(untouched: Wire, subtests: pytest.Subtests) -> None:
    for fields, violated in OVER_LIMITS:
        with subtests.test(fields=fields, violated=violated):
            refusal = await untouched.refused("CreateNode", **creation(**fields))
            assert (refusal.code, list(refusal.fields)) == (INVALID, violated)
