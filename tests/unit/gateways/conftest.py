"""A catalogue of tools whose calls are only read, and not made."""

from typing import Any

import pytest

from memotree.gateways.catalogue import Catalogue
from memotree.gateways.functions import LocalFunctions
from memotree.tools.builtin.services import builtin_tools
from memotree.tools.executor import Executor


class NoCaller:
    """A caller that must not be called."""

    async def call(self, *_: Any) -> Any:
        raise AssertionError

    def stream(self, *_: Any) -> Any:
        raise AssertionError


CATALOGUE = Catalogue(NoCaller(), "main")


@pytest.fixture
def catalogue() -> Catalogue:
    """A catalogue that has the functions of the server, too."""
    return Catalogue(NoCaller(), "main", LocalFunctions(builtin_tools(), Executor(), NoCaller()))
