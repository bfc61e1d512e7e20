"""Quota as an administrator and a user see it: queues, reasons, the visibility API and metrics of a real platform."""

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import pytest
import urllib3
from tests.e2e.cli_platform import Platform, platform
from tests.e2e.kubectl_runner import require_kubectl

SETUP = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata: {name: any}
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: {name: research}
spec:
  namespaceSelector: {}
  resourceGroups:
  - coveredResources: [cpu]
    flavors:
    - name: any
      resources: [{name: cpu, nominalQuota: 200m}]
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: team, namespace: default}
spec: {clusterQueue: research}
"""
WAITING = ("second", "third", "huge")


def a_job(name: str, cpu: str = "200m") -> str:
    return f"""
apiVersion: batch/v1
kind: Job
metadata:
  name: {name}
  labels: {{kueue.x-k8s.io/queue-name: team}}
spec:
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: main
        image: host
        command: [sleep, "600"]
        resources: {{requests: {{cpu: {cpu}}}}}
"""


def until(said: Callable[[], str], expected: str, seconds: float = 30.0) -> str:
    deadline = time.monotonic() + seconds
    while expected not in (found := said()):
        assert time.monotonic() < deadline, f"expected {expected!r} in:\n{found}"
        time.sleep(0.2)
    return found


@pytest.fixture(scope="module")
def up() -> Iterator[Platform]:
    """One job holds the quota, two wait, one can never start."""
    with platform() as running:
        for text in (SETUP, a_job("first")):
            assert running.muster("apply", "-f", "-", stdin=text).returncode == 0
        until(lambda: running.muster("queues").stdout, "200m/200m")
        for text in (a_job("second"), a_job("third"), a_job("huge", "8")):
            assert running.muster("apply", "-f", "-", stdin=text).returncode == 0
        until(lambda: running.muster("queues", "-o", "json").stdout, '"pending": 3')
        yield running


def test_queues_show_who_waits_and_what_is_used(up: Platform) -> None:
    shown = up.muster("queues").stdout.splitlines()
    assert shown[0].split() == ["QUEUE", "COHORT", "STATE", "PENDING", "ADMITTED", "FLAVOR", "RESOURCE", "USED"]
    assert any(line.startswith("default") and line.endswith("no quota is set") for line in shown)
    [ours] = [line for line in shown if line.startswith("research")]
    assert ours.split()[1:7] == ["-", "Active", "3", "1", "any", "cpu"]
    assert ours.endswith("█ 200m/200m")
    assert up.muster("queues", "-o", "name").stdout.split() == ["default", "research"]
    unknown = up.muster("queues", "nowhere")
    assert (unknown.returncode, 'clusterqueues.kueue.x-k8s.io "nowhere" not found' in unknown.stderr) == (2, True)


def test_why_a_job_waits(up: Platform) -> None:
    shown = up.muster("why", "third").stdout
    assert shown.startswith("Job third: Waiting (Workload job-third-")
    # Who was made in the same second stands in the order of uids; but each has a place of its own, and is told so.
    places = {name: json.loads(up.muster("why", name, "-o", "json").stdout)["position"] for name in WAITING}
    assert sorted(places.values()) == [0, 1, 2]
    ahead = f"{places['third']} ahead in its ClusterQueue" if places["third"] else "first in its ClusterQueue"
    assert ahead in shown
    assert "Missing: 200m cpu of flavor any. It asks for 200m, /research has 0 left." in shown
    assert "HELD BY" in shown
    document = json.loads(up.muster("why", "job/third", "-o", "json").stdout)
    assert document["missing"][0]["holders"][0]["clusterQueue"] == "research"
    workload = document["workload"].rpartition("/")[2]
    assert up.muster("why", workload).stdout.startswith("Workload job-third-")
    until(lambda: up.muster("describe", "workload", workload).stdout, "Why:          ")


def test_why_a_job_can_never_start_why_one_runs_and_what_is_not_there(up: Platform) -> None:
    assert "It can never start on cpu of flavor any: it asks for 8" in up.muster("why", "huge").stdout
    runs = up.muster("why", "first").stdout
    assert "Admitted" in runs
    assert "it does not wait: ClusterQueue research has admitted it" in runs
    unknown = up.muster("why", "nobody")
    assert unknown.returncode == 2
    assert "nothing named 'nobody' in namespace default" in unknown.stderr


def test_why_a_pod_waits_that_needs_no_quota(up: Platform) -> None:
    pod = """
apiVersion: v1
kind: Pod
metadata: {name: picky}
spec:
  nodeSelector: {nobody: has-this}
  containers: [{name: main, image: host, command: ["true"]}]
"""
    assert up.muster("apply", "-f", "-", stdin=pod).returncode == 0
    shown = until(lambda: up.muster("why", "picky").stdout, "Waiting for a node: picky")
    assert "0/1 nodes are available" in shown


def test_the_visibility_api_with_kubectl(up: Platform) -> None:
    require_kubectl()
    below = urlsplit(up.client.connection.server).path
    path = f"{below}/apis/visibility.kueue.x-k8s.io/v1beta2/clusterqueues/research/pendingworkloads"
    done = subprocess.run(
        ["kubectl", "get", "--raw", path], env=up.env, capture_output=True, text=True, timeout=30, check=True
    )
    items = json.loads(done.stdout)["items"]
    assert [item["positionInClusterQueue"] for item in items] == [0, 1, 2]
    listed = subprocess.run(
        ["kubectl", "get", "clusterqueues", "-o", "name"], env=up.env, capture_output=True, text=True, timeout=30,
        check=True,
    )  # fmt: skip
    assert "clusterqueue.kueue.x-k8s.io/research" in listed.stdout.split()


@pytest.mark.embedded("controllers of a cluster show measurements on a port of their own, as its other parts do")
def test_metrics_for_prometheus(up: Platform) -> None:
    root = up.client.connection.server.removesuffix("/k8s")
    assert urllib3.request("GET", f"{root}/metrics").status == 401
    headers = {"Authorization": f"Bearer {up.client.connection.token}"}
    text = urllib3.request("GET", f"{root}/metrics", headers=headers).data.decode()
    assert 'kueue_admitted_active_workloads{cluster_queue="research",replica_role="standalone"} 1' in text
    assert 'kueue_cluster_queue_nominal_quota{cohort="",cluster_queue="research",flavor="any"' in text
