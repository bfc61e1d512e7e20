"""Work for a simulated or measured cluster: documents as users would submit them. `sim.mixes` mixes all dialects.

Each generator takes what chance it needs as an argument and says nothing of time; `arrivals` adds that. Pods run
`work SECONDS [EXIT-CODE]`, which `sim.agents` understands.
"""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import TypeAlias

from muster.api.kueue import names
from muster.api.raw import Document
from muster.cluster.pods import GROUP_ANNOTATION

NAMESPACE = "default"
GPU = "nvidia.com/gpu"
_KUEUE = "kueue.x-k8s.io/v1beta2"
PRIORITIES: Mapping[str, int] = {"low": 10, "normal": 100, "high": 1000}
"""PriorityClasses that jobs here name. Workloads take their value from them too."""

Load: TypeAlias = Iterator[Document]


def arrivals(load: Iterable[Document], per_minute: float, chance: random.Random) -> Iterator[tuple[float, Document]]:
    """At random times that are independent of each other, so many a minute on average."""
    at = 0.0
    for document in load:
        at += chance.expovariate(per_minute / 60)
        yield at, document


# Shapes that others measure with


def kueue_shapes(queues: Sequence[str], chance: random.Random) -> Load:
    """As in Kueue's performance test: seven small jobs to two medium ones and one large, one pod each; the larger, the
    longer it runs and the more it matters."""
    shapes = (("small", 1, 20.0, "low"), ("medium", 5, 50.0, "normal"), ("large", 20, 100.0, "high"))
    for number in count():
        shape, cpus, seconds, priority = chance.choices(shapes, (70, 20, 10))[0]
        template = a_template(seconds, cpus=cpus, priority=priority)
        yield a_batch_job(f"{shape}-{number}", template, 1, queue=queues[number % len(queues)])


def scheduler_perf_shapes(chance: random.Random) -> Load:
    """As in Kubernetes' scheduler_perf: lone pods of a tenth of a CPU, some that spread over racks, some that keep away
    from their like, some that may push others off."""
    for number in count():
        kind = chance.choices(("basic", "spread", "apart", "preempting"), (70, 10, 10, 10))[0]
        template = a_template(
            chance.uniform(20, 60), milli_cpus=100, priority="high" if kind == "preempting" else "low"
        )
        spec, labels = template["spec"], {"shape": kind}
        if kind == "spread":
            spec["topologySpreadConstraints"] = [
                {
                    "maxSkew": 5,
                    "topologyKey": "rack",
                    "whenUnsatisfiable": "ScheduleAnyway",
                    "labelSelector": {"matchLabels": labels},
                }
            ]
        elif kind == "apart":
            term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": labels}}
            preferred = [{"weight": 100, "podAffinityTerm": term}]
            spec["affinity"] = {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
        yield a_pod(f"{kind}-{number}", template, labels=labels)


# Documents


def a_template(
    seconds: float,
    *,
    cpus: int = 1,
    milli_cpus: int = 0,
    gpus: int = 0,
    code: int = 0,
    priority: str = "normal",
    container: str = "main",
) -> Document:
    asked = {"cpu": f"{milli_cpus}m" if milli_cpus else str(cpus)} | ({GPU: str(gpus)} if gpus else {})
    main = {
        "name": container,
        "image": "simulated",
        "command": ["work", str(seconds), str(code)],
        "resources": {"requests": asked, "limits": asked},
    }
    return {"spec": {"restartPolicy": "Never", "priorityClassName": priority, "containers": [main]}}


def a_batch_job(name: str, template: Document, parallelism: int, *, queue: str = "", **spec: object) -> Document:
    metadata: Document = {"name": name, "namespace": NAMESPACE}
    if queue:
        metadata["labels"] = {names.QUEUE_LABEL: queue}
    body: Document = {"parallelism": parallelism, "completions": parallelism, "template": template} | spec
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": body}


def a_pod(name: str, template: Document, *, labels: Mapping[str, str], group: str = "") -> Document:
    metadata: Document = {"name": name, "namespace": NAMESPACE, "labels": dict(labels)}
    if group:
        metadata["annotations"] = {GROUP_ANNOTATION: group}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


def a_priority_class(name: str, value: int) -> Document:
    return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value}


def a_flavor(name: str, labels: Mapping[str, str] | None = None, *, topology: str = "") -> Document:
    """`labels`: of the nodes that it is about; without, of all."""
    spec: Document = {"nodeLabels": dict(labels)} if labels else {}
    if topology:
        spec["topologyName"] = topology
    return {"apiVersion": _KUEUE, "kind": "ResourceFlavor", "metadata": {"name": name}, "spec": spec}


def a_topology(name: str, *levels: str) -> Document:
    """`levels`: labels of nodes, the widest first."""
    spec = {"levels": [{"nodeLabel": level} for level in levels]}
    return {"apiVersion": _KUEUE, "kind": "Topology", "metadata": {"name": name}, "spec": spec}


def a_cluster_queue(name: str, quotas: Sequence[Document], flavor: str, cohort: str, *, preempts: bool) -> Document:
    """`quotas`: one for each resource that it covers."""
    covered = [quota["name"] for quota in quotas]
    groups = [{"coveredResources": covered, "flavors": [{"name": flavor, "resources": list(quotas)}]}]
    spec: Document = {"namespaceSelector": {}, "resourceGroups": groups}
    if cohort:
        spec["cohortName"] = cohort
    if preempts:
        reclaim = {"reclaimWithinCohort": "Any"} if cohort else {}
        spec["preemption"] = {"withinClusterQueue": "LowerPriority", **reclaim}
    return {
        "apiVersion": _KUEUE,
        "kind": "ClusterQueue",
        "metadata": {"name": name},
        "spec": spec,
    }


def a_local_queue(name: str, cluster_queue: str) -> Document:
    return {
        "apiVersion": _KUEUE,
        "kind": "LocalQueue",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"clusterQueue": cluster_queue},
    }


def a_volcano_queue(name: str, spec: Document) -> Document:
    return {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": name}, "spec": spec}
