"""What a Volcano Job decides, case by case."""

import pytest
from tests.unit.jobs.volcano_worlds import (
    INQUEUE,
    NOW,
    a_group,
    a_job,
    a_pod,
    a_task,
    as_job,
    at,
    created,
    decide,
    ended,
    in_phase,
    job_document,
    phase_after,
    settle,
)

from muster.api.meta import Instant
from muster.jobs.volcano import Request, Seen, Told, plan
from muster.jobs.volcano.planning import group_warning

RUNNING = in_phase("Running", minAvailable=2)
TWO = [a_pod("j-w-0"), a_pod("j-w-1")]


# Before there are pods


def test_first_there_is_a_group_and_no_pod():
    job = a_job(a_task("w", 2), plugins={"env": [], "svc": []})
    found = decide(job, group=None)
    assert found.status is not None
    assert found.status["state"] == {"phase": "Pending", "lastTransitionTime": at(0)}
    assert found.status["controlledResources"] == {"plugin-env": "env", "plugin-svc": "svc"}
    assert (found.plugins_begun, found.created) == (["env", "svc"], ())
    assert found.group_created is not None
    assert found.group_created["metadata"]["name"] == "j-job-uid"
    assert found.group_created["spec"]["minMember"] == 2


def test_claims_that_a_job_describes_are_made_once_and_belong_to_it():
    wanted = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    volumes = [{"mountPath": "/own", "volumeClaim": wanted}, {"mountPath": "/data", "volumeClaimName": "given"}]
    decided, job = settle(job_document(a_task("w", 1), volumes=volumes), group=None)
    (claim,) = decided.claims_created
    name = claim["metadata"]["name"]
    assert name.startswith("j-pvc-")
    assert (claim["spec"], claim["metadata"]["namespace"]) == (wanted, "default")
    assert claim["metadata"]["ownerReferences"][0]["name"] == "j"
    recorded = {f"volume-pvc-{name}": name, "volume-pvc-given": "given"}
    assert job["status"]["controlledResources"] == recorded
    again, job = settle(job)
    assert not again.claims_created
    assert again.created
    killed = decide(as_job(job), requests=[Request(action="AbortJob", at=NOW)])
    assert killed.status_after is None, "what pods have left in them outlives the job's end"


@pytest.mark.parametrize("phase", [None, "", "Pending"])
def test_pods_wait_for_the_group_to_be_admitted(phase):
    assert not decide(a_job(), group=a_group(phase)).created


def test_then_all_pods_are_made_and_counted():
    decided, job = settle(job_document(a_task("a", 1), a_task("b", 2)))
    assert created(as_job(job), decided) == ["j-a-0", "j-b-0", "j-b-1"]
    assert job["status"]["pending"] == 3
    assert job["status"]["taskStatusCount"] == {"a": {"phase": {"Pending": 1}}, "b": {"phase": {"Pending": 2}}}


def test_what_is_as_it_should_be_is_not_written():
    for pods in ([], [a_pod("j-w-0", "Pending")], TWO, [a_pod("j-w-0", "Succeeded"), a_pod("j-w-1")]):
        _, job = settle(job_document(a_task("w", 2)), pods)
        decided, job = settle(job, pods, after=0.5)
        decided = decide(as_job(job), pods, after=1.5)
        assert decided.status is None, decided.status


@pytest.mark.parametrize("obstacle", ["QueueNotFound", "PluginError"])
def test_an_obstacle_is_said_and_nothing_begins(obstacle):
    seen = Seen(a_job(), obstacle=Told("Warning", obstacle, "because"))
    found = plan(seen, [], NOW)
    assert found.status is not None
    assert (found.status["state"]["reason"], found.status["state"]["message"]) == (obstacle, "because")
    assert (found.group_created, list(found.told)) == (None, [seen.obstacle])


# Sizes

SIZES = {
    # replicas, pods; created, ended
    "missing ones are made": (3, [a_pod("j-w-1")], ["j-w-0", "j-w-2"], []),
    "those beyond the size end": (1, [a_pod("j-w-0"), a_pod("j-w-1"), a_pod("j-w-2")], [], ["j-w-1", "j-w-2"]),
    "one that is leaving keeps its name": (2, [a_pod("j-w-0", deleted=True), a_pod("j-w-1")], [], []),
    "one that was marked is deleted": (1, [a_pod("j-w-0", out_of_sync=True)], [], ["j-w-0"]),
    "one of an earlier version goes": (1, [a_pod("j-w-0", version=-1)], [], ["j-w-0"]),
    "but not when it has ended": (1, [a_pod("j-w-0", "Succeeded", version=-1)], [], []),
}


@pytest.mark.parametrize(("replicas", "pods", "made", "gone"), SIZES.values(), ids=SIZES.keys())
def test_the_number_of_pods(replicas, pods, made, gone):
    job = a_job(a_task("w", replicas), status=in_phase("Running"))
    found = decide(job, pods)
    assert (created(job, found), ended(found)) == (made, gone)
    assert found.is_marked, "or their end would count as an eviction"


def test_a_task_waits_for_another():
    first, second = a_task("a", 2, minAvailable=1), a_task("b", 1, dependsOn={"name": ["a"]})
    job = a_job(first, second, status=in_phase("Pending"))
    assert created(job, decide(job)) == ["j-a-0", "j-a-1"]
    for phase, ready, waits in (("Pending", True, True), ("Running", False, True), ("Running", True, False)):
        pods = [a_pod("j-a-0", phase, ready=ready), a_pod("j-a-1", "Pending")]
        assert created(job, decide(job, pods)) == ([] if waits else ["j-b-0"])
    assert created(job, decide(job, [a_pod("j-a-0", "Succeeded"), a_pod("j-a-1", "Pending")])) == ["j-b-0"]


@pytest.mark.parametrize(("iteration", "made"), [("any", ["j-c-0"]), ("all", []), (None, [])])
def test_a_task_may_wait_for_any_or_for_all(iteration, made):
    depends = {"name": ["a", "b"], **({"iteration": iteration} if iteration else {})}
    job = a_job(a_task("a"), a_task("b"), a_task("c", dependsOn=depends), status=in_phase("Pending"))
    assert created(job, decide(job, [a_pod("j-a-0"), a_pod("j-b-0", "Pending")])) == made


# How it ends

ENDS = {
    # spec, pods, the phase after it
    "while one runs it runs": ({}, [a_pod("j-w-0", "Succeeded"), a_pod("j-w-1")], "Running"),
    "all have succeeded": ({}, [a_pod("j-w-0", "Succeeded"), a_pod("j-w-1", "Succeeded")], "Completed"),
    "one has failed": ({}, [a_pod("j-w-0", "Succeeded"), a_pod("j-w-1", "Failed")], "Failed"),
    "enough have succeeded": (
        {"minAvailable": 1}, [a_pod("j-w-0", "Succeeded"), a_pod("j-w-1", "Failed")], "Completed",
    ),
    "as many as asked for have succeeded": (
        {"minSuccess": 1}, [a_pod("j-w-0", "Succeeded"), a_pod("j-w-1")], "Completed",
    ),
    "fewer than asked for": (
        {"minSuccess": 2, "minAvailable": 1}, [a_pod("j-w-0", "Succeeded"), a_pod("j-w-1", "Failed")], "Failed",
    ),
    "too many wait": ({}, [a_pod("j-w-0"), a_pod("j-w-1", "Pending")], "Pending"),
}  # fmt: skip


@pytest.mark.parametrize(("spec", "pods", "phase"), ENDS.values(), ids=ENDS.keys())
def test_how_a_job_ends(spec, pods, phase):
    job = a_job(a_task("w", 2), status=RUNNING, **spec)
    assert phase_after(job, decide(job, pods)) == phase


def test_each_task_must_succeed_by_its_own_minimum():
    tasks = [a_task("a", 2, minAvailable=2), a_task("b", 2, minAvailable=1)]
    job = a_job(*tasks, status=RUNNING, minAvailable=3)
    pods = {name: a_pod(name, "Succeeded") for name in ("j-a-0", "j-a-1", "j-b-0", "j-b-1")}
    pods["j-a-1"] = a_pod("j-a-1", "Failed")
    assert phase_after(job, decide(job, list(pods.values()))) == "Failed"
    pods["j-a-1"], pods["j-b-0"] = a_pod("j-a-1", "Succeeded"), a_pod("j-b-0", "Failed")
    assert phase_after(job, decide(job, list(pods.values()))) == "Completed"


def test_after_the_end_what_runs_is_ended_and_what_has_ended_stays():
    over = in_phase("Completed", succeeded=1, running=1, controlledResources={"plugin-svc": "svc"})
    job = a_job(a_task("w", 2), status=over, plugins={"svc": []})
    found, after = settle(
        job_document(a_task("w", 2), status=over, plugins={"svc": []}), [a_pod("j-w-0", "Succeeded"), a_pod("j-w-1")]
    )
    assert (ended(found), found.is_group_deleted, found.plugins_ended) == (["j-w-1"], True, ["svc"])
    assert found.status_after == {"controlledResources": {"plugin-svc": None}}
    assert (after["status"]["succeeded"], after["status"]["terminating"]) == (1, 1)
    assert after["status"]["state"] == job_document(status=over)["status"]["state"], "or it would live longer"
    assert phase_after(job, found) == "Completed"


def test_the_count_of_a_finished_job_outlives_its_pods():
    job = a_job(status=in_phase("Completed", succeeded=1))
    assert decide(job, [], None).status is None


@pytest.mark.parametrize("phase", ["Completed", "Failed", "Terminated"])
def test_time_to_live(phase):
    job = a_job(status=in_phase(phase), ttlSecondsAfterFinished=40)
    waiting = decide(job, group=None)
    assert (waiting.is_expired, waiting.again_after) == (False, 10.0)
    assert decide(job, group=None, after=10).is_expired
    assert not decide(a_job(status=in_phase("Aborted"), ttlSecondsAfterFinished=1), group=None, after=99).is_expired


def test_a_job_that_is_being_deleted_is_left_to_the_garbage_collector():
    document = job_document(a_task("w", 2))
    document["metadata"]["deletionTimestamp"] = at(0)
    found = decide(as_job(document), [a_pod("j-w-0")])
    assert (found.created, found.ended, found.status) == ((), (), None)


# Policies


def test_a_failed_pod_restarts_the_job():
    policies = [{"event": "PodFailed", "action": "RestartJob"}]
    decided, after = settle(
        job_document(a_task("w", 2), status=RUNNING, policies=policies), [a_pod("j-w-0", "Failed"), a_pod("j-w-1")]
    )
    assert (ended(decided), decided.is_status_first, decided.is_group_deleted) == (["j-w-0", "j-w-1"], True, True)
    status = after["status"]
    assert (status["version"], status["retryCount"], status["terminating"]) == (1, 1, 2)
    assert status["state"]["phase"] == "Restarting"
    assert status["state"]["reason"] == "RestartJob"
    assert "j-w-0" in status["state"]["message"]
    assert [told.reason for told in decided.told] == ["ExecuteAction"]

    # Somebody was interrupted: the rest goes, and the job stays where it is until it does.
    found, after = settle(after, [a_pod("j-w-0", "Failed"), a_pod("j-w-1", deleted=True)])
    assert (ended(found), after["status"]["state"]["phase"]) == (["j-w-0"], "Restarting")
    _, after = settle(after, [a_pod("j-w-0", deleted=True), a_pod("j-w-1", deleted=True)])
    assert after["status"]["state"]["phase"] == "Restarting"
    found, after = settle(after, [])
    assert after["status"]["state"]["phase"] == "Pending"
    assert created(as_job(after), found) == ["j-w-0", "j-w-1"]
    assert "reason" not in after["status"]["state"]


def test_at_the_last_try_what_has_ended_stays():
    job = a_job(
        a_task("w", 2), status={**RUNNING, "retryCount": 2}, maxRetry=3,
        policies=[{"event": "PodFailed", "action": "RestartJob"}],
    )  # fmt: skip
    assert ended(decide(job, [a_pod("j-w-0", "Failed"), a_pod("j-w-1")])) == ["j-w-1"]
    over = a_job(status=in_phase("Restarting", retryCount=3), maxRetry=3)
    assert phase_after(over, decide(over)) == "Failed"


def test_pods_of_earlier_versions_are_nobodys_failure():
    job = a_job(status={**RUNNING, "version": 2}, policies=[{"event": "*", "action": "RestartJob"}])
    assert not decide(job, [a_pod("j-w-0", "Failed", version=1)]).is_status_first
    assert decide(job, [a_pod("j-w-0", "Failed", version=2)]).is_status_first


@pytest.mark.parametrize(
    ("action", "gone"),
    {
        "RestartTask": ["j-w-0", "j-w-2", "j-w-3", "j-w-1"],
        "RestartPod": ["j-w-1"],
        "RestartPartition": ["j-w-0", "j-w-1"],
    }.items(),
)
def test_a_targeted_restart_ends_the_one_that_caused_it_last(action, gone):
    job = a_job(a_task("w", 4, policies=[{"event": "PodFailed", "action": action}]), a_task("x"), status=RUNNING)
    pods = [
        a_pod(f"j-w-{index}", "Failed" if index == 1 else "Running", partition=str(index // 2)) for index in range(4)
    ]
    found = decide(job, [*pods, a_pod("j-x-0")])
    assert (ended(found), found.is_marked, found.is_status_first) == (gone, True, True)
    assert found.status is not None
    assert "version" not in found.status
    assert (found.status["retryCount"], found.is_group_deleted) == (1, False)


def test_a_partition_of_which_nothing_is_left_is_simply_made_again():
    job = a_job(a_task("w", 2, policies=[{"event": "PodEvicted", "action": "RestartPartition"}]), status=RUNNING)
    lost = Request(event="PodEvicted", task="w", pod="j-w-0", partition="0", at=NOW)
    found = decide(job, [a_pod("j-w-1", partition="1")], requests=[lost])
    assert (created(job, found), found.is_status_first, list(found.handled)) == (["j-w-0"], False, [lost])


def test_what_happened_first_decides():
    policies = [{"exitCode": 3, "action": "AbortJob"}, {"exitCode": 4, "action": "CompleteJob"}]
    job = a_job(a_task("w", 2), status=RUNNING, policies=policies)
    pods = [a_pod("j-w-0", "Failed", exit_code=3, ended=-5), a_pod("j-w-1", "Failed", exit_code=4, ended=-6)]
    assert phase_after(job, decide(job, pods)) == "Completing"


def test_an_action_waits_for_its_time():
    job = a_job(status=RUNNING, policies=[{"event": "PodFailed", "action": "AbortJob", "timeout": "30s"}])
    found = decide(job, [a_pod("j-w-0", "Failed", ended=-10)])
    assert (found.is_status_first, found.again_after) == (False, 20.0)
    assert phase_after(job, decide(job, [a_pod("j-w-0", "Failed", ended=-30)])) == "Aborting"


def test_a_lost_pod_that_is_back_calls_for_nothing():
    job = a_job(status=RUNNING, policies=[{"event": "PodEvicted", "action": "AbortJob", "timeout": "30s"}])
    lost = Request(event="PodEvicted", task="w", pod="j-w-0", at=Instant(NOW - 10))
    waiting = decide(job, [a_pod("j-w-0", "Pending")], requests=[lost])
    assert (list(waiting.handled), waiting.again_after) == ([], 20.0)
    assert list(decide(job, [a_pod("j-w-0")], requests=[lost], after=60).handled) == [lost]


def test_a_command_counts_whatever_the_policies_say():
    job = a_job(status=RUNNING)
    for action, phase in (("AbortJob", "Aborting"), ("TerminateJob", "Terminating"), ("RestartJob", "Restarting")):
        command = Request(event="CommandIssued", action=action, at=NOW)
        found = decide(job, [a_pod("j-w-0")], requests=[command])
        assert (phase_after(job, found), list(found.handled)) == (phase, [command])


def test_a_command_that_nobody_knows_changes_nothing():
    command = Request(event="CommandIssued", action="Dance", at=NOW)
    found = decide(a_job(status=RUNNING), [a_pod("j-w-0")], requests=[command])
    assert (list(found.handled), found.is_status_first) == ([command], False)


def test_a_suspended_job_ends_what_runs_until_nothing_does():
    _, after = settle(job_document(status=in_phase("Aborting", version=1)), [a_pod("j-w-0", deleted=True)])
    assert after["status"]["state"]["phase"] == "Aborting"
    found, after = settle(after, [])
    assert (after["status"]["state"]["phase"], after["status"]["version"]) == ("Aborted", 1)
    assert decide(as_job(after), [], None).status is None
    resumed = Request(event="CommandIssued", action="ResumeJob", at=NOW)
    found = decide(as_job(after), [a_pod("j-w-0", "Succeeded")], None, [resumed])
    assert (phase_after(as_job(after), found), ended(found)) == ("Restarting", [])


def test_what_was_told_before_a_job_was_resumed_counts_no_more():
    abort, resume = (Request(event="CommandIssued", action=action, at=NOW) for action in ("AbortJob", "ResumeJob"))
    for phase in ("Running", "Restarting", "Aborting"):
        job = a_job(status=in_phase(phase, version=1))
        found = decide(job, [a_pod("j-w-0")], requests=[abort, resume])
        assert sorted(found.handled, key=lambda request: request.action) == [abort, resume], phase
        assert phase_after(job, found) == {"Aborting": "Restarting", "Restarting": "Pending"}.get(phase, phase)


def test_what_is_told_after_a_job_was_resumed_is_done_then():
    abort, resume = (Request(event="CommandIssued", action=action, at=NOW) for action in ("AbortJob", "ResumeJob"))
    found = decide(a_job(status=in_phase("Aborted", version=1)), [], None, [resume, abort])
    assert list(found.handled) == [resume]


def test_a_group_that_cannot_be_scheduled_is_told_of():
    condition = {"type": "Unschedulable", "status": "True", "lastTransitionTime": at(-1), "message": "too small"}
    older = {"type": "Scheduled", "status": "True", "lastTransitionTime": at(-2)}
    group = a_group("Inqueue", status={"phase": "Inqueue", "conditions": [older, condition]})
    assert group_warning(group) == "PodGroup :j-job-uid unschedulable, reason: too small"
    assert [told.reason for told in decide(a_job(), group=group).told] == ["PodGroupPending"]
    assert group_warning(INQUEUE) is None
