"""Settings from a file, the environment and flags, the strongest last; and what they came to, for people to read.

A key that is not known, and a value that will not do, are told with their path and where they were found.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import EnumMeta
from pathlib import Path
from types import UnionType
from typing import Final, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
import yaml

from muster.api import errors, raw
from muster.api.raw import JSON, Document
from muster.settings.sections import ADDRESS, SECRET, Section

S = TypeVar("S", bound=Section)
PREFIX: Final = "MUSTER_"
_HIDDEN: Final = "********"


@dataclass(frozen=True, slots=True)
class Given:
    """Settings from one place. `source` is what messages call it; `below`: the key that they are found under."""

    source: str
    values: Document
    below: str = ""


def from_file(path: Path) -> Given:
    """Raises BadRequest where it cannot be read."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise errors.BadRequest(f"cannot read {path}: {error.strerror}") from error
    try:
        documents = raw.decode_yaml(text)
    except errors.BadRequest as error:
        raise errors.BadRequest(f"{path}: {error.message}") from error
    merged: Document = {}
    for document in documents:
        merged = _merged(merged, document)
    return Given(str(path), without_blanks(merged))


def without_blanks(values: Document) -> Document:
    """A key with nothing behind it sets nothing."""
    return {
        name: without_blanks(value) if isinstance(value, dict) else value
        for name, value in values.items()
        if value is not None
    }


def from_environment(type: type[Section], environment: Mapping[str, str]) -> Given:
    """`MUSTER_SECURITY_TLS_CERT` is `security.tls.cert`. An empty variable sets nothing, as with most programs. Raises
    BadRequest for a name below a section that has no such key; other names are somebody else's."""
    known = {variable(path): path for path in paths(type)}
    sections = tuple({f"{PREFIX}{path[0].upper()}_" for path in known.values() if len(path) > 1})
    values: Document = {}
    for name, text in environment.items():
        path = known.get(name)
        if path is not None and text:
            _put(values, path, _read(text))
        elif path is None and name.startswith(sections):
            near = ", ".join(sorted(each for each in known if each.startswith(sections)))
            raise errors.BadRequest(f"environment: {name} is no setting; there are {near}")
    return Given("environment", values)


def from_assignments(assignments: Iterable[str]) -> Given:
    """`security.tls.cert=server.pem`, as flags have it. Raises BadRequest."""
    values: Document = {}
    for assignment in assignments:
        path, equals, text = assignment.partition("=")
        if not equals or not path:
            raise errors.BadRequest(f"--set {assignment!r}: write it as key=value, for example --set log.level=info")
        _put(values, tuple(path.split(".")), _read(text))
    return Given("--set", values)


def nested(by_path: Mapping[str, JSON]) -> Document:
    """From keys such as `security.tls.cert`."""
    values: Document = {}
    for path, value in by_path.items():
        _put(values, tuple(path.split(".")), value)
    return values


def variable(path: Sequence[str]) -> str:
    return PREFIX + "_".join(path).upper()


def paths(type: type[Section], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Of all settings."""
    for name, hint in get_type_hints(type).items():
        below = _section(hint)
        if below is not None:
            yield from paths(below, (*above, name))
        else:
            yield (*above, name)


def merge(type: type[S], given: Iterable[Given]) -> S:
    """The strongest last. Raises BadRequest that names the key and where it was found."""
    merged: Document = {}
    for each in given:
        _converted(type, each.values, each.source, each.below)
        merged = _merged(merged, each.values)
    return _converted(type, merged, "settings")


def shown(settings: Section) -> Document:
    """All settings, without what nobody should see."""
    found: Document = {}
    hints = get_type_hints(type(settings), include_extras=True)
    for name, hint in hints.items():
        value = getattr(settings, name)
        if isinstance(value, Section):
            found[name] = shown(value)
        elif isinstance(value, tuple | list) and all(isinstance(each, Section) for each in value):
            found[name] = [shown(each) for each in value]
        elif isinstance(value, str) and value and _is(hint, SECRET):
            found[name] = _HIDDEN
        elif isinstance(value, str) and _is(hint, ADDRESS):
            found[name] = without_password(value)
        elif isinstance(value, Mapping):
            found[name] = _without_secrets(value)
        else:
            found[name] = msgspec.to_builtins(value)
    return found


def without_password(url: str) -> str:
    """A URL for people to read. PostgreSQL takes a password also as a parameter."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return url
    credentials, at, place = rest.rpartition("@")
    user, colon, _ = credentials.partition(":")
    place = _PASSWORDS.sub(rf"\1={_HIDDEN}", place)
    return f"{scheme}{separator}{user}{colon and ':' + _HIDDEN}{at}{place}"


_PASSWORDS: Final = re.compile(r"(?<=[?&])(password|sslpassword)=[^&]*", re.IGNORECASE)
_TELLING: Final = ("password", "secret", "token", "auth", "key", "credential")
_VARIABLES: Final = ("environment_variables", "env")


def _without_secrets(free: JSON) -> JSON:
    """Of a document whose keys we do not know: what sounds like a secret is taken for one, and so are variables, which
    often are."""
    if isinstance(free, Mapping):
        return {
            name: _HIDDEN
            if name in _VARIABLES or (value and any(word in str(name).lower() for word in _TELLING))
            else _without_secrets(value)
            for name, value in free.items()
        }
    if isinstance(free, list | tuple):
        return [_without_secrets(each) for each in free]
    return free


def _is(hint: object, what: str) -> bool:
    """Also where it may be absent."""
    if get_origin(hint) in (Union, UnionType):
        return any(_is(each, what) for each in get_args(hint))
    return any(
        bool((each.extra or {}).get(what))
        for each in getattr(hint, "__metadata__", ())
        if isinstance(each, msgspec.Meta)
    )


def _section(hint: object) -> type[Section] | None:
    return hint if isinstance(hint, type) and issubclass(hint, Section) else None


def _read(text: str) -> JSON:
    """A number, a flag or a whole document, as YAML has them; what is none of it stays a text."""
    try:
        found: JSON = yaml.safe_load(text)
    except yaml.YAMLError:
        return text
    return found if isinstance(found, dict | list) else text


def _put(values: Document, path: Sequence[str], value: JSON) -> None:
    for name in path[:-1]:
        below = values.setdefault(name, {})
        if not isinstance(below, dict):
            raise errors.BadRequest(f"{'.'.join(path)}: {name} is a value, and has no keys")
        values = below
    values[path[-1]] = value


def _merged(below: Document, above: Document) -> Document:
    merged = dict(below)
    for name, value in above.items():
        under = merged.get(name)
        merged[name] = _merged(under, value) if isinstance(under, dict) and isinstance(value, dict) else value
    return merged


def _converted(type: type[S], values: Document, source: str, below: str = "") -> S:
    try:
        return msgspec.convert(values, type, strict=False)
    except msgspec.ValidationError as error:
        within = f"{below}." if below else ""
        raise errors.BadRequest(f"{source}: {within}{_worded(type, str(error))}") from error


def _worded(type: type[Section], text: str) -> str:
    said, _, where = text.partition(" - at `$")
    path = where.rstrip("`").removeprefix(".")
    hint = _hint_at(type, path.split(".") if path else [])
    unknown = said.removeprefix("Object contains unknown field `")
    if unknown == said:
        choices = f"; choose one of {', '.join(hint)}" if isinstance(hint, EnumMeta) else ""
        return f"{path}: {said[:1].lower()}{said[1:]}{choices}" if path else said
    key = unknown.rstrip("`")
    at = f"{path}.{key}" if path else key
    known = get_type_hints(hint) if _section(hint) is not None else ()
    return f"{at}: unknown key; known keys {f'of {path} ' if path else ''}are {', '.join(known)}"


def _hint_at(hint: object, path: Sequence[str]) -> object:
    """What the setting there may be; None where that is not known."""
    for name in path:
        section = _section(hint)
        hint = get_type_hints(section).get(name) if section is not None else None
    return hint
