"""Compares the document frequencies with Git: all mirrored texts, except those still to be counted in the outbox."""

from collections import Counter
from heapq import nsmallest
from typing import Any, Final

from memotree_storage.concurrency.threads import in_store_thread
from memotree_storage.index.frequencies import ALL_DOCUMENTS, count_node
from memotree_storage.model.node import Node
from memotree_storage.postgres.database import Connection
from memotree_storage.verify.report import Difference, in_postgres

_PAGE: Final = 5000
"""Rows that are compared before other calls get to run."""

_MOST_NAMED: Final = 10
"""Wrong counts that are reported individually; the rest is reported as a number, since one lost version causes
hundreds."""

_FIRST: Final = -(1 << 63)

_WAITING: Final = """
  select o.outbox_id, c.commit_id, v.entry_id
    from mirror.outbox o
    join mirror.version v using (version_id)
    join mirror.commit c on c.line_id = v.line_id and c.seq = v.from_seq
   where o.workspace_id = %(workspace)s and not o.applied and not o.changed and not o.counted
     and o.outbox_id > %(after)s order by o.outbox_id limit %(limit)s"""

_TERMS: Final = """
  select term, documents from mirror.term where workspace_id = %(workspace)s and term > %(after)s
   order by term limit %(limit)s"""


class FrequencyCheck:
    """Compares the counts of a workspace with the texts that `count` receives, both from one snapshot."""

    def __init__(self, conn: Connection, workspace_id: str) -> None:
        self._conn = conn
        self._workspace_id = workspace_id
        self._should: Counter[int] = Counter()
        self._waiting: set[tuple[str, str]] = set()

    async def begin(self) -> None:
        """Read which versions are still waiting in the outbox to be counted."""
        after = 0
        while rows := await self._page(_WAITING, after):
            self._waiting.update((commit_id, entry_id) for _, commit_id, entry_id in rows)
            after = rows[-1][0]

    def count(self, commit_id: str, node: Node) -> None:
        """Count a node that a mirrored commit writes, unless its version is still waiting."""
        if (commit_id, node.id) not in self._waiting:
            count_node(self._should, node)

    async def run(self) -> list[Difference]:
        """Return the wrong counts after all texts were counted; the first few individually."""
        found: list[Difference] = []
        wrong, after = 0, _FIRST
        while rows := await self._page(_TERMS, after):
            for term, documents in rows:
                if documents == (should := self._should.pop(term, 0)):
                    continue
                wrong += 1
                if len(found) < _MOST_NAMED:
                    found.append(_differs(term, documents, should))
            after = rows[-1][0]
        wrong += len(self._should)
        missing = await in_store_thread(nsmallest, _MOST_NAMED - len(found), self._should)
        found += [_differs(term, 0, self._should[term]) for term in missing]
        if wrong > len(found):
            found.append(in_postgres("term", f"{wrong - len(found)} more terms are counted wrongly."))
        return found

    async def _page(self, statement: str, after: int) -> list[tuple[Any, ...]]:
        cursor = await self._conn.execute(statement, {"workspace": self._workspace_id, "after": after, "limit": _PAGE})
        return await cursor.fetchall()


def _differs(term: int, there: int, should: int) -> Difference:
    if term == ALL_DOCUMENTS:
        sentence = f"The search counts {there} versions of nodes in this workspace, but Git has {should}."
    else:
        sentence = f"The search counts {there} versions that have the term {term}, but Git has {should}."
    return in_postgres("term", sentence)
