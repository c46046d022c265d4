"""The calculator: exact where it can be, and never long."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from steps import Steps

from memotree.tools.builtin.calculator import DEEPEST, LONGEST, CalculationError, calculated

pytestmark = pytest.mark.requirement("TOOL-6")


@pytest.mark.parametrize(("expression", "result"), [
    ("0.1 + 0.2", "0.3"), ("1_000 * 2", "2000"), ("-2^2", "-4"), ("2^-1", "0.5"), ("2**3^2", "512"),
    ("-5 // 2", "-3"), ("-5 % 3", "1"), ("10 - 4 - 3", "3"), ("100!/98!", "9900"), ("(1 + 2) * (3 - -4)", "21"),
    ("round(2.5) + round(-2.5)", "0"), ("round(2.345, 2)", "2.35"), ("sqrt(16/25)", "0.8"),
    ("mean(1, 2, 3.6) + median(3, 1, 2, 10)", "4.7"), ("gcd(12, 18) + lcm(4, 6)", "18"),
    ("MAX(1, 7 \N{MULTIPLICATION SIGN} 6 ÷ 2) \N{MINUS SIGN} 1", "20"), ("2 ^ 64", "18446744073709551616"),
    ("1e3 + .5 + 3.", "1003.5"), ("exp(0) + ln(1)", "1"),
])  # fmt: skip
def test_what_is_exact_stays_exact(expression: str, result: str) -> None:
    found = calculated(expression)
    assert (found.result, found.exact) == (result, True)


@pytest.mark.parametrize(("expression", "value"), [
    ("sqrt(2)", math.sqrt(2)), ("sin(pi / 6)", 0.5), ("log(8, 2)", 3), ("log(e)", 1), ("log10(1e-5)", -5),
    ("8 ^ (1/3)", 2), ("exp(1) - e", 0), ("cbrt(27)", 3), ("e ^ 100", math.e**100), ("hypot(3, 4)", 5),
])  # fmt: skip
def test_what_is_rounded_says_so(expression: str, value: float) -> None:
    found = calculated(expression)
    assert not found.exact
    assert math.isclose(float(found.result), value, rel_tol=1e-13, abs_tol=1e-13)


def test_a_fraction_whose_digits_do_not_end_is_told_exactly() -> None:
    found = calculated("1/3 + 1/3")
    assert (found.result, found.exact, found.fraction) == ("0.6666666666666666666666666667", False, "2/3")


@pytest.mark.parametrize(("expression", "told"), [
    ("", "ends where a number is needed"), ("1 +", "ends where a number is needed"),
    ("2 3", "no operator before '3'"), ("2pi", "no operator before 'pi'"), ("1,000", "no operator before ','"),
    ("(1", "not closed"), ("1)", "no operator before"), ("sin 1", "in parentheses"), ("sin()", "number is missing"),
    ("sin(1, 2)", "takes 1 numbers"), ("foo(1)", "There is no function 'foo'"), ("1/0", "division by zero"),
    ("0^-1", "division by zero"), ("5 % (1 - 1)", "division by zero"), ("sqrt(-1)", "no square root"),
    ("(-8)^0.5", "no power with a fraction"), ("ln(0)", "above 0"), ("log(2, 1)", "not 1"),
    ("0.5!", "whole numbers"), ("(-1)!", "from 0 to"), ("gcd(1.5, 2)", "whole numbers"),
    ("asin(2)", "no value there"), ("__import__('os').system('id')", "means nothing"),
    ("().__class__", "means nothing|missing"), ("lambda: 1", "means nothing|no function"),
    ("open(1)", "no function 'open'"), ("eval(1)", "no function 'eval'"), ("1 if 1 else 2", "no operator before"),
    ("[1]*9", "means nothing"), ("'a'*9", "means nothing"), ("0x10", "no operator"),
    ("\u0661+\u0661", "means nothing"), ("1\x00", "means nothing"), ("\ud800", "means nothing"),
])  # fmt: skip
def test_what_is_no_expression_is_refused_readably(expression: str, told: str) -> None:
    with pytest.raises(CalculationError, match=told) as refused:
        calculated(expression)
    assert [fault.field for fault in refused.value.violations] == ["expression"]
    refused.value.message.encode()


BOMBS = [
    "9**9**9**9", "9^9^9", "((9^99)^99)^99", "2^99999999999999999999", "(1/3)^99999999", "1e9999", "1e-9999",
    "1e99999", "1e999 * 1e999", "10^1200 * 10^1200", "factorial(99999999)", "1000!!!!", "comb(999999999, 5)",
    "perm(1000, 999)", "exp(99999999)", "exp(exp(exp(10)))", "10.5 ^ 10.5 ^ 10.5", "1e900 ^ 0.5 ^ 1e900",
    "round(1/3, 99999999)", "lcm(" + ",".join("9" * 40 + str(number) for number in range(20)) + ") ^ 9",
    "sum(" + ",".join("1" * 8 for _ in range(110)) + ")", "(" * 400 + "1" + ")" * 400, "-" * 900 + "1",
    "2^" * 400 + "2", "sqrt(" * 150 + "2" + ")" * 150, "9" * 1001, "1" + "*9" * 2000, "sinh(1e300)", "tan(1e900)",
]  # fmt: skip


@pytest.mark.parametrize("expression", BOMBS)
def test_a_bomb_is_refused_soon(expression: str) -> None:
    with Steps() as counted, pytest.raises(CalculationError):
        calculated(expression)
    assert counted.count < 50_000


@pytest.mark.parametrize("expression", [
    "1^99999999999999999999999", "(-1)^99999999999999999999", "0^99999999999999999999", "9^1200 % 7",
    "1" + "+1" * 499, "1" + "*9" * 490, "1" + "/7" * 490, "sqrt(2)" + "*sqrt(3)" * 120,
    "(" * (DEEPEST - 1) + "1" + ")" * (DEEPEST - 1), "mean(" + ",".join("1" for _ in range(100)) + ")",
    "1e600 + 1e-600", "1" + "!" * 900, "1e999 / 3",
])  # fmt: skip
def test_the_largest_that_is_computed_is_computed_soon(expression: str) -> None:
    with Steps() as counted:
        assert calculated(expression).result
    assert counted.count < 200_000


OPERATORS = st.sampled_from(["+", "-", "*", "/"])


@given(st.lists(st.tuples(OPERATORS, st.fractions(max_denominator=50).map(abs)), max_size=6), st.integers(0, 99))
def test_sums_and_products_are_those_of_fractions(parts: list[tuple[str, Fraction]], first: int) -> None:
    written, expected = str(first), Fraction(first)
    for operator, value in parts:
        if operator == "/" and value == 0:
            continue
        written = f"({written}) {operator} ({value})"
        other = {"+": expected + value, "-": expected - value, "*": expected * value}
        expected = expected / value if operator == "/" else other[operator]
    found = calculated(written)
    told = Fraction(found.fraction or found.result)
    assert told == expected or math.isclose(told, expected, rel_tol=1e-20)


@given(st.text(alphabet="0123456789.+-*/%^!(),eE pisqrtlog", max_size=LONGEST + 1))
def test_any_text_is_calculated_or_refused(expression: str) -> None:
    try:
        assert calculated(expression).result
    except CalculationError as refused:
        assert refused.message  # noqa: PT017 - either is right
