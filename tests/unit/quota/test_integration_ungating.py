"""What admission gives to pods, and which gated ones may go."""

from typing import Final

import pytest
from tests.unit.quota.integration_worlds import a_flavor, a_job, a_world, admitted, an_object

from muster.api import core, kueue
from muster.api.objects import Object
from muster.api.raw import Document, encode
from muster.quota.integrations import injecting
from muster.quota.integrations.contract import Conflicting, PodSetInfo
from muster.quota.integrations.injecting import MissingFlavor
from muster.quota.integrations.ungating import active_slice, releases
from muster.quota.settings import Settings

K: Final = "kueue.x-k8s.io/"
HOST: Final = "kubernetes.io/hostname"
INDEX: Final = "batch.kubernetes.io/job-completion-index"
ELASTIC: Final = {K + "elastic-job": "true"}


def places(*hosts: str) -> Document:
    values = [{"individual": {"roots": list(hosts)}}]
    return {
        "levels": [HOST],
        "slices": [{"domainCount": len(hosts), "valuesPerLevel": values, "podCounts": {"universal": 1}}],
    }


def with_status(workload: Object, **status: object) -> kueue.Workload:
    document = workload.document()
    document["status"] |= status
    return Object(kueue.WORKLOAD, encode(document)).read(kueue.Workload)


def a_pod(name: str, *gates: str, index: int = 0, phase: str = "Pending", host: str = "") -> core.Pod:
    document: Document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {K + "podset": "main", INDEX: str(index)}},
        "spec": {"containers": [{"name": "main"}], "schedulingGates": [{"name": K + gate} for gate in gates]},
        "status": {"phase": phase},
    }
    if host:
        document["spec"]["nodeSelector"] = {HOST: host}
    return an_object(document).read(core.Pod)


# What is given


def infos(workload: kueue.Workload, *flavors: kueue.ResourceFlavor, settings: Settings | None = None):
    return injecting.infos(workload, a_world(*flavors).flavors, settings or Settings())


def test_checks_add_to_what_the_flavor_gives():
    update = {"name": "main", "nodeSelector": {"block": "b"}, "annotations": {"a": "1"}, "tolerations": [{"key": "t"}]}
    check = {"name": "c", "state": "Ready", "podSetUpdates": [update, {"name": "other", "labels": {"no": "no"}}]}
    workload = with_status(admitted(a_job(), flavor="f"), admissionChecks=[check])
    (info,) = infos(workload, a_flavor("f", nodeLabels={"kind": "fast"}))
    assert info.node_selector == {"kind": "fast", "block": "b"}
    assert info.annotations["a"] == "1"
    assert info.tolerations == [{"key": "t"}]
    assert "no" not in info.labels
    with pytest.raises(Conflicting, match="block"):
        infos(workload, a_flavor("f", nodeLabels={"block": "other"}))


def test_a_flavor_must_be_there():
    with pytest.raises(MissingFlavor, match="gone"):
        infos(admitted(a_job(), flavor="gone").read(kueue.Workload))


def test_what_is_placed_by_topology_is_gated_and_says_that_it_is():
    (info,) = infos(admitted(a_job(), topologyAssignment=places("h")).read(kueue.Workload))
    assert info.scheduling_gates == [K + "topology"]
    assert info.annotations[K + "podset-unconstrained-topology"] == "true", "for those who count what nodes hold"
    template = {
        "metadata": {"annotations": {K + "podset-required-topology": "rack"}},
        "spec": {"containers": [{"name": "main"}]},
    }
    explicit = admitted(a_job(template=template), topologyAssignment=places("h")).read(kueue.Workload)
    (info,) = infos(explicit)
    assert K + "podset-unconstrained-topology" not in info.annotations


def test_queues_are_labels_only_where_they_can_be_and_a_gate_allows():
    workload = admitted(a_job(queue="not.a.label")).read(kueue.Workload)
    (info,) = infos(workload)
    assert info.labels == {K + "podset": "main", K + "cluster-queue-name": "cq"}
    without = Settings(gates=Settings().gates.changed({"AssignQueueLabelsForPods": False}))
    (info,) = infos(workload, settings=without)
    assert info.labels == {K + "podset": "main"}


def test_nothing_is_added_twice():
    toleration = {"key": "k", "operator": "Exists"}
    info = PodSetInfo("main", 1, tolerations=[toleration, toleration], scheduling_gates=["g", "g"])
    once = injecting.inject({"spec": {"tolerations": [toleration]}}, info)
    assert once["spec"] == {"tolerations": [toleration], "schedulingGates": [{"name": "g"}]}
    assert injecting.inject(once, info) == once


# Who may go


def test_each_pod_goes_where_its_rank_says():
    template = {
        "metadata": {"annotations": {K + "podset-required-topology": "rack"}},
        "spec": {"containers": [{"name": "main"}]},
    }
    workload = admitted(a_job(template=template), topologyAssignment=places("h0", "h1", "h2")).read(kueue.Workload)
    pods = [a_pod("b", "topology", index=1), a_pod("c", "topology", index=2), a_pod("done", index=0, phase="Failed")]
    found = {release.pod.metadata.name: release for release in releases(workload, pods)}
    assert {name: release.node_selector[HOST] for name, release in found.items()} == {"b": "h1", "c": "h2"}
    assert all(release.gates == {K + "topology"} for release in found.values())
    unhealthy = admitted(a_job(template=template), topologyAssignment=places("h0", "h1", "h2"))
    broken = with_status(unhealthy, unhealthyNodes=[{"name": "h1"}])
    assert [release.pod.metadata.name for release in releases(broken, pods)] == ["c"]


def test_a_pod_that_is_not_admitted_itself_stays():
    workload = admitted(a_job(), topologyAssignment=places("h0")).read(kueue.Workload)
    assert releases(workload, [a_pod("p", "topology", "admission")]) == []


def test_an_elastic_job_gets_as_many_pods_as_it_has_quota_for():
    job = a_job(annotations=ELASTIC, parallelism=3, completions=9)
    workload = admitted(job, count=3).read(kueue.Workload)
    pods = [a_pod("a"), *(a_pod(name, "elastic-job", index=index) for index, name in enumerate("dcb", 1))]
    assert {release.pod.metadata.name for release in releases(workload, pods)} == {"d", "c"}
    fewer = admitted(a_job(annotations=ELASTIC, parallelism=1, completions=9), count=3).read(kueue.Workload)
    assert releases(fewer, pods) == [], "it has shrunk since it was admitted"


def test_the_last_admitted_slice_counts():
    job = a_job(annotations=ELASTIC)
    old, new = admitted(job), admitted(job, "Evicted=Preempted")
    assert active_slice([old.read(kueue.Workload), new.read(kueue.Workload)]) is old.read(kueue.Workload)
    assert active_slice([new.read(kueue.Workload)]) is None
