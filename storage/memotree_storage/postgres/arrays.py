"""Arrays of numbers as parameters of statements."""

from collections.abc import Iterable


def integers(values: Iterable[int]) -> str:
    """Return an array as PostgreSQL writes it, for a parameter with a cast: ``%s::bigint[]``.

    psycopg looks at the elements of a list one by one, in Python, and takes ten times as long.
    """
    return f"{{{','.join(map(str, values))}}}"
