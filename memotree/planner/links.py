"""The nodes that arguments name, and the relations between nodes of a plan."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from memotree_storage.errors import FieldViolation, InvalidInputError
from memotree_storage.postgres import tree
from memotree_storage.postgres.rows import Version
from memotree_storage.postgres.tree import Snapshot

from memotree.memory.naming import id_named
from memotree.planner import model
from memotree.request import lookup


class Faults:
    """Collects the faults of the arguments of a call, so that all are told at once."""

    def __init__(self) -> None:
        self._found: list[FieldViolation] = []

    def add(self, field: str, description: str) -> None:
        """Add a fault."""
        self._found.append(FieldViolation(field, description))

    @contextmanager
    def of_node(self, names: Mapping[str, str]) -> Iterator[None]:
        """Collect the faults that the block raises about a node.

        Args:
            names: The argument for each field of a node that has another name; for an attribute its name.
        """
        try:
            yield
        except InvalidInputError as error:
            self._found += [replace(fault, field=_renamed(fault.field, names)) for fault in error.violations]
            if not error.violations:
                raise

    def check(self) -> None:
        """Refuse the call if there are any.

        Raises:
            InvalidInputError: With every fault.
        """
        if self._found:
            told = "; ".join(f"{fault.field}: {fault.description.rstrip('.')}" for fault in self._found)
            raise InvalidInputError(f"{told}.", self._found)


def _renamed(field: str, names: Mapping[str, str]) -> str:
    for name, argument in names.items():
        for known in (name, f"attributes[{name!r}]"):
            if field == known or field.startswith(f"{known}["):
                return argument + field.removeprefix(known)
    return field


async def named(snapshot: Snapshot, given: str, kind: str, field: str, faults: Faults) -> Version | None:
    """The alive node of a type that an id, the beginning of one, a title or a path names.

    Returns:
        The node; ``None`` if it has another type, which is added to the faults.

    Raises:
        NodeNotFoundError: It is not alive.
        NoNodeNamedError: No node has this title or path.
        AmbiguousNodeNameError: Several have it.
    """
    version = await lookup.node(snapshot, await id_named(snapshot, given, field), field)
    if version.type != kind:
        faults.add(field, f"is {version.entry_id} ({version.title}), a node of the type {version.type}, not {kind}.")
        return None
    return version


async def needed(snapshot: Snapshot, given: str, kind: str, field: str) -> Version:
    """The same for the node that a call is about.

    Raises:
        InvalidInputError: It has another type.
    """
    faults = Faults()
    version = await named(snapshot, given, kind, field, faults)
    faults.check()
    assert version is not None  # noqa: S101 - for the type checker: a missing one is a fault
    return version


async def several(snapshot: Snapshot, given: Sequence[str], kind: str, field: str, faults: Faults) -> list[str]:
    """The ids of the nodes of a type that arguments name, each once."""
    found = [await named(snapshot, each, kind, f"{field}[{number}]", faults) for number, each in enumerate(given)]
    return list(dict.fromkeys(version.entry_id for version in found if version is not None))


async def goals_of(snapshot: Snapshot, project: Version) -> list[str]:
    """The ids of the alive goals that a project is part of."""
    ends = await tree.versions(snapshot, model.targets(project.relations, model.PART_OF))
    return sorted(entry_id for entry_id, end in ends.items() if end.type == model.GOAL and not end.is_archive)
