"""Jobs and workloads for tests of the job integrations, as documents."""

from collections.abc import Mapping
from typing import Final

from muster.api import batch, core, kueue
from muster.api.meta import Instant
from muster.api.objects import Object
from muster.api.raw import JSON, Document, encode
from muster.quota.integrations import jobs, making, subjects
from muster.quota.integrations.batch_job import BatchJobs
from muster.quota.integrations.steps import Plan, World
from muster.quota.settings import Settings

NOW: Final = Instant(1_700_000_000.0)
WORLD: Final = World(NOW)
JOBS: Final = BatchJobs()
QUEUE: Final = "kueue.x-k8s.io/queue-name"


def a_job(
    name: str = "j",
    *,
    queue: str = "team",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    status: Document | None = None,
    template: Document | None = None,
    **spec: JSON,
) -> Document:
    found = {QUEUE: queue} if queue else {}
    pods = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "main", "image": "host"}]}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "generation": 1,
            "labels": {**found, **(labels or {})},
            "annotations": dict(annotations or {}),
        },
        "spec": {"suspend": True, "parallelism": 3, "completions": 3, "template": template or pods, **spec},
        "status": status or {},
    }


def subject(job: Document) -> subjects.Subject:
    return subjects.of_job(JOBS, job)


def a_workload(job: Document, *conditions: str, world: World = WORLD, **status: JSON) -> Object:
    """Of the job as it is. `conditions` hold, such as `Evicted=Preempted`; one that does not: `!QuotaReserved=X`."""
    document = making.make(subject(job), world)
    document["metadata"] |= {"uid": "uid-w", "resourceVersion": "7", "creationTimestamp": "2023-11-14T22:00:00Z"}
    listed = [_condition(written) for written in conditions]
    document["status"] = {**({"conditions": listed} if listed else {}), **status}
    document |= {"apiVersion": kueue.WORKLOAD.api_version, "kind": "Workload"}
    return Object(kueue.WORKLOAD, encode(document))


def admitted(job: Document, *conditions: str, flavor: str = "", count: int = 3, **assignment: JSON) -> Object:
    given = {"name": "main", "count": count, "flavors": {"cpu": flavor} if flavor else {}, **assignment}
    admission = {"clusterQueue": "cq", "podSetAssignments": [given]}
    return a_workload(job, "QuotaReserved", "Admitted", *conditions, admission=admission)


def _condition(written: str) -> Document:
    holds = not written.startswith("!")
    type, _, reason = written.lstrip("!").partition("=")
    return {
        "type": type,
        "status": "True" if holds else "False",
        "reason": reason or type,
        "message": f"because of {reason or type}",
        "lastTransitionTime": "2023-11-14T22:00:00Z",
    }


def plan(job: Document, *workloads: Object, world: World = WORLD) -> Plan:
    return jobs.plan(subject(job), workloads, world)


def kinds(found: Plan) -> list[str]:
    return [type(step).__name__ for step in found.steps]


def a_flavor(name: str, **spec: JSON) -> kueue.ResourceFlavor:
    document = {"metadata": {"name": name}, "spec": spec}
    return Object(kueue.RESOURCE_FLAVOR, encode(document)).read(kueue.ResourceFlavor)


def a_world(*flavors: kueue.ResourceFlavor, settings: Settings | None = None) -> World:
    return World(NOW, settings or Settings(), flavors={flavor.metadata.name: flavor for flavor in flavors})


def an_object(document: Document) -> Object:
    return Object({"Job": batch.JOB, "Pod": core.POD, "Node": core.NODE}[document["kind"]], encode(document))
