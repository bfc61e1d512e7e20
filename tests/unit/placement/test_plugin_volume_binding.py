"""Pods and claims: who must go where the storage is."""

from typing import Any

import msgspec
import pytest
from tests.unit.placement.plugin_views import names, node, pod, pod_view

from muster.api import core, storage
from muster.api.objects import Key
from muster.cluster.state import ClusterState
from muster.placement.framework import Code, Hint
from muster.placement.plugins.volume_binding import REASON, VolumeBinding, after_claim_change, after_pod_deleted

PLUGIN = VolumeBinding()
NODE = "volume.kubernetes.io/selected-node"


def claim(name: str, spec: dict[str, Any] | None = None, **annotations: str) -> core.PersistentVolumeClaim:
    meta = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "annotations": annotations}
    document = {"metadata": meta, "spec": spec or {}, "status": {"phase": "Bound" if annotations else "Pending"}}
    return msgspec.convert(document, core.PersistentVolumeClaim)


def using(*claims: str) -> dict[str, Any]:
    return {"volumes": [{"name": c, "persistentVolumeClaim": {"claimName": c}} for c in claims]}


def a_cluster(*claims: core.PersistentVolumeClaim) -> ClusterState:
    cluster = ClusterState.of([node(f"n{number}") for number in range(3)])
    for found in claims:
        cluster.claims.put(Key("ns", found.metadata.name), found)
    shared = storage.StorageClass(provisioner="muster.dev/shared", parameters={"path": "/mnt"})
    cluster.claims.put_class("nfs", shared)
    cluster.claims.put_class("ebs", storage.StorageClass(provisioner="ebs.csi.aws.com"))
    return cluster


def ruled_out(cluster: ClusterState, *claims: str) -> set[str]:
    subject = pod(cluster, "subject", **using(*claims))
    prepared = PLUGIN.pre_filter(subject, cluster)
    assert prepared.status.is_success, prepared.status
    rejections = PLUGIN.filter(subject, cluster, prepared.state)
    assert {rejection.reason for rejection in rejections} <= {REASON}
    return {name for rejection in rejections for name in names(cluster, rejection.nodes)}


def test_who_uses_no_claim_is_not_asked_again() -> None:
    cluster = a_cluster()
    assert PLUGIN.pre_filter(pod(cluster, "subject"), cluster).status.code is Code.SKIP


def test_a_pod_goes_where_its_claims_are() -> None:
    here = claim("here", {}, **{NODE: "n1"})
    anywhere = claim("anywhere", {}, **{"muster.dev/path": "/mnt/default/anywhere"})
    there = claim("there", {}, **{NODE: "n2"})
    gone = claim("gone", {}, **{NODE: "n9"})
    cluster = a_cluster(here, anywhere, there, gone)
    assert ruled_out(cluster, "anywhere") == set()
    assert ruled_out(cluster, "here", "anywhere") == {"n0", "n2"}
    assert ruled_out(cluster, "here", "there") == {"n0", "n1", "n2"}
    assert ruled_out(cluster, "gone") == {"n0", "n1", "n2"}


def test_until_it_is_bound_a_claim_is_where_its_first_pod_is() -> None:
    cluster = a_cluster(claim("new"))
    assert ruled_out(cluster, "new") == set()
    cluster.assign(pod(cluster, "first", **using("new")), "n1")
    assert ruled_out(cluster, "new") == {"n0", "n2"}
    cluster.release("first")
    assert ruled_out(cluster, "new") == set()


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (None, 'persistentvolumeclaim "c" not found'),
        (claim("c", {"storageClassName": "nfs"}), "is not bound yet"),
        (claim("c", {"storageClassName": "none"}), 'storageclass.storage.k8s.io "none" not found'),
        (claim("c", {"storageClassName": "ebs"}), "Muster knows muster.dev/local and muster.dev/shared"),
        (claim("c", {"storageClassName": ""}), "no storage class is set"),
        (claim("c", {"volumeName": "mine"}), "there are no PersistentVolumes"),
        (claim("c", {"volumeMode": "Block"}), "must be Filesystem"),
    ],
)
def test_what_cannot_be_bound_says_why(found: core.PersistentVolumeClaim | None, says: str) -> None:
    cluster = a_cluster(*([found] if found is not None else []))
    status = PLUGIN.pre_filter(pod(cluster, "subject", **using("c")), cluster).status
    assert status.code is Code.UNRESOLVABLE
    assert says in status.reasons[0]


def test_pods_of_one_template_with_other_claims_are_not_placed_alike() -> None:
    cluster = a_cluster()
    one, other = pod(cluster, "one", **using("a")), pod(cluster, "other", **using("b"))
    assert one.shape is not other.shape
    assert pod(cluster, "third", **using("a")).shape is one.shape


def test_only_changes_of_their_own_claims_wake_pods() -> None:
    cluster = a_cluster()
    waiting = pod(cluster, "waiting", **using("a"))
    assert after_claim_change(waiting, None, claim("a"), cluster) is Hint.QUEUE
    assert after_claim_change(waiting, claim("b"), None, cluster) is Hint.SKIP
    assert after_pod_deleted(waiting, pod_view("gone", **using("a")), None, cluster) is Hint.QUEUE
    assert after_pod_deleted(waiting, pod_view("gone", **using("b")), None, cluster) is Hint.SKIP
