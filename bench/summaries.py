"""Measures briefs and summaries made from the text's own words, without a model."""

import time
from itertools import pairwise
from pydoc_data.topics import topics

from bench.table import Row
from memotree.models.extractive import brief_of, digest_of, summary_of

_MARKUP = "The *quick* `fox` of __init__ and **bold** [link](http://a.b/c_d) <b>ran</b>.\n\n- one\n- [ ] two\n\n"


def run() -> list[Row]:
    """Measure the summaries of 10,000 leaves of 1 KB and of their parents, and the brief of 2 KB of markup."""
    text = "\n".join(topics.values())
    leaves = [text[start : start + 1_000] for start in range(0, 200_000, 1_000)]
    trees = min(_seconds(leaves) for _ in range(3)) / len(leaves) * 10_000
    times = []
    for number in range(20):
        # Another text each time, since the sentences of the last ones are kept.
        dense = f"{number:02} {_MARKUP * 30}"[:2048]
        begun = time.process_time()
        brief_of(str(number), dense)
        times.append(time.process_time() - begun)
    brief = min(times) * 1000
    return [
        Row("summaries of 10,000 leaves and parents", trees, "s", budget="≤ 10 s", met=trees <= 10),
        Row("brief of 2 KB of dense Markdown", brief, "ms", budget="≤ 2 ms", met=brief <= 2),
    ]


def _seconds(leaves: list[str]) -> float:
    begun = time.process_time()
    summaries = [summary_of("", leaf) for leaf in leaves]
    for left, right in pairwise(summaries):
        digest_of([left, right])
    return time.process_time() - begun
