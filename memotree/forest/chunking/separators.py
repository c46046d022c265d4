"""The separators at which the splitter cuts a text, as regular expressions, the preferred ones first.

A piece ends where the match of a separator ends, so joining the pieces gives the text.
"""

from typing import Final

_LINE_END: Final = r"(?:\r\n|\r(?!\n)|\n)"
_PARAGRAPH: Final = rf"{_LINE_END}(?:[ \t]*{_LINE_END})+"
_SENTENCE: Final = r"(?:[。！？；]+[」』”’）】]*|[.!?\u061f\u06d4\u0964\u0965][\"'”’)\]]*\s+)"  # noqa: RUF001 - the marks of Chinese
_CLAUSE: Final = r"(?:[，、：]|[,;:]\s+)"  # noqa: RUF001 - the same
_BLANK: Final = r"\s+"

WITHIN_PARAGRAPHS: Final = (_LINE_END, _SENTENCE, _CLAUSE, _BLANK)
"""For text that must be cut within a paragraph: lines, sentences, clauses, words."""

PROSE: Final = (_PARAGRAPH, *WITHIN_PARAGRAPHS)
"""For text: paragraphs, lines, sentences, clauses, words."""

_PLAIN: Final = frozenset({"\n\n", "\n", " ", ""})


def separators_of(language: str) -> tuple[str, ...]:
    """Returns the separators for code in a language, by its name in the splitters' library; else those of prose."""
    if not language:
        return PROSE
    # Imported when code is cut: the library takes longer than most starts.
    from langchain_text_splitters import Language, RecursiveCharacterTextSplitter  # noqa: PLC0415 - see above

    try:
        given = RecursiveCharacterTextSplitter.get_separators_for_language(Language(language))
    except ValueError:  # the library does not know the language, or has no separators for it
        return PROSE
    return (*(_at_line_start(separator) for separator in given if separator not in _PLAIN), *PROSE)


def _at_line_start(separator: str) -> str:
    r"""Turns the library's ``\\nclass `` into the empty match before ``class ``: the keyword begins the next piece."""
    return f"(?<=\\n)(?={separator[1:]})" if separator.startswith("\n") else f"(?={separator})"
