"""What the platform must know of a kind to store, serve and check it, as one value.

A group package (`api.core`, `api.kueue`, ...) exports its `KINDS`; `api.registry` collects them.
Other versions of a kind are served by converting documents at the edge: one version is stored.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

from muster.api.errors import FieldError
from muster.api.meta import Resource
from muster.api.raw import JSON, Document

AView: TypeAlias = JSON
"""The kind's own view type, which a table over all kinds cannot name."""


def _nothing(document: Document) -> None:
    """No defaults."""


def _no_errors(_view: AView) -> list[FieldError]:
    return []


def _no_update_errors(_old: AView, _new: AView) -> list[FieldError]:
    return []


def _as_is(document: Document) -> Document:
    return document


@dataclass(frozen=True, slots=True)
class Conversion:
    """How one more served version maps onto the stored one. Both functions may change and return their argument."""

    version: str
    to_stored: Callable[[Document], Document] = _as_is
    from_stored: Callable[[Document], Document] = _as_is
    group: str | None = None  # where the other version lives in another group (Event)


@dataclass(frozen=True, eq=False)
class Kind:
    """One kind of object. Compared by identity: there is one value for each kind."""

    group: str
    version: str
    name: str
    plural: str
    view: type[Resource]
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: frozenset[str] = frozenset({"status"})
    built_in: bool = False
    """Built into Kubernetes: takes strategic merge patches, may come as protobuf. Others behave like CRDs."""
    default: Callable[[Document], None] = _nothing
    """Fills in what a user may leave out, in place. Must accept any shape and leave wrong ones alone."""
    validate: Callable[[AView], Sequence[FieldError]] = _no_errors
    validate_new: Callable[[AView], Sequence[FieldError]] = _no_errors
    """Called after `validate` for what is created: rules that what exists already may break."""
    validate_update: Callable[[AView, AView], Sequence[FieldError]] = _no_update_errors
    """Called with (old, new) after `validate`: immutable fields."""
    selectable: Mapping[str, Callable[[AView], str]] = field(default_factory=dict)
    """Field selectors beyond metadata.name and metadata.namespace."""
    conversions: tuple[Conversion, ...] = ()

    @cached_property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @cached_property
    def resource(self) -> str:
        """The name in error messages: `pods`, `jobs.batch`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @cached_property
    def has_status(self) -> bool:
        return "status" in self.subresources

    def __repr__(self) -> str:
        return f"<Kind {self.api_version} {self.name}>"
