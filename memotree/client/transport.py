"""Sends calls to the server with deadlines and retries and decodes errors, over grpc.aio or blocking gRPC.

The code above a transport is written once, as coroutines. A ``BlockingTransport`` never suspends, so those coroutines
run to their end in one step and need no event loop (see ``blocking.py``).

Retries use the same form of backoff as gRPC's own connection backoff (exponential, with jitter, bounded). Only
UNAVAILABLE and what the server answers with `RetryInfo` is retried, and only for repeatable calls. The deadline of a
call bounds all of its attempts together.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, ParamSpec, Protocol, TypeVar
from urllib.parse import urlsplit

import grpc
from google.protobuf.message import Message
from grpc import aio
from tenacity import (
    AsyncRetrying,
    RetryCallState,
    Retrying,
    retry_if_exception,
    stop_any,
    wait_exponential,
    wait_random,
)
from tenacity.stop import stop_after_attempt, stop_after_delay, stop_base

from memotree.client.contract import make_repeatable, method_of
from memotree.client.default_agent import name_agent
from memotree.client.errors import (
    DeadlineExceededError,
    FailedPreconditionError,
    MemoTreeClientError,
    UnavailableError,
    decode_error,
    without_library_frames,
)
from memotree.client.keys import KeySender, check_private, is_on_this_machine, key_metadata, key_senders
from memotree.client.wording import reword_answer, reword_error

logger = logging.getLogger("memotree.client")

DEFAULT_PORT: Final = 7319
DEFAULT_ADDRESS: Final = f"127.0.0.1:{DEFAULT_PORT}"
"""The address on which a server listens by default."""

_CHANNEL_OPTIONS: Final = (
    ("grpc.initial_reconnect_backoff_ms", 100),  # the default of one second would be longer than our own retries
    ("grpc.min_reconnect_backoff_ms", 5000),  # in truth how long one attempt to connect may take (grpc/grpc#12830)
    ("grpc.max_reconnect_backoff_ms", 2000),
    ("grpc.max_receive_message_length", 256 * 1024 * 1024),  # the limit of the server applies instead
    ("grpc.max_send_message_length", -1),
)

AnswerT = TypeVar("AnswerT", bound=Message)
P = ParamSpec("P")
T = TypeVar("T")


def _channel_options(address: str) -> tuple[tuple[str, int], ...]:
    """The options of a channel; a server on this machine is reached directly, whatever proxy the environment names."""
    return (*_CHANNEL_OPTIONS, ("grpc.enable_http_proxy", 0)) if is_on_this_machine(address) else _CHANNEL_OPTIONS


def log_warning(text: str) -> None:
    """Log a warning; the default for ``on_warning``."""
    logger.warning("%s", text)


@dataclass(frozen=True, slots=True)
class TransportSettings:
    """The settings of a transport.

    Attributes:
        timeout: Seconds for one call with all its attempts.
        stream_timeout: Seconds for a streaming call (verify, rebuild).
        attempts: How often a repeatable call is tried while the server does not answer.
        on_warning: Called with each warning in an answer; by default it logs those that are not about a question.
        contract_names: Whether messages name RPCs and fields as the server does, instead of methods and arguments.
        key: The API key that each call sends; none if empty.
        channel: The credentials of the channel; ``None`` without TLS.
    """

    timeout: float = 30.0
    stream_timeout: float = 3600.0
    attempts: int = 5
    on_warning: Callable[[str], None] = log_warning
    contract_names: bool = False
    key: str = field(default="", repr=False)
    channel: grpc.ChannelCredentials | None = field(default=None, repr=False)

    def patience(self, *, waits: bool) -> float:
        """Seconds for one call; ``waits`` as in `Transport.call`."""
        return self.stream_timeout if waits else self.timeout

    def retry_options(self, *, repeatable: bool) -> dict[str, Any]:
        """The tenacity options for one call."""
        stop: stop_base = stop_after_attempt(self.attempts if repeatable else 1)
        return {
            "stop": stop_any(stop, stop_after_delay(self.timeout)),
            "wait": _pause,
            "retry": retry_if_exception(_passes),
            "before_sleep": _log_retry,
            "reraise": True,
        }


_LONGEST_PAUSE: Final = 2.0
"""Seconds between two attempts; who is asked to wait longer hears of it at once, and decides."""

_BACKOFF: Final = wait_exponential(multiplier=0.05, max=_LONGEST_PAUSE) + wait_random(0.0, 0.1)


def _passes(error: BaseException) -> bool:
    """Whether the cause of an error passes soon: the server does not answer, or advises to send the call again."""
    after = getattr(error, "retry_after", None)
    return isinstance(error, UnavailableError) if after is None else after <= _LONGEST_PAUSE


def _pause(state: RetryCallState) -> float:
    """Seconds until the next attempt."""
    after = getattr(state.outcome.exception() if state.outcome else None, "retry_after", None) or 0.0
    backoff: float = _BACKOFF(state)
    return max(backoff, after if after > 1 else 0.0)  # a second is what the server advises when it does not know


def _log_retry(state: RetryCallState) -> None:
    failure = state.outcome.exception() if state.outcome else None
    logger.debug("Attempt %d failed, the call is sent again: %s", state.attempt_number, failure)


class Transport(Protocol):
    """Sends requests; every failed call raises a ``MemoTreeClientError``."""

    address: str

    async def call(self, request: Message, answer: type[AnswerT], *, waits: bool = False) -> AnswerT:
        """Sends ``request`` to its method and returns the answer; retries where that is safe.

        Args:
            request: The request.
            answer: The type of the answer.
            waits: Whether the call may wait as long as a streaming one.
        """
        ...

    def stream(self, request: Message, answer: type[AnswerT]) -> AsyncIterator[AnswerT]:
        """Sends ``request`` to its streaming method and yields the messages as they arrive; never retries."""
        ...

    async def in_thread(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Does work that waits for the disk, beside the event loop if there is one."""
        ...

    async def close(self) -> None:
        """Closes the connection; running calls are cancelled."""
        ...


def _encode(message: Message) -> bytes:
    return message.SerializeToString()


def _left(deadline: float) -> float:
    """The seconds until ``deadline``.

    Raises:
        DeadlineExceededError: The deadline has passed. gRPC itself might still let a quick call succeed.
    """
    left = deadline - time.monotonic()
    if left <= 0:
        raise DeadlineExceededError("The deadline of the call has passed; give the client a longer timeout.")
    return left


def checked(address: str) -> str:
    """The address, if it is not a URL.

    Raises:
        ValueError: It is one.
    """
    if "://" in address:
        host = urlsplit(address).hostname or "127.0.0.1"
        raise ValueError(
            f"{address!r} is a URL; the client takes the host and port of gRPC, such as {host}:{DEFAULT_PORT}. "
            "`memotree serve` shows it first."
        )
    return address


def _refuse_if(closed: bool, address: str) -> None:
    """Refuses a call of a client that was closed.

    Raises:
        FailedPreconditionError: If it was.
    """
    if closed:
        raise FailedPreconditionError(
            f"This client of {address} is closed. Make the call before it is closed, such as within its `with` block, "
            "or open another one.",
            reason="CLIENT_CLOSED",
        )


def _told(settings: TransportSettings, error: MemoTreeClientError, request: Message) -> MemoTreeClientError:
    """The error of a request, in the words of the settings."""
    if not settings.contract_names:
        reword_error(error, request)
    return error


def _received(settings: TransportSettings, answer: AnswerT, request: Message) -> AnswerT:
    """The answer to a request, in the words of the settings."""
    if not settings.contract_names:
        reword_answer(answer, request)
    return answer


def _tell_warnings(settings: TransportSettings, answer: Message) -> None:
    if settings.on_warning is log_warning and "confidence" in answer.DESCRIPTOR.fields_by_name:
        return  # an answer to a question has its warnings itself, and many have one: that nothing here answers
    for text in getattr(answer, "warnings", ()):
        settings.on_warning(text)


class AioTransport:
    """A transport over grpc.aio; it connects at its first call, on the event loop of that call."""

    def __init__(self, address: str, settings: TransportSettings) -> None:
        self.address = checked(address)
        check_private(self.address, settings.key, settings.channel)
        self._settings = settings
        self._metadata = key_metadata(settings.key)
        self._channel: aio.Channel | None = None
        self._raw_channel: aio.Channel | None = None
        self._closed = False

    @property
    def channel(self) -> aio.Channel:
        """The gRPC channel of this transport's own calls, created at first use."""
        if self._channel is None:
            self._channel = self._opened(())
        return self._channel

    @property
    def raw_channel(self) -> aio.Channel:
        """A gRPC channel for stubs, created at first use: it adds the key to their calls.

        The transport's own calls name the key themselves, since an interceptor makes tasks for each call.
        """
        senders = key_senders(self._settings.key)
        if not senders:
            return self.channel
        if self._raw_channel is None:
            self._raw_channel = self._opened(senders)
        return self._raw_channel

    def _opened(self, interceptors: Sequence[aio.ClientInterceptor]) -> aio.Channel:
        options, tls = _channel_options(self.address), self._settings.channel
        if tls is None:
            return aio.insecure_channel(self.address, options=options, interceptors=interceptors)
        return aio.secure_channel(self.address, tls, options=options, interceptors=interceptors)

    async def call(self, request: Message, answer: type[AnswerT], *, waits: bool = False) -> AnswerT:
        """Sends ``request`` to its method and returns the answer; retries where that is safe."""
        _refuse_if(self._closed, self.address)
        repeatable = make_repeatable(request)
        name_agent(request)
        send = self.channel.unary_unary(
            method_of(request).path, request_serializer=_encode, response_deserializer=answer.FromString
        )
        deadline = time.monotonic() + self._settings.patience(waits=waits)

        async def attempt() -> AnswerT:
            try:
                answered: AnswerT = await send(request, timeout=_left(deadline), metadata=self._metadata)
            except aio.AioRpcError as error:
                raise decode_error(error, self.address) from None
            return answered

        try:
            received: AnswerT = await AsyncRetrying(**self._settings.retry_options(repeatable=repeatable))(attempt)
        except MemoTreeClientError as error:
            raise without_library_frames(_told(self._settings, error, request)) from None
        _tell_warnings(self._settings, _received(self._settings, received, request))
        return received

    async def stream(self, request: Message, answer: type[AnswerT]) -> AsyncIterator[AnswerT]:
        """Sends ``request`` to its streaming method and yields the messages as they arrive; never retries."""
        _refuse_if(self._closed, self.address)
        name_agent(request)
        open_stream = self.channel.unary_stream(
            method_of(request).path, request_serializer=_encode, response_deserializer=answer.FromString
        )
        call = open_stream(request, timeout=self._settings.stream_timeout, metadata=self._metadata)
        try:
            async for message in call:
                yield _received(self._settings, message, request)
        except aio.AioRpcError as error:
            raise _told(self._settings, decode_error(error, self.address), request) from None
        finally:
            call.cancel()

    async def in_thread(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Does work that waits for the disk, in a thread."""
        return await asyncio.to_thread(work, *args, **kwargs)

    async def close(self) -> None:
        """Closes the connection; running calls are cancelled."""
        self._closed = True
        for channel in filter(None, (self._channel, self._raw_channel)):
            await channel.close()


class BlockingTransport:
    """A transport over blocking gRPC: its coroutines block and never suspend. Threads may share it."""

    def __init__(self, address: str, settings: TransportSettings) -> None:
        self.address = checked(address)
        check_private(self.address, settings.key, settings.channel)
        self._settings = settings
        self._metadata = key_metadata(settings.key)
        options = _channel_options(address)
        self.channel = (
            grpc.insecure_channel(address, options=options)
            if settings.channel is None
            else grpc.secure_channel(address, settings.channel, options=options)
        )
        self._closed = False

    @property
    def raw_channel(self) -> grpc.Channel:
        """The channel for stubs: it adds the key to their calls."""
        key = self._settings.key
        return grpc.intercept_channel(self.channel, KeySender(key)) if key else self.channel

    async def call(self, request: Message, answer: type[AnswerT], *, waits: bool = False) -> AnswerT:
        """Sends ``request`` to its method and returns the answer; retries where that is safe."""
        _refuse_if(self._closed, self.address)
        repeatable = make_repeatable(request)
        name_agent(request)
        send = self.channel.unary_unary(
            method_of(request).path, request_serializer=_encode, response_deserializer=answer.FromString
        )
        deadline = time.monotonic() + self._settings.patience(waits=waits)

        def attempt() -> AnswerT:
            try:
                answered: AnswerT = send(request, timeout=_left(deadline), metadata=self._metadata)
            except grpc.RpcError as error:
                raise decode_error(error, self.address) from None
            return answered

        try:
            received: AnswerT = Retrying(**self._settings.retry_options(repeatable=repeatable))(attempt)
        except MemoTreeClientError as error:
            raise without_library_frames(_told(self._settings, error, request)) from None
        _tell_warnings(self._settings, _received(self._settings, received, request))
        return received

    async def stream(self, request: Message, answer: type[AnswerT]) -> AsyncIterator[AnswerT]:
        """Sends ``request`` to its streaming method and yields the messages as they arrive; never retries."""
        _refuse_if(self._closed, self.address)
        name_agent(request)
        open_stream = self.channel.unary_stream(
            method_of(request).path, request_serializer=_encode, response_deserializer=answer.FromString
        )
        call = open_stream(request, timeout=self._settings.stream_timeout, metadata=self._metadata)
        try:
            for message in call:
                yield _received(self._settings, message, request)
        except grpc.RpcError as error:
            raise _told(self._settings, decode_error(error, self.address), request) from None
        finally:
            call.cancel()

    async def in_thread(self, work: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Does work that waits for the disk, in the thread of the caller."""
        return work(*args, **kwargs)

    async def close(self) -> None:
        """Closes the connection; running calls are cancelled."""
        self._closed = True
        self.channel.close()
