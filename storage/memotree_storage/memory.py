"""How a process gives memory back to the system."""

import ctypes
import sys
from contextlib import suppress
from typing import Final

_ARENAS: Final = 2
_MAP_FROM: Final = 4 << 20
_KEEP_AT_MOST: Final = 4 << 20

# Numbers of mallopt(3).
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8


def return_what_is_free() -> None:
    """Return at once what the C library of Linux (glibc) keeps, also between blocks that are in use."""
    if sys.platform.startswith("linux"):
        with suppress(AttributeError):  # another C library has no such function
            ctypes.CDLL(None).malloc_trim(0)


def return_freed_memory() -> None:
    """Make the C library of Linux (glibc) return freed memory; call it before the process starts threads.

    By itself it has up to eight areas per processor, each of which keeps what it had to hold at most, and it keeps more
    in each the larger the blocks are that were freed.
    """
    if not sys.platform.startswith("linux"):
        return
    with suppress(AttributeError):  # another C library has no such function
        adjust = ctypes.CDLL(None).mallopt
        adjust(_M_ARENA_MAX, _ARENAS)
        adjust(_M_MMAP_THRESHOLD, _MAP_FROM)
        adjust(_M_TRIM_THRESHOLD, _KEEP_AT_MOST)
