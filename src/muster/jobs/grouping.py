"""The pod group of pods that come without one: from a pod and what its owner says."""

from collections.abc import Mapping

from muster.api import core, raw, volcano
from muster.api.raw import Document
from muster.api.volcano.grouping import controller_of, group_name
from muster.api.volcano.taking_in import QUEUE_ANNOTATION
from muster.api.volcano.topology_validation import MODES
from muster.jobs.volcano import minimum, names

MIN_MEMBER_ANNOTATION = "scheduling.volcano.sh/group-min-member"
TOPOLOGY_MODE = "volcano.sh/network-topology-mode"
TOPOLOGY_TIER = "volcano.sh/network-topology-highest-tier"
_INHERITED = "volcano.sh/"
_LARGEST_TIER = 2**31


def make_group(pod: core.Pod, owner: Mapping[str, str]) -> Document:
    """`owner`: annotations of the object that controls the pod. What the pod says itself comes first."""
    members = _number(owner.get(MIN_MEMBER_ANNOTATION), 1)
    said = pod.metadata.annotations or {}
    annotations = {key: value for key, value in owner.items() if key.startswith(_INHERITED)}
    for key in (names.PREEMPTABLE, names.COOLDOWN, names.REVOCABLE_ZONE, _budget(said)):
        if key in said:
            annotations[key] = said[key]
    labels = {key: value for key, value in (pod.metadata.labels or {}).items() if key in _LABELS}
    usage = {name: str(amount * members) for name, amount in minimum.usage(pod.spec).items()}
    spec: Document = {"minMember": members, "minResources": usage}
    if pod.spec.priority_class_name:
        spec["priorityClassName"] = pod.spec.priority_class_name
    queue = said.get(QUEUE_ANNOTATION) or owner.get(QUEUE_ANNOTATION)
    if queue:
        spec["queue"] = queue
    topology = network_topology(said)
    if topology is not None:
        spec["networkTopology"] = topology
    metadata: Document = {
        "name": group_name(pod.metadata),
        "namespace": pod.metadata.namespace,
        "ownerReferences": _owners(pod),
    }
    metadata |= {name: value for name, value in (("annotations", annotations), ("labels", labels)) if value}
    return {
        "apiVersion": volcano.POD_GROUP.api_version,
        "kind": volcano.POD_GROUP.name,
        "metadata": metadata,
        "spec": spec,
        "status": {"phase": "Pending"},
    }


_LABELS = (names.PREEMPTABLE, names.COOLDOWN)


def _budget(said: Mapping[str, str]) -> str:
    """Of the two ways to say how many may be missing, the first counts."""
    return names.BUDGET_MIN_AVAILABLE if names.BUDGET_MIN_AVAILABLE in said else names.BUDGET_MAX_UNAVAILABLE


def network_topology(said: Mapping[str, str]) -> Document | None:
    """What annotations of a pod ask of the network. A mode that nobody knows means hard, as no mode does."""
    tier = _number(said.get(TOPOLOGY_TIER), 0)
    if TOPOLOGY_MODE not in said and not tier:
        return None
    mode = said.get(TOPOLOGY_MODE, "")
    found: Document = {"mode": mode if mode in MODES else "hard"}
    return found | ({"highestTierAllowed": tier} if tier else {})


def _number(text: str | None, otherwise: int) -> int:
    if text is None or not (text.isascii() and text.isdigit()) or not 0 < int(text[:12]) < _LARGEST_TIER:
        return otherwise
    return int(text)


def _owners(pod: core.Pod) -> list[Document]:
    """Its controller's pods may come and go: the group stays as long as the controller."""
    if controller_of(pod.metadata) is not None:
        owners: list[Document] = raw.copy(pod.metadata.owner_references)
        return owners
    return [
        {
            "apiVersion": core.POD.api_version,
            "kind": core.POD.name,
            "name": pod.metadata.name,
            "uid": pod.metadata.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
