"""Label and field selectors: parsed once, hashable, matched many times.

The text forms are Kubernetes': `app=web,tier in (a,b),!legacy` and `status.phase!=Running,metadata.name=x`.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from muster.api import errors, fields
from muster.api.kinds import Kind
from muster.api.meta import LabelSelector as LabelSelectorView
from muster.api.objects import Object

_INTEGER = re.compile(r"-?[0-9]{1,19}")  # not int(): that takes `1_000`, which is a label value but no number


class Operator(StrEnum):
    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GREATER = "Gt"
    LESS = "Lt"


@dataclass(frozen=True, slots=True)
class Requirement:
    key: str
    operator: Operator
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case Operator.IN:
                return value in self.values
            case Operator.NOT_IN:
                return value not in self.values
            case Operator.EXISTS:
                return value is not None
            case Operator.DOES_NOT_EXIST:
                return value is None
            case Operator.GREATER | Operator.LESS:
                return value is not None and self._compares(value)

    def _compares(self, value: str) -> bool:
        wanted = next(iter(self.values), "")
        if not (_INTEGER.fullmatch(value) and _INTEGER.fullmatch(wanted)):
            return False
        return int(value) > int(wanted) if self.operator is Operator.GREATER else int(value) < int(wanted)

    def __str__(self) -> str:
        listed = ",".join(sorted(self.values))
        match self.operator:
            case Operator.IN:
                return f"{self.key}={listed}" if len(self.values) == 1 else f"{self.key} in ({listed})"
            case Operator.NOT_IN:
                return f"{self.key}!={listed}" if len(self.values) == 1 else f"{self.key} notin ({listed})"
            case Operator.EXISTS:
                return self.key
            case Operator.DOES_NOT_EXIST:
                return f"!{self.key}"
            case Operator.GREATER:
                return f"{self.key}>{listed}"
            case Operator.LESS:
                return f"{self.key}<{listed}"


_NOTHING = "muster.dev/nothing,!muster.dev/nothing"


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """All requirements must hold; none means everything matches. `nothing` is the selector of an absent one."""

    requirements: tuple[Requirement, ...] = ()
    nothing: bool = False

    def matches(self, labels: Mapping[str, str]) -> bool:
        if not self.requirements:  # most watch everything
            return not self.nothing
        return not self.nothing and all(requirement.matches(labels) for requirement in self.requirements)

    def __str__(self) -> str:
        # Kubernetes has no text for a selector of nothing, and "" would select everything on the other side.
        return _NOTHING if self.nothing else ",".join(map(str, self.requirements))


@dataclass(frozen=True, slots=True)
class FieldRequirement:
    path: str
    value: str
    is_negated: bool = False


@dataclass(frozen=True, slots=True)
class FieldSelector:
    requirements: tuple[FieldRequirement, ...] = ()

    def matches(self, found: Object) -> bool:
        return not self.requirements or all(
            (_extract(found, r.path) == r.value) is not r.is_negated for r in self.requirements
        )

    def __str__(self) -> str:
        return ",".join(f"{r.path}{'!=' if r.is_negated else '='}{_escape(r.value)}" for r in self.requirements)


@dataclass(frozen=True, slots=True)
class _Everything:
    labels: LabelSelector = LabelSelector()
    fields: FieldSelector = FieldSelector()


EVERYTHING = _Everything()

_METADATA: Mapping[str, Callable[[Object], str]] = {
    "metadata.name": lambda found: found.key.name,
    "metadata.namespace": lambda found: found.key.namespace,
}


def _extract(found: Object, path: str) -> str:
    own = _METADATA.get(path)
    return own(found) if own else found.kind.selectable[path](found.view)


_TOKEN = re.compile(r"\s*(?:(?P<word>[^\s,()!=<>]+)|(?P<mark>==|!=|[,()!=<>]))\s*")


def parse_labels(text: str) -> LabelSelector:
    """Raises BadRequest that shows where the text stops making sense."""
    if not text.strip():
        return EVERYTHING.labels
    tokens = _tokens(text)
    requirements = []
    while tokens:
        requirements.append(_requirement(tokens, text))
        if tokens:
            _expect(tokens, ",", text)
            if not tokens:
                raise _unparsable(text, "ends with a comma")
    return LabelSelector(tuple(requirements))


def _tokens(text: str) -> list[str]:
    tokens, position = [], 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None or match.end() == position:
            raise _unparsable(text, f"unexpected {text[position : position + 10]!r}")
        tokens.append(match["word"] or match["mark"])
        position = match.end()
    tokens.reverse()  # a stack: the next token is popped from the end
    return tokens


def _requirement(tokens: list[str], text: str) -> Requirement:
    word = tokens.pop()
    if word == "!":
        return Requirement(_key(tokens.pop() if tokens else "", text), Operator.DOES_NOT_EXIST)
    key = _key(word, text)
    if not tokens or tokens[-1] == ",":
        return Requirement(key, Operator.EXISTS)
    operator = tokens.pop()
    if operator in ("=", "==", "!="):
        value = tokens.pop() if tokens and tokens[-1] != "," else ""
        if not fields.is_label_value(value):
            raise _unparsable(text, f"{value!r} is not a label value")
        return Requirement(key, Operator.NOT_IN if operator == "!=" else Operator.IN, frozenset({value}))
    if operator in ("<", ">"):
        value = tokens.pop() if tokens else ""
        if not _INTEGER.fullmatch(value):
            raise _unparsable(text, f"{operator} wants a number, found {value!r}")
        return Requirement(key, Operator.LESS if operator == "<" else Operator.GREATER, frozenset({value}))
    if operator in ("in", "notin"):
        return Requirement(key, Operator.IN if operator == "in" else Operator.NOT_IN, _values(tokens, text))
    raise _unparsable(text, f"found {operator!r} where one of =, ==, !=, in, notin, <, > was expected")


def _values(tokens: list[str], text: str) -> frozenset[str]:
    """The list in parentheses. A place left empty is the empty value: `(a,)` means `a` or empty."""
    _expect(tokens, "(", text)
    values = set()
    while True:
        value = "" if not tokens or tokens[-1] in (",", ")") else tokens.pop()
        if not fields.is_label_value(value):
            raise _unparsable(text, f"{value!r} is not a label value")
        values.add(value)
        if tokens and tokens[-1] == ",":
            tokens.pop()
            continue
        _expect(tokens, ")", text)
        return frozenset(values)


def _key(word: str, text: str) -> str:
    if not fields.is_qualified_name(word):
        raise _unparsable(text, f"{word!r} is not a label key")
    return word


def _expect(tokens: list[str], mark: str, text: str) -> None:
    found = tokens.pop() if tokens else "the end"
    if found != mark:
        raise _unparsable(text, f"found {found!r} where {mark!r} was expected")


def _unparsable(text: str, why: str) -> errors.BadRequest:
    return errors.BadRequest(f"unable to parse selector {text!r}: {why}")


_FIELD_TERM = re.compile(r"\s*([^=!\s]+)\s*(==|!=|=)\s*(.*)", re.DOTALL)
_FIELD_TERMS = re.compile(r"(?:\\.|[^,\\]|\\\Z)+", re.DOTALL)
_ESCAPED = re.compile(r"\\([\\,=])")


def parse_fields(text: str, kind: Kind) -> FieldSelector:
    """Raises BadRequest for a field that the kind cannot be selected by. A backslash escapes a comma, = and itself."""
    requirements = []
    for term in filter(str.strip, _FIELD_TERMS.findall(text)):
        match = _FIELD_TERM.fullmatch(term)
        if match is None:
            raise errors.BadRequest(f"invalid field selector {text!r}: can't understand {term!r}")
        path, operator, value = match.groups()
        if path not in _METADATA and path not in kind.selectable:
            known = ", ".join(sorted([*_METADATA, *kind.selectable]))
            raise errors.BadRequest(f'field label not supported: "{path}" for {kind.plural}; supported are {known}')
        requirements.append(FieldRequirement(path, _unescape(value.rstrip(), text), operator == "!="))
    return FieldSelector(tuple(requirements))


def _escape(value: str) -> str:
    return re.sub(r"([\\,=])", r"\\\1", value)


def _unescape(value: str, text: str) -> str:
    if re.search(r"[\\,=]", _ESCAPED.sub("", value)):
        raise errors.BadRequest(f"invalid field selector {text!r}: write \\\\ for \\, \\, for a comma and \\= for =")
    return _ESCAPED.sub(r"\1", value)


def from_view(view: LabelSelectorView | None) -> LabelSelector:
    """The selector that an object's `labelSelector` field means: absent selects nothing, empty everything.

    Raises BadRequest for an operator that does not exist; `metadata.validate_label_selector` keeps such objects out.
    """
    if view is None:
        return LabelSelector(nothing=True)
    exact = tuple(Requirement(k, Operator.IN, frozenset({v})) for k, v in sorted((view.match_labels or {}).items()))
    listed = []
    for expression in view.match_expressions:
        if expression.operator not in ("In", "NotIn", "Exists", "DoesNotExist"):
            raise errors.BadRequest(f"{expression.operator!r} is not an operator of a label selector")
        listed.append(Requirement(expression.key, Operator(expression.operator), frozenset(expression.values)))
    return LabelSelector((*exact, *listed))
