"""Replaces names of RPCs in the server's messages by the commands of the command line."""

import re
from typing import Final

from memotree.message_words import finder, replaced

COMMANDS: Final = {
    "ListCommits": "log",
    "GetCommit": "show",
    "ListNodeRevisions": "revisions",
    "BlameNode": "blame",
    "DiffRevisions": "diff",
    "CreateBranch": "branch create",
    "ListBranches": "branch list",
    "DeleteBranch": "branch delete",
    "CreateTag": "tag create",
    "ListTags": "tag list",
    "DeleteTag": "tag delete",
    "GetStatus": "status",
    "BackUp": "backup",
    "VerifyWorkspace": "verify",
    "RebuildWorkspace": "rebuild",
    "StartRebuild": "rebuild --background",
    "StartReindex": "reindex",
    "GetJob": "jobs show",
    "ListJobs": "jobs list",
    "WatchJob": "jobs watch",
    "CancelJob": "jobs cancel",
    "ResumeJob": "jobs resume",
    "IngestDocument": "ingest",
    "IngestDocuments": "ingest",
    "DrillDown": "explore",
    "GetNode": "node get",
    "ListChildren": "node children",
    "GetTree": "node tree",
    "ExpandNode": "view expand",
    "CollapseNode": "view collapse",
    "CreateNode": "node create",
    "UpdateNode": "node update",
    "DeleteNode": "node delete",
    "MoveNode": "node move",
    "SplitNode": "node split",
    "MergeNodes": "node merge",
    "AddRelation": "node relate",
    "RemoveRelation": "node unrelate",
    "SearchNodes": "search",
    "OpenSession": "session open",
    "GetSession": "session show",
    "ListSessions": "session list",
    "ListChanges": "session changes",
    "DiscardChanges": "session discard --node NODE",
    "DiscardSession": "session discard",
    "RebaseSession": "session rebase",
    "CommitChanges": "commit",
    "RenderView": "view render",
    "ListViews": "view list",
    "DeleteView": "view delete",
    "CreateWorkspace": "ws create",
    "GetWorkspace": "ws show",
    "ListWorkspaces": "ws list",
    "UpdateWorkspace": "ws rename",
    "DeleteWorkspace": "ws delete",
    "CreateArchive": "archive create",
    "GetArchive": "archive show",
    "ListArchives": "archive list",
    "UpdateArchive": "archive rename",
    "DeleteArchive": "archive delete",
    "SuggestArchiveMerges": "archive suggest",
    "MergeArchives": "archive join",
    "ListStaleSummaries": "summaries list",
    "RenewSummaries": "summaries renew",
}
"""The command, with required options, that corresponds to each RPC; an RPC that is missing here has none."""

_WORDS: Final = {
    **{rpc: f"`memotree {command}`" for rpc, command in COMMANDS.items()},
    "regenerate_summary": "--regenerate-summary",
}
_NAMED: Final = finder(_WORDS)


OPTIONS: Final = {
    "workspace_id": "--workspace",
    "session_id": "--session",
    "archive_id": "--archive",
    "archives": "--archive",
    "parent_id": "--parent",
    "node_id": "NODE",
    "node_ids": "NODE",
    "target_id": "TARGET",
    "commit_id": "COMMIT",
    "job_id": "JOB",
    "scope_node_id": "--under",
    "model_id": "--model",
    "commit_message": "--message",
    "max_results": "--limit",
    "max_depth": "--depth",
    "max_steps": "--max-steps",
    "token_budget": "--budget",
    "top_k": "--top-k",
    "valid_at": "--valid-at",
    "view_name": "--view",
    "tag_name": "--tag",
    "tags": "--tag",
}
"""The option or argument that gives each field of a request, where it has another name."""
_AT_BEGIN: Final = re.compile(rf"^({'|'.join(OPTIONS)})(?=: |\[|$)")
_INSIDE: Final = finder(name for name in OPTIONS if "_" in name)
"""Matches a field that is no word of English."""


def in_options(sentence: str) -> str:
    """``sentence`` with each field of a request replaced by the option that gives it."""
    begun = _AT_BEGIN.sub(lambda match: OPTIONS[match[1]], sentence)
    return replaced(_INSIDE, OPTIONS.__getitem__, begun)


def in_commands(sentence: str) -> str:
    """``sentence`` with each RPC name replaced by its command."""
    return replaced(_NAMED, _WORDS.__getitem__, sentence)
