"""Volcano Jobs as quota sees them."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.api import raw
from muster.api.kueue import names
from muster.api.raw import JSON, Document
from muster.quota.integrations.contract import Conflicting, PodSetInfo
from muster.quota.integrations.volcano_job import VolcanoJobs

JOBS = VolcanoJobs()
TOLD = names.ADMITTED_REPLICAS_ANNOTATION
HELD = names.HELD_ANNOTATION


def a_task(name: str, replicas: int, least: int | None = None, **fields: JSON) -> Document:
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "main", "image": "host"}]}}
    task = {"name": name, "replicas": replicas, "template": template, **fields}
    return task if least is None else {**task, "minAvailable": least}


def own_minimum(task: Document) -> int:
    return int(task["minAvailable"] if "minAvailable" in task else task["replicas"])


def a_job(
    *tasks: Document,
    least: int | None = None,
    annotations: Mapping[str, str] | None = None,
    status: Document | None = None,
    **spec: JSON,
) -> Document:
    if least is None:
        least = sum(own_minimum(task) for task in tasks)
    return {
        "metadata": {"name": "j", "namespace": "default", "uid": "u", "annotations": dict(annotations or {})},
        "spec": {"tasks": list(tasks), "minAvailable": least, **spec},
        "status": status or {},
    }


def counts(job: Document) -> dict[str, int]:
    return {pods["name"]: pods["count"] for pods in JOBS.pod_sets(job)}


def in_phase(phase: str, reason: str = "", **status: JSON) -> Document:
    return {"state": {"phase": phase, "reason": reason}, **status}


# Its pods


@pytest.mark.parametrize(
    ("tasks", "least", "needed"),
    [
        ([("a", 3, None), ("b", 2, None)], 5, {"a": 3, "b": 2}),
        ([("a", 3, 1), ("b", 2, 1)], 2, {"a": 1, "b": 1}),
        ([("a", 3, 1), ("b", 2, 1)], 4, {"a": 3, "b": 1}),  # beyond the minimums, as listed
        ([("a", 3, None), ("b", 2, None)], 4, {"a": 3, "b": 1}),  # the job asks for less than its tasks do
        ([("a", 2, 0), ("b", 2, 0)], 0, {"a": 1, "b": 0}),  # something has to begin
    ],
)
def test_how_few_pods_will_do(tasks, least, needed):
    job = a_job(*(a_task(*task) for task in tasks), least=least)
    assert counts(job) == needed
    assert JOBS.parts(job) == {name: replicas - needed[name] for name, replicas, _ in tasks}


def test_what_others_wait_for_comes_first():
    job = a_job(a_task("worker", 3, 0, dependsOn={"name": ["master"]}), a_task("master", 1, 0), least=2)
    assert counts(job) == {"worker": 1, "master": 1}


def test_where_a_place_is_asked_for_all_pods_are_needed():
    task = a_task("w", 3, 1)
    task["template"]["metadata"]["annotations"] = {names.REQUIRED_TOPOLOGY: "rack"}
    job = a_job(task, least=1)
    (pods,) = JOBS.pod_sets(job)
    assert (pods["count"], JOBS.parts(job)) == (3, {"w": 0})
    assert pods["topologyRequest"] == {"required": "rack", "podIndexLabel": "volcano.sh/task-index"}


@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6), st.booleans()), min_size=1, max_size=4),
    st.integers(0, 30),
)
def test_the_least_is_neither_more_than_there_are_nor_less_than_asked_for(sizes, least):
    tasks = [a_task(f"t{n}", many, min(few, many) if says else None) for n, (many, few, says) in enumerate(sizes)]
    job = a_job(*tasks, least=least)
    needed = counts(job)
    total = sum(task["replicas"] for task in tasks)
    assert sum(needed.values()) == min(total, max(1, least))
    assert all(0 <= needed[task["name"]] <= task["replicas"] for task in tasks)
    own = {task["name"]: own_minimum(task) for task in tasks}
    if max(1, least) >= sum(own.values()):
        assert all(needed[name] >= count for name, count in own.items())


# How it stands


def test_its_queue_is_its_label_or_what_stands_for_volcanos():
    job = a_job(a_task("w", 1), queue="gold")
    assert JOBS.queue(job) == "volcano-gold"
    assert JOBS.queue(a_job(a_task("w", 1))) == "volcano-default"
    job["metadata"]["labels"] = {names.QUEUE_LABEL: "team"}
    assert JOBS.queue(job) == "team"
    assert JOBS.priority_class(a_job(a_task("w", 1), priorityClassName="high")) == "high"


@pytest.mark.parametrize(("phase", "succeeded"), [("Completed", True), ("Failed", False), ("Terminated", False)])
def test_it_is_over_when_nothing_of_it_runs_any_more(phase, succeeded):
    assert JOBS.outcome(a_job(a_task("w", 2), status=in_phase(phase, terminating=1))) is None
    found = JOBS.outcome(a_job(a_task("w", 2), status=in_phase(phase, succeeded=2)))
    assert found is not None
    assert found.succeeded is succeeded


@pytest.mark.parametrize(
    ("status", "is_active"),
    [
        ({}, False),
        (in_phase("Pending", "WaitingForQuota"), False),
        (in_phase("Pending", "QueueNotFound"), False),
        (in_phase("Pending"), True),  # it has not heard yet that it has to wait
        (in_phase("Running"), True),
        (in_phase("Restarting", "RestartJob"), True),
        (in_phase("Pending", "WaitingForQuota", terminating=1), True),
        (in_phase("Aborting", "AbortJob", terminating=1), True),
        (in_phase("Aborted", "AbortJob"), False),
        (in_phase("Completed", succeeded=2), False),
    ],
)
def test_it_may_have_pods_until_it_says_that_it_waits(status, is_active):
    assert JOBS.is_active(a_job(a_task("w", 2), annotations={HELD: "true"}, status=status)) is is_active


def test_a_user_pauses_it_by_aborting_it():
    assert [
        JOBS.is_paused(a_job(a_task("w", 1), status=in_phase(phase)))
        for phase in ("Pending", "Aborting", "Aborted", "Restarting")
    ] == [False, True, True, False]


def test_what_is_done_is_given_back_unless_a_policy_may_begin_it_again():
    status = {"taskStatusCount": {"w": {"phase": {"Succeeded": 2, "Running": 1}}}}
    assert JOBS.reclaimable(a_job(a_task("w", 3), status=status)) == {"w": 2}
    again = [{"event": "PodFailed", "action": "RestartTask"}]
    assert JOBS.reclaimable(a_job(a_task("w", 3, policies=again), status=status)) == {}
    assert JOBS.reclaimable(a_job(a_task("w", 3), policies=again, status=status)) == {}
    abort = [{"event": "PodFailed", "action": "AbortJob"}]
    assert JOBS.reclaimable(a_job(a_task("w", 3), policies=abort, status=status)) == {"w": 2}


# Its size


def test_what_it_has_not_answered_yet_it_may_still_make():
    running = {"taskStatusCount": {"w": {"phase": {"Running": 2, "Succeeded": 1}}}}
    job = a_job(a_task("w", 9, 1), annotations={TOLD: '{"w":2}'}, status=running)
    assert JOBS.live(job) == {"w": 9}, "it was never told anything before"
    job["status"]["controlledResources"] = {TOLD: '{"w":4}'}
    assert JOBS.live(job) == {"w": 4}, "a pod may be on its way that is not counted"
    job["status"]["controlledResources"] = {TOLD: '{"w":2}'}
    assert JOBS.live(job) == {"w": 2}
    assert JOBS.live({**job, "status": {**job["status"], "terminating": 1}}) == {"w": 3}


def test_it_is_told_its_size():
    job = JOBS.resize(a_job(a_task("w", 4, 1)), {"w": 3})
    assert job["metadata"]["annotations"] == {TOLD: '{"w":3}'}
    assert JOBS.sizes(job) == {"w": 3}
    assert JOBS.sizes(a_job(a_task("w", 4), annotations={TOLD: "three"})) is None


# Start and stop


def an_info(name: str, **given: JSON) -> PodSetInfo:
    return PodSetInfo(name, 1, {"podset": name}, {names.WORKLOAD_ANNOTATION: "wl"}, **given)


def test_stopping_takes_back_all_that_starting_gave():
    held = a_job(a_task("a", 1), a_task("b", 2), annotations={HELD: "true", "mine": "stays"})
    originals = JOBS.pod_sets(held)
    infos = [
        an_info("a", node_selector={"gpu": "h200"}, tolerations=[{"key": "gpu", "operator": "Exists"}]),
        an_info("b", scheduling_gates=[names.TOPOLOGY_GATE]),
    ]
    started = JOBS.resize(JOBS.start(raw.copy(held), infos), {"a": 1, "b": 2})
    assert not JOBS.is_suspended(started)
    first, second = (task["template"] for task in started["spec"]["tasks"])
    assert first["spec"]["nodeSelector"] == {"gpu": "h200"}
    assert first["spec"]["tolerations"] == [{"key": "gpu", "operator": "Exists"}]
    assert first["metadata"]["labels"] == {"app": "a", "podset": "a"}
    assert second["spec"]["schedulingGates"] == [{"name": names.TOPOLOGY_GATE}]
    assert JOBS.stop(started, originals) == held


def test_what_contradicts_its_template_is_refused():
    job = a_job(a_task("a", 1), annotations={HELD: "true"})
    job["spec"]["tasks"][0]["template"]["spec"]["nodeSelector"] = {"gpu": "a100"}
    with pytest.raises(Conflicting, match="a100"):
        JOBS.start(job, [an_info("a", node_selector={"gpu": "h200"})])
