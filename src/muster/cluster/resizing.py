"""What a pod takes of its node where its status says more than its specification: while its resources are being changed
in place, and where claims take of the node too.

Until the node has done what the specification asks, both what it has granted and what is in force still count: the
largest of the three, for each resource. A change that the node called infeasible does not count at all.
"""

from collections.abc import Mapping
from typing import NamedTuple

from muster.api import core, quantity
from muster.api.core.requests import Amounts, amounts, combine, is_pod_level, requests_of
from muster.api.scalars import ResourceList
from muster.cluster.amounts import container_total, in_units, nonzero_of, pod_level_requests, with_overhead
from muster.cluster.claimed import claimed_by
from muster.cluster.columns import PODS

RESIZE_PENDING = "PodResizePending"
DEFERRED = "Deferred"
INFEASIBLE = "Infeasible"


class Held(NamedTuple):
    needs: Mapping[str, int]
    nonzero: tuple[int, int]


def is_deferred(pod: core.Pod) -> bool:
    """The node has no room for the change now, and will make it when there is."""
    return _pending(pod) == DEFERRED


def held_by(pod: core.Pod) -> Held | None:
    """What the pod takes of its node; None where its status tells nothing that its specification does not."""
    if not _reports_otherwise(pod):
        return None
    try:
        return Held(_total(pod, {}) | {PODS: 1}, nonzero_of(lambda unsaid: _total(pod, unsaid), pod.spec))
    except quantity.BadQuantity:
        return None  # status is not validated


def _pending(pod: core.Pod) -> str | None:
    return next((c.reason for c in pod.status.conditions if c.type == RESIZE_PENDING), None)


def _reports_otherwise(pod: core.Pod) -> bool:
    # Kubelets report what they granted for every running pod: nearly always the very words of the specification.
    status = pod.status
    if status.allocated_resources is not None or status.resources is not None or _pending(pod) == INFEASIBLE:
        return True
    if status.node_allocatable_resource_claim_statuses:
        return True
    reported = {found.name: found for found in (*status.container_statuses, *status.init_container_statuses)}
    if not reported:
        return False
    for container in (*pod.spec.containers, *pod.spec.init_containers):
        found = reported.get(container.name)
        asked = container.resources.requests if container.resources else None
        if found is None:
            continue
        if found.allocated_resources is not None and found.allocated_resources != (asked or {}):
            return True
        if found.resources is not None and (found.resources.requests or {}) != (asked or {}):
            return True
    return False


def _total(pod: core.Pod, unsaid: Amounts) -> dict[str, int]:
    """As Kubernetes' resource helpers sum a pod that has a status."""
    spec, status = pod.spec, pod.status
    is_infeasible = _pending(pod) == INFEASIBLE
    reported = {found.name: found for found in (*status.init_container_statuses, *status.container_statuses)}

    def asked(container: core.Container) -> Amounts:
        return requests_of(container.resources)

    def granted(container: core.Container) -> Amounts:
        found = reported.get(container.name)
        if found is not None and found.allocated_resources is not None:
            return amounts(found.allocated_resources)
        return {} if is_infeasible else asked(container)

    def in_force(container: core.Container) -> Amounts:
        found = reported.get(container.name)
        if found is not None and found.resources is not None and found.resources.requests is not None:
            return amounts(found.resources.requests)
        return granted(container)

    whole = status.resources.requests if status.resources else None
    if status.allocated_resources is not None and whole is not None:
        total = _largest(amounts(status.allocated_resources), amounts(whole))
    else:
        total = _largest(container_total(spec, granted, unsaid), container_total(spec, in_force, unsaid))
    if not is_infeasible:
        total = _largest(total, container_total(spec, asked, unsaid))
    total |= _pod_level(pod, whole, is_infeasible)
    return in_units(combine((with_overhead(total, spec), *claimed_by(pod)), ()))


def _pod_level(pod: core.Pod, whole: ResourceList | None, is_infeasible: bool) -> Amounts:
    asked = pod_level_requests(pod.spec)
    if not asked or pod.status.resources is None:
        return asked
    reported = _largest(amounts(whole), amounts(pod.status.allocated_resources))
    counted = reported if is_infeasible else _largest(asked, reported)
    return {name: amount for name, amount in counted.items() if is_pod_level(name)}


def _largest(left: Amounts, right: Amounts) -> Amounts:
    return left | {name: max(left[name], amount) if name in left else amount for name, amount in right.items()}
