"""Configurations as text: YAML that people wrote, or JSON, which is YAML too. Pure.

Numbers are read as Determined's server reads them: `1e-3` is one, which YAML 1.1 takes for a text, and `1:30` is none.
A key that is there twice is a mistake. What comes back is plain JSON whose parts are not shared, whatever the aliases.
"""

import math
import re
from itertools import count
from typing import Final

import yaml

from muster.api import errors, raw
from muster.api.raw import JSON, Document

LONGEST: Final = 1024 * 1024
MOST_VALUES: Final = 100_000
"""A text of a few lines can stand for billions of values: aliases of aliases."""

_FLOAT: Final = re.compile(
    r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*(?:[eE][-+]?[0-9]+)?|\.[0-9][0-9_]*(?:[eE][-+]?[0-9]+)?|[0-9][0-9_]*[eE][-+]?[0-9]+"
    r"|\.(?:inf|Inf|INF))|\.(?:nan|NaN|NAN)"
)
_INT: Final = re.compile(r"[-+]?(?:0b[01_]+|0x[0-9a-fA-F_]+|0[0-7_]*|[1-9][0-9_]*)")
_WHOLE: Final = 2**63


def read(text: str, field: str) -> Document:
    """`field`: where it was given. Raises TooLarge, and BadRequest with line and column."""
    if len(text) > LONGEST:
        raise errors.TooLarge(f"{field}: may have {LONGEST} characters, this has {len(text)}")
    try:
        raw.check_yaml(text)
        found: JSON = yaml.load(text, Loader=_Loader)  # noqa: S506 - of the safe ones
    except (yaml.YAMLError, ValueError) as error:
        raise errors.BadRequest(f"{field}: {raw.told(error)}") from error
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise errors.BadRequest(f"{field}: must be an object, found {raw.type_name(found)}")
    return raw.as_object(_plain(found, field, count(), 0))


def _plain(value: JSON, path: str, seen: "count[int]", depth: int) -> JSON:
    if next(seen) > MOST_VALUES or depth > raw.MAX_YAML_DEPTH:
        raise errors.BadRequest(f"{path[:80]}: there are more than {MOST_VALUES} values, or they contain themselves")
    if isinstance(value, dict):
        for name in value:
            if not isinstance(name, str):
                raise errors.BadRequest(f"{path}: a key must be a text, found {name!r}; put it in quotes")
        return {name: _plain(each, f"{path}.{name}", seen, depth + 1) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each, f"{path}[{number}]", seen, depth + 1) for number, each in enumerate(value)]
    if isinstance(value, float) and not math.isfinite(value):
        raise errors.BadRequest(f"{path}: must be a finite number")
    if isinstance(value, int) and not -_WHOLE <= value < _WHOLE:
        raise errors.BadRequest(f"{path}: is too large a number")
    if value is not None and not isinstance(value, str | int | float | bool):
        raise errors.BadRequest(f"{path}: must be a text, number, list or object, found {type(value).__name__}")
    return value


class _Loader(raw.YamlLoader):
    """See the module."""


_NUMBERS: Final = {"tag:yaml.org,2002:float": _FLOAT, "tag:yaml.org,2002:int": _INT}
_Loader.yaml_implicit_resolvers = {
    first: [
        (tag, re.compile(f"(?:{_NUMBERS[tag].pattern})$") if tag in _NUMBERS else pattern) for tag, pattern in resolvers
    ]
    for first, resolvers in raw.YamlLoader.yaml_implicit_resolvers.items()
}
