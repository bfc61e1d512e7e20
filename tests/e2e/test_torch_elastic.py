"""torchrun goes on with more workers, and with fewer, as an elastic PyTorchJob is scaled and quota allows; and its
workers hear of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e import torch_jobs
from tests.e2e.cli_platform import Platform

torch_jobs.require_torch()
pytestmark = pytest.mark.timeout(240)

QUEUE = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: cores}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: small}
spec:
  namespaceSelector: {}
  resourceGroups:
    - coveredResources: [cpu]
      flavors: [{name: cores, resources: [{name: cpu, nominalQuota: 250m}]}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: small, namespace: default}
spec: {clusterQueue: small}
"""
"""Room for two workers."""
JOB = "elastic"
EPOCHS = 40
LISTENER = """
while sleep 0.2; do
  now="$(wc -l < $MUSTER_VOLUME_MUSTER_MEMBERS/worker.host) $(wc -l < $MUSTER_HOSTS_FILE)"
  [ "$now" = "$before" ] || echo "$now of $MUSTER_MIN_REPLICAS to $MUSTER_MAX_REPLICAS"
  before=$now
done &
"""
"""Beside the training: says how many members there are, each time that it changes."""


@pytest.fixture(scope="module")
def up() -> Iterator[Platform]:
    with torch_jobs.training_platform() as found:
        yield found


def worlds(up: Platform, seen: set[tuple[int, float, int]]) -> list[int]:
    """How many trained together, one after the other. `seen`: epochs, also those of members that have left since."""
    seen.update(epoch for text in said(up) for epoch in torch_jobs.epochs(text))
    found: list[int] = []
    for _, _, world in sorted(seen):
        if not found or found[-1] != world:
            found.append(world)
    return found


def said(up: Platform) -> list[str]:
    return [torch_jobs.logs(up, name) for name in torch_jobs.pods_of(up, JOB)]


def scale(up: Platform, workers: int) -> None:
    done = up.muster("scale", f"pytorchjob/{JOB}", "--replicas", str(workers))
    assert done.returncode == 0, done.stderr


def parts_that_wait(up: Platform) -> int:
    """Workers that quota has not let in yet."""
    return sum(
        "-part-" in workload["metadata"]["name"] and "admission" not in (workload.get("status") or {})
        for workload in up.client.list("workloads")
    )


def test_training_goes_on_while_workers_come_and_go(up: Platform, tmp_path: Path) -> None:
    assert up.muster("apply", "-f", "-", stdin=QUEUE).returncode == 0
    job = torch_jobs.example("pytorch-elastic.yaml", tmp_path, EPOCHS)
    job["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "small"}
    container = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    container["command"][2] = LISTENER + container["command"][2]
    torch_jobs.submit(up, job)

    seen: set[tuple[int, float, int]] = set()

    def reached(wanted: list[int], seconds: float) -> None:
        torch_jobs.until(up, JOB, lambda: worlds(up, seen) == wanted, seconds)

    reached([2], 40)
    scale(up, 3)
    torch_jobs.until(up, JOB, lambda: parts_that_wait(up) == 1, 10)
    assert len(torch_jobs.pods_of(up, JOB)) == 2
    assert up.muster("apply", "-f", "-", stdin=QUEUE.replace("250m", "350m")).returncode == 0
    reached([2, 3], 40)
    scale(up, 2)
    reached([2, 3, 2], 60)
    torch_jobs.until(up, JOB, lambda: torch_jobs.conditions(up, JOB).keys() & {"Succeeded", "Failed"})
    assert torch_jobs.conditions(up, JOB).get("Succeeded") == "True", torch_jobs.everything(up, JOB)
    text = "\n".join(said(up))
    assert f"epoch {EPOCHS}/{EPOCHS}" in text
    assert "2 members agree on 129 weights" in text
    heard = [line for line in torch_jobs.logs(up, f"{JOB}-worker-0").splitlines() if line.endswith(" of 2 to 4")]
    assert heard[0] == "2 2 of 2 to 4"
    assert "3 3 of 2 to 4" in heard
    assert heard[-1] == "2 2 of 2 to 4"
