"""Objects of JSON that have each name once; Python by itself takes the last value of a name that stands there twice."""

from typing import Any

from memotree.request.nearest_names import shown


class RepeatedNameError(ValueError):
    """An object has a name twice; the message is the end of a sentence that begins with the name of the text."""

    def __init__(self, name: str) -> None:
        super().__init__(f"has the name {shown(name)!r} twice in one object; give it once.")


def distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object with these names and values; the ``object_pairs_hook`` of ``json.loads``.

    Raises:
        RepeatedNameError: A name stands there twice.
    """
    found = dict(pairs)
    if len(found) < len(pairs):
        before = set()
        for name, _ in pairs:
            if name in before:
                raise RepeatedNameError(name)
            before.add(name)
    return found
