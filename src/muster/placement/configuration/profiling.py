"""One profile of a configuration: its plugins made, put in order at each extension point, and weighed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from muster.api import fields
from muster.api.errors import FieldError
from muster.api.raw import Document
from muster.api.sections import Section
from muster.placement.configuration import plugin_sets
from muster.placement.configuration.plugin_sets import ALL, MULTI_POINT, Named, PluginSet
from muster.placement.configuration.registry import Registry
from muster.placement.framework import Plugin, QueueSort
from muster.placement.in_tree import IN_TREE, INERT, POINTS, Shared, extends
from muster.placement.profiles import Profile

_FIT = "NodeResourcesFit"
_DEFERRED = "DeferredPodScheduling"


@dataclass(frozen=True, slots=True)
class Arguments:
    """An entry of `pluginConfig`."""

    document: Document
    path: str


@dataclass(frozen=True, slots=True)
class Described:
    """A profile as the document has it."""

    path: str
    scheduler_name: str
    sets: Mapping[str, PluginSet]
    arguments: Mapping[str, Arguments]

    @property
    def named(self) -> Iterator[Named]:
        """Every plugin that may be called, those that go everywhere first."""
        for point in (MULTI_POINT, *POINTS):
            yield from self.sets[point].enabled


@dataclass(frozen=True, slots=True, eq=False)
class Built:
    profile: Profile
    queue_sort: QueueSort
    sorts_by: tuple[str, Document]
    """Name and arguments of what sorts the queue."""


@dataclass(slots=True)
class Notes:
    errors: list[FieldError] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def inert(self, path: str, name: str) -> None:
        self.warnings.append(f"{path}: plugin {name} does nothing here: {INERT[name]}")


def read(section: Section, default_name: str) -> Described:
    name = section.text("schedulerName", default_name)
    if not name:
        section.errors.append(fields.required(section.at("schedulerName")))
    section.number("percentageOfNodesToScore", most=100)
    section.number("percentageOfPlacementsToScore", most=100)
    sets = dict(plugin_sets.read(section.section("plugins")))
    sets[MULTI_POINT] = plugin_sets.merged(sets[MULTI_POINT])
    arguments: dict[str, Arguments] = {}
    for entry in section.sections("pluginConfig"):
        plugin, document = entry.required_text("name"), entry.document("args")
        entry.finish()
        if plugin in arguments:
            section.errors.append(fields.duplicate(entry.at("name"), plugin))
        elif plugin:
            arguments[plugin] = Arguments(document, entry.path)
    section.finish()
    return Described(section.path, name, sets, arguments)


def build(
    described: Described, registry: Registry, shared: Shared, ignored_resources: Sequence[str], notes: Notes
) -> Built | None:
    """None where something is wrong with it."""
    before = len(notes.errors)
    arguments = _with_ignored(described, ignored_resources, notes)
    needed = {named.name: named for named in reversed(list(described.named))}
    together = replace(shared, resize_preemption=shared.resize_preemption or _DEFERRED in needed)
    making = _Making(described, arguments, registry, together, notes)
    made = making.all_of(dict.fromkeys(named.name for named in described.named), needed)
    _warn_of_unknown(described, registry, made, notes)
    _check_points(described, made, notes)
    names = plugin_sets.expand(
        described.sets, lambda name, point: name in made and name not in INERT and extends(made[name], point)
    )
    is_complete = all(name in made or name in INERT for name in needed)
    _check_counts(described, names, is_complete, notes)
    if len(notes.errors) > before:
        return None
    points = {point: [made[name] for name in called if name in made] for point, called in names.items()}
    (sorter,) = points["queueSort"]
    assert isinstance(sorter, QueueSort), "what does not extend a point is an error above"
    profile = Profile.of(
        [made[name] for name in dict.fromkeys(named.name for named in described.named) if name in made],
        plugin_sets.weights(described.sets, "score"),
        described.scheduler_name,
        points,
        plugin_sets.weights(described.sets, "placementScore"),
        {named.name for named in described.sets["placementScore"].enabled},
    )
    given = arguments.get(sorter.name)
    return Built(profile, sorter, (sorter.name, given.document if given else {}))


def _with_ignored(described: Described, resources: Sequence[str], notes: Notes) -> Mapping[str, Arguments]:
    """What extenders account for goes before what NodeResourcesFit is told to leave alone."""
    if not resources:
        return described.arguments
    given = described.arguments.get(_FIT, Arguments({}, f"{described.path}.pluginConfig"))
    if given.document.get("ignoredResources"):
        notes.warnings.append(
            f"{given.path}.args.ignoredResources: replaced by the resources that extenders have ignored: "
            f"{', '.join(resources)}"
        )
    document = {**given.document, "ignoredResources": list(resources)}
    return {**described.arguments, _FIT: Arguments(document, given.path)}


@dataclass(frozen=True, slots=True)
class _Making:
    described: Described
    arguments: Mapping[str, Arguments]
    registry: Registry
    shared: Shared
    notes: Notes

    def all_of(self, order: Mapping[str, None], needed: Mapping[str, Named]) -> dict[str, Plugin]:
        """The plugins that are called, by name. Those that only have arguments are made as well, to check these."""
        made: dict[str, Plugin] = {}
        for name in order:
            plugin = self._one(name, f"{needed[name].path}.name")
            if plugin is not None:
                made[name] = plugin
        for name, given in self.arguments.items():
            if name not in needed:
                self._one(name, f"{given.path}.name")
        return made

    def _one(self, name: str, path: str) -> Plugin | None:
        given = self.arguments.get(name)
        if name in INERT:
            self.notes.inert(path, name)
            return None
        plugin = self.registry.make(name, given.document if given else {}, self.shared)
        if isinstance(plugin, str):
            self.notes.errors.append(FieldError(path, "FieldValueNotFound", plugin))
            return None
        if not isinstance(plugin, list):
            return plugin
        base = f"{given.path}.args" if given else f"{self.described.path}.pluginConfig"
        for error in plugin:
            where = f"{base}.{error.path}" if error.path else base
            self.notes.errors.append(FieldError(where, error.reason, error.message))
        # With usual arguments it stands in, so that what is wrong elsewhere is told too.
        stand_in = IN_TREE[name]({}, self.shared) if name in IN_TREE else []
        return None if isinstance(stand_in, list) else stand_in


def _warn_of_unknown(described: Described, registry: Registry, made: Mapping[str, Plugin], notes: Notes) -> None:
    """Switching off what does not exist does no harm, but is most likely a slip of the pen."""
    for found in described.sets.values():
        for named in found.disabled:
            if named.name not in (ALL, *made) and not registry.is_known(named.name):
                notes.warnings.append(f'{named.path}.name: no plugin has the name "{named.name}"; nothing is disabled')


def _check_points(described: Described, made: Mapping[str, Plugin], notes: Notes) -> None:
    for point in POINTS:
        for named in described.sets[point].enabled:
            plugin = made.get(named.name)
            if plugin is not None and not extends(plugin, point):
                message = f"the plugin does not extend {point}"
                if point in ("filter", "score") and callable(getattr(plugin, point, None)):
                    message += ": it has the method, but does not say what it `reads`"
                notes.errors.append(fields.invalid(f"{named.path}.name", named.name, message))


def _check_counts(described: Described, names: Mapping[str, Sequence[str]], is_complete: bool, notes: Notes) -> None:
    """`is_complete`: all plugins are there. One that is not may be the one that is missing."""
    sorters = [name for name in names["queueSort"] if name not in INERT]
    path = f"{described.path}.plugins.queueSort"
    if not sorters and is_complete:
        notes.errors.append(fields.required(path, "Required value: one plugin must sort the queue"))
    if len(sorters) > 1:
        message = f"one plugin sorts the queue, here are {', '.join(sorters)}; disable the others"
        notes.errors.append(FieldError(path, "FieldValueInvalid", message))
    if is_complete and not any(name not in INERT for name in names["bind"]):
        message = "Required value: at least one plugin must bind pods; DefaultBinder does"
        notes.errors.append(fields.required(f"{described.path}.plugins.bind", message))
