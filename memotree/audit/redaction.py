"""The arguments of a call as they may be kept: which things it was about, and how large the texts were, not the texts.

Kept as they are: numbers, flags, choices, times, ids, and the names of workspaces, branches, tags and revisions. Of any
other text its length is kept, and of a long one a digest, which tells whether two texts are the same. A short text has
no digest, since it could be guessed; neither has what may be a secret. Lists and messages within are counted.

Of a function nobody but itself knows which texts are secrets, so none of its texts has a digest. Of a URL the host is
kept, which is where the call went.
"""

import hashlib
import math
import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp
from memotree_storage.git.objects import is_hex_id
from memotree_storage.model.node import is_id

from memotree.request.observed_calls import FunctionArguments

_NAMES: Final = frozenset(
    {"branch", "source_branch", "target_branch", "revision", "from_revision", "to_revision", "tag_name"}
)
"""Fields with the names of branches, tags and revisions."""

_NAMING: Final = frozenset({"Workspace", "Branch", "Tag"})
"""Requests that end so have the name of one of these in their field ``name``."""

_IDS: Final = re.compile(r"(.*_)?ids?")
_SECRETS: Final = frozenset({"text", "phrase", "token", "key", "secret", "password", "arguments_json"})
_APART: Final = frozenset({"workspace", "request_id"})
"""Fields that a record has beside the arguments."""

_PLAIN: Final = re.compile(r"[\w./@~^+-]{1,200}")
"""How these names look; anything else in their place is a text."""

_DIGEST_FROM: Final = 64
_DIGEST_TO: Final = 1 << 20
"""Characters of the texts that have a digest: a shorter one could be guessed, a longer one holds up other calls."""

_MOST_IDS: Final = 10

_URLS: Final = re.compile(r"(.*_)?ur[il]")
_HOSTS: Final = re.compile(r"(.*_)?host")
"""Arguments of functions that name a URL or a host."""

_HOST: Final = re.compile(r"[a-z0-9_.:-]{1,253}")
_LONGEST_URL: Final = 4096
_LONGEST_CHOICE: Final = 100
_GREATEST: Final = 1 << 64
_MOST_ARGUMENTS: Final = 100


def redacted(request: Message) -> dict[str, Any]:
    """The fields of a request that were given, as they may be kept; the size is bounded by the number of fields."""
    kept: dict[str, Any] = {}
    for field, value in request.ListFields():
        if field.name in _APART:
            continue
        if field.is_repeated:
            kept[field.name] = _of_list(field.name, value)
        elif field.type == FieldDescriptor.TYPE_MESSAGE:
            kept[field.name] = _of_message(value)
        elif field.type == FieldDescriptor.TYPE_ENUM:
            kinds: Any = field.enum_type
            named = kinds.values_by_number.get(value)
            kept[field.name] = named.name if named is not None else value
        elif isinstance(value, float) and not math.isfinite(value):
            kept[field.name] = str(value)
        elif isinstance(value, (str, bytes)):
            kept[field.name] = _of_text(field.name, value, request.DESCRIPTOR.name)
        else:
            kept[field.name] = value
    return kept


def redacted_arguments(function: FunctionArguments) -> dict[str, Any]:
    """The arguments of a function as they may be kept.

    An argument that the function does not declare is left out: its name is a text of the caller. A package may declare
    anything, so nothing is expected of a schema.
    """
    kept: dict[str, Any] = {}
    for name, shape in _properties(function.parameters).items():
        value = function.given.get(name)
        if value is not None and name not in _APART:
            kept[name] = _of_json(name, value, shape)
    return kept


def _properties(schema: Any) -> Mapping[str, Any]:
    """The schemas of the fields of an object by name, no more of them than a record has room for."""
    found = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(found, Mapping):
        return {}
    names = [name for name in found if isinstance(name, str) and name.isidentifier() and len(name) <= _LONGEST_CHOICE]
    return {name: found[name] for name in names[:_MOST_ARGUMENTS]}


def _of_json(name: str, value: Any, shape: Any) -> Any:
    if isinstance(value, str):
        return value if _is_choice(value, shape) else _of_argument(name, value)
    if isinstance(value, list):
        return _of_list(name, value)
    if isinstance(value, Mapping):
        given = [field for field in _properties(shape) if field in value]
        return {"fields": given} if given else {"count": len(value)}
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return value if isinstance(value, int) and abs(value) < _GREATEST else {"type": type(value).__name__}


def _is_choice(value: str, shape: Any) -> bool:
    """Whether a text is one of those that the schema lists; an argument that may be left out has it within."""
    if not isinstance(shape, Mapping) or len(value) > _LONGEST_CHOICE or not value.isprintable():
        return False
    within = shape.get("anyOf")
    choices: list[Any] = []
    for each in (shape, *(within if isinstance(within, list) else ())):
        if isinstance(each, Mapping):
            listed = each.get("enum")
            choices += [each.get("const"), *(listed if isinstance(listed, list) else ())]
    return value in choices


def _of_argument(name: str, value: str) -> Any:
    if _HOSTS.fullmatch(name) and _HOST.fullmatch(value.lower()):
        return value.lower()
    if _URLS.fullmatch(name):
        host = _host(value)
        return {"host": host, "chars": len(value)} if host else {"chars": len(value)}
    return value if _is_name(name, value) else {"chars": len(value)}


def _host(url: str) -> str:
    """The host of a URL; empty if it has none, or is longer than any that is called."""
    try:
        host = (urlsplit(url).hostname or "") if len(url) <= _LONGEST_URL else ""
    except ValueError:
        return ""
    return host if _HOST.fullmatch(host) else ""


def _of_text(name: str, value: str | bytes, request: str = "") -> Any:
    if isinstance(value, bytes):
        return {"bytes": len(value)}
    if _is_name(name, value, request):
        return value
    if name in _SECRETS or not _DIGEST_FROM <= len(value) <= _DIGEST_TO:
        return {"chars": len(value)}
    return {"chars": len(value), "sha256": hashlib.sha256(value.encode()).hexdigest()[:16]}


def _is_name(name: str, value: str, request: str = "") -> bool:
    """Whether a text is an id, or the name of a branch, tag or revision, in a field for that."""
    if _IDS.fullmatch(name):
        return is_id(value) or is_hex_id(value)
    naming = name in _NAMES or (name == "name" and request.removesuffix("Request").endswith(tuple(_NAMING)))
    return naming and _PLAIN.fullmatch(value) is not None


def _of_list(name: str, values: Any) -> Any:
    if _IDS.fullmatch(name) and all(isinstance(value, str) and is_id(value) for value in values[:_MOST_IDS]):
        return list(values) if len(values) <= _MOST_IDS else {"first": list(values[:_MOST_IDS]), "count": len(values)}
    return {"count": len(values)}


def _of_message(value: Message) -> Any:
    """A message within: a time, else which of its fields were given."""
    if isinstance(value, Timestamp):
        try:
            return value.ToJsonString()
        except ValueError:  # a time that there is not
            return {"seconds": value.seconds}
    return {"fields": [field.name for field, _ in value.ListFields()]}
