"""Requests of any call, generated from the descriptors of the contract, so that a new call needs no code here.

Texts in braces are filled in when a request is sent: ``{session}`` is the session of the workspace, ``{ab*1000}`` a
thousand times ``ab``. So a request can be kept in the corpus, and a long one is short there.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from fuzz.corpus import repeated, seeds, texts
from google.protobuf import message_factory, text_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import strategies as st
from integration.prepared import AMBIGUOUS, CHILD, GONE, LEAF, ROOT, STAGED, TWINS, UNKNOWN

from memotree.server.binding import contract

_NO_SIDE_EFFECTS: Final = 1

_DEEPEST: Final = 4
"""Messages within messages."""

NODES: Final = (ROOT, CHILD, LEAF, STAGED, "{part}", "{whole}", *TWINS)
"""Nodes of the prepared workspace: those that the session sees, and two of an ingested document."""

_STRANGE_IDS: Final = (GONE, UNKNOWN, AMBIGUOUS, ROOT[:6], ROOT.upper(), f"{ROOT} ", "Root", "notes/Root/Child", "abc",
                       "{session}", "{workspace}", "notes", "{commit}", "iiii", f"{ROOT}0", "0" * 16)  # fmt: skip

_REVISIONS: Final = ("", "main", "main", "{session}", "{session}", "{commit}", "side", "v1", "{first_commit}")
_STRANGE_REVISIONS: Final = ("{commit_prefix}", "HEAD", "refs/heads/side", "refs/tags/v1", "refs/memotree/keep/x",
                             "main~1", "0" * 40, "{foreign_session}", "heads/main", "nowhere")  # fmt: skip

STRANGE: Final = texts("strange")
"""Texts that somewhere may be taken for something else, or cost more than they seem to."""

_WORDS: Final = texts("words")

_INTEGERS: Final = (0, 1, 2, 3, 5, 10, 100, 1000, 100_000, -1, -2, 2**31 - 1, -(2**31))
_LARGE: Final = (*_INTEGERS, 2**31, 2**53, 2**63 - 1, -(2**63), 253402300800)
_FLOATS: Final = (0.0, 0.5, 1.0, 0.25, -0.0, -1.0, 2.0, 1e308, -1e308, 5e-324, *map(float, ("nan", "inf", "-inf")))

_NAMES_OF_NODES: Final = re.compile(r".*node.*|parent_id|target_id|subtree_id|about|supersedes")
_NAMES_OF_STATES: Final = re.compile(r".*revision|commit_id")
_USUAL: Final[Mapping[str, tuple[str, ...]]] = {
    "name": ("new name", "notes", "main", "side", "v1", "Root", "notes/Root/Child", "a-new-one"),
    "tag_name": ("v2", "v1", "new"),
    "since": ("2024-01-01T00:00:00Z", "{first_commit}"),
    "until": ("2030-01-01T00:00:00Z", "{commit}"),
    "agent": ("tester", ""),
    "workspace": ("{workspace}",),
    "confirm_name": ("{workspace}",),
    "session_id": ("{session}",),
    "archive": ("notes", "{archive}", "{book}"),
    "archives": ("notes", "{archive}", "{book}", "A book"),
    "archive_id": ("{archive}", "notes", "{book}", ""),
    "job_id": ("{job}",),
    "etag": ("", "{etag}"),
    "page_token": ("",),
    "request_id": ("", "{request_id}", "two"),
    "document_id": ("", "book", "another"),
    "media_type": texts("media_types"),
    "type": ("note", "concept", "leaf_chunk", "summary_node", "unheard_of", ""),
    "node_types": ("note", "concept", "leaf_chunk", "summary_node", "unheard_of", ""),
    "view_name": ("default", "default", "mine"),
    "valid_at": ("2024-01-01", "2024-01-01T00:00:00Z"),
    "valid_from": ("2024-01-01", "2024-01-01T00:00:00Z"),
    "valid_to": ("2025-01-01", "2024-01-01T00:00:00+14:00"),
    "author": ("Ada", "tester"),
    "branch": ("", "main", "side"),
    "email": ("ada@example.org", ""),
    "sha256": ("0" * 64, ""),
    "message": ("Change something", "Change\n\nMore of it\n"),
    "commit_message": ("Change something", ""),
    "title": ("A new title", "Root"),
    "query": ("apple", "Root", "what is a tree?", "Child", "\u6811"),
    "text": ("Apples are red. Pears are green.", "# A\n\nwords\n\n## B\n\nmore words\n", "The tree has leaves."),
}  # fmt: skip

_ALWAYS: Final = frozenset({"workspace", "session_id"})
"""Fields that nearly all calls with them need, and those that many need; the likelihood of all others is the same."""

_MOSTLY: Final = frozenset(
    {"node_id", "node_ids", "query", "job_id", "name", "title", "message", "confirm_name", "text", "changes"}
    | {"relation", "target_id", "type", "parts", "archive", "archives", "documents"}
)


@cache
def methods() -> Mapping[str, MethodDescriptor]:
    """Every call of the contract by its name."""
    return {method.name: method for service in contract().values() for method in service.methods}


def request_of(method: str, **fields: Any) -> Any:
    """A request of a call, empty but for some fields."""
    return message_factory.GetMessageClass(methods()[method].input_type)(**fields)


@dataclass(frozen=True, slots=True)
class _Taste:
    """How wild a request is: of a hundred fields, how many are given, and how many of these are strange."""

    given: int
    strange: int


def told(method: str, request: Message) -> str:
    """The line for the corpus: the name of the call and the request in the text form of protobuf."""
    return f"{method} {text_format.MessageToString(request, as_one_line=True)}"


def has_effects(method: str) -> bool:
    """Whether a call may change something, as the contract says."""
    return methods()[method].GetOptions().idempotency_level != _NO_SIDE_EFFECTS


def requests(method: MethodDescriptor) -> st.SearchStrategy[Message]:
    """Any request of a call."""
    return messages_of(method.input_type)


def messages_of(kind: Descriptor) -> st.SearchStrategy[Message]:
    """Any message: sensible, sensible but for a field or two, or wild."""
    tastes = st.builds(_Taste, st.sampled_from((8, 30, 60)), st.sampled_from((0, 0, 3, 10, 50)))
    return tastes.flatmap(lambda taste: _messages(kind, 0, taste))


@cache
def _messages(kind: Descriptor, depth: int, taste: _Taste) -> st.SearchStrategy[Message]:
    @st.composite
    def build(draw: st.DrawFn) -> Message:
        message = message_factory.GetMessageClass(kind)()
        if kind.full_name == Timestamp.DESCRIPTOR.full_name and not _happens(draw, taste.strange):
            return Timestamp(seconds=draw(st.integers(0, 2_000_000_000)))
        for field in kind.fields:
            if _happens(draw, _likelihood(field, taste)):
                _set(draw, message, field, depth, taste)
        return message

    return build()


def _happens(draw: st.DrawFn, percent: int) -> bool:
    return draw(st.integers(0, 99)) >= 100 - percent


def _likelihood(field: FieldDescriptor, taste: _Taste) -> int:
    """How often of a hundred times a field is given."""
    if field.name in _ALWAYS:
        return 100 - taste.strange // 5
    return max(taste.given, 85) if field.name in _MOSTLY else taste.given


def _set(draw: st.DrawFn, message: Message, field: FieldDescriptor, depth: int, taste: _Taste) -> None:
    own: Any = getattr(message, field.name)
    many = _happens(draw, taste.strange)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        names = field.message_type.fields_by_name
        for _ in range(70 if many else draw(st.integers(1, 3))):
            own[_value(draw, names["key"], taste)] = _value(draw, names["value"], taste)
    elif field.message_type is not None:
        if depth == _DEEPEST:
            return
        below = _messages(field.message_type, depth + 1, taste)
        if not field.is_repeated:
            own.CopyFrom(draw(below))
            return
        for _ in range(20 if many and not depth else draw(st.integers(1, 3))):
            own.add().CopyFrom(draw(below))
    elif field.is_repeated:
        own.extend(_value(draw, field, taste) for _ in range(60 if many else draw(st.integers(1, 4))))
    else:
        setattr(message, field.name, _value(draw, field, taste))


def _value(draw: st.DrawFn, field: FieldDescriptor, taste: _Taste) -> Any:
    # A strange workspace would hide whatever else is strange.
    percent = taste.strange // 5 if field.name in _ALWAYS else taste.strange
    usual, strange = _choices(field)
    return draw(strange if _happens(draw, percent) else usual)


@cache
def _choices(field: FieldDescriptor) -> tuple[st.SearchStrategy[Any], st.SearchStrategy[Any]]:
    """The usual values of a field, and strange ones."""
    kind = field.cpp_type
    if field.type == FieldDescriptor.TYPE_BYTES:
        return st.sampled_from(seeds("documents")), st.binary(max_size=200)
    if kind == FieldDescriptor.CPPTYPE_STRING:
        return _texts(field.name)
    if kind == FieldDescriptor.CPPTYPE_ENUM:
        known = [value.number for value in field.enum_type.values]
        return st.sampled_from(known), st.sampled_from((max(known) + 1, -1, 2**31 - 1, -(2**31)))
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return st.booleans(), st.booleans()
    if kind in {FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT}:
        return st.floats(0, 1), st.one_of(st.sampled_from(_FLOATS), st.floats())
    low, high = _BOUNDS[kind]
    fitting = [number for number in _LARGE if low <= number <= high]
    return st.sampled_from((0, 1, 2, 5, 40, 300)), st.one_of(st.sampled_from(fitting), st.integers(low, high))


_BOUNDS: Final = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}


def _texts(name: str) -> tuple[st.SearchStrategy[str], st.SearchStrategy[str]]:
    usual: tuple[str, ...] = _USUAL.get(name, _WORDS)
    strange: tuple[str, ...] = STRANGE
    if name != "node_types" and _NAMES_OF_NODES.fullmatch(name):
        usual, strange = NODES, (*_STRANGE_IDS, *STRANGE)
    elif _NAMES_OF_STATES.fullmatch(name):
        usual, strange = _REVISIONS, (*_STRANGE_REVISIONS, *STRANGE)
    return st.sampled_from(usual), st.one_of(st.sampled_from(strange), st.text(max_size=30))


# --- Filling in -------------------------------------------------------------------------------------------------------


def filled(message: Message, known: Mapping[str, str]) -> Message:
    """The request as it is sent."""
    sent = type(message)()
    sent.CopyFrom(message)
    _fill(sent, lambda text: expanded(text, known))
    return sent


def expanded(text: str, known: Mapping[str, str]) -> str:
    """The text that one in braces stands for."""
    return known[text] if text in known else repeated(text)


def _fill(message: Message, change: Callable[[str], str]) -> None:
    for field, value in message.ListFields():
        own: Any = value
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            if field.message_type.fields_by_name["value"].type == FieldDescriptor.TYPE_STRING:
                pairs = {change(key): change(text) for key, text in own.items()}
                own.clear()
                own.update(pairs)
        elif field.message_type is not None:
            for each in own if field.is_repeated else [own]:
                _fill(each, change)
        elif field.type == FieldDescriptor.TYPE_STRING:
            if field.is_repeated:
                own[:] = [change(text) for text in own]
            else:
                setattr(message, field.name, change(own))
