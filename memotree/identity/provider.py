"""The keys with which an OpenID provider signs its tokens: fetched when they are needed, and cached.

The provider names them in its metadata (OpenID Connect Discovery 1.0). Tokens are checked here with these keys, so the
provider is asked only now and then, and not about a call.
"""

import asyncio
import json
import time
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2
import jwt
import structlog
from memotree_storage.concurrency.cancellation import cancel_and_wait

from memotree.identity.errors import ProviderUnavailableError

LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})

_FRESH_SECONDS: Final = 3600.0
"""How long keys are used before the provider is asked again."""

_OLD_SECONDS: Final = 86_400.0
"""How long keys are used while the provider does not answer."""

_PAUSE_SECONDS: Final = 30.0
"""How long the provider is not asked again about a key that it does not have, or after it did not answer."""

_STEP_SECONDS: Final = 5.0
"""How long the provider may take to connect, or to send something further."""

_ANSWER_SECONDS: Final = 10.0
"""How long it may take to send the metadata and the keys, in all."""

_MOST_BYTES: Final = 1 << 20
_MOST_KEYS: Final = 100

log = structlog.get_logger("memotree.access")


class _NoAnswerError(Exception):
    """The provider did not answer as it must; the text says why."""


class Provider:
    """An OpenID provider; belongs to one event loop.

    It is asked by one task in the background, which calls wait for and cannot end: a call that a stranger gives up must
    not keep the server from getting the keys.

    Args:
        issuer: Its URL, as its tokens name it.
    """

    def __init__(self, issuer: str) -> None:
        self.issuer = issuer
        self._keys: Mapping[str, jwt.PyJWK] = {}
        self._read_at = -_OLD_SECONDS
        self._asked_at = -_PAUSE_SECONDS
        self._asking: asyncio.Task[None] | None = None

    async def key(self, key_id: str) -> jwt.PyJWK | None:
        """The key of an id; ``None`` if the provider has none.

        A key that is known is returned at once, also while the provider is asked whether it still has it.

        Raises:
            ProviderUnavailableError: It does not answer, and has not for a day.
        """
        if key_id not in self._keys or self._age() > _FRESH_SECONDS:
            self._ask_if_due()
        if self._asking is not None and (key_id not in self._keys or self._age() > _OLD_SECONDS):
            await asyncio.wait({self._asking})
        if self._age() > _OLD_SECONDS:
            raise ProviderUnavailableError
        return self._keys.get(key_id)

    async def close(self) -> None:
        """End the task that asks the provider."""
        if self._asking is not None:
            await cancel_and_wait({self._asking})

    def _age(self) -> float:
        return time.monotonic() - self._read_at

    def _ask_if_due(self) -> None:
        """Begin to ask the provider, unless that has begun already or was done a moment ago."""
        if self._asking is None and time.monotonic() - self._asked_at >= _PAUSE_SECONDS:
            self._asking = asyncio.create_task(self._ask(), name="keys of the OpenID provider")
            self._asking.add_done_callback(self._asked)

    async def _ask(self) -> None:
        self._asked_at = time.monotonic()
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                self._keys = await _keys_of(self.issuer)
        except (_NoAnswerError, TimeoutError) as error:
            why = str(error) or f"it took longer than {_ANSWER_SECONDS:g} seconds"
            log.warning("the OpenID provider does not answer as it must", issuer=self.issuer, why=why)
        except Exception:  # no call gets this error, and the next ones must not fail because of it
            log.exception("the OpenID provider could not be asked", issuer=self.issuer)
        else:
            self._read_at = time.monotonic()

    def _asked(self, _: asyncio.Task[None]) -> None:
        self._asking = None


async def _keys_of(issuer: str) -> dict[str, jwt.PyJWK]:
    async with httpx2.AsyncClient(timeout=_STEP_SECONDS, follow_redirects=False, trust_env=False) as http:
        metadata = await _fetched(http, f"{issuer.rstrip('/')}/.well-known/openid-configuration")
        if metadata.get("issuer") != issuer:
            raise _NoAnswerError(f"its metadata is that of {metadata.get('issuer')!r}")
        url = metadata.get("jwks_uri")
        if not isinstance(url, str) or not is_protected(url):
            raise _NoAnswerError("its metadata names no https URL of its keys")
        listed = (await _fetched(http, url)).get("keys")
    if not isinstance(listed, list):
        raise _NoAnswerError("it has no list of keys")
    found = {}
    for each in listed[:_MOST_KEYS]:
        if not isinstance(each, dict) or each.get("use", "sig") != "sig" or not isinstance(each.get("kid"), str):
            continue
        try:
            found[each["kid"]] = jwt.PyJWK(each)
        except jwt.PyJWTError as error:  # of a kind that we do not know
            log.info("a key of the OpenID provider is not used", why=str(error))
    return found


async def _fetched(http: httpx2.AsyncClient, url: str) -> dict[str, Any]:
    try:
        async with http.stream("GET", url, headers={"accept": "application/json"}) as answer:
            if answer.status_code != 200:  # noqa: PLR2004 - OK
                raise _NoAnswerError(f"{url} answers {answer.status_code}")
            body = bytearray()
            async for chunk in answer.aiter_bytes():
                body += chunk
                if len(body) > _MOST_BYTES:
                    raise _NoAnswerError(f"{url} answers more than {_MOST_BYTES} bytes")
        found = json.loads(body)
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError, RecursionError) as error:
        raise _NoAnswerError(f"{url}: {type(error).__name__}") from None
    if not isinstance(found, dict):
        raise _NoAnswerError(f"{url} answers no object")
    return found


def is_protected(url: str) -> bool:
    """Whether nobody between can change what a URL answers: it is https, or on this machine."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return bool(parts.hostname) and (parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOOPBACK))
