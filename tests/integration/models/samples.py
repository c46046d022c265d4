"""Texts, timeouts and waits that the tests of models share."""

import asyncio
from dataclasses import replace
from typing import Any, Protocol

from memotree.models.chat_answers import ContextNode
from memotree.models.gateway import Models
from memotree.models.meter import Meter, Usage
from memotree.models.model_errors import RetryPolicy

TEXT = (
    "The orchard was planted in 1931 by Ada Birch. It has forty rows of apple trees, most of them Boskoop, and a well "
    "in the middle of them. In the winter of 1963 a third of the trees froze and was planted again in spring."
)
CHINESE_TEXT = (
    "\u679c\u56ed\u5efa\u4e8e\u4e00\u4e5d\u4e09\u4e00\u5e74\uff0c\u5171\u6709\u56db\u5341\u884c\u82f9\u679c\u6811\u3002"
    * 4
)
IMPATIENT = RetryPolicy(timeout=5, attempts=4, first_wait=0.001, longest_wait=0.002, failures=3, cool_down=60)
TIRELESS = replace(IMPATIENT, failures=1000)
"""The same, which calls the endpoint again however often it failed before."""

LEAF = ContextNode("aaaa000000000001", "LEAF_CHUNK", "Ada Birch planted the orchard.", content="Ada Birch, in 1931.")
INNER = ContextNode("aaaa000000000002", "SUMMARY_NODE", "How the orchard came to be.", hint="common ancestor")


class MakeModels(Protocol):
    async def __call__(self, retry_policy: RetryPolicy = IMPATIENT, **settings: Any) -> Models: ...


def of(kind: str, meter: Meter) -> Usage:
    return next(usage for usage in meter.usage if usage.kind == kind)


async def until(condition: Any) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - the endpoint has no event for every count
            await asyncio.sleep(0.002)
