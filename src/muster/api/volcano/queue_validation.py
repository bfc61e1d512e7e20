"""What a queue and a pod group must look like. How queues fit into their tree is asked where the tree can be seen."""

import math
from collections.abc import Iterator, Mapping

from muster.api import fields, quantity
from muster.api.errors import FieldError
from muster.api.metadata import validate_label_selector
from muster.api.quantity import BadQuantity, Quantity
from muster.api.scalars import QuantityText, ResourceList
from muster.api.volcano.defaults import HIERARCHY, HIERARCHY_WEIGHTS
from muster.api.volcano.topology_validation import validate_network_topology
from muster.api.volcano.views import PodGroup, Queue, QueueSpec, SubGroupPolicySpec

MAX_WEIGHT = 65_535
STATES = ("Open", "Closed", "Closing", "Unknown")
DEQUEUE_STRATEGIES = ("fifo", "traverse")
PHASES = ("Pending", "Inqueue", "Running", "Unknown", "Completed")


def validate_queue(queue: Queue) -> list[FieldError]:
    return list(_queue(queue))


def _queue(queue: Queue) -> Iterator[FieldError]:
    # A user opens and closes; the states between are the controller's.
    if queue.status.state and queue.status.state not in STATES:
        yield fields.invalid("status.state", queue.status.state, "queue state must be in [Open Closed]")
    spec = queue.spec
    yield from fields.positive("spec.weight", spec.weight)
    if (spec.weight or 0) > MAX_WEIGHT:
        yield fields.invalid("spec.weight", spec.weight, f"must be less than or equal to {MAX_WEIGHT}")
    if spec.parent and spec.parent == queue.metadata.name:
        yield fields.invalid("spec.parent", spec.parent, f"queue {spec.parent} cannot use itself as parent")
    if spec.dequeue_strategy:
        yield from fields.one_of("spec.dequeueStrategy", spec.dequeue_strategy, DEQUEUE_STRATEGIES)
    yield from _resources(spec)
    for index, cluster in enumerate(spec.extend_clusters):
        yield from fields.non_negative(f"spec.extendClusters[{index}].weight", cluster.weight)
        yield from _amounts(f"spec.extendClusters[{index}].capacity", cluster.capacity)
    yield from _hierarchy(queue.metadata.annotations or {})


def _amounts(path: str, listed: ResourceList | None) -> Iterator[FieldError]:
    for name, value in (listed or {}).items():
        yield from fields.qualified_name(path, name)
        yield from fields.amount(f"{path}.{name}", value)


def _resources(spec: QueueSpec) -> Iterator[FieldError]:
    """What is guaranteed is deserved, and what is deserved may be used."""
    guarantee = (spec.guarantee.resource if spec.guarantee else None) or {}
    deserved, capability = spec.deserved or {}, spec.capability or {}
    yield from _amounts("spec.capability", capability)
    yield from _amounts("spec.deserved", deserved)
    yield from _amounts("spec.guarantee.resource", guarantee)
    for name, value in guarantee.items():
        path = f"spec.deserved.{name}"
        if name not in deserved:
            yield fields.invalid(path, "<nil>", f"deserved[{name}] must be >= guarantee[{name}]={value}")
        elif _is_less(deserved[name], value):
            message = f"deserved[{name}]={deserved[name]} must be >= guarantee[{name}]={value}"
            yield fields.invalid(path, deserved[name], message)
    for name, value in deserved.items():
        if name in capability and _is_less(capability[name], value):
            message = f"deserved[{name}]={value} must be <= capability[{name}]={capability[name]}"
            yield fields.invalid(f"spec.deserved.{name}", value, message)


def _is_less(left: QuantityText, right: QuantityText) -> bool:
    """False where either is no quantity: that is an error of its own."""
    parsed = _parsed(left), _parsed(right)
    return parsed[0] is not None and parsed[1] is not None and parsed[0] < parsed[1]


def _parsed(value: QuantityText) -> Quantity | None:
    try:
        return quantity.parse(value)
    except BadQuantity:
        return None


def _hierarchy(annotations: Mapping[str, str]) -> Iterator[FieldError]:
    hierarchy, weights = annotations.get(HIERARCHY, ""), annotations.get(HIERARCHY_WEIGHTS, "")
    if not hierarchy and not weights:
        return
    if len(hierarchy.split("/")) != len(weights.split("/")):
        message = f"{HIERARCHY} must have the same length with {HIERARCHY_WEIGHTS}"
        yield fields.invalid("metadata.annotations", hierarchy, message)
    for weight in weights.split("/") if weights else ():
        try:
            number = float(weight) if weight.isascii() and weight == weight.strip() and "_" not in weight else None
        except ValueError:
            number = None
        if number is None or math.isnan(number):
            message = (
                f'{weight} in the {weights} is invalid number: strconv.ParseFloat: parsing "{weight}": invalid syntax'
            )
            yield fields.invalid("metadata.annotations", weights, message)
        elif number <= 0:
            yield fields.invalid("metadata.annotations", weights, f"{weight} in the {weights} must be larger than 0")


def validate_pod_group(group: PodGroup) -> list[FieldError]:
    return list(_pod_group(group))


def _pod_group(group: PodGroup) -> Iterator[FieldError]:
    spec = group.spec
    yield from fields.non_negative("spec.minMember", spec.min_member)
    for task, count in (spec.min_task_member or {}).items():
        yield from fields.non_negative(f"spec.minTaskMember.{task}", count)
    yield from _amounts("spec.minResources", spec.min_resources)
    yield from validate_network_topology("spec.networkTopology", spec.network_topology)
    yield from fields.unique("spec.subGroupPolicy", [policy.name for policy in spec.sub_group_policy], "name")
    for index, policy in enumerate(spec.sub_group_policy):
        yield from _sub_group(f"spec.subGroupPolicy[{index}]", policy)
    if group.status.phase:
        yield from fields.one_of("status.phase", group.status.phase, PHASES)


def _sub_group(path: str, policy: SubGroupPolicySpec) -> Iterator[FieldError]:
    if not policy.name:
        yield fields.required(f"{path}.name")
    yield from fields.positive(f"{path}.subGroupSize", policy.sub_group_size)
    yield from fields.non_negative(f"{path}.minSubGroups", policy.min_sub_groups)
    yield from validate_label_selector(f"{path}.labelSelector", policy.label_selector)
    for index, key in enumerate(policy.match_label_keys):
        yield from fields.qualified_name(f"{path}.matchLabelKeys[{index}]", key)
    yield from validate_network_topology(f"{path}.networkTopology", policy.network_topology)
