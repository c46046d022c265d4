"""Numbers of the calculator: fractions, exact as long as they can be, and of bounded size.

Only roots, logarithms and the like round: to 40 digits, or to the 15 of a float for angles. Each operation looks at the
size of its result before it computes it, so that none takes long.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal, DecimalException, DivisionByZero, InvalidOperation, Overflow
from fractions import Fraction
from functools import reduce
from typing import Final

MOST_BITS: Final = 4096
"""The most binary digits of a numerator or denominator: about 1,230 decimal digits."""

DIGITS: Final = 40
"""The digits to which an inexact number is rounded."""

SHOWN_DIGITS: Final = 28
"""The digits of an inexact number that are shown."""

_FLOAT_DIGITS: Final = 15
_MOST_FACTORS: Final = 1000
"""The greatest number of which factorials and the like are computed."""

_CONTEXT: Final = Context(
    prec=DIGITS, Emax=9999, Emin=-9999, traps=[InvalidOperation, DivisionByZero, Overflow], clamp=0
)


class UndefinedResultError(ValueError):
    """An operation has no result; the message is a sentence about its numbers."""


@dataclass(frozen=True, slots=True)
class Number:
    """A number, and whether it is exact."""

    value: Fraction
    exact: bool = True

    @property
    def is_whole(self) -> bool:
        """Whether it has no fraction."""
        return self.value.denominator == 1


def whole(number: Number, what: str) -> int:
    """The number as an ``int``.

    Raises:
        UndefinedResultError: It has a fraction.
    """
    if not number.is_whole:
        raise UndefinedResultError(f"{what} needs whole numbers.")
    return number.value.numerator


def exact(value: Fraction | int) -> Number:
    """An exact number.

    Raises:
        UndefinedResultError: It has too many digits.
    """
    return _bounded(Fraction(value), exact=True)


def _bounded(value: Fraction, *, exact: bool) -> Number:
    if value.numerator.bit_length() > MOST_BITS or value.denominator.bit_length() > MOST_BITS:
        raise UndefinedResultError("The result has more than 1,200 digits.")
    return Number(value, exact)


def rounded(value: Decimal | float) -> Number:
    """An inexact number."""
    try:
        number = Decimal(value) if isinstance(value, Decimal) else Decimal(repr(value))
        return _bounded(Fraction(_CONTEXT.plus(number)), exact=False)
    except (DecimalException, ValueError, OverflowError):
        raise UndefinedResultError("The result is not a finite number.") from None


def decimal(number: Number) -> Decimal:
    """The number as a decimal of 40 digits."""
    top, bottom = Decimal(number.value.numerator), Decimal(number.value.denominator)
    return _CONTEXT.divide(top, bottom)


def _both(value: Fraction, *numbers: Number) -> Number:
    """The result of an operation that is exact if its numbers are."""
    if all(number.exact for number in numbers):
        return exact(value)
    return rounded(decimal(_bounded(value, exact=False)))


def _sized(*bits: int) -> None:
    if sum(bits) > MOST_BITS + 64:
        raise UndefinedResultError("The result has more than 1,200 digits.")


def _bits(number: Number) -> int:
    return max(number.value.numerator.bit_length(), number.value.denominator.bit_length())


def add(left: Number, right: Number) -> Number:
    """The sum."""
    return _both(left.value + right.value, left, right)


def subtract(left: Number, right: Number) -> Number:
    """The difference."""
    return _both(left.value - right.value, left, right)


def multiply(left: Number, right: Number) -> Number:
    """The product."""
    return _both(left.value * right.value, left, right)


def divide(left: Number, right: Number) -> Number:
    """The quotient."""
    _refuse_zero(right)
    return _both(left.value / right.value, left, right)


def floor_divide(left: Number, right: Number) -> Number:
    """The quotient, rounded down."""
    _refuse_zero(right)
    return _both(Fraction(left.value // right.value), left, right)


def remainder(left: Number, right: Number) -> Number:
    """What is left of a division; it has the sign of the divisor."""
    _refuse_zero(right)
    return _both(left.value % right.value, left, right)


def _refuse_zero(divisor: Number) -> None:
    if divisor.value == 0:
        raise UndefinedResultError("There is a division by zero.")


def power(base: Number, exponent: Number) -> Number:
    """The power; exact for a whole exponent."""
    if base.value == 0 and exponent.value < 0:
        raise UndefinedResultError("There is a division by zero.")
    if exponent.is_whole and base.exact and exponent.exact:
        times = exponent.value.numerator
        if abs(base.value) != 1 and base.value != 0:
            _sized(abs(times) * (_bits(base) - 1))
        else:
            times %= 2 if base.value != 0 else max(times, 1) + 1
        return exact(base.value**times)
    if base.value < 0 and not exponent.is_whole:
        raise UndefinedResultError("A negative number has no power with a fraction.")
    return _computed(_CONTEXT.power, base, exponent)


def _computed(function: Callable[..., Decimal], *numbers: Number) -> Number:
    try:
        return rounded(function(*map(decimal, numbers)))
    except DecimalException:
        raise UndefinedResultError("The result is not a finite number.") from None


def square_root(number: Number) -> Number:
    """The square root; exact if there is an exact one."""
    if number.value < 0:
        raise UndefinedResultError("A negative number has no square root.")
    top, bottom = math.isqrt(number.value.numerator), math.isqrt(number.value.denominator)
    if number.exact and Fraction(top, bottom) ** 2 == number.value:
        return exact(Fraction(top, bottom))
    return _computed(_CONTEXT.sqrt, number)


def logarithm(number: Number, base: Number | None = None) -> Number:
    """The natural logarithm, or that to a base."""
    if number.value <= 0 or (base is not None and (base.value <= 0 or base.value == 1)):
        raise UndefinedResultError("A logarithm needs a number above 0, and a base above 0 that is not 1.")
    if base is None:
        return exact(0) if number.value == 1 else _computed(_CONTEXT.ln, number)
    if base.value == 10:  # noqa: PLR2004 - the base ten
        return _computed(_CONTEXT.log10, number)
    return divide(_computed(_CONTEXT.ln, number), _computed(_CONTEXT.ln, base))


def exponential(number: Number) -> Number:
    """The power of e."""
    return exact(1) if number.value == 0 else _computed(_CONTEXT.exp, number)


def of_floats(function: Callable[..., float]) -> Callable[..., Number]:
    """A function of floats as one of numbers, with 15 digits."""

    def computed(*numbers: Number) -> Number:
        try:
            found = function(*(float(number.value) for number in numbers))
            return rounded(float(f"{found:.{_FLOAT_DIGITS}g}"))
        except (ValueError, OverflowError):
            raise UndefinedResultError("The function has no value there.") from None

    return computed


def round_to(number: Number, digits: Number | None = None) -> Number:
    """The number with so many digits after the point; a half is rounded away from zero."""
    places = 0 if digits is None else whole(digits, "round")
    if abs(places) > _MOST_FACTORS:
        raise UndefinedResultError(f"round takes at most {_MOST_FACTORS} digits.")
    scale = Fraction(10) ** places
    scaled = abs(number.value) * scale + Fraction(1, 2)
    found = Fraction(math.floor(scaled)) / scale
    return _both(found if number.value >= 0 else -found, number)


def factorial(number: Number) -> Number:
    """The factorial."""
    return exact(math.factorial(_counted("factorial", number)[0]))


def combinations(total: Number, chosen: Number) -> Number:
    """In how many ways some of a total can be chosen."""
    return exact(math.comb(*_counted("comb", total, chosen)))


def permutations(total: Number, chosen: Number) -> Number:
    """In how many ways some of a total can be chosen, when their order matters."""
    return exact(math.perm(*_counted("perm", total, chosen)))


def _counted(what: str, *numbers: Number) -> Sequence[int]:
    found = [whole(number, what) for number in numbers]
    if min(found) < 0 or max(found) > _MOST_FACTORS:
        raise UndefinedResultError(f"{what} takes numbers from 0 to {_MOST_FACTORS}.")
    return found


def mean(*numbers: Number) -> Number:
    """The mean."""
    return divide(reduce(add, numbers), exact(len(numbers)))


def median(*numbers: Number) -> Number:
    """The number in the middle, or the mean of the two there."""
    ordered = sorted(numbers, key=lambda number: number.value)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else mean(*ordered[middle - 1 : middle + 1])


def _of_integers(function: Callable[..., int], what: str) -> Callable[..., Number]:
    def computed(*numbers: Number) -> Number:
        found = [whole(number, what) for number in numbers]
        _sized(*(value.bit_length() for value in found) if what == "lcm" else (0,))
        return exact(function(*found))

    return computed


def _least(*numbers: Number) -> Number:
    return min(numbers, key=lambda number: number.value)


def _greatest(*numbers: Number) -> Number:
    return max(numbers, key=lambda number: number.value)


def _floor(number: Number) -> Number:
    return _both(Fraction(math.floor(number.value)), number)


def _ceiling(number: Number) -> Number:
    return _both(Fraction(math.ceil(number.value)), number)


def _absolute(number: Number) -> Number:
    return _both(abs(number.value), number)


def _base_ten(number: Number) -> Number:
    return logarithm(number, exact(10))


def _base_two(number: Number) -> Number:
    return logarithm(number, exact(2))


ANY: Final = 100
"""The most arguments of a function that takes any number of them."""

FUNCTIONS: Final[Mapping[str, tuple[Callable[..., Number], int, int]]] = {
    "abs": (_absolute, 1, 1),
    "acos": (of_floats(math.acos), 1, 1),
    "asin": (of_floats(math.asin), 1, 1),
    "atan": (of_floats(math.atan), 1, 1),
    "atan2": (of_floats(math.atan2), 2, 2),
    "cbrt": (of_floats(math.cbrt), 1, 1),
    "ceil": (_ceiling, 1, 1),
    "comb": (combinations, 2, 2),
    "cos": (of_floats(math.cos), 1, 1),
    "cosh": (of_floats(math.cosh), 1, 1),
    "degrees": (of_floats(math.degrees), 1, 1),
    "exp": (exponential, 1, 1),
    "factorial": (factorial, 1, 1),
    "floor": (_floor, 1, 1),
    "gcd": (_of_integers(math.gcd, "gcd"), 1, ANY),
    "hypot": (of_floats(math.hypot), 2, 2),
    "lcm": (_of_integers(math.lcm, "lcm"), 1, ANY),
    "ln": (logarithm, 1, 1),
    "log": (logarithm, 1, 2),
    "log10": (_base_ten, 1, 1),
    "log2": (_base_two, 1, 1),
    "max": (_greatest, 1, ANY),
    "mean": (mean, 1, ANY),
    "median": (median, 1, ANY),
    "min": (_least, 1, ANY),
    "perm": (permutations, 2, 2),
    "radians": (of_floats(math.radians), 1, 1),
    "round": (round_to, 1, 2),
    "sin": (of_floats(math.sin), 1, 1),
    "sinh": (of_floats(math.sinh), 1, 1),
    "sqrt": (square_root, 1, 1),
    "sum": (lambda *numbers: reduce(add, numbers), 1, ANY),
    "tan": (of_floats(math.tan), 1, 1),
    "tanh": (of_floats(math.tanh), 1, 1),
}
"""Each function with the least and the most numbers that it takes."""

CONSTANTS: Final[Mapping[str, Number]] = {
    "pi": rounded(Decimal("3.141592653589793238462643383279502884197")),
    "e": rounded(Decimal("2.718281828459045235360287471352662497757")),
    "tau": rounded(Decimal("6.283185307179586476925286766559005768394")),
}


def shown(number: Number) -> tuple[str, bool]:
    """The number in decimal digits, and whether these are exact."""
    value = number.value
    if number.exact and number.is_whole:
        return str(value.numerator), True
    if number.exact and (places := _places(value.denominator)) is not None:
        digits = str(abs(value.numerator) * 10**places // value.denominator).rjust(places + 1, "0")
        sign = "-" if value < 0 else ""
        return f"{sign}{digits[:-places]}.{digits[-places:]}", True
    found = Context(prec=SHOWN_DIGITS, Emax=9999, Emin=-9999).plus(decimal(number)).normalize()
    return f"{found:f}" if -_FLOAT_DIGITS < found.adjusted() < SHOWN_DIGITS else f"{found:E}", False


def _places(denominator: int) -> int | None:
    """How many digits after the point a fraction has; ``None`` if they do not end."""
    twos = fives = 0
    while denominator % 2 == 0:
        denominator, twos = denominator // 2, twos + 1
    while denominator % 5 == 0:
        denominator, fives = denominator // 5, fives + 1
    return max(twos, fives) if denominator == 1 else None
