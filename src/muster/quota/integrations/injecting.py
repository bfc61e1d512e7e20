"""What admission gives to the pods of a workload, how it gets into a pod template, and how it gets out again.

A template that was injected says so: it names its workload (`WORKLOAD_ANNOTATION`).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from muster.api import fields, kueue, raw
from muster.api.documents import child, objects
from muster.api.kueue import names
from muster.api.raw import JSON, Document
from muster.quota.gates import Gate
from muster.quota.integrations.contract import Conflicting, PodSetInfo
from muster.quota.settings import Settings
from muster.quota.topology_requests import is_explicit

_SCHEDULING: Final = ("nodeSelector", "tolerations", "schedulingGates")


class MissingFlavor(LookupError):
    """A flavor that was assigned does not exist (any more)."""


# What is given


def infos(
    workload: kueue.Workload, flavors: Mapping[str, kueue.ResourceFlavor], settings: Settings
) -> list[PodSetInfo]:
    """One for each pod set of an admitted workload. Raises MissingFlavor, Conflicting."""
    admission = workload.status.admission or kueue.Admission()
    pod_sets = {pods.name: pods for pods in workload.spec.pod_sets}
    made = []
    for given in admission.pod_set_assignments:
        pods = pod_sets.get(given.name, kueue.PodSet(name=given.name))
        info = _info(workload, admission, given, pods, flavors, settings)
        for check in workload.status.admission_checks:
            for update in check.pod_set_updates:
                if update.name == given.name:
                    info = _updated(info, update)
        made.append(info)
    return made


def _info(
    workload: kueue.Workload,
    admission: kueue.Admission,
    given: kueue.PodSetAssignment,
    pods: kueue.PodSet,
    flavors: Mapping[str, kueue.ResourceFlavor],
    settings: Settings,
) -> PodSetInfo:
    selector: dict[str, str] = {}
    tolerations: list[Document] = []
    for name in dict.fromkeys((given.flavors or {}).values()):
        flavor = flavors.get(name)
        if flavor is None:
            raise MissingFlavor(f'ResourceFlavor "{name}", which was assigned, does not exist')
        _merge(selector, flavor.spec.node_labels or {}, "nodeSelector")
        tolerations += (raw.decode(raw.encode(toleration)) for toleration in flavor.spec.tolerations)
    annotations = {names.WORKLOAD_ANNOTATION: workload.metadata.name}
    gates: list[str] = []
    if given.topology_assignment is not None or given.delayed_topology_request is not None:
        gates.append(names.TOPOLOGY_GATE)
        if not is_explicit(pods):
            annotations[names.UNCONSTRAINED_TOPOLOGY] = "true"
    if is_elastic(workload, settings):
        gates.append(names.ELASTIC_GATE)
    return PodSetInfo(
        given.name,
        (pods.count or 0) if given.count is None else given.count,
        _labels(workload, admission, given.name, settings),
        annotations,
        selector,
        tolerations,
        gates,
    )


def _labels(workload: kueue.Workload, admission: kueue.Admission, name: str, settings: Settings) -> dict[str, str]:
    labels = {names.POD_SET_LABEL: name}
    if Gate.ASSIGN_QUEUE_LABELS_FOR_PODS in settings.gates:
        for label, queue in (
            (names.LOCAL_QUEUE_LABEL, workload.spec.queue_name or ""),
            (names.CLUSTER_QUEUE_LABEL, admission.cluster_queue),
        ):
            if fields.is_dns_label(queue):
                labels[label] = queue
    return labels


def is_elastic(workload: kueue.Workload, settings: Settings) -> bool:
    return (
        Gate.ELASTIC_JOBS_VIA_WORKLOAD_SLICES in settings.gates
        and (workload.metadata.annotations or {}).get(names.ELASTIC_ANNOTATION) == "true"
    )


def _updated(info: PodSetInfo, update: kueue.PodSetUpdate) -> PodSetInfo:
    """With what a check adds."""
    labels, annotations, selector = dict(info.labels), dict(info.annotations), dict(info.node_selector)
    _merge(labels, update.labels or {}, "labels")
    _merge(annotations, update.annotations or {}, "annotations")
    _merge(selector, update.node_selector or {}, "nodeSelector")
    added = [raw.decode(raw.encode(toleration)) for toleration in update.tolerations]
    tolerations = [*info.tolerations, *(found for found in added if found not in info.tolerations)]
    return PodSetInfo(info.name, info.count, labels, annotations, selector, tolerations, info.scheduling_gates)


# Into a template, and out of it


def inject(template: Document, info: PodSetInfo) -> Document:
    """The template with all that is given. Raises Conflicting where it says something else already."""
    made: Document = raw.copy(template)
    metadata, spec = raw.section(made, "metadata"), raw.section(made, "spec")
    for document, field, added in (
        (metadata, "labels", info.labels),
        (metadata, "annotations", info.annotations),
        (spec, "nodeSelector", info.node_selector),
    ):
        if added:
            _merge(raw.section(document, field), added, field)
    _append(spec, "tolerations", info.tolerations)
    _append(spec, "schedulingGates", [{"name": gate} for gate in info.scheduling_gates])
    return made


def restore(template: Document, original: Document) -> Document:
    """The template as it was before: everything that `inject` may touch is as in the original."""
    made: Document = raw.copy(template)
    metadata, spec = raw.section(made, "metadata"), raw.section(made, "spec")
    for document, source, listed in (
        (metadata, child(original, "metadata"), ("labels", "annotations")),
        (spec, child(original, "spec"), _SCHEDULING),
    ):
        for field in listed:
            if field in source:
                document[field] = raw.copy(source[field])
            else:
                document.pop(field, None)
    return made


def is_injected(template: Document) -> bool:
    return names.WORKLOAD_ANNOTATION in child(template, "metadata", "annotations")


def is_needed(template: Document, info: PodSetInfo) -> bool:
    """Whether pods of this template, as it is, would go elsewhere than admission says."""
    spec = child(template, "spec")
    selector, present = child(spec, "nodeSelector"), spec.get("tolerations") or []
    gates = {gate.get("name") for gate in objects(spec, "schedulingGates")}
    return (
        any(selector.get(key) != value for key, value in info.node_selector.items())
        or any(toleration not in present for toleration in info.tolerations)
        or any(gate not in gates for gate in info.scheduling_gates)
    )


def _merge(into: dict[str, JSON], added: Mapping[str, str], field: str) -> None:
    for key, value in added.items():
        if into.get(key, value) != value:
            raise Conflicting(f"{field}[{key}] is {into[key]!r} already, and admission gives {value!r}")
        into[key] = value


def _append(spec: Document, field: str, added: Sequence[Document]) -> None:
    present = list(objects(spec, field))
    fresh = [item for item in _unique(added) if item not in present]
    if fresh:
        spec[field] = [*present, *fresh]


def _unique(items: Iterable[Document]) -> list[Document]:
    kept: list[Document] = []
    for item in items:
        if item not in kept:
            kept.append(item)
    return kept
