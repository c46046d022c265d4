"""Messages of the server in the words of Python: methods for RPCs, arguments for the fields of requests.

The server names what its contract names: ``ListBranches``, ``parts[0].node_id``. A program in Python calls
`workspace.branches()` and gives ``parts``, so the client replaces such names in every error and warning.
"""

import re
from dataclasses import replace
from functools import cache
from typing import Any, Final

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from memotree.client.errors import MemoTreeClientError
from memotree.message_words import finder, replaced
from memotree.v1 import job_service_pb2

METHODS: Final = {
    "AddRelation": "session.relate",
    "Ask": "workspace.ask",
    "BackUp": "client.back_up",
    "BatchChangeMemory": "workspace.apply",
    "BatchChangeNodes": "session.apply",
    "BisectAnswer": "workspace.bisect_answer",
    "BisectNode": "workspace.bisect",
    "BlameNode": "workspace.blame",
    "CherryPick": "workspace.cherry_pick",
    "CancelJob": "client.cancel_job",
    "ChangeEmbedding": "client.change_embedding",
    "CheckMemory": "workspace.check_memory",
    "CheckPush": "workspace.check_push",
    "CollapseNode": "view.collapse",
    "CommentProposal": "workspace.comment",
    "CommitChanges": "session.commit",
    "CreateArchive": "session.create_archive",
    "CreateBranch": "workspace.branch",
    "CreateNode": "session.create",
    "CreateProposal": "workspace.propose",
    "CreateTag": "workspace.tag",
    "CreateKey": "client.create_key",
    "CreateWorkspace": "client.create_workspace",
    "DeleteArchive": "session.delete_archive",
    "DeleteBranch": "workspace.delete_branch",
    "DeleteConversation": "workspace.delete_conversation",
    "DeleteKey": "client.delete_key",
    "DeleteNode": "session.delete",
    "DeletePrincipal": "client.delete_principal",
    "DeleteTag": "workspace.delete_tag",
    "DeleteView": "view.delete",
    "DeleteWorkspace": "workspace.remove",
    "DiffRevisions": "workspace.diff",
    "DiscardChanges": "session.discard_changes",
    "DiscardSession": "session.discard",
    "DrillDown": "workspace.drill_down",
    "Erase": "workspace.erase",
    "ExecuteTool": "client.run_tool",
    "ExecuteTools": "client.run_tools",
    "ExpandNode": "view.expand",
    "Forget": "workspace.forget",
    "GetArchive": "workspace.archive",
    "GetCommit": "workspace.show",
    "GetConversation": "workspace.conversation",
    "GetErasure": "workspace.erasure",
    "GetJob": "client.job",
    "GetNode": "workspace.node",
    "GetPrincipal": "client.principal",
    "GetProposal": "workspace.proposal",
    "GetSession": "session.info",
    "GetPushPolicy": "workspace.push_policy",
    "GetStatus": "client.status",
    "GetTool": "client.tool",
    "GetTree": "workspace.tree",
    "GetWorkspace": "workspace.info",
    "GrantRole": "client.grant_role",
    "IngestDocument": "workspace.ingest",
    "IngestDocuments": "workspace.ingest_files",
    "ListArchives": "workspace.archives",
    "ListAuditRecords": "client.audit_records",
    "ListBranches": "workspace.branches",
    "ListChanges": "session.changes",
    "ListChildren": "workspace.children",
    "ListConflicts": "session.conflicts",
    "ListConversations": "workspace.conversations",
    "ListCommits": "workspace.log",
    "ListErasures": "workspace.erasures",
    "ListFaults": "workspace.faults",
    "ListJobs": "client.jobs",
    "ListKeys": "client.keys",
    "ListNodeRevisions": "workspace.revisions",
    "ListPrincipals": "client.principals",
    "ListProposals": "workspace.proposals",
    "ListProtections": "workspace.protections",
    "ListSessions": "workspace.sessions",
    "ListStaleSummaries": "workspace.stale_summaries",
    "ListTags": "workspace.tags",
    "ListTools": "client.tools",
    "ListViews": "workspace.views",
    "ListWorkspaces": "client.workspaces",
    "MergeArchives": "workspace.merge_archives",
    "MergeBranch": "workspace.merge",
    "MergeNodes": "session.merge",
    "MergeProposal": "workspace.merge_proposal",
    "MoveNode": "session.move",
    "OpenSession": "workspace.session",
    "PlanQuery": "workspace.plan_query",
    "PreviewErasure": "workspace.preview_erasure",
    "PreviewMerge": "workspace.preview_merge",
    "ProtectBranches": "workspace.protect",
    "PutMemoryTests": "workspace.put_memory_tests",
    "PutPrincipal": "client.put_principal",
    "Query": "workspace.query",
    "RebaseSession": "session.rebase",
    "RebuildWorkspace": "workspace.rebuild",
    "Recall": "workspace.recall",
    "Remember": "workspace.remember",
    "ReloadSettings": "client.reload_settings",
    "RemoveRelation": "session.unrelate",
    "RenderView": "view.render",
    "RenewSummaries": "workspace.renew_summaries",
    "ResolveConflicts": "session.resolve",
    "ResolveNode": "workspace.named",
    "Restore": "workspace.restore",
    "RestoreNodes": "workspace.restore_nodes",
    "ResumeJob": "client.resume_job",
    "RevertCommit": "workspace.revert",
    "ReviewProposal": "workspace.approve",
    "Revise": "workspace.revise",
    "RevokeRole": "client.revoke_role",
    "SearchNodes": "workspace.search",
    "SetPushPolicy": "workspace.set_push_policy",
    "SplitNode": "session.split",
    "StartRebuild": "workspace.start_rebuild",
    "StartReindex": "workspace.start_reindex",
    "StreamQuery": "workspace.stream_query",
    "SuggestArchiveMerges": "workspace.suggest_archive_merges",
    "UnprotectBranches": "workspace.unprotect",
    "UpdateArchive": "session.update_archive",
    "UpdateNode": "session.update",
    "UpdateProposal": "workspace.change_proposal",
    "UpdateWorkspace": "workspace.change",
    "VerifyWorkspace": "workspace.verify",
    "WatchJob": "client.watch_job",
}
"""The method for each RPC, and what it is a method of."""

ORDINARY_WORDS: Final = frozenset({"Ask", "Forget", "Query", "Recall", "Remember", "Restore", "Revise"})
"""RPCs whose names also begin sentences that are not about them; the words of both are the same, but for the case."""

_COMMON: Final = {
    "archive_id": "archive",
    "arguments_json": "arguments",
    "commit_message": "message",
    "create_tag": "tag",
    "job_id": "job",
    "new_revision": "new",
    "node_id": "node",
    "old_revision": "old",
    "parent_id": "parent",
    "scope_node_id": "scope_node",
    "specific_nodes": "nodes",
    "subtree_id": "subtree",
    "tag_name": "tag",
    "target_id": "target",
    "view_name": "view",
}
"""The argument for a field of requests, where it has another name."""

_TYPE: Final = {"type": "node_type"}
_DOCUMENT: Final = dict.fromkeys(("text", "file", "conversation.turns", "conversation"), "document")
_OF_MESSAGE: Final = {
    "AddRelationRequest": {
        "relation.type": "relation_type",
        "relation.target_id": "target",
        "relation.description": "description",
        "relation": "relation_type",
    },
    "AskRequest": {"filter": ""},
    "BatchChangeNodesRequest": {"changes": "batch"},
    "CherryPickRequest": {"revision": "commit", "validate_only": "preview"},
    "CheckMemoryRequest": {"revision": "at"},
    "CreateBranchRequest": {"revision": "at"},
    "CreateNodeRequest": {**_TYPE, "node_id": "node_id"},
    "CreateTagRequest": {"revision": "at"},
    "CreateProposalRequest": {"session_id": "session", "target_branch": "target"},
    "EraseRequest": {"target": ""},
    "ErasureTarget": {"node_id": "node", "archive_id": "archive"},
    "PreviewErasureRequest": {"target": ""},
    "DiscardChangesRequest": {"node_ids": "forgotten"},
    "IngestDocumentRequest": _DOCUMENT,
    "IngestDocumentsRequest": {"documents": "paths"},
    "MemoryChange": dict.fromkeys(("remember", "revise", "forget", "restore"), ""),
    "ListProposalsRequest": {"target_branch": "target"},
    "MergeBranchRequest": {"branch": "into"},
    "MergeNodesRequest": {"node_ids": "merged"},
    "NodeChange": dict.fromkeys(("create", "update", "move", "delete", "add_relation", "remove_relation"), ""),
    "PlanQueryRequest": {"filter": "", "options": ""},
    "PreviewMergeRequest": {"branch": "into"},
    "PutMemoryTestsRequest": {"deleted_names": "deleted"},
    "QueryRequest": {"filter": "", "options": ""},
    "RecallFilter": {"scope_node_id": "under"},
    "RecallRequest": {"filter": ""},
    "RestoreNodesRequest": {"node_ids": "nodes", "validate_only": "preview"},
    "RevertCommitRequest": {"revision": "commit", "validate_only": "preview"},
    "ReviewProposalRequest": {"head_commit_id": "commit"},
    "StreamQueryRequest": {"filter": "", "options": ""},
    "RemoveRelationRequest": {"type": "relation_type"},
    "UpdateNodeRequest": _TYPE,
}
"""The same for the messages that differ from that; "" for a message whose fields are arguments of their own."""

_PHRASES: Final = {
    "page_token: ": "",
    "update_mask: Nothing to change": "Nothing to change",
    "Set a field, or name it in update_mask to empty it.": "Give a new value, or an empty one.",
}
"""What the server says of a field that the client sets by itself, and what it means to the caller."""

_INDEX: Final = r"(?:\[(?:'[^']*'|\"[^\"]*\"|[^\]'\"]*)\])*"
_STEP: Final = re.compile(rf"(?P<name>[a-z][a-z0-9_]*)(?P<index>{_INDEX})(?:\.(?P<rest>.+))?", re.DOTALL)
_BATCH: Final = re.compile(r"^changes(?=\[\d+\])")
_IN_BATCH: Final = re.compile(
    r"^(?:changes\[\d+\]\.(?:create|update|move|delete|add_relation|remove_relation|remember|revise|forget|restore)"
    r"|batch\[\d+\]|changes\[\d+\])\."
)
"""Matches what a path has before the field of a change; messages name the change once, at their beginning."""


@cache
def _named() -> re.Pattern[str]:
    """Matches the names that a sentence may have anywhere; compiled at its first use: few calls need words."""
    return finder([*(METHODS.keys() - ORDINARY_WORDS), *_COMMON, "node_ids"])


_TELLING: Final = frozenset({"Job", "IngestedDocument"})
"""The messages whose field ``message`` is a sentence of the server, not a text of the caller."""


def argument(path: str, request: Descriptor | None = None) -> str:
    """The argument for the path of a field of a request, such as ``batch[2].archive``; other texts stay as they are."""
    step = _STEP.fullmatch(path)
    if step is None:
        return path
    name, index, rest = step["name"], step["index"], step["rest"] or ""
    words = _OF_MESSAGE.get(request.name, {}) if request else {}
    for known, word in words.items():
        if "." in known and (path == known or path.startswith((f"{known}.", f"{known}["))):
            return f"{word}{path.removeprefix(known)}"
    common = _COMMON if request is None or request.name.endswith("Request") else {}
    word = words.get(name, common.get(name, name))
    field = request.fields_by_name.get(name) if request else None
    inner = argument(rest, field.message_type) if rest and field and field.message_type else rest
    if word:
        return f"{word}{index}.{inner}" if inner else f"{word}{index}"
    return inner or f"{name}{index}"


def in_python(sentence: str, request: Descriptor | None = None) -> str:
    """``sentence`` with each RPC replaced by its method, and each field of ``request`` by its argument."""

    def word(name: str) -> str:
        if name in METHODS:
            return f"`{METHODS[name]}()`"
        told = argument(name, request)
        return name if told == name else f"{told}="

    for phrase, meaning in _PHRASES.items():
        sentence = sentence.replace(phrase, meaning)
    begun = _BATCH.sub(lambda found: argument(found[0], request), sentence)
    return replaced(_named(), word, begun)


def reword_error(error: MemoTreeClientError, request: Message) -> None:
    """Puts the message of an error and its violations into the words of Python."""
    kind: Any = request.DESCRIPTOR  # two classes to the type checker, one to a program
    told = error.message
    violations = []
    for each in error.violations:
        own = replace(each, field=argument(each.field, kind), description=in_python(each.description, kind))
        path, word = _IN_BATCH.sub("", each.field), _IN_BATCH.sub("", own.field)
        for between in (" ", ": "):
            told = told.replace(f"{path}{between}{each.description}", f"{word}{between}{own.description}")
        violations.append(own)
    error.violations = tuple(violations)
    error.message = in_python(told, kind)
    error.args = (error.message,)


def reword_answer(answer: Message, request: Message) -> None:
    """Puts the warnings of an answer, and what it says of a job, into the words of Python."""
    kind: Any = request.DESCRIPTOR
    _reword(answer, kind)


def _reword(told: Message, request: Descriptor | None) -> None:
    for field, value in told.ListFields():
        if field.name == "warnings":
            value[:] = [in_python(text, request) for text in value]
        elif field.name == "message" and told.DESCRIPTOR.name in _TELLING:
            told.message = in_python(value)  # type: ignore[attr-defined] # the field exists, as `ListFields` says
        elif field.message_type is not None and field.message_type.file is job_service_pb2.DESCRIPTOR:
            for each in value if field.is_repeated else [value]:
                _reword(each, None)
