"""Encoding and decoding of node files."""

import time

from memotree_storage.model.codec import decode_entry, encode_entry
from memotree_storage.model.node import Node
from memotree_storage.model.paths import entry_path

from bench.table import Row
from bench.worlds import Text, forest


def run() -> list[Row]:
    """Measure files of about 2 KB per second, in both directions."""
    nodes = [entry for entry in forest(2_000, Text()) if isinstance(entry, Node)]
    begun = time.process_time()
    files = [encode_entry(node) for node in nodes]
    encodes = len(nodes) / (time.process_time() - begun)
    begun = time.process_time()
    for node, data in zip(nodes, files, strict=True):
        decode_entry(entry_path(node), data)
    decodes = len(nodes) / (time.process_time() - begun)
    return [
        Row("codec: encodes", encodes, "/s", budget="≥ 10,000 a second", met=encodes >= 10_000),
        Row("codec: decodes", decodes, "/s", budget="≥ 5,000 a second", met=decodes >= 5_000),
    ]
