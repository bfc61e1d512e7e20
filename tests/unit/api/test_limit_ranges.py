"""LimitRange: what it fills in itself, and what is refused."""

import pytest

from muster.api import core, raw
from muster.api.objects import decode_view


def made(*limits):
    document = raw.copy({"metadata": {"name": "bounds", "namespace": "n"}, "spec": {"limits": list(limits)}})
    core.LIMIT_RANGE.default(document)
    return document


def problems(*limits):
    found = core.LIMIT_RANGE.validate(decode_view(core.LIMIT_RANGE, raw.encode(made(*limits))))
    return {problem.path.removeprefix("spec.limits"): problem.message for problem in found}


def test_of_containers_the_most_is_the_default_and_that_the_default_request():
    [item] = made({"type": "Container", "max": {"cpu": "2", "memory": "1Gi"}, "min": {"cpu": "1"}})["spec"]["limits"]
    assert item["default"] == {"cpu": "2", "memory": "1Gi"}
    assert item["defaultRequest"] == {"cpu": "2", "memory": "1Gi"}


def test_the_least_is_requested_where_nothing_else_is_said_and_what_is_said_stays():
    given = {"type": "Container", "min": {"cpu": "1", "memory": "1Mi"}, "defaultRequest": {"cpu": "1500m"}}
    [item] = made(given)["spec"]["limits"]
    assert item["defaultRequest"] == {"cpu": "1500m", "memory": "1Mi"}
    assert "default" not in item


def test_nothing_is_filled_in_for_pods():
    assert made({"type": "Pod", "max": {"cpu": "2"}})["spec"]["limits"] == [{"type": "Pod", "max": {"cpu": "2"}}]


GOOD = {
    "containers and pods": [{"type": "Container", "max": {"cpu": "4"}, "min": {"cpu": "100m"}}, {"type": "Pod"}],
    "a ratio that can be reached": [
        {"type": "Container", "max": {"cpu": "4"}, "min": {"cpu": "1"}, "maxLimitRequestRatio": {"cpu": "4"}}
    ],
    "a ratio of memory": [{"type": "Container", "maxLimitRequestRatio": {"memory": "1.5"}}],
    "claims": [{"type": "PersistentVolumeClaim", "max": {"storage": "1Ti"}}],
    "somebody else's type": [{"type": "example.com/Thing", "max": {"cpu": "1"}}],
}


@pytest.mark.parametrize("limits", GOOD.values(), ids=GOOD.keys())
def test_good(limits):
    assert problems(*limits) == {}


BAD = {
    "no type": ({"max": {"cpu": "1"}}, "[0].type", "Required value"),
    "an unknown type": ({"type": "Node"}, "[0].type", "supported values"),
    "a bad amount": ({"type": "Pod", "max": {"cpu": "much"}}, "[0].max[cpu]", "Invalid value"),
    "min above max": (
        {"type": "Pod", "max": {"cpu": "1"}, "min": {"cpu": "2"}},
        "[0].min[cpu]",
        "min value 2 is greater than max value 1",
    ),
    "a default above the most": (
        {"type": "Container", "max": {"cpu": "1"}, "default": {"cpu": "2"}, "defaultRequest": {"cpu": "1"}},
        "[0].default[cpu]",
        "default value 2 is greater than max value 1",
    ),
    "a default below the least": (
        {"type": "Container", "min": {"cpu": "2"}, "defaultRequest": {"cpu": "1"}},
        "[0].defaultRequest[cpu]",
        "min value 2 is greater than default request value 1",
    ),
    "a request above its limit": (
        {"type": "Container", "default": {"cpu": "1"}, "defaultRequest": {"cpu": "2"}},
        "[0].defaultRequest[cpu]",
        "default request value 2 is greater than default limit value 1",
    ),
    "GPUs that are asked for in another number than allowed": (
        {"type": "Container", "default": {"nvidia.com/gpu": 2}, "defaultRequest": {"nvidia.com/gpu": 1}},
        "[0].defaultRequest[nvidia.com/gpu]",
        "must equal",
    ),
    "defaults of pods": ({"type": "Pod", "default": {"cpu": "1"}}, "[0].default", "Forbidden"),
    "a claim without storage": ({"type": "PersistentVolumeClaim", "max": {"cpu": "1"}}, "[0].limits", "storage"),
    "a ratio below one": (
        {"type": "Pod", "maxLimitRequestRatio": {"cpu": "500m"}},
        "[0].maxLimitRequestRatio[cpu]",
        "less than 1",
    ),
    "a ratio beyond reach": (
        {"type": "Pod", "max": {"cpu": "2"}, "min": {"cpu": "1"}, "maxLimitRequestRatio": {"cpu": "3"}},
        "[0].maxLimitRequestRatio[cpu]",
        "greater than max/min = 2.0",
    ),
    "a ratio of nothing": (
        {"type": "Pod", "maxLimitRequestRatio": {"cpu": "x"}},
        "[0].maxLimitRequestRatio[cpu]",
        "Invalid value",
    ),
}


@pytest.mark.parametrize(("item", "path", "message"), BAD.values(), ids=BAD.keys())
def test_bad(item, path, message):
    assert message in problems(item)[path]


def test_a_type_stands_once():
    assert problems({"type": "Pod"}, {"type": "Pod"}) == {"[1].type": 'Duplicate value: "Pod"'}
