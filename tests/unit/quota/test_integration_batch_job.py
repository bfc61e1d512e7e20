"""batch/v1 Job as a kind of job that queues."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.quota.integration_worlds import JOBS, a_job

from muster.api.raw import copy
from muster.quota.integrations.contract import PodSetInfo

MIN = "kueue.x-k8s.io/job-min-parallelism"
EQUAL = "kueue.x-k8s.io/job-completions-equal-parallelism"


@pytest.mark.parametrize(
    ("spec", "count"),
    [
        ({"parallelism": 4, "completions": 10}, 4),
        ({"parallelism": 4, "completions": 2}, 2),
        ({"parallelism": 4, "completions": None}, 4),
        ({"parallelism": 0, "completions": 2}, 0),
    ],
)
def test_as_many_pods_as_may_run_at_a_time(spec, count):
    (pods,) = JOBS.pod_sets(a_job(**spec))
    assert pods["count"] == count
    assert "minCount" not in pods


@pytest.mark.parametrize(("written", "least"), [("2", 2), ("3", None), ("0", None), ("no", None)])
def test_the_least_that_it_starts_with(written, least):
    (pods,) = JOBS.pod_sets(a_job(annotations={MIN: written}))
    assert pods.get("minCount") == least


def test_it_is_over_when_it_says_so():
    assert JOBS.outcome(a_job()) is None
    failed = {"conditions": [{"type": "Failed", "status": "True", "message": "too often"}]}
    outcome = JOBS.outcome(a_job(status=failed))
    assert outcome is not None
    assert (outcome.succeeded, outcome.message) == (False, "too often")


@pytest.mark.parametrize(
    ("suspend", "status", "is_active"),
    [
        (True, {}, False),
        (False, {}, False),
        (False, {"active": 1}, True),
        (True, {"terminating": 1}, True),
        (True, {"startTime": "2023-11-14T22:00:00Z"}, True),
        (False, {"startTime": "2023-11-14T22:00:00Z"}, False),
    ],
)
def test_it_holds_resources_until_its_controller_has_seen_that_it_stops(suspend, status, is_active):
    assert JOBS.is_active(a_job(suspend=suspend, status=status)) is is_active


@pytest.mark.parametrize(
    ("spec", "status", "count"),
    [
        ({"parallelism": 3, "completions": 3}, {"succeeded": 1}, 1),
        ({"parallelism": 3, "completions": 10}, {"succeeded": 5}, 0),
        ({"parallelism": 3, "completions": 10}, {"succeeded": 8}, 1),
        ({"parallelism": 1, "completions": 1}, {"succeeded": 1}, 0),
        ({"parallelism": 3, "completions": None}, {"succeeded": 1}, 1),
        (
            {"parallelism": 4, "completions": 4, "completionMode": "Indexed"},
            {"succeeded": 9, "completedIndexes": "0,2-3,9", "failedIndexes": "2"},
            3,
        ),
    ],
)
def test_pods_that_will_not_run_again(spec, status, count):
    assert JOBS.reclaimable(a_job(status=status, **spec)).get("main", 0) == count


@given(st.integers(1, 20), st.integers(1, 40), st.data())
def test_what_is_reclaimed_and_what_may_still_run_make_up_the_whole(parallelism, completions, data):
    succeeded = data.draw(st.integers(0, completions))
    job = a_job(parallelism=parallelism, completions=completions, status={"succeeded": succeeded})
    (pods,) = JOBS.pod_sets(job)
    reclaimed = JOBS.reclaimable(job).get("main", 0)
    may_run = min(parallelism, completions - succeeded)
    assert 0 <= reclaimed <= pods["count"]
    assert pods["count"] - reclaimed >= may_run
    if parallelism > 1:
        assert pods["count"] - reclaimed == may_run


names = st.text("abc", min_size=1, max_size=3)
small = st.dictionaries(names, st.sampled_from(["1", "2"]), max_size=3)


@given(small, small, small, small, st.integers(1, 5))
def test_stopping_takes_back_exactly_what_starting_gave(labels, selector, given_labels, given_selector, count):
    template = {
        "metadata": {"labels": labels},
        "spec": {"nodeSelector": selector, "containers": [{"name": "main", "image": "host"}]},
    }
    job = a_job(annotations={MIN: "1"}, template=template, parallelism=5, completions=9)
    info = PodSetInfo(
        "main",
        count,
        {f"given-{name}": value for name, value in given_labels.items()},
        {"kueue.x-k8s.io/workload": "w"},
        {f"given-{name}": value for name, value in given_selector.items()},
        [{"key": "k", "operator": "Exists"}],
        ["kueue.x-k8s.io/topology"],
    )
    originals = JOBS.pod_sets(job)
    started = JOBS.start(job, [info])
    assert started["spec"]["parallelism"] == count
    suspended = JOBS.stop(started, originals)
    assert suspended["spec"]["template"] == started["spec"]["template"], "not while it runs"
    restored = JOBS.stop(copy(suspended), originals)
    assert JOBS.pod_sets(restored) == originals
    assert JOBS.stop(restored, originals) == restored


def test_completions_follow_where_they_should_be_equal():
    job = a_job(annotations={MIN: "1", EQUAL: "true"}, parallelism=5, completions=5, completionMode="Indexed")
    started = JOBS.start(job, [PodSetInfo("main", 2)])
    assert (started["spec"]["parallelism"], started["spec"]["completions"]) == (2, 2)
