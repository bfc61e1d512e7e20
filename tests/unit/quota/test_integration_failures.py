"""Nodes that fail under placed workloads, and pods that cannot go where they were sent."""

from typing import Final

import pytest
from tests.unit.quota.integration_worlds import NOW, a_job, admitted, an_object

from muster.api import core, kueue, timestamps
from muster.api.meta import Instant
from muster.api.objects import Object
from muster.api.raw import JSON, Document, encode
from muster.quota.gates import Gate
from muster.quota.integrations import failures
from muster.quota.integrations.failures import Verdict
from muster.quota.settings import Settings

HOST: Final = "kubernetes.io/hostname"
LONG_AGO: Final = timestamps.to_text(Instant(NOW - 1000))
JUST_NOW: Final = timestamps.to_text(Instant(NOW - 10))


def a_node(name: str, ready: str | None = "True", since: str = LONG_AGO, taints: list[Document] | None = None):
    conditions = [{"type": "Ready", "status": ready, "lastTransitionTime": since}] if ready else []
    document = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {HOST: name}},
        "spec": {"taints": taints or []},
        "status": {"conditions": conditions},
    }
    return an_object(document).read(core.Node)


def a_pod(name: str, node: str = "", **changes: JSON) -> core.Pod:
    document: Document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", **changes.get("metadata", {})},
        "spec": {"containers": [{"name": "main"}], **changes.get("spec", {})},
        "status": {"phase": "Running" if node else "Pending", **changes.get("status", {})},
    }
    if node:
        document["spec"]["nodeName"] = node
    return an_object(document).read(core.Pod)


def unschedulable(name: str, host: str, since: str) -> core.Pod:
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/1 nodes are available",
        "lastTransitionTime": since,
    }
    return a_pod(name, spec={"nodeSelector": {HOST: host}}, status={"conditions": [condition]})


def a_workload(*hosts: str, unhealthy: tuple[str, ...] = (), template: Document | None = None) -> kueue.Workload:
    given = {
        "levels": [HOST],
        "slices": [
            {
                "domainCount": len(hosts),
                "valuesPerLevel": [{"individual": {"roots": list(hosts)}}],
                "podCounts": {"universal": 1},
            }
        ],
    }
    job = a_job(template=template) if template else a_job()
    workload = admitted(job, flavor="f", topologyAssignment=given)
    document = workload.document()
    if unhealthy:
        document["status"]["unhealthyNodes"] = [{"name": name} for name in unhealthy]
    return Object(kueue.WORKLOAD, encode(document)).read(kueue.Workload)


def judge(workload, pods=(), nodes=(), *, settings: Settings | None = None, tolerations=None) -> Verdict:
    by_name = {node.metadata.name: node for node in nodes}
    return failures.judge(workload, pods, by_name.get, tolerations or {}, settings or Settings(), NOW)


def marked(verdict: Verdict) -> list[str]:
    assert verdict.change is not None
    made = verdict.change({"status": {}})
    return [node["name"] for node in made["status"].get("unhealthyNodes", [])]


def evicted(verdict: Verdict) -> Document:
    assert verdict.change is not None
    made = verdict.change({"status": {}})
    (condition,) = [found for found in made["status"]["conditions"] if found["type"] == "Evicted"]
    return {**condition, **made["status"].get("requeueState", {})}


TAINT: Final[Document] = {"key": "out", "effect": "NoExecute"}


@pytest.mark.parametrize(
    ("node", "pods", "has_failed"),
    [
        (None, [], True),
        (a_node("h1", ready=None), [a_pod("p", "h1")], True),
        (a_node("h1"), [], False),
        (a_node("h1", ready="False"), [a_pod("p", "h1")], False),
        (a_node("h1", ready="Unknown"), [], True),
        (a_node("h1", ready="False"), [a_pod("p", "h1", status={"phase": "Failed"})], True),
        (a_node("h1", ready="False"), [a_pod("p", "h1", metadata={"deletionTimestamp": JUST_NOW})], True),
        (a_node("h1", taints=[TAINT]), [a_pod("p", "h1")], False),
        (a_node("h1", taints=[TAINT]), [], True),
        (a_node("h1", taints=[{"key": "soft", "effect": "PreferNoSchedule"}]), [], False),
    ],
    ids=[
        "it is gone",
        "nobody says that it is ready",
        "it is well",
        "not ready, but a pod holds on",
        "not ready, and no pod is left",
        "not ready, and its pod has failed",
        "not ready, and its pod is on its way out",
        "it repels pods, but one holds on",
        "it repels pods, and none is left",
        "it would rather not have pods",
    ],
)
def test_when_a_node_has_failed(node, pods, has_failed):
    nodes = [a_node("h2"), *([node] if node is not None else [])]
    verdict = judge(a_workload("h1", "h2"), pods, nodes)
    assert (marked(verdict) == ["h1"]) if has_failed else verdict.change is None


@pytest.mark.parametrize("seconds", [None, 300])
def test_a_taint_that_is_tolerated_for_good_is_no_failure(seconds):
    toleration: Document = {"key": "out", "operator": "Exists"}
    if seconds is not None:
        toleration["tolerationSeconds"] = seconds
    template = {"spec": {"tolerations": [toleration], "containers": [{"name": "main"}]}}
    verdict = judge(a_workload("h1", template=template), (), [a_node("h1", taints=[TAINT])])
    assert (verdict.change is None) is (seconds is None)


def test_a_flavor_tolerates_for_its_pods():
    toleration = core.Toleration(key="out", operator="Exists")
    verdict = judge(a_workload("h1"), (), [a_node("h1", taints=[TAINT])], tolerations={"f": [toleration]})
    assert verdict.change is None


def test_time_alone_may_decide_where_a_gate_says_so():
    gates = Settings().gates.changed({Gate.TAS_REPLACE_NODE_DUE_TO_NOT_READY_OVER_FIXED_TIME: True})
    settings = Settings(gates=gates)
    pods = [a_pod("p", "h1")]
    recent = judge(a_workload("h1"), pods, [a_node("h1", ready="False", since=JUST_NOW)], settings=settings)
    assert recent.change is None
    assert recent.look_again == pytest.approx(20.0)
    assert marked(judge(a_workload("h1"), pods, [a_node("h1", ready="False")], settings=settings)) == ["h1"]


def test_a_node_that_recovers_is_forgotten():
    assert marked(judge(a_workload("h1", unhealthy=("h1",)), (), [a_node("h1")])) == []
    assert judge(a_workload("h1", unhealthy=("h1",)), (), []).change is None, "and one that has not stays"


def test_a_second_node_that_fails_is_one_too_many():
    for workload in (a_workload("h1", "h2", unhealthy=("h1",)), a_workload("h1", "h2")):
        found = evicted(judge(workload, (), []))
        assert found["reason"] == "NodeFailures"
        assert "h1, h2" in found["message"]


def test_pods_that_were_on_their_way_to_a_failed_node_are_lost():
    pods = [a_pod("p", spec={"nodeSelector": {HOST: "h1"}}), a_pod("q", spec={"nodeSelector": {HOST: "h2"}})]
    verdict = judge(a_workload("h1", "h2"), pods, [a_node("h2")])
    assert [pod.metadata.name for pod in verdict.stranded] == ["p"]


def test_without_the_gate_nodes_may_fail_unseen():
    settings = Settings(gates=Settings().gates.changed({Gate.TAS_FAILED_NODE_REPLACEMENT: False}))
    assert judge(a_workload("h1"), (), [], settings=settings).change is None


# What cannot be placed


def test_a_pod_that_cannot_be_placed_is_given_some_time():
    nodes = [a_node("h1")]
    waiting = judge(a_workload("h1"), [unschedulable("p", "h1", JUST_NOW)], nodes)
    assert waiting.change is None
    assert waiting.look_again == pytest.approx(20.0)
    found = evicted(judge(a_workload("h1"), [unschedulable("p", "h1", LONG_AGO)], nodes))
    assert found["reason"] == "PodsReadyTimeout"
    assert "Pod p could not be placed" in found["message"]
    assert found["requeueAt"] == timestamps.to_text(Instant(NOW + 60))
    assert found["count"] == 1


def test_one_that_others_make_room_for_is_waited_for():
    pod = unschedulable("p", "h1", LONG_AGO)
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "lastTransitionTime": pod.status.conditions[0].last_transition_time,
    }
    nominated = a_pod("p", status={"nominatedNodeName": "h1", "conditions": [condition]})
    assert judge(a_workload("h1"), [nominated], [a_node("h1")]).change is None


def test_workloads_without_a_topology_are_not_looked_at():
    plain = admitted(a_job()).read(kueue.Workload)
    verdict = judge(plain, [unschedulable("p", "h1", LONG_AGO)], [])
    assert verdict.change is None
    assert not verdict.stranded
