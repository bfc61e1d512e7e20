"""What is asked of the leader through a cluster's own API server: who waits, why, and what was decided."""

import json
import secrets
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.e2e.kubectl_runner import Kubectl
from tests.kubernetes.controllers import controlling, define, until

from muster.access.kubeconfig import Cluster

KUEUE = "/apis/visibility.kueue.x-k8s.io"
OURS = "/apis/visibility.muster.dev/v1"
QUEUE = "kueue.x-k8s.io/queue-name"
NAMES = ("v1beta1.visibility.kueue.x-k8s.io", "v1beta2.visibility.kueue.x-k8s.io", "v1.visibility.muster.dev")


def queues(name: str, *local: str) -> list[dict[str, Any]]:
    """A ClusterQueue without any quota, ways to it, and priorities `NAME-0` to `NAME-2`."""
    quota = [{"name": "cpu", "nominalQuota": 0}]
    groups = [{"coveredResources": ["cpu"], "flavors": [{"name": name, "resources": quota}]}]
    version = "kueue.x-k8s.io/v1beta2"
    return [
        {"apiVersion": version, "kind": "ResourceFlavor", "metadata": {"name": name}},
        {
            "apiVersion": version,
            "kind": "ClusterQueue",
            "metadata": {"name": name},
            "spec": {"namespaceSelector": {}, "resourceGroups": groups},
        },
        *(
            {"apiVersion": version, "kind": "LocalQueue", "metadata": {"name": way}, "spec": {"clusterQueue": name}}
            for way in local
        ),
        *(
            {"apiVersion": version, "kind": "WorkloadPriorityClass", "metadata": {"name": f"{name}-{n}"}, "value": n}
            for n in range(3)
        ),
    ]


def a_job(name: str, queue: str, priority: str) -> dict[str, Any]:
    container = {"name": "main", "image": "host", "command": ["true"], "resources": {"requests": {"cpu": "1"}}}
    pod = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    metadata = {"name": name, "labels": {QUEUE: queue, "kueue.x-k8s.io/priority-class": priority}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": pod}}


@pytest.fixture
async def leader(cluster: Cluster, kubectl: Kubectl) -> AsyncIterator[None]:
    await define(kubectl)
    async with controlling(cluster, webhooks=True):
        await until(lambda: is_passed_on(kubectl))
        yield


async def is_passed_on(kubectl: Kubectl) -> bool:
    return (await kubectl.run("get", "--raw", OURS)).code == 0


async def apply(kubectl: Kubectl, namespace: str, *documents: dict[str, Any]) -> None:
    await kubectl("apply", "-n", namespace, "-f", "-", stdin="\n---\n".join(map(json.dumps, documents)))


async def waiting(kubectl: Kubectl, path: str, *options: str) -> list[tuple[str, int, int]]:
    """Of each that waits: its job, and its position in both queues."""
    found = json.loads(await kubectl("get", "--raw", path, *options))
    return [
        (
            item["metadata"]["ownerReferences"][0]["name"],
            item["positionInClusterQueue"],
            item["positionInLocalQueue"],
        )
        for item in found["items"]
    ]


async def test_who_waits_why_and_what_was_decided(leader: None, kubectl: Kubectl, namespace: str) -> None:
    name = f"q-{secrets.token_hex(3)}"
    await apply(kubectl, namespace, *queues(name, "here", "there"))
    line = (("first", "here", 2), ("second", "there", 1), ("third", "here", 0))
    await apply(kubectl, namespace, *(a_job(job, queue, f"{name}-{priority}") for job, queue, priority in line))

    place = f"{KUEUE}/v1beta2/clusterqueues/{name}/pendingworkloads"

    async def all_wait() -> bool:
        # The engine hears of a queue a moment after the API server has it.
        return (await kubectl.run("get", "--raw", place)).out.count('"priority"') == 3

    await until(all_wait)
    assert await waiting(kubectl, place) == [("first", 0, 0), ("second", 1, 0), ("third", 2, 1)]
    local = f"{KUEUE}/v1beta1/namespaces/{namespace}/localqueues/here/pendingworkloads"
    assert await waiting(kubectl, local) == [("first", 0, 0), ("third", 2, 1)]
    workload = (await kubectl("get", "wl", "-n", namespace, "-o", "name")).split()[0].partition("/")[2]
    why = json.loads(await kubectl("get", "--raw", f"{OURS}/namespaces/{namespace}/workloads/{workload}/explanation"))
    assert (why["state"], why["clusterQueue"]) == ("Waiting", name)
    log = await kubectl("get", "--raw", f"{OURS}/schedulers/muster/decisions")
    assert log.startswith('{"began"')
