"""Names of files and folders from titles: allowed on Windows, macOS and Linux, and in the links of Obsidian and GitHub.

A name is made from the title and, where others in the folder have the same, from the id; so the same tree always gets
the same names. Names that differ only in case count as the same, since Windows and macOS do not tell them apart.
"""

import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Final

SUFFIX: Final = ".md"

_UNTITLED: Final = "untitled"
_HYPHENED: Final = re.compile(r"[/\\|]+")
_DROPPED: Final = re.compile('[<>:"?*#^\\[\\]\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+')
_SPACES: Final = re.compile(r"\s+")
_JOINERS: Final = "\u200c\u200d"
_DEVICE: Final = re.compile(
    r"(?:con|prn|aux|nul|conin\$|conout\$|(?:com|lpt)[0-9\u00b9\u00b2\u00b3])(?=\.|$)", re.IGNORECASE
)
_WIDTHS: Final = ((6, 80), (16, 32))
"""The most bytes of a name down to a depth; deeper names have `_NARROW`. A path at the greatest depth (128) then has
less than 3,600 bytes, of 4,096 that Linux allows."""
_NARROW: Final = 12
_SHORT_ID: Final = 6
_MOST_CHARACTERS: Final = 500  # of a title; a name of a file has at most 255


def width_at(depth: int) -> int:
    """The most bytes of a name at a depth below its archive, without what tells it from others of the same title."""
    return next((width for most, width in _WIDTHS if depth < most), _NARROW)


def file_name(title: str, width: int = 80) -> str:
    """The name of a title, without `SUFFIX`: at most ``width`` bytes of UTF-8, cut between words if it can be."""
    text = composed(title)
    text = _DROPPED.sub(" ", _HYPHENED.sub("-", text))
    text = "".join(
        character for character in text if character in _JOINERS or unicodedata.category(character) not in {"Cf", "Co"}
    )
    text = _trimmed(_cut(_trimmed(_SPACES.sub(" ", text)), width)) or _UNTITLED
    return f"{text[:3]}_{text[3:]}" if _DEVICE.match(text) else text


def composed(text: str) -> str:
    """The beginning of a title or name, in normal form C: some file systems give names back decomposed.

    It is cut, since a normal form takes the square of the number of marks in a row.
    """
    return unicodedata.normalize("NFC", text[:_MOST_CHARACTERS])


def _trimmed(text: str) -> str:
    """The text without blanks and dots at its ends: Windows drops them at the end, and a first dot hides a file."""
    return text.strip(" .")


def _cut(text: str, width: int) -> str:
    data = text.encode()
    if len(data) <= width:
        return text
    kept = data[:width].decode(errors="ignore")
    following = text[len(kept)]
    while kept and (unicodedata.combining(following) or following in _JOINERS or following == "\ufe0f"):
        kept, following = kept[:-1], kept[-1]
    words, space, _ = kept.rpartition(" ")
    return words if space and len(words) * 2 > len(kept) and following != " " else kept


def same_name_key(name: str) -> str:
    """What two names have in common if a file system may take them for one."""
    return composed(unicodedata.normalize("NFKC", name[:_MOST_CHARACTERS]).casefold())


def names_in_folder(titles: Mapping[str, str], width: int, taken: Iterable[str] = ()) -> dict[str, str]:
    """The name of each entry of one folder, by its id.

    An entry may have a file (its name with `SUFFIX`) and a folder (its name), so neither may be the name of another's.
    Entries of the same name all get the beginning of their id after it.

    Args:
        titles: The titles by id.
        width: The most bytes of a name, before an id is added.
        taken: Names that the folder has already.
    """
    used = {same_name_key(name) for name in taken}
    alike: dict[str, list[str]] = {}
    plain = {entry_id: file_name(title, width) for entry_id, title in titles.items()}
    for entry_id in sorted(titles):
        alike.setdefault(same_name_key(plain[entry_id]), []).append(entry_id)
    names: dict[str, str] = {}
    several = [entry_id for ids in alike.values() if len(ids) > 1 for entry_id in ids]
    alone = [ids[0] for ids in alike.values() if len(ids) == 1]
    for entry_id in alone:
        name = plain[entry_id]
        if _is_free(name, used):
            names[entry_id] = name
            _take(name, used)
        else:
            several.append(entry_id)
    for entry_id in sorted(several):
        endings = (entry_id[:_SHORT_ID], entry_id, *(f"{entry_id} {number}" for number in range(2, len(titles) + 3)))
        name = next(each for ending in endings if _is_free(each := f"{plain[entry_id]} ({ending})", used))
        names[entry_id] = name
        _take(name, used)
    return names


def _is_free(name: str, used: set[str]) -> bool:
    return used.isdisjoint({same_name_key(name), same_name_key(name + SUFFIX)})


def _take(name: str, used: set[str]) -> None:
    used.update({same_name_key(name), same_name_key(name + SUFFIX)})
