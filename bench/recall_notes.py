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


def questions() -> dict[str, list[str]]:
    """Return questions by their kind: with an answer, and about people whose number is not there."""
    asked = [f"{first} {last}" for first, last in product(_FIRST, _LAST)][::_EVERY]
    return {
        "answered": [
            (f"What is the phone number of {name}?" if number % 2 else f"How can I call {name}?")
            for number, name in enumerate(asked)
        ],
        "unanswerable by the set": [f"What is the phone number of {name}?" for name in _STRANGERS],
    }
