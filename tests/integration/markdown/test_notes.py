"""Folders of other programs become archives, and a second import brings what changed and nothing else."""

import json
from pathlib import Path
from typing import Any

import pytest

from memotree.client import MarkdownFolderError, MarkdownImport, Node, Workspace

pytestmark = pytest.mark.requirement("GIT-11")

VAULT = {
    "Home.md": "Start at [[Projects/Plan|the plan]] or [here](Projects/Sub/Deep%20note.md#top). #start #no1 #12\n"
    "```\n#code [[Missing]]\n```\n`#code`\n",
    "Projects/Plan.md": "---\ntags: [work, big/idea]\naliases:\n  - The Plan\nstatus: open\ndue: 2026-05-01\n"
    "meta: {a: [b]}\n---\nSee [[home]], [[deep note#part]], [[Nowhere]] and ![[picture.png]].",
    "Projects/Sub/Deep note.md": "Back to [[The Plan]].\n",
    "Projects/Projects.md": "What we do.",
    ".obsidian/app.json": "{}",
    "picture.png": "png",
}

BASIC_MEMORY = {
    "design/Auth.md": """---
title: Authentication Design
type: decision
permalink: design/auth
tags: auth, security
---
# Authentication Design

## Observations
- [decision] Tokens expire after 15 minutes #security (keeps the window small)
- [ ] a task

## Relations
- implements [[API Rules]] (as agreed)
- depends_on [[specs/users]]
- "extends" [[Missing]]
- see also [[API Rules]]
""",
    "specs/API Rules.md": "---\ntitle: API Rules\npermalink: specs/api-rules\n---\nRules. See [[design/auth]].\n",
    "specs/Users.md": "---\ntitle: User Schema\npermalink: specs/users\n---\nUsers.\n",
}

LETTA = {
    "system/human.md": "---\ndescription: What I know of the person.\nlimit: 5000\n---\nAda. #notatag\n",
    "system/persona/style.md": "---\ndescription: How I talk.\nread_only: true\n---\nBriefly.\n",
    "notes.md": "---\ndescription: Loaded on demand.\n---\nA note.\n",
}


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def tree(workspace: Workspace, archive: str) -> dict[str, Node]:
    """The nodes by their paths of titles."""
    found: dict[str, Node] = {}
    way: list[str] = []
    for each in workspace.walk(archive=archive, level="DETAIL"):
        del way[each.depth :]
        way.append(each.node.title)
        found["/".join(way)] = each.node
    return found


def related(nodes: dict[str, Node], path: str) -> set[tuple[str, str, str]]:
    names = {node.id: name for name, node in nodes.items()}
    return {(each.type, names[each.target_id], each.description) for each in nodes[path].relations}


def told(done: MarkdownImport) -> list[tuple[str, str, tuple[str, ...]]]:
    return [(each.kind, each.file, each.fields) for each in done.edits]


def test_a_vault_becomes_an_archive_and_a_second_import_changes_only_what_changed(
    workspace: Workspace, tmp_path: Path
) -> None:
    folder = write(tmp_path / "vault", VAULT)
    done = workspace.import_markdown(folder)
    before = tree(workspace, "vault")
    assert done.file_format == "plain"
    assert list(before) == ["Home", "Projects", "Projects/Plan", "Projects/Sub", "Projects/Sub/Deep note"]
    home, plan = before["Home"], before["Projects/Plan"]
    assert (home.tags, home.content) == (("no1", "start"), VAULT["Home.md"].removesuffix("\n"))
    assert plan.tags == ("big/idea", "work")
    given = {"status": "open", "due": "2026-05-01", "meta": '{"a": ["b"]}', "aliases": "The Plan"}
    assert {key: plan.attributes[key] for key in given} == given
    for path, targets in (
        ("Home", ["Projects/Plan", "Projects/Sub/Deep note"]),
        ("Projects/Plan", ["Home", "Projects/Sub/Deep note"]),
        ("Projects/Sub/Deep note", ["Projects/Plan"]),
    ):
        assert related(before, path) == {("REFERENCES", target, "") for target in targets}
    assert before["Projects"].content == "What we do."
    assert any("Nowhere in Projects/Plan.md" in warning for warning in done.warnings)
    assert workspace.import_markdown(folder).edits == ()

    (folder / "Home.md").write_text("Only [[Plan]] now.\n")
    (folder / "Projects/Sub/Deep note.md").rename(folder / "Deep note.md")
    (folder / "Fresh.md").write_text("New.\n")
    done = workspace.import_markdown(folder)
    assert sorted(told(done)) == [
        ("create", "Fresh.md", ()),
        ("move", "Deep note.md", ()),
        ("update", "Deep note.md", ("attributes",)),
        ("update", "Home.md", ("attributes", "content", "tags")),
        ("update", "Home.md", ("relations",)),
    ]
    assert [each.title for each in done.missing] == ["Sub"]
    workspace.import_markdown(folder, delete=True)
    after = tree(workspace, "vault")
    assert list(after) == ["Home", "Projects", "Projects/Plan", "Deep note", "Fresh"]
    assert after["Deep note"].id == before["Projects/Sub/Deep note"].id
    assert related(after, "Home") == {("REFERENCES", "Projects/Plan", "")}
    assert workspace.import_markdown(folder, delete=True).edits == ()


def test_what_was_changed_here_stays_unless_the_file_changed_as_well(workspace: Workspace, tmp_path: Path) -> None:
    folder = write(tmp_path / "vault", {"A.md": "Old.", "B.md": "See [[A]]."})
    workspace.import_markdown(folder)
    first = tree(workspace, "vault")["A"]
    workspace.revise(first.id, "Changed here.")
    workspace.remember("By an agent.", title="Mine", archive="vault")
    assert workspace.import_markdown(folder, delete=True).edits == ()

    (folder / "A.md").write_text("Changed there.")
    with pytest.raises(MarkdownFolderError, match=r"A\.md: was changed, and so was its node"):
        workspace.import_markdown(folder)
    assert tree(workspace, "vault")["A"].content == "Changed here."
    workspace.import_markdown(folder, overwrite=True)
    nodes = tree(workspace, "vault")
    assert (nodes["A"].content, nodes["A"].id, "Mine" in nodes) == ("Changed there.", first.id, True)
    assert related(nodes, "B") == {("REFERENCES", "A", "")}


def test_a_renamed_note_keeps_its_id_and_what_agents_said_of_it(workspace: Workspace, tmp_path: Path) -> None:
    folder = write(tmp_path / "vault", {"A.md": "Some text.", "B.md": "See [[A]]."})
    workspace.import_markdown(folder)
    before = tree(workspace, "vault")
    with workspace.session() as session:
        session.relate(before["B"].id, "REFERENCES", before["A"].id, description="as Ada said")
        session.relate(before["B"].id, "EXTENDS", before["A"].id)
        session.commit("Say why")
    (folder / "A.md").rename(folder / "Another name.md")
    (folder / "B.md").write_text("Now see [[Another name]].")
    done = workspace.import_markdown(folder)
    assert told(done) == [
        ("update", "Another name.md", ("attributes", "title")),
        ("update", "B.md", ("attributes", "content")),
    ]
    after = tree(workspace, "vault")
    assert after["Another name"].id == before["A"].id
    assert related(after, "B") == {("REFERENCES", "Another name", "as Ada said"), ("EXTENDS", "Another name", "")}


def test_basic_memory_keeps_its_relations_with_their_types(workspace: Workspace, tmp_path: Path) -> None:
    folder = write(tmp_path / "basic", BASIC_MEMORY)
    done = workspace.import_markdown(folder, archive="knowledge")
    nodes = tree(workspace, "knowledge")
    assert done.file_format == "basic-memory"
    assert list(nodes) == ["design", "design/Authentication Design", "specs", "specs/API Rules", "specs/User Schema"]
    design = nodes["design/Authentication Design"]
    assert design.tags == ("auth", "security")
    assert (design.attributes["permalink"], design.attributes["note_type"]) == ("design/auth", "decision")
    assert "- [decision] Tokens expire" in design.content
    assert related(nodes, "design/Authentication Design") == {
        ("REFERENCES", "specs/API Rules", "implements (as agreed); see also"),
        ("DEPENDS_ON", "specs/User Schema", ""),
    }
    assert related(nodes, "specs/API Rules") == {("REFERENCES", "design/Authentication Design", "")}
    assert workspace.import_markdown(folder, archive="knowledge").edits == ()


def test_the_memory_of_letta_keeps_what_each_block_is_for(workspace: Workspace, tmp_path: Path) -> None:
    folder = write(tmp_path / "memory", LETTA)
    done = workspace.import_markdown(folder)
    nodes = tree(workspace, "memory")
    assert done.file_format == "letta"
    assert list(nodes) == ["notes", "system", "system/human", "system/persona", "system/persona/style"]
    human = nodes["system/human"]
    assert (human.content, human.brief, human.tags) == ("Ada. #notatag", "What I know of the person.", ())
    assert (human.attributes["label"], human.attributes["limit"]) == ("human", "5000")
    assert nodes["system/persona/style"].attributes["read_only"] == "true"
    assert workspace.import_markdown(folder).edits == ()
    (folder / "system/human.md").write_text("---\ndescription: All I know.\nlimit: 5000\n---\nAda. #notatag\n")
    assert told(workspace.import_markdown(folder)) == [("update", "system/human.md", ("attributes", "brief"))]


AGENT: dict[str, Any] = {
    "agents": [
        {"id": "agent-0", "name": "Helper", "block_ids": ["block-1", "block-0"], "messages": [{"role": "user"}]},
    ],
    "blocks": [
        {"id": "block-0", "label": "human", "value": "Ada.", "limit": 5000, "description": "The person"},
        {"id": "block-1", "label": "persona", "value": "Brief.", "limit": None, "read_only": True},
    ],
    "files": [],
    "tools": [],
}


def test_an_agent_file_gives_its_blocks(workspace: Workspace, tmp_path: Path) -> None:
    file = tmp_path / "helper.af"
    file.write_text(json.dumps(AGENT))
    done = workspace.import_markdown(file)
    nodes = tree(workspace, "helper")
    assert {name: (node.content, node.brief) for name, node in nodes.items()} == {
        "persona": ("Brief.", "Brief."),
        "human": ("Ada.", "The person"),
    }
    assert nodes["human"].attributes["limit"] == "5000"
    assert "1 messages" in " ".join(done.warnings)
    assert workspace.import_markdown(file).edits == ()
    changed = json.loads(json.dumps(AGENT))
    changed["blocks"][0]["value"] = "Bob."
    file.write_text(json.dumps(changed))
    assert told(workspace.import_markdown(file)) == [("update", "human", ("attributes", "content"))]


def test_agent_files_of_the_first_version_of_several_agents_and_with_equal_labels(
    workspace: Workspace, tmp_path: Path
) -> None:
    second = {"id": "agent-1", "name": "Critic", "block_ids": ["block-0", "block-2"]}
    shared = AGENT["blocks"] + [{"id": "block-2", "label": "persona", "value": "Strict."}]
    twice = [{"id": f"block-{number}", "label": "note", "value": text} for number, text in enumerate(["One", "Two"])]
    for name, content in {
        "old": {"name": "Old", "core_memory": [{"label": "human", "value": "Ada.", "limit": 2000}]},
        "team": AGENT | {"agents": AGENT["agents"] + [second], "blocks": shared},
        "twice": {"agents": [], "blocks": twice},
    }.items():
        file = tmp_path / f"{name}.af"
        file.write_text(json.dumps(content))
        workspace.import_markdown(file)
        assert workspace.import_markdown(file).edits == ()
    assert list(tree(workspace, "old")) == ["human"]
    assert list(tree(workspace, "team")) == ["Helper", "Helper/persona", "Helper/human", "Critic", "Critic/persona"]
    assert [each.node.content for each in workspace.walk(archive="twice", level="DETAIL")] == ["One", "Two"]


def test_what_is_no_agent_file_or_folder_of_notes_is_refused(workspace: Workspace, tmp_path: Path) -> None:
    file = tmp_path / "wrong.af"
    for text, told in (
        ("{", "is no JSON"),
        ("[]", "has neither"),
        ('{"blocks": [{"label": "a"}]}', "not as Letta writes it"),
        ("[" * 100_000, "is no JSON"),
    ):
        file.write_text(text)
        with pytest.raises(MarkdownFolderError, match=rf"wrong\.af: .*{told}"):
            workspace.import_markdown(file)
    with pytest.raises(FileNotFoundError, match="no folder"):
        workspace.import_markdown(tmp_path / "none")
    write(tmp_path / "vault", {"A.md": "---\ntitle: [\n---\n", "B.md": "ok\n"})
    with pytest.raises(MarkdownFolderError, match=r"A\.md:3: its front matter is not YAML"):
        workspace.import_markdown(tmp_path / "vault")
    assert list(workspace.archives()) == []
