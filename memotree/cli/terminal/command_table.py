"""Every command by its path, with the module that has it and the first line of its help.

So a page that lists commands, and the start of one command, import no module of another command. A test compares the
table with the modules.
"""

from typing import Final, NamedTuple


class Entry(NamedTuple):
    """A command of the table.

    Attributes:
        module: The module in ``memotree.cli.commands``.
        line: The first paragraph of its help.
    """

    module: str
    line: str


GROUPS: Final = {
    "ws": "Workspaces: each is one Git repository.",
    "archive": "Archives: the memory trees of a workspace.",
    "session": "Sessions: staged changes that nobody else sees.",
    "node": "Nodes: the units of knowledge, in trees.",
    "view": "Views: the nodes that are open, and their levels.",
    "branch": "Branches: names of commits that move with each commit.",
    "proposal": "Proposals: changes that others review before they are merged.",
    "memory-test": "Memory tests: questions, and what the answer must have; `memotree check` runs them.",
    "tag": "Tags: fixed names of commits.",
    "conversation": "Conversations: your questions with tools, and their answers.",
    "erasure": "Erasures: what stays of them.",
    "tools": "Tools: the operations that agents call by name.",
    "access": "Access: who may call, with which keys, and what they may do.",
    "config": "Settings of the server: checked and shown without a start, and read again.",
    "jobs": "Jobs: long work that continues in the background.",
    "summaries": "Summaries: find and renew stale and pending ones.",
}
"""The groups of commands, with what a list says of each."""

COMMANDS: Final = {
    "serve": Entry("serving", "Start the server on embedded stores and serve gRPC, HTTP and MCP until Ctrl-C."),
    "mcp": Entry("serving", "Serve MCP over standard input and output, for an agent that starts this command itself."),
    "demo": Entry(
        "serving", "Show what MemoTree is for, in half a minute: facts, a correction, the past, a branch, documents."
    ),
    "setup": Entry(
        "setup", "Make MemoTree the memory of a program that runs agents, by an entry in its configuration."
    ),
    "remember": Entry("remembering", "Keep a text as a note, and commit it."),
    "revise": Entry("remembering", "Correct a note, and commit it; the text before stays in its history."),
    "forget": Entry("remembering", "Forget a note, and commit that; `memotree node restore` brings it back."),
    "search": Entry("searching", "Find nodes by words and by meaning."),
    "ingest": Entry("ingest", "Build memory trees from files, or update the trees of files that were ingested before."),
    "recall": Entry("recall", "Find the text in memory that is relevant to a question, packed within a token budget."),
    "ask": Entry("ask", "Answer a question from the memory, with citations."),
    "query": Entry(
        "query", "Ask the chat model of the server, which answers from the memory and calls tools with --tools."
    ),
    "conversation list": Entry("query", "List your conversations, the one that was used last first."),
    "conversation show": Entry("query", "Show the questions and answers of a conversation of yours."),
    "conversation delete": Entry("query", "Delete a conversation of yours for good."),
    "explore": Entry("explore", "Walk through the trees: see a node and the nodes below it, and choose where to go."),
    "commit": Entry("commits", "Commit the staged changes of the session as one Git commit."),
    "log": Entry("commits", "List commits, newest first."),
    "show": Entry("commits", "Show a commit with the nodes it changed."),
    "diff": Entry(
        "commits",
        "Show what differs between two states, per node and field; without arguments, the session's staged changes.",
    ),
    "revert": Entry("undoing", "Take back what a commit changed, by a new commit; what was changed since stays."),
    "cherry-pick": Entry("undoing", "Bring into a branch what a commit changed elsewhere, by a new commit."),
    "erase": Entry(
        "erasing",
        "Erase a node, an archive or a text from the whole history, for good; shows what goes and asks for a phrase.",
    ),
    "undo": Entry(
        "undoing", "Take back the last commit of an agent or a session, after showing it; undoing again brings it back."
    ),
    "revisions": Entry("commits", "List the versions of one node, newest first."),
    "bisect": Entry(
        "bisecting",
        "List every commit at which a node, one field of it, or the answer to a question changed: who, when and why.",
    ),
    "blame": Entry("commits", "Show which commit and agent wrote each line of a node's content, through merges too."),
    "check": Entry(
        "memory_tests",
        "Run the memory tests: each asks its question, and fails if the answer lacks what is expected.",
    ),
    "status": Entry("maintenance", "Show whether the server and its stores are healthy."),
    "verify": Entry(
        "maintenance",
        "Compare Git, PostgreSQL and Qdrant; the exit code is 1 if they differ. All workspaces, if none is chosen.",
    ),
    "faults": Entry(
        "maintenance",
        "List what other programs committed that stands nowhere in the tree or cannot be read, with a way out.",
    ),
    "rebuild": Entry("maintenance", "Rebuild the rows and vectors of the workspace from Git; staged changes stay."),
    "reindex": Entry(
        "maintenance",
        "Compute all vectors of the workspace again, or change the embedding model while searches go on, as a job.",
    ),
    "backup": Entry(
        "backups",
        "Save all workspaces of the server to one file, while it runs, and check the file by restoring it aside.",
    ),
    "restore": Entry(
        "backups",
        "Put the workspaces of a backup into a data folder; stop its server first. The next start mirrors them.",
    ),
    "export": Entry(
        "markdown_folders",
        "Write archives to a folder of Markdown files, which Obsidian, GitHub and every editor read.",
    ),
    "import": Entry(
        "markdown_folders",
        "Bring a folder of Markdown into the workspace: an edited export, or notes of another program.",
    ),
    "ws create": Entry("workspaces", "Create a workspace, and choose it."),
    "ws list": Entry("workspaces", "List the workspaces."),
    "ws show": Entry("workspaces", "Show one workspace."),
    "ws use": Entry("workspaces", "Choose the workspace for later commands."),
    "ws rename": Entry("workspaces", "Rename a workspace; its id and repository stay."),
    "ws delete": Entry("workspaces", "Delete a workspace; its repository is moved to the server's trash folder."),
    "archive create": Entry("archives", "Stage a new archive."),
    "archive list": Entry("archives", "List the archives."),
    "archive show": Entry("archives", "Show one archive."),
    "archive rename": Entry("archives", "Stage a new name for an archive."),
    "archive restore": Entry(
        "undoing", "Set an archive and its nodes to what they were at a revision, and commit that."
    ),
    "archive delete": Entry("archives", "Stage the deletion of an archive with all its nodes."),
    "archive suggest": Entry("archive_merges", "List archives of one model that have the same topic."),
    "archive join": Entry(
        "archive_merges",
        "Join archives of one model under a new root, in one commit; nodes keep their ids and history.",
    ),
    "session open": Entry("sessions", "Open a session, and choose it."),
    "session list": Entry(
        "sessions", "List the open sessions and the detached ones with staged changes, most recently used first."
    ),
    "session show": Entry("sessions", "Show one session."),
    "session use": Entry("sessions", "Choose the session for later commands."),
    "session changes": Entry("sessions", "List the staged changes of the session."),
    "session discard": Entry(
        "sessions", "Discard the staged changes and close the session, or discard only some and keep it open."
    ),
    "session rebase": Entry(
        "sessions", "Move the session to the head of its branch; staged changes are merged per field."
    ),
    "session conflicts": Entry("conflicts", "List the conflicts of the session that are not resolved."),
    "session resolve": Entry(
        "conflicts", "Resolve conflicts of the session: by a side, a text of your own, or part by part."
    ),
    "node create": Entry("nodes", "Stage a new node."),
    "node get": Entry("nodes", "Show a node."),
    "node update": Entry(
        "nodes", "Stage new values of a node; options that are not given leave their fields unchanged."
    ),
    "node append": Entry(
        "nodes",
        "Stage text to add after the present content and a blank line; reads stdin when no option gives a text.",
    ),
    "node delete": Entry("nodes", "Stage the deletion of a node."),
    "node restore": Entry(
        "remembering", "Bring back a forgotten note, or set a note back to a revision, and commit that."
    ),
    "node children": Entry("structure", "List the children of a node, or the roots."),
    "node tree": Entry("structure", "Show the tree below a node, of an archive, or of all archives."),
    "node move": Entry("structure", "Stage a new parent or position of a node."),
    "node split": Entry(
        "structure", "Stage the split of a node at the lines `# Title` of its content (or of the given or edited text)."
    ),
    "node merge": Entry("structure", "Stage the merge of several nodes into the first."),
    "node relate": Entry("structure", "Stage a relation from one node to another."),
    "node unrelate": Entry("structure", "Stage the removal of a relation."),
    "view render": Entry("views", "Print a view as Markdown."),
    "view expand": Entry("views", "Open a node in a view and print its text."),
    "view collapse": Entry("views", "Set a node of a view back to its title."),
    "view list": Entry("views", "List the views of the session or branch."),
    "view delete": Entry("views", "Delete a view."),
    "branch create": Entry("refs", "Create a branch; nothing is copied."),
    "branch list": Entry("refs", "List the branches."),
    "branch merge": Entry("refs", "Merge a branch, tag or commit into a branch, three ways, per node and field."),
    "branch delete": Entry("refs", "Delete a branch; commits that another branch, a tag or a session reaches stay."),
    "branch protect": Entry(
        "protections", "Protect branches: they change only by the merge of a proposal that others have approved."
    ),
    "branch unprotect": Entry("protections", "End a protection; the record of who did so stays in Git."),
    "branch pushes": Entry(
        "pushes", "Show or set what pushes with git may do: bring faults into a branch, and rewind branches."
    ),
    "branch protections": Entry("protections", "List what is protected, by whom, and what a proposal needs there."),
    "proposal create": Entry(
        "proposals", "Propose the changes of the session, on a branch of their own, or an existing branch."
    ),
    "proposal list": Entry("proposals", "List the proposals, newest first."),
    "proposal show": Entry(
        "proposals",
        "Show a proposal: what it changes, what is missing until it can be merged, and what was said about it.",
    ),
    "proposal comment": Entry("proposals", "Comment on a proposal, or on a node or field in it."),
    "proposal approve": Entry("proposals", "Approve a proposal of somebody else, as it is now."),
    "proposal reject": Entry("proposals", "Reject a proposal, which closes it; it can be reopened."),
    "proposal merge": Entry(
        "proposals", "Merge a proposal into its target branch, if the protection of that allows it."
    ),
    "proposal edit": Entry("proposals", "Change what a proposal says, withdraw it, or open it again."),
    "memory-test add": Entry("memory_tests", "Write a memory test, and commit it; one of the same name is replaced."),
    "memory-test delete": Entry("memory_tests", "Delete a memory test, and commit that."),
    "tag create": Entry("refs", "Create an annotated tag."),
    "tag list": Entry("refs", "List the tags."),
    "tag delete": Entry(
        "refs", "Delete a tag; its commit stays as long as a branch, another tag or a session reaches it."
    ),
    "audit": Entry("auditing", "List who called what, newest first."),
    "erasure list": Entry("erasing", "List what stays of erasures, newest first."),
    "erasure show": Entry("erasing", "Show what stays of one erasure."),
    "tools list": Entry("tools", "List the tools that agents can call, those of an agent's day first."),
    "tools info": Entry("tools", "Show what a tool does, and its arguments."),
    "tools openapi": Entry(
        "tools", "Print the OpenAPI document of the tools over HTTP, for programs that generate clients from it."
    ),
    "tools run": Entry("tools", "Call a tool, as an agent would, and print what the agent would read."),
    "access show": Entry("access", "Show who you are to the server, or another principal, with its roles."),
    "access list": Entry("access", "List the principals with their roles."),
    "access add": Entry("access", "Add a person or program that may call, or change its address."),
    "access remove": Entry("access", "Remove a principal with its keys and roles; what it has made stays."),
    "access grant": Entry("access", "Give a principal a role in a workspace, or in all."),
    "access revoke": Entry("access", "Take a role away."),
    "access create-key": Entry("access", "Make an API key, and print it: it is shown once."),
    "access keys": Entry("access", "List API keys, without the keys themselves."),
    "access delete-key": Entry("access", "End an API key: from now on it proves nothing."),
    "config check": Entry(
        "configuration",
        "Check the settings as `memotree serve` reads them, without starting it; lists all faults, with their places.",
    ),
    "config reload": Entry(
        "configuration",
        "Make the running server read its settings file again; shows what changed, and what needs a restart.",
    ),
    "config show": Entry(
        "configuration", "Show each setting of the server with its value and where that was given; secrets are hidden."
    ),
    "jobs list": Entry("jobs", "List the jobs of the workspace, newest first."),
    "jobs show": Entry("jobs", "Show a job: its progress, its result, or why it stopped."),
    "jobs watch": Entry(
        "jobs",
        "Watch a job until it has ended; the exit code is 1 unless it succeeded. The job continues after Ctrl-C.",
    ),
    "jobs cancel": Entry("jobs", "Cancel a job, and wait until it has ended; its commits stay."),
    "jobs resume": Entry("jobs", "Resume a job that stopped, failed or was cancelled, and watch it."),
    "summaries list": Entry("summaries", "List nodes whose summaries need renewal, deepest first."),
    "summaries renew": Entry("summaries", "Renew stale summaries, as a job with one commit at its end."),
}
"""The commands by path (``node get``), in the order in which the page of their group lists them."""
