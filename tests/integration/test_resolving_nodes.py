"""A node is found by its id, its title or its path."""

from typing import Any

import pytest
from integration.wires import Wire

pytestmark = pytest.mark.requirement("USE-10")


async def named(wire: Wire, name: str, **options: Any) -> list[str]:
    """The nodes of the session that a name may mean."""
    found = await wire("ResolveNode", revision=wire.session, name=name, **options)
    return [one.node.id for one in found.candidates]


async def test_a_node_is_found_by_id_title_and_path_as_the_session_has_it(wire: Wire) -> None:
    top = await wire.create("Gardens")
    water = await wire.create("Water", parent_id=top.id)
    light = await wire.create("Light", parent_id=top.id)
    for name in ("Water", water.id):
        assert await named(wire, name) == [water.id]
    assert await named(wire, "Wat", prefix=True) == [water.id]
    assert await named(wire, "Gardens/Light") == [light.id]
    await wire("UpdateNode", node_id=light.id, title="Water", session_id=wire.session)
    assert sorted(await named(wire, "Gardens/Water")) == sorted([water.id, light.id])
    assert await named(wire, "Light") == []
    assert not (await wire("ResolveNode", name="Water")).candidates


async def test_slashes_within_titles_need_no_escape_where_nothing_else_is_meant(wire: Wire) -> None:
    page = await wire.create("docs/guide.md")
    limits = await wire.create("Limits", parent_id=page.id)
    both = await wire.create("Read/Write", parent_id=page.id)
    for name in ("docs/guide.md/Limits", r"docs\/guide.md/Limits"):
        assert await named(wire, name) == [limits.id]
    for name in ("guide.md/Read/Write", "docs/guide.md/Read/Write"):
        assert await named(wire, name) == [both.id]
    assert await named(wire, "uide.md/Limits") == []
    docs = await wire.create("docs")
    inner = await wire.create("guide.md", parent_id=docs.id)
    other = await wire.create("Limits", parent_id=inner.id)
    assert await named(wire, "docs/guide.md/Limits") == [other.id], "what the separators say comes first"


async def test_a_title_that_reads_like_an_id_is_taken_as_the_id_with_a_warning(wire: Wire) -> None:
    meant = await wire.create("Meant")
    other = await wire.create(meant.id)
    found = await wire("ResolveNode", revision=wire.session, name=meant.id)
    assert [one.node.id for one in found.candidates] == [meant.id]
    assert list(found.warnings) == [f"{meant.id!r} is taken as an id; a node with this title is {other.id}."]
