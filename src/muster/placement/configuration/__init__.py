"""A scheduler's configuration: the KubeSchedulerConfiguration that users have, read, checked and made into profiles.

Everything that is wrong is told at once, each with the path of its field. What kube-scheduler has and we do without is
accepted and named in `warnings`. Nothing is loaded here: who can, is given as `load`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from muster.api import fields, raw
from muster.api.errors import BadRequest, FieldError
from muster.api.raw import JSON
from muster.api.sections import Section
from muster.placement.configuration import extenders, profiling
from muster.placement.configuration.profiling import Built, Notes
from muster.placement.configuration.registry import API_VERSIONS, ENTRY_POINTS, Factory, Load, Registry, nothing
from muster.placement.extending import Consultant, ExtenderConfig, Verb
from muster.placement.framework import QueueSort
from muster.placement.in_tree import Shared
from muster.placement.profiles import DEFAULT_SCHEDULER, Profile

__all__ = ["ENTRY_POINTS", "Configuration", "Factory", "Load", "default", "parse", "parse_text"]

KIND = "KubeSchedulerConfiguration"
_INITIAL_BACKOFF, _MAX_BACKOFF = 1, 10
_WITHOUT_EFFECT = {
    "parallelism": "all nodes are judged at once",
    "percentageOfNodesToScore": "every feasible node is scored",
    "percentageOfPlacementsToScore": "every placement is scored",
    "leaderElection": "the platform elects its leader itself",
    "clientConnection": "the scheduler is connected to the platform it runs in",
    "enableProfiling": "there is no profiling endpoint",
    "enableContentionProfiling": "there is no profiling endpoint",
    "delayCacheUntilActive": "caches are filled at once",
}


@dataclass(frozen=True, slots=True, eq=False)
class Configuration:
    profiles: Mapping[str, Profile]
    """By scheduler name."""
    queue_sort: QueueSort
    """The same for all profiles: they share one queue."""
    extenders: Sequence[ExtenderConfig] = ()
    """In the order in which they are asked."""
    consultants: Sequence[Consultant] = ()
    """Those that have a say in preemption, as the profiles' DefaultPreemption knows them."""
    initial_backoff: float = _INITIAL_BACKOFF
    max_backoff: float = _MAX_BACKOFF
    """Seconds."""
    warnings: Sequence[str] = ()


def default(shared: Shared | None = None) -> Configuration:
    """What holds where nobody has configured anything."""
    found = parse({"apiVersion": API_VERSIONS[0], "kind": KIND}, shared=shared)
    assert isinstance(found, Configuration), found
    return found


def parse_text(
    text: str | bytes, load: Load = nothing, shared: Shared | None = None
) -> Configuration | list[FieldError]:
    """From YAML or JSON."""
    try:
        documents = raw.decode_yaml(text)
    except BadRequest as error:
        return [FieldError("", "FieldValueInvalid", error.message)]
    if len(documents) != 1:
        return [FieldError("", "FieldValueInvalid", f"expected one {KIND}, found {len(documents)} documents")]
    return parse(documents[0], load, shared)


def parse(document: JSON, load: Load = nothing, shared: Shared | None = None) -> Configuration | list[FieldError]:
    """`shared`: what plugins of all profiles look at; its owner keeps it up to date."""
    notes = Notes()
    root = Section(document, "", notes.errors)
    for name, values in (("apiVersion", API_VERSIONS), ("kind", (KIND,))):
        value = root.required_text(name)
        if value and value not in values:
            notes.errors.append(fields.unsupported(name, value, values))
    _read_without_effect(root, notes)
    initial = root.number("podInitialBackoffSeconds", _INITIAL_BACKOFF, least=1)
    longest = root.number("podMaxBackoffSeconds", _MAX_BACKOFF)
    if longest < initial:
        message = f"must not be less than podInitialBackoffSeconds, which is {initial}"
        notes.errors.append(fields.invalid("podMaxBackoffSeconds", longest, message))
    asked = extenders.read(root, notes.warnings)
    consultants = [Consultant(extender) for extender in asked if Verb.PREEMPT in extender.verbs]
    profiles = _read_profiles(
        root, Registry(load), replace(shared or Shared(), preemption_extenders=consultants), asked, notes
    )
    root.finish()
    if notes.errors:
        return notes.errors
    return Configuration(
        profiles={built.profile.scheduler_name: built.profile for built in profiles},
        queue_sort=profiles[0].queue_sort,
        extenders=asked,
        consultants=consultants,
        initial_backoff=initial,
        max_backoff=longest,
        warnings=list(dict.fromkeys(notes.warnings)),
    )


def _read_profiles(
    root: Section, registry: Registry, shared: Shared, asked: Sequence[ExtenderConfig], notes: Notes
) -> Sequence[Built]:
    sections = root.sections("profiles") or [Section({}, "profiles[0]", notes.errors)]
    only = DEFAULT_SCHEDULER if len(sections) == 1 else ""
    described = [profiling.read(section, only) for section in sections]
    taken: set[str] = set()
    for profile in described:
        if profile.scheduler_name in taken:
            notes.errors.append(fields.duplicate(f"{profile.path}.schedulerName", profile.scheduler_name))
        elif profile.scheduler_name:
            taken.add(profile.scheduler_name)
    ignored = extenders.ignored_resources(asked)
    built = [profiling.build(profile, registry, shared, ignored, notes) for profile in described]
    found = [profile for profile in built if profile is not None]
    for profile, one in zip(described, built, strict=True):
        if one is not None and one.sorts_by != found[0].sorts_by:
            message = f"must be the same for all profiles; {found[0].profile.scheduler_name} has {found[0].sorts_by[0]}"
            notes.errors.append(FieldError(f"{profile.path}.plugins.queueSort", "FieldValueInvalid", message))
    return found


def _read_without_effect(root: Section, notes: Notes) -> None:
    for name, why in _WITHOUT_EFFECT.items():
        if root.has(name):
            notes.warnings.append(f"{name}: has no effect here: {why}")
    root.number("parallelism", least=1)
    root.number("percentageOfNodesToScore", most=100)
    root.number("percentageOfPlacementsToScore", most=100)
    for name in ("enableProfiling", "enableContentionProfiling", "delayCacheUntilActive"):
        root.flag(name)
    election = root.section("leaderElection")
    elects, lock = election.flag("leaderElect", True), election.text("resourceLock", "leases")
    if elects and lock != "leases":
        notes.errors.append(fields.invalid(election.at("resourceLock"), lock, 'must be "leases"'))
    for name in ("resourceName", "resourceNamespace"):
        election.text(name)
    for name in ("leaseDuration", "renewDeadline", "retryPeriod"):
        election.duration(name, 0.0)
    election.finish()
    connection = root.section("clientConnection")
    for name in ("kubeconfig", "acceptContentTypes", "contentType"):
        connection.text(name)
    connection.fraction("qps")
    connection.number("burst", least=-1)
    connection.finish()
