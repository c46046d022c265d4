"""Finds the kind of a document: by its media type, else by its name, else by its content."""

import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from memotree.forest.documents.document import UnreadableDocumentError, quoted
from memotree.forest.documents.man_start import looks_like_man_page
from memotree.forest.documents.packed import ZIP_MAGIC

TEXT: Final = "text/plain"
MARKDOWN: Final = "text/markdown"
HTML: Final = "text/html"
PDF: Final = "application/pdf"
JSON: Final = "application/json"
NDJSON: Final = "application/x-ndjson"
CSV: Final = "text/csv"
TSV: Final = "text/tab-separated-values"
MAN: Final = "text/troff"
NOTEBOOK: Final = "application/x-ipynb+json"
DOCX: Final = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
EPUB: Final = "application/epub+zip"
CONVERSATION: Final = "application/vnd.memotree.conversation"

_PARAMETER: Final = re.compile(r";\s*charset\s*=\s*\"?([\w.:-]{1,40})", re.IGNORECASE)
_ALIASES: Final = {
    "text/x-markdown": MARKDOWN,
    "application/xhtml+xml": HTML,
    "application/x-pdf": PDF,
    "application/ndjson": NDJSON,
    "application/jsonl": NDJSON,
    "application/x-jsonlines": NDJSON,
    "text/json": JSON,
    "text/x-troff": MAN,
    "application/x-troff": MAN,
    "application/x-troff-man": MAN,
    "text/x-troff-man": MAN,
}
_SUFFIXES: Final = {
    "md": MARKDOWN,
    "markdown": MARKDOWN,
    "mdown": MARKDOWN,
    "mkd": MARKDOWN,
    "mdx": MARKDOWN,
    "html": HTML,
    "htm": HTML,
    "xhtml": HTML,
    "pdf": PDF,
    "json": JSON,
    "ipynb": NOTEBOOK,
    "docx": DOCX,
    "docm": DOCX,
    "epub": EPUB,
    "jsonl": NDJSON,
    "ndjson": NDJSON,
    "txt": TEXT,
    "text": TEXT,
    "log": TEXT,
    "csv": CSV,
    "tsv": TSV,
}
# The language as the splitters' library names it: by file suffix here, by the part after "text/x-" below.
_LANGUAGES: Final = {
    "c": "c",
    "cc": "cpp",
    "cpp": "cpp",
    "cxx": "cpp",
    "h": "cpp",
    "hpp": "cpp",
    "cs": "csharp",
    "ex": "elixir",
    "exs": "elixir",
    "go": "go",
    "hs": "haskell",
    "java": "java",
    "js": "js",
    "jsx": "js",
    "mjs": "js",
    "cjs": "js",
    "kt": "kotlin",
    "kts": "kotlin",
    "lua": "lua",
    "php": "php",
    "pl": "perl",
    "pm": "perl",
    "proto": "proto",
    "ps1": "powershell",
    "py": "python",
    "pyi": "python",
    "r": "r",
    "rb": "ruby",
    "rs": "rust",
    "rst": "rst",
    "scala": "scala",
    "sol": "sol",
    "swift": "swift",
    "tex": "latex",
    "ts": "ts",
    "tsx": "ts",
}
_LANGUAGE_TYPES: Final = {
    "c": "c",
    "c++": "cpp",
    "c++src": "cpp",
    "csrc": "c",
    "csharp": "csharp",
    "elixir": "elixir",
    "go": "go",
    "golang": "go",
    "haskell": "haskell",
    "java": "java",
    "java-source": "java",
    "javascript": "js",
    "typescript": "ts",
    "kotlin": "kotlin",
    "lua": "lua",
    "php": "php",
    "perl": "perl",
    "protobuf": "proto",
    "python": "python",
    "python3": "python",
    "r": "r",
    "rst": "rst",
    "ruby": "ruby",
    "rust": "rust",
    "rustsrc": "rust",
    "scala": "scala",
    "solidity": "sol",
    "swift": "swift",
    "tex": "latex",
    "latex": "latex",
}
_NOT_TEXT: Final = ("image/", "audio/", "video/", "font/", "application/zip", "application/vnd.", "application/msword")
_SECTION_OF_MANUAL: Final = re.compile(r"(?:[1-9][a-z]{0,8}|man|mdoc|roff)")
"""The suffix of a man page."""
_OTHER_ARCHIVES: Final = (".zip", ".jar", ".whl", ".xlsx", ".pptx", ".odt", ".apk")
_HTML_START: Final = re.compile(
    rb"\s*(?:<\?xml[^>]{0,200}>\s*)?(?:<!--.{0,2000}?-->\s*)*<(?:!doctype\s+html|html\b)", re.IGNORECASE | re.DOTALL
)


class UnsupportedMediaTypeError(UnreadableDocumentError):
    """MemoTree cannot read documents of this media type."""

    reason = "UNSUPPORTED_MEDIA_TYPE"

    def __init__(self, name: str, media_type: str) -> None:
        super().__init__(
            f"{quoted(name)} has the media type {media_type[:100]!r}, which is not supported; export it as text,"
            " Markdown, HTML or PDF and ingest that."
        )


@dataclass(frozen=True, slots=True)
class Kind:
    """The kind of a document.

    Attributes:
        media_type: One of the constants of this module, or ``text/x-…`` for code; ``""`` if the whole text must be
            looked at to tell plain text from Markdown.
        language: The programming language, or ``""``.
        encoding: The encoding that the media type names, or ``""``.
        declared: Whether the sender's media type decided, and not the name or the content.
    """

    media_type: str
    language: str = ""
    encoding: str = ""
    declared: bool = False


def kind_of(data: bytes, *, media_type: str, name: str) -> Kind:
    """Returns the kind of a document.

    Args:
        data: Its first bytes: 4096, or all if there are fewer.
        media_type: The media type that the sender gave, with or without parameters; ``""`` and
            ``application/octet-stream`` are ignored.
        name: A file name, or ``""``.

    Raises:
        UnsupportedMediaTypeError: If the media type is not a kind of text.
    """
    named = media_type.partition(";")[0].strip().lower()
    parameter = _PARAMETER.search(media_type)
    encoding = parameter[1] if parameter else ""
    if named not in {"", "application/octet-stream", "binary/octet-stream"}:
        return _by_media_type(named, encoding, name)
    if data[:1024].lstrip().startswith(b"%PDF-"):  # no other kind begins like this, whatever the file is called
        return Kind(PDF)
    if data.startswith(ZIP_MAGIC) and (packed := _packed(data, name)):
        return Kind(packed)
    suffix = PurePosixPath(name.replace("\\", "/")).suffix.lower().removeprefix(".")
    if suffix in _LANGUAGES:
        return Kind(f"text/x-{_LANGUAGES[suffix]}", _LANGUAGES[suffix], encoding)
    if suffix in _SUFFIXES:
        return Kind(_SUFFIXES[suffix], "", encoding)
    return Kind(_by_content(data, suffix), "", encoding)


def _packed(data: bytes, name: str) -> str:
    if b"mimetypeapplication/epub+zip" in data[:100]:
        return EPUB
    return DOCX if b"word/" in data and not name.lower().endswith(_OTHER_ARCHIVES) else ""


def _by_content(data: bytes, suffix: str) -> str:
    if looks_like_man_page(data, has_section=_SECTION_OF_MANUAL.fullmatch(suffix) is not None):
        return MAN
    if _HTML_START.match(data[:4096].removeprefix(b"\xef\xbb\xbf")):
        return HTML
    return ""


def _by_media_type(named: str, encoding: str, name: str) -> Kind:
    media_type = _ALIASES.get(named, named)
    if media_type in {TEXT, MARKDOWN, HTML, PDF, JSON, NDJSON, MAN, NOTEBOOK, DOCX, EPUB, CONVERSATION}:
        return Kind(media_type, "", encoding, declared=True)
    if media_type.startswith(_NOT_TEXT):
        raise UnsupportedMediaTypeError(name, media_type)
    language = _LANGUAGE_TYPES.get(media_type.partition("/")[2].removeprefix("x-"), "")
    if language:
        return Kind(f"text/x-{language}", language, encoding, declared=True)
    return Kind(media_type if media_type.startswith("text/") else TEXT, "", encoding, declared=True)
