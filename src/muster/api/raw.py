"""Documents as they are on the wire: plain dictionaries, with every field, known to us or not.

The store keeps a document as it came; a typed view (`meta.View`) is for reading only. This is
the one module of the package that may say `Any`: the shape of a foreign document is not ours.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec
import yaml

from muster.api import errors

JSON: TypeAlias = Any
"""Any JSON value. Narrow it before use."""

Document: TypeAlias = dict[str, Any]
"""A mutable JSON object that the holder owns."""

MAX_OBJECT_BYTES = 1_572_864  # 1.5 MiB: what etcd takes, so an object that fits here fits on Kubernetes
MAX_YAML_DEPTH = 200  # far more than any object has; what the C loader can take ends somewhere in the thousands
MAX_ALIASED_VALUES = 1_000_000

_MAPPINGS = (dict, Mapping)  # most are plain dictionaries: those are found out at once, the others asked slowly
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder()


def decode(data: bytes | bytearray | str) -> JSON:
    """Decode JSON. Raises BadRequest with the position of the mistake."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise errors.BadRequest(f"the body is not valid JSON: {error}") from error


def decode_object(data: bytes | bytearray | str) -> Document:
    return as_object(decode(data))


def as_object(value: JSON) -> Document:
    if not isinstance(value, dict):
        raise errors.BadRequest(f"expected a JSON object, found {type_name(value)}")
    return value


def decode_yaml(text: bytes | str) -> list[Document]:
    """Decode a YAML stream: its non-empty documents, `List` kinds flattened. Raises BadRequest with line and column."""
    try:
        has_aliases = check_yaml(text)
        documents = list(yaml.load_all(text, Loader=YamlLoader))
        if has_aliases and _weight(documents, {}) > MAX_ALIASED_VALUES:
            raise ValueError(f"its aliases stand for more than {MAX_ALIASED_VALUES} values")
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise errors.BadRequest(f"the file is not valid YAML: {told(error)}") from error
    return list(_flatten(documents))


def check_yaml(text: bytes | str) -> bool:
    """Of YAML, before it is loaded: whether it has aliases. The loader, which is in C, has no bound of its own: a text
    that nests deep enough would end the process. And of a key that is there twice, it takes the last without a word.
    Raises YAMLError."""
    levels: list[_Level] = []
    has_aliases = False
    for event in yaml.parse(text, Loader=YamlLoader):
        if isinstance(event, yaml.CollectionEndEvent):
            levels.pop()
        elif isinstance(event, yaml.NodeEvent):
            has_aliases = has_aliases or isinstance(event, yaml.AliasEvent)
            if levels:
                levels[-1].take(event)
            if isinstance(event, yaml.CollectionStartEvent):
                levels.append(_Level(isinstance(event, yaml.MappingStartEvent)))
            if len(levels) > MAX_YAML_DEPTH:
                raise _misread(f"there are more than {MAX_YAML_DEPTH} levels", event)
    return has_aliases


class _Level:
    """A mapping or a sequence of which the end has not been read."""

    def __init__(self, is_mapping: bool) -> None:
        self._is_mapping = is_mapping
        self._is_key = False  # what came last, in a mapping
        self._keys: set[str] = set()

    def take(self, event: yaml.NodeEvent) -> None:
        self._is_key = self._is_mapping and not self._is_key
        if not self._is_key or not isinstance(event, yaml.ScalarEvent) or event.value == "<<":
            return
        if event.value in self._keys:
            raise _misread(f"the key {event.value!r} is there already", event)
        self._keys.add(event.value)


def _misread(problem: str, event: yaml.NodeEvent) -> yaml.MarkedYAMLError:
    where: JSON = event.start_mark
    return yaml.MarkedYAMLError(None, None, problem, where)


def told(error: Exception) -> str:
    """What is wrong with a text in YAML: on one line, with the place first."""
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark is not None else ""
        return where + ", ".join(part for part in (error.context, error.problem) if part)
    if isinstance(error, yaml.reader.ReaderError):
        return f"{str(error).splitlines()[0]} (at position {error.position}); is it a text in UTF-8?"
    return " ".join(str(error).split())


def _weight(value: JSON, known: dict[int, int]) -> int:
    """How many values it is, where those that it shares count each time: a few lines can stand for billions."""
    if not isinstance(value, dict | list):
        return 1
    if id(value) not in known:
        known[id(value)] = MAX_ALIASED_VALUES  # until it is known: what contains itself has no end
        parts = value.values() if isinstance(value, dict) else value
        known[id(value)] = 1 + sum(_weight(part, known) for part in parts)
    return known[id(value)]


def _flatten(documents: Sequence[JSON]) -> Iterator[Document]:
    for document in documents:
        if document is None:
            continue
        found = as_object(document)
        items = found.get("items")
        if str(found.get("kind", "")).endswith("List") and isinstance(items, list):
            yield from _flatten(items)
        else:
            yield found


def encode(value: JSON) -> bytes:
    return _encoder.encode(value)


def to_yaml(value: JSON) -> str:
    return str(yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=False))


def copy(value: JSON) -> JSON:
    """A deep copy. There and back through bytes: five times as fast as walking, a hundred times `copy.deepcopy`."""
    return _decoder.decode(_encoder.encode(value))


def dig(value: JSON, *path: str | int, default: JSON = None) -> JSON:
    """The value at `path`, or `default` where a step is missing or of another shape."""
    for step in path:
        if isinstance(value, _MAPPINGS) and step in value:
            value = value[step]
        elif isinstance(value, list) and isinstance(step, int) and -len(value) <= step < len(value):
            value = value[step]
        else:
            return default
    return value


def section(document: Document, *path: str) -> Document:
    """The object at `path`, made where it is missing. Raises BadRequest where something else stands there."""
    for step in path:
        found = document.get(step)
        if found is None:
            found = document[step] = {}
        if not isinstance(found, dict):
            raise errors.BadRequest(f"{'.'.join(path)}: expected an object at {step!r}, found {type_name(found)}")
        document = found
    return document


def type_name(value: JSON) -> str:
    names = {dict: "object", list: "array", str: "string", bool: "boolean", int: "number", float: "number"}
    return names.get(type(value), "null" if value is None else type(value).__name__)


class YamlLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """YAML 1.1 without timestamps: Kubernetes reads `2024-01-01` as a string."""


YamlLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in YamlLoader.yaml_implicit_resolvers.items()
}


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """Multi-line strings as blocks: scripts in a ConfigMap stay readable."""


def _represent_text(dumper: _Dumper, text: str) -> JSON:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _represent_text)
