"""A body that git sends packed is unpacked in small parts and up to a limit."""

import gzip

import pytest
from starlette.requests import Request
from starlette.types import Message

from memotree.gateways.git_http import BodyRefusedError, unpacked

MOST = 1 << 20
PART = 1 << 16


def request(body: bytes, encoding: str) -> Request:
    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    return Request({"type": "http", "method": "POST", "headers": [(b"content-encoding", encoding.encode())]}, receive)


async def sizes(given: Request, parts: list[int]) -> None:
    async for part in unpacked(given, MOST):
        parts.append(len(part))  # noqa: PERF401 - the parts before a refusal count too


async def test_a_packed_body_is_the_same_unpacked() -> None:
    body = bytes(range(256)) * 2_000
    parts = [part async for part in unpacked(request(gzip.compress(body), "gzip"), MOST)]
    assert b"".join(parts) == body
    assert max(map(len, parts)) <= PART


async def test_a_small_body_that_unpacks_to_a_large_one_ends_at_the_limit() -> None:
    parts: list[int] = []
    with pytest.raises(BodyRefusedError) as refused:
        await sizes(request(gzip.compress(bytes(64 * MOST)), "gzip"), parts)
    assert refused.value.status == 413
    assert max(parts) <= PART
    assert sum(parts) <= MOST


async def test_a_body_that_is_not_packed_has_the_same_limit() -> None:
    with pytest.raises(BodyRefusedError):
        await sizes(request(bytes(MOST + 1), ""), [])
