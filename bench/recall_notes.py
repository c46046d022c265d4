"""Four hundred notes that differ only in a name and a number, and questions about them."""

from itertools import product
from typing import Final

from memotree.client import changes
from memotree.client.workspace import AsyncWorkspace

_FIRST: Final = (
    *("Anna", "Boris", "Carla", "David", "Elena", "Farid", "Greta", "Hugo", "Irene", "Jonas"),
    *("Karim", "Lena", "Marco", "Nora", "Oskar", "Paula", "Quentin", "Rosa", "Stefan", "Tamara"),
)
_LAST: Final = (
    *("Adler", "Becker", "Castillo", "Dvorak", "Engel", "Fischer", "Garcia", "Hansen", "Ivanov", "Jensen"),
    *("Kowalski", "Lindgren", "Moreau", "Novak", "Okafor", "Petrov", "Quinn", "Rossi", "Schmidt", "Tanaka"),
)
_STRANGERS: Final = (
    *("Uwe Zimmermann", "Vera Yilmaz", "Walter Xu", "Yusuf Weber", "Zoe Vogel"),
    *("Birgit Ullmann", "Colin Thorpe", "Dorothy Sinclair", "Edgar Ramos", "Fiona Pratt"),
)
_EVERY: Final = 7
_AT_ONCE: Final = 100


async def write(workspace: AsyncWorkspace) -> None:
    """Write the notes."""
    names = [f"{first} {last}" for first, last in product(_FIRST, _LAST)]
    async with workspace.session(agent="bench") as session:
        archive = await session.create_archive("Phone numbers")
        notes = [
            changes.create(f"Phone number of {name}", f"0151 {1_000_000 + 7919 * number}", archive=archive.id)
            for number, name in enumerate(names)
        ]
        for start in range(0, len(notes), _AT_ONCE):
            await session.apply(notes[start : start + _AT_ONCE])
        await session.commit("Write phone numbers")


async def first_found(workspace: AsyncWorkspace) -> dict[str, int]:
    """Return for how many of the questions with an answer the best recalled note is the right one, of how many."""
    found = 0
    asked = questions()["answered"]
    for name, text in zip(_asked(), asked, strict=True):
        answer = await workspace.recall(text, token_budget=20)
        notes = [each for passage in answer.passages for each in passage.nodes]
        best = max(notes, key=lambda each: each.score, default=None)
        found += best is not None and best.node.title == f"Phone number of {name}"
    return {"asked": len(asked), "first": found}


def _asked() -> list[str]:
    return [f"{first} {last}" for first, last in product(_FIRST, _LAST)][::_EVERY]


def questions() -> dict[str, list[str]]:
    """Return questions by their kind: with an answer, and about people whose number is not there."""
    return {
        "answered": [
            (f"What is the phone number of {name}?" if number % 2 else f"How can I call {name}?")
            for number, name in enumerate(_asked())
        ],
        "unanswerable by the set": [f"What is the phone number of {name}?" for name in _STRANGERS],
    }
