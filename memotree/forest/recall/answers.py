"""Builds the answers of recall from what was chosen: the packed passages of HYBRID, the nodes of LCA and COLLAPSED."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import ceil
from typing import Final

from memotree_storage.index.search import FoundNode
from memotree_storage.model.titles import titled
from memotree_storage.model.tokens import count_tokens

from memotree.forest.recall.ancestry import Representative
from memotree.forest.recall.excerpts import best_stretch
from memotree.forest.recall.former import lines_of, plain
from memotree.forest.recall.passages import ID_TOKENS, PackedLeaf, joined, markdown, with_id
from memotree.forest.recall.question import Question
from memotree.forest.recall.ranking import Chosen, Selection
from memotree.forest.recall.results import NodeResult, ResultPart
from memotree.forest.recall.state_view import StateView
from memotree.v1 import forest_service_pb2 as pb

ABOUT_PAST: Final = "The question is about the past, so notes are followed by what they said before they were changed."

_LEAST_EXCERPT: Final = 8
"""In fewer tokens than this, a part of a longer text says nothing, or something wrong: half of a number."""


def part_for(top: Representative) -> ResultPart:
    """Returns the result for the representative of a tree's hits."""
    path = top.hits[0].path
    return ResultPart(
        top.node_id,
        top.score,
        (("meaning", top.score),),
        path[: path.index(top.node_id)],
        tuple(hit.node_id for hit in top.hits) if len(top.hits) > 1 else (),
    )


def shares_of(hit: FoundNode) -> tuple[tuple[str, float], ...]:
    """Divides the score of a hit in proportion to its scores by words and by meaning."""
    both = hit.words + hit.meaning
    signals = (("words", hit.words), ("meaning", hit.meaning))
    return tuple((name, hit.score * share / both) for name, share in signals if share > 0)


def copies_among(ids: Iterable[str], node_results: Mapping[str, NodeResult]) -> dict[str, str]:
    """Returns the notes that say exactly what a better one says, each with that one.

    Args:
        ids: The nodes, best first.
        node_results: The results by node id; leaves of documents and turns are no notes: "thank you" is said often.
    """
    first: dict[str, str] = {}
    copies: dict[str, str] = {}
    for key in ids:
        if key in node_results and _is_note(node_results[key]):
            said = plain(titled(node_results[key].title, node_results[key].text))
            if first.setdefault(said, key) != key:
                copies[key] = first[said]
    return copies


def _is_note(result: NodeResult) -> bool:
    """Whether a node is a document of its own."""
    return result.version.source is None and not result.node.path and not result.node.child_count


def within_budget(
    chosen: Sequence[ResultPart], node_results: Mapping[str, NodeResult], asked: Question
) -> tuple[pb.RecallResponse, list[pb.DroppedNode]]:
    """Returns the nodes that fit the budget, best first, as an answer, and the nodes that do not fit."""
    taken, blocks, dropped = list[pb.RecalledNode](), list[str](), list[pb.DroppedNode]()
    spent, is_past = 0, False
    present = [node_results[part.node_id] for part in chosen if part.node_id in node_results]
    for result in present:
        former = _former_of(result, asked)
        tokens = result.tokens + (count_tokens(former) if former else 0)
        block = _block(result, former)
        cost = count_tokens(f"{block}\n\n") if asked.covers_text else tokens
        if not asked.budget or spent + cost <= asked.budget:
            spent += cost
            taken.append(result.message(tokens))
            blocks.append(block)
            is_past = is_past or bool(former)
        else:
            key = result.version.entry_id
            dropped.append(
                pb.DroppedNode(node_id=key, score=result.score, tokens=result.tokens, reason=pb.DROP_REASON_BUDGET)
            )
    if is_past:
        asked.warnings.append(ABOUT_PAST)
    if present and not taken:
        asked.warnings.append(
            f"None of the {len(present)} nodes fits {asked.budget} tokens; give a greater budget, or use the strategy "
            "HYBRID, which cuts a node that is too long."
        )
    elif not present and asked.outdated:
        asked.warnings.append(_outdated(f"{asked.outdated} nodes were found"))
    elif not present:
        asked.warnings.append("Nothing was found. Ask in other words, or with fewer conditions.")
    answer = pb.RecallResponse(
        nodes=taken,
        text="\n\n".join(blocks),
        tokens_used=sum(one.tokens for one in taken),
        token_budget=asked.budget,
    )
    return answer, dropped


def _block(result: NodeResult, former: str) -> str:
    return with_id(result.version.entry_id, titled(result.title, result.text), result.remark, former)


def _former_of(result: NodeResult, asked: Question) -> str:
    """Returns what a node said in the past that is asked for, a line for each text."""
    return lines_of(text.message() for text in asked.past.of(result.former)) if asked.past else ""


def as_asked(text: str, node: pb.RecalledNode, recalled: pb.RecallResponse) -> str:
    """Returns a text of a recalled node for a model: with what was said before, if the question is about the past."""
    return f"{text}\n{lines_of(node.former)}" if text and node.former and ABOUT_PAST in recalled.warnings else text


def text_of(results: Sequence[NodeResult], asked: Question) -> str:
    """Returns all that a passage of some nodes says: their headings, titles and texts, and what they said before."""
    headings = dict.fromkeys(heading for result in results for heading in result.headings)
    texts = [part for one in results for part in (titled(one.title, one.text), _former_of(one, asked)) if part]
    return "\n".join([*headings, *texts])


def _outdated(found: str) -> str:
    return f"{found}, but do not hold; pass include_outdated to have them too, or another day in valid_at."


def remarks(choice: Selection, leaves: int) -> list[str]:
    """Returns the warnings about a choice."""
    if not choice.considered and choice.outdated:
        return [_outdated(f"{choice.outdated} of the {leaves} leaves here meet the conditions")]
    if not choice.considered:
        return [f"None of the {leaves} leaves here meets the conditions (archives, tags, times …); ask with fewer."]
    if not choice.leaves and choice.oversized is None:
        return ["Nothing was found. Ask in other words, or with fewer conditions."]
    return []


def about_excess(size: int, limit: int) -> str:
    """Returns the warning about trees that are too large to be cached.

    Args:
        size: Their bytes.
        limit: The most bytes that are cached.
    """
    return (
        f"The trees that were scored take {ceil(size / 2**20):,} MiB, more than the {limit / 2**20:,.0f} MiB that "
        "recall may cache, so each call reads all of them again. Raise MEMOTREE_RECALL_CACHE_BYTES, or choose fewer "
        "archives."
    )


def _about_cut(best: Chosen, asked: Question, leaves: Sequence[PackedLeaf]) -> str:
    """Returns the warning about the best leaf, which does not fit the budget as a whole."""
    found = f"The best leaf, {best.node_id}, has {best.tokens} tokens"
    if asked.covers_text:
        found += " beside its headings and its id"
    if any(leaf.node_id == best.node_id for leaf in leaves):
        why = f"more than the budget of {asked.budget}: only its best excerpt is included"
        return f"{found}, {why}. Give a greater budget, or split the node."
    if leaves:
        return f"{found}, and the budget of {asked.budget} is too small for any part of it. Give a greater budget."
    return f"The budget of {asked.budget} tokens is too small for anything. {found}. Give a greater budget."


def packed_answer(
    asked: Question,
    choice: Selection,
    chosen: Sequence[Chosen],
    node_results: Mapping[str, NodeResult],
    view: StateView,
) -> pb.RecallResponse:
    """Returns the packed leaves as passages and as one text.

    If what was said before, or headings that the budget covers, exceed it, the worst leaves make room; then the best
    one is cut.
    """
    kept = [each for each in chosen if each.node_id in node_results]
    former = {} if choice.oversized else _former_lines(kept, node_results, asked)
    names = {each.snapshot.archive_id: view.name(each.snapshot.archive_id) for each in kept}
    cut, room = (
        choice.oversized,
        asked.budget - asked.around - sum(each.tokens + asked.around for each in choice.leaves),
    )
    while True:
        leaves = [_with_former(leaf, former) for leaf in _leaves(kept, cut, room, node_results, asked)]
        text = markdown(joined(leaves), names)
        used = count_tokens(text) if asked.covers_text else sum(leaf.tokens for leaf in leaves)
        excess = used - asked.budget
        if excess <= 0:
            break
        if len(kept) > 1:
            kept = _without_worst(kept, cut, excess)
        elif former:
            former = {}
        else:
            cut, room = kept[0], leaves[0].tokens - excess
    if asked.covers_text and not leaves:
        leaves, text = _first_that_fits(chosen, cut, node_results, names, asked)
    passages = joined(leaves)
    if any(leaf.former for leaf in leaves):
        asked.warnings.append(ABOUT_PAST)
    if cut is not None:
        asked.warnings.append(_about_cut(cut, asked, leaves))
    return pb.RecallResponse(
        passages=[
            pb.Passage(
                archive_id=passage.archive_id,
                archive_name=names[passage.archive_id],
                headings=passage.headings,
                nodes=[node_results[leaf.node_id].message(leaf.tokens, leaf.text) for leaf in passage.leaves],
                text=passage.text,
                score=passage.score,
            )
            for passage in passages
        ],
        text=text,
        tokens_used=sum(leaf.tokens for passage in passages for leaf in passage.leaves),
        token_budget=asked.budget,
        leaves_considered=choice.considered,
        outdated_left_out=choice.outdated,
        warnings=asked.warnings,
    )


def _former_lines(kept: Sequence[Chosen], node_results: Mapping[str, NodeResult], asked: Question) -> dict[str, str]:
    """Returns what leaves said in the past that is asked for, by node id: the best ones, in half of the budget."""
    found, room = dict[str, str](), asked.budget // 2
    if asked.past is not None:
        for each in sorted(kept, key=lambda each: -each.score):
            lines = _former_of(node_results[each.node_id], asked)
            if lines and (cost := count_tokens(lines)) <= room:
                found[each.node_id] = lines
                room -= cost
    return found


def _with_former(leaf: PackedLeaf, former: Mapping[str, str]) -> PackedLeaf:
    lines = former.get(leaf.node_id, "")
    return replace(leaf, former=lines, tokens=leaf.tokens + count_tokens(lines)) if lines else leaf


def _leaves(
    kept: Sequence[Chosen], cut: Chosen | None, room: int, node_results: Mapping[str, NodeResult], asked: Question
) -> list[PackedLeaf]:
    """Returns the leaves with their texts; one is cut to ``room`` tokens, and left out if nothing of it fits."""
    found = [
        _excerpt(each, node_results[each.node_id], asked.text, room)
        if each is cut
        else _packed(each, node_results[each.node_id])
        for each in kept
    ]
    return [leaf for leaf in found if leaf.text]


def _without_worst(kept: Sequence[Chosen], cut: Chosen | None, tokens: int) -> list[Chosen]:
    """Leaves out the worst leaves, of at least this many tokens together; keeps the one that is cut, else the best."""
    best = cut or max(kept, key=lambda each: each.score)
    gone = set[str]()
    for each in sorted((each for each in kept if each is not best), key=lambda each: each.score):
        if tokens <= 0:
            break
        gone.add(each.node_id)
        tokens -= each.tokens + ID_TOKENS
    return [each for each in kept if each.node_id not in gone]


def _first_that_fits(
    chosen: Sequence[Chosen],
    cut: Chosen | None,
    node_results: Mapping[str, NodeResult],
    names: Mapping[str, str],
    asked: Question,
) -> tuple[list[PackedLeaf], str]:
    """Returns the best other leaf that fits the budget with its headings and id, as it is, and its text."""
    for each in sorted(chosen, key=lambda each: -each.score):
        if each is not cut and each.node_id in node_results:
            leaves = [_packed(each, node_results[each.node_id])]
            text = markdown(joined(leaves), names)
            if count_tokens(text) <= asked.budget:
                return leaves, text
    return [], ""


def dropped_node(each: Chosen, reason: pb.DropReason.ValueType) -> pb.DroppedNode:
    """Returns the message of a leaf that is not part of the answer."""
    return pb.DroppedNode(node_id=each.node_id, score=each.score, tokens=each.tokens, reason=reason)


def part_of(each: Chosen) -> ResultPart:
    """Returns the result for a chosen leaf."""
    above, below = each.snapshot.above(each.number), each.snapshot.child_count(each.number)
    return ResultPart(each.node_id, each.score, each.shares, tuple(above), child_count=below)


def _packed(each: Chosen, result: NodeResult) -> PackedLeaf:
    """Returns a chosen leaf with its text."""
    source = result.version.source
    return PackedLeaf(
        node_id=each.node_id,
        archive_id=each.snapshot.archive_id,
        place=each.number,
        score=each.score,
        tokens=each.tokens,
        text=result.text,
        title="" if result.headings[-1:] == (result.title,) else result.title,
        headings=result.headings,
        span=(int(source["start"]), int(source["end"])) if source else None,
        remark=result.remark,
        document=each.snapshot.leaf_index.document_of(each.number),
    )


def _excerpt(each: Chosen, result: NodeResult, question: str, room: int) -> PackedLeaf:
    """Returns a chosen leaf with the excerpt of its text that fits; with its title if that leaves room for half."""
    title = result.title if 2 * count_tokens(f"{result.title}:\n") <= room else ""
    text = best_stretch(result.text, question, room - (count_tokens(f"{title}:\n") if title else 0)).text
    if text.isspace() or (text != result.text and room < _LEAST_EXCERPT):
        text = ""
    whole = _packed(each, result)
    return replace(whole, text=text, title=title if text else "", tokens=count_tokens(titled(title, text)), span=None)
