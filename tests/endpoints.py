"""A model endpoint for tests: it speaks OpenAI's chat completions and embeddings and the `/rerank` call, on loopback.

    async with ModelEndpoint() as endpoint:
        settings = load_settings(data_folder=..., **endpoint.settings())
        endpoint.fail_next(Fault.BUSY, times=2)
        ...
        assert len(endpoint.chat_calls) == 3

Its answers depend on the request alone. A summary is the first words of the text, or of each child's summary. A vector
is made of the hashes of the text's words, so texts that share words are near each other. A score of relevance is the
share of the query's words that a text has. A decision of the loop is to answer from the leaves in the request, or to
explore the first summary node if there are none; `answer_next` replaces it. Faults occur in the order given.

A question with tools is answered by the calculator if it has a product or a sum in it and the calculator is offered,
and else from its first passage; `call_next` sets the calls that a turn asks for. Who wants a stream gets one.
"""

import asyncio
import base64
import contextlib
import json
import math
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

from memotree_storage.index.terms import words_of
from model_answers import Fault, hashed, input_data, made_answer, stream_pieces

CHAT_MODEL: Final = "test-chat"
EMBEDDING_MODEL: Final = "test-embedding"
RERANK_MODEL: Final = "test-rerank"
KEY: Final = "a-key-for-tests"


@dataclass(frozen=True, slots=True)
class _Planned:
    fault: Fault
    on: str
    retry_after: str | None = None
    seconds: float = 60.0
    body: Any = None


class ModelEndpoint:
    """The endpoint; enter it to start it.

    Args:
        dimensions: Length of its vectors.
        formats: The `response_format` types that it takes; others answer 400.
        takes_temperature: Whether it takes a temperature; else 400.
        takes_dimensions: Whether a request may ask for a length of vectors; else 400.
        longest: The most characters of a text to embed; a longer text answers 400.
    """

    def __init__(
        self,
        *,
        dimensions: int = 64,
        formats: Sequence[str] = ("json_schema", "json_object"),
        takes_temperature: bool = True,
        takes_dimensions: bool = True,
        longest: int = 1 << 20,
    ) -> None:
        self.dimensions = dimensions
        self.formats = tuple(formats)
        self.takes_temperature = takes_temperature
        self.takes_dimensions = takes_dimensions
        self.longest = longest
        self.chat_calls: list[dict[str, Any]] = []
        self.embedding_calls: list[dict[str, Any]] = []
        self.rerank_calls: list[dict[str, Any]] = []
        self.keys: set[str] = set()
        self.at_once = 0
        self.most_at_once = 0
        self.url = ""
        self._planned: deque[_Planned] = deque()
        self._always: _Planned | None = None
        self._scripted: deque[str | list[dict[str, Any]]] = deque()
        self.hung_up = asyncio.Event()
        self.arrived = asyncio.Event()
        self.takes_tools = True
        self.refused_parameters: set[str] = set()
        self.highest_temperature = 2.0
        self.most_written = 1 << 20
        self.most_messages = 1 << 20
        self._held = asyncio.Event()
        self._held.set()
        self._closing = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    # --- What a test does --------------------------------------------------------------------------------------------

    def settings(self, *kinds: str) -> dict[str, Any]:
        """The settings for this endpoint: of all kinds, or of some of "chat", "embedding" and "rerank"."""
        models = {"chat": CHAT_MODEL, "embedding": EMBEDDING_MODEL, "rerank": RERANK_MODEL}
        found: dict[str, Any] = {}
        for kind in kinds or models:
            found |= {f"{kind}_url": self.url, f"{kind}_model": models[kind], f"{kind}_api_key": KEY}
        return found

    def fail_next(
        self, fault: Fault, *, times: int = 1, on: str = "", retry_after: str | None = None, seconds: float = 60.0
    ) -> None:
        """Answer the next calls with a fault: calls of any kind, or only ``on`` "chat", "embeddings" or "rerank"."""
        self._planned.extend([_Planned(fault, on, retry_after, seconds)] * times)

    def fail_always(self, fault: Fault, *, on: str = "", retry_after: str | None = None, seconds: float = 60.0) -> None:
        """Answer every call with a fault until `recover`."""
        self._always = _Planned(fault, on, retry_after, seconds)

    def recover(self) -> None:
        """Cause no more faults."""
        self._always = None
        self._planned.clear()

    def reply_next(self, body: object, *, on: str = "") -> None:
        """Answer the next call with 200 and this body."""
        self._planned.append(_Planned(Fault.RAW, on, body=body))

    def answer_next(self, *answers: str | Mapping[str, Any]) -> None:
        """Set the answers of the next chat completions, in order, as texts or objects."""
        self._scripted.extend(answer if isinstance(answer, str) else json.dumps(answer) for answer in answers)

    def call_next(self, *calls: tuple[str, object], text: str = "") -> None:
        """Let the next chat completion ask for calls, each a function and its arguments: an object, or a raw text."""
        self._scripted.append(
            [
                {
                    "id": f"made_{number}",
                    "type": "function",
                    "function": {
                        "name": name,
                        "arguments": arguments if isinstance(arguments, str) else json.dumps(arguments),
                    },
                    **({"said": text} if text and not number else {}),
                }
                for number, (name, arguments) in enumerate(calls)
            ]
        )

    def hold(self) -> None:
        """Answer no request until `release`; requests that arrive wait."""
        self._held.clear()

    def release(self) -> None:
        """Answer the waiting requests."""
        self._held.set()

    @property
    def calls(self) -> int:
        """The requests so far, including failed ones."""
        return len(self.chat_calls) + len(self.embedding_calls) + len(self.rerank_calls)

    @property
    def texts_embedded(self) -> list[str]:
        """Every text of the embedding requests, in order and with repetitions."""
        return [text for call in self.embedding_calls for text in call["input"]]

    @property
    def texts_summarised(self) -> list[str]:
        """Every leaf text of the summary requests, in order and with repetitions."""
        return [data["text"] for call in self.chat_calls if "text" in (data := input_data(call))]

    # --- Serving -----------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        self._held.set()
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while await self._one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Read a request and answer it; return whether the connection stays open."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
        body = json.loads(await reader.readexactly(int(headers.get("content-length", "0"))))
        self.keys.add(headers.get("authorization", "").removeprefix("Bearer "))
        kind = head[0].split()[1].rpartition("/")[2]
        calls = {"completions": self.chat_calls, "embeddings": self.embedding_calls, "rerank": self.rerank_calls}
        if kind not in calls:
            writer.write(_response(404, b"{}"))
            return True
        calls[kind].append(body)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            if not await self._may_answer(reader):
                self.hung_up.set()
                return False
            return await self._answer("chat" if kind == "completions" else kind, body, writer)
        finally:
            self.at_once -= 1

    async def _may_answer(self, reader: asyncio.StreamReader) -> bool:
        """Wait until requests are answered; return whether the client is still there."""
        if self._held.is_set():
            return True
        self.arrived.set()
        waits = [asyncio.create_task(self._held.wait()), asyncio.create_task(reader.read(1))]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        return self._held.is_set()

    async def _answer(self, kind: str, body: dict[str, Any], writer: asyncio.StreamWriter) -> bool:
        planned = self._next_fault(kind)
        fault = planned.fault if planned else None
        if planned is not None and fault is Fault.SLOW:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), planned.seconds)
        if fault is Fault.CLOSED:
            return False
        status, data = _failure(fault) or self._made(kind, body, fault)
        if planned is not None and fault is Fault.RAW:
            data = planned.body
        extra = f"Retry-After: {planned.retry_after}\r\n" if planned and planned.retry_after is not None else ""
        if status == 200 and body.get("stream") and fault is not Fault.RAW:
            return await _stream(data, writer, cut=fault is Fault.CUT_BODY)
        payload = json.dumps(data).encode()
        if fault is Fault.HALF_JSON:
            payload = payload[: len(payload) // 2]
        if fault is Fault.NO_JSON:
            payload = b"The service is being deployed."
        response = _response(status, payload, extra, "text/plain" if fault is Fault.NO_JSON else "application/json")
        if fault is Fault.CUT_BODY:
            writer.write(response[:-8])
            await writer.drain()
            return False
        writer.write(response)
        await writer.drain()
        return True

    def _next_fault(self, kind: str) -> _Planned | None:
        for planned in self._planned:
            if planned.on in {"", kind}:
                self._planned.remove(planned)
                return planned
        return self._always if self._always is not None and self._always.on in {"", kind} else None

    def _made(self, kind: str, body: dict[str, Any], fault: Fault | None) -> tuple[int, Any]:
        make: dict[str, Callable[[dict[str, Any], Fault | None], tuple[int, Any]]] = {
            "chat": self._chat,
            "embeddings": self._embeddings,
            "rerank": self._rerank,
        }
        return make[kind](body, fault)

    # --- Answers -----------------------------------------------------------------------------------------------------

    def _chat_refusal(self, body: dict[str, Any]) -> tuple[str, str] | None:
        """Why a request is refused, and the code of it; ``None`` if it is answered."""
        wanted = body.get("response_format", {}).get("type", "text")
        if wanted != "text" and wanted not in self.formats:
            return "This model does not support the response_format that was asked for.", ""
        if "temperature" in body and not self.takes_temperature:
            return "Unsupported value: 'temperature' cannot be set for this model.", ""
        if found := self.refused_parameters & body.keys():
            return f"Unsupported parameter: '{found.pop()}' is not supported with this model.", ""
        return self._too_much(body)

    def _too_much(self, body: dict[str, Any]) -> tuple[str, str] | None:
        if body.get("temperature", 0) > self.highest_temperature:
            return f"temperature: the range is 0 to {self.highest_temperature:g}", ""
        for name in ("max_tokens", "max_completion_tokens"):
            if body.get(name, 0) > self.most_written:
                return f"{name} is too large: this model writes at most {self.most_written} tokens.", ""
        if len(body["messages"]) > self.most_messages:
            told = "The messages and the functions are longer than this model's context. Shorten the functions."
            return told, "context_length_exceeded"
        if "tools" in body and not self.takes_tools:
            return "This model does not support tools.", ""
        return None

    def _chat(self, body: dict[str, Any], fault: Fault | None) -> tuple[int, Any]:
        if (refusal := self._chat_refusal(body)) is not None:
            return 400, _error(*refusal)
        said = (
            self._scripted.popleft()
            if self._scripted and fault in {None, Fault.CUT_BODY, Fault.SLOW}
            else made_answer(body, fault)
        )
        text = said if isinstance(said, str) else ""
        message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
        finish = "stop"
        if isinstance(said, list):
            told = "".join(call.pop("said", "") for call in said)
            message |= {"content": told or None, "tool_calls": said}
            finish = "tool_calls"
        if fault is Fault.REFUSAL:
            message |= {"content": None, "refusal": "I cannot help with that."}
        if fault is Fault.FILTERED:
            finish, message["content"] = "content_filter", ""
        if fault is Fault.CUT_OFF:
            finish, message["content"] = "length", text[: len(text) // 2]
        read = sum(len(part["content"] or "") // 4 for part in body["messages"])
        return 200, {
            "id": f"chatcmpl-{len(self.chat_calls)}",
            "object": "chat.completion",
            "created": 1_700_000_000,
            "model": body["model"],
            "choices": []
            if fault is Fault.EMPTY_CHOICES
            else [{"index": 0, "message": message, "finish_reason": finish, "logprobs": None}],
            "usage": {"prompt_tokens": read, "completion_tokens": 20, "total_tokens": read + 20},
        }

    def _embeddings(self, body: dict[str, Any], fault: Fault | None) -> tuple[int, Any]:
        texts = body["input"]
        if any(not text or len(text) > self.longest for text in texts):
            return 400, _error("An input is empty or too long.")
        if "dimensions" in body and not self.takes_dimensions:
            return 400, _error("This model does not support dimensions.")
        length = body.get("dimensions", self.dimensions) + (fault is Fault.WRONG_DIMENSION)
        vectors = [hashed(text, length) for text in texts[: len(texts) - (fault is Fault.TOO_FEW)]]
        if fault is Fault.NAN:
            vectors[0][0] = math.nan
        is_packed = body.get("encoding_format") == "base64"
        rows = [
            {
                "object": "embedding",
                "index": index,
                "embedding": base64.b64encode(vector.tobytes()).decode() if is_packed else vector.tolist(),
            }
            for index, vector in enumerate(vectors)
        ]
        read = sum(len(text) // 4 + 1 for text in texts)
        # The API does not promise the order of the rows; their index counts.
        return 200, {
            "object": "list",
            "data": rows[::-1],
            "model": body["model"],
            "usage": {"prompt_tokens": read, "total_tokens": read},
        }

    @staticmethod
    def _rerank(body: dict[str, Any], fault: Fault | None) -> tuple[int, Any]:
        asked = set(words_of(body["query"]))
        texts = body["documents"]
        scores = [len(asked & set(words_of(text))) / max(len(asked), 1) for text in texts]
        order = sorted(range(len(texts)), key=lambda index: -scores[index])
        results = [{"index": index, "relevance_score": scores[index]} for index in order]
        if fault is Fault.TOO_FEW:
            results.pop()
        if fault is Fault.NAN:
            results[0]["relevance_score"] = math.nan
        return 200, {"model": body["model"], "results": results, "usage": {"total_tokens": 1}}


@contextlib.contextmanager
def endpoint_in_a_thread() -> Iterator[ModelEndpoint]:
    """The endpoint on an event loop of its own, for a test that blocks its loop."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    endpoint = ModelEndpoint()
    asyncio.run_coroutine_threadsafe(endpoint.__aenter__(), loop).result(10)
    try:
        yield endpoint
    finally:
        asyncio.run_coroutine_threadsafe(endpoint.__aexit__(None, None, None), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _stream(completion: Any, writer: asyncio.StreamWriter, *, cut: bool) -> bool:
    """Send a completion as a stream of its words and pieces of calls; return whether the connection stays open."""
    writer.write(b"HTTP/1.1 200 Said\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
    pieces = list(stream_pieces(completion))
    for number, piece in enumerate(pieces):
        if cut and number == len(pieces) // 2:
            await writer.drain()
            return False
        data = f"data: {piece if isinstance(piece, str) else json.dumps(piece)}\n\n".encode()
        writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        await writer.drain()
    writer.write(b"0\r\n\r\n")
    await writer.drain()
    return True


def _failure(fault: Fault | None) -> tuple[int, Any] | None:
    answers = {
        Fault.BUSY: (429, _error("Too many requests.", "rate_limit_exceeded")),
        Fault.BROKEN: (500, _error("The server had an error.")),
        Fault.UNAUTHORIZED: (401, _error(f"Incorrect API key provided: {KEY}.", "invalid_api_key")),
        Fault.UNKNOWN_MODEL: (404, _error("There is no such model.", "model_not_found")),
        Fault.NO_MONEY: (429, _error("You exceeded your current quota.", "insufficient_quota")),
        Fault.MALFORMED: (400, _error("The request is malformed.")),
    }
    return answers.get(fault) if fault else None


def _error(message: str, code: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": code}}


def _response(status: int, body: bytes, extra: str = "", media_type: str = "application/json") -> bytes:
    head = f"HTTP/1.1 {status} Said\r\nContent-Type: {media_type}\r\nContent-Length: {len(body)}\r\n{extra}\r\n"
    return head.encode() + body
