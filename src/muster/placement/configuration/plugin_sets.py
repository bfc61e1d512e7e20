"""What a profile says of plugins at each extension point, and what that comes to: kube-scheduler's rules.

A profile's `multiPoint` is merged with the default plugins. What it then has is called wherever it can be, except where
an extension point of its own switches it off; what an extension point names itself has its say on order and weight.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from muster.api import fields
from muster.api.sections import Section
from muster.placement.in_tree import ALWAYS, DEFAULTS, POINTS

ALL = "*"
MULTI_POINT = "multiPoint"
Can = Callable[[str, str], bool]
"""(name of a plugin, extension point) → whether it can be called there."""


class Named(NamedTuple):
    name: str
    weight: int
    """0: not said."""
    path: str
    """Where in the document; empty for a default."""


@dataclass(frozen=True, slots=True)
class PluginSet:
    enabled: Sequence[Named] = ()
    disabled: Sequence[Named] = ()

    def switches_off(self, name: str) -> bool:
        return any(found.name in (name, ALL) for found in self.disabled)


NOTHING = PluginSet()
_DEFAULT_SET = PluginSet([Named(default.name, default.weight, "") for default in DEFAULTS])


def read(section: Section) -> Mapping[str, PluginSet]:
    """`plugins` of a profile, by extension point."""
    sets = {point: _read_set(section.section(point)) for point in (MULTI_POINT, *POINTS)}
    section.finish()
    return sets


def _read_set(section: Section) -> PluginSet:
    enabled = list(_read_named(section, "enabled"))
    disabled = list(_read_named(section, "disabled"))
    section.finish()
    seen: set[str] = set()
    for named in enabled:
        if named.name == ALL:
            section.errors.append(fields.invalid(f"{named.path}.name", ALL, "plugins are enabled by their names"))
        if named.name in seen:
            section.errors.append(fields.duplicate(f"{named.path}.name", named.name))
        seen.add(named.name)
    for named in disabled:
        if named.name in ALWAYS:
            message = f"{named.name} cannot be disabled: two pods could then be given the same GPU"
            section.errors.append(fields.forbidden(f"{named.path}.name", message))
    return PluginSet([named for named in enabled if named.name != ALL], disabled)


def _read_named(section: Section, which: str) -> Iterator[Named]:
    for item in section.sections(which):
        named = Named(item.required_text("name"), item.number("weight"), item.path)
        item.finish()
        if named.name:
            yield named


def merged(custom: PluginSet) -> PluginSet:
    """A profile's `multiPoint` with the defaults: one that it names again stays in its place, with what the profile
    says; others come after."""
    own = {named.name: named for named in custom.enabled}
    kept = [default for default in _DEFAULT_SET.enabled if not custom.switches_off(default.name)]
    kept_names = {default.name for default in kept}
    enabled = [own.get(default.name, default) for default in kept]
    enabled += [named for named in custom.enabled if named.name not in kept_names]
    present = {named.name for named in enabled}
    enabled += [default for default in _DEFAULT_SET.enabled if default.name in ALWAYS - present]
    return PluginSet(enabled, custom.disabled)


def expand(sets: Mapping[str, PluginSet], can: Can) -> Mapping[str, Sequence[str]]:
    """By extension point: the names of the plugins it calls, in order. `sets`: with `multiPoint` merged."""
    return {point: _expanded(point, sets[MULTI_POINT], sets.get(point, NOTHING), can) for point in POINTS}


def _expanded(point: str, everywhere: PluginSet, here: PluginSet, can: Can) -> Sequence[str]:
    own = [named.name for named in here.enabled]
    able = [named.name for named in everywhere.enabled if can(named.name, point)]
    if any(named.name == ALL for named in here.disabled):
        return [*own, *(name for name in able if name in ALWAYS and name not in own)]
    left = [name for name in able if not here.switches_off(name)]
    again = [name for name in own if name in left]
    return [*again, *(name for name in left if name not in own), *(name for name in own if name not in again)]


def weights(sets: Mapping[str, PluginSet], point: str) -> Mapping[str, int]:
    """By plugin, for one extension point that scores: what the point itself says goes first."""
    found: dict[str, int] = {}
    for named in (*sets.get(point, NOTHING).enabled, *sets[MULTI_POINT].enabled):
        found.setdefault(named.name, named.weight or 1)
    return found
