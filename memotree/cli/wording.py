"""What the server says in the words of the RPCs, said in the words of the command line."""

import re
from typing import Final

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
"""The command that does what an RPC does, with what it needs to be told; an RPC that is not here has none."""

_WORDS: Final = {
    **{rpc: f"`memotree {command}`" for rpc, command in COMMANDS.items()},
    "regenerate_summary": "--regenerate-summary",
}
_NAMED: Final = re.compile(rf"(?<!['\"\w-])(?:{'|'.join(_WORDS)})(?!['\"\w])")
"""One of those words, unless it is quoted: that is what a person wrote."""


def in_commands(sentence: str) -> str:
    """``sentence`` with each RPC that it names put as the command that a person has for it."""
    return _NAMED.sub(lambda match: _WORDS[match[0]], sentence)
