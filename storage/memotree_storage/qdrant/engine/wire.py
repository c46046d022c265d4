"""Qdrant's own messages and servicers, without the client around them.

``qdrant_client.grpc`` needs nothing from its parent package, whose import takes a second (HTTP models, numpy).
"""

from typing import TYPE_CHECKING

from memotree_storage.qdrant.package import part

if TYPE_CHECKING:
    from qdrant_client import grpc as qdrant
else:
    qdrant = part("grpc")

__all__ = ["qdrant"]
