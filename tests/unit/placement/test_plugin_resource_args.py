from typing import Any

import pytest

from muster.placement.plugins.gpu_packing import GpuPackingArgs
from muster.placement.plugins.resource_args import (
    CPU_AND_MEMORY,
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    ResourceSpec,
    ScoringStrategy,
    ShapePoint,
)


def test_an_empty_document_means_the_defaults() -> None:
    assert NodeResourcesFitArgs.from_document({}) == NodeResourcesFitArgs()
    assert NodeResourcesBalancedAllocationArgs.from_document({}) == NodeResourcesBalancedAllocationArgs()
    assert GpuPackingArgs.from_document({}) == GpuPackingArgs()


def test_what_a_document_says_is_taken_over_and_the_rest_is_filled_in() -> None:
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "NodeResourcesFitArgs",
        "ignoredResources": ["example.com/a"],
        "ignoredResourceGroups": ["example.org"],
        "scoringStrategy": {
            "type": "RequestedToCapacityRatio",
            "resources": [{"name": "nvidia.com/gpu", "weight": 5}, {"name": "cpu"}],
            "requestedToCapacityRatio": {"shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]},
        },
    }
    resources = (ResourceSpec("nvidia.com/gpu", 5), ResourceSpec("cpu", 1))
    shape = (ShapePoint(0, 0), ShapePoint(100, 10))
    strategy = ScoringStrategy("RequestedToCapacityRatio", resources, shape)
    assert NodeResourcesFitArgs.from_document(document) == NodeResourcesFitArgs(
        ("example.com/a",), ("example.org",), strategy
    )
    least = NodeResourcesFitArgs.from_document({"scoringStrategy": {"type": "LeastAllocated"}})
    assert isinstance(least, NodeResourcesFitArgs)
    assert least.scoring_strategy.resources == CPU_AND_MEMORY


RATIO = "scoringStrategy.requestedToCapacityRatio"


@pytest.mark.parametrize(
    ("document", "wanted"),
    [
        ({"ignored": []}, [("ignored", "FieldValueForbidden")]),
        ({"kind": "Other"}, [("kind", "FieldValueNotSupported")]),
        ({"ignoredResources": "cpu"}, [("ignoredResources", "FieldValueInvalid")]),
        ({"ignoredResources": ["ok", 3]}, [("ignoredResources[1]", "FieldValueInvalid")]),
        ({"ignoredResources": ["!"]}, [("ignoredResources[0]", "FieldValueInvalid")]),
        ({"ignoredResourceGroups": ["a.com/b"]}, [("ignoredResourceGroups[0]", "FieldValueInvalid")]),
        ({"scoringStrategy": {"type": "Best"}}, [("scoringStrategy.type", "FieldValueNotSupported")]),
        ({"scoringStrategy": {"type": "MostAllocated", "x": 1}}, [("scoringStrategy.x", "FieldValueForbidden")]),
        (
            {
                "scoringStrategy": {
                    "type": "MostAllocated",
                    "resources": [{"name": "cpu", "weight": 101}, {"weight": -1}],
                }
            },
            [
                ("scoringStrategy.resources[0].weight", "FieldValueInvalid"),
                ("scoringStrategy.resources[1].weight", "FieldValueInvalid"),
            ],
        ),
        (
            {"scoringStrategy": {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": True}]}},
            [("scoringStrategy.resources[0].weight", "FieldValueInvalid")],
        ),
        (
            {"scoringStrategy": {"type": "LeastAllocated", "requestedToCapacityRatio": {"shape": []}}},
            [(RATIO, "FieldValueForbidden")],
        ),
        ({"scoringStrategy": {"type": "RequestedToCapacityRatio"}}, [(RATIO, "FieldValueRequired")]),
        (
            {"scoringStrategy": {"type": "RequestedToCapacityRatio", "requestedToCapacityRatio": {"shape": []}}},
            [(f"{RATIO}.shape", "FieldValueRequired")],
        ),
        (
            {
                "scoringStrategy": {
                    "type": "RequestedToCapacityRatio",
                    "requestedToCapacityRatio": {
                        "shape": [
                            {"utilization": 50, "score": 11},
                            {"utilization": 50, "score": 0},
                            {"utilization": 101},
                        ]
                    },
                }
            },
            [
                (f"{RATIO}.shape[1].utilization", "FieldValueInvalid"),
                (f"{RATIO}.shape[0].score", "FieldValueInvalid"),
                (f"{RATIO}.shape[2].utilization", "FieldValueInvalid"),
            ],
        ),
    ],
)
def test_every_mistake_in_the_arguments_of_fit_is_named(
    document: dict[str, Any], wanted: list[tuple[str, str]]
) -> None:
    found = NodeResourcesFitArgs.from_document(document)
    assert isinstance(found, list)
    assert [(error.path, error.reason) for error in found] == wanted


def test_a_document_that_was_defaulted_means_what_it_leaves_out() -> None:
    found = NodeResourcesFitArgs.from_document({}, defaults=False)
    assert isinstance(found, list)
    assert [(error.path, error.reason) for error in found] == [("scoringStrategy", "FieldValueRequired")]
    weightless = {"scoringStrategy": {"type": "MostAllocated", "resources": [{"name": "cpu"}]}}
    assert isinstance(NodeResourcesFitArgs.from_document(weightless, defaults=False), list)
    assert isinstance(NodeResourcesFitArgs.from_document(weightless), NodeResourcesFitArgs)


def test_every_mistake_in_the_arguments_of_balance_is_named() -> None:
    document = {"resources": [{"name": "cpu", "weight": 2}, {"name": "cpu", "weight": 1}]}
    found = NodeResourcesBalancedAllocationArgs.from_document(document)
    assert isinstance(found, list)
    assert [(error.path, error.reason) for error in found] == [
        ("resources[0].weight", "FieldValueInvalid"),
        ("resources[1].name", "FieldValueDuplicate"),
    ]


def test_every_mistake_in_the_arguments_of_packing_is_named() -> None:
    document = {"resources": ["amd.com/gpu", "amd.com/gpu", "cpu", "muster.dev/gpu-milli"]}
    found = GpuPackingArgs.from_document(document)
    assert isinstance(found, list)
    assert [(error.path, error.reason) for error in found] == [
        ("resources[1]", "FieldValueDuplicate"),
        ("resources[2]", "FieldValueInvalid"),
        ("resources[3]", "FieldValueInvalid"),
    ]
    assert GpuPackingArgs.from_document({"resources": ["amd.com/gpu"]}) == GpuPackingArgs(("amd.com/gpu",))
