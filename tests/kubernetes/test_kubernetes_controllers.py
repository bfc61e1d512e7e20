"""What Muster decides, on a real cluster: beside its own scheduler, with its own job controller."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.e2e.kubectl_runner import Kubectl
from tests.kubernetes.controllers import CONFIGURATIONS, controlling, define, until
from tests.kubernetes.machines import Machines

from muster.access.kubeconfig import Cluster
from muster.api.objects import Key
from muster.api.raw import Document
from muster.assembly.clustered import Running
from muster.deploying import names
from muster.store.kubernetes import KubernetesStore
from muster.store.protocol import Create, Delete, write_one

GPU = "nvidia.com/gpu"
QUEUE = "kueue.x-k8s.io/queue-name"
_OUTSIDE = (
    "ClusterQueue",
    "PersistentVolume",
    "PriorityClass",
    "ResourceFlavor",
    "StorageClass",
    "Topology",
    "WorkloadPriorityClass",
)


def a_template(script: str, *, gpus: int = 0, **spec: object) -> Document:
    container: Document = {"name": "main", "image": "host", "command": ["sh", "-c", script]}
    if gpus:
        container["resources"] = {"limits": {GPU: gpus}}
    return {"spec": {"schedulerName": "muster", "restartPolicy": "Never", "containers": [container], **spec}}


def a_pod(name: str, script: str = "sleep 60", *, labels: Document | None = None, **options: object) -> Document:
    made = a_template(script, **options)  # type: ignore[arg-type]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels or {}}, **made}


def a_job(name: str, queue: str, script: str, **options: object) -> Document:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": {QUEUE: queue}},
        "spec": {"backoffLimit": 6, "template": a_template(script, **options)},  # type: ignore[arg-type]
    }


def a_gang(name: str, size: int, script: str, **options: object) -> Document:
    tasks = [{"name": "worker", "replicas": size, "template": a_template(script, gpus=1, **options)}]
    for task in tasks:
        del task["template"]["spec"]["schedulerName"]  # type: ignore[index]
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"minAvailable": size, "tasks": tasks},
    }


def until_there(path: Path) -> str:
    """A script that ends once the file is there: pods are processes of this machine."""
    return f"until [ -e {path} ]; do sleep 0.1; done"


def quota(name: str, gpus: int, node: str) -> list[Document]:
    """A queue of that name, cluster-wide and in the namespace, on one node."""
    amount = {"name": GPU, "nominalQuota": str(gpus)}
    groups = [{"coveredResources": [GPU], "flavors": [{"name": name, "resources": [amount]}]}]
    preemption = {"withinClusterQueue": "LowerPriority"}
    made = {
        "ResourceFlavor": {"nodeLabels": {"kubernetes.io/hostname": node}},
        "ClusterQueue": {"namespaceSelector": {}, "resourceGroups": groups, "preemption": preemption},
        "LocalQueue": {"clusterQueue": name},
    }
    return [
        {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name}, "spec": spec}
        for kind, spec in made.items()
    ]


class Desk:
    """kubectl in one namespace."""

    def __init__(self, kubectl: Kubectl, namespace: str) -> None:
        self.kubectl = kubectl
        self.namespace = namespace
        self._outside: list[str] = []

    async def close(self) -> None:
        """What was made outside of the namespace goes too."""
        if self._outside:
            await self.kubectl("delete", "--ignore-not-found", "--wait=false", *self._outside)

    async def apply(self, *documents: Document) -> None:
        made = (f"{each['kind']}/{each['metadata']['name']}".lower() for each in documents if each["kind"] in _OUTSIDE)
        self._outside += made
        listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": documents})
        await self.kubectl("apply", "-n", self.namespace, "-f", "-", stdin=listed)

    async def get(self, *what: str) -> Document:
        found: Document = json.loads(await self.kubectl("get", "-n", self.namespace, *what, "-o", "json"))
        return found

    async def wait(self, condition: str, *what: str) -> None:
        await self.kubectl("wait", "-n", self.namespace, f"--for={condition}", "--timeout=40s", *what)

    async def said(self, name: str, reason: str) -> list[str]:
        selected = f"involvedObject.name={name},reason={reason}"
        found = await self.get("events", "--field-selector", selected)
        return [event["message"] for event in found["items"]]


@pytest.fixture
async def desk(kubectl: Kubectl, namespace: str) -> AsyncIterator[Desk]:
    await define(kubectl)
    made = Desk(kubectl, namespace)
    yield made
    await made.close()


async def test_pods_that_ask_for_us_are_placed_and_told_as_kube_scheduler_tells(
    desk: Desk, cluster: Cluster, machines: Machines
) -> None:
    node = await machines.node(gpus=2)
    async with controlling(cluster):
        await desk.apply(a_pod("small", gpus=1), a_pod("large", gpus=3), a_pod("other"))
        await desk.wait("condition=Ready", "pod/small")
        await desk.wait("condition=PodScheduled=false", "pod/large")
        large = await desk.get("pod", "large")
        (condition,) = large["status"]["conditions"]
        assert (condition["reason"], condition["status"]) == ("Unschedulable", "False")
        assert f"Insufficient {GPU}" in condition["message"]
        assert await desk.said("small", "Scheduled") == [f"Successfully assigned {desk.namespace}/small to {node}"]
        assert await desk.said("large", "FailedScheduling") == [condition["message"]]
        described = await desk.kubectl("describe", "pod", "-n", desk.namespace, "large")
        assert "FailedScheduling" in described
        assert "muster-scheduler" in described


def a_priority(name: str) -> Document:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": 1000,
    }


def a_guard() -> Document:
    """Of the pods that say that they are victims, one must stay up."""
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "victim"}}}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "guard"}, "spec": spec}


async def test_victims_leave_by_the_eviction_api_when_their_budget_lets_them(
    desk: Desk, cluster: Cluster, machines: Machines
) -> None:
    await machines.node(gpus=1)
    important = f"important-{desk.namespace}"
    async with controlling(cluster):
        await desk.apply(a_priority(important), a_guard(), a_pod("victim", gpus=1, labels={"app": "victim"}))
        await desk.wait("condition=Ready", "pod/victim")
        await desk.wait("jsonpath={.status.currentHealthy}=1", "pdb/guard")
        await desk.apply(a_pod("boss", gpus=1, priorityClassName=important))
        await desk.wait("jsonpath={.status.nominatedNodeName}", "pod/boss")
        await asyncio.sleep(3)
        assert "deletionTimestamp" not in (await desk.get("pod", "victim"))["metadata"]
        assert await desk.said("victim", "Preempted") == []
        await desk.kubectl("delete", "-n", desk.namespace, "pdb", "guard")
        await desk.wait("condition=Ready", "pod/boss")
        assert len(await desk.said("victim", "Preempted")) == 1


async def test_of_a_gangs_victims_none_is_touched_while_a_budget_keeps_one_of_them(
    desk: Desk, cluster: Cluster, machines: Machines
) -> None:
    await machines.node(gpus=2)
    important = f"important-{desk.namespace}"
    victims = [a_pod(name, gpus=1, labels={"app": "victim"}) for name in ("first", "second")]
    async with controlling(cluster, webhooks=True):
        await desk.apply(a_priority(important), a_guard(), *victims)
        await desk.wait("condition=Ready", "pod/first", "pod/second")
        await desk.wait("jsonpath={.status.disruptionsAllowed}=1", "pdb/guard")
        await desk.apply(a_gang("gang", 2, "sleep 60", priorityClassName=important))
        await desk.wait("jsonpath={.status.pending}=2", "vcjob/gang")
        await desk.wait("jsonpath={.status.nominatedNodeName}", "pod/gang-worker-0", "pod/gang-worker-1")
        await asyncio.sleep(3)
        for name in ("first", "second"):
            victim = await desk.get("pod", name)
            assert "deletionTimestamp" not in victim["metadata"]
            assert "DisruptionTarget" not in {each["type"] for each in victim["status"]["conditions"]}
        await desk.kubectl("delete", "-n", desk.namespace, "pdb", "guard")
        await desk.wait("condition=Ready", "pod/gang-worker-0", "pod/gang-worker-1")
        assert [len(await desk.said(name, "Preempted")) for name in ("first", "second")] == [1, 1]


async def test_jobs_of_the_cluster_wait_for_quota_and_its_own_controller_runs_them(
    desk: Desk, cluster: Cluster, machines: Machines, tmp_path: Path
) -> None:
    node = await machines.node(gpus=2)
    name, may_end = f"q-{desk.namespace}", tmp_path / "may-end"
    async with controlling(cluster, webhooks=True):
        await desk.apply(*quota(name, 1, node))
        await desk.apply(a_job("first", name, until_there(may_end), gpus=1))
        await desk.wait("jsonpath={.status.active}=1", "job/first")
        await desk.apply(a_job("second", name, "true", gpus=1))
        second = await desk.get("job", "second")
        assert second["spec"]["suspend"] is True
        may_end.touch()
        await desk.wait("condition=Complete", "job/first", "job/second")
        pods = (await desk.get("pods"))["items"]
        assert {pod["spec"]["nodeSelector"]["kubernetes.io/hostname"] for pod in pods} == {node}
        await desk.wait("condition=Finished", "workloads", "--all")


async def test_a_job_that_is_preempted_starts_again(
    desk: Desk, cluster: Cluster, machines: Machines, tmp_path: Path
) -> None:
    node = await machines.node(gpus=1)
    name, may_end = f"q-{desk.namespace}", tmp_path / "may-end"
    urgent: Document = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "WorkloadPriorityClass",
        "metadata": {"name": f"urgent-{desk.namespace}"},
        "value": 1000,
    }
    async with controlling(cluster, webhooks=True):
        await desk.apply(urgent, *quota(name, 1, node), a_job("patient", name, until_there(may_end), gpus=1))
        await desk.wait("jsonpath={.status.ready}=1", "job/patient")
        hasty = a_job("hasty", name, "true", gpus=1)
        hasty["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] = urgent["metadata"]["name"]
        await desk.apply(hasty)
        await desk.wait("condition=Suspended", "job/patient")
        await desk.wait("condition=Complete", "job/hasty")
        may_end.touch()
        await desk.wait("condition=Complete", "job/patient")


async def test_pods_in_a_queue_go_where_the_topology_assignment_sends_them(
    desk: Desk, cluster: Cluster, machines: Machines
) -> None:
    name = f"q-{desk.namespace}"
    racks = {await machines.node(gpus=1, labels={"rack": rack, "pool": name}): rack for rack in ("r1", "r1", "r2")}
    topology: Document = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Topology",
        "metadata": {"name": name},
        "spec": {"levels": [{"nodeLabel": "rack"}, {"nodeLabel": "kubernetes.io/hostname"}]},
    }
    flavor, *queues = quota(name, 3, "")
    flavor["spec"] = {"nodeLabels": {"pool": name}, "topologyName": name}
    together = {"kueue.x-k8s.io/podset-required-topology": "rack"}
    job = a_job("close", name, "sleep 3", gpus=1)
    job["spec"] |= {"parallelism": 2, "completions": 2}
    job["spec"]["template"]["metadata"] = {"annotations": together}
    lone = a_pod("lone", "sleep 3", gpus=1, labels={QUEUE: name})
    async with controlling(cluster, webhooks=True):
        await desk.apply(topology, flavor, *queues)
        await desk.apply(job, lone)
        await desk.wait("condition=Complete", "job/close")
        await desk.wait("jsonpath={.status.phase}=Succeeded", "pod/lone")
        pods = (await desk.get("pods", "-l", "job-name=close"))["items"]
        assert [racks[pod["spec"]["nodeName"]] for pod in pods] == ["r1", "r1"]
        assert all("kubernetes.io/hostname" in pod["spec"]["nodeSelector"] for pod in pods)


async def test_a_gang_of_volcano_starts_whole_and_a_flow_follows_its_jobs(
    desk: Desk, cluster: Cluster, machines: Machines
) -> None:
    await machines.node(gpus=2)
    async with controlling(cluster, webhooks=True):
        await desk.apply(a_gang("gang", 3, "sleep 1"))
        await desk.wait("jsonpath={.status.state.phase}=Pending", "vcjob/gang")
        await asyncio.sleep(2)
        assert not [pod for pod in (await desk.get("pods"))["items"] if pod["spec"].get("nodeName")]
        await machines.node(gpus=2)
        await desk.wait("jsonpath={.status.state.phase}=Completed", "vcjob/gang")
        template = {"apiVersion": "flow.volcano.sh/v1alpha1", "kind": "JobTemplate"}
        flow = {
            "apiVersion": "flow.volcano.sh/v1alpha1",
            "kind": "JobFlow",
            "metadata": {"name": "flow"},
            "spec": {"flows": [{"name": "a"}, {"name": "b", "dependsOn": {"targets": ["a"]}}]},
        }
        steps = [{**template, "metadata": {"name": step}, "spec": a_gang(step, 1, "true")["spec"]} for step in "ab"]
        await desk.apply(*steps, flow)
        await desk.wait("jsonpath={.status.state.phase}=Succeed", "jobflow/flow")


async def test_a_claim_that_waits_for_its_first_pod_is_bound_where_the_pod_goes(
    desk: Desk, cluster: Cluster, machines: Machines
) -> None:
    node = await machines.node(gpus=1)
    name = f"disk-{desk.namespace}"
    storage_class = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": "test.muster.dev/disk",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    size, modes = {"storage": "1Gi"}, ["ReadWriteOnce"]
    spec: Document = {"storageClassName": name, "accessModes": modes, "resources": {"requests": size}}
    claim: Document = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "spec": spec}
    pod = a_pod("p", gpus=1, volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}])
    async with controlling(cluster):
        await desk.apply(storage_class, claim, pod)
        selected = "jsonpath={.metadata.annotations.volume\\.kubernetes\\.io/selected-node}=" + node
        await desk.wait(selected, "pvc/data")
        assert "nodeName" not in (await desk.get("pod", "p"))["spec"]
        term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}
        volume = {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name},
            "spec": {
                "storageClassName": name,
                "capacity": size,
                "accessModes": modes,
                "claimRef": {"namespace": desk.namespace, "name": "data"},
                "hostPath": {"path": "/tmp"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
                "persistentVolumeReclaimPolicy": "Retain",
            },
        }
        await desk.apply(volume)
        await desk.wait("jsonpath={.status.phase}=Bound", "pvc/data")
        await desk.wait(f"jsonpath={{.spec.nodeName}}={node}", "pod/p")


async def test_mistakes_are_refused_by_field(desk: Desk, cluster: Cluster) -> None:
    async with controlling(cluster, webhooks=True):
        bad = a_gang("bad", 2, "true")
        bad["spec"]["minAvailable"] = 5
        told = await desk.kubectl.fails("apply", "-n", desk.namespace, "-f", "-", stdin=json.dumps(bad))
        assert "spec.minAvailable" in told
        strange = {**a_gang("strange", 1, "true"), "metadata": {"name": "x", "labels": {"muster.dev/class": "mine"}}}
        told = await desk.kubectl.fails("apply", "-n", desk.namespace, "-f", "-", stdin=json.dumps(strange))
        assert "metadata.labels[muster.dev/class]" in told


async def test_while_nobody_answers_webhooks_the_cluster_goes_on(
    desk: Desk, cluster: Cluster, store: KubernetesStore
) -> None:
    flow = {"apiVersion": "flow.volcano.sh/v1alpha1", "kind": "JobFlow", "spec": {"flows": [{"name": "a"}]}}
    async with controlling(cluster, webhooks=True):
        await desk.apply({**flow, "metadata": {"name": "going", "finalizers": ["test.muster.dev/held"]}})
        kept = {kind: await store.get(kind, Key("", names.WEBHOOK)) for kind in CONFIGURATIONS}
    try:
        for kind, found in kept.items():  # as if the controllers had been killed
            webhooks: Document = {part: value for part, value in found.document().items() if part != "metadata"}
            await write_one(store, Create(kind, {**webhooks, "metadata": {"name": names.WEBHOOK}}))
        refused = json.dumps(a_job("queued", "research", "true"))
        await until(lambda: _fails(desk, refused))
        await desk.apply(a_pod("lonely"))
        await desk.kubectl("delete", "-n", desk.namespace, "jobflow", "going", "--wait=false")
        await desk.kubectl(
            "patch", "-n", desk.namespace, "jobflow", "going", "--type=merge", "-p", '{"metadata":{"finalizers":null}}'
        )
        await desk.wait("delete", "jobflow/going")
    finally:
        await store.write([Delete(kind, Key("", names.WEBHOOK)) for kind in CONFIGURATIONS])


async def _fails(desk: Desk, document: str) -> bool:
    outcome = await desk.kubectl.run("create", "-n", desk.namespace, "--dry-run=server", "-f", "-", stdin=document)
    return "failed calling webhook" in outcome.err


async def test_another_replica_takes_over_within_seconds(desk: Desk, cluster: Cluster, machines: Machines) -> None:
    await machines.node(gpus=8)

    led, may_go = asyncio.Event(), asyncio.Event()

    async def led_by(replica: Running) -> bool:
        lease = await desk.get("lease", "-n", "muster-system", "muster-controller")
        return bool(lease["spec"].get("holderIdentity") == replica.identity)

    async def lead() -> None:
        async with controlling(cluster) as first:
            await until(lambda: led_by(first))
            led.set()
            await may_go.wait()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(lead())
        await led.wait()
        async with controlling(cluster) as standby:
            await desk.apply(a_pod("before", gpus=1))
            await desk.wait("condition=Ready", "pod/before")
            assert not await led_by(standby)
            may_go.set()
            await until(lambda: led_by(standby), seconds=10)
            await desk.apply(a_pod("after", gpus=1))
            await desk.wait("condition=Ready", "pod/after")


async def test_a_kind_that_is_missing_is_told_once_and_taken_up_when_it_comes(
    desk: Desk, cluster: Cluster, machines: Machines, caplog: pytest.LogCaptureFixture
) -> None:
    await machines.node(gpus=2)
    await desk.kubectl("delete", "crd", "pytorchjobs.kubeflow.org", "--wait")
    with caplog.at_level(logging.WARNING):
        async with controlling(cluster):
            await desk.apply(a_pod("works", gpus=1))
            await desk.wait("condition=Ready", "pod/works")
            await asyncio.sleep(12)
            told = [record.message for record in caplog.records if "pytorchjobs" in record.message]
            assert len(told) == 1
            assert "CustomResourceDefinition is missing" in told[0]
            await define(desk.kubectl)
            container = {"name": "pytorch", "image": "host", "command": ["true"]}
            template = {"spec": {"schedulerName": "muster", "containers": [container]}}
            job = {
                "apiVersion": "kubeflow.org/v1",
                "kind": "PyTorchJob",
                "metadata": {"name": "late"},
                "spec": {
                    "pytorchReplicaSpecs": {"Master": {"replicas": 1, "restartPolicy": "Never", "template": template}}
                },
            }
            await desk.apply(job)
            await desk.wait("condition=Succeeded", "pytorchjob/late")
