"""Parts of the package ``qdrant_client`` without all of it, whose import takes half a second.

A part is loaded while an empty stand-in replaces the package; what the package would import first is then left out.
"""

import importlib
import importlib.util
import sys
from contextlib import suppress
from types import ModuleType
from typing import Any, Final

_NAME: Final = "qdrant_client"


def part(name: str) -> Any:
    """Import a module of the package that needs nothing from the package itself, such as ``grpc``.

    A later import of the package gets the real one.
    """
    if _NAME in sys.modules:
        return importlib.import_module(f"{_NAME}.{name}")
    spec = importlib.util.find_spec(_NAME)
    if spec is None or spec.submodule_search_locations is None:
        raise ModuleNotFoundError("The package qdrant-client is missing; install MemoTree with its dependencies.")
    stand_in = ModuleType(_NAME)
    stand_in.__path__ = list(spec.submodule_search_locations)
    sys.modules[_NAME] = stand_in
    try:
        return importlib.import_module(f"{_NAME}.{name}")
    finally:
        del sys.modules[_NAME]


def leave_models_unbuilt() -> None:
    """Make the package build the validators of its models at their first use, if it is not imported yet.

    Its models name classes that are defined later, so it builds all of them, hundreds, when it is imported. Pydantic
    builds such a model by itself when it is used first, and we use a dozen. Without effect on a version of the package
    that has no such function.
    """
    if _NAME in sys.modules:
        return
    with suppress(ModuleNotFoundError):
        part("_pydantic_compat").update_forward_refs = _built_at_first_use


def _built_at_first_use(_model: type, *_: Any, **__: Any) -> None:
    """Do nothing in the place of building a model."""
