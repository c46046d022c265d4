"""How much a fuzz test tries: few fixed examples in `make test`, as many random ones as one wants in `make fuzz`."""

import os
from typing import Final

from hypothesis import HealthCheck, Phase, settings

TIMES: Final = int(os.environ.get("MEMOTREE_TEST_FUZZ", "0"))
"""How many times the usual number of examples to try, from random seeds; 0: the usual ones, which never change."""


def effort(examples: int, *, shrink: bool = True) -> settings:
    """Settings of a fuzz test.

    Args:
        examples: Their number in `make test`.
        shrink: Whether a failing example is made smaller. Where each step takes a call of a server, it is not.
    """
    return settings(
        max_examples=examples * (TIMES or 1),
        derandomize=not TIMES,
        database=None,
        deadline=None,
        phases=[phase for phase in Phase if shrink or phase is not Phase.shrink],
        suppress_health_check=list(HealthCheck),
        print_blob=bool(TIMES),
    )
