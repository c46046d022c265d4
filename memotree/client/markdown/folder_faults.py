"""What is wrong with a folder of Markdown: every fault, by file and line, in one error."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from memotree.client.errors import InvalidArgumentError, Violation

_MOST_TOLD: Final = 20


@dataclass(frozen=True, slots=True)
class FileFault:
    """A fault of one file; ``line`` counts from 1, and is 0 if the fault is of the whole file."""

    file: str
    description: str
    line: int = 0

    @property
    def place(self) -> str:
        """The file, and the line if there is one."""
        return f"{self.file}:{self.line}" if self.line else self.file


class MarkdownFolderError(InvalidArgumentError):
    """A folder of Markdown cannot be read as it is; nothing was changed. ``violations`` has the files and lines."""

    def __init__(self, faults: Sequence[FileFault], reason: str = "MARKDOWN_FOLDER_INVALID") -> None:
        told = [f"{each.place}: {each.description}" for each in faults[:_MOST_TOLD]]
        if len(faults) > _MOST_TOLD:
            told.append(f"and {len(faults) - _MOST_TOLD:,} more")
        super().__init__(
            f"Nothing was imported. {'; '.join(told)}.",
            reason=reason,
            violations=tuple(Violation(each.place, each.description) for each in faults[:_MOST_TOLD]),
        )


class FileFaultError(ValueError):
    """One file cannot be read; whoever reads the folder collects these."""

    def __init__(self, description: str, line: int = 0) -> None:
        super().__init__(description)
        self.description = description
        self.line = line
