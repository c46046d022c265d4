"""Generates the pages of ``docs/reference`` about errors and settings from the code.

``python -m memotree.server.reference`` writes them, ``--check`` only compares them; a test compares them too.
"""

import importlib
import inspect
import pkgutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import memotree_storage
from memotree_storage.errors import MemoTreeError
from pydantic.fields import FieldInfo

import memotree
from memotree.environment import CONFIG_VARIABLE, variable
from memotree.error_mapping import DISK, FAMILIES, HIDDEN, INTERRUPTED, Code, ErrorAnswer, foreign, status_code
from memotree.error_statuses import ERROR_STATUSES
from memotree.setting_types import written
from memotree.settings import CONFIG_NAME, Settings

FOLDER: Final = Path(__file__).resolve().parents[2] / "docs" / "reference"
"""The folder of the pages in a checkout."""

ERRORS_INTRO: Final = """\
# Errors

<!-- Made by `python -m memotree.server.reference`; do not edit. -->

Every failed call answers with a gRPC status and `google.rpc` details. `ErrorInfo` has the reason below, which is unique
in the domain `memotree`; the message says what to do next. Further details, by status:

| status | details |
|---|---|
| INVALID_ARGUMENT | `BadRequest` with every wrong field; `memotree.v1.NodeList` with candidates for an ambiguous id |
| NOT_FOUND, ALREADY_EXISTS | `ResourceInfo` |
| FAILED_PRECONDITION | `PreconditionFailure`: the reason, the subject if it is known, and the message; \
`memotree.v1.NodeList` with further nodes that the call must include |
| ABORTED | `memotree.v1.ConflictList`: for `CONFLICT` and `MERGE_CONFLICT` the conflicting edits with the values \
of both sides, for `IMPORT_RACED` only ids; the other reasons have none |
| UNAVAILABLE, `TOO_MANY_CALLS`, `REQUEST_NOT_RECEIVED` | `RetryInfo`: the same call may be sent again |
| INTERNAL | none: the cause is in the server's log |

`RequestInfo.request_id` is the id of the call in the log. The details of one status stay below 8 KiB, the limit of many
clients: long texts are cut (`ErrorInfo.metadata` has `shortened`), and so are long lists (`omitted` has the number of
omitted entries).

What the transport limits is refused with the same details: too many calls, a message over `max_message_bytes`, a
request that is no message or does not come, and a service or method that the server does not have, which is told the
nearest one. gRPC itself answers only beyond these, with a plain status that has a message and no details:

- RESOURCE_EXHAUSTED for a message over 1.25 times `max_message_bytes`, which gRPC does not hand over, and for calls
  that are begun while twice `max_concurrent_calls` and 128 more have begun and not ended.
- RESOURCE_EXHAUSTED for metadata over 16 KiB.
- UNIMPLEMENTED for a compression that gRPC does not have.
- UNAVAILABLE, without a server, while the connection is made or lost; CANCELLED and DEADLINE_EXCEEDED, which a client
  gives itself.

Over HTTP, the failure of a call is JSON with `code` (the reason), `status`, `message` and `details`; the status of a
body over `max_message_bytes` is 413. Only the 503 for connections beyond twice `max_concurrent_calls` and 128 more is
plain text.
"""

SETTINGS_INTRO: Final = f"""\
# Settings

<!-- Made by `python -m memotree.server.reference`; do not edit. -->

A setting is an environment variable or a key of the TOML file `{CONFIG_NAME}` in the working folder
(`{CONFIG_VARIABLE}` names another file). A command-line flag overrides the variable, and the variable overrides the
file. Unknown names are refused. Durations are written as `500ms`, `45s`, `30m`, `12h` or `7d`, sizes as `1MiB` or a
number of bytes. `memotree config check` finds what is wrong with them, and `memotree config show` shows which value
each setting has and where it was given.

## The file

A key may stand in tables, whose names begin its name: `[postgres]` with `url` is the setting `postgres_url`, and
`[postgres.pool]` with `max` is `postgres_pool_max`. A setting that is given in two forms is refused. In a text of the
file, `${{NAME}}` is replaced by the environment variable `NAME`, which must be set and not empty; `$${{` stands for the
signs `${{` themselves. So secrets need not stand in the file:

```toml
log_level = "warning"
session_ttl = "14d"

[postgres]
url = "postgresql://memotree:${{POSTGRES_PASSWORD}}@db.example/memotree"
pool_max = 32

[chat]
url = "https://models.example/v1"
model = "small"
api_key = "${{MODELS_KEY}}"
```

`memotree config reload` makes a running server read the file again. `log_level`, `log_format`,
`model_requests_per_minute`, `tools_level`, `tools_allowed`, `tools_calls_per_minute` and `tools_burst` take effect at
once; for each other setting that differs, the command says that it needs a restart. A file with a fault changes
nothing. (The signal SIGHUP stops the server, as a closed terminal does.)

A variable that goes into a URL has signs such as `@` and `/` already written as `%40` and `%2F`.

## All settings

| variable | key | default | meaning |
|---|---|---|---|
"""


def import_all() -> None:
    """Import all modules of both packages, so that every error class is defined."""
    for package in (memotree, memotree_storage):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__") and ".conformance" not in module.name:
                importlib.import_module(module.name)


def error_classes() -> list[type[MemoTreeError]]:
    """All imported error classes of both packages, ordered by reason."""

    def below(kind: type[MemoTreeError]) -> Iterator[type[MemoTreeError]]:
        yield kind
        for child in kind.__subclasses__():
            yield from below(child)

    found = {kind for kind in below(MemoTreeError) if kind.__module__.startswith(("memotree.", "memotree_storage."))}
    return sorted(found, key=lambda kind: (kind.reason, kind.__qualname__))


def foreign_answers() -> Mapping[str, ErrorAnswer]:
    """The answers to errors of other libraries, by reason."""
    answers = (*(answer for _, answer in foreign()), DISK, INTERRUPTED)
    return {answer.reason: answer for answer in answers}


def errors_page() -> str:
    """The text of ``errors.md``: every reason under its status code."""
    rows: dict[Code, dict[str, str]] = {}
    for kind in error_classes():
        if kind is not MemoTreeError:
            rows.setdefault(status_code(kind), {})[kind.reason] = _first_sentence(kind)
    for reason, answer in {**foreign_answers(), HIDDEN.reason: HIDDEN}.items():
        rows.setdefault(answer.code, {}).setdefault(reason, answer.message)
    families = {kind.reason for kind in FAMILIES}
    by_code = {each.code: each for each in ERROR_STATUSES}
    parts = [ERRORS_INTRO]
    for code in sorted(rows, key=lambda code: code.value[0]):
        told = by_code[code]
        parts.append(f"\n## {code.name}\n\n`{told.client}` in the Python client, {told.http} over HTTP.\n")
        parts.append("\n| reason | when |\n|---|---|\n")
        order = sorted(rows[code], key=lambda reason: (reason not in families, reason))
        parts += [f"| `{reason}` | {rows[code][reason]} |\n" for reason in order]
    return "".join(parts)


def settings_page() -> str:
    """The text of ``settings.md``: every setting in the order of the model."""
    rows = [
        f"| `{variable(name)}` | `{name}` | {_default(field)} | {field.description} |\n"
        for name, field in Settings.model_fields.items()
    ]
    return SETTINGS_INTRO + "".join(rows)


def _first_sentence(kind: type[MemoTreeError]) -> str:
    text = " ".join((inspect.getdoc(kind) or "").split("\n\n")[0].split())
    return text.replace("|", r"\|")


def _default(field: FieldInfo) -> str:
    """A default as a person would write it in the TOML file."""
    if field.default_factory is not None:
        return "`~/.local/share/memotree` (below `XDG_DATA_HOME` when set)"
    value: Any = field.default
    if value is None or value in ("", (), {}):
        return "none"
    return f"`{written(value)}`"


def stale_pages() -> list[str]:
    """The names of the pages that differ from what the code generates."""
    return [name for name, text in _pages().items() if _read(FOLDER / name) != text]


def _pages() -> Mapping[str, str]:
    import_all()
    return {"errors.md": errors_page(), "settings.md": settings_page()}


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def main() -> int:
    """Write the pages, or with ``--check`` compare them; the exit status is 1 if a page differs."""
    if "--check" in sys.argv:
        stale = stale_pages()
        if stale:
            sys.stderr.write(f"Stale: {', '.join(stale)}. Run `python -m memotree.server.reference`.\n")
        return int(bool(stale))
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in _pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
