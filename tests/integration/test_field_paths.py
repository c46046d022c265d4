"""An error names each wrong argument by its path in the request, also inside parts and batches."""

from typing import Any

import pytest
from integration.prepared import AMBIGUOUS, CHILD, LEAF, ROOT, TWINS, creation
from integration.wires import Wire, has_path
from integration.worlds import World
from memotree_storage.errors import FieldViolation
from memotree_storage.model.node import Node, new_id
from memotree_storage.postgres.registry import AmbiguousRevisionError

from memotree.canvas.field_paths import RequestFields
from memotree.history import HistoryOperations
from memotree.v1 import node_service_pb2 as pb
from memotree.v1 import types_pb2
from memotree.v1.history_service_pb2 import DiffRevisionsRequest

pytestmark = pytest.mark.requirement("CANVAS-7", "SERVE-2")

BAD = "bad\x07character"


def relation(target: str = CHILD, kind: int = 1, description: str = "") -> types_pb2.Relation:
    return types_pb2.Relation(type=kind, target_id=target, description=description)  # type: ignore[arg-type] # any number


def part(title: str = "A part", **fields: Any) -> pb.SplitPart:
    return pb.SplitPart(title=title, **fields)


CALLS: list[tuple[str, dict[str, Any], list[str]]] = [
    ("OpenSession", {"agent": BAD}, ["agent"]),
    ("CreateArchive", {"name": BAD, "archive_id": "nonsense"}, ["archive_id", "name"]),
    ("UpdateArchive", {"archive": "notes", "name": BAD, "model_id": BAD}, ["name", "model_id"]),
    ("ListChildren", {"parent_id": AMBIGUOUS}, ["parent_id"]),
    ("ListChildren", {"parent_id": "!"}, ["parent_id"]),
    ("GetTree", {"node_id": "!"}, ["node_id"]),
    ("SearchNodes", {"query": "q", "archives": ["notes", ""]}, ["archives[1]"]),
    ("ListCommits", {"subtree_id": "!"}, ["subtree_id"]),
    ("DiscardChanges", {"node_ids": [ROOT, "!"]}, ["node_ids[1]"]),
    ("CommitChanges", {"message": "m", "specific_nodes": [ROOT, "!"]}, ["specific_nodes[1]"]),
    ("CreateNode", creation(node_id="nonsense", title=BAD), ["node_id", "title"]),
    ("CreateNode", creation(tags=["z", " a ", "b,c", "z", BAD]), ["tags[2]", "tags[4]"]),
    ("CreateNode", creation(relations=[relation(ROOT, 7), relation(CHILD, 1, BAD)]), ["relations[1].description"]),
    ("CreateNode", creation(relations=[relation(), relation(kind=99)]), ["relations[1].type"]),
    ("CreateNode", creation(relations=[relation(), relation("!")]), ["relations[1].target_id"]),
    ("CreateNode", creation(source=types_pb2.Source(document_id=BAD)), ["source.document_id"]),
    ("UpdateNode", {"node_id": ROOT, "tags": ["b", "A,B"]}, ["tags[1]"]),
    ("UpdateNode", {"node_id": ROOT, "tags": ["b", "A,B"], "mode": pb.UPDATE_MODE_REPLACE}, ["tags[1]"]),
    ("UpdateNode", {"node_id": ROOT, "title": BAD, "attributes": {"a b": "v"}}, ["title", "attributes['a b']"]),
    ("UpdateNode", {"node_id": ROOT, "update_mask": {"paths": ["position"]}}, ["update_mask"]),
    ("MoveNode", {"node_id": CHILD, "parent_id": LEAF}, ["parent_id"]),
    ("SplitNode", {"node_id": ROOT, "parts": [part(BAD), part()]}, ["parts[0].title"]),
    ("SplitNode", {"node_id": ROOT, "parts": [part(), part("")]}, ["parts[1].title"]),
    ("SplitNode", {"node_id": ROOT, "parts": [part(), part(), part(content=BAD)]}, ["parts[2].content"]),
    ("SplitNode", {"node_id": ROOT, "parts": [part(node_id=CHILD), part()]}, ["parts[0].node_id"]),
    ("SplitNode", {"node_id": ROOT, "parts": [part(), part(node_id="nonsense")]}, ["parts[1].node_id"]),
    ("SplitNode", {"node_id": ROOT, "parts": [part(), part()], "commit_message": BAD}, ["commit_message"]),
    ("MergeNodes", {"node_ids": list(TWINS), "title": BAD}, ["title"]),
    ("MergeNodes", {"node_ids": [ROOT, "!"]}, ["node_ids[1]"]),
    ("AddRelation", {"node_id": ROOT, "relation": relation(description=BAD)}, ["relation.description"]),
    ("RemoveRelation", {"node_id": ROOT, "type": 1, "target_id": "!"}, ["target_id"]),
    ("DiffRevisions", {"old_revision": "v1", "new_revision": "main", "node_id": "!"}, ["node_id"]),
    ("CreateTag", {"name": "new", "tagger": types_pb2.CommitAuthor(name=BAD)}, ["tagger.name"]),
]
"""Calls, their wrong arguments, and the paths that name these."""

CHANGES: list[tuple[pb.NodeChange, list[str]]] = [
    (pb.NodeChange(), [""]),
    (pb.NodeChange(create=pb.CreateNodeRequest(**creation(title=BAD))), ["create.title"]),
    (pb.NodeChange(create=pb.CreateNodeRequest(**creation(node_id="x"))), ["create.node_id"]),
    (pb.NodeChange(create=pb.CreateNodeRequest(**creation(tags=["z", "a,b"]))), ["create.tags[1]"]),
    (pb.NodeChange(create=pb.CreateNodeRequest(title="No home")), ["create.archive_id"]),
    (pb.NodeChange(create=pb.CreateNodeRequest(**creation(view_name=BAD))), ["create.view_name"]),
    (pb.NodeChange(update=pb.UpdateNodeRequest(node_id=ROOT, brief=BAD)), ["update.brief"]),
    (pb.NodeChange(update=pb.UpdateNodeRequest(node_id=AMBIGUOUS, brief="b")), ["update.node_id"]),
    (
        pb.NodeChange(update=pb.UpdateNodeRequest(node_id=ROOT, title="t", commit_message=BAD)),
        ["update.commit_message"],
    ),
    (pb.NodeChange(move=pb.MoveNodeRequest(node_id=ROOT, parent_id=LEAF)), ["move.parent_id"]),
    (pb.NodeChange(delete=pb.DeleteNodeRequest(node_id="!")), ["delete.node_id"]),
    (
        pb.NodeChange(add_relation=pb.AddRelationRequest(node_id=ROOT, relation=relation(description=BAD))),
        ["add_relation.relation.description"],
    ),
    (
        pb.NodeChange(remove_relation=pb.RemoveRelationRequest(node_id=ROOT, type=1, target_id="!")),
        ["remove_relation.target_id"],
    ),
]
"""Changes of a batch, and the wrong arguments of each."""


async def test_a_wrong_argument_is_named_by_its_path_in_the_request(untouched: Wire) -> None:
    for method, fields, violated in CALLS:
        refusal = await untouched.refused(method, **fields)
        assert (refusal.code, list(refusal.fields)) == ("INVALID_ARGUMENT", violated), (method, fields)
        assert all(path in refusal.message for path in violated), "the sentence names the same fields"


@pytest.mark.requirement("CANVAS-9")
async def test_a_wrong_argument_of_a_batch_is_named_with_its_change(untouched: Wire) -> None:
    fine = pb.NodeChange(update=pb.UpdateNodeRequest(node_id=ROOT, title="Fine"))
    for change, paths in CHANGES:
        refusal = await untouched.refused("BatchChangeNodes", changes=[fine, fine, change])
        expected = [".".join(filter(None, ("changes[2]", path))) for path in paths]
        assert (refusal.code, list(refusal.fields)) == ("INVALID_ARGUMENT", expected), change
        assert refusal.message.startswith("changes[2]: ")
    refusal = await untouched.refused("BatchChangeNodes", changes=[fine], commit_message=BAD)
    assert (refusal.code, refusal.fields) == ("INVALID_ARGUMENT", ("commit_message",)), "the batch's own"


@pytest.mark.requirement("CANVAS-9", "STORE-2")
async def test_a_change_of_a_batch_has_no_request_id_of_its_own(untouched: Wire) -> None:
    for kind in ("create", "update", "move", "delete", "add_relation", "remove_relation"):
        change = pb.NodeChange()
        getattr(change, kind).request_id = "once"
        refusal = await untouched.refused("BatchChangeNodes", changes=[change], request_id="once")
        assert (refusal.code, refusal.fields) == ("INVALID_ARGUMENT", (f"changes[0].{kind}.request_id",))
        assert "give one to the batch" in refusal.message


async def test_an_ambiguous_revision_is_named_as_the_request_calls_it(world: World, history: HistoryOperations) -> None:
    head = await world.put(world.node())
    twin = head[:39] + ("0" if head[39] != "0" else "1")
    async with world.store.database.transaction() as conn:
        await conn.execute(
            "insert into mirror.commit select (jsonb_populate_record(c,"
            " jsonb_build_object('commit_id', %s::text, 'seq', c.seq + 1000))).* from mirror.commit c"
            " where commit_id = %s",
            (twin, head),
        )
    for field in ("old_revision", "new_revision"):
        named = {"old_revision": "main", "new_revision": "main", field: head[:20]}
        with pytest.raises(AmbiguousRevisionError) as refused:
            await history.diff_revisions(DiffRevisionsRequest(workspace=world.workspace, **named))
        assert [violation.field for violation in refused.value.violations] == [field]


async def test_a_fault_of_the_existing_node_is_reported_at_the_field_that_names_the_node(wire: Wire) -> None:
    nodes = [await wire.create(tags=[f"{letter}{number}" for number in range(40)]) for letter in "ab"]
    refusal = await wire.refused("MergeNodes", node_ids=[node.id for node in nodes])
    assert (refusal.code, refusal.reason, refusal.fields) == ("INVALID_ARGUMENT", "INVALID_NODE", ("node_ids",))
    assert f"{nodes[0].id}, whose tags has 80 tags" in refusal.message


@pytest.mark.requirement("CANVAS-4")
def test_a_fault_of_an_existing_tag_is_not_reported_as_one_of_the_request() -> None:
    node = Node(new_id(), new_id(), None, "a0", tags=("a", "new,tag", "old,tag"))
    fields = RequestFields({"tags": "tags"}, tags=["x", " new,tag "])
    assert fields.translate(FieldViolation("tags[1]", "is wrong"), node) == FieldViolation("tags[1]", "is wrong")
    told = fields.translate(FieldViolation("tags[2]", "is wrong"), node)
    assert told == FieldViolation("node_id", f"leads to {node.id}, whose tags[2] is wrong")


def test_a_path_is_only_found_if_the_request_has_it() -> None:
    batch = pb.BatchChangeNodesRequest(changes=[pb.NodeChange(create=pb.CreateNodeRequest(attributes={"a.b": "v"}))])
    for path in ("changes", "changes[0]", "changes[0].create.title", "changes[0].change"):
        assert has_path(batch, path), path
    assert has_path(batch, "changes[0].create.attributes['a.b']")
    for path in ("", "change", "changes[1]", "changes.create", "changes[0].title", "session_id.x"):
        assert not has_path(batch, path), path
