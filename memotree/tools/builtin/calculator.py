"""The calculator: a small grammar of its own, computed as it is read.

Nothing of Python is evaluated. Length, depth and the size of every number are bounded, so no expression takes long.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated, Any, Final

from memotree_storage.errors import FieldViolation, InvalidInputError
from pydantic import Field

from memotree.tools.builtin import numbers
from memotree.tools.builtin.numbers import Number, UndefinedResultError
from memotree.tools.function_tool import tool

LONGEST: Final = 1000
"""The most characters of an expression."""

DEEPEST: Final = 50
"""How deep parentheses, signs and powers may be nested."""

_TOKEN: Final = re.compile(
    r"(?P<number>(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9][0-9_]*)(?:[eE][+-]?[0-9]{1,4}(?![0-9]))?)"
    r"|(?P<name>[A-Za-z][A-Za-z0-9]*)"
    r"|(?P<sign>\*\*|//|[-+*/%^!(),])"
)
_SPELLINGS: Final = str.maketrans(
    {
        "\N{MULTIPLICATION SIGN}": "*",
        "\N{MIDDLE DOT}": "*",
        "\N{DIVISION SIGN}": "/",
        "\N{MINUS SIGN}": "-",
        "\N{GREEK SMALL LETTER PI}": " pi ",
        "\N{NO-BREAK SPACE}": " ",
        "\t": " ",
        "\n": " ",
        "\r": " ",
    }
)

Binary = Callable[[Number, Number], Number]

_SUMS: Final[Mapping[str, Binary]] = {"+": numbers.add, "-": numbers.subtract}
_PRODUCTS: Final[Mapping[str, Binary]] = {
    "*": numbers.multiply,
    "/": numbers.divide,
    "//": numbers.floor_divide,
    "%": numbers.remainder,
}
_POWERS: Final = frozenset({"^", "**"})


class CalculationError(InvalidInputError):
    """An expression cannot be calculated; the message says where and why."""

    reason = "CALCULATION"

    def __init__(self, told: str) -> None:
        super().__init__(told, [FieldViolation("expression", told)])


@dataclass(frozen=True, slots=True)
class Calculation:
    """What an expression comes to.

    Attributes:
        result: In decimal digits, as text, so that none of them is lost.
        exact: Whether it is not rounded.
        fraction: The exact result as a fraction, if its digits do not end.
    """

    result: str
    exact: bool
    fraction: str = ""


@tool(
    category="calculation",
    title="Calculator",
    read_only=True,
    examples=({"expression": "round(1250 * 1.19 ^ 3, 2)"}, {"expression": "sqrt(2) / 0.1"}),
)
def calculator(expression: Annotated[str, Field(min_length=1, max_length=LONGEST)]) -> dict[str, Any]:
    """Calculate an expression, exactly where that is possible: 0.1 + 0.2 is 0.3.

    It knows + - * / // % ^ and !, parentheses, pi, e and tau, and the functions abs, acos, asin, atan, atan2, cbrt,
    ceil, comb, cos, cosh, degrees, exp, factorial, floor, gcd, hypot, lcm, ln, log (natural, or to a base), log10,
    log2, max, mean, median, min, perm, radians, round, sin, sinh, sqrt, sum, tan and tanh. Angles are in radians.

    Args:
        expression: Such as 2 * (3 + 4) ^ 2, or mean(3, 4, 8).
    """
    found = calculated(expression)
    data: dict[str, Any] = {"result": found.result, "exact": found.exact}
    return data | ({"fraction": found.fraction} if found.fraction else {})


def calculated(expression: str) -> Calculation:
    """What an expression comes to.

    Raises:
        CalculationError: It is not one, has no result, or needs too much.
    """
    if len(expression) > LONGEST:
        raise CalculationError(f"The expression is longer than {LONGEST} characters.")
    try:
        number = _Reader(expression).whole()
    except UndefinedResultError as error:
        raise CalculationError(str(error)) from None
    digits, is_exact = numbers.shown(number)
    fraction = "" if is_exact or not number.exact else str(number.value)
    return Calculation(digits, is_exact, fraction if len(fraction) <= _LONGEST_FRACTION else "")


_LONGEST_FRACTION: Final = 60


class _Reader:
    """Reads an expression from left to right and computes it. Each method reads one rule of the grammar.

    sum     = product (("+" | "-") product)*
    product = signed (("*" | "/" | "//" | "%") signed)*
    signed  = ("+" | "-") signed | power
    power   = value "!"* (("^" | "**") signed)?
    value   = number | constant | function "(" sum ("," sum)* ")" | "(" sum ")"
    """

    def __init__(self, expression: str) -> None:
        text = expression.translate(_SPELLINGS)
        self._tokens: list[tuple[str, str]] = []
        at = 0
        while at < len(text):
            if text[at] == " ":
                at += 1
                continue
            found = _TOKEN.match(text, at)
            if found is None:
                raise CalculationError(f"{text[at]!r} means nothing in an expression.")
            self._tokens.append((str(found.lastgroup), found[0]))
            at = found.end()
        self._at = 0
        self._depth = 0

    def whole(self) -> Number:
        """The value of the whole expression."""
        found = self._sum()
        if self._at < len(self._tokens):
            raise CalculationError(f"There is no operator before {self._tokens[self._at][1]!r}.")
        return found

    def _sum(self) -> Number:
        found = self._product()
        while operation := self._operation(_SUMS):
            found = operation(found, self._product())
        return found

    def _product(self) -> Number:
        found = self._signed()
        while operation := self._operation(_PRODUCTS):
            found = operation(found, self._signed())
        return found

    def _signed(self) -> Number:
        self._depth += 1
        if self._depth > DEEPEST:
            raise CalculationError(f"The expression is nested deeper than {DEEPEST} levels.")
        try:
            if self._next("-"):
                return numbers.subtract(numbers.exact(0), self._signed())
            return self._signed() if self._next("+") else self._power()
        finally:
            self._depth -= 1

    def _power(self) -> Number:
        found = self._value()
        while self._next("!"):
            found = numbers.factorial(found)
        if self._next(*_POWERS):
            return numbers.power(found, self._signed())
        return found

    def _value(self) -> Number:
        kind, text = self._taken("a number")
        if kind == "number":
            return _literal(text)
        if kind == "name":
            return self._named(text)
        if text != "(":
            raise CalculationError(f"A number is missing before {text!r}.")
        found = self._sum()
        self._close()
        return found

    def _named(self, name: str) -> Number:
        known = name.lower()
        if known in numbers.CONSTANTS:
            return numbers.CONSTANTS[known]
        if known not in numbers.FUNCTIONS:
            raise CalculationError(
                f"There is no function {name[:40]!r}; there are {', '.join(numbers.FUNCTIONS)}, and the constants "
                f"{', '.join(numbers.CONSTANTS)}."
            )
        if not self._next("("):
            raise CalculationError(f"{name} is a function; write its numbers in parentheses behind it.")
        function, least, most = numbers.FUNCTIONS[known]
        given = [self._sum()]
        while self._next(","):
            given.append(self._sum())
        self._close()
        if not least <= len(given) <= most:
            wanted = str(least) if least == most else f"{least} to {most}"
            raise CalculationError(f"{name} takes {wanted} numbers, not {len(given)}.")
        return function(*given)

    def _operation(self, known: Mapping[str, Binary]) -> Binary | None:
        if self._at < len(self._tokens) and self._tokens[self._at][1] in known:
            self._at += 1
            return known[self._tokens[self._at - 1][1]]
        return None

    def _next(self, *signs: str) -> bool:
        """Whether the next token is one of these signs, which is then read."""
        found = self._at < len(self._tokens) and self._tokens[self._at][1] in signs
        self._at += found
        return found

    def _taken(self, wanted: str) -> tuple[str, str]:
        if self._at >= len(self._tokens):
            raise CalculationError(f"The expression ends where {wanted} is needed.")
        self._at += 1
        return self._tokens[self._at - 1]

    def _close(self) -> None:
        if not self._next(")"):
            raise CalculationError("A parenthesis is not closed.")


def _literal(text: str) -> Number:
    return numbers.exact(Fraction(text.replace("_", "")))
