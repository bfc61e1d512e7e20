"""The wire format of protobuf, without meaning: numbered fields that hold a number or bytes."""

from collections.abc import Iterator
from typing import TypeAlias

from muster.api import errors

Value: TypeAlias = int | bytes

_VARINT, _EIGHT_BYTES, _LENGTH, _FOUR_BYTES = 0, 1, 2, 5


def fields(data: bytes) -> Iterator[tuple[int, Value]]:
    """The fields of a message, in order. Raises BadRequest where the bytes make no sense."""
    at, end = 0, len(data)
    while at < end:
        tag, at = _varint(data, at)
        number, form = tag >> 3, tag & 7
        if number == 0:
            raise malformed("field number 0")
        if form == _VARINT:
            value, at = _varint(data, at)
            yield number, value
            continue
        if form == _LENGTH:
            length, at = _varint(data, at)
        elif form in (_EIGHT_BYTES, _FOUR_BYTES):
            length = 8 if form == _EIGHT_BYTES else 4
        else:
            raise malformed(f"wire type {form} of field {number}")
        if length > end - at:
            raise malformed(f"field {number} is cut off")
        yield number, data[at : at + length]
        at += length


def numbers(value: Value) -> Iterator[int]:
    """The numbers of a repeated field: one, or many packed together."""
    if isinstance(value, int):
        yield value
        return
    at = 0
    while at < len(value):
        number, at = _varint(value, at)
        yield number


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number of up to 64 bits, and where it ends."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise malformed("a number is cut off")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & (2**64 - 1), at
    raise malformed("a number has more than ten bytes")


def signed(value: int, bits: int) -> int:
    """Negative numbers come as their two's complement."""
    value &= 2**bits - 1
    return value - 2**bits if value >> (bits - 1) else value


def malformed(why: str) -> errors.BadRequest:
    return errors.BadRequest(f"the body is not valid protobuf: {why}")
