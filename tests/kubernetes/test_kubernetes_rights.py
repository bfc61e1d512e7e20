"""What the controllers may do is what they do: a day's work under the rights of an installation, seen in the audit log.

A request that is refused fails the test, and so does a right that nobody used and that is not declared to be rare.
"""

import asyncio
import json
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.processes import MUSTER, end
from tests.kubernetes.machines import Machines
from tests.kubernetes.own_planes import Plane, own_plane

from muster.access import kubeconfig
from muster.deploying import names, permissions
from muster.deploying.permissions import Grant
from muster.store.kubernetes import KubernetesStore

ACCOUNT = f"system:serviceaccount:{names.NAMESPACE}:{names.CONTROLLER}"
SERVER_ACCOUNT = f"system:serviceaccount:{names.NAMESPACE}:{names.SERVER}"
VOLCANO = "batch.volcano.sh/v1alpha1"
SCHEDULING = "scheduling.volcano.sh/v1beta1"
FLOW = "flow.volcano.sh/v1alpha1"
KUEUE = "kueue.x-k8s.io/v1beta2"
PENDING = "/apis/visibility.kueue.x-k8s.io/v1beta2/clusterqueues/research/pendingworkloads"
QUEUED = {"labels": {"kueue.x-k8s.io/queue-name": "research"}}
Right = tuple[str, str, str]
"""Group, resource (with its subresource), verb."""


def made(api: str, kind: str, name: str, namespace: str = "", **rest: Any) -> dict[str, Any]:
    inside = {"namespace": namespace} if namespace else {}
    metadata = {"name": name, **inside, **rest.pop("metadata", {})}
    return {"apiVersion": api, "kind": kind, "metadata": metadata, **rest}


def template(script: str, cpu: str = "100m", **spec: Any) -> dict[str, Any]:
    asked = {"requests": {"cpu": cpu}}
    container = {"name": "main", "image": "host", "command": ["sh", "-c", script], "resources": asked}
    return {"spec": {"restartPolicy": "Never", "containers": [container], **spec}}


def a_volcano_job(name: str, script: str = "true", **spec: Any) -> dict[str, Any]:
    task = {"name": "main", "replicas": 1, "template": template(script)}
    return made(VOLCANO, "Job", name, "default", spec={"minAvailable": 1, "tasks": [task], **spec})


def queues() -> list[dict[str, Any]]:
    quota = [{"name": "cpu", "nominalQuota": 1}]
    group = {"coveredResources": ["cpu"], "flavors": [{"name": "here", "resources": quota}]}
    spec = {"namespaceSelector": {}, "resourceGroups": [group], "cohortName": "all"}
    return [
        made(KUEUE, "Topology", "racks", spec={"levels": [{"nodeLabel": "kubernetes.io/hostname"}]}),
        made(KUEUE, "ResourceFlavor", "here", spec={"nodeLabels": {"room": "one"}, "topologyName": "racks"}),
        made(KUEUE, "Cohort", "all", spec={}),
        made(KUEUE, "ClusterQueue", "research", spec=spec),
        made(KUEUE, "LocalQueue", "research", "default", spec={"clusterQueue": "research"}),
        made(KUEUE, "WorkloadPriorityClass", "urgent", value=10),
    ]


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    with own_plane(tmp_path_factory.mktemp("plane") / "audit.log") as started:
        done = started.muster("install", "--set", "server.enabled=true")
        assert done.code == 0, done.err
        # No image is pulled here: the same account works for a controller of this machine.
        started.kubectl("scale", "-n", names.NAMESPACE, "deployment", names.CONTROLLER, "--replicas=0")
        yield started


@pytest.fixture
async def store(plane: Plane) -> AsyncIterator[KubernetesStore]:
    async with KubernetesStore(kubeconfig.read(plane.configuration)) as opened:
        yield opened


async def until(holds: Callable[[], Any], seconds: float = 60.0) -> None:
    async with asyncio.timeout(seconds):
        while not holds():
            await asyncio.sleep(0.3)


def used(plane: Plane, account: str = ACCOUNT) -> set[Right]:
    found = set()
    for request in plane.requests_of(account):
        about = request["objectRef"]
        part = f"/{about['subresource']}" if "subresource" in about else ""
        found.add((about.get("apiGroup", ""), f"{about['resource']}{part}", request["verb"]))
    return found


def granted(grants: list[Grant]) -> set[Right]:
    return {
        (group, resource, verb)
        for rule in permissions.rules(grants)
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def refused(plane: Plane, account: str = ACCOUNT) -> list[str]:
    return [
        f"{each['verb']} {each['requestURI']}: {each['responseStatus'].get('message')}"
        for each in plane.requests_of(account)
        if each.get("responseStatus", {}).get("code") == 403
    ]


async def test_a_server_reads_all_that_it_needs(plane: Plane, tmp_path: Path) -> None:
    account = plane.as_account(names.NAMESPACE, names.SERVER, tmp_path / "kubeconfig")
    line = ["serve", "--kubeconfig", str(account), "--port", "0", "--data", str(tmp_path / "data"), "--verbose"]
    with (tmp_path / "log").open("wb") as log:
        server = subprocess.Popen([*MUSTER, *line], stdout=log, stderr=log)
    try:
        # Last of all it looks for what an earlier life has left.
        await until(lambda: ("", "services", "list") in used(plane, SERVER_ACCOUNT))
        await asyncio.sleep(1)
    finally:
        end(server)
    assert refused(plane, SERVER_ACCOUNT) == [], (tmp_path / "log").read_text()
    assert used(plane, SERVER_ACCOUNT) <= granted([*permissions.SERVER])


@pytest.mark.timeout(300)  # it waits for a minute to be full
async def test_rights_are_what_is_used(plane: Plane, store: KubernetesStore, tmp_path: Path) -> None:
    account = plane.as_account(names.NAMESPACE, names.CONTROLLER, tmp_path / "kubeconfig")
    with tempfile.TemporaryDirectory(prefix="muster-k8s-", ignore_cleanup_errors=True) as home:
        nodes = Machines(store, plane.configuration, Path(home) / "nodes")
        controllers = Machines(store, account, Path(home) / "controllers")
        nodes.home.mkdir()
        controllers.home.mkdir()
        try:
            await nodes.node(labels={"room": "one"})
            await controllers.controller()
            await a_days_work(plane)
        finally:
            await controllers.close()
            await nodes.close()
        log = controllers.said()
    assert refused(plane) == [], log
    everything = [*permissions.CLUSTER, *permissions.HOME]
    usual = [grant for grant in everything if not grant.is_rare]
    assert sorted(granted(usual) - used(plane)) == [], "granted, and nobody needs it"
    assert sorted(used(plane) - granted(everything)) == [], "used by a right that is not in permissions.py"


async def a_days_work(plane: Plane) -> None:
    """Something of every kind, to its end."""
    plane.apply(made(VOLCANO, "CronJob", "minutely", "default", spec=a_schedule()))  # waited for last
    await what_queues(plane)
    await gangs(plane)
    await what_is_preempted(plane)
    await flows_and_others(plane)
    await shaped_by_hand(plane)
    await until(lambda: field(plane, "cronvcjob/minutely", "status", "lastScheduleTime"), 75)


def a_schedule() -> dict[str, Any]:
    return {"schedule": "* * * * *", "jobTemplate": {"spec": a_volcano_job("x")["spec"]}}


def field(plane: Plane, what: str, *path: str) -> Any:
    """None where the object or the field is not there."""
    kind, name = what.split("/")
    found = json.loads(plane.kubectl("get", "-n", "default", kind, name, "-o", "json", "--ignore-not-found") or "null")
    for step in path:
        found = found.get(step) if isinstance(found, dict) else None
    return found


async def what_queues(plane: Plane) -> None:
    plane.apply(*queues())
    older = plane.kubectl("get", "clusterqueues.v1beta1.kueue.x-k8s.io", "research", "-o", "jsonpath={.spec.cohort}")
    assert older == "all", "the webhook converts it"
    await until(lambda: "True" in plane.kubectl("get", "apiservice", "v1.visibility.muster.dev"))
    found = {each["about"]: each["verdict"] for each in json.loads(plane.muster("doctor", "-o", "json").out)}
    assert (found["leader"], found["webhooks"], found["visibility"], found["nodes"]) == ("ok", "ok", "ok", "ok")
    assert '"items":[]' in plane.kubectl("get", "--raw", PENDING)
    plane.apply(
        made("batch/v1", "Job", "queued", "default", metadata=QUEUED, spec={"template": template("true")}),
        made("v1", "Pod", "queued", "default", metadata=QUEUED, **template("sleep 600", schedulerName="muster")),
    )
    await until(lambda: field(plane, "jobs.batch/queued", "status", "succeeded") == 1)
    await until(lambda: field(plane, "pod/queued", "status", "phase") == "Running")
    plane.kubectl("delete", "pod", "queued", "--wait=false")
    await until(lambda: field(plane, "pod/queued") is None)
    plane.apply(made("batch/v1", "Job", "held", "default", metadata=QUEUED, spec={"template": template("sleep 600")}))
    await until(lambda: field(plane, "jobs.batch/held", "status", "active") == 1)
    (workload,) = [line for line in plane.kubectl("get", "wl", "-o", "name").split() if "job-held" in line]
    plane.kubectl("patch", workload, "--type=merge", '-p={"spec": {"active": false}}')
    await until(lambda: field(plane, "jobs.batch/held", "spec", "suspend") is True)
    await until(lambda: field(plane, "jobs.batch/held", "status", "startTime") is None)
    plane.kubectl("delete", "jobs.batch", "held")


async def gangs(plane: Plane) -> None:
    claim = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Mi"}},
        "storageClassName": "slow",  # nobody ever makes the volume, for a node that was chosen
    }
    waits = {"provisioner": "example.com/nobody", "volumeBindingMode": "WaitForFirstConsumer"}
    plane.apply(
        made("storage.k8s.io/v1", "StorageClass", "slow", **waits),
        a_volcano_job("gang", plugins={"svc": [], "ssh": [], "env": []}, ttlSecondsAfterFinished=1),
        a_volcano_job("long", "sleep 600", plugins={"svc": []}),
        a_volcano_job("stuck", volumes=[{"mountPath": "/data", "volumeClaim": claim}]),
    )
    await until(lambda: field(plane, "vcjob/long", "status", "state", "phase") == "Running")
    scaled = [{"op": "replace", "path": "/spec/tasks/0/replicas", "value": 2}]
    plane.kubectl("patch", "-n", "default", "vcjob", "long", "--type=json", f"-p={json.dumps(scaled)}")
    await until(lambda: field(plane, "vcjob/long", "status", "running") == 2)
    target = {
        "apiVersion": VOLCANO,
        "kind": "Job",
        "name": "long",
        "uid": field(plane, "vcjob/long", "metadata", "uid"),
    }
    plane.apply(made("bus.volcano.sh/v1alpha1", "Command", "stop", "default", action="AbortJob", target=target))
    await until(lambda: field(plane, "vcjob/long", "status", "state", "phase") == "Aborted")
    await until(lambda: field(plane, "vcjob/gang") is None)
    plane.kubectl("delete", "vcjob", "stuck")


async def what_is_preempted(plane: Plane) -> None:
    """Both want more than half of the node, and more than half of that is left."""
    free = field(plane, f"node/{plane.get('nodes')['items'][0]['metadata']['name']}", "status", "allocatable", "cpu")
    wanted = f"{int(free) * 600}m"

    def pod(name: str, **spec: Any) -> dict[str, Any]:
        return made("v1", "Pod", name, "default", **template("sleep 600", wanted, schedulerName="muster", **spec))

    plane.apply(made("scheduling.k8s.io/v1", "PriorityClass", "urgent", value=1000), pod("low"))
    await until(lambda: field(plane, "pod/low", "status", "phase") == "Running")
    plane.apply(pod("high", priorityClassName="urgent"))
    await until(lambda: field(plane, "pod/high", "status", "phase") == "Running")
    plane.apply(pod("waits"))
    await until(lambda: field(plane, "pod/waits", "status", "conditions"))
    plane.kubectl("delete", "pod", "high", "waits", "--wait=false")


async def flows_and_others(plane: Plane) -> None:
    workers = {"Worker": {"replicas": 1, "restartPolicy": "Never", "template": renamed(template("true"), "pytorch")}}
    policy = {"ttlSecondsAfterFinished": 1}
    task = {"taskId": "t", "taskType": "COMMAND", "pods": 1, "slots": 0, "template": template("true")}
    plane.apply(
        made(FLOW, "JobTemplate", "step", "default", spec=a_volcano_job("x")["spec"]),
        made(FLOW, "JobFlow", "flow", "default", spec={"flows": [{"name": "step"}], "jobRetainPolicy": "delete"}),
        made(
            "kubeflow.org/v1",
            "PyTorchJob",
            "torch",
            "default",
            spec={"pytorchReplicaSpecs": workers, "runPolicy": policy},
        ),
        made("muster.dev/v1", "Allocation", "task", "default", metadata=QUEUED, spec=task),
    )
    await until(lambda: field(plane, "jobflow/flow", "status", "state", "phase") == "Succeed")
    await until(lambda: field(plane, "alloc/task", "status", "phase") not in (None, "Pending"))
    await until(lambda: field(plane, "pytorchjob/torch") is None)


def renamed(pod: dict[str, Any], container: str) -> dict[str, Any]:
    pod["spec"]["containers"][0]["name"] = container
    return pod


async def shaped_by_hand(plane: Plane) -> None:
    """Volcano's queues, and the quota that follows them."""
    plane.apply(made(SCHEDULING, "Queue", "team", spec={"capability": {"cpu": "1"}}))
    plane.apply(made(SCHEDULING, "Queue", "part", spec={"parent": "team", "capability": {"cpu": "1"}}))
    job = a_volcano_job("in-part", queue="part")
    plane.apply(job)
    await until(lambda: field(plane, "vcjob/in-part", "status", "state", "phase") == "Completed")
    plane.apply(made(SCHEDULING, "Queue", "team", spec={"capability": {"cpu": "2"}, "weight": 2}))
    target = {
        "apiVersion": SCHEDULING,
        "kind": "Queue",
        "name": "team",
        "uid": field(plane, "queues.scheduling.volcano.sh/team", "metadata", "uid"),
    }
    plane.apply(made("bus.volcano.sh/v1alpha1", "Command", "close", "default", action="CloseQueue", target=target))
    await until(lambda: field(plane, "queues.scheduling.volcano.sh/part", "status", "state") == "Closed")
    plane.kubectl("delete", "vcjob", "in-part")
    plane.kubectl("delete", "queues.scheduling.volcano.sh", "part", "team")
    await until(lambda: "part" not in plane.kubectl("get", "cq", "-o", "name"))
