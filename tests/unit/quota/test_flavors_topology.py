"""Assignment where flavors have topologies: who may use which, and what their answer makes of the assignment."""

from typing import Any

import pytest
from tests.unit.quota.flavor_worlds import HOSTNAME, World, admission, pods, settings

from muster.quota.assignments import Mode, NoFitReason
from muster.quota.topology import DomainUsage
from muster.quota.workloads import Usage

CPU = "cpu"
REQUIRED = {"required": HOSTNAME}
PROVISIONING = "kueue.x-k8s.io/provisioning-request"


def _domains(world: World, info: Any) -> list[tuple[str, int]]:
    found = world.assign(info).pod_sets[0].topology
    assert found is not None
    return [(domain.values[0], domain.pods) for domain in found.domains]


def test_every_pod_gets_its_place_and_takes_room_there() -> None:
    world = World()
    world.hosts("tas", n1=2, n2=4)
    world.queue("cq", {"tas": {"cpu": 10}})
    info = world.workload(pods(count=3, cpu=1, topology=REQUIRED))
    assert _domains(world, info) == [("n2", 3)]
    assert world.assign(info).usage.topology == {"tas": (DomainUsage(("n2",), {CPU: 1000}, 3),)}


def test_where_all_flavors_have_topologies_everybody_is_placed() -> None:
    world = World()
    world.hosts("tas", n1=4)
    world.queue("cq", {"tas": {"cpu": 10}})
    assert _domains(world, world.workload(pods(count=2, cpu=1))) == [("n1", 2)]


def test_where_one_flavor_has_none_it_is_for_those_who_do_not_ask() -> None:
    world = World()
    world.hosts("tas", n1=4)
    world.queue("cq", {"tas": {"cpu": 10}, "plain": {"cpu": 10}})
    found = world.assign(world.workload(pods(cpu=1)))
    assert found.pod_sets[0].flavors[CPU].flavor == "plain"
    assert found.pod_sets[0].attempts[0].reasons == ('Flavor "tas" supports only TopologyAwareScheduling',)


@pytest.mark.parametrize(
    ("topology", "reason"),
    [
        ({"required": "rack"}, 'Flavor "tas" does not contain the requested level'),
        ({"required": HOSTNAME}, 'Flavor "plain" does not support TopologyAwareScheduling'),
    ],
)
def test_who_asks_for_a_level_needs_a_flavor_that_has_it(topology: dict[str, str], reason: str) -> None:
    world = World()
    world.hosts("tas", n1=1)
    world.queue("cq", {"plain": {"cpu": 10}, "tas": {"cpu": 10}})
    found = world.assign(world.workload(pods(cpu=1, topology=topology)))
    reasons = [text for attempt in found.pod_sets[0].attempts for text in attempt.reasons]
    assert reason in reasons


def test_without_the_gate_topologies_do_not_matter() -> None:
    world = World(settings(TopologyAwareScheduling=False))
    world.hosts("tas", n1=1)
    world.queue("cq", {"tas": {"cpu": 10}})
    found = world.assign(world.workload(pods(cpu=5, topology=REQUIRED)))
    assert (found.mode, found.pod_sets[0].topology) == (Mode.FIT, None)


def test_no_room_now_is_a_matter_of_preemption() -> None:
    world = World()
    world.hosts("tas", n1=4)
    queue = world.queue("cq", {"tas": {"cpu": 10}})
    world.state.add_usage(queue, Usage({}, {"tas": (DomainUsage(("n1",), {CPU: 3000}, 1),)}))
    found = world.assign(world.workload(pods(cpu=2, topology=REQUIRED)))
    assert found.mode is Mode.PREEMPT
    assert found.pod_sets[0].flavors[CPU].mode is Mode.PREEMPT
    assert list(found.places) == ["tas"]
    assert found.usage.topology == {}


def test_no_room_in_an_empty_cluster_is_no_fit() -> None:
    world = World()
    world.hosts("tas", n1=4)
    world.queue("cq", {"tas": {"cpu": 10}})
    found = world.assign(world.workload(pods(cpu=5, topology=REQUIRED)))
    assert (found.mode, found.no_fit_reason) == (Mode.NO_FIT, NoFitReason.TOPOLOGY)
    assert len(found.pod_sets[0].reasons) == 1


def test_a_host_of_two_flavors_is_not_given_twice() -> None:
    world = World()
    world.hosts("tas-a", n1=4)
    world.hosts("tas-b")
    world.queue("cq", {"tas-a": {"cpu": 3}, "tas-b": {"cpu": 3}})
    found = world.assign(world.workload(pods("a", cpu=3, topology=REQUIRED), pods("b", cpu=3, topology=REQUIRED)))
    assert [given.flavors[CPU].flavor for given in found.pod_sets] == ["tas-a", "tas-b"]
    assert found.mode is Mode.NO_FIT


def test_nodes_that_are_yet_to_come_are_asked_for_later() -> None:
    world = World()
    world.hosts("tas")
    world.check("provision", PROVISIONING)
    checks = {"admissionChecks": [{"name": "provision"}]}
    world.queue("cq", {"tas": {"cpu": 10}}, admissionChecksStrategy=checks)
    given = world.assign(world.workload(pods(cpu=1, topology=REQUIRED))).pod_sets[0]
    assert (given.mode, given.topology, given.delayed_topology) == (Mode.FIT, None, "Pending")


def test_the_second_pass_keeps_the_flavors_and_finds_the_place() -> None:
    world = World()
    world.hosts("tas", n1=4)
    world.check("provision", PROVISIONING)
    checks = {"admissionChecks": [{"name": "provision"}]}
    world.queue("cq", {"plain": {"cpu": 0}, "tas": {"cpu": 0}}, admissionChecksStrategy=checks)
    held = {
        "name": "main",
        "count": 1,
        "flavors": {CPU: "tas"},
        "resourceUsage": {CPU: "1"},
        "delayedTopologyRequest": "Pending",
    }
    updates = [{"name": "main", "nodeSelector": {HOSTNAME: "n1"}}]
    done = [{"name": "provision", "state": "Ready", "podSetUpdates": updates}]
    info = world.workload(pods(cpu=1, topology=REQUIRED), **admission(held), admissionChecks=done)
    found = world.assign(info)
    given = found.pod_sets[0]
    assert (found.mode, given.delayed_topology, found.usage.quota) == (Mode.FIT, "Ready", {})
    assert given.topology is not None
    assert found.places["tas"][0].node_selector == {HOSTNAME: "n1"}


def test_a_failed_node_is_replaced_by_a_free_one_or_not_at_all() -> None:
    world = World()
    world.hosts("tas", n1=2, n2=2, n3=1)
    queue = world.queue("cq", {"tas": {"cpu": 10}})
    placed = {
        "levels": [HOSTNAME],
        "slices": [
            {
                "domainCount": 2,
                "podCounts": {"universal": 1},
                "valuesPerLevel": [{"individual": {"roots": ["n1", "n2"]}}],
            }
        ],
    }
    held = {
        "name": "main",
        "count": 2,
        "flavors": {CPU: "tas"},
        "resourceUsage": {CPU: "4"},
        "topologyAssignment": placed,
    }
    topology = {"preferred": HOSTNAME}
    info = world.workload(pods(count=2, cpu=2, topology=topology), **admission(held), unhealthyNodes=[{"name": "n2"}])
    world.state.add(info)
    assert world.assign(info).mode is Mode.PREEMPT
    world.hosts("tas", n4=2)
    assert _domains(world, info) == [("n1", 1), ("n4", 1)]
    found = world.assign(info)
    assert found.usage.topology == {"tas": (DomainUsage(("n4",), {CPU: 2000}, 1),)}
    assert queue.node.usage[next(iter(queue.node.usage))] == 4000
