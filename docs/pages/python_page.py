"""The page about the Python client, from its signatures and docstrings."""

import enum
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

import griffe
from markdown import made_by, prose, table

from memotree import client

INTRO = """
Everything can be imported from `memotree.client`. `Client` and its objects block until an answer arrives;
`AsyncClient`, `AsyncWorkspace`, `AsyncSession`, `AsyncRevision` and `AsyncView` have the same methods with `await`,
and with `async for` where a method gives an iterator. Results are frozen dataclasses.
"""

OBJECTS = (client.Client, client.Workspace, client.Revision, client.Session, client.View)
_WIDTH = 100
_SECTIONS = (("Attributes", "attributes"), ("Arguments", "parameters"), ("Raises", "raises"))


def page() -> str:
    """The whole page."""
    public = [getattr(client, name) for name in client.__all__]
    classes = [each for each in public if inspect.isclass(each)]
    errors = [each for each in classes if issubclass(each, Exception)]
    names = [each for each in classes if issubclass(each, enum.Enum)]
    values = [each for each in classes if is_dataclass(each)]
    parts = [made_by("Python client", "`memotree/client`"), INTRO]
    parts += [_object(each) for each in OBJECTS]
    for name in ("memory", "changes"):
        module = getattr(client, name)
        parts += [f"\n## {name}\n\n{_docstring(module)}", *_functions(name, module)]
    parts += ["\n## Results and values\n", *(_value(each) for each in values)]
    parts += ["\n## Names\n", *(_names(each) for each in names)]
    parts += ["\n## Exceptions\n", *(_value(each) for each in errors)]
    return "".join(parts)


def _object(kind: type) -> str:
    bases = [each.__name__ for each in kind.__bases__ if each in OBJECTS]
    inherits = f"\nIt has every method of [{bases[0]}](#{bases[0].lower()}) as well.\n" if bases else ""
    built = f"\n{_signature(kind.__name__, kind)}" if kind is client.Client else ""
    return f"\n## {kind.__name__}\n{built}\n{_docstring(kind)}{inherits}" + "".join(_members(kind))


def _members(kind: type) -> Iterator[str]:
    for name, member in vars(kind).items():
        if name.startswith("_"):
            continue
        if inspect.isfunction(member):
            yield f"\n### {kind.__name__}.{name}\n\n{_signature(name, member)}\n{_docstring(member)}"
        elif isinstance(member, property) or hasattr(member, "attrname"):  # a property, computed once or each time
            yield f"\n### {kind.__name__}.{name}\n\n{_docstring(member)}"


def _functions(of: str, module: Any) -> Iterator[str]:
    for name, member in vars(module).items():
        if inspect.isfunction(member) and member.__module__ == module.__name__ and not name.startswith("_"):
            yield f"\n### {of}.{name}\n\n{_signature(name, member)}\n{_docstring(member)}"


def _value(kind: type) -> str:
    told = _docstring(kind)
    meanings = dict(_entries(kind, "attributes"))
    rows = [
        (f"`{each.name}`", f"`{_clean(each.type)}`", prose(meanings.pop(each.name, "")))
        for each in (fields(kind) if is_dataclass(kind) else ())
    ]
    rows += [(f"`{name}`", "", prose(meaning)) for name, meaning in meanings.items()]
    own = [member for name, member in vars(kind).items() if isinstance(member, property) and not name.startswith("_")]
    rows += [(f"`{each.fget.__name__}`", "computed", prose(inspect.getdoc(each) or "")) for each in own if each.fget]
    return f"\n### {kind.__name__}\n\n{told}\n{table(('attribute', 'type', 'meaning'), rows)}"


def _names(kind: type[enum.Enum]) -> str:
    members = ", ".join(f"`{each.name}`" for each in kind)
    return f"\n### {kind.__name__}\n\n{_docstring(kind)}\n{members}\n"


def _signature(name: str, of: Callable[..., Any]) -> str:
    """The call in a block: on one line if it fits, else one argument on each line."""
    found = inspect.signature(of)
    arguments: list[str] = []
    keyword_only = False
    for each in list(found.parameters.values()):
        if each.name == "self":
            continue
        if each.kind is each.KEYWORD_ONLY and not keyword_only:
            keyword_only = True
            arguments.append("*")
        arguments.append(_argument(each))
    answer = found.return_annotation
    given = "" if answer is found.empty or inspect.isclass(of) else f" -> {_clean(answer)}"
    line = f"{name}({', '.join(arguments)}){given}"
    if len(line) > _WIDTH:
        line = f"{name}(\n" + "".join(f"    {each},\n" for each in arguments) + f"){given}"
    return f"```text\n{line}\n```\n"


def _argument(parameter: inspect.Parameter) -> str:
    text = str(parameter).partition(":")[0].partition("=")[0].strip()  # with its stars
    if parameter.annotation is not parameter.empty:
        text += f": {_clean(parameter.annotation)}"
    if parameter.default not in {parameter.empty, MISSING}:
        default = parameter.default
        text += f" = {default!s}" if isinstance(default, enum.Enum) else f" = {default!r}"
    return text


def _clean(annotation: Any) -> str:
    """A type as a reader writes it: without modules, and the blocking class in place of its asynchronous twin."""
    text: str = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    text = re.sub(r"\b(?:[a-z_0-9]+\.)+(?=[A-Za-z])", "", text)
    # a member of an enumeration, or its name: the names are below
    text = re.sub(r"Union\[(\w+), Literal\[[^]]*\]\]|(\w+) \| Literal\[[^]]*\]", r"\1\2 | str", text)
    return re.sub(r"\bAsync(?=[A-Z])", "", text).replace("'", "").replace('"', "")


def _parsed(of: Any) -> list[Any]:
    text = inspect.getdoc(of) or ""
    options = {"warnings": False, "warn_unknown_params": False, "warn_missing_types": False}
    return list(griffe.Docstring(text).parse("google", **options))


def _entries(of: Any, wanted: str) -> Iterator[tuple[str, str]]:
    for section in _parsed(of):
        if section.kind.value == wanted:
            for entry in section.value:
                yield getattr(entry, "name", None) or str(entry.annotation), entry.description


def _docstring(of: Any) -> str:
    """The text of a docstring, and its arguments and errors as tables; attributes are shown with the values."""
    told = [_text(section.value) for section in _parsed(of) if section.kind.value == "text"]
    for title, kind in _SECTIONS[1:]:
        rows = [(f"`{name}`", prose(meaning)) for name, meaning in _entries(of, kind)]
        if rows:
            told.append(table((title.lower(), "meaning"), rows).rstrip())
    return "\n\n".join(told) + "\n" if told else ""


def _text(text: str) -> str:
    """Prose, with the indented blocks after ``::`` as blocks."""
    parts: list[str] = []
    for paragraph in text.split("\n\n"):
        if paragraph.startswith("    "):
            parts.append(f"```text\n{textwrap.dedent(paragraph)}\n```")
        else:
            parts.append(prose(re.sub("::$", ":", paragraph)))
    return "\n\n".join(parts)
