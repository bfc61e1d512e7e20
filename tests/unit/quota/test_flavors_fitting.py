"""Whether a flavor's nodes can take a pod, and which of two fits is better."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.api import core, kueue
from muster.quota.assignments import Degree, Fitness
from muster.quota.flavor_fitting import is_better, mismatch, scheduling_key
from muster.quota.queues import Preference

FITNESSES = st.builds(Fitness, st.sampled_from(list(Degree)), st.integers(0, 3))


def _flavor(**spec: Any) -> kueue.ResourceFlavor:
    return msgspec.convert({"metadata": {"name": "f"}, "spec": spec}, kueue.ResourceFlavor)


def _pod(**spec: Any) -> core.PodSpec:
    return msgspec.convert({"containers": [], **spec}, core.PodSpec)


def _affinity(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}}


def _expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


@pytest.mark.parametrize(
    ("pod", "matches"),
    [
        pytest.param({}, True, id="says nothing"),
        pytest.param({"nodeSelector": {"type": "a"}}, True, id="selects the label"),
        pytest.param({"nodeSelector": {"type": "b"}}, False, id="selects another value"),
        pytest.param({"nodeSelector": {"zone": "x"}}, True, id="selects a label that is not the flavor's"),
        pytest.param(
            {"affinity": _affinity({"matchExpressions": [_expression("type", "In", "b", "c")]})},
            False,
            id="wants another value",
        ),
        pytest.param(
            {"affinity": _affinity({"matchExpressions": [_expression("type", "NotIn", "b")]})},
            True,
            id="wants not that value",
        ),
        pytest.param(
            {
                "affinity": _affinity(
                    {"matchExpressions": [_expression("type", "In", "b")]},
                    {"matchExpressions": [_expression("zone", "In", "x")]},
                )
            },
            True,
            id="one term says nothing of the flavor's labels",
        ),
        pytest.param(
            {
                "affinity": _affinity(
                    {
                        "matchExpressions": [_expression("type", "In", "b")],
                        "matchFields": [_expression("metadata.name", "In", "n")],
                    }
                )
            },
            False,
            id="names of nodes are not looked at, labels are",
        ),
        pytest.param(
            {"affinity": _affinity({"matchExpressions": [_expression("type", "Like", "a")]})},
            False,
            id="an operator that there is not",
        ),
    ],
)
def test_node_labels(pod: dict[str, Any], matches: bool) -> None:
    found = mismatch(_flavor(nodeLabels={"type": "a"}), _pod(**pod))
    assert found == (None if matches else "flavor f doesn't match node affinity")


SPOT = {"key": "spot", "value": "yes", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("flavor", "tolerations", "tolerated"),
    [
        pytest.param({"nodeTaints": [SPOT]}, [], False, id="not tolerated"),
        pytest.param({"nodeTaints": [SPOT]}, [{"key": "spot", "value": "yes"}], True, id="by value"),
        pytest.param({"nodeTaints": [SPOT]}, [{"key": "spot", "value": "no"}], False, id="another value"),
        pytest.param({"nodeTaints": [SPOT]}, [{"operator": "Exists"}], True, id="whatever it is"),
        pytest.param({"nodeTaints": [SPOT]}, [{"operator": "Exists", "effect": "NoExecute"}], False, id="effect"),
        pytest.param({"nodeTaints": [{**SPOT, "effect": "PreferNoSchedule"}]}, [], True, id="only preferred"),
        pytest.param(
            {"nodeTaints": [SPOT], "tolerations": [{"key": "spot", "operator": "Exists"}]}, [], True, id="flavor's own"
        ),
    ],
)
def test_taints(flavor: dict[str, Any], tolerations: list[dict[str, Any]], tolerated: bool) -> None:
    found = mismatch(_flavor(**flavor), _pod(tolerations=tolerations))
    assert found == (None if tolerated else "untolerated taint {spot yes NoSchedule <nil>} in flavor f")


def test_pods_that_say_the_same_of_nodes_have_one_key() -> None:
    one = _pod(
        nodeSelector={"a": "1", "b": "2"}, affinity=_affinity({"matchExpressions": [_expression("x", "In", "y")]})
    )
    two = _pod(
        nodeSelector={"b": "2", "a": "1"}, affinity=_affinity({"matchExpressions": [_expression("x", "In", "y")]})
    )
    assert scheduling_key(one) == scheduling_key(two)
    assert hash(scheduling_key(one)) == hash(scheduling_key(two))
    assert scheduling_key(_pod(nodeSelector={"a": "1"})) != scheduling_key(one)
    assert scheduling_key(_pod()) is None


@given(FITNESSES, FITNESSES, FITNESSES, st.sampled_from(list(Preference)))
def test_better_is_an_order(one: Fitness, two: Fitness, three: Fitness, preference: Preference) -> None:
    assert not (is_better(one, two, preference) and is_better(two, one, preference))
    if is_better(one, two, preference) and is_better(two, three, preference):
        assert is_better(one, three, preference)
    if one.degree is Degree.FIT and not one.borrow:
        assert not is_better(two, one, preference)
