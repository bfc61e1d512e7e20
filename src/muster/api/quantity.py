"""Amounts of a resource as Kubernetes writes them (`500m`, `1.5Gi`, `1e3`), as exact numbers.

A quantity is a whole number of billionths. What is finer is rounded away from zero, as Kubernetes does.
What does not fit a signed 64-bit number of units is refused, not capped: a cap would be a silent lie.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache

NANO = 1_000_000_000
MAX_UNITS = 2**63 - 1

_TEXT = re.compile(r"([+-]?)(\d+\.?\d*|\.\d+)(?:([eE][+-]?\d+)|([KMGTPE]i|[numkMGTPE])?)", re.ASCII)
_LONGEST = 256
_LARGEST_EXPONENT = 64  # far outside the range in either direction; keeps `1e999999999` cheap to refuse
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_SUFFIX: Mapping[int, str] = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_BINARY_SUFFIX: Mapping[int, str] = {0: "", **{shift: suffix for suffix, shift in _BINARY.items()}}


class BadQuantity(ValueError):
    """The text is not a quantity, or not one that fits."""


class Family(StrEnum):
    """How a quantity was written, which is how it is written back."""

    DECIMAL = "decimal"
    BINARY = "binary"
    EXPONENT = "exponent"


@dataclass(frozen=True, slots=True, order=True)
class Quantity:
    """An exact amount. Equal amounts are equal however they were written."""

    nano: int
    family: Family = field(default=Family.DECIMAL, compare=False)

    @property
    def milli(self) -> int:
        """Thousandths, rounded up."""
        return -(-self.nano // 1_000_000)

    @property
    def units(self) -> int:
        """Whole units, rounded up."""
        return -(-self.nano // NANO)

    @property
    def is_whole(self) -> bool:
        return self.nano % NANO == 0

    def __add__(self, other: "Quantity") -> "Quantity":
        return Quantity(self.nano + other.nano, self.family if self.nano else other.family)

    def __sub__(self, other: "Quantity") -> "Quantity":
        return Quantity(self.nano - other.nano, self.family if self.nano else other.family)

    def __neg__(self) -> "Quantity":
        return Quantity(-self.nano, self.family)

    def __mul__(self, count: int) -> "Quantity":
        return Quantity(self.nano * count, self.family)

    def __bool__(self) -> bool:
        return self.nano != 0

    def __str__(self) -> str:
        """The canonical form: no fraction, the largest suffix that allows it."""
        # Kubernetes writes small and fractional amounts in the decimal family even where binary was asked for.
        if self.family is Family.BINARY and self.is_whole and abs(self.nano) >= 1024 * NANO:
            return _scaled_binary(self.nano // NANO)
        number, exponent = _scaled_decimal(self.nano)
        if self.family is Family.EXPONENT:
            return f"{number}e{exponent}" if exponent else str(number)
        return f"{number}{_DECIMAL_SUFFIX[exponent]}"


def _scaled_binary(units: int) -> str:
    shift = 0
    while units % 1024 == 0 and shift < 60:
        units //= 1024
        shift += 10
    return f"{units}{_BINARY_SUFFIX[shift]}"


def _scaled_decimal(nano: int) -> tuple[int, int]:
    if nano == 0:
        return 0, 0
    exponent = -9
    while nano % 1000 == 0 and exponent < 18:
        nano //= 1000
        exponent += 3
    return nano, exponent


ZERO = Quantity(0)


def from_units(units: int, family: Family = Family.DECIMAL) -> Quantity:
    return Quantity(units * NANO, family)


def from_milli(milli: int) -> Quantity:
    return Quantity(milli * 1_000_000)


def parse(value: str | int | float) -> Quantity:
    """The amount that a document's value means: text, or a bare number. Raises BadQuantity."""
    return _parse(value if isinstance(value, str) else repr(value))


def parsed_or_none(value: object) -> Quantity | None:
    """For documents that nobody has checked yet: None for whatever is no quantity."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        return parse(value)
    except BadQuantity:
        return None


@lru_cache(maxsize=65_536)
def _parse(text: str) -> Quantity:
    match = _TEXT.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        raise BadQuantity(
            f"{text[:80]!r} is not a quantity: expected a number with an optional suffix "
            "(n u m k M G T P E, Ki Mi Gi Ti Pi Ei) or exponent (1e3), such as 500m, 2 or 1.5Gi"
        )
    sign, digits, exponent_text, suffix = match.groups()
    number = Fraction(digits.removesuffix("."))
    family = Family.DECIMAL
    if exponent_text:
        family = Family.EXPONENT
        number = _raised(number, int(exponent_text[1:]), text)
    elif suffix in _BINARY:
        family = Family.BINARY
        number *= 1 << _BINARY[suffix]
    else:
        number *= Fraction(10) ** _DECIMAL[suffix or ""]
    nano = -(-number * NANO // 1)
    if nano > MAX_UNITS * NANO:
        raise _out_of_range(text)
    return Quantity(-nano if sign == "-" else nano, family)


def _raised(number: Fraction, exponent: int, text: str) -> Fraction:
    if not number:
        return number
    # The mantissa may itself be long, so it moves the bound: `0.000...1e70` is a sane number.
    if exponent > _LARGEST_EXPONENT + _LONGEST:
        raise _out_of_range(text)
    return number * Fraction(10) ** max(exponent, -_LARGEST_EXPONENT - _LONGEST)


def _out_of_range(text: str) -> BadQuantity:
    return BadQuantity(f"{text[:80]!r} is out of range: a quantity must lie between -{MAX_UNITS} and {MAX_UNITS} units")
