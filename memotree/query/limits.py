"""How much a query may do: the options of a request, checked, with their defaults filled in."""

import math
from dataclasses import dataclass
from typing import Final

from memotree_storage.errors import FieldViolation, InvalidInputError

from memotree.v1 import query_service_pb2 as pb

DEFAULT_CALLS: Final = 5
MOST_CALLS: Final = 20
DEFAULT_SECONDS: Final = 120.0
MOST_SECONDS: Final = 600.0
DEFAULT_BUDGET: Final = 2000
MOST_BUDGET: Final = 20_000
MOST_ANSWER_TOKENS: Final = 100_000
MOST_TEMPERATURE: Final = 2.0
MOST_ALLOWED: Final = 100

MOST_FAULTS: Final = 3
"""How many calls that cannot be made, or were made before, the model may ask for until it has to answer."""


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """How much a query may do.

    Attributes:
        with_tools: Whether the model may call tools.
        allowed: The only tools that it may call; those that are offered without being named if empty.
        calls: The most calls of tools.
        model_tokens: The most tokens that the chat model may read and write; 0 for no limit.
        answer_tokens: The most tokens of one text of the model; 0 for its own limit.
        seconds: After how many seconds the query ends.
        temperature: How freely the model chooses its words.
        budget: The most tokens of the passages that the model gets with the question.
    """

    with_tools: bool
    allowed: tuple[str, ...]
    calls: int
    model_tokens: int
    answer_tokens: int
    seconds: float
    temperature: float
    budget: int


def limits_of(options: pb.QueryOptions) -> QueryLimits:
    """The limits of a request.

    Raises:
        InvalidInputError: A number is out of bounds, or too many tools are named; every fault is listed.
    """
    faults = [
        FieldViolation(
            f"options.{name}", f"is {value:g}; give {f'0 to {most:g}' if math.isfinite(most) else '0 or more'}."
        )
        for name, value, most in (
            ("max_tool_calls", options.max_tool_calls, MOST_CALLS),
            ("max_model_tokens", options.max_model_tokens, math.inf),
            ("max_answer_tokens", options.max_answer_tokens, MOST_ANSWER_TOKENS),
            ("timeout_seconds", options.timeout_seconds, MOST_SECONDS),
            ("temperature", options.temperature, MOST_TEMPERATURE),
            ("token_budget", options.token_budget, MOST_BUDGET),
        )
        if not 0 <= value <= most
    ]
    if len(options.allowed_tools) > MOST_ALLOWED:
        named = f"names {len(options.allowed_tools)} tools; name at most {MOST_ALLOWED}."
        faults.append(FieldViolation("options.allowed_tools", named))
    if faults:
        raise InvalidInputError(" ".join(f"{each.field} {each.description}" for each in faults), faults)
    return QueryLimits(
        options.tools_enabled if options.HasField("tools_enabled") else True,
        tuple(dict.fromkeys(options.allowed_tools)),
        options.max_tool_calls or DEFAULT_CALLS,
        options.max_model_tokens,
        options.max_answer_tokens,
        options.timeout_seconds or DEFAULT_SECONDS,
        options.temperature,
        options.token_budget or DEFAULT_BUDGET,
    )
