"""PostgreSQL by hand: a table of notes, one of their older texts, and the indexes that its manual advises."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import ClassVar

import psycopg

from bench.peers.program import DIMENSIONS, TOP, Note, packages, serve

_SCHEMA = f"""
create extension vector;
create table note (
    key text primary key,
    text text not null,
    vector vector({DIMENSIONS}) not null,
    since timestamptz not null default clock_timestamp(),
    words tsvector generated always as (to_tsvector('english', text)) stored
);
create index on note using gin (words);
create index on note using hnsw (vector vector_cosine_ops);
create table older (key text, text text, since timestamptz, until timestamptz, primary key (key, until));
"""
_BY_WORDS = """
select key from note, to_tsquery('english', %(words)s) query where words @@ query
order by ts_rank_cd(words, query) desc limit %(top)s
"""
_BY_VECTOR = "select key from note order by vector <=> %(vector)s::vector limit %(top)s"
_HYBRID = """
with by_words as (
    select key, row_number() over (order by ts_rank_cd(words, query) desc) as place
    from note, to_tsquery('english', %(words)s) query where words @@ query
    order by place limit 50
), by_vector as (
    select key, row_number() over () as place
    from (select key from note order by vector <=> %(vector)s::vector limit 50) nearest
)
select key from (select * from by_words union all select * from by_vector) ranked
group by key order by sum(1.0 / (60 + place)) desc limit %(top)s
"""
_VERSIONS = """
select since from older where key = %(key)s union all select since from note where key = %(key)s order by since desc
"""
_KEEP = """
insert into older (key, text, since, until)
select key, text, since, clock_timestamp() from note where key = any(%s) for update
"""
_CHANGE = "update note set text = %s, vector = %s::vector, since = clock_timestamp() where key = %s"
_AS_OF = """
select text from (
    select text, since, until from older where key = %(key)s
    union all select text, since, 'infinity' from note where key = %(key)s
) versions where since <= %(at)s and until > %(at)s
"""


class Postgres:
    """Notes in one table, their older versions in another one; words and vectors are fused by their ranks."""

    durability = "on disk (PostgreSQL with fsync)"
    lacks: ClassVar[Mapping[str, str]] = {}

    def __init__(self, _: Path, address: str) -> None:
        self._connection = psycopg.connect(address, autocommit=True)
        server = self._connection.info.server_version
        self.versions = {"PostgreSQL": f"{server // 10000}.{server % 10000}", **packages("psycopg")}
        self._connection.execute(_SCHEMA)
        self._marked: datetime | None = None

    def load(self, notes: Sequence[Note]) -> None:
        into = "copy note (key, text, vector) from stdin"
        with self._connection.transaction(), self._connection.cursor() as cursor, cursor.copy(into) as copy:
            for note in notes:
                copy.write_row((note.key, note.text, _literal(note.vector)))

    def settle(self) -> None:
        self._connection.execute("vacuum analyze")

    def mark(self) -> None:
        row = self._connection.execute("select clock_timestamp()").fetchone()
        self._marked = row[0] if row else None

    def update(self, notes: Sequence[Note]) -> None:
        with self._connection.transaction(), self._connection.cursor() as cursor:
            cursor.execute(_KEEP, ([note.key for note in notes],))
            cursor.executemany(_CHANGE, [(note.text, _literal(note.vector), note.key) for note in notes])

    def search_words(self, text: str) -> list[str]:
        return self._keys(_BY_WORDS, {"words": _any_of(text)})

    def search_vector(self, text: str, vector: Sequence[float]) -> list[str]:
        return self._keys(_BY_VECTOR, {"vector": _literal(vector)})

    def search_hybrid(self, text: str, vector: Sequence[float]) -> list[str]:
        return self._keys(_HYBRID, {"words": _any_of(text), "vector": _literal(vector)})

    def history_of_one(self, key: str) -> int:
        return len(self._connection.execute(_VERSIONS, {"key": key}).fetchall())

    def read_as_of(self, key: str) -> str:
        row = self._connection.execute(_AS_OF, {"key": key, "at": self._marked}).fetchone()
        return str(row[0]) if row else ""

    def _keys(self, query: str, given: Mapping[str, str]) -> list[str]:
        return [row[0] for row in self._connection.execute(query.encode(), {**given, "top": TOP}).fetchall()]


def _any_of(text: str) -> str:
    """A query for notes with any of the words, as the other peers understand several words."""
    return " | ".join(text.split())


def _literal(vector: Sequence[float]) -> str:
    return "[" + ",".join(f"{number:.7g}" for number in vector) + "]"


if __name__ == "__main__":
    serve(Postgres)
