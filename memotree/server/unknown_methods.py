"""The errors for a service or method that the server does not have, with the nearest one that it has."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import cache
from typing import Final

from memotree.error_mapping import UnimplementedError
from memotree.server.binding import contract

_MOST_CHARACTERS: Final = 100
"""A longer name is cut; no known one is as long, so it has no nearest name."""

_WAY_ON: Final = "Reflection lists what it has; the contract in proto/ describes it."


class UnknownServiceError(UnimplementedError):
    """The server has no gRPC service of that name."""

    reason = "UNKNOWN_SERVICE"

    def __init__(self, service: str, meant: str) -> None:
        super().__init__(f"This server has no service {_shown(service)}.{_question(meant)} {_WAY_ON}")


class UnknownMethodError(UnimplementedError):
    """The gRPC service has no method of that name."""

    reason = "UNKNOWN_METHOD"

    def __init__(self, service: str, name: str, meant: str) -> None:
        super().__init__(f"{service} has no method {_shown(name)}.{_question(meant)} {_WAY_ON}")


def unknown(path: str) -> UnimplementedError:
    """The error for a call of a path, such as ``/memotree.v1.NodeService/Forget``, that no handler answers."""
    service, _, name = path.removeprefix("/").rpartition("/")
    methods = _methods()
    if service in methods:
        return UnknownMethodError(service, name, _nearest_method(service, name))
    near = _nearest(service, methods)
    same = next((each for each in methods.get(near, ()) if each.lower() == name.lower()), "")
    return UnknownServiceError(service, f"{near}/{same}" if same else near)


@cache
def _methods() -> Mapping[str, tuple[str, ...]]:
    """The names of the methods of each service of the contract, by the full name of the service."""
    return {each.full_name: tuple(method.name for method in each.methods) for each in contract().values()}


def _nearest_method(service: str, name: str) -> str:
    """The method that was probably meant: of the same name in another service, else one with a similar name."""
    methods = _methods()
    for each, names in methods.items():
        for other in names:
            if other.lower() == name.lower():
                return f"{each}/{other}"
    near = _nearest(name, methods[service])
    return f"{service}/{near}" if near else ""


def _nearest(name: str, known: Iterable[str]) -> str:
    """The known name that is most similar, whatever the case of its letters; empty if none is similar."""
    if len(name) > _MOST_CHARACTERS:
        return ""
    by_lower = {each.lower(): each for each in known}
    found = get_close_matches(name.lower(), by_lower, n=1)
    return by_lower[found[0]] if found else ""


def _shown(name: str) -> str:
    return repr(name if len(name) <= _MOST_CHARACTERS else f"{name[:_MOST_CHARACTERS]}…")


def _question(meant: str) -> str:
    return f" Did you mean {meant}?" if meant else ""
