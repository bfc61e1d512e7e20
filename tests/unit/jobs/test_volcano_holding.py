"""Volcano Jobs that quota holds back, lets go, and tells how many pods they may have."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.jobs.volcano_worlds import (
    NOW,
    a_group,
    a_pod,
    a_task,
    as_job,
    created,
    decide,
    ended,
    in_phase,
    job_document,
    phase_after,
)

from muster.api import raw, volcano
from muster.api.kueue.names import ADMITTED_REPLICAS_ANNOTATION as TOLD
from muster.api.kueue.names import HELD_ANNOTATION as HELD
from muster.api.raw import JSON, Document
from muster.jobs.volcano import Request, Told, groups, members, syncing
from muster.jobs.volcano.planning import Plan, Seen, plan

PENDING = a_group("Pending", metadata={"name": "j-job-uid", "uid": "g", "annotations": {HELD: "true"}})


def a_held_job(*tasks: Document, status: Document | None = None, **spec: JSON) -> volcano.Job:
    return annotated(job_document(*tasks, status=status, **spec), {HELD: "true"})


def a_told_job(
    size: str, *tasks: Document, heard: str = "", status: Document | None = None, **spec: JSON
) -> volcano.Job:
    status = {**(status or in_phase("Running"))}
    if heard:
        status["controlledResources"] = {TOLD: heard}
    return annotated(job_document(*tasks, status=status, **spec), {TOLD: size})


def annotated(document: Document, annotations: dict[str, str]) -> volcano.Job:
    document["metadata"]["annotations"] = annotations
    return as_job(document)


def reason(decided: Plan) -> str | None:
    found: str | None = raw.dig(decided.status or {}, "state", "reason")
    return found


# Held back


def test_a_new_job_has_a_group_that_waits_and_no_pods():
    job = a_held_job(a_task("w", 2))
    decided = decide(job, group=None)
    assert not decided.created
    assert decided.group_created is not None
    assert decided.group_created["metadata"]["annotations"] == {HELD: "true"}
    assert (phase_after(job, decided), reason(decided)) == ("Pending", "WaitingForQuota")
    assert not decided.plugins_begun


def test_a_job_that_runs_ends_what_lives_and_keeps_what_has_ended():
    job = a_held_job(a_task("w", 4), status=in_phase("Running", retryCount=1, version=2))
    pods = [
        a_pod("j-w-0", "Succeeded", version=2), a_pod("j-w-1", version=2), a_pod("j-w-2", "Pending", version=2),
        a_pod("j-w-3", version=2, deleted=True),
    ]  # fmt: skip
    decided = decide(job, pods)
    assert ended(decided) == ["j-w-2", "j-w-1"]
    assert decided.is_marked, "nobody evicted them: no policy is asked"
    assert not decided.created
    assert (phase_after(job, decided), reason(decided)) == ("Pending", "WaitingForQuota")
    assert decided.status is not None
    assert {key: decided.status.get(key) for key in ("retryCount", "version")} == {"retryCount": None, "version": None}
    assert (decided.status["succeeded"], decided.status["terminating"]) == (1, 3)
    assert decided.group_changed is not None
    assert decided.group_changed["metadata"] == {"annotations": {HELD: "true"}}


def test_a_job_that_is_through_ends_although_it_is_held_back():
    job = a_held_job(a_task("w", 2), status=in_phase("Running"))
    pods = [a_pod("j-w-0", "Succeeded"), a_pod("j-w-1", "Succeeded")]
    assert phase_after(job, decide(job, pods)) == "Completed"
    waiting = a_held_job(a_task("w", 2), status=in_phase("Pending"))
    assert phase_after(waiting, decide(waiting, pods, PENDING)) == "Running", "from where it is over at the next look"


@pytest.mark.parametrize(
    ("action", "phase"),
    [
        ("AbortJob", "Aborting"),
        ("TerminateJob", "Terminating"),
        ("CompleteJob", "Completing"),
        ("RestartJob", "Restarting"),
    ],
)
def test_commands_are_carried_out_while_it_waits(action, phase):
    job = a_held_job(a_task("w", 1), status=in_phase("Pending"))
    assert phase_after(job, decide(job, group=PENDING, requests=[Request(action=action)])) == phase


def test_a_job_that_is_resumed_waits():
    job = a_held_job(a_task("w", 2), status=in_phase("Restarting", retryCount=1))
    decided = decide(job, group=None)
    assert (phase_after(job, decided), reason(decided)) == ("Pending", "WaitingForQuota")


def test_what_stands_in_its_way_is_told_instead():
    obstacle = Told("Warning", "QueueNotFound", "there is no such queue")
    job = a_held_job(a_task("w", 2), status=in_phase("Running"))
    decided = plan(Seen(job, [a_pod("j-w-0")], PENDING, obstacle=obstacle), (), NOW)
    assert ended(decided) == ["j-w-0"]
    assert reason(decided) == "QueueNotFound"
    assert list(decided.told) == [obstacle]


# Let go


def test_a_job_that_is_let_go_frees_its_group_and_says_that_it_has_heard():
    waiting = in_phase("Pending")
    waiting["state"]["reason"] = "WaitingForQuota"
    job = a_told_job('{"w":2}', a_task("w", 2), status=waiting)
    decided = decide(job, group=PENDING)
    assert decided.group_changed is not None
    assert decided.group_changed["metadata"] == {"annotations": {HELD: None}}
    assert decided.status is not None
    assert decided.status["state"]["reason"] is None
    assert decided.status["controlledResources"] == {TOLD: '{"w":2}'}
    assert not decided.created


def test_no_pod_is_made_before_it_has_said_so():
    waiting = in_phase("Pending")
    waiting["state"]["reason"] = "WaitingForQuota"
    job = a_told_job('{"w":2}', a_task("w", 2), status=waiting)
    decided = decide(job)
    assert decided.is_status_first
    assert not decided.created
    grown = a_told_job('{"w":2}', a_task("w", 3), heard='{"w":1}')
    decided = decide(grown, [a_pod("j-w-0")])
    assert (decided.is_status_first, list(decided.created)) == (True, [])


# How many


def test_it_has_as_many_pods_as_it_may_the_lowest_numbers_first():
    job = a_told_job('{"w":2}', a_task("w", 4, minAvailable=1), heard='{"w":2}')
    assert created(job, decide(job)) == ["j-w-0", "j-w-1"]
    assert created(job, decide(job, [a_pod("j-w-1")])) == ["j-w-0"]


def test_the_highest_numbers_go_first():
    job = a_told_job('{"w":1}', a_task("w", 3, minAvailable=1), heard='{"w":1}')
    decided = decide(job, [a_pod("j-w-0"), a_pod("j-w-1"), a_pod("j-w-2")])
    assert ended(decided) == ["j-w-2", "j-w-1"]
    assert decided.is_marked
    assert phase_after(job, decided) == "Running"


def test_what_has_ended_does_not_count_and_stays():
    job = a_told_job('{"w":1}', a_task("w", 3, minAvailable=1), heard='{"w":1}')
    decided = decide(job, [a_pod("j-w-0", "Succeeded"), a_pod("j-w-1", "Succeeded")])
    assert (created(job, decided), ended(decided)) == (["j-w-2"], [])


def test_what_terminates_counts_until_it_is_gone():
    job = a_told_job('{"w":1}', a_task("w", 3, minAvailable=1), heard='{"w":1}')
    assert not decide(job, [a_pod("j-w-2", deleted=True)]).created


@pytest.mark.parametrize("size", ["", "{}", "[1]", '{"w": "two"}', '{"w": -1}', "{"])
def test_a_size_that_cannot_be_read_is_none(size):
    job = a_told_job(size, a_task("w", 2), heard=size)
    assert len(decide(job).created) == 2


@given(
    st.dictionaries(
        st.integers(0, 7), st.sampled_from(["Pending", "Running", "Succeeded", "Failed", "going", "marked"])
    ),
    st.integers(0, 6),
    st.integers(0, 8) | st.none(),
)
def test_whatever_is_there_it_comes_to_what_it_may_have(found, replicas, size):
    job = as_job(job_document(a_task("w", replicas, minAvailable=0)))
    pods = [
        a_pod(
            f"j-w-{index}", phase if phase not in ("going", "marked") else "Running",
            deleted=phase == "going", out_of_sync=phase == "marked",
        )
        for index, phase in found.items()
    ]  # fmt: skip
    known = members.by_task(members.read(pod) for pod in pods)
    work = syncing.work(job, known, (), None if size is None else {"w": size})
    made = {new.number for new in work.created}
    removed = {member.name for member in work.removed}
    assert not made & set(found), "never two of one number"
    assert all(index < replicas for index in made)
    going = {index for index, phase in found.items() if phase == "going"}
    left = {index: phase for index, phase in found.items() if f"j-w-{index}" not in removed and index not in going}
    assert all(index < replicas and phase != "marked" for index, phase in left.items())
    kept = {index for index, phase in found.items() if phase in ("Succeeded", "Failed") and index < replicas}
    assert kept <= set(left), "what has ended stays"
    live = {index for index in left if index not in kept}
    wanted = replicas - len(kept)
    assert len(live) + len(made) <= (wanted if size is None else min(size, wanted))
    if not going and not removed:
        assert len(live) + len(made) == (wanted if size is None else min(size, wanted))
    ended_live = [index for index, phase in found.items() if phase in ("Pending", "Running") and index < replicas]
    gone = [index for index in ended_live if f"j-w-{index}" in removed]
    assert not gone or not live or max(live) < min(gone), "the highest numbers go first"


# The group


def test_a_group_does_not_bear_the_size_of_the_job():
    job = a_told_job('{"w":1}', a_task("w", 3))
    assert groups.document(job, {})["metadata"]["annotations"] == {}
    made = a_group(metadata={"name": "g", "annotations": {HELD: "true"}})
    changed = groups.update(job, made, {})
    assert changed is not None
    assert changed["metadata"] == {"annotations": {HELD: None}}
