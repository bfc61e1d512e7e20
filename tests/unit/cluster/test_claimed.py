"""What claims take of a node counts for the pods that have them."""

from typing import Any

import pytest

from muster.api import core
from muster.api.objects import view_of
from muster.cluster.pods import Shapes


def needs(*claims: dict[str, Any], **status: Any) -> dict[str, int]:
    document = {
        "metadata": {"name": "p", "namespace": "ns", "uid": "p"},
        "spec": {
            "nodeName": "n",
            "overhead": {"cpu": "1m"},
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "100m", "memory": "1Gi"}}}],
        },
        "status": {"nodeAllocatableResourceClaimStatuses": list(claims), **status},
    }
    pod = view_of(core.POD, document)
    assert isinstance(pod, core.Pod)
    return dict(Shapes().info(pod).needs)


CPU = {"name": "cpu", "quantity": "2"}


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        ([], 101),
        ([{"containers": ["c"], "mapping": [CPU]}], 2101),
        ([{"mapping": [CPU]}, {"mapping": [CPU]}], 4101),
        ([{"containers": ["c", "d"], "overhead": [{"name": "cpu", "perPod": "50m", "perContainer": "10m"}]}], 171),
        ([{"mapping": [{"name": "cpu", "quantity": "much"}, {"quantity": "1"}, "cpu"], "overhead": "none"}], 101),
        ([{"mapping": [{"name": "cpu", "quantity": "-1"}]}], 101),
    ],
    ids=["no claim", "one claim", "two claims", "overhead of each container", "nonsense", "less than nothing"],
)
def test_claims_are_added_to_what_containers_ask_for(claims: list[dict[str, Any]], expected: int) -> None:
    found = needs(*claims)
    assert found["cpu"] == expected
    assert found["memory"] == 1 << 30
    assert found["pods"] == 1


def test_resources_that_only_a_claim_names_count_too() -> None:
    assert needs({"mapping": [{"name": "hugepages-2Mi", "quantity": "4Mi"}]})["hugepages-2Mi"] == 4 << 20


def test_claims_count_while_resources_change() -> None:
    granted = [
        {
            "name": "c",
            "allocatedResources": {"cpu": "300m"},
            "ready": True,
            "restartCount": 0,
            "image": "",
            "imageID": "",
        }
    ]
    assert needs({"mapping": [CPU]}, containerStatuses=granted)["cpu"] == 2301
