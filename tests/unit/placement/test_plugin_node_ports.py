from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.placement.plugin_views import deferred, names, node, pod, pod_view

from muster.cluster.ports import ANY_ADDRESS, HostPort, PortIndex, host_ports, host_ports_of
from muster.cluster.state import ClusterState
from muster.placement.framework import Code, Hint
from muster.placement.plugins.node_ports import REASON, NodePorts

PORTS = st.lists(
    st.fixed_dictionaries(
        {"hostPort": st.sampled_from((0, 80, 90))},
        optional={
            "hostIP": st.sampled_from(("0.0.0.0", "10.0.0.1", "10.0.0.2")),
            "protocol": st.sampled_from(("TCP", "UDP")),
        },
    ),
    max_size=2,
)
NODES = 3


def claiming(*ports: dict[str, Any]) -> dict[str, Any]:
    return {"containers": [{"name": "c", "ports": list(ports)}]}


def conflict(one: dict[str, Any], other: dict[str, Any]) -> bool:
    if not one["hostPort"] or one["hostPort"] != other["hostPort"]:
        return False
    if one.get("protocol", "TCP") != other.get("protocol", "TCP"):
        return False
    addresses = {one.get("hostIP", "0.0.0.0"), other.get("hostIP", "0.0.0.0")}
    return len(addresses) == 1 or "0.0.0.0" in addresses


@given(st.lists(st.tuples(PORTS, st.integers(0, NODES - 1), st.booleans()), max_size=6), PORTS)
def test_the_index_and_plain_rules_agree(
    existing: list[tuple[list[dict[str, Any]], int, bool]], wanted: list[dict[str, Any]]
) -> None:
    cluster = ClusterState.of([node(f"n{number}") for number in range(NODES)])
    for number, (ports, slot, _) in enumerate(existing):
        cluster.assign(pod(cluster, f"p{number}", **claiming(*ports)), f"n{slot}")
    for number, (_, _, leaves) in enumerate(existing):
        if leaves:
            cluster.release(f"p{number}")
    subject = pod(cluster, "subject", **claiming(*wanted))
    blocked = {
        f"n{slot}"
        for ports, slot, leaves in existing
        if not leaves and any(conflict(one, other) for one in wanted for other in ports)
    }
    plugin = NodePorts()
    rejections = plugin.filter(subject, cluster, None)
    assert {name for rejection in rejections for name in names(cluster, rejection.nodes)} == blocked
    assert all(rejection.reason == REASON and not rejection.is_unresolvable for rejection in rejections)
    for slot in range(NODES):
        assert plugin.fits_at(subject, cluster, None, slot) is (f"n{slot}" not in blocked)


@given(st.lists(st.tuples(PORTS, st.integers(0, NODES - 1)), max_size=6))
def test_an_index_that_all_have_left_is_empty(existing: list[tuple[list[dict[str, Any]], int]]) -> None:
    index, cluster = PortIndex(), ClusterState()
    pods = [(pod(cluster, **claiming(*ports)), slot) for ports, slot in existing]
    for found, slot in pods:
        index.pod_assigned(found, slot)
    for found, slot in pods:
        index.pod_released(found, slot)
    assert index.__dict__ == PortIndex().__dict__


def test_a_node_that_comes_back_has_its_ports_taken_again() -> None:
    cluster = ClusterState.of([node("a")])
    cluster.assign(pod(cluster, "p", **claiming({"hostPort": 80})), "a")
    cluster.node_removed("a")
    assert cluster.ports.conflicting([HostPort(ANY_ADDRESS, "TCP", 80)], cluster.width) is None
    cluster.node_changed(node("a"))
    assert cluster.ports.conflicts_at([HostPort("10.0.0.1", "TCP", 80)], cluster.slots["a"])


def test_only_containers_that_keep_running_claim_ports() -> None:
    start = {"name": "i", "ports": [{"hostPort": 80}]}
    cluster = ClusterState()
    assert host_ports(pod(cluster, initContainers=[start])) == ()
    assert host_ports_of(pod_view(initContainers=[{**start, "restartPolicy": "Always"}]).spec) == (
        HostPort(ANY_ADDRESS, "TCP", 80),
    )


def test_pods_without_host_ports_and_deferred_resizes_are_skipped() -> None:
    cluster = ClusterState.of([node("a")])
    plain, resized = pod(cluster), pod(cluster, status=deferred(), **claiming({"hostPort": 80}))
    assert NodePorts().pre_filter(plain, cluster).status.code is Code.SKIP
    assert NodePorts().pre_filter(resized, cluster).status.is_success
    assert NodePorts(resize_preemption=True).pre_filter(resized, cluster).status.code is Code.SKIP
    cluster.assign(pod(cluster, "other", **claiming({"hostPort": 80})), "a")
    assert not NodePorts(resize_preemption=True).filter(resized, cluster, None)
    assert NodePorts(resize_preemption=True).fits_at(resized, cluster, None, 0)


def test_a_pod_is_woken_when_a_port_that_it_wants_is_freed() -> None:
    cluster = ClusterState()
    hint = NodePorts().wakes()[0].hint
    assert hint is not None
    subject = pod(cluster, **claiming({"hostPort": 80}))
    same, other = claiming({"hostPort": 80, "hostIP": "10.0.0.1"}), claiming({"hostPort": 81})
    assert hint(subject, pod_view(nodeName="n", **same), None, cluster) is Hint.QUEUE
    assert hint(subject, pod_view(nodeName="n", **other), None, cluster) is Hint.SKIP
    assert hint(subject, pod_view(**same), None, cluster) is Hint.SKIP
