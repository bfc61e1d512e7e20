"""Versions that are served but not stored, as an API server asks for them."""

import pytest

from muster.api import errors
from muster.server.admission import converting


def review(wanted, *objects):
    request = {"uid": "u", "desiredAPIVersion": wanted, "objects": list(objects)}
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": request}


def a_queue(version, **spec):
    return {
        "apiVersion": f"kueue.x-k8s.io/{version}",
        "kind": "ClusterQueue",
        "metadata": {"name": "a", "uid": "x"},
        "spec": spec,
    }


def test_both_ways():
    old, new = a_queue("v1beta1", cohort="all"), a_queue("v1beta2", cohortName="all")
    stored = converting.answer(review("kueue.x-k8s.io/v1beta2", old))["response"]
    assert stored == {"uid": "u", "result": {"status": "Success"}, "convertedObjects": [new]}
    shown = converting.answer(review("kueue.x-k8s.io/v1beta1", new))["response"]["convertedObjects"]
    assert shown == [a_queue("v1beta1", cohort="all")]


def test_what_has_the_version_already_stays_as_it_is():
    queue = a_queue("v1beta2", cohortName="all")
    assert converting.answer(review("kueue.x-k8s.io/v1beta2", queue))["response"]["convertedObjects"] == [queue]


def test_a_version_that_nobody_serves_fails_as_a_whole():
    answer = converting.answer(review("kueue.x-k8s.io/v9", a_queue("v1beta2"), a_queue("v1beta1")))["response"]
    assert answer["result"]["status"] == "Failure"
    assert "v9" in answer["result"]["message"]
    assert "convertedObjects" not in answer


def test_what_is_no_review_is_told():
    with pytest.raises(errors.BadRequest, match="ConversionReview"):
        converting.answer({"kind": "Pod"})
