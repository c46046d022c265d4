"""Qdrant's own messages and servicers, without the client around them.

``qdrant_client.grpc`` needs nothing from its parent package, whose import takes a second (HTTP models, numpy). So an
empty stand-in replaces the parent package while ``grpc`` is loaded.
"""

import importlib
import importlib.util
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from qdrant_client import grpc as qdrant


def _load() -> Any:
    if "qdrant_client" in sys.modules:
        return importlib.import_module("qdrant_client.grpc")
    spec = importlib.util.find_spec("qdrant_client")
    if spec is None or spec.submodule_search_locations is None:
        raise ModuleNotFoundError("The package qdrant-client is missing; install MemoTree with its dependencies.")
    stand_in = ModuleType("qdrant_client")
    stand_in.__path__ = list(spec.submodule_search_locations)
    sys.modules["qdrant_client"] = stand_in
    try:
        return importlib.import_module("qdrant_client.grpc")
    finally:
        del sys.modules["qdrant_client"]  # a later import of the client gets the real package


if not TYPE_CHECKING:
    qdrant = _load()

__all__ = ["qdrant"]
