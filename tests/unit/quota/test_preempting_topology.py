"""Room in quota is not enough where pods must be close to each other: victims are those who leave a place, too."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st
from tests.unit.quota.preempting_worlds import NOW, columns
from tests.unit.quota.topology_worlds import BLOCK, HOST, LEVELS, RACK, a_cluster, a_flavor, a_host, a_topology

from muster.api import kueue
from muster.quota.assignments import Mode
from muster.quota.flavors import FlavorAssigner
from muster.quota.preempting import Preemptor
from muster.quota.settings import FairSharing, Settings
from muster.quota.state import QuotaState
from muster.quota.workloads import WorkloadInfo

HOSTS = [a_host("h1", rack="r1"), a_host("h2", rack="r1"), a_host("h3", rack="r2"), a_host("h4", rack="r2")]
"""Two racks of two hosts of four CPUs."""
LABELS = {"pool": "tas"}
IN_A_RACK = {"required": RACK}


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
    name: str,
    count: int,
    priority: int,
    *,
    asked: Mapping[str, Any] | None = None,
    status: Mapping[str, Any] | None = None,
) -> kueue.Workload:
    container = {"name": "c", "resources": {"requests": {"cpu": "1"}}}
    pods: dict[str, Any] = {"name": "main", "count": count, "template": {"spec": {"containers": [container]}}}
    if asked is not None:
        pods["topologyRequest"] = asked
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


def names_of_targets(state: QuotaState, count: int, asked: Mapping[str, Any] = IN_A_RACK) -> list[str]:
    queue, preemptor = state.queues["q"], Preemptor(state, NOW)
    info = WorkloadInfo(a_view("new", count, 5, asked=asked), "q", state.settings)
    assignment = FlavorAssigner(state, preemptor).assign(info, queue)
    if assignment.mode is not Mode.PREEMPT:
        return []
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
    info = WorkloadInfo(a_view("new", 8, 5, asked=IN_A_RACK), "q", state.settings)
    assignment = FlavorAssigner(state, Preemptor(state, NOW)).assign(info, state.queues["q"])
    assert any(placed.reason for placed in topology.find(assignment.places["f"]).values())


def test_nobody_goes_where_no_rack_is_large_enough() -> None:
    state = a_scene(Settings(), {"one": ("h1", 1)})
    assert names_of_targets(state, 9) == []


# Against a plain search: places are looked for after every move

requests = st.sampled_from(
    [
        IN_A_RACK,
        {"required": BLOCK},
        {"required": HOST},
        {"preferred": RACK},
        {"unconstrained": True},
        {"required": BLOCK, "podSetSliceRequiredTopology": RACK, "podSetSliceSize": 2},
        {"preferred": RACK, "podSetSliceRequiredTopology": HOST, "podSetSliceSize": 2},
    ]
)
holdings = st.lists(st.tuples(st.sampled_from(["h1", "h2", "h3", "h4"]), st.integers(1, 2)), max_size=12)


@pytest.mark.parametrize("settings", [Settings(), Settings(fair_sharing=FairSharing())], ids=["classical", "fair"])
@examples(max_examples=80, deadline=None)
@given(holdings, st.integers(1, 8), requests)
def test_as_if_places_were_looked_for_after_every_move(
    settings: Settings, held: list[tuple[str, int]], pairs: int, asked: Mapping[str, Any]
) -> None:
    room = {"h1": 4, "h2": 4, "h3": 4, "h4": 4}
    kept: dict[str, tuple[str, int]] = {}
    for host, count in held:
        if room[host] >= count:
            room[host] -= count
            kept[f"w{len(kept):02}"] = (host, count)
    state = a_scene(settings, kept)
    before = columns(state)
    assert names_of_targets(state, 2 * pairs, asked) == _plain(state, 2 * pairs, asked)
    assert columns(state) == before


def _plain(state: QuotaState, count: int, asked: Mapping[str, Any]) -> list[str]:
    queue = state.queues["q"]
    info = WorkloadInfo(a_view("new", count, 5, asked=asked), "q", state.settings)
    assignment = FlavorAssigner(state, Preemptor(state, NOW)).assign(info, queue)
    if assignment.mode is not Mode.PREEMPT:
        return []
    topology = state.topologies.flavor("f")
    assert topology is not None

    def fits() -> bool:
        quota = {what: count * 1000 for what in queue.policy.quotas}
        placed = topology.find(assignment.places["f"]).values()
        return state.fits_quota(queue, quota) and not any(one.reason for one in placed)

    gone: list[WorkloadInfo] = []
    is_enough = False
    for _, victim in queue.ranking(NOW).all:
        state.remove_usage(queue, victim.usage)
        gone.append(victim)
        if is_enough := fits():
            break
    spared = []
    for victim in reversed(gone[:-1]) if is_enough else ():
        state.add_usage(queue, victim.usage)
        if fits():
            spared.append(victim)
        else:
            state.remove_usage(queue, victim.usage)
    for victim in gone:
        if victim not in spared:
            state.add_usage(queue, victim.usage)
    return [victim.view.metadata.name for victim in gone if victim not in spared] if is_enough else []
