"""The splitter of the library, in linear time.

Imported when a text is cut: the import of the library takes long.
"""

from collections.abc import Iterable

from langchain_text_splitters import RecursiveCharacterTextSplitter


class LinearSplitter(RecursiveCharacterTextSplitter):
    """The library's splitter with its last step in linear time.

    The library removes the parts of a full chunk one by one from the front of a list, so a chunk of ``n`` parts costs
    ``n²``. Chunks don't overlap here, so all parts can be removed at once. The chunks are the same.
    """

    def _merge_splits(self, splits: Iterable[str], separator: str) -> list[str]:
        merged: list[str] = []
        parts: list[str] = []
        total = 0
        for part in splits:
            if parts and total + len(part) > self._chunk_size:
                merged.append(separator.join(parts))
                parts, total = [], 0
            parts.append(part)
            total += len(part)
        if parts:
            merged.append(separator.join(parts))
        return merged
