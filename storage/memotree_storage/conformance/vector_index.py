"""Tests that every ``VectorIndex`` must pass. Subclass the suite and give it a prepared ``index`` with 8 dimensions.

The expected results come from a brute-force model that keeps all points in a list (`vector_index_model`).
"""

import asyncio
import random
import uuid
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from memotree_storage.conformance.vector_index_model import Model
from memotree_storage.model.node import new_id
from memotree_storage.ports import (
    IndexEntry,
    IndexHit,
    IndexPoint,
    IndexQuery,
    LineSpan,
    Override,
    TermVector,
    Vector,
    VectorIndex,
)

DIMENSIONS = 8
_TERMS = (7, 11, 2**31, 2**32 - 1)
_TYPES = ("note", "task", "code")
_TAGS = ("red", "green", "blue")
_FAR_LINE = 2**52 - 1
_TOLERANCE = 1e-5


def unit(*numbers: float) -> Vector:
    """Return a unit vector in the direction of ``numbers``, padded with zeros."""
    vector = np.zeros(DIMENSIONS, dtype=np.float32)
    vector[: len(numbers)] = numbers
    return vector / np.float32(np.linalg.norm(vector))


def point(workspace: str, line: int = 1, first: int = 0, end: int | None = None, **changes: object) -> IndexPoint:
    """Create a point that is alive on ``line`` from ``first`` (inclusive) to ``end`` (exclusive)."""
    plain = IndexPoint(
        point_id=str(uuid.uuid4()),
        workspace_id=workspace,
        node_id=new_id(),
        line_id=line,
        from_seq=first,
        to_seq=end,
        archive_id="archive",
        type="note",
        tags=(),
        vector=unit(1.0),
        terms=TermVector((7,), (1.0,)),
    )
    return replace(plain, **changes)  # type: ignore[arg-type]  # the fields by name


def check_hits(hits: Sequence[IndexHit], scores: dict[str, float], query: IndexQuery, model: Model) -> None:
    """Check that the hits are the best of ``scores``, in order, and have the fields of their points."""
    assert len(hits) == max(0, min(query.limit, len(scores) - query.offset))
    best = sorted(scores.values(), reverse=True)[query.offset : query.offset + query.limit]
    assert [hit.score for hit in hits] == pytest.approx(best, abs=_TOLERANCE)
    assert len({hit.point_id for hit in hits}) == len(hits)
    for hit in hits:
        one = model.points[hit.point_id]
        assert hit.score == pytest.approx(scores[hit.point_id], abs=_TOLERANCE)
        assert (hit.node_id, hit.line_id, hit.from_seq) == (one.node_id, one.line_id, one.from_seq)
    assert list(hits) == sorted(hits, key=lambda hit: (-hit.score, hit.node_id))


async def entries(index: VectorIndex, workspace: str) -> dict[str, IndexEntry]:
    """Return all index entries of a workspace by point id."""
    found = [entry async for entry in index.scan(workspace)]
    assert len({entry.point_id for entry in found}) == len(found)
    return {entry.point_id: entry for entry in found}


@pytest.fixture
def workspace() -> str:
    """Return the id of a workspace that only this test uses."""
    return f"workspace-{new_id()}"


class VectorIndexSuite:
    """The tests of the port; the subclass provides ``index``."""

    async def test_a_point_without_a_vector_is_found_by_its_terms_alone(
        self, index: VectorIndex, workspace: str
    ) -> None:
        """A second upsert can add the vector later. A point may have neither vector nor terms."""
        late, bare = point(workspace, vector=None), point(workspace, vector=None, terms=TermVector((), ()))
        query = IndexQuery(workspace, [LineSpan(1, 0)], limit=10)
        await index.upsert([late, bare])
        assert [hit.point_id for hit in await index.best_terms(query, TermVector((7,), (1.0,)))] == [late.point_id]
        assert await index.nearest(query, unit(1.0)) == []
        assert set(await entries(index, workspace)) == {late.point_id, bare.point_id}
        await index.close_versions([(bare.point_id, 3)])
        assert (await entries(index, workspace))[bare.point_id].to_seq == 3
        await index.upsert([replace(late, vector=unit(1.0))])
        assert [hit.point_id for hit in await index.nearest(query, unit(1.0))] == [late.point_id]
        assert [hit.point_id for hit in await index.best_terms(query, TermVector((7,), (1.0,)))] == [late.point_id]

    async def test_preparing_again_keeps_what_is_there(self, index: VectorIndex, workspace: str) -> None:
        """``prepare`` is safe to repeat."""
        await index.upsert([point(workspace)])
        await index.prepare()
        assert len(await entries(index, workspace)) == 1

    async def test_an_index_with_points_of_others_is_not_removed(self, index: VectorIndex, workspace: str) -> None:
        """Whoever else uses the place keeps what is theirs; an index that is gone can be prepared again."""
        other = f"workspace-{new_id()}"
        await index.upsert([point(workspace), point(other)])
        assert not await index.remove([workspace])
        assert (len(await entries(index, workspace)), len(await entries(index, other))) == (0, 1)
        if await index.remove([workspace, other]):  # the tests may share one
            assert await index.remove([workspace, other]), "it is gone already"
            await index.prepare()
        assert len(await entries(index, other)) == 0
        await index.upsert([point(workspace)])
        assert len(await entries(index, workspace)) == 1

    async def test_nearest_orders_by_cosine(self, index: VectorIndex, workspace: str) -> None:
        """The best hit comes first."""
        points = [point(workspace, vector=unit(1.0, part)) for part in (2.0, 0.0, 1.0, -1.0)]
        await index.upsert(points)
        hits = await index.nearest(IndexQuery(workspace, [LineSpan(1, 0)], 3), unit(1.0, 0.1))
        assert [hit.point_id for hit in hits] == [points[i].point_id for i in (1, 2, 3)]
        assert hits[0].score == pytest.approx(float(unit(1.0, 0.1) @ unit(1.0)), abs=_TOLERANCE)

    async def test_equal_scores_stand_in_the_order_of_node_ids(self, index: VectorIndex, workspace: str) -> None:
        """This also holds across pages whose border is between equal scores."""
        points = [point(workspace) for _ in range(60)]
        await index.upsert(points)
        expected = sorted(one.node_id for one in points)
        near, terms = [], []
        for offset in (0, 20, 40, 60):
            query = IndexQuery(workspace, [LineSpan(1, 0)], 20, offset)
            near += [hit.node_id for hit in await index.nearest(query, unit(1.0))]
            terms += [hit.node_id for hit in await index.best_terms(query, TermVector((7,), (1.0,)))]
        assert near == expected
        assert terms == expected

    async def test_a_version_is_seen_from_its_birth_until_before_its_end(
        self, index: VectorIndex, workspace: str
    ) -> None:
        """``from_seq`` is inclusive, ``to_seq`` is exclusive."""
        one = point(workspace, first=3, end=5)
        await index.upsert([one])
        for seq, seen in ((2, False), (3, True), (4, True), (5, False)):
            query = IndexQuery(workspace, [LineSpan(1, seq)], 10)
            assert bool(await index.nearest(query, unit(1.0))) is seen
            assert bool(await index.best_terms(query, TermVector((7,), (1.0,)))) is seen

    async def test_every_version_is_found_from_its_birth_on_if_that_is_asked(
        self, index: VectorIndex, workspace: str
    ) -> None:
        """What has ended, or is overridden by a line, is found; what begins later is not."""
        one = point(workspace, first=3, end=5, overrides=(Override(2, 1),))
        await index.upsert([one])
        for seq, seen in ((2, False), (3, True), (9, True)):
            query = IndexQuery(workspace, [LineSpan(20, 4, 2), LineSpan(1, seq, 1)], 10, every=True)
            assert bool(await index.nearest(query, unit(1.0))) is seen
            assert bool(await index.best_terms(query, TermVector((7,), (1.0,)))) is seen

    async def test_great_line_ids_are_told_apart(self, index: VectorIndex, workspace: str) -> None:
        """Line ids are integers below 2**52; rounding must not merge neighbours."""
        near, far = point(workspace, _FAR_LINE - 1), point(workspace, _FAR_LINE)
        await index.upsert([near, far])
        hits = await index.nearest(IndexQuery(workspace, [LineSpan(_FAR_LINE, 2**40)], 10), unit(1.0))
        assert [hit.point_id for hit in hits] == [far.point_id]
        assert hits[0].line_id == _FAR_LINE

    async def test_a_workspace_never_sees_another(self, index: VectorIndex, workspace: str) -> None:
        """Searches, scans and deletes are limited to one workspace."""
        other = workspace + "-other"
        await index.upsert([point(workspace), point(other)])
        for name in (workspace, other):
            assert len(await index.nearest(IndexQuery(name, [LineSpan(1, 0)], 10), unit(1.0))) == 1
        await index.delete(workspace)
        assert await entries(index, workspace) == {}
        assert len(await entries(index, other)) == 1
        assert (await index.count(workspace), await index.count(other)) == (0, 1)

    async def test_an_upsert_replaces_a_point_of_the_same_id(self, index: VectorIndex, workspace: str) -> None:
        """Vector, terms and payload are all replaced. Within one call, the last point with an id wins."""
        old = point(workspace, terms=TermVector((7, 11), (1.0, 1.0)), tags=("red",))
        fresh = replace(old, vector=unit(0.0, 1.0), terms=TermVector((11,), (2.0,)), type="task", tags=())
        await index.upsert([old])
        await index.upsert([old, fresh])
        state = [LineSpan(1, 0)]
        assert (await index.nearest(IndexQuery(workspace, state, 10), unit(1.0)))[0].score == pytest.approx(0.0)
        assert await index.best_terms(IndexQuery(workspace, state, 10), TermVector((7,), (1.0,))) == []
        assert await index.nearest(IndexQuery(workspace, state, 10, tags=["red"]), unit(1.0)) == []
        assert len(await index.nearest(IndexQuery(workspace, state, 10, types=["task"]), unit(1.0))) == 1

    async def test_closing_a_version_hides_it_from_then_on(self, index: VectorIndex, workspace: str) -> None:
        """It stays visible at earlier states."""
        one, two = point(workspace), point(workspace)
        await index.upsert([one, two])
        await index.close_versions([(one.point_id, 4)])
        before = await index.nearest(IndexQuery(workspace, [LineSpan(1, 3)], 10), unit(1.0))
        after = await index.nearest(IndexQuery(workspace, [LineSpan(1, 4)], 10), unit(1.0))
        assert {hit.point_id for hit in before} == {one.point_id, two.point_id}
        assert {hit.point_id for hit in after} == {two.point_id}

    async def test_closing_passes_over_missing_points(self, index: VectorIndex, workspace: str) -> None:
        """Existing points are closed even if missing ids are given in the same call."""
        one, two = point(workspace), point(workspace)
        await index.upsert([one, two])
        missing = [(str(uuid.uuid4()), end) for end in (4, 4, 5)]
        await index.close_versions([missing[0], (one.point_id, 4), missing[1], missing[2], (two.point_id, 6)])
        await index.close_versions(missing)
        await index.close_versions([])
        found = await entries(index, workspace)
        assert {key: entry.to_seq for key, entry in found.items()} == {one.point_id: 4, two.point_id: 6}

    async def test_many_versions_are_closed_at_once(self, index: VectorIndex, workspace: str) -> None:
        """Each version gets its own end."""
        points = [point(workspace) for _ in range(300)]
        await index.upsert(points)
        ends = {one.point_id: 1 + number % 90 for number, one in enumerate(points)}
        await index.close_versions(list(ends.items()))
        assert {key: entry.to_seq for key, entry in (await entries(index, workspace)).items()} == ends

    async def test_terms_without_a_match_are_no_hits(self, index: VectorIndex, workspace: str) -> None:
        """Hits have a score greater than 0. A point without terms is never found by terms."""
        await index.upsert([point(workspace), point(workspace, terms=TermVector((), ()))])
        query = IndexQuery(workspace, [LineSpan(1, 0)], 10)
        assert await index.best_terms(query, TermVector((8,), (1.0,))) == []
        assert await index.best_terms(query, TermVector((), ())) == []
        assert len(await index.best_terms(query, TermVector((7, 8), (1.0, 1.0)))) == 1
        assert len(await index.nearest(query, unit(1.0))) == 2

    async def test_the_greatest_term_ids_are_kept(self, index: VectorIndex, workspace: str) -> None:
        """Terms are 32-bit hashes."""
        await index.upsert([point(workspace, terms=TermVector((0, 2**32 - 1), (0.5, 0.25)))])
        query = IndexQuery(workspace, [LineSpan(1, 0)], 10)
        hits = await index.best_terms(query, TermVector((0, 2**32 - 1), (2.0, 4.0)))
        assert hits[0].score == pytest.approx(2.0)

    async def test_filters_narrow_the_search(self, index: VectorIndex, workspace: str) -> None:
        """Types and archives are alternatives, all tags must match, and node ids limit the search."""
        one = point(workspace, type="task", tags=("red", "green"), archive_id="a")
        two = point(workspace, type="code", tags=("red",), archive_id="b")
        await index.upsert([one, two])
        state = [LineSpan(1, 0)]
        both, neither = {one.point_id, two.point_id}, set[str]()
        for query, expected in (
            (IndexQuery(workspace, state, 10, types=["task", "code"]), both),
            (IndexQuery(workspace, state, 10, types=["task"]), {one.point_id}),
            (IndexQuery(workspace, state, 10, types=["note"]), neither),
            (IndexQuery(workspace, state, 10, tags=["red"]), both),
            (IndexQuery(workspace, state, 10, tags=["red", "green"]), {one.point_id}),
            (IndexQuery(workspace, state, 10, archive_ids=["a", "b"]), both),
            (IndexQuery(workspace, state, 10, archive_ids=["b"]), {two.point_id}),
            (IndexQuery(workspace, state, 10, node_ids=[two.node_id, "unknown"]), {two.point_id}),
            (IndexQuery(workspace, state, 10, node_ids=[]), neither),
            (IndexQuery(workspace, [], 10), neither),
            (IndexQuery(workspace, state, 0), neither),
        ):
            assert {hit.point_id for hit in await index.nearest(query, unit(1.0))} == expected
            assert {hit.point_id for hit in await index.best_terms(query, TermVector((7,), (1.0,)))} == expected

    async def test_filter_syntax_in_values_is_text(self, index: VectorIndex, workspace: str) -> None:
        """Quotes, wildcards and brackets are matched literally."""
        odd = ("*", "' OR 1=1 --", "a.b[0]", '{"must": []}', "标签", "x" * 500)
        one = point(workspace, tags=odd)
        await index.upsert([one, point(workspace, tags=("plain",))])
        for tag in odd:
            hits = await index.nearest(IndexQuery(workspace, [LineSpan(1, 0)], 10, tags=[tag]), unit(1.0))
            assert [hit.point_id for hit in hits] == [one.point_id]

    async def test_scan_tells_every_point_once(self, index: VectorIndex, workspace: str) -> None:
        """This holds for any number of pages."""
        points = [point(workspace, line=i % 3, first=i, end=None if i % 2 else i + 7) for i in range(2100)]
        await index.upsert(points)
        expected = {
            one.point_id: IndexEntry(one.point_id, one.node_id, one.line_id, one.from_seq, one.to_seq) for one in points
        }
        assert await entries(index, workspace) == expected
        assert await index.count(workspace) == len(points)

    async def test_delete_keeps_the_lines_it_is_told_to(self, index: VectorIndex, workspace: str) -> None:
        """An empty list keeps no line."""
        await index.upsert([point(workspace, line) for line in (1, 2, _FAR_LINE)])
        await index.delete(workspace, keep_lines=[2, _FAR_LINE, 99])
        assert {entry.line_id for entry in (await entries(index, workspace)).values()} == {2, _FAR_LINE}
        await index.delete(workspace, keep_lines=[])
        assert await entries(index, workspace) == {}

    async def test_delete_takes_only_the_lines_it_is_told_to(self, index: VectorIndex, workspace: str) -> None:
        """An empty list deletes nothing; other workspaces are not affected."""
        other = new_id()
        await index.upsert([point(workspace, line) for line in (1, 2, _FAR_LINE)] + [point(other, 2)])
        await index.delete(workspace, lines=[])
        assert await index.count(workspace) == 3
        await index.delete(workspace, lines=[2, 99, _FAR_LINE])
        assert {entry.line_id for entry in (await entries(index, workspace)).values()} == {1}
        await index.delete(workspace, lines=[*range(1000, 4000), 1])
        assert await entries(index, workspace) == {}
        assert await index.count(other) == 1
        await index.delete(other)

    async def test_a_state_stays_the_same_while_later_commits_arrive(self, index: VectorIndex, workspace: str) -> None:
        """A reader of an old state sees each node once, between any two steps of a writer."""
        nodes = [new_id() for _ in range(20)]
        present = [point(workspace, node_id=node) for node in nodes]
        await index.upsert(present)

        async def write() -> None:
            nonlocal present
            for seq in range(1, 25):
                following = [point(workspace, first=seq, node_id=node) for node in nodes]
                await index.upsert(following)
                await index.close_versions([(one.point_id, seq) for one in present])
                present = following

        writer = asyncio.create_task(write())
        state = [LineSpan(1, 0)]
        while not writer.done():
            hits = await index.nearest(IndexQuery(workspace, state, 100), unit(1.0))
            assert [hit.node_id for hit in hits] == sorted(nodes)
            hits = await index.best_terms(IndexQuery(workspace, state, 100), TermVector((7,), (1.0,)))
            assert [hit.node_id for hit in hits] == sorted(nodes)
            await asyncio.sleep(0)
        await writer

    async def test_flush_returns(self, index: VectorIndex, workspace: str) -> None:
        """It returns with and without anything to write."""
        await index.flush()
        await index.upsert([point(workspace)])
        await index.flush()

    async def test_a_version_is_hidden_by_a_nearer_line_from_its_seq_on(
        self, index: VectorIndex, workspace: str
    ) -> None:
        """Overrides replace those that were set before; a lineage without the line is not concerned."""
        one = point(workspace, line=1, overrides=(Override(2, 5), Override(3, 1)))
        two = point(workspace, line=1)
        await index.upsert([one, two])

        async def found(*lineage: LineSpan) -> set[str]:
            return {hit.point_id for hit in await index.nearest(IndexQuery(workspace, lineage, 10), unit(1.0))}

        main = LineSpan(1, 0, 1)
        assert await found(main) == {one.point_id, two.point_id}
        assert await found(LineSpan(20, 4, 2), main) == {one.point_id, two.point_id}
        assert await found(LineSpan(20, 5, 2), main) == {two.point_id}
        assert await found(LineSpan(30, 9, 3), LineSpan(20, 1, 2), main) == {two.point_id}
        await index.override_versions([(two.point_id, [Override(2, 1)]), (one.point_id, [Override(3, 1)])])
        assert await found(LineSpan(20, 5, 2), main) == {one.point_id}
        assert (await entries(index, workspace))[two.point_id].overrides == (Override(2, 1),)
        await index.close_versions([(one.point_id, 3)])
        assert await found(LineSpan(20, 5, 2), LineSpan(1, 2, 1)) == {one.point_id}
        assert await found(LineSpan(30, 5, 3), LineSpan(1, 2, 1)) == {two.point_id}

    @pytest.mark.parametrize("seed", range(4))
    async def test_searches_equal_brute_force_on_random_histories(
        self, index: VectorIndex, workspace: str, seed: int
    ) -> None:
        """Queries use several lines and filters, after upserts, closes and deletes in random order."""
        chance = random.Random(seed)  # noqa: S311 - a workload, not a secret
        model = Model()
        lines = [1, 2, 3, chance.randrange(2**52), _FAR_LINE]
        nodes = [new_id() for _ in range(30)]
        for _ in range(6):
            await _change(index, model, chance, workspace, lines, nodes)
            for _ in range(4):
                query = _random_query(chance, workspace, lines, nodes)
                vector, terms = _random_vector(chance), _random_terms(chance, at_least=1)
                check_hits(await index.nearest(query, vector), model.nearest(query, vector), query, model)
                check_hits(await index.best_terms(query, terms), model.best_terms(query, terms), query, model)


async def _change(
    index: VectorIndex, model: Model, chance: random.Random, workspace: str, lines: list[int], nodes: list[str]
) -> None:
    """Apply one random step to the index and to the model."""
    fresh = [_random_point(chance, workspace, lines, nodes) for _ in range(chance.randrange(1, 60))]
    again = [
        replace(model.points[key], vector=_random_vector(chance))
        for key in chance.sample(sorted(model.points), min(3, len(model.points)))
    ]
    await index.upsert(fresh + again)
    model.put(fresh + again)
    ended = [
        (key, model.points[key].from_seq + chance.randrange(1, 9))
        for key in chance.sample(sorted(model.points), min(15, len(model.points)))
    ]
    ended.append((str(uuid.uuid4()), 3))
    await index.close_versions(ended)
    model.close(ended)
    overridden = [(key, _random_overrides(chance, lines)) for key in chance.sample(sorted(model.points), 5)]
    overridden.append((str(uuid.uuid4()), (Override(1, 2),)))
    await index.override_versions(overridden)
    model.override(overridden)
    if chance.random() < 0.2:
        keep = chance.sample(lines, 3)
        await index.delete(workspace, keep_lines=keep)
        model.points = {key: one for key, one in model.points.items() if one.line_id in keep}


def _random_vector(chance: random.Random) -> Vector:
    return unit(*(chance.choice((-1.0, 0.0, 0.5, 1.0)) for _ in range(DIMENSIONS - 1)), 0.25)


def _random_terms(chance: random.Random, at_least: int = 0) -> TermVector:
    ids = sorted(chance.sample(_TERMS, chance.randint(at_least, len(_TERMS))))
    return TermVector(tuple(ids), tuple(chance.choice((0.5, 1.0, 2.0)) for _ in ids))


def _random_overrides(chance: random.Random, lines: list[int]) -> tuple[Override, ...]:
    """Up to three lines that override a version; the farthest line of a lineage has number 0 and overrides none."""
    return tuple(Override(1 + place, chance.randrange(15)) for place in sorted(chance.sample(range(len(lines)), 2)))


def _random_point(chance: random.Random, workspace: str, lines: list[int], nodes: list[str]) -> IndexPoint:
    first = chance.randrange(10)
    return point(
        workspace,
        chance.choice(lines),
        first,
        chance.choice((None, first + chance.randrange(1, 6))),
        node_id=chance.choice(nodes),
        archive_id=chance.choice(("a", "b")),
        type=chance.choice(_TYPES),
        tags=tuple(sorted(chance.sample(_TAGS, chance.randrange(3)))),
        vector=_random_vector(chance),
        terms=_random_terms(chance),
        overrides=chance.choice(((), _random_overrides(chance, lines))),
    )


def _random_query(chance: random.Random, workspace: str, lines: list[int], nodes: list[str]) -> IndexQuery:
    return IndexQuery(
        workspace,
        _random_lineage(chance, lines),
        limit=chance.choice((1, 5, 100)),
        offset=chance.choice((0, 0, 3)),
        types=chance.sample(_TYPES, chance.choice((0, 0, 2))),
        tags=chance.sample(_TAGS, chance.choice((0, 0, 1, 2))),
        archive_ids=chance.choice(((), (), ("a",))),
        node_ids=chance.choice((None, None, chance.sample(nodes, 12))),
        without_ids=chance.choice(((), (), chance.sample(nodes, 6))),
        every=chance.choice((False, False, True)),
    )


def _random_lineage(chance: random.Random, lines: list[int]) -> list[LineSpan]:
    found = chance.sample(range(len(lines)), chance.randint(1, 4))
    spans = [LineSpan(lines[place], chance.randrange(15), 1 + place) for place in found]
    return [*spans[:-1], replace(spans[-1], number=0)]
