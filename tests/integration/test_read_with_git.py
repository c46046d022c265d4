"""People read a workspace with the git program: what a commit changed, and who wrote which line."""

from dataclasses import replace
from pathlib import Path

import pytest
from integration.worlds import World
from memotree_storage.model.paths import entry_path
from unit.storage.git.judge import Judge

pytestmark = pytest.mark.requirement("GIT-2")


async def test_git_diff_shows_a_changed_field_as_one_line_and_git_blame_who_wrote_it(
    world: World, tmp_path: Path
) -> None:
    node = world.node("Plan", brief="Short.", content="First line.\nSecond line.\nThird line.\n", tags=("a", "b"))
    made = await world.put(node, author="ada")
    node = replace(node, brief="Shorter.")
    briefer = await world.put(node, author="ben")
    node = replace(node, content=node.content.replace("Second", "Other"))
    rewritten = await world.put(node, author="cid")
    path = entry_path(node)
    git = Judge(world.repository.path).clone(tmp_path / "clone")
    git.check()

    def changed(old: str, new: str) -> list[str]:
        lines = git.run("diff", "--unified=0", old, new).splitlines()
        return [line for line in lines if line[0] in "+-" and not line.startswith(("+++", "---"))]

    assert git.run("diff", "--numstat", made, rewritten).split() == ["2", "2", path]
    assert changed(made, briefer) == ["-brief: Short.", "+brief: Shorter."]
    assert changed(briefer, rewritten) == ["-Second line.", "+Other line."]

    porcelain = git.run("blame", "--line-porcelain", rewritten, "--", path).splitlines()
    authors = [line.removeprefix("author ") for line in porcelain if line.startswith("author ")]
    texts = [line.removeprefix("\t") for line in porcelain if line.startswith("\t")]
    by = dict(zip(texts, authors, strict=True))
    assert (by["brief: Shorter."], by["Other line."]) == ("ben", "cid")
    assert {author for text, author in by.items() if text not in ("brief: Shorter.", "Other line.")} == {"ada"}
