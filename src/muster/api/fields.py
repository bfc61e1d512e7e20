"""Shared checks of field values: names, labels, ranges. Each returns the errors it found, with their paths.

Validation of a kind is `validate(view) -> list[FieldError]`: collect everything, raise nothing.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sized
from difflib import get_close_matches
from functools import lru_cache

from muster.api import quantity
from muster.api.errors import FieldError
from muster.api.quantity import BadQuantity
from muster.api.scalars import QuantityText

_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_DNS_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")
_ENV_NAME = re.compile(r"[ -<>-~]+")
MAX_ANNOTATIONS_BYTES = 262_144
LONGEST_LABEL = 63
LONGEST_SUBDOMAIN = 253

DNS_LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character (e.g. 'my-name',  or '123-abc')"
)
DNS_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com')"
)
QUALIFIED_NAME_RULE = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc'), with an optional DNS subdomain prefix and '/'"
)
LABEL_VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345')"
)


def required(path: str, message: str = "Required value") -> FieldError:
    return FieldError(path, "FieldValueRequired", message)


def invalid(path: str, value: object, message: str) -> FieldError:
    return FieldError(path, "FieldValueInvalid", f"Invalid value: {_show(value)}: {message}")


def unsupported(path: str, value: object, supported: Collection[str]) -> FieldError:
    listed = ", ".join(f'"{item}"' for item in sorted(supported))
    return FieldError(path, "FieldValueNotSupported", f"Unsupported value: {_show(value)}: supported values: {listed}")


def forbidden(path: str, message: str) -> FieldError:
    return FieldError(path, "FieldValueForbidden", f"Forbidden: {message}")


def duplicate(path: str, value: object) -> FieldError:
    return FieldError(path, "FieldValueDuplicate", f"Duplicate value: {_show(value)}")


def not_found(path: str, value: object) -> FieldError:
    return FieldError(path, "FieldValueNotFound", f"Not found: {_show(value)}")


def too_long(path: str, limit: int) -> FieldError:
    return FieldError(path, "FieldValueTooLong", f"Too long: may not be more than {limit} bytes")


def too_many(path: str, found: int, limit: int) -> FieldError:
    return FieldError(path, "FieldValueTooMany", f"Too many: {found}: must have at most {limit} items")


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of a message about a name that is not known: "; did you mean …?", or nothing where none is close."""
    close = get_close_matches(name, list(known), 1)
    return f"; did you mean {close[0]}?" if close else ""


def immutable(path: str, old: object, new: object) -> Iterator[FieldError]:
    if old != new:
        yield FieldError(path, "FieldValueInvalid", f"Invalid value: {_show(new)}: field is immutable")


def _show(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    text = value if isinstance(value, str) else repr(value)
    return f'"{text[:200]}"'


def is_dns_label(text: str) -> bool:
    return len(text) <= LONGEST_LABEL and _DNS_LABEL.fullmatch(text) is not None


def is_dns_subdomain(text: str) -> bool:
    return len(text) <= LONGEST_SUBDOMAIN and _DNS_SUBDOMAIN.fullmatch(text) is not None


@lru_cache(maxsize=4096)
def is_qualified_name(text: str) -> bool:
    """Asked with every object, mostly of keys that many objects have."""
    prefix, slash, name = text.rpartition("/")
    if slash and not is_dns_subdomain(prefix):
        return False
    return 0 < len(name) <= LONGEST_LABEL and _LABEL_NAME.fullmatch(name) is not None


def is_label_value(text: str) -> bool:
    return not text or (len(text) <= LONGEST_LABEL and _LABEL_NAME.fullmatch(text) is not None)


def at_most_characters(path: str, text: str, limit: int) -> Iterator[FieldError]:
    if len(text) > limit:
        yield invalid(path, text, f"must be no more than {limit} characters")


def dns_label(path: str, text: str) -> Iterator[FieldError]:
    if not text:
        yield required(path)
    else:
        yield from at_most_characters(path, text, LONGEST_LABEL)
        if _DNS_LABEL.fullmatch(text) is None:
            yield invalid(path, text, DNS_LABEL_RULE)


def dns_subdomain(path: str, text: str) -> Iterator[FieldError]:
    if not text:
        yield required(path)
    else:
        yield from at_most_characters(path, text, LONGEST_SUBDOMAIN)
        if _DNS_SUBDOMAIN.fullmatch(text) is None:
            yield invalid(path, text, DNS_SUBDOMAIN_RULE)


def qualified_name(path: str, text: str) -> Iterator[FieldError]:
    if not is_qualified_name(text):
        yield invalid(path, text, QUALIFIED_NAME_RULE)


def env_name(path: str, text: str) -> Iterator[FieldError]:
    if not text:
        yield required(path)
    elif _ENV_NAME.fullmatch(text) is None:
        yield invalid(path, text, "must consist of printable ASCII characters other than '='")


def labels(path: str, mapping: Mapping[str, str] | None) -> Iterator[FieldError]:
    for key, value in (mapping or {}).items():
        yield from qualified_name(path, key)
        if not is_label_value(value):
            yield from label_value(path, value)


def label_value(path: str, text: str) -> Iterator[FieldError]:
    yield from at_most_characters(path, text, LONGEST_LABEL)
    if text and _LABEL_NAME.fullmatch(text) is None:
        yield invalid(path, text, LABEL_VALUE_RULE)


def annotations(path: str, mapping: Mapping[str, str] | None) -> Iterator[FieldError]:
    size = 0
    for key, value in (mapping or {}).items():
        yield from qualified_name(path, key.lower())
        size += len(key.encode()) + len(value.encode())
    if size > MAX_ANNOTATIONS_BYTES:
        yield too_long(path, MAX_ANNOTATIONS_BYTES)


def one_of(path: str, value: str | None, supported: Collection[str]) -> Iterator[FieldError]:
    """An absent value is fine here: defaults have run, so absent means optional."""
    if value is not None and value not in supported:
        yield unsupported(path, value, supported)


def non_negative(path: str, value: int | None) -> Iterator[FieldError]:
    if value is not None and value < 0:
        yield invalid(path, value, "must be greater than or equal to 0")


def positive(path: str, value: int | None) -> Iterator[FieldError]:
    if value is not None and value <= 0:
        yield invalid(path, value, "must be greater than 0")


def amount(path: str, value: QuantityText | None) -> Iterator[FieldError]:
    """A quantity that is not negative. Absent is fine."""
    if value is None:
        return
    try:
        parsed = quantity.parse(value)
    except BadQuantity as error:
        yield invalid(path, value, str(error))
        return
    if parsed < quantity.ZERO:
        yield invalid(path, value, "must be greater than or equal to 0")


def unique(path: str, values: Collection[str], field: str = "") -> Iterator[FieldError]:
    """Each value at most once; `path[i].field` is named for each repeat."""
    seen: set[str] = set()
    for index, value in enumerate(values):
        if value in seen:
            yield duplicate(f"{path}[{index}]{'.' + field if field else ''}", value)
        seen.add(value)


def at_most(path: str, items: Sized, limit: int) -> Iterator[FieldError]:
    if len(items) > limit:
        yield too_many(path, len(items), limit)
