"""What of Volcano's suites is not about placement here, decided by a case's fields, and why."""

from collections.abc import Iterator, Mapping
from typing import Any

from muster.api import quantity
from tests.conformance.cases import Case

INTERNAL = "calls a function inside Volcano's scheduler on its own types; what comes of it is tested by the sessions"
VOLUMES = (
    "Muster has no PersistentVolumes to choose from: a claim is a directory, of a node or of a file system that all "
    "share"
)
DEVICES = "Muster assigns devices itself, not by ResourceClaims (Kubernetes' dynamic resource allocation)"
BETWEEN_QUEUES = (
    "pods of several queues compete, and the order between queues is their fair share: the quota engine decides which "
    "workloads go, before placement"
)
BETWEEN_JOBS = (
    "jobs of one queue compete, and the order between them is their dominant share: the quota engine decides which "
    "workloads go, before placement"
)
BEST_EFFORT = "Muster places pods that ask for nothing together with their gang, not in an action of their own"
NAMESPACE_QUOTAS = (
    "Muster serves no ResourceQuota: what a namespace may use is the quota of the queues that its LocalQueues lead to"
)
JOB_BY_JOB = (
    "jobs of one queue take turns by their dominant share; here a queue is served by priority and time, and whoever is "
    "to have a share gets a queue of his own: then the stated amounts come out"
)
ANCESTORS = (
    "reclaims from a queue whose parent has no more than it deserves: `ancestorReclaimLevel` says how far up Volcano "
    "looks, and Muster always looks up to where the two meet, so that what a department deserves does not depend on "
    "how it divides it"
)
IN_VAIN = (
    "evicts pods for a job that cannot be placed even then: in Muster nobody is evicted unless the one for whom it "
    "happens is placed"
)
UNCOMPARED = "the Go test compares nothing: it returns before it looks at what is expected"
MOST_DOMAINS = "bounds how many domains an action tries; Muster tries all that could hold the gang"
PLUGIN = "a plugin that exists only in Volcano's test"

_ACTIONS = ("enqueue", "allocate", "backfill", "preempt", "reclaim")
_ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "binpack": ("binpack.",),
    "capacity": ("ancestorReclaimLevel", "capacity."),
    "conformance": (),
    "drf": (),
    "gang": (),
    "network-topology-aware": ("weight", "hypernode.binpack."),
    "nodegroup": ("strict", "enablePreferredOrder"),
    "nodeorder": (
        "leastrequested.weight",
        "mostrequested.weight",
        "nodeaffinity.weight",
        "podaffinity.weight",
        "balancedresource.weight",
        "tainttoleration.weight",
        "imagelocality.weight",
        "podtopologyspread.weight",
    ),
    "overcommit": ("overcommit-factor",),
    "pdb": (),
    "predicates": ("predicate.",),
    "priority": (),
    "proportion": (),
    "resource-strategy-fit": ("resourceStrategyFitWeight", "resources", "sra"),
    "sla": ("sla-waiting-time",),  # lets in those who have waited long: nobody has, in a session that starts anew
}
"""Plugins that sessions are run with, and what their arguments begin with."""


def unheard_of(case: Case) -> str | None:
    """An action, a plugin, or an argument of one, that a session has and nobody here knows."""
    for action in case["actions"]:
        if action not in _ACTIONS:
            return f"action {action}"
    for plugin in plugins(case):
        name = plugin["name"]
        if name not in _ARGUMENTS and name not in (case.get("customPlugins") or {}):
            return f"plugin {name}"
        unknown = [key for key in plugin.get("arguments") or {} if not key.startswith(_ARGUMENTS.get(name, ("",)))]
        if unknown:
            return f"argument {unknown[0]} of plugin {name}"
    return None


def of_session(case: Case) -> str | None:
    """Why the session cannot be run; None where it can."""
    if case.get("persistentVolumeClaims"):
        return VOLUMES
    if case.get("resourceClaims"):
        return DEVICES
    if case.get("customPlugins"):
        return PLUGIN
    if "backfill" not in case["actions"] and any(is_best_effort(pod) for pod in pending(case)):
        return BEST_EFFORT
    return _of_order(case)


def of_queue_session(case: Case) -> str | None:
    """The same, where quota decides about the order."""
    if case.get("persistentVolumeClaims"):
        return VOLUMES
    if case.get("resourceClaims"):
        return DEVICES
    if any("rejectJob" not in plugin for plugin in (case.get("customPlugins") or {}).values()):
        return PLUGIN
    if not {"backfill", "preempt", "reclaim"} & set(case["actions"]) and any(map(is_best_effort, pending(case))):
        return BEST_EFFORT
    return None


def shares_queue_by_job(case: Case) -> bool:
    """Whether several jobs of one queue share it by what they have."""
    jobs = {job_of(pod): queue_of(case, pod) for pod in pending(case)}
    is_asked = any(plugin["name"] == "drf" and plugin.get("enableJobOrder") for plugin in plugins(case))
    return is_asked and len(set(jobs.values())) < len(jobs)


def _of_order(case: Case) -> str | None:
    jobs = {job_of(pod): queue_of(case, pod) for pod in pending(case)}
    if len(jobs) < 2 or not _compete(case):
        return None
    if len(set(jobs.values())) > 1 and any(plugin.get("enableQueueOrder") for plugin in plugins(case)):
        return BETWEEN_QUEUES
    if any(plugin["name"] == "drf" and plugin.get("enableJobOrder") for plugin in plugins(case)):
        return BETWEEN_JOBS
    return None


def _compete(case: Case) -> bool:
    """Whether the nodes have too little of anything for all that is pending."""
    wanted: dict[str, float] = {}
    free: dict[str, float] = {}
    for node in case["nodes"]:
        _add(free, (node.get("status") or {}).get("allocatable") or {}, 1)
    for pod in case["pods"]:
        ended = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
        if not ended:
            total = free if pod["spec"].get("nodeName") else wanted
            for container in pod["spec"]["containers"]:
                requests = (container.get("resources") or {}).get("requests") or {}
                _add(total, requests, -1 if total is free else 1)
    return any(amount > free.get(resource, 0) for resource, amount in wanted.items())


def _add(total: dict[str, float], amounts: dict[str, Any], sign: int) -> None:
    for resource, amount in amounts.items():
        total[resource] = total.get(resource, 0) + sign * quantity.parse(str(amount)).milli


def plugins(case: Case) -> Iterator[dict[str, Any]]:
    for tier in case.get("tiers") or ():
        yield from tier["plugins"]


def pending(case: Case) -> list[dict[str, Any]]:
    """Pods without a node, of jobs that the session has."""
    return [
        pod
        for pod in case["pods"]
        if not pod["spec"].get("nodeName")
        and (pod.get("status") or {}).get("phase") == "Pending"
        and not pod["metadata"].get("deletionTimestamp")
        and queue_of(case, pod) is not None
    ]


def is_best_effort(pod: dict[str, Any]) -> bool:
    containers = [*pod["spec"]["containers"], *(pod["spec"].get("initContainers") or ())]
    asked = [(container.get("resources") or {}).get("requests") or {} for container in containers]
    return not any(quantity.parse(str(amount)).milli for requests in asked for amount in requests.values())


def job_of(pod: dict[str, Any]) -> str:
    meta = pod["metadata"]
    return f"{meta.get('namespace', '')}/{(meta.get('annotations') or {}).get('scheduling.k8s.io/group-name', '')}"


def queue_of(case: Case, pod: dict[str, Any]) -> str | None:
    """The queue of the pod's job; None where there is no such job, or no such queue."""
    known = {queue["metadata"]["name"] for queue in case.get("queues") or ()}
    for group in case.get("podGroups") or ():
        meta = group["metadata"]
        if f"{meta.get('namespace', '')}/{meta['name']}" == job_of(pod):
            queue = (group.get("spec") or {}).get("queue") or "default"
            return queue if queue in known else None
    return None
