"""What a job plugin is, and how its arguments are read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeAlias

from muster.api import volcano
from muster.api.kinds import Kind
from muster.api.raw import Document


class PluginError(ValueError):
    """What a job asks of a plugin cannot be done."""


class UnknownPlugin(PluginError):
    """The job names a plugin that there is not."""


class KeyPair(NamedTuple):
    """As ssh-keygen writes them."""

    private: str
    public: str


@dataclass(frozen=True, slots=True)
class Made:
    """An object that a plugin keeps for the job."""

    kind: Kind
    document: Document
    is_updated: bool = False
    """It follows the job's edits; others stay as they were made."""


Options: TypeAlias = Mapping[str, type[str] | type[int] | type[bool]]
"""The arguments that a plugin takes, and what they hold."""


class Plugin(Protocol):
    name: str

    def change_pod(self, pod: Document, job: volcano.Job, /) -> None:
        """Change the document of a pod that is about to be made, in place."""
        ...

    def objects(self, job: volcano.Job, key: KeyPair | None, /) -> Sequence[Made]:
        """What there must be beside the pods. `key`: a fresh one, where `needs_key`."""
        ...

    @property
    def needs_key(self) -> bool: ...


class PodsOnly:
    """For plugins that only change pods."""

    needs_key = False

    def objects(self, _job: volcano.Job, _key: KeyPair | None) -> Sequence[Made]:
        return ()


@dataclass(frozen=True, slots=True)
class Arguments:
    """`--name=value` or `--name value`, one dash or two, as Go's flags are written. Reading stops at the first that is
    wrong, which `problem` names; those before it count."""

    values: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""

    def text(self, name: str, default: str) -> str:
        return self.values.get(name, default)

    def number(self, name: str, default: int) -> int:
        return int(self.values[name]) if name in self.values else default

    def flag(self, name: str, *, default: bool = False) -> bool:
        return self.values[name].lower() in _TRUE if name in self.values else default


_TRUE, _FALSE = ("1", "t", "true"), ("0", "f", "false")


def parse(listed: Sequence[str], kinds: Options) -> Arguments:
    """`kinds`: which arguments there are, and what they hold."""
    values: dict[str, str] = {}
    words = list(listed)
    while words:
        word = words.pop(0)
        stripped = word.removeprefix("-").removeprefix("-")
        if stripped == word or not stripped:
            return Arguments(values, f"{word!r} is not an argument such as --name=value")
        name, equals, value = stripped.partition("=")
        kind = kinds.get(name)
        if kind is None:
            return Arguments(values, f"--{name} is not known; known are {', '.join(sorted(kinds)) or 'none'}")
        if not equals:
            if kind is bool:
                value = "true"
            elif words:
                value = words.pop(0)
            else:
                return Arguments(values, f"--{name} needs a value")
        if not _fits(value, kind):
            return Arguments(values, f"--{name}: {value!r} is not {_WORDS[kind]}")
        values[name] = value
    return Arguments(values)


_WORDS: Mapping[type, str] = {int: "a whole number", bool: "true or false", str: "text"}


def _fits(value: str, kind: type) -> bool:
    if kind is int:
        return value.removeprefix("-").isascii() and value.removeprefix("-").isdecimal() and len(value) < 11
    return kind is not bool or value.lower() in (*_TRUE, *_FALSE)
