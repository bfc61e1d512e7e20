"""BinPacking against a plain reading of its rule, and its options in both dialects."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.placement.resource_worlds import RESOURCES, World, worlds

from muster.placement.framework import Code
from muster.placement.plugins.bin_packing import BinPacking, BinPackingArgs
from muster.placement.plugins.resource_args import ResourceSpec

WEIGHTS = st.dictionaries(st.sampled_from(RESOURCES), st.integers(0, 5), max_size=4)


def naive(world: World, weights: dict[str, int], slot: int) -> float:
    cluster, total, count = world.cluster, 0.0, 0
    for resource, amount in world.pod.shape.needs.items():
        if not amount or resource not in weights:
            continue
        count += weights[resource]
        row = cluster.column(resource)
        capacity = 0 if row is None else int(cluster.allocatable[row, slot])
        filled = amount + (0 if row is None else int(cluster.used[row, slot]))
        if capacity and weights[resource]:
            if filled > capacity:
                return 0.0
            total += weights[resource] * filled / capacity
    return total / count if count else 0.0


@settings(max_examples=50, deadline=None)
@given(world=worlds(), weights=WEIGHTS)
def test_the_columns_agree_with_the_rule(world: World, weights: dict[str, int]) -> None:
    plugin = BinPacking(BinPackingArgs(tuple(ResourceSpec(*entry) for entry in weights.items())))
    shares = plugin.shares(world.pod, world.cluster)
    scores = plugin.score(world.pod, world.cluster, None)
    for slot in world.slots:
        assert shares[slot] == pytest.approx(naive(world, weights, slot), abs=1e-9)
        assert abs(scores[slot] - 100 * shares[slot]) <= 0.5 + 1e-9
        assert scores[slot] == plugin.score_at(world.pod, world.cluster, None, slot)
    asks = any(amount and name in weights for name, amount in world.pod.shape.needs.items())
    code = plugin.pre_score(world.pod, world.cluster, world.cluster.mask(True)).status.code
    assert code is (Code.SUCCESS if asks else Code.SKIP)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, ({"cpu": 1, "memory": 1}, 1)),
        ({"binpack.weight": 10, "binpack.cpu": 0, "binpack.memory": "3"}, ({"cpu": 0, "memory": 3}, 10)),
        ({"binpack.cpu": -1, "binpack.memory": "many"}, ({"cpu": 1, "memory": 1}, 1)),
        (
            {"binpack.resources": "nvidia.com/gpu, example.com/foo,", "binpack.resources.nvidia.com/gpu": 7},
            ({"nvidia.com/gpu": 7, "example.com/foo": 1, "cpu": 1, "memory": 1}, 1),
        ),
        ({"binpack.resources": 4}, ({"cpu": 1, "memory": 1}, 1)),
    ],
    ids=["nothing said", "weights", "nonsense counts as not said", "more resources", "no list"],
)
def test_options_as_volcano_writes_them(arguments: dict[str, Any], expected: tuple[dict[str, int], int]) -> None:
    args = BinPackingArgs.from_volcano(arguments)
    assert ({resource.name: resource.weight for resource in args.resources}, args.weight) == expected


def test_options_of_a_profile() -> None:
    assert BinPackingArgs.from_document({}) == BinPackingArgs()
    document = {"resources": [{"name": "nvidia.com/gpu", "weight": 5}, {"name": "cpu"}]}
    expected = BinPackingArgs((ResourceSpec("nvidia.com/gpu", 5), ResourceSpec("cpu", 1)))
    assert BinPackingArgs.from_document(document) == expected


def test_what_is_wrong_with_options_is_named() -> None:
    entries = [{"name": "cpu", "weight": -1}, {"name": "cpu"}, {"name": "a b"}, {"name": "x", "share": 1}]
    errors = BinPackingArgs.from_document({"resources": entries, "surprise": 1})
    assert isinstance(errors, list)
    assert {error.path for error in errors} == {
        "surprise",
        "resources[0].weight",
        "resources[1].name",
        "resources[2].name",
        "resources[3].share",
    }
