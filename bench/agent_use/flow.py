"""The facts, the corrections and the questions of the day."""

from dataclasses import dataclass
from typing import Final

SERVICES: Final = ("search", "orders", "mail", "login", "export", "billing", "report", "cache", "queue", "proxy")
_KINDS: Final = (
    ("port", "The {name} service listens on port {value}.", "On which port does the {name} service listen?"),
    ("owner", "The {name} service is owned by team {value}.", "Which team owns the {name} service?"),
    ("day", "The {name} service is deployed on {value}.", "When is the {name} service deployed?"),
    ("log", "Logs of the {name} service are kept for {value} days.", "How long are logs of the {name} service kept?"),
    ("limit", "The {name} service allows {value} requests per minute.", "How many requests does {name} allow?"),
    ("language", "The {name} service is written in {value}.", "In which language is the {name} service written?"),
    ("region", "The {name} service runs in {value}.", "Where does the {name} service run?"),
    ("contact", "Call {value} when the {name} service is down.", "Who is called when the {name} service is down?"),
    ("backup", "The {name} service is backed up at {value}.", "At what time is the {name} service backed up?"),
    ("version", "The {name} service runs version {value}.", "Which version of the {name} service runs?"),
)
_WORDS: Final = {
    "owner": ("Falcon", "Heron", "Lynx", "Otter", "Raven", "Badger", "Stork", "Marten", "Finch", "Bison"),
    "day": ("Mondays", "Tuesdays", "Wednesdays", "Thursdays", "Fridays"),
    "language": ("Python", "Go", "Rust", "Java", "Kotlin", "Elixir", "Scala", "Erlang", "Swift", "Ruby"),
    "region": ("Frankfurt", "Dublin", "Oslo", "Madrid", "Warsaw", "Lisbon", "Vienna", "Prague", "Athens", "Zurich"),
    "contact": ("Nora", "Pavel", "Quentin", "Ruth", "Sami", "Tove", "Umar", "Vera", "Wim", "Yara"),
}


@dataclass(frozen=True, slots=True)
class Fact:
    """One fact, the question for it, and its value.

    Attributes:
        title: What the fact is about.
        text: The fact.
        question: The question that it answers.
        value: What a right answer contains.
    """

    title: str
    text: str
    question: str
    value: str


def facts(version: int = 0) -> list[Fact]:
    """The 100 facts; with another version, the same facts with other values."""
    found = []
    for row, name in enumerate(SERVICES):
        for column, (kind, text, question) in enumerate(_KINDS):
            value = _value(kind, row, column, version)
            title = f"{kind.capitalize()} of the {name} service"
            found.append(Fact(title, text.format(name=name, value=value), question.format(name=name), value))
    return found


def _value(kind: str, row: int, column: int, version: int) -> str:
    if kind in _WORDS:
        words = _WORDS[kind]
        return words[(row + 3 * version) % len(words)]
    number = 10 * row + column + 100 * version
    shapes = {
        "port": f"{8000 + number}",
        "log": f"{30 + number}",
        "limit": f"{1000 + 7 * number}",
        "backup": f"{(number // 60) % 24:02}:{number % 60:02}",
        "version": f"{1 + version}.{row}.{column + 11}",
    }
    return shapes[kind]


def corrected() -> list[int]:
    """The indexes of the facts that change."""
    return list(range(0, 100, 5))


def forgotten() -> list[int]:
    """The indexes of the facts that are forgotten; none of them changes."""
    return list(range(2, 100, 10))
