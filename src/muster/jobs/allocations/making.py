"""The documents of what an allocation consists of: its pods, one for each rank, and their gang.

A pod's name follows from its rank, so that a store holds at most one of each.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from muster.api import muster, raw
from muster.api.documents import child, objects
from muster.api.kueue.names import PRIORITY_CLASS_LABEL, QUEUE_LABEL
from muster.api.muster.names import ALLOCATION_LABEL, QUEUE_PRIORITY, RANK_LABEL, TASK_LABEL, TASK_TYPE_LABEL
from muster.api.raw import JSON, Document
from muster.api.volcano.grouping import GROUP_ANNOTATION
from muster.jobs.volcano import minimum

USUAL: Final = 42
"""As Determined counts priorities: from 1 to 99, and the lower the more urgent."""
_OF_THE_QUEUE: Final = (QUEUE_LABEL, PRIORITY_CLASS_LABEL)
"""Labels of what queues itself: on a pod of something that does, they would mean nothing."""


def pod_name(allocation: str, rank: int) -> str:
    return f"{allocation}-{rank}"


def make_pods(allocation: muster.Allocation, document: Document, ranks: Iterable[int]) -> list[Document]:
    """`document`: the allocation as stored."""
    template = child(document, "spec", "template")
    return [_pod(allocation, template, rank) for rank in ranks]


def make_group(allocation: muster.Allocation) -> Document:
    pods = allocation.spec.pods or 1
    part = minimum.Part(minimum.usage(allocation.spec.template.spec), pods, None)
    least = {name: str(amount) for name, amount in minimum.by_priority([part], pods).items()}
    return {
        "metadata": {
            "name": allocation.metadata.name,
            "namespace": allocation.metadata.namespace,
            "ownerReferences": [_owner(allocation)],
            "labels": {ALLOCATION_LABEL: allocation.metadata.name},
        },
        "spec": {"minMember": pods, "minResources": least},
    }


def urgency(allocation: muster.Allocation) -> dict[str, str]:
    """What its pods say of how urgent it is; nothing where that is as usual."""
    priority = allocation.spec.priority
    return {} if priority in (None, USUAL) else {QUEUE_PRIORITY: str(USUAL - (priority or 0))}


def is_gang(allocation: muster.Allocation) -> bool:
    """One pod alone needs nobody to wait for."""
    return (allocation.spec.pods or 1) > 1


def _pod(allocation: muster.Allocation, template: Document, rank: int) -> Document:
    made: Document = raw.copy(template)
    metadata, spec = child(made, "metadata"), child(made, "spec")
    name, meta = pod_name(allocation.metadata.name, rank), allocation.metadata
    labels = {key: value for key, value in child(metadata, "labels").items() if key not in _OF_THE_QUEUE}
    annotations = {**child(metadata, "annotations"), **urgency(allocation)}
    if is_gang(allocation):
        annotations[GROUP_ANNOTATION] = meta.name
    variables = _variables(name, rank)
    for container in (*objects(spec, "initContainers"), *objects(spec, "containers")):
        container["env"] = with_variables(variables, list(objects(container, "env")))
    return {
        "metadata": {
            "name": name,
            "namespace": meta.namespace,
            "labels": {
                **labels,
                ALLOCATION_LABEL: meta.name,
                RANK_LABEL: str(rank),
                TASK_LABEL: allocation.spec.task_id,
                TASK_TYPE_LABEL: allocation.spec.task_type,
            },
            "annotations": annotations,
            "ownerReferences": [_owner(allocation)],
        },
        "spec": spec,
    }


def _variables(name: str, rank: int) -> list[Document]:
    node: JSON = {"fieldRef": {"apiVersion": "v1", "fieldPath": "spec.nodeName"}}
    return [
        {"name": "DET_RESOURCES_ID", "value": name},
        {"name": "DET_CONTAINER_ID", "value": name},
        {"name": "DET_AGENT_ID", "valueFrom": node},
        {"name": "MUSTER_RANK", "value": str(rank)},
    ]


def with_variables(first: Sequence[Document], present: Sequence[Document]) -> list[Document]:
    """First, so that what the template says may refer to them as $(NAME)."""
    names = {variable["name"] for variable in first}
    return [*first, *(variable for variable in present if variable.get("name") not in names)]


def _owner(allocation: muster.Allocation) -> Document:
    return {
        "apiVersion": muster.ALLOCATION.api_version,
        "kind": muster.ALLOCATION.name,
        "name": allocation.metadata.name,
        "uid": allocation.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
