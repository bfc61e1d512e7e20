"""Room in quota is not enough where pods must be close to each other: victims are those who leave a place, too."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from tests.unit.quota.preempting_worlds import NOW, columns
from tests.unit.quota.topology_worlds import HOST, LEVELS, RACK, a_cluster, a_flavor, a_host, a_topology

from muster.api import kueue
from muster.quota.flavors import FlavorAssigner
from muster.quota.preempting import Preemptor
from muster.quota.settings import FairSharing, Settings
from muster.quota.state import QuotaState
from muster.quota.workloads import WorkloadInfo

HOSTS = [a_host("h1", rack="r1"), a_host("h2", rack="r1"), a_host("h3", rack="r2"), a_host("h4", rack="r2")]
"""Two racks of two hosts of four CPUs."""
LABELS = {"pool": "tas"}


def a_scene(settings: Settings, held: Mapping[str, tuple[str, int]]) -> QuotaState:
    """`held`: by name, the host and the number of pods, of one CPU each."""
    state = QuotaState(settings, a_cluster(host.label("pool", "tas") for host in HOSTS))
    state.set_topology(a_topology(*LEVELS))
    state.set_flavor(a_flavor("f", nodeLabels=LABELS, topologyName="t"))
    group = {
        "coveredResources": ["cpu"],
        "flavors": [{"name": "f", "resources": [{"name": "cpu", "nominalQuota": "16"}]}],
    }
    spec = {"resourceGroups": [group], "preemption": {"withinClusterQueue": "LowerPriority"}}
    state.set_queue(msgspec.convert({"metadata": {"name": "q"}, "spec": spec}, kueue.ClusterQueue))
    state.settle()
    for number, (name, (host, count)) in enumerate(held.items()):
        state.add(WorkloadInfo(a_view(name, count, 0, status=_held(host, count, number)), "q", settings))
    return state


def a_view(
    name: str, count: int, priority: int, *, required: str | None = None, status: Mapping[str, Any] | None = None
) -> kueue.Workload:
    container = {"name": "c", "resources": {"requests": {"cpu": "1"}}}
    pods: dict[str, Any] = {"name": "main", "count": count, "template": {"spec": {"containers": [container]}}}
    if required is not None:
        pods["topologyRequest"] = {"required": required}
    document = {
        "metadata": {"name": name, "namespace": "ns", "uid": name},
        "spec": {"podSets": [pods], "priority": priority},
        "status": status or {},
    }
    return msgspec.convert(document, kueue.Workload)


def _held(host: str, count: int, number: int) -> dict[str, Any]:
    domain = {
        "domainCount": 1,
        "valuesPerLevel": [{"universal": host}],
        "podCounts": {"universal": count},
    }
    return {
        "admission": {
            "clusterQueue": "q",
            "podSetAssignments": [
                {
                    "name": "main",
                    "count": count,
                    "flavors": {"cpu": "f"},
                    "resourceUsage": {"cpu": str(count)},
                    "topologyAssignment": {"levels": [HOST], "slices": [domain]},
                }
            ],
        },
        "conditions": [
            {
                "type": "QuotaReserved",
                "status": "True",
                "reason": "Test",
                "message": "",
                "lastTransitionTime": f"2026-01-01T00:00:{number:02}Z",
            }
        ],
    }


def names_of_targets(state: QuotaState, count: int) -> list[str]:
    queue, preemptor = state.queues["q"], Preemptor(state, NOW)
    info = WorkloadInfo(a_view("new", count, 5, required=RACK), "q", state.settings)
    assignment = FlavorAssigner(state, preemptor).assign(info, queue)
    return [target.info.view.metadata.name for target in preemptor.targets(info, queue, assignment)]


@pytest.mark.parametrize("settings", [Settings(), Settings(fair_sharing=FairSharing())], ids=["classical", "fair"])
def test_the_youngest_goes_only_if_its_place_is_needed(settings: Settings) -> None:
    state = a_scene(settings, {"old": ("h1", 1), "mid": ("h3", 1), "young": ("h1", 1)})
    before = columns(state)
    # Taken out first, the youngest leaves its rack one pod short; then the other rack is free, and it stays after all.
    assert names_of_targets(state, 8) == ["mid"]
    assert columns(state) == before


def test_what_is_taken_out_in_thought_is_back_in_the_topology() -> None:
    state = a_scene(Settings(), {"one": ("h1", 1), "two": ("h3", 1)})
    assert names_of_targets(state, 8) == ["two"]
    topology = state.topologies.flavor("f")
    assert topology is not None
    info = WorkloadInfo(a_view("new", 8, 5, required=RACK), "q", state.settings)
    assignment = FlavorAssigner(state, Preemptor(state, NOW)).assign(info, state.queues["q"])
    assert any(placed.reason for placed in topology.find(assignment.places["f"]).values())


def test_nobody_goes_where_no_rack_is_large_enough() -> None:
    state = a_scene(Settings(), {"one": ("h1", 1)})
    assert names_of_targets(state, 9) == []
