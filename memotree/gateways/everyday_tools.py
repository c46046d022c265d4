"""The tools of an agent's day: the short list that MCP offers by default.

Their descriptions are for a model that has to choose: when to use the tool, and one example. Arguments that are seldom
needed are accepted, and listed with all other tools (`memotree.gateways.tool_definitions`).
"""

from typing import Final

from memotree.gateways.tool import REQUEST_ID, Tool

_NODE: Final = ("node_id",)

EVERYDAY: Final[tuple[Tool, ...]] = (
    Tool(
        "remember",
        "Remember",
        "MemoryService.Remember",
        required=("text",),
        listed=("text", "title", "tags", "archive", "about", "supersedes", "valid_from", "valid_to"),
        named=("about", "supersedes"),
        description="Keep a fact, decision, preference or result for later, for yourself and for other agents. One "
        "fact per call, in words that can be understood alone. The answer names similar notes: if one of them is out "
        "of date, revise or forget it.",
        example={"text": "Production is deployed on Tuesdays only.", "title": "Deployment day", "tags": ["ops"]},
    ),
    Tool(
        "revise",
        "Revise",
        "MemoryService.Revise",
        listed=("node_id", "query", "text", "title", "tags", "valid_from", "valid_to"),
        named=_NODE,
        destructive=True,
        description="Correct a note that exists, when what it says has changed or was wrong. Only the new text answers "
        "from then on; the old one stays in its history. Name the note by node_id (an id or its title), or by a query "
        "that means it alone.",
        example={"query": "Deployment day", "text": "Production is deployed on Wednesdays only."},
    ),
    Tool(
        "forget",
        "Forget",
        "MemoryService.Forget",
        listed=("node_id", "query", "recursive"),
        named=_NODE,
        destructive=True,
        description="Forget a note that is wrong or no longer wanted, named by node_id (an id or its title), or by a "
        "query that means it alone. restore brings it back.",
        example={"node_id": "Deployment day"},
    ),
    Tool(
        "restore",
        "Restore",
        "MemoryService.Restore",
        required=("node_id",),
        listed=("node_id", "revision"),
        description="Bring back a forgotten note, or with a revision set a note back to what it said then. node_id may "
        "be the title that the note had.",
        example={"node_id": "Deployment day"},
    ),
    Tool(
        "recall",
        "Recall",
        "ForestService.Recall",
        required=("query",),
        hidden=(REQUEST_ID, "budget_covers_text"),
        preset={"budget_covers_text": True},
        flattened=("filter",),
        listed=("query", "token_budget", "archives", "tags", "valid_at", "include_outdated", "revision"),
        description="Find what is remembered about a question, before you answer or act. Returns the passages that "
        "matter within a token budget, with node ids and a confidence; confidence NONE means that probably nothing is "
        "known.",
        example={"query": "When do we deploy?", "token_budget": 500},
    ),
    Tool(
        "ask",
        "Ask",
        "ForestService.Ask",
        required=("query",),
        flattened=("filter",),
        listed=("query", "archives", "revision"),
        last="answer",
        description="Answer a question from memory, with citations. Use recall if you want to read the passages "
        "yourself.",
        example={"query": "Which day is production deployed, and who decided it?"},
    ),
    Tool(
        "explore_memory_node",
        "Explore a memory node",
        "ForestService.DrillDown",
        required=("node_id", "query"),
        listed=("node_id", "query", "threshold", "revision"),
        named=_NODE,
        description="Look one level below a node that recall or this tool returned, when its summary is not enough: "
        "its children that fit the query.",
        example={"node_id": "0m6sxk4q", "query": "who decided it"},
    ),
    Tool(
        "ingest_document",
        "Ingest a document",
        "ForestService.IngestDocument",
        required=("name", "text"),
        hidden=(REQUEST_ID, "file", "conversation", "author"),
        listed=("name", "text", "media_type", "document_id"),
        last="job",
        description="Take in a whole document as a tree of summaries that recall searches. Use remember for single "
        "facts. The same name again updates the document. Waits until it is committed.",
        example={"name": "runbook.md", "text": "# Deploying\n…", "media_type": "text/markdown"},
    ),
    Tool(
        "history",
        "Show the history",
        "HistoryService.ListCommits",
        listed=("node_id", "author", "since", "page_size"),
        named=_NODE,
        description="List the commits that changed the memory, newest first: what, when and by whom. With a node_id, "
        "only those that changed that note.",
        example={"node_id": "4f8rjw2m"},
    ),
    Tool(
        "status",
        "Show the status",
        "MaintenanceService.GetStatus",
        description="Tell whether the memory works: its version, its stores, and the number of workspaces.",
        example={},
    ),
)
"""In the order in which they are listed."""
