"""Reading a configuration to its end: every wrong field is noted with its path, and reading goes on with a default.

Which fields an object may have is not listed anywhere: those that were asked for are known, `finish` refuses the rest.
"""

import base64
import binascii
import re
import sys
from collections.abc import Sequence

from muster.api import fields
from muster.api.errors import FieldError
from muster.api.raw import JSON, Document, type_name

_DURATION = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_INT32 = 2**31 - 1
_MOST_FLOAT = sys.float_info.max
_KINDS = {
    str: "a string",
    int: "a whole number",
    bool: "true or false",
    float: "a number",
    list: "a list",
    dict: "an object",
}


class Section:
    """One object of the document. What is null, or is not there, counts as left out."""

    def __init__(self, value: JSON, path: str, errors: list[FieldError]) -> None:
        self.path = path
        self.errors = errors
        self._known: set[str] = set()
        self._document: Document = value if self._is(dict, value, path) and value is not None else {}

    def at(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name

    def has(self, name: str) -> bool:
        return self._document.get(name) is not None

    @property
    def is_empty(self) -> bool:
        return not self._document

    def take(self, name: str) -> JSON:
        """Whatever stands there: known, and not looked at."""
        self._known.add(name)
        return self._document.get(name)

    def text(self, name: str, default: str = "") -> str:
        value = self._get(name, str)
        return default if value is None else str(value)

    def required_text(self, name: str) -> str:
        value = self._get(name, str)
        if self._document.get(name) in (None, ""):
            self.errors.append(fields.required(self.at(name)))
        return str(value or "")

    def flag(self, name: str, default: bool = False) -> bool:
        value = self._get(name, bool)
        return default if value is None else bool(value)

    def number(self, name: str, default: int = 0, *, least: int = 0, most: int = _INT32) -> int:
        value = self._get(name, int)
        if value is None:
            return default
        if not least <= value <= most:
            wanted = f"must be in the range [{least}, {most}]" if most != _INT32 else f"must be {least} or more"
            self.errors.append(fields.invalid(self.at(name), value, wanted))
            return default
        return int(value)

    def fraction(self, name: str, default: float = 0.0) -> float:
        """Any finite number."""
        value = self._get(name, float)
        if value is None:
            return default
        if not -_MOST_FLOAT <= value <= _MOST_FLOAT:  # so for NaN, and for whole numbers that no float can be
            self.errors.append(fields.invalid(self.at(name), value, "must be a finite number"))
            return default
        return float(value)

    def duration(self, name: str, default: float) -> float:
        """Seconds, from text such as `1m30s`. None at all counts as left out."""
        return self.span(name) or default

    def span(self, name: str) -> float | None:
        """Seconds; None where nothing is said."""
        text = self.text(name)
        if not text:
            return None
        if text == "0":
            return 0.0
        parts = _DURATION.findall(text)
        if not parts or "".join(amount + unit for amount, unit in parts) != text:
            self.errors.append(
                fields.invalid(self.at(name), text, "must be a length of time such as 500ms, 5s or 1m30s")
            )
            return None
        return sum(float(amount) * _SECONDS[unit] for amount, unit in parts)

    def texts(self, name: str) -> Sequence[str]:
        """A list of strings."""
        listed = self._get(name, list) or ()
        return [
            str(item) for index, item in enumerate(listed) if self._is(str, item, f"{self.at(name)}[{index}]") and item
        ]

    def data(self, name: str) -> bytes:
        """Bytes, which are base64 in a document."""
        try:
            return base64.b64decode(self.text(name), validate=True)
        except (binascii.Error, ValueError):
            self.errors.append(FieldError(self.at(name), "FieldValueInvalid", "must be base64"))
            return b""

    def document(self, name: str) -> Document:
        """An object that somebody else reads."""
        value = self._get(name, dict)
        return dict(value) if value is not None else {}

    def section(self, name: str) -> "Section":
        return Section(self._get(name, dict), self.at(name), self.errors)

    def sections(self, name: str) -> Sequence["Section"]:
        listed = self._get(name, list) or ()
        return [Section(item, f"{self.at(name)}[{index}]", self.errors) for index, item in enumerate(listed)]

    def finish(self) -> None:
        """All fields have been asked for: others are mistakes."""
        known = ", ".join(sorted(self._known))
        for name in map(str, self._document):
            if name not in self._known:
                hint = fields.nearest(name, self._known)
                self.errors.append(fields.forbidden(self.at(name), f"unknown field{hint}; known here are {known}"))

    def _get(self, name: str, kind: type) -> JSON:
        self._known.add(name)
        value = self._document.get(name)
        return value if self._is(kind, value, self.at(name)) else None

    def _is(self, kind: type, value: JSON, path: str) -> bool:
        kinds = (int, float) if kind is float else (kind,)
        if value is None or (isinstance(value, kinds) and (kind is bool or not isinstance(value, bool))):
            return True
        message = f"must be {_KINDS[kind]}, found {type_name(value)}"
        self.errors.append(FieldError(path, "FieldValueTypeInvalid", message))
        return False
