"""Arguments of one kind take the same forms in every call: a node by a prefix, an archive by id, prefix or name."""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any, Final

import grpc
import pytest
from crash.service import start
from google.protobuf.descriptor import Descriptor
from integration.wires import UNBOUNDED, Wire

from memotree.server.binding import contract
from memotree.v1 import forest_service_pb2 as forest_pb
from memotree.v1 import node_service_pb2 as node_pb
from memotree.v1 import types_pb2

Fields = Mapping[str, Any]
Call = Callable[[str], tuple[str, Fields]]
"""Makes a call with an argument: the name of its method, and its fields."""

NODE, ARCHIVE, OTHER, LINKED = (f"{prefix}{'0' * 12}" for prefix in ("abc1", "abc2", "efgh", "jkmn"))
SHARED: Final = "abcd"
"""A prefix that a node and an archive have."""

TWINS: Final = (f"{SHARED}{'1' * 12}", f"{SHARED}{'2' * 12}")
"""The node and the archive."""


def relation(target: str) -> types_pb2.Relation:
    return types_pb2.Relation(type=types_pb2.RELATION_TYPE_ABOUT, target_id=target)


def splitting(node: str) -> tuple[str, Fields]:
    return "SplitNode", {"node_id": node, "parts": [node_pb.SplitPart(title="A"), node_pb.SplitPart(title="B")]}


def unrelating(node: str, target: str) -> tuple[str, Fields]:
    return "RemoveRelation", {"node_id": node, "type": types_pb2.RELATION_TYPE_ABOUT, "target_id": target}


def searching(node: str) -> tuple[str, Fields]:
    return "SearchNodes", {"query": "x", "scope": node_pb.SEARCH_SCOPE_SUBTREE, "scope_node_id": node}


def recalling(**wanted: Any) -> tuple[str, Fields]:
    return "Recall", {"query": "x", "filter": forest_pb.RecallFilter(**wanted)}


def creating(**fields: Any) -> tuple[str, Fields]:
    return "CreateNode", {"title": "New", **fields}


NODES: Final[Mapping[str, Call]] = {
    "AddRelation.node_id": lambda node: ("AddRelation", {"node_id": node, "relation": relation(OTHER)}),
    "AddRelation.relation.target_id": lambda node: ("AddRelation", {"node_id": OTHER, "relation": relation(node)}),
    "BisectNode.node_id": lambda node: ("BisectNode", {"node_id": node}),
    "BlameNode.node_id": lambda node: ("BlameNode", {"node_id": node}),
    "CollapseNode.node_id": lambda node: ("CollapseNode", {"node_id": node}),
    "CreateNode.parent_id": lambda node: creating(parent_id=node),
    "CreateNode.relations.target_id": lambda node: creating(archive_id="notes", relations=[relation(node)]),
    "DeleteNode.node_id": lambda node: ("DeleteNode", {"node_id": node}),
    "DrillDown.node_id": lambda node: ("DrillDown", {"node_id": node, "query": "x"}),
    "ExpandNode.node_id": lambda node: ("ExpandNode", {"node_id": node}),
    "Forget.node_id": lambda node: ("Forget", {"node_id": node}),
    "GetNode.node_id": lambda node: ("GetNode", {"node_id": node}),
    "GetTree.node_id": lambda node: ("GetTree", {"node_id": node}),
    "ListChildren.parent_id": lambda node: ("ListChildren", {"parent_id": node}),
    "ListNodeRevisions.node_id": lambda node: ("ListNodeRevisions", {"node_id": node}),
    "MergeNodes.node_ids": lambda node: ("MergeNodes", {"node_ids": [OTHER, node]}),
    "MoveNode.node_id": lambda node: ("MoveNode", {"node_id": node, "position": 0}),
    "MoveNode.parent_id": lambda node: ("MoveNode", {"node_id": OTHER, "parent_id": node}),
    "Recall.filter.scope_node_id": lambda node: recalling(scope_node_id=node),
    "Remember.about": lambda node: ("Remember", {"text": "It is so.", "about": [node]}),
    "Remember.supersedes": lambda node: ("Remember", {"text": "It is so.", "supersedes": [node]}),
    "RemoveRelation.node_id": lambda node: unrelating(node, LINKED),
    "RemoveRelation.target_id": lambda node: unrelating(LINKED, node),
    "Restore.node_id": lambda node: ("Restore", {"node_id": node, "revision": "v1"}),
    "Revise.node_id": lambda node: ("Revise", {"node_id": node, "text": "It is new."}),
    "SearchNodes.scope_node_id": searching,
    "SplitNode.node_id": splitting,
    "UpdateNode.node_id": lambda node: ("UpdateNode", {"node_id": node, "title": "Changed"}),
}
"""Calls that take a node, by the field that names it."""

ARCHIVES: Final[Mapping[str, Call]] = {
    "CreateNode.archive_id": lambda archive: creating(archive_id=archive),
    "DeleteArchive.archive": lambda archive: ("DeleteArchive", {"archive": archive}),
    "GetArchive.archive": lambda archive: ("GetArchive", {"archive": archive}),
    "GetTree.archive": lambda archive: ("GetTree", {"archive": archive}),
    "ListChildren.archive": lambda archive: ("ListChildren", {"archive": archive}),
    "ListStaleSummaries.archive": lambda archive: ("ListStaleSummaries", {"archive": archive}),
    "MergeArchives.archives": lambda archive: ("MergeArchives", {"archives": [archive, "notes"], "name": "Joined"}),
    "MoveNode.archive_id": lambda archive: ("MoveNode", {"node_id": OTHER, "archive_id": archive}),
    "Recall.filter.archives": lambda archive: recalling(archives=[archive]),
    "RenderView.archive": lambda archive: ("RenderView", {"archive": archive}),
    "RenewSummaries.archive": lambda archive: ("RenewSummaries", {"archive": archive}),
    "SearchNodes.archives": lambda archive: ("SearchNodes", {"query": "x", "archives": [archive]}),
    "UpdateArchive.archive": lambda archive: ("UpdateArchive", {"archive": archive, "description": "Changed"}),
}
"""Calls that take an archive, by the field that names it."""

OF_ANOTHER_KIND: Final = {
    "CommentProposal.node_id": "a node or archive of the proposal",
    "PutMemoryTests.tests.archives": "kept as they are; Recall looks for them when the test is run",
    **{
        f"{call}.filter.{field}": "as in Recall"
        for call in ("Ask", "Query", "StreamQuery", "PlanQuery")
        for field in ("archives", "scope_node_id")
    },
    "CommitChanges.specific_nodes": "staged changes, of nodes and archives",
    "CreateArchive.archive_id": "a new id",
    "CreateNode.node_id": "a new id",
    "DiffRevisions.node_id": "a node or archive",
    "Erase.target.archive_id": "as in PreviewErasure",
    "Erase.target.node_id": "as in PreviewErasure",
    "PreviewErasure.target.archive_id": "a whole id: no present state may have it",
    "PreviewErasure.target.node_id": "a whole id: no present state may have it",
    "DiffRevisions.subtree_id": "a node or archive",
    "DiscardChanges.node_ids": "staged changes, of nodes and archives",
    "ListCommits.node_id": "a node or archive",
    "ListCommits.subtree_id": "a node or archive",
    "Remember.archive": "a name that no archive has is given to a new one, so that it cannot be a prefix",
    **{
        f"{call}.only.{field}": "changes of the other side, of nodes and archives"
        for call in ("CherryPick", "MergeBranch", "PreviewMerge", "RevertCommit")
        for field in ("node_ids", "subtree_ids")
    },
    "ResolveConflicts.resolutions.node_id": "conflicts, of nodes and archives",
    "ResolveConflicts.resolutions.place.archive_id": "part of a place, as a conflict has it",
    "ResolveConflicts.resolutions.place.parent_id": "part of a place, as a conflict has it",
    "RestoreNodes.node_ids": "nodes and archives of the revision",
    "SplitNode.parts.node_id": "new ids",
}
"""Other fields with such names."""

_NAMES: Final = frozenset({"about", "archive", "archive_id", "archives", "node_id", "node_ids", "parent_id",
                           "scope_node_id", "specific_nodes", "subtree_id", "subtree_ids", "supersedes",
                           "target_id"})  # fmt: skip


def named(message: Descriptor, path: str) -> Iterator[str]:
    """The paths of the fields that name nodes or archives; those of a batch are those of its single calls."""
    for field in message.fields:
        if field.name in _NAMES:
            yield f"{path}.{field.name}"
        elif field.message_type is not None and field.name not in {"changes", "receipt"}:
            yield from named(field.message_type, f"{path}.{field.name}")


def test_every_field_that_names_a_node_or_archive_is_tried() -> None:
    methods = [method for service in contract().values() for method in service.methods]
    found = {path for method in methods for path in named(method.input_type, method.name)}
    assert found == NODES.keys() | ARCHIVES.keys() | OF_ANOTHER_KIND.keys()


COMMITTING: Final = frozenset({"Forget", "MergeArchives", "Remember", "RenewSummaries", "Restore", "Revise"})
"""Calls that commit by themselves, and change the workspace for the others."""


@pytest.fixture(scope="module")
async def whole(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Wire]:
    """A workspace with a node and an archive of one prefix, and others, on a server with all services."""
    folder = tmp_path_factory.mktemp("forms")
    service = await start(folder / "data", folder / "server.log")
    try:
        async with grpc.aio.insecure_channel(service.address, options=UNBOUNDED) as channel:
            yield await fill(await Wire.begin(channel))
    finally:
        service.kill()


@pytest.fixture
async def filled(whole: Wire) -> Wire:
    """A session of its own on that workspace."""
    return await whole.other()


async def call(wire: Wire, method: str, fields: Fields) -> Any:
    """Make a call in a session of its own; one that commits gets a workspace of its own."""
    within = await fill(await Wire.begin(wire._channel)) if method in COMMITTING else await wire.other()
    return await within(method, **fields)


async def fill(wire: Wire) -> Wire:
    await wire("CreateArchive", name="Twin archive", archive_id=TWINS[1])
    await wire("CreateArchive", name="Other archive", archive_id=ARCHIVE)
    for node_id in (NODE, OTHER, LINKED, TWINS[0]):
        await wire.create(f"Title of {node_id}", node_id=node_id, content="x y z")
    for node_id in (NODE, TWINS[0]):
        await wire("AddRelation", node_id=node_id, relation=relation(LINKED))
        await wire("AddRelation", node_id=LINKED, relation=relation(node_id))
    await wire.commit(create_tag=True, tag_name="v1")
    for node_id in (NODE, TWINS[0]):
        await wire("UpdateNode", node_id=node_id, title=f"New title of {node_id}")
    await wire.commit()
    return wire


@pytest.mark.requirement("CANVAS-13")
@pytest.mark.parametrize("field", [*NODES, *ARCHIVES])
async def test_a_node_or_archive_is_named_by_its_id_or_a_prefix_that_no_other_has_and_an_archive_by_its_name(
    whole: Wire, field: str
) -> None:
    """Node and archive share one prefix, which is no prefix of two nodes or of two archives."""
    calling = NODES.get(field) or ARCHIVES[field]
    for named in (NODE, NODE[:4], SHARED) if field in NODES else (ARCHIVE, ARCHIVE[:4], "Other archive", SHARED):
        assert await call(whole, *calling(named)) is not None


@pytest.mark.requirement("CANVAS-13")
async def test_archives_that_a_prefix_may_mean_are_listed_as_nodes_with_their_names(filled: Wire) -> None:
    other = f"{SHARED}{'3' * 12}"
    await filled("CreateArchive", name="A third", archive_id=other)
    refusal = await filled.refused("GetArchive", archive=SHARED, revision=filled.session)
    assert (refusal.code, refusal.reason) == ("INVALID_ARGUMENT", "AMBIGUOUS_ID")
    listed = [(node.id, node.title, node.archive_id) for node in refusal.nodes]
    assert listed == [(TWINS[1], "Twin archive", TWINS[1]), (other, "A third", other)]


@pytest.mark.requirement("CANVAS-13")
async def test_a_job_is_named_by_a_prefix_and_a_session_by_its_whole_id(filled: Wire) -> None:
    job = (await filled("StartReindex")).job
    for method in ("GetJob", "CancelJob"):
        assert (await filled(method, job_id=job.id[:12])).job.id == job.id
    assert (await filled.refused("ResumeJob", job_id="zzzz")).reason == "JOB_NOT_FOUND"
    part = filled.session[:12]
    assert (await filled.refused("GetSession", session_id=part)).reason == "SESSION_NOT_FOUND"
    assert (await filled.refused("GetTree", revision=part, archive="notes")).reason == "REVISION_NOT_FOUND"


@pytest.mark.requirement("CANVAS-13")
async def test_a_branch_that_is_committed_to_is_named_by_its_name(filled: Wire) -> None:
    joined = {"archives": ["notes", "Other archive"], "name": "Joined"}
    calls = {"OpenSession": {}, "Remember": {"text": "It is so."}, "RenewSummaries": {}, "MergeArchives": joined}
    for method, fields in calls.items():
        refusal = await filled.refused(method, branch="refs/heads/main", **fields)
        assert (refusal.code, refusal.reason) == ("NOT_FOUND", "BRANCH_NOT_FOUND"), method
        await call(filled, method, {"branch": "main", **fields})


@pytest.mark.requirement("CANVAS-13")
async def test_a_revision_takes_every_form(filled: Wire) -> None:
    commit = (await filled("GetCommit")).commit.id
    for method in ("GetTree", "ListArchives", "RenderView", "ListCommits", "ListStaleSummaries"):
        fields = {"archive": "notes"} if method == "GetTree" else {}
        for revision in ("", "main", "refs/heads/main", "v1", "refs/tags/v1", commit, commit[:10], filled.session):
            assert await filled(method, revision=revision, **fields) is not None, method
