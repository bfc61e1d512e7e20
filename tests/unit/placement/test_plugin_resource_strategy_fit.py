"""ResourceStrategyFit against a plain reading of its rule, and its options in both dialects."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.placement.plugin_views import node, pod
from tests.unit.placement.resource_worlds import RESOURCES, World, asking, worlds

from muster.cluster.state import ClusterState
from muster.placement.framework import Code
from muster.placement.plugins.resource_args import ResourceSpec
from muster.placement.plugins.resource_strategies import ResourceStrategyFitArgs, Strategy
from muster.placement.plugins.resource_strategy_fit import ResourceStrategyFit

TYPES = ("LeastAllocated", "MostAllocated")
STRATEGIES = st.lists(
    st.builds(Strategy, st.sampled_from((*RESOURCES, "example.com/*")), st.sampled_from(TYPES), st.integers(0, 4)),
    max_size=4,
    unique_by=lambda strategy: strategy.name,
)
SCARCE = st.lists(
    st.builds(ResourceSpec, st.sampled_from(("example.com/a", "example.com/b")), st.integers(0, 3)),
    max_size=2,
    unique_by=lambda resource: resource.name,
)


def naive_fit(world: World, args: ResourceStrategyFitArgs, slot: int) -> float:
    total, weights = 0.0, 0
    for resource, amount in world.pod.shape.needs.items():
        strategy = args.strategy_of(resource)
        if not amount or strategy is None or not strategy.weight:
            continue
        weights += strategy.weight
        row = world.cluster.column(resource)
        capacity = 0 if row is None else int(world.cluster.allocatable[row, slot])
        if row is None or not capacity:
            continue
        filled = (int(world.cluster.used[row, slot]) + amount) / capacity
        if filled > 1:
            return 0.0
        total += strategy.weight * (filled if strategy.type == "MostAllocated" else 1 - filled)
    return total / weights if weights else 0.0


def naive_spared(world: World, args: ResourceStrategyFitArgs, slot: int) -> float:
    def has(resource: str) -> bool:
        row = world.cluster.column(resource)
        return row is not None and int(world.cluster.allocatable[row, slot]) > 0

    if any(world.pod.shape.needs.get(resource) and not has(resource) for resource, _ in args.scarce):
        return 0.0
    total = sum(weight for _, weight in args.scarce)
    return sum(weight for resource, weight in args.scarce if not has(resource)) / total if total else 0.0


@settings(max_examples=60, deadline=None)
@given(world=worlds(), strategies=STRATEGIES, scarce=SCARCE, weights=st.tuples(st.integers(0, 3), st.integers(0, 3)))
def test_the_columns_agree_with_the_rule(
    world: World, strategies: list[Strategy], scarce: list[ResourceSpec], weights: tuple[int, int]
) -> None:
    args = ResourceStrategyFitArgs(tuple(strategies), weights[0], tuple(scarce), weights[1])
    plugin = ResourceStrategyFit(args)
    shares, spared = plugin.shares(world.pod, world.cluster), plugin.spared(world.pod, world.cluster)
    scores = plugin.score(world.pod, world.cluster, None)
    for slot in world.slots:
        assert shares[slot] == pytest.approx(naive_fit(world, args, slot), abs=1e-9)
        assert spared[slot] == pytest.approx(naive_spared(world, args, slot), abs=1e-9)
        assert 0 <= scores[slot] <= 100
        assert scores[slot] == plugin.score_at(world.pod, world.cluster, None, slot)


def test_gpus_are_packed_while_cpus_are_spread() -> None:
    amounts = {"cpu": "8", "nvidia.com/gpu": "8"}
    cluster = ClusterState.of([node(name, status={"allocatable": amounts}) for name in ("used", "unused")])
    cluster.assign(pod(cluster, "there", **asking({"cpu": 2, "nvidia.com/gpu": 2})), "used")
    strategies = (Strategy("nvidia.com/*", "MostAllocated", 5), Strategy("cpu", "LeastAllocated", 1))
    plugin = ResourceStrategyFit(ResourceStrategyFitArgs(strategies))
    training = plugin.score(pod(cluster, "training", **asking({"cpu": 1, "nvidia.com/gpu": 4})), cluster, None)
    serving = plugin.score(pod(cluster, "serving", **asking({"cpu": 1})), cluster, None)
    assert training[cluster.slots["used"]] > training[cluster.slots["unused"]]
    assert serving[cluster.slots["unused"]] > serving[cluster.slots["used"]]


def test_a_pod_that_asks_for_nothing_named_is_not_scored() -> None:
    cluster = ClusterState.of([node("n", status={"allocatable": {"cpu": "1"}})])
    plugin = ResourceStrategyFit(ResourceStrategyFitArgs((Strategy("nvidia.com/gpu"),)))
    prepared = plugin.pre_score(pod(cluster, "p", **asking({"cpu": 1})), cluster, cluster.mask(True))
    assert prepared.status.code is Code.SKIP


def test_the_closest_name_decides() -> None:
    strategies = (Strategy("nvidia.com/*"), Strategy("nvidia.com/mig-*", "MostAllocated"), Strategy("nvidia.com/gpu"))
    args = ResourceStrategyFitArgs(strategies)
    assert args.strategy_of("nvidia.com/gpu") == strategies[2]
    assert args.strategy_of("nvidia.com/mig-1g") == strategies[1]
    assert args.strategy_of("nvidia.com/other") == strategies[0]
    assert args.strategy_of("amd.com/gpu") is None


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, ResourceStrategyFitArgs(weight=10)),
        (
            {"resourceStrategyFitWeight": 3, "resources": {"a.b/c": {"type": "MostAllocated", "weight": 2}}},
            ResourceStrategyFitArgs((Strategy("a.b/c", "MostAllocated", 2),), 3),
        ),
        (
            {"resources": {"*": {"type": "MostAllocated"}, "a*b": {"type": "MostAllocated"}, "cpu": {"type": "Other"}}},
            ResourceStrategyFitArgs(weight=10),
        ),
        (
            {"sra": {"enable": True, "resources": "a.b/c, d.e/f", "weight": 5, "resourceWeight": {"a.b/c": 2}}},
            ResourceStrategyFitArgs(
                weight=10, scarce=(ResourceSpec("a.b/c", 2), ResourceSpec("d.e/f", 1)), scarce_weight=5
            ),
        ),
        ({"sra": {"enable": False, "resources": "a.b/c"}}, ResourceStrategyFitArgs(weight=10)),
    ],
    ids=["nothing said", "one strategy", "nonsense counts as not said", "scarce resources", "switched off"],
)
def test_options_as_volcano_writes_them(arguments: dict[str, Any], expected: ResourceStrategyFitArgs) -> None:
    assert ResourceStrategyFitArgs.from_volcano(arguments) == expected


def test_options_of_a_profile() -> None:
    assert ResourceStrategyFitArgs.from_document({}) == ResourceStrategyFitArgs()
    document = {
        "resources": [{"name": "nvidia.com/*", "type": "MostAllocated", "weight": 5}, {"name": "cpu"}],
        "scarce": [{"name": "nvidia.com/gpu"}],
        "weight": 2,
    }
    strategies = (Strategy("nvidia.com/*", "MostAllocated", 5), Strategy("cpu"))
    expected = ResourceStrategyFitArgs(strategies, 2, (ResourceSpec("nvidia.com/gpu"),), 1)
    assert ResourceStrategyFitArgs.from_document(document) == expected


def test_what_is_wrong_with_options_is_named() -> None:
    errors = ResourceStrategyFitArgs.from_document(
        {
            "resources": [{"name": "*"}, {"name": "cpu", "type": "Other", "weight": -1}, {"name": "cpu"}],
            "scarce": [{"name": "a b"}],
            "scarceWeight": -1,
            "surprise": 1,
        }
    )
    assert isinstance(errors, list)
    assert {error.path for error in errors} == {
        "surprise",
        "resources[0].name",
        "resources[1].type",
        "resources[1].weight",
        "resources[2].name",
        "scarce[0].name",
        "scarceWeight",
    }
