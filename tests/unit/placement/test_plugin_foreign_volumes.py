"""Pods and a cluster's own storage: who must go where the volume can be reached."""

from typing import Any

import msgspec
from tests.unit.placement.plugin_views import names, node, pod

from muster.api import core, storage
from muster.api.objects import Key
from muster.cluster.state import ClusterState
from muster.placement.framework import Code
from muster.placement.plugins.volume_binding import VolumeBinding

PLUGIN = VolumeBinding()
SELECTED = "volume.kubernetes.io/selected-node"


def claim(name: str, volume: str = "", *, storage_class: str = "", **annotations: str) -> core.PersistentVolumeClaim:
    spec: dict[str, Any] = {"storageClassName": storage_class} | ({"volumeName": volume} if volume else {})
    meta = {"name": name, "namespace": "ns", "uid": f"uid-{name}", "annotations": annotations}
    document = {"metadata": meta, "spec": spec, "status": {"phase": "Bound" if volume else "Pending"}}
    return msgspec.convert(document, core.PersistentVolumeClaim)


def a_volume(zone: str) -> storage.PersistentVolume:
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}
    spec = {"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}} if zone else {}
    return msgspec.convert({"metadata": {"name": "v"}, "spec": spec}, storage.PersistentVolume)


def a_cluster(*claims: core.PersistentVolumeClaim) -> ClusterState:
    cluster = ClusterState.of([node(f"n{n}", labels={"zone": zone}) for n, zone in enumerate("aab")])
    cluster.claims.are_foreign = True
    for found in claims:
        cluster.claims.put(Key("ns", found.metadata.name), found)
    waits = {"volumeBindingMode": "WaitForFirstConsumer"}
    only = [{"matchLabelExpressions": [{"key": "zone", "values": ["b"]}]}]
    classes: dict[str, dict[str, Any]] = {
        "disk": {"provisioner": "ebs.csi.aws.com", **waits},
        "zonal": {"provisioner": "ebs.csi.aws.com", "allowedTopologies": only, **waits},
        "static": {"provisioner": "kubernetes.io/no-provisioner", **waits},
        "now": {"provisioner": "ebs.csi.aws.com", "volumeBindingMode": "Immediate"},
    }
    for name, fields in classes.items():
        cluster.claims.put_class(name, msgspec.convert({"metadata": {"name": name}, **fields}, storage.StorageClass))
    return cluster


def ruled_out(cluster: ClusterState, name: str) -> set[str] | str:
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name}}]
    subject = pod(cluster, "subject", volumes=volumes)
    prepared = PLUGIN.pre_filter(subject, cluster)
    if not prepared.status.is_success:
        assert prepared.status.code is Code.UNRESOLVABLE
        return prepared.status.reasons[0]
    rejections = PLUGIN.filter(subject, cluster, prepared.state)
    return {found for rejection in rejections for found in names(cluster, rejection.nodes)}


def test_a_bound_claim_is_used_where_its_volume_can_be_reached() -> None:
    # The node that it was first made for is history: any node of the zone will do.
    cluster = a_cluster(claim("near", "v", **{SELECTED: "n0"}), claim("anywhere", "w"), claim("lost", "gone"))
    cluster.claims.put_volume("v", a_volume("a"))
    cluster.claims.put_volume("w", a_volume(""))
    assert ruled_out(cluster, "near") == {"n2"}
    assert ruled_out(cluster, "anywhere") == set()
    assert ruled_out(cluster, "lost") == 'persistentvolume "gone" not found'


def test_a_claim_that_waits_for_a_node_takes_any_that_its_class_allows() -> None:
    cluster = a_cluster(
        claim("new", storage_class="disk"),
        claim("zonal", storage_class="zonal"),
        claim("chosen", storage_class="disk", **{SELECTED: "n1"}),
    )
    assert ruled_out(cluster, "new") == set()
    assert ruled_out(cluster, "zonal") == {"n0", "n1"}
    assert ruled_out(cluster, "chosen") == {"n0", "n2"}


def test_members_of_a_gang_follow_the_first_that_shares_their_claim() -> None:
    cluster = a_cluster(claim("shared", storage_class="disk"))
    volumes = [{"name": "s", "persistentVolumeClaim": {"claimName": "shared"}}]
    cluster.assign(pod(cluster, "first", volumes=volumes), "n2")
    assert ruled_out(cluster, "shared") == {"n0", "n1"}


def test_what_placing_the_pod_does_not_help_keeps_it_waiting() -> None:
    cluster = a_cluster(claim("now", storage_class="now"), claim("static", storage_class="static"), claim("none"))
    assert ruled_out(cluster, "now") == "pod has unbound immediate PersistentVolumeClaims"
    assert ruled_out(cluster, "none") == "pod has unbound immediate PersistentVolumeClaims"
    assert "leave the pod to kube-scheduler" in str(ruled_out(cluster, "static"))
