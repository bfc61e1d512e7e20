from fractions import Fraction

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from muster.api import quantity
from muster.api.quantity import BadQuantity, Quantity

POWERS = {
    "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "": Fraction(1),
    "k": Fraction(10**3), "M": Fraction(10**6), "G": Fraction(10**9), "T": Fraction(10**12), "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(2**10), "Mi": Fraction(2**20), "Gi": Fraction(2**30), "Ti": Fraction(2**40), "Pi": Fraction(2**50),
    "Ei": Fraction(2**60),
}  # fmt: skip
suffixes = st.sampled_from([*POWERS])
decimals = st.from_regex(r"\A[0-9]{1,12}(\.[0-9]{0,12})?\Z") | st.from_regex(r"\A\.[0-9]{1,12}\Z")
signs = st.sampled_from(["", "-", "+"])


def exact(sign, digits, factor):
    value = Fraction("0" + digits.removesuffix(".")) * factor
    return -value if sign == "-" else value


def rounded_away_from_zero(value):
    nano = value * 10**9
    whole = -((-abs(nano)) // 1)
    return int(whole if value >= 0 else -whole)


@given(signs, decimals, suffixes)
def test_a_suffix_means_its_power_exactly(sign, digits, suffix):
    value = exact(sign, digits, POWERS[suffix])
    assume(abs(value) <= quantity.MAX_UNITS)
    assert quantity.parse(sign + digits + suffix).nano == rounded_away_from_zero(value)


@given(signs, decimals, st.sampled_from("eE"), st.integers(-12, 6))
def test_an_exponent_means_its_power_exactly(sign, digits, letter, exponent):
    value = exact(sign, digits, Fraction(10) ** exponent)
    assert quantity.parse(f"{sign}{digits}{letter}{exponent}").nano == rounded_away_from_zero(value)


@given(signs, decimals, suffixes)
def test_the_canonical_text_means_the_same(sign, digits, suffix):
    assume(abs(exact(sign, digits, POWERS[suffix])) <= quantity.MAX_UNITS)
    parsed = quantity.parse(sign + digits + suffix)
    assert quantity.parse(str(parsed)) == parsed
    assert "." not in str(parsed)
    assert str(quantity.parse(str(parsed))) == str(parsed)


@given(st.integers(-(10**30), 10**30), st.integers(-(10**30), 10**30), st.integers(-100, 100))
def test_arithmetic_is_that_of_numbers(left, right, times):
    one, other = Quantity(left), Quantity(right)
    assert (one + other).nano == left + right
    assert (one - other).nano == left - right
    assert (-one).nano == -left
    assert (one * times).nano == left * times
    assert (one < other) == (left < right)
    assert (one == other) == (left == right)
    assert bool(one) == bool(left)


@given(st.integers(-(10**20), 10**20))
def test_whole_numbers_are_rounded_up(nano):
    found = Quantity(nano)
    assert found.units - 1 < Fraction(nano, 10**9) <= found.units
    assert found.milli - 1 < Fraction(nano, 10**6) <= found.milli
    assert found.is_whole == (Fraction(nano, 10**9).denominator == 1)


CANONICAL = {
    "a decimal number takes the largest suffix": ("100000", "100k"),
    "a fraction becomes milli": ("0.5", "500m"),
    "too small to write is rounded up to a billionth": ("0.1n", "1n"),
    "a binary suffix stays binary": ("1.5Gi", "1536Mi"),
    "a small binary amount is written plainly": ("0.5Ki", "512"),
    "a binary amount that is not whole is written in decimal": ("1.1Ki", "1126400m"),
    "an exponent stays an exponent": ("1e3", "1e3"),
    "an exponent is a multiple of three": ("12.5e-1", "1250e-3"),
    "a capital E with digits is an exponent": ("1E3", "1e3"),
    "a capital E alone is a suffix": ("1E", "1E"),
    "zero is zero in any family": ("0Gi", "0"),
    "an explicit plus is dropped": ("+1", "1"),
    "what cannot be shortened stays": ("1025", "1025"),
    "a negative amount keeps its sign": ("-2048Mi", "-2Gi"),
}


@pytest.mark.parametrize(("text", "expected"), CANONICAL.values(), ids=CANONICAL.keys())
def test_canonical_text(text, expected):
    assert str(quantity.parse(text)) == expected


@pytest.mark.parametrize(
    "text",
    ["", " ", "1 Gi", " 1", "1.5.2", "NaN", "inf", "1e", "1ki", "Gi", "1GiB", "0x10", "1_000", "--1", "٣", "1" * 300],
)
def test_what_is_no_quantity_says_what_is_expected(text):
    with pytest.raises(BadQuantity, match="not a quantity"):
        quantity.parse(text)


@pytest.mark.parametrize("text", ["1e999", "9223372036854775808", "-9223372036854775808", "8Ei", "1e99999999999"])
def test_what_does_not_fit_names_the_range(text):
    with pytest.raises(BadQuantity, match="9223372036854775807"):
        quantity.parse(text)


def test_the_edge_of_the_range_fits():
    assert quantity.parse("9223372036854775807").units == quantity.MAX_UNITS


def test_an_absurdly_small_exponent_is_the_smallest_amount():
    assert quantity.parse("1e-999999999").nano == 1
    assert quantity.parse("0e999999999").nano == 0


def test_numbers_in_a_document_are_quantities_too():
    assert quantity.parse(2) == quantity.parse("2")
    assert quantity.parse(0.5) == quantity.parse("500m")
    assert quantity.parse(1e16) == quantity.parse("10P")
    with pytest.raises(BadQuantity):
        quantity.parse(float("nan"))


@pytest.mark.parametrize("value", [None, True, [], {}, "x"])
def test_a_value_of_another_shape_is_none(value):
    assert quantity.parsed_or_none(value) is None


def test_equal_amounts_are_one_key_however_written():
    assert {quantity.parse("1Gi"), quantity.parse("1024Mi"), quantity.parse("1073741824")} == {quantity.parse("1Gi")}


def test_a_sum_is_written_like_its_first_part_that_counts():
    assert str(quantity.parse("1Gi") + quantity.parse("1024")) == "1048577Ki"
    assert str(quantity.ZERO + quantity.parse("2Gi")) == "2Gi"
