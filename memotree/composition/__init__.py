"""The composition root: builds the stores and operations from the settings. No other room does.

Whoever starts a server, or needs a store without one, imports from here.
"""

from memotree.composition.observers import changing_methods, observed_methods
from memotree.composition.root import compose, service_limits
from memotree.composition.stores import open_store, open_store_and_models, signer_of

__all__ = [
    "changing_methods",
    "compose",
    "observed_methods",
    "open_store",
    "open_store_and_models",
    "service_limits",
    "signer_of",
]
