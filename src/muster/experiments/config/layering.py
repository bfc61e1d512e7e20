"""How one layer of an experiment's configuration is laid over another, by where in it one is. Pure.

Objects are laid over each other key by key; any other value of the stronger layer stands. But some lists grow, and some
objects are one of several kinds: then keys of the weaker layer's kind must not turn up in the stronger's.
"""

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from muster.api import raw
from muster.api.raw import JSON, Document
from muster.experiments.config import storage

_Path: TypeAlias = tuple[str, ...]
_WHOLE: Final[frozenset[_Path]] = frozenset(
    {("min_validation_period",), ("min_checkpoint_period",), ("searcher", "max_length")}
)
"""One unit or another, not one beside the other."""
_KINDS: Final[Mapping[_Path, tuple[str, tuple[str, ...]]]] = {
    ("checkpoint_storage",): ("type", storage.SAVED),
    ("searcher",): ("name", ("metric", "smaller_is_better", "source_trial_id", "source_checkpoint_uuid")),
}
"""The key that says of which kind it is, and the keys that all kinds share."""
_TOGETHER: Final[Mapping[_Path, tuple[str, ...]]] = {
    ("checkpoint_storage",): storage.CREDENTIALS,
    ("searcher",): ("source_trial_id", "source_checkpoint_uuid"),
}
"""Keys that come from one layer: what the weaker says of any of them is void where the stronger says one."""


def _itself(value: JSON) -> JSON:
    return value


def _key(name: str) -> Callable[[JSON], JSON]:
    """What tells members of a list apart: the key of that name, or else all of it."""
    return lambda value: raw.dig(value, name) or value


_GROWING: Final[Mapping[_Path, Callable[[JSON], JSON]]] = {
    ("labels",): _itself,
    ("bind_mounts",): _key("container_path"),
    ("log_policies",): _key("name"),
    ("environment", "add_capabilities"): _itself,
    ("environment", "drop_capabilities"): _itself,
    ("environment", "proxy_ports"): _key("proxy_port"),
    ("environment", "environment_variables", "cpu"): _itself,
    ("environment", "environment_variables", "cuda"): _itself,
    ("environment", "environment_variables", "rocm"): _itself,
}


def over(weak: Mapping[str, JSON], strong: Mapping[str, JSON], path: _Path = ()) -> Document:
    """Both as `shapes.plain` leaves them."""
    merged = _kept(weak, strong, path)
    for name, value in strong.items():
        merged[name] = _value((*path, name), merged[name], value) if name in merged else value
    return merged


def _kept(weak: Mapping[str, JSON], strong: Mapping[str, JSON], path: _Path) -> Document:
    """What of the weaker layer has a meaning beside the stronger."""
    found = dict(weak)
    if path in _KINDS:
        tag, shared = _KINDS[path]
        if tag in weak and tag in strong and weak[tag] != strong[tag]:
            found = {name: value for name, value in found.items() if name in shared}
    together = _TOGETHER.get(path, ())
    if any(name in strong for name in together):
        found = {name: value for name, value in found.items() if name not in together}
    return found


def _value(path: _Path, weak: JSON, strong: JSON) -> JSON:
    if path in _GROWING and isinstance(weak, list) and isinstance(strong, list):
        identity = _GROWING[path]
        taken = [identity(each) for each in strong]
        return [*strong, *(each for each in weak if identity(each) not in taken)]
    if path in _WHOLE or not (isinstance(weak, dict) and isinstance(strong, dict)):
        return strong
    if path[0] == "hyperparameters" and len(path) > 1 and ("type" in weak or "type" in strong):
        return strong
    return over(weak, strong, path)
