"""The question of a request: what every operation that answers one refuses."""

from typing import Final

from memotree_storage.errors import InvalidInputError

MAX_QUERY_CHARS: Final = 8192


def check_question(field: str, text: str) -> None:
    """Refuse a question that is blank, too long, or has a NUL character.

    Raises:
        InvalidInputError: It is one of these.
    """
    if not text.strip():
        raise InvalidInputError.at(field, "is needed.")
    if len(text) > MAX_QUERY_CHARS:
        raise InvalidInputError.at(
            field, f"has {len(text)} characters; give at most {MAX_QUERY_CHARS}, the words that matter."
        )
    if "\x00" in text:
        raise InvalidInputError.at(field, "has a NUL character; leave it out.")
