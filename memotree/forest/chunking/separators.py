"""Where a text is best cut, from the best place to the last, as regular expressions for the splitter.

Each expression ends a piece where its match ends, so that the pieces joined are the text.
"""

from typing import Final

from langchain_text_splitters import Language, RecursiveCharacterTextSplitter

_LINE_END: Final = r"(?:\r\n|\r(?!\n)|\n)"
_PARAGRAPH: Final = rf"{_LINE_END}(?:[ \t]*{_LINE_END})+"
_SENTENCE: Final = r"(?:[。！？；]+[」』”’）】]*|[.!?][\"'”’)\]]*\s+)"  # noqa: RUF001 - the marks of Chinese
_CLAUSE: Final = r"(?:[，、：]|[,;:]\s+)"  # noqa: RUF001 - the same
_BLANK: Final = r"\s+"

WITHIN_PARAGRAPHS: Final = (_LINE_END, _SENTENCE, _CLAUSE, _BLANK)
"""For text that must be cut inside of a paragraph."""

PROSE: Final = (_PARAGRAPH, *WITHIN_PARAGRAPHS)
"""For text: paragraphs, lines, sentences, clauses, words."""

_PLAIN: Final = frozenset({"\n\n", "\n", " ", ""})
_LANGUAGES: Final = {language.value: language for language in Language}


def separators_of(language: str) -> tuple[str, ...]:
    """The separators for code of a language by its name in the splitters' library; those of prose for any other."""
    known = _LANGUAGES.get(language)
    if known is None:
        return PROSE
    try:
        given = RecursiveCharacterTextSplitter.get_separators_for_language(known)
    except ValueError:  # named by the library, and without separators
        return PROSE
    return (*(_at_line_start(separator) for separator in given if separator not in _PLAIN), *PROSE)


def _at_line_start(separator: str) -> str:
    r"""The library's ``\\nclass `` as the empty place before ``class ``: the keyword begins the next piece."""
    return f"(?<=\\n)(?={separator[1:]})" if separator.startswith("\n") else f"(?={separator})"
