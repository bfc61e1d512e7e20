"""Kueue's queues and Volcano's gangs together, as kubectl applies them, on nodes of ours."""

import json
from pathlib import Path
from typing import Any

from tests.e2e.kubectl_runner import Kubectl
from tests.kubernetes.controllers import define
from tests.kubernetes.machines import Machines

GPU = "nvidia.com/gpu"


def queues(namespace: str, gpus: int) -> list[dict[str, Any]]:
    """A ClusterQueue of its own, with so many GPUs, and the way to it from the namespace."""
    resources = [{"name": GPU, "nominalQuota": gpus}]
    group = {"coveredResources": [GPU], "flavors": [{"name": namespace, "resources": resources}]}
    api = "kueue.x-k8s.io/v1beta2"
    return [
        {"apiVersion": api, "kind": "ResourceFlavor", "metadata": {"name": namespace}, "spec": {}},
        {
            "apiVersion": api,
            "kind": "ClusterQueue",
            "metadata": {"name": namespace},
            "spec": {"namespaceSelector": {}, "resourceGroups": [group]},
        },
        {
            "apiVersion": api,
            "kind": "LocalQueue",
            "metadata": {"name": "research", "namespace": namespace},
            "spec": {"clusterQueue": namespace},
        },
    ]


def a_gang(name: str, namespace: str, workers: int, script: str) -> dict[str, Any]:
    container = {"name": "main", "image": "host", "command": ["sh", "-c", script], "resources": {"limits": {GPU: 1}}}
    pod = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace, "labels": {"kueue.x-k8s.io/queue-name": "research"}},
        "spec": {"minAvailable": workers, "tasks": [{"name": "worker", "replicas": workers, "template": pod}]},
    }


def together(*documents: dict[str, Any]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(documents)})


async def test_gangs_of_eight_share_a_queue_of_eight_gpus_one_after_the_other(
    kubectl: Kubectl, namespace: str, machines: Machines, tmp_path: Path
) -> None:
    await define(kubectl)
    nodes = {await machines.node(gpus=4), await machines.node(gpus=4)}
    await machines.controller()
    marks = tmp_path / "marks"
    marks.mkdir()
    # Each worker waits for all of its gang: half a gang would wait for ever.
    meeting = f"cd {marks}; touch $JOB.$HOSTNAME; until [ $(ls -d $JOB.* | wc -l) -ge 8 ]; do sleep 0.1; done"
    gangs = [a_gang(name, namespace, 8, f"JOB={name}; {meeting}") for name in ("first", "second")]
    await kubectl("apply", "-f", "-", stdin=together(*queues(namespace, 8), *gangs))
    for name in ("first", "second"):
        await kubectl(
            "wait", "-n", namespace, "--for=jsonpath={.status.state.phase}=Completed", "--timeout=60s", f"vcjob/{name}"
        )
    pods = json.loads(await kubectl("get", "-n", namespace, "pods", "-o", "json"))["items"]
    assert len(pods) == 16
    assert {pod["spec"]["schedulerName"] for pod in pods} <= {"muster", "volcano"}
    assert {pod["spec"]["nodeName"] for pod in pods} == nodes
    workloads = json.loads(await kubectl("get", "-n", namespace, "workloads", "-o", "json"))["items"]
    assert len(workloads) == 2
    spans = sorted(_span(pods, name) for name in ("first", "second"))
    assert spans[0][1] <= spans[1][0], "the second gang waits until the first has given its quota back"


def _span(pods: list[dict[str, Any]], job: str) -> tuple[str, str]:
    """When the first worker of a job began and the last ended."""
    ends = [
        pod["status"]["containerStatuses"][0]["state"]["terminated"]
        for pod in pods
        if pod["metadata"]["name"].startswith(f"{job}-")
    ]
    assert len(ends) == 8
    return min(end["startedAt"] for end in ends), max(end["finishedAt"] for end in ends)
