"""Nobody who calls can keep the server from getting the keys of the OpenID provider, or make others wait for them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from memotree.identity import provider as provider_module
from memotree.identity.errors import ProviderUnavailableError
from memotree.identity.provider import Provider

pytestmark = [pytest.mark.requirement("SERVE-3"), pytest.mark.usefixtures("login", "clock")]

ISSUER = "https://login.example.org"
STEPS = 100
"""More turns of the event loop than anything takes here that does not wait."""


class Clock:
    """Stands in for the time of the provider's cache."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def monotonic(self) -> float:
        return self.now


class Login:
    """The other end: answers each request when it may."""

    def __init__(self) -> None:
        self.keys: dict[str, Any] = {"first": object()}
        self.may_answer = asyncio.Event()
        self.fault: Exception | None = None
        self.asked = 0
        self.given_up = 0

    async def answer(self, issuer: str) -> dict[str, Any]:
        assert issuer == ISSUER
        self.asked += 1
        try:
            await self.may_answer.wait()
        except asyncio.CancelledError:
            self.given_up += 1
            raise
        if self.fault is not None:
            raise self.fault
        return dict(self.keys)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(provider_module, "time", made)
    return made


@pytest.fixture
def login(monkeypatch: pytest.MonkeyPatch) -> Login:
    made = Login()
    monkeypatch.setattr(provider_module, "_keys_of", made.answer)
    return made


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    made = Provider(ISSUER)
    yield made
    await made.close()


async def steps(until: Callable[[], bool] = lambda: False) -> None:
    """Let the event loop turn until something is so, or as often as anything takes that does not wait."""
    for _ in range(STEPS):
        if until():
            return
        await asyncio.sleep(0)


async def at_once(work: Awaitable[Any]) -> Any:
    """The result of what does not wait for anybody."""
    task = asyncio.ensure_future(work)
    await steps(task.done)
    assert task.done()
    return task.result()


async def test_a_call_that_is_given_up_does_not_end_what_is_asked_for_others(provider: Provider, login: Login) -> None:
    for _ in range(5):
        stranger = asyncio.create_task(provider.key("first"))
        await steps(lambda: login.asked > 0)
        stranger.cancel()
        assert isinstance((await asyncio.gather(stranger, return_exceptions=True))[0], asyncio.CancelledError)
    waiting = asyncio.create_task(provider.key("first"))
    await steps()
    assert (login.asked, login.given_up) == (1, 0)
    login.may_answer.set()
    assert await waiting is login.keys["first"]
    assert login.asked == 1


async def test_a_known_key_is_returned_while_the_provider_takes_its_time(
    provider: Provider, login: Login, clock: Clock
) -> None:
    login.may_answer.set()
    first = await provider.key("first")
    login.may_answer.clear()
    login.keys = {"first": object()}
    clock.now += 4_000
    assert await at_once(provider.key("first")) is first
    unknown = asyncio.create_task(provider.key("second"))  # a stranger who waits makes nobody else wait
    await steps(lambda: login.asked == 2)
    assert await at_once(provider.key("first")) is first
    assert login.asked == 2
    login.may_answer.set()
    assert await unknown is None
    assert await at_once(provider.key("first")) is login.keys["first"]
    assert login.asked == 2


async def test_a_key_that_was_not_renewed_for_a_day_is_waited_for(
    provider: Provider, login: Login, clock: Clock
) -> None:
    login.may_answer.set()
    assert await provider.key("first")
    login.may_answer.clear()
    login.keys = {}
    clock.now += 90_000
    waiting = asyncio.create_task(provider.key("first"))
    await steps()
    assert not waiting.done()
    login.may_answer.set()
    assert await waiting is None


async def test_a_provider_that_does_not_end_its_answer_is_given_up_and_tried_again_after_a_pause_as_after_any_fault(
    provider: Provider, login: Login, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(provider_module, "_ANSWER_SECONDS", 0)
        with pytest.raises(ProviderUnavailableError):
            await provider.key("first")
    assert (login.asked, login.given_up) == (1, 1)
    with pytest.raises(ProviderUnavailableError):  # it was asked a moment ago
        await at_once(provider.key("first"))
    assert login.asked == 1
    login.may_answer.set()
    login.fault = ZeroDivisionError("a defect")
    clock.now += 31
    with pytest.raises(ProviderUnavailableError):
        await provider.key("first")
    assert login.asked == 2
    login.fault = None
    clock.now += 31
    assert await provider.key("first")


async def test_what_is_asked_ends_with_the_server(provider: Provider, login: Login) -> None:
    waiting = asyncio.create_task(provider.key("first"))
    await steps(lambda: login.asked > 0)
    await provider.close()
    assert login.given_up == 1
    with pytest.raises(ProviderUnavailableError):
        await waiting
