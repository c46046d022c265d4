"""Replaces names of RPCs in the server's messages by the commands of the command line."""

import re
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, Final

from typer.models import OptionInfo

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
    "MergeBranch": "branch merge",
    "PreviewMerge": "branch merge --preview",
    "BisectAnswer": "bisect --question",
    "BisectNode": "bisect",
    "RevertCommit": "revert",
    "RestoreNodes": "node restore --to",
    "CherryPick": "cherry-pick",
    "CreateProposal": "proposal create",
    "GetProposal": "proposal show",
    "ListProposals": "proposal list",
    "UpdateProposal": "proposal edit",
    "CommentProposal": "proposal comment",
    "ReviewProposal": "proposal approve",
    "MergeProposal": "proposal merge",
    "ProtectBranches": "branch protect",
    "UnprotectBranches": "branch unprotect",
    "ListProtections": "branch protections",
    "SetPushPolicy": "branch pushes",
    "GetPushPolicy": "branch pushes",
    "PutMemoryTests": "memory-test add",
    "CheckMemory": "check",
    "PreviewErasure": "erase --preview",
    "Erase": "erase",
    "ListErasures": "erasure list",
    "ListAuditRecords": "audit",
    "GetErasure": "erasure show",
    "CreateTag": "tag create",
    "ListTags": "tag list",
    "DeleteTag": "tag delete",
    "GetStatus": "status",
    "BackUp": "backup",
    "VerifyWorkspace": "verify",
    "ListFaults": "faults",
    "CheckPush": "faults --pushed",
    "RebuildWorkspace": "rebuild",
    "StartRebuild": "rebuild --background",
    "StartReindex": "reindex",
    "ChangeEmbedding": "reindex --embedding",
    "ReloadSettings": "config reload",
    "ListTools": "tools list",
    "GetTool": "tools info",
    "ExecuteTool": "tools run",
    "ExecuteTools": "tools run",
    "StreamQuery": "query --tools",
    "PlanQuery": "query --plan",
    "ListConversations": "conversation list",
    "GetConversation": "conversation show",
    "DeleteConversation": "conversation delete",
    "GetPrincipal": "access show",
    "ListPrincipals": "access list",
    "PutPrincipal": "access add",
    "DeletePrincipal": "access remove",
    "CreateKey": "access create-key",
    "ListKeys": "access keys",
    "DeleteKey": "access delete-key",
    "GrantRole": "access grant",
    "RevokeRole": "access revoke",
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
    "ResolveNode": "node get",
    "SearchNodes": "search",
    "OpenSession": "session open",
    "GetSession": "session show",
    "ListSessions": "session list",
    "ListChanges": "session changes",
    "DiscardChanges": "session discard --node NODE",
    "DiscardSession": "session discard",
    "RebaseSession": "session rebase",
    "ListConflicts": "session conflicts",
    "ResolveConflicts": "session resolve",
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


@cache
def _named() -> re.Pattern[str]:
    """Matches what `in_commands` replaces; compiled at its first use."""
    return finder(_WORDS)


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
    "ttl": "--idle-hours",
    "valid_from": "--valid-from",
    "valid_to": "--valid-to",
}
"""The option or argument that gives each field of a request, where it has another name."""
_LISTS: Final = re.compile(r"(?<!['\"\w.-])(part|change)s\[(\d+)\](?:\.(?:[a-z_]+\.)*([a-z_]+))?")
"""Matches an item of a list that a command makes itself, and its field."""
_QUOTED: Final = re.compile(r"""((?<!\w)'[^']*'(?!\w)|(?<!\w)"[^"]*"(?!\w))""")


def own_options(hints: Mapping[str, Any]) -> dict[str, str]:
    """The options of a command by the names of its parameters, which are those of fields where both exist."""
    found = {}
    for name, hint in hints.items():
        for mark in getattr(hint, "__metadata__", ()):
            if isinstance(mark, OptionInfo):
                given = (mark.default, *(mark.param_decls or ()))  # in Annotated, the first name is the default
                long = (str(each).partition("/")[0] for each in given if str(each).startswith("--"))
                found[name] = next(long, f"--{name.replace('_', '-')}")
    return found


def in_options(sentence: str, own: Mapping[str, str] = MappingProxyType({})) -> str:
    """``sentence`` with each field of a request replaced by the option that gives it.

    A field that is a word of English is replaced only at the beginning, or as an item of a list. Quoted text is from
    the user, and stays.

    Args:
        sentence: What the server says.
        own: The options of the command by field, where they differ from those of most commands.
    """
    options = {**OPTIONS, **own}
    names = "|".join(sorted(options, key=len, reverse=True))
    long = "|".join(sorted((name for name in options if "_" in name), key=len, reverse=True))
    begun = re.sub(rf"^({names})(?=: |\[|$)", lambda match: options[match[1]], sentence)
    inside = re.compile(rf"(?<!['\"\w.-])(?:({long})(?!['\"\w])|({names})(?=\[\d+\]))")
    parts = _QUOTED.split(begun)
    for number in range(0, len(parts), 2):  # what stands between the quoted texts
        part = _LISTS.sub(lambda match: _item(match, options), parts[number])
        parts[number] = inside.sub(lambda match: options[match[1] or match[2]], part)
    return "".join(parts)


def _item(match: re.Match[str], options: Mapping[str, str]) -> str:
    """An item by its number, from 1, as a person counts."""
    of = f"{match[1]} {int(match[2]) + 1}"
    return f"{of}: {options.get(match[3], match[3])}" if match[3] else of


def in_commands(sentence: str) -> str:
    """``sentence`` with each RPC name replaced by its command."""
    return replaced(_named(), _WORDS.__getitem__, sentence)
