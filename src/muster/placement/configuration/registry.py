"""Makes plugins by name: those that come with Muster, and others through whoever can load them."""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import TypeAlias

from muster.api.errors import FieldError
from muster.api.raw import Document
from muster.placement.framework import Plugin
from muster.placement.in_tree import IN_TREE, INERT, POINTS, Shared, extends

ENTRY_POINTS = "muster.placement"
"""The group of entry points by which other distributions offer plugins."""

Factory: TypeAlias = Callable[[Document], Plugin | list[FieldError]]
"""How a plugin from elsewhere is made: from its arguments as they stand in the configuration. A class will do. Returns
what is wrong with the arguments (paths begin inside them), or raises."""
Load: TypeAlias = Callable[[str], Factory | None]
"""The factory of a plugin by its name; None where nobody offers one. May raise: it runs others' code."""

API_VERSIONS = ("kubescheduler.config.k8s.io/v1", "kubescheduler.config.k8s.io/v1beta3")


def nothing(_name: str) -> Factory | None:
    """Nobody offers any."""
    return None


class Registry:
    """Loads each plugin once, however many profiles name it."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._loaded: dict[str, Factory | str] = {}

    def is_known(self, name: str) -> bool:
        """Without running anybody's code."""
        return name in IN_TREE or name in INERT or name in self._loaded

    def make(self, name: str, args: Document, shared: Shared) -> Plugin | list[FieldError] | str:
        """The plugin; or what is wrong with its arguments, with paths that begin inside them; or why there is none."""
        if name in IN_TREE:
            document = {key: value for key, value in args.items() if key not in ("apiVersion", "kind")}
            wrong = _type_errors(name, args)
            made = IN_TREE[name](document, shared)
            return [*wrong, *made] if isinstance(made, list) else wrong or made
        factory = self._factory(name)
        return factory if isinstance(factory, str) else _called(factory, name, args)

    def _factory(self, name: str) -> Factory | str:
        if name not in self._loaded:
            try:
                found = self._load(name)
            except Exception as error:
                self._loaded[name] = f'plugin "{name}" could not be loaded: {type(error).__name__}: {error}'
            else:
                self._loaded[name] = found or _unknown(name)
        return self._loaded[name]


def _called(factory: Factory, name: str, args: Document) -> Plugin | list[FieldError] | str:
    try:
        made = factory(args)
        if isinstance(made, list):
            return made
        own = made.name
        offered = [point for point in POINTS if extends(made, point)]
    except Exception as error:
        return [FieldError("", "FieldValueInvalid", f'plugin "{name}" refuses them: {type(error).__name__}: {error}')]
    if own != name:
        return f'plugin "{name}" calls itself {own!r}: its `name` must be the name of its entry point'
    if not offered:
        return f'plugin "{name}" extends nothing: it has none of the methods of {", ".join(POINTS)}'
    return made


def _type_errors(name: str, args: Mapping[str, object]) -> list[FieldError]:
    wanted: dict[str, tuple[str, ...]] = {"apiVersion": API_VERSIONS, "kind": (f"{name}Args",)}
    return [
        FieldError(key, "FieldValueNotSupported", f"must be {' or '.join(values)}, found {args[key]!r}")
        for key, values in wanted.items()
        if args.get(key) is not None and args[key] not in values
    ]


def _unknown(name: str) -> str:
    close = get_close_matches(name, (*IN_TREE, *INERT), n=1)
    meant = f"did you mean {close[0]}?" if close else f'nor has any installed entry point of "{ENTRY_POINTS}"'
    return f'Not found: "{name}": no plugin of Muster has this name; {meant}'
