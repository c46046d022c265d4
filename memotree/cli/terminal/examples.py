"""One example for each command, which ends its help, and the headings under which ``memotree --help`` lists it."""

from typing import Final

PROGRAM: Final = "memotree"

SUMMARY: Final = "A Git-backed, versioned knowledge store for the memory of agents."
"""What ``memotree --help`` says first."""

EPILOG: Final = (
    "Exit codes: 0 ok, 1 refused or failed, 2 wrong usage, 3 no server, 130 stopped. Every command takes --json."
)
"""The end of ``memotree --help``."""

PANELS: Final = {
    "Remember and find": ("remember", "revise", "forget", "search", "recall", "ask", "explore", "node", "view"),
    "Documents": ("ingest", "summaries", "export", "import"),
    "Sessions and commits": ("session", "commit"),
    "History": (
        "log",
        "show",
        "diff",
        "revisions",
        "bisect",
        "blame",
        "undo",
        "erase",
        "erasure",
        "revert",
        "cherry-pick",
        "branch",
        "tag",
    ),
    "Review": ("proposal", "check", "memory-test"),
    "Places": ("ws", "archive"),
    "Server and care": (
        "demo",
        "serve",
        "mcp",
        "setup",
        "status",
        "jobs",
        "backup",
        "restore",
        "verify",
        "faults",
        "rebuild",
        "reindex",
    ),
}
"""The headings of ``memotree --help``, each with its commands and groups of commands in order."""

EXAMPLES: Final = {
    "ask": 'ask "Which region do we use, and why?" --archive notes',
    "backup": "backup memotree-backup.tar",
    "bisect": "bisect notes/Plans/Launch content",
    "blame": "blame notes/Plans/Launch",
    "check": "check --at idea",
    "cherry-pick": "cherry-pick 3f9a2c --branch idea",
    "commit": 'commit --message "Note what we decided about regions"',
    "demo": "demo",
    "diff": "diff v1 main",
    "export": "export notes-folder --archive notes",
    "import": "import notes-folder --dry-run",
    "explore": "explore --archive notes",
    "forget": 'forget "We use region eu-west-1"',
    "ingest": "ingest docs/ --archive handbook",
    "log": "log --since yesterday --oneline",
    "mcp": "mcp --workspace main",
    "rebuild": "rebuild --background",
    "recall": 'recall "Which region do we use?" --budget 2000',
    "reindex": "reindex --embedding wordllama-l2 --dimensions 64",
    "remember": 'remember "We use region eu-central-1." --tag decision',
    "restore": "restore memotree-backup.tar",
    "revert": "revert 3f9a2c --preview",
    "revise": 'revise "region" "We use region eu-west-1."',
    "revisions": "revisions notes/Plans/Launch",
    "search": "search region --tag decision --limit 5",
    "serve": "serve --port 7319",
    "setup": "setup claude-code",
    "show": "show v1",
    "status": "status",
    "erase": "erase --text - --preview",
    "erasure list": "erasure list",
    "erasure show": "erasure show 4g7k2m9q0r1s3t5v",
    "undo": "undo --branch idea",
    "verify": "verify --workspace main",
    "faults": "faults --at main",
    "archive create": 'archive create notes --description "What we decided"',
    "archive restore": "archive restore notes --to v1",
    "archive delete": "archive delete notes",
    "archive join": "archive join notes diary --name memory",
    "archive list": "archive list",
    "archive rename": "archive rename notes decisions",
    "archive show": "archive show notes",
    "archive suggest": "archive suggest",
    "branch create": "branch create idea main",
    "branch delete": "branch delete idea",
    "branch list": "branch list",
    "branch merge": "branch merge idea --preview",
    "branch protect": "branch protect main --approvals 1",
    "branch protections": "branch protections",
    "branch pushes": "branch pushes --strict",
    "branch unprotect": "branch unprotect main",
    "jobs cancel": "jobs cancel 3f9a2c",
    "jobs list": "jobs list",
    "jobs resume": "jobs resume 3f9a2c",
    "jobs show": "jobs show 3f9a2c",
    "jobs watch": "jobs watch 3f9a2c",
    "memory-test add": 'memory-test add region "Which region do we use?" --has eu-west-1',
    "memory-test delete": "memory-test delete region",
    "node append": 'node append notes/Plans --content "Launch in May."',
    "node children": "node children notes/Plans",
    "node create": 'node create --title Plans --content "What we plan." --archive notes',
    "node delete": "node delete notes/Plans/Launch",
    "node get": "node get notes/Plans --level brief",
    "node merge": "node merge notes/Plans/Launch notes/Plans/Start",
    "node move": "node move notes/Plans/Launch --parent notes/Done",
    "node relate": "node relate notes/Plans/Launch depends_on notes/Plans/Budget",
    "node restore": "node restore 7h2k",
    "node split": "node split notes/Plans --as-children",
    "node tree": "node tree --archive notes --depth 2",
    "node unrelate": "node unrelate notes/Plans/Launch depends_on notes/Plans/Budget",
    "node update": "node update notes/Plans --edit",
    "proposal approve": "proposal approve 1 --agent ada",
    "proposal comment": 'proposal comment 1 "Since when?"',
    "proposal create": 'proposal create "Move to eu-west-1"',
    "proposal edit": "proposal edit 1 --withdraw",
    "proposal list": "proposal list --status open",
    "proposal merge": "proposal merge 1",
    "proposal reject": 'proposal reject 1 -m "Not decided yet" --agent ada',
    "proposal show": "proposal show 1 --check",
    "session changes": "session changes",
    "session conflicts": "session conflicts",
    "session discard": "session discard",
    "session list": "session list",
    "session open": "session open --agent planner",
    "session rebase": "session rebase",
    "session resolve": "session resolve notes/Plans title --take theirs",
    "session show": "session show",
    "session use": "session use --none",
    "summaries list": "summaries list",
    "summaries renew": "summaries renew",
    "tag create": "tag create v1 main",
    "tag delete": "tag delete v1",
    "tag list": "tag list",
    "view collapse": "view collapse notes/Plans",
    "view delete": "view delete default",
    "view expand": "view expand notes/Plans --children",
    "view list": "view list",
    "view render": "view render --budget 4000",
    "ws create": "ws create team",
    "ws delete": "ws delete team",
    "ws list": "ws list",
    "ws rename": "ws rename team crew",
    "ws show": "ws show team",
    "ws use": "ws use team",
}
"""An example of each command, as it is typed after ``memotree``."""


def epilog(path: str) -> str:
    """The end of the help of a command, which is named as in ``EXAMPLES``."""
    return f"Example: {PROGRAM} {EXAMPLES[path]}"


def panel(name: str) -> str:
    """The heading that a command or group of the top level stands under."""
    return next(heading for heading, names in PANELS.items() if name in names)
