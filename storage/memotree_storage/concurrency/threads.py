"""The threads of the store: what blocks there (Git, a disk) never waits for the threads of others, nor they for it.

``asyncio.to_thread`` has a few threads for the whole process. Long computations of other parts, such as the split of a
large document, would occupy them all, and then no commit could be written.
"""

import asyncio
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, ParamSpec, TypeVar

_THREADS: Final = 8
_executor: Final = ThreadPoolExecutor(_THREADS, thread_name_prefix="memotree-store")

P = ParamSpec("P")
T = TypeVar("T")


async def in_store_thread(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a function in a thread of the store and return its result, as ``asyncio.to_thread`` does."""
    call = partial(contextvars.copy_context().run, function, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(_executor, call)
