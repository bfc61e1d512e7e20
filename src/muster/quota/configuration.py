"""Kueue's own configuration file (`config.kueue.x-k8s.io` Configuration), read into `Settings`.

Everything that is wrong is told at once, each with the path of its field. What Kueue has and we do without is accepted
and named in `warnings`; what Kueue does not have is a mistake.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from fractions import Fraction
from typing import Final

from muster.api import fields, metadata, quantity, selectors
from muster.api.errors import FieldError
from muster.api.managing import USUAL_NAMESPACES
from muster.api.meta import LabelSelector as LabelSelectorView
from muster.api.meta import LabelSelectorRequirement
from muster.api.raw import JSON, type_name
from muster.api.sections import Section
from muster.api.selectors import LabelSelector
from muster.quota.gates import WITHOUT_EFFECT, Gate, Gates
from muster.quota.settings import (
    AdmissionFairSharing,
    FairSharing,
    Metrics,
    PodsReady,
    Retention,
    Settings,
    ShareRule,
    Transformation,
)

KIND: Final = "Configuration"
V1BETA1: Final = "config.kueue.x-k8s.io/v1beta1"
V1BETA2: Final = "config.kueue.x-k8s.io/v1beta2"
_IGNORE, _BLOCK = "IgnoreUndeclared", "BlockUndeclared"
_RETAIN, _REPLACE = "Retain", "Replace"
_EVICTION, _CREATION = "Eviction", "Creation"
_RULES: Final = ((ShareRule.FINAL,), (ShareRule.INITIAL,), (ShareRule.FINAL, ShareRule.INITIAL))
_FRAMEWORKS: Final = frozenset({"batch/job", "kubeflow.org/pytorchjob", "pod"})
"""By Kueue's names, the kinds of jobs that there are here."""
_ELSEWHERE: Final = "the platform's own options decide that"
_WITHOUT_EFFECT: Final[Mapping[str, str]] = {
    "manageJobsWithoutQueueName": "jobs that name no queue go to the ClusterQueue default, which admits everything",
    "multiKueue": "there is one cluster",
    "queueVisibility": "ask visibility.kueue.x-k8s.io for what waits",
    "namespace": _ELSEWHERE,
    "health": _ELSEWHERE,
    "webhook": _ELSEWHERE,
    "pprofBindAddress": _ELSEWHERE,
    "leaderElection": _ELSEWHERE,
    "controller": _ELSEWHERE,
    "internalCertManagement": _ELSEWHERE,
    "clientConnection": _ELSEWHERE,
    "gracefulShutdownTimeout": _ELSEWHERE,
    "cacheNamespace": _ELSEWHERE,
    "syncPeriod": _ELSEWHERE,
    "visibilityServer": _ELSEWHERE,
    "tls": _ELSEWHERE,
}


@dataclass(frozen=True, slots=True)
class Configuration:
    settings: Settings
    warnings: tuple[str, ...] = ()


@dataclass(slots=True)
class _Notes:
    errors: list[FieldError] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def without_effect(self, path: str, why: str) -> None:
        self.warnings.append(f"{path}: has no effect here: {why}")


def parse(document: JSON) -> Configuration | list[FieldError]:
    notes = _Notes()
    root = Section(document, "", notes.errors)
    for name, values in (("apiVersion", (V1BETA2, V1BETA1)), ("kind", (KIND,))):
        value = root.required_text(name)
        if value and value not in values:
            notes.errors.append(fields.unsupported(name, value, values))
    is_older = root.take("apiVersion") == V1BETA1
    gates = _read_gates(root, notes)
    for name, why in _WITHOUT_EFFECT.items():
        if root.take(name) is not None:
            notes.without_effect(name, why)
    pods_ready, by_eviction = _read_pods_ready(root, gates, notes, is_older=is_older)
    resources = root.section("resources")
    prefixes = tuple(resources.texts("excludeResourcePrefixes"))
    settings = Settings(
        gates=gates,
        fair_sharing=_read_fair_sharing(root, notes, is_older=is_older),
        admission_fair_sharing=_read_admission_fair_sharing(root, gates, notes),
        pods_ready=pods_ready,
        requeues_by_eviction_time=by_eviction,
        excluded_prefixes=prefixes,
        transformations=_read_transformations(resources),
        ignores_undeclared=_ignores_undeclared(resources, prefixes, gates, notes),
        copied_labels=_read_integrations(root, notes),
        managed_namespaces=_read_managed_namespaces(root),
        retention=_read_retention(root),
        metrics=_read_metrics(root, gates, notes),
    )
    if resources.take("deviceClassMappings") is not None:
        notes.without_effect("resources.deviceClassMappings", "devices are asked for as resources")
    resources.finish()
    root.finish()
    return notes.errors or Configuration(settings, tuple(notes.warnings))


def _read_gates(root: Section, notes: _Notes) -> Gates:
    known = [*map(str, Gate), *WITHOUT_EFFECT]
    overrides: dict[str, bool] = {}
    for name, value in root.document("featureGates").items():
        path = f"featureGates.{name}"
        if not isinstance(value, bool):
            message = f"must be true or false, found {type_name(value)}"
            notes.errors.append(FieldError(path, "FieldValueTypeInvalid", message))
        elif name not in known:
            near = get_close_matches(str(name), known, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            notes.errors.append(fields.invalid(path, name, f"no such feature gate{hint}"))
        else:
            overrides[name] = value
            if name in WITHOUT_EFFECT:
                notes.without_effect(path, "what it switches is not part of this platform")
    return Gates.default().changed(overrides)


# Waiting for pods


def _read_pods_ready(root: Section, gates: Gates, notes: _Notes, *, is_older: bool) -> tuple[PodsReady | None, bool]:
    """None where nobody waits; and whether a workload that was evicted queues from then."""
    section, usual = root.section("waitForPodsReady"), PodsReady()
    timeout = section.duration("timeout", usual.timeout)
    recovery = section.span("recoveryTimeout")
    blocks = section.flag("blockAdmission")
    strategy = section.section("requeuingStrategy")
    timestamp = _choice(strategy, "timestamp", (_EVICTION, _CREATION))
    limit = strategy.number("backoffLimitCount")
    found = PodsReady(
        timeout=timeout,
        recovery_timeout=(timeout if recovery is None else recovery) or None,
        blocks_admission=blocks,
        backoff_base=strategy.number("backoffBaseSeconds", int(usual.backoff_base)),
        backoff_max=strategy.number("backoffMaxSeconds", int(usual.backoff_max)),
        backoff_limit=limit if strategy.has("backoffLimitCount") else None,
    )
    strategy.finish()
    is_on = _is_switched_on(section, notes, is_older=is_older) and root.has("waitForPodsReady")
    section.finish()
    if is_on and Gate.DISABLE_WAIT_FOR_PODS_READY in gates:
        notes.without_effect("waitForPodsReady", f"the feature gate {Gate.DISABLE_WAIT_FOR_PODS_READY} is on")
        is_on = False
    return (found if is_on else None), timestamp == _EVICTION


def _is_switched_on(section: Section, notes: _Notes, *, is_older: bool) -> bool:
    """v1beta1 has a switch in the section; in v1beta2 the section itself is the switch."""
    if not is_older:
        return True
    is_on = section.flag("enable")
    if not section.has("enable") and not section.is_empty:
        notes.warnings.append(f"{section.path}: is off until {section.path}.enable is true")
    return is_on


# Fair sharing


def _read_fair_sharing(root: Section, notes: _Notes, *, is_older: bool) -> FairSharing | None:
    section = root.section("fairSharing")
    if not root.has("fairSharing"):
        return None
    is_on = _is_switched_on(section, notes, is_older=is_older)
    listed = tuple(section.texts("preemptionStrategies"))
    section.finish()
    at = section.at("preemptionStrategies")
    if not listed:
        if not is_older:
            notes.errors.append(fields.required(at))
        return FairSharing() if is_on else None
    unknown = [name for name in listed if name not in tuple(ShareRule)]
    if unknown:
        notes.errors.append(fields.unsupported(at, unknown[0], tuple(map(str, ShareRule))))
    elif listed not in _RULES:
        allowed = " or ".join(f"[{', '.join(rules)}]" for rules in _RULES)
        notes.errors.append(fields.invalid(at, ", ".join(listed), f"must be {allowed}"))
    elif is_on:
        return FairSharing(tuple(map(ShareRule, listed)))
    return None


def _read_admission_fair_sharing(root: Section, gates: Gates, notes: _Notes) -> AdmissionFairSharing | None:
    is_there = root.has("admissionFairSharing")
    section, usual = root.section("admissionFairSharing"), AdmissionFairSharing()
    half_life = section.span("usageHalfLifeTime")
    if is_there and half_life is None and not section.has("usageHalfLifeTime"):
        notes.errors.append(fields.required(section.at("usageHalfLifeTime")))
    found = AdmissionFairSharing(
        half_life=half_life or 0.0,
        sampling_interval=section.duration("usageSamplingInterval", usual.sampling_interval),
        weights=_read_weights(section),
    )
    section.finish()
    if is_there and Gate.ADMISSION_FAIR_SHARING not in gates:
        notes.without_effect("admissionFairSharing", f"the feature gate {Gate.ADMISSION_FAIR_SHARING} is off")
    return found if is_there else None


def _read_weights(section: Section) -> dict[str, Fraction]:
    weights: dict[str, Fraction] = {}
    for name, value in section.document("resourceWeights").items():
        path = f"{section.at('resourceWeights')}.{name}"
        if isinstance(value, bool) or not isinstance(value, int | float):
            message = f"must be a number, found {type_name(value)}"
            section.errors.append(FieldError(path, "FieldValueTypeInvalid", message))
        elif not 0 <= value < float("inf"):
            section.errors.append(fields.invalid(path, value, "must be 0 or more"))
        else:
            weights[name] = Fraction(str(value))
    return weights


# Resources


def _ignores_undeclared(resources: Section, prefixes: tuple[str, ...], gates: Gates, notes: _Notes) -> bool:
    strategy = _choice(resources, "quotaCheckStrategy", (_BLOCK, _IGNORE))
    if resources.has("quotaCheckStrategy") and Gate.QUOTA_CHECK_STRATEGY not in gates:
        notes.without_effect("resources.quotaCheckStrategy", f"the feature gate {Gate.QUOTA_CHECK_STRATEGY} is off")
        return False
    if strategy == _IGNORE and prefixes:
        message = f"must be empty where quotaCheckStrategy is {_IGNORE}: nothing undeclared counts then"
        notes.errors.append(fields.forbidden("resources.excludeResourcePrefixes", message))
    return strategy == _IGNORE


def _read_transformations(resources: Section) -> tuple[Transformation, ...]:
    found: list[Transformation] = []
    taken: set[str] = set()
    for section in resources.sections("transformations"):
        name = section.required_text("input")
        if name in taken:
            section.errors.append(fields.duplicate(section.at("input"), name))
        elif name:
            section.errors += fields.qualified_name(section.at("input"), name)
            taken.add(name)
        strategy = _choice(section, "strategy", (_RETAIN, _REPLACE))
        outputs = _read_outputs(section)
        by = section.text("multiplyBy") or None
        section.finish()
        found.append(Transformation(name, strategy == _RETAIN, outputs, by))
    return tuple(found)


def _read_outputs(section: Section) -> dict[str, Fraction]:
    outputs: dict[str, Fraction] = {}
    for name, value in section.document("outputs").items():
        path = f"{section.at('outputs')}.{name}"
        section.errors += fields.qualified_name(path, name)
        try:
            outputs[name] = Fraction(quantity.parse(value).nano, quantity.NANO)
        except (quantity.BadQuantity, TypeError) as error:
            section.errors.append(fields.invalid(path, value, str(error)))
    return outputs


# Integrations


def _read_integrations(root: Section, notes: _Notes) -> tuple[str, ...]:
    """Labels of a job that its workload gets too."""
    section = root.section("integrations")
    labels = section.texts("labelKeysToCopy")
    for index, label in enumerate(labels):
        notes.errors += fields.qualified_name(f"{section.at('labelKeysToCopy')}[{index}]", label)
    for index, name in enumerate(section.texts("frameworks")):
        if name not in _FRAMEWORKS:
            notes.without_effect(f"{section.at('frameworks')}[{index}]", f"the platform has no kind of job for {name}")
    for name in ("externalFrameworks", "podOptions"):
        if section.take(name) is not None:
            notes.without_effect(section.at(name), "every kind of job that the platform has is managed")
    section.finish()
    return tuple(labels)


# Namespaces, and how long objects are kept


def _read_managed_namespaces(root: Section) -> LabelSelector:
    name = "managedJobsNamespaceSelector"
    return _read_selector(root, name) if root.has(name) else USUAL_NAMESPACES


def _read_retention(root: Section) -> Retention:
    section = root.section("objectRetentionPolicies")
    listed = section.section("workloads")
    found = Retention(listed.span("afterFinished"), listed.span("afterDeactivatedByKueue"))
    listed.finish()
    section.finish()
    return found


# Metrics


def _read_metrics(root: Section, gates: Gates, notes: _Notes) -> Metrics:
    section, usual = root.section("metrics"), Metrics()
    if section.take("bindAddress") is not None:
        notes.without_effect(section.at("bindAddress"), "they are served at /metrics, where everything else is")
    if section.take("customLabels") is not None:
        notes.without_effect(section.at("customLabels"), "join with cluster_queue_info on the queue's name instead")
    listed = section.section("localQueueMetrics")
    is_on = listed.flag("enable", default=True)
    found = Metrics(
        amounts=section.flag("enableClusterQueueResources", default=usual.amounts),
        local_queues=is_on and Gate.LOCAL_QUEUE_METRICS in gates,
        local_queue_selector=_read_selector(listed, "localQueueSelector"),
    )
    listed.finish()
    section.finish()
    return found


def _read_selector(section: Section, name: str) -> LabelSelector:
    """One that is not there selects everything."""
    found, errors = section.section(name), section.errors
    expressions = []
    for listed in found.sections("matchExpressions"):
        key, operator = listed.required_text("key"), listed.required_text("operator")
        expressions.append(LabelSelectorRequirement(key=key, operator=operator, values=tuple(listed.texts("values"))))
        listed.finish()
    labels = {str(key): str(value) for key, value in found.document("matchLabels").items()}
    found.finish()
    view = LabelSelectorView(match_labels=labels, match_expressions=tuple(expressions))
    problems = list(metadata.validate_label_selector(found.path, view))
    errors += problems
    return LabelSelector() if problems else selectors.from_view(view)


def _choice(section: Section, name: str, values: tuple[str, ...]) -> str:
    """One of these words; the first where nothing is said."""
    found = section.text(name) or values[0]
    if found not in values:
        section.errors.append(fields.unsupported(section.at(name), found, values))
        return values[0]
    return found
