"""Random mixes of every dialect: batch, Volcano and PyTorch jobs, flows, cron jobs, allocations of the Determined API,
and lone pods; in queues of either kind, or in none."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import TypeAlias

from muster.api.kueue import names
from muster.api.raw import Document
from muster.quota.topology.assignments import HOSTNAME
from muster.sim.loads import GPU, NAMESPACE, PRIORITIES, Load, a_batch_job, a_pod, a_template
from muster.sim.plans import RACK_LABEL

_BATCH_VOLCANO = "batch.volcano.sh/v1alpha1"
_FLOW = "flow.volcano.sh/v1alpha1"
STEPS = ("fetch", "train", "test")
"""JobTemplates that flows here are made of."""
_NODE_GPUS = 8
_POD_SHAPES = ((0, 20), (1, 35), (2, 20), (4, 15), (8, 10))
"""GPUs of a pod, and how many ask for so many."""


@dataclass(frozen=True, slots=True)
class Offer:
    """What users may choose from."""

    queues: Sequence[str]
    """LocalQueues."""
    most_gpus: int
    """None asks for more, in all."""
    volcano_queues: Sequence[str] = ()
    longest: float = 300.0
    """Seconds that a pod works at most."""
    schedules: Sequence[str] = ("* * * * *", "*/2 * * * *", "*/3 * * * *")
    """Of cron jobs."""
    keeps: int | None = None
    """Seconds that jobs are kept when they are over; None: for ever."""


Maker: TypeAlias = Callable[[str, random.Random, Offer], Document]


def mixed(offer: Offer, chance: random.Random) -> Load:
    """Jobs of every dialect."""
    makers, weights = tuple(_MAKERS), tuple(_MAKERS.values())
    for number in count():
        yield chance.choices(makers, weights)[0](f"j{number}", chance, offer)


def alike(offer: Offer, chance: random.Random) -> Load:
    """Jobs of a few shapes only, for which whoever comes later must not be served before."""
    shapes = [(chance.randint(1, max(1, offer.most_gpus)), chance.choice(tuple(PRIORITIES))) for _ in range(2)]
    for number in count():
        gpus, priority = chance.choice(shapes)
        template = a_template(_seconds(chance, offer), gpus=min(gpus, 8), priority=priority)
        if chance.random() < 0.3:
            yield a_pod(f"p{number}", template, labels={})
        else:
            yield a_batch_job(f"j{number}", template, 1, queue=chance.choice(offer.queues), backoffLimit=50)


def near_each_other(load: Load, rack_gpus: int, chance: random.Random) -> Load:
    """Of those in LocalQueues, some ask that their pods be near each other. `rack_gpus`: of the largest rack."""
    for document in load:
        is_queued = names.QUEUE_LABEL in document["metadata"].get("labels", {})
        for described, gpus in _pod_sets(document) if is_queued else ():
            wishes = [(names.PREFERRED_TOPOLOGY, RACK_LABEL), (names.UNCONSTRAINED_TOPOLOGY, "true"), None]
            if gpus <= rack_gpus:
                wishes += [(names.REQUIRED_TOPOLOGY, RACK_LABEL)] * 2
            if gpus <= _NODE_GPUS:
                wishes.append((names.REQUIRED_TOPOLOGY, HOSTNAME))
            wish = chance.choice(wishes)
            if wish is not None:
                described.setdefault("metadata", {}).setdefault("annotations", {})[wish[0]] = wish[1]
        yield document


def _pod_sets(document: Document) -> Iterator[tuple[Document, int]]:
    """What describes the pods of each, and the GPUs that they have together."""
    spec = document["spec"]
    if document["kind"] == "PyTorchJob":
        for role in spec["pytorchReplicaSpecs"].values():
            role["template"] = {**role["template"]}  # roles have one in common
            yield role["template"], role["replicas"] * _gpus_of(role["template"])
    elif document["kind"] == "Job" and "tasks" in spec:
        for task in spec["tasks"]:
            yield task["template"], task["replicas"] * _gpus_of(task["template"])
    elif document["kind"] == "Job":
        yield spec["template"], spec["parallelism"] * _gpus_of(spec["template"])
    elif document["kind"] == "Pod":
        yield document, _gpus_of(document)


def _gpus_of(described: Document) -> int:
    return int(described["spec"]["containers"][0]["resources"]["requests"].get(GPU, 0))


def job_templates() -> list[Document]:
    """What flows refer to."""
    return [
        {
            "apiVersion": _FLOW,
            "kind": "JobTemplate",
            "metadata": {"name": step, "namespace": NAMESPACE},
            "spec": _volcano_spec(1 + number, a_template(10.0 * (1 + number), gpus=number % 2)),
        }
        for number, step in enumerate(STEPS)
    ]


def _size(chance: random.Random, most: int) -> tuple[int, int]:
    """Pods, and GPUs of each: few large jobs, many small ones."""
    shapes, weights = zip(*_POD_SHAPES, strict=True)
    gpus = min(chance.choices(shapes, weights)[0], most)
    return chance.randint(1, max(1, min(6, most // max(gpus, 1)))), gpus


def _seconds(chance: random.Random, offer: Offer) -> float:
    return round(min(offer.longest, chance.expovariate(5 / offer.longest) + 2), 1)


def _template(chance: random.Random, offer: Offer, gpus: int, container: str = "main") -> Document:
    priority = chance.choice(tuple(PRIORITIES))
    return a_template(_seconds(chance, offer), gpus=gpus, priority=priority, container=container)


def _queue(chance: random.Random, offer: Offer) -> str:
    return chance.choice(("", *offer.queues, *offer.queues))


def _kept(offer: Offer) -> Document:
    return {} if offer.keeps is None else {"ttlSecondsAfterFinished": offer.keeps}


def _metadata(name: str, queue: str) -> Document:
    metadata: Document = {"name": name, "namespace": NAMESPACE}
    if queue:
        metadata["labels"] = {names.QUEUE_LABEL: queue}
    return metadata


def _batch_job(name: str, chance: random.Random, offer: Offer) -> Document:
    pods, gpus = _size(chance, offer.most_gpus)
    more: Document = {"completions": pods + chance.randrange(3), "backoffLimit": 50, **_kept(offer)}
    return a_batch_job(name, _template(chance, offer, gpus), pods, queue=_queue(chance, offer), **more)


def _indexed_job(name: str, chance: random.Random, offer: Offer) -> Document:
    pods, gpus = _size(chance, offer.most_gpus)
    more: Document = {"completions": pods, "completionMode": "Indexed", "backoffLimit": 50, **_kept(offer)}
    return a_batch_job(name, _template(chance, offer, gpus), pods, queue=_queue(chance, offer), **more)


def _volcano_job(name: str, chance: random.Random, offer: Offer) -> Document:
    """In a LocalQueue, in one of Volcano's own queues, or in the default one of those."""
    pods, gpus = _size(chance, offer.most_gpus)
    spec = _volcano_spec(pods, _template(chance, offer, gpus)) | _kept(offer)
    queue = _queue(chance, offer)
    if not queue and offer.volcano_queues:
        spec["queue"] = chance.choice(offer.volcano_queues)
    return {"apiVersion": _BATCH_VOLCANO, "kind": "Job", "metadata": _metadata(name, queue), "spec": spec}


def _own_queue_job(name: str, chance: random.Random, offer: Offer) -> Document:
    return _volcano_job(name, chance, replace(offer, queues=()))


def _volcano_spec(pods: int, template: Document) -> Document:
    return {
        "minAvailable": pods,
        "schedulerName": "volcano",
        "maxRetry": 50,
        "tasks": [{"name": "worker", "replicas": pods, "minAvailable": pods, "template": template}],
        "policies": [{"events": ["PodFailed", "PodEvicted"], "action": "RestartJob"}],
    }


def _pytorch_job(name: str, chance: random.Random, offer: Offer) -> Document:
    pods, gpus = _size(chance, offer.most_gpus)
    template = _template(chance, offer, gpus, "pytorch")
    roles: Document = {"Master": {"replicas": 1, "restartPolicy": "OnFailure", "template": template}}
    if pods > 1:
        roles["Worker"] = {"replicas": pods - 1, "restartPolicy": "OnFailure", "template": template}
    spec = {"pytorchReplicaSpecs": roles, "runPolicy": {"backoffLimit": 50, **_kept(offer)}}
    metadata = _metadata(name, _queue(chance, offer))
    return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": metadata, "spec": spec}


def _job_flow(name: str, chance: random.Random, _: Offer) -> Document:
    steps: list[Document] = [{"name": step} for step in STEPS[: chance.randint(1, len(STEPS))]]
    for number, step in enumerate(steps[1:]):
        step["dependsOn"] = {"targets": [STEPS[number]]}
    spec = {"flows": steps, "jobRetainPolicy": chance.choice(("retain", "delete"))}
    return {"apiVersion": _FLOW, "kind": "JobFlow", "metadata": _metadata(name, ""), "spec": spec}


def _cron_job(name: str, chance: random.Random, offer: Offer) -> Document:
    """A run again and again, for as long as it is there."""
    spec: Document = {
        "schedule": chance.choice(offer.schedules),
        "concurrencyPolicy": chance.choice(("Forbid", "Replace")),
        "successfulJobsHistoryLimit": 1,
        "failedJobsHistoryLimit": 1,
        "jobTemplate": {"spec": _volcano_spec(1, a_template(min(20.0, offer.longest), priority="low"))},
    }
    return {"apiVersion": _BATCH_VOLCANO, "kind": "CronJob", "metadata": _metadata(name, ""), "spec": spec}


def _allocation(name: str, chance: random.Random, offer: Offer) -> Document:
    """A run of a task, as Determined's API asks for one."""
    pods, gpus = _size(chance, offer.most_gpus)
    spec: Document = {
        "taskId": name,
        "taskType": "COMMAND",
        "pods": pods,
        "slots": pods * gpus,
        "template": _template(chance, offer, gpus),
    }
    queue = _queue(chance, offer)
    if queue:
        spec["queueName"] = queue
    return {"apiVersion": "muster.dev/v1", "kind": "Allocation", "metadata": _metadata(name, queue), "spec": spec}


def _lone_pod(name: str, chance: random.Random, offer: Offer) -> Document:
    gpus = _size(chance, offer.most_gpus)[1]
    queue = _queue(chance, offer)
    return a_pod(name, _template(chance, offer, gpus), labels={names.QUEUE_LABEL: queue} if queue else {})


_MAKERS: Mapping[Maker, int] = {
    _batch_job: 10,
    _indexed_job: 10,
    _volcano_job: 10,
    _own_queue_job: 6,
    _pytorch_job: 10,
    _job_flow: 4,
    _cron_job: 2,
    _allocation: 6,
    _lone_pod: 8,
}
"""How often each is chosen, relative to the others."""
