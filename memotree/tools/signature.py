"""The arguments of a function: a pydantic model of its signature, the JSON Schema of that, and the faults of a call.

Types are strict: a text is no number. What models often write in place of JSON, and can mean only one thing (a number,
a list or an object as a text of JSON; one value in place of a list), is read as it is meant, as for tools that call
RPCs.
"""

import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Annotated, Any, Final, get_args, get_origin, get_type_hints

from memotree_storage.errors import FieldViolation
from pydantic import ConfigDict, Field, ValidationError, create_model
from pydantic.fields import FieldInfo

from memotree.request.json_objects import distinct
from memotree.request.nearest_names import nearest_or_all, shown

MOST_FAULTS: Final = 50
"""How many faults of one call are told."""

_ARGS: Final = re.compile(r"^Args:\n((?:[ ]{4}.*\n?|\n)+)", re.MULTILINE)
_ARG: Final = re.compile(r"^ {4}(\w+)(?: \([^)]*\))?: (.+(?:\n {8}.+)*)", re.MULTILINE)
_SECTION: Final = re.compile(r"\n\n(?:Args|Returns|Raises|Yields|Errors|Attributes):")


class UndeclarableError(TypeError):
    """A function cannot be a tool; the message says what to change in it."""


class WrongArgumentsError(ValueError):
    """The arguments of a call have faults."""

    def __init__(self, violations: Sequence[FieldViolation]) -> None:
        super().__init__()
        self.violations = list(violations)


def written(arguments: Mapping[str, Any]) -> str:
    """Arguments as the text of a JSON object.

    Raises:
        WrongArgumentsError: They are no JSON.
    """
    try:
        text = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
        text.encode()
    except UnicodeEncodeError:
        faults = list(islice(_unwritten(arguments, ""), MOST_FAULTS))
    except RecursionError:
        faults = [FieldViolation("arguments", "is nested too deeply.")]
    except ValueError as error:
        fault = "has a number with too many digits." if "limit" in str(error) else "has NaN or an infinite number."
        faults = [FieldViolation("arguments", fault)]
    else:
        return text
    raise WrongArgumentsError(faults)


class Signature:
    """The arguments of a function.

    Args:
        function: The function; each of its parameters has a type. ``Annotated[int, Field(ge=1, description="…")]``
            limits and describes one; else the ``Args`` of the docstring describe it.
        without: A type of parameters that are no arguments of the tool: what the server gives.

    Raises:
        UndeclarableError: A parameter has no type, or one that JSON cannot have.
    """

    def __init__(self, function: Callable[..., Any], without: type | None = None) -> None:
        text = inspect.getdoc(function) or ""
        self.description = " ".join(_SECTION.split(f"{text}")[0].split())
        hints = _hints(function)
        fields: dict[str, Any] = {}
        self.given: dict[str, Any] = {}
        described = _described(text)
        for name, parameter in inspect.signature(function).parameters.items():
            if parameter.kind in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY}:
                raise UndeclarableError(f"{_named(function)} takes {parameter}; give each argument a name and a type.")
            if name not in hints:
                raise UndeclarableError(f"The argument {name} of {_named(function)} has no type; give it one.")
            if without is not None and hints[name] is without:
                self.given[name] = without
                continue
            default = ... if parameter.default is parameter.empty else parameter.default
            fields[name] = (_with_description(hints[name], described.get(name, "")), default)
        try:
            self.model = create_model("Arguments", __config__=_CONFIG, **fields)
            self.schema: Mapping[str, Any] = _inlined(_plain(self.model.model_json_schema()))
        except Exception as error:
            raise UndeclarableError(f"JSON cannot have the arguments of {_named(function)}: {error}") from error

    def read(self, given: Mapping[str, Any]) -> tuple[dict[str, Any], list[FieldViolation]]:
        """The arguments of a call as Python values with the defaults filled in, and the faults, each with its path.

        An argument that is ``None`` counts as not given.
        """
        meant = {name: self._meant(name, value) for name, value in given.items() if value is not None}
        try:
            text = written(meant)
        except WrongArgumentsError as error:
            return {}, error.violations
        try:
            read = self.model.model_validate_json(text, strict=True, extra="forbid")
        except ValidationError as error:
            details = error.errors(include_url=False, include_context=True, include_input=False)
            return {}, [self._fault(detail) for detail in details[: MOST_FAULTS + 1]]
        return {name: getattr(read, name) for name in type(read).model_fields}, []

    def _meant(self, name: str, value: Any) -> Any:
        """A value as it was meant, if it is a text where the schema has none, or one value where it has a list."""
        shape = self.schema["properties"].get(name, {})
        kinds = _kinds(shape)
        if isinstance(value, str) and kinds and "string" not in kinds:
            read = _parsed(value)
            value = read if _KIND_OF.get(type(read)) in kinds else value
        if kinds == {"array"} and isinstance(value, (str, int, float)):
            return [value]
        return value

    def _fault(self, detail: Any) -> FieldViolation:
        kind, where = detail["type"], [part for part in detail["loc"] if part != "[key]"]
        if kind == "json_invalid":  # what JSON allows and this reader does not, such as hundreds of levels
            return FieldViolation("arguments", "is nested too deeply.")
        path = _path(where)
        if kind == "extra_forbidden":
            known = list(self.schema["properties"]) if len(where) == 1 else []
            return FieldViolation(path, f"is not an argument{nearest_or_all(str(where[-1]), known)}")
        if kind == "literal_error":
            choices = str(detail["ctx"]["expected"]).replace("'", "").replace(" or ", ", ")
            return FieldViolation(path, f"must be one of {choices}.")
        said = _SAID.get(kind) or _sentence(str(detail["msg"]))
        return FieldViolation(path, said)


_CONFIG: Final = ConfigDict(extra="forbid")

_DEFINITIONS: Final = "#/$defs/"

_SAID: Final = {
    "missing": "is needed.",
    "string_type": "must be a text.",
    "int_type": "must be a whole number.",
    "int_from_float": "must be a whole number.",
    "int_parsing_size": "has too many digits.",
    "float_type": "must be a number.",
    "finite_number": "must be a number.",
    "bool_type": "must be true or false.",
    "list_type": "must be a list.",
    "tuple_type": "must be a list.",
    "set_type": "must be a list.",
    "dict_type": "must be an object.",
    "model_type": "must be an object.",
    "model_attributes_type": "must be an object.",
}

_KIND_OF: Final[Mapping[type, str]] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    list: "array",
    dict: "object",
}


def _kinds(shape: Mapping[str, Any]) -> set[str]:
    """The types of JSON that a schema allows; empty if it does not say so plainly."""
    if "$ref" in shape:
        return {"object"}
    if "anyOf" in shape:
        return set().union(*(_kinds(each) for each in shape["anyOf"]))
    found = shape.get("type")
    kinds = {found} if isinstance(found, str) else set()
    return kinds | ({"integer"} if "number" in kinds else set())


def _parsed(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=distinct)
    except (ValueError, RecursionError):
        return text


def _unwritten(value: Any, path: str) -> Iterator[FieldViolation]:
    """The texts that have half a surrogate pair, which is no text."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            fault = "has half a surrogate pair, which is not valid text; leave it out."
            yield FieldViolation(shown(path) or "arguments", fault)
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from _unwritten(key, path or str(key))
            yield from _unwritten(each, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from _unwritten(each, f"{path}[{number}]")


def _path(where: list[Any]) -> str:
    parts = [f"[{part}]" if isinstance(part, int) else f".{shown(part)}" for part in where]
    return "".join(parts).removeprefix(".") or "arguments"


def _sentence(message: str) -> str:
    """A fault in pydantic's words as the end of a sentence that begins with the argument."""
    told = message.removeprefix("Value error, ").removeprefix("Input ").removesuffix(".")
    return f"{told[:1].lower()}{told[1:]}."


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return get_type_hints(function, include_extras=True)
    except NameError as error:
        message = f"The types of {_named(function)} cannot be read: {error}; import them outside of TYPE_CHECKING."
        raise UndeclarableError(message) from None


def _named(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", repr(function))


def _described(text: str) -> dict[str, str]:
    """The descriptions of arguments in a docstring of Google style."""
    found = _ARGS.search(text)
    return {} if found is None else {name: " ".join(told.split()) for name, told in _ARG.findall(found[1])}


def _with_description(hint: Any, told: str) -> Any:
    if not told:
        return hint
    if get_origin(hint) is Annotated and any(
        isinstance(part, FieldInfo) and part.description for part in get_args(hint)[1:]
    ):
        return hint
    return Annotated[hint, Field(description=told)]


def _inlined(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema with each definition where it is used: in a larger document, a reference to ``#/$defs`` leads nowhere.

    A definition that needs itself stays a reference, with all definitions beside it.
    """
    definitions = schema.get("$defs", {})
    left: set[str] = set()

    def inlined(part: Any, within: tuple[str, ...]) -> Any:
        if isinstance(part, list):
            return [inlined(each, within) for each in part]
        if not isinstance(part, dict):
            return part
        rest = {key: inlined(each, within) for key, each in part.items() if key != "$ref"}
        name = str(part.get("$ref", "")).removeprefix(_DEFINITIONS)
        if not name or name not in definitions:
            return part if "$ref" in part else rest
        if name in within:
            left.add(name)
            return part
        return {**inlined(definitions[name], (*within, name)), **rest}

    found: dict[str, Any] = inlined({key: part for key, part in schema.items() if key != "$defs"}, ())
    return {**found, "$defs": definitions} if left else found


def _plain(schema: Any) -> Any:
    """A schema without the titles that pydantic makes of names, which say nothing."""
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    plain: dict[str, Any] = {}
    for key, value in schema.items():
        if key in {"properties", "$defs"}:
            plain[key] = {name: _plain(each) for name, each in value.items()}
        elif not (key == "title" and isinstance(value, str)):
            plain[key] = _plain(value) if key not in {"default", "examples", "enum", "const"} else value
    if plain.get("type") == "object" and "additionalProperties" not in plain:
        plain["additionalProperties"] = False
    if plain.get("type") == "object" and plain["additionalProperties"] is False:
        plain.setdefault("properties", {})
    return plain
