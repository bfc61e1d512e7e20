"""What may change in a workload that holds quota.

The admission was decided for exactly these pods, in this queue, with this priority: changing them afterwards would
make the accounts wrong. Elastic workloads may shrink, because that only gives quota back.
"""

from collections.abc import Iterator
from itertools import zip_longest

import msgspec

from muster.api import conditions, fields
from muster.api.errors import FieldError
from muster.api.kueue.workload_validation import is_elastic, is_quota_reserved
from muster.api.kueue.workload_views import Admission, PodSet, Workload


def validate_workload_update(old: Workload, new: Workload) -> list[FieldError]:
    return list(_update(old, new))


def _update(old: Workload, new: Workload) -> Iterator[FieldError]:
    if is_quota_reserved(old):
        yield from _pod_sets(old.spec.pod_sets, new.spec.pod_sets, is_elastic(new))
    if is_quota_reserved(old) and is_quota_reserved(new):
        yield from fields.immutable("spec.queueName", old.spec.queue_name, new.spec.queue_name)
        yield from _priority_class(old, new)
        yield from _reclaimable(old, new)
    if is_elastic(new):
        yield from _stale(old, new)
    if conditions.is_true(old.status.conditions, "Admitted"):
        before, after = old.spec.maximum_execution_time_seconds, new.spec.maximum_execution_time_seconds
        yield from fields.immutable("spec.maximumExecutionTimeSeconds", before, after)
    if old.status.admission is not None and new.status.admission is not None:
        before_, after_ = _fixed(old.status.admission), _fixed(new.status.admission)
        if before_ != after_ and not is_elastic(new):
            yield fields.invalid("status.admission", after_.cluster_queue, "field is immutable")
    yield from _cluster(old, new)
    yield from _ready_checks(old, new)


def _pod_sets(old: tuple[PodSet, ...], new: tuple[PodSet, ...], is_elastic: bool) -> Iterator[FieldError]:
    for index, (before, after) in enumerate(zip_longest(old, new)):
        path = f"spec.podSets[{index}]"
        if before is None or after is None:
            yield fields.forbidden(path, "podSets cannot be added or removed while quota is reserved")
        elif is_elastic and (after.count or 0) <= (before.count or 0):
            unscaled = msgspec.structs.replace(after, count=before.count)
            yield from _unchanged(path, before, unscaled)
        else:
            yield from _unchanged(path, before, after)


def _unchanged(path: str, before: PodSet, after: PodSet) -> Iterator[FieldError]:
    """Which fields differ, since a whole pod template in a message helps nobody."""
    yield from fields.immutable(f"{path}.name", before.name, after.name)
    yield from fields.immutable(f"{path}.count", before.count, after.count)
    yield from fields.immutable(f"{path}.minCount", before.min_count, after.min_count)
    if before.template != after.template:
        yield fields.forbidden(f"{path}.template", "cannot change while quota is reserved")
    if before.topology_request != after.topology_request:
        yield fields.forbidden(f"{path}.topologyRequest", "cannot change while quota is reserved")


def _priority_class(old: Workload, new: Workload) -> Iterator[FieldError]:
    path, before, after = "spec.priorityClassRef", old.spec.priority_class_ref, new.spec.priority_class_ref
    if before is None or after is None:
        if before is not after:
            yield fields.forbidden(path, "cannot be added or removed while quota is reserved")
        return
    yield from fields.immutable(f"{path}.group", before.group, after.group)
    yield from fields.immutable(f"{path}.kind", before.kind, after.kind)
    if before.kind == "PriorityClass":  # the pods already have its value; a workload's own class may be exchanged
        yield from fields.immutable(f"{path}.name", before.name, after.name)


def _reclaimable(old: Workload, new: Workload) -> Iterator[FieldError]:
    counts = {pod_set.name: pod_set.count or 0 for pod_set in new.spec.pod_sets}
    after = {pods.name: pods.count or 0 for pods in new.status.reclaimable_pods}
    for pods in old.status.reclaimable_pods:
        before = pods.count or 0
        floor = min(before, counts.get(pods.name, 0)) if is_elastic(new) else before
        if after.get(pods.name, 0) < floor:
            yield fields.invalid(
                "status.reclaimablePods", after.get(pods.name, 0), f'"{pods.name}" cannot be less than {floor}: '
                "quota that was given back may be in use by others"
            )  # fmt: skip


def _stale(old: Workload, new: Workload) -> Iterator[FieldError]:
    """More pods done than there are is what is left of a larger size: it may stay, and not come."""
    counts = {pod_set.name: pod_set.count or 0 for pod_set in new.spec.pod_sets}
    before = {pods.name: pods.count for pods in old.status.reclaimable_pods}
    for index, pods in enumerate(new.status.reclaimable_pods):
        most = counts.get(pods.name, 0)
        if (pods.count or 0) > most and before.get(pods.name) != pods.count:
            path = f"status.reclaimablePods[{index}].count"
            yield fields.invalid(path, pods.count, f"should be less or equal to {most}")


def _fixed(admission: Admission) -> Admission:
    """Without what may still change: where the pods go can be decided, and decided again, later."""
    kept = tuple(
        msgspec.structs.replace(assignment, topology_assignment=None, delayed_topology_request=None)
        for assignment in admission.pod_set_assignments
    )
    return msgspec.structs.replace(admission, pod_set_assignments=kept)


def _cluster(old: Workload, new: Workload) -> Iterator[FieldError]:
    before, after = old.status.cluster_name, new.status.cluster_name
    if not after or before == after:
        return
    if before:
        yield from fields.immutable("status.clusterName", before, after)
    elif after not in old.status.nominated_cluster_names:
        yield fields.unsupported("status.clusterName", after, old.status.nominated_cluster_names)


def _ready_checks(old: Workload, new: Workload) -> Iterator[FieldError]:
    """The job may have started with a ready check's updates, so they stay as they are."""
    before = {check.name: check for check in old.status.admission_checks if check.state == "Ready"}
    for index, check in enumerate(new.status.admission_checks):
        known = before.get(check.name)
        if known and check.state == "Ready" and check.pod_set_updates != known.pod_set_updates:
            yield fields.forbidden(
                f"status.admissionChecks[{index}].podSetUpdates", "cannot change while the check stays Ready"
            )
