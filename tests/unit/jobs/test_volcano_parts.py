"""The parts that a Volcano Job is decided with: its machine, policies, least resources, group and pods."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.jobs.volcano_worlds import NOW, a_group, a_job, a_pod, a_task, as_job, at, in_phase, job_document

from muster.api import core, patching, quantity, volcano
from muster.api.objects import view_of
from muster.api.raw import Document
from muster.jobs.volcano import (
    NewPod,
    Request,
    Seen,
    expiring,
    groups,
    make_pods,
    members,
    minimum,
    names,
    noticing,
    planning,
    policies,
    states,
)
from muster.jobs.volcano import status as statuses
from muster.jobs.volcano.deciding import Decision
from muster.jobs.volcano.states import CHANGES, Scope
from muster.jobs.volcano.vocabulary import OVER, Action, Phase, action_of, phase_of

PHASES, ACTIONS = st.sampled_from(list(Phase)), st.sampled_from(list(Action))
COUNTS = st.integers(0, 4)


# The machine


@st.composite
def jobs(draw: st.DrawFn) -> volcano.Job:
    status = {
        **in_phase(draw(PHASES)), "minAvailable": draw(COUNTS), "retryCount": draw(COUNTS), "version": draw(COUNTS),
        **{name: draw(COUNTS) for name in ("pending", "running", "succeeded", "failed", "terminating")},
    }  # fmt: skip
    replicas = draw(COUNTS)
    spec: Document = {"maxRetry": draw(st.integers(1, 4))}
    if draw(st.booleans()):
        spec["minSuccess"] = draw(st.integers(1, 4))
    return a_job(a_task("w", replicas), status=status, **spec)


@given(jobs(), ACTIONS)
def test_every_phase_answers_every_action_along_the_edges_that_are_listed(job, action):
    before = phase_of(job.status.state.phase)
    after = states.respond(before, action).judge(job, job.status)
    phase = phase_of(after.state.phase)
    assert phase is before or (before, phase) in CHANGES
    assert (after.retry_count or 0) - (job.status.retry_count or 0) == (
        phase is Phase.RESTARTING and before is not Phase.RESTARTING
    )
    if before in OVER:
        assert after == job.status


def test_the_final_phases_have_no_way_out_and_every_other_has_one():
    left = {before for before, _ in CHANGES}
    assert set(Phase) - left == OVER
    assert {after for _, after in CHANGES} == set(Phase)


@pytest.mark.parametrize("phase", Phase)
def test_only_a_job_that_works_makes_pods(phase):
    works = {Phase.PENDING, Phase.RUNNING, Phase.RESTARTING}
    assert (states.respond(phase, Action.SYNC_JOB).scope is Scope.SYNC) == (phase in works)


def test_words_that_nobody_knows():
    assert (phase_of("Odd"), phase_of(None), action_of("Odd")) == (Phase.PENDING, Phase.PENDING, Action.SYNC_JOB)


POD_PHASES = st.sampled_from(["Pending", "Running", "Succeeded", "Failed"])


@given(jobs(), ACTIONS, st.lists(st.tuples(st.integers(0, 4), POD_PHASES, st.booleans())))
def test_a_plan_ends_each_pod_once_and_never_one_that_goes_already(job, action, drawn):
    pods = {f"j-w-{index}": a_pod(f"j-w-{index}", phase, deleted=deleted) for index, phase, deleted in drawn}
    known = members.by_task(members.read(pod) for pod in pods.values())
    cause = Request(task="w", pod="j-w-0", at=NOW)
    found = planning.execute(Seen(job, list(pods.values()), a_group()), known, Decision(action, cause), NOW)
    ended = [member.name for member in found.ended]
    assert len(set(ended)) == len(ended)
    assert not any(pods[name].metadata.deletion_timestamp for name in ended)
    created = {names.pod_name("j", "w", pod.number) for pod in found.created}
    assert not created & set(pods)


# Policies

POLICIES = [
    {"events": ["PodFailed", "PodEvicted"], "action": "RestartTask"},
    {"exitCode": 3, "action": "AbortJob"},
    {"event": "PodPending", "action": "RestartPod", "timeout": "1m30s"},
]
RESOLVED = {
    "an event of a list": (Request(event="PodEvicted"), ("RestartTask", 0)),
    "an exit code": (Request(event="Unknown", exit_code=3), ("AbortJob", 0)),
    "with time": (Request(event="PodPending"), ("RestartPod", 90)),
    "an event that nobody waits for": (Request(event="TaskCompleted"), ("SyncJob", 0)),
    "a command": (Request(event="CommandIssued", action="ResumeJob"), ("ResumeJob", 0)),
    "one that only says that something is": (Request(event="PodRunning", exit_code=3), ("SyncJob", 0)),
    "of another job of the name": (Request(event="PodFailed", job_uid="other"), ("SyncJob", 0)),
    "of an earlier version": (Request(event="PodFailed", version=-1), ("SyncJob", 0)),
    "of the task first": (Request(event="PodFailed", task="w"), ("CompleteJob", 0)),
    "and then of the job": (Request(event="PodEvicted", task="w"), ("RestartTask", 0)),
}


@pytest.mark.parametrize(("request_", "answer"), RESOLVED.values(), ids=RESOLVED.keys())
def test_policies(request_, answer):
    job = a_job(a_task("w", policies=[{"event": "PodFailed", "action": "CompleteJob"}]), policies=POLICIES)
    found = policies.resolve(job, request_)
    assert (found.action, found.delay) == answer


def test_any_event_but_to_be_pending_without_time():
    job = a_job(policies=[{"event": "*", "action": "AbortJob"}])
    for event in ("PodFailed", "PodEvicted", "Unknown", "TaskCompleted", "TaskFailed"):
        assert policies.resolve(job, Request(event=event)).action is Action.ABORT_JOB
    assert policies.resolve(job, Request(event="PodPending")).action is Action.SYNC_JOB
    assert policies.resolve(job, Request()).action is Action.SYNC_JOB


def _noticed(job: volcano.Job, *pods: core.Pod, group: volcano.PodGroup | None = None) -> list[tuple[str, str]]:
    known = members.by_task(map(members.read, pods))
    return [(request.event, request.pod) for request in noticing.notice(job, known, group)]


def test_what_is_noticed():
    job = a_job(a_task("w", 2, maxRetry=4), policies=[{"event": "*", "action": "AbortJob"}])
    assert _noticed(job, a_pod("j-w-0"), a_pod("j-w-1", "Failed")) == [("PodFailed", "j-w-1")]
    assert _noticed(job, a_pod("j-w-0", "Pending")) == [("PodPending", "j-w-0")]
    assert _noticed(job, a_pod("j-w-0", "Failed", out_of_sync=True)) == []
    both = [a_pod("j-w-0", "Succeeded", ended=-3), a_pod("j-w-1", "Succeeded", ended=-9)]
    assert _noticed(job, *both) == [("TaskCompleted", "j-w-0")]
    assert _noticed(job, a_pod("j-w-0", restarts=1), a_pod("j-w-1", restarts=2)) == []
    assert _noticed(job, a_pod("j-w-0", restarts=1), a_pod("j-w-1", restarts=3)) == [("TaskFailed", "j-w-1")]
    assert _noticed(job, group=a_group("Unknown")) == [("Unknown", "")]
    assert _noticed(a_job(a_task("w", 2)), *both) == [], "nobody asks"


@pytest.mark.parametrize(("limit", "failed"), [(0, True), (3, True), (4, False), (-1, False)])
def test_how_often_a_tasks_containers_may_be_restarted(limit, failed):
    task = as_job({"spec": {"tasks": [a_task("w", 1, maxRetry=limit)]}}).spec.tasks[0]
    assert members.is_task_failed(task, [members.read(a_pod("j-w-0", restarts=3))]) == failed


# The least that it needs


def _parts(*drawn: tuple[int, int | None, int]) -> list[minimum.Part]:
    return [
        minimum.Part({"pods": quantity.from_units(1), f"t{number}": quantity.from_units(1)}, replicas, least, priority)
        for number, (replicas, least, priority) in enumerate(drawn)
    ]


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 2)).map(lambda t: (t[0], min(t[0], t[1]), t[2])),
        max_size=4,
    ),
    st.integers(0, 12),
)
def test_the_least_is_that_of_so_many_pods(drawn, wanted):
    found = minimum.total(_parts(*drawn), wanted)
    pods = found["pods"].units if "pods" in found else 0
    assert pods == min(wanted, sum(replicas for replicas, _, _ in drawn))
    for number, (replicas, _, _) in enumerate(drawn):
        assert found.get(f"t{number}", quantity.ZERO).units <= replicas


def test_important_tasks_come_first():
    assert set(minimum.total(_parts((2, None, 0), (2, None, 5)), 2)) == {"pods", "t1"}
    found = minimum.total(_parts((2, 1, 0), (2, 1, 5)), 3)
    assert {name: amount.units for name, amount in found.items()} == {"pods": 3, "t0": 1, "t1": 2}


def test_amounts_are_named_as_a_quota_names_them():
    resources = {"requests": {"cpu": "500m", "nvidia.com/gpu": "1"}, "limits": {"cpu": "1", "nvidia.com/gpu": "1"}}
    pod = {"containers": [{"name": "m", "resources": resources}], "overhead": {"cpu": "100m"}}
    task = a_task("w", 2) | {"template": {"spec": pod}}
    assert minimum.resources(a_job(task), {}) == {
        "count/pods": "2", "pods": "2", "cpu": "1200m", "requests.cpu": "1200m", "limits.cpu": "2200m",
        "nvidia.com/gpu": "2", "requests.nvidia.com/gpu": "2",
    }  # fmt: skip


# The group


def _group_of(job: volcano.Job) -> volcano.PodGroup:
    found = view_of(volcano.POD_GROUP, groups.document(job, {}))
    assert isinstance(found, volcano.PodGroup)
    return found


def test_the_group_of_a_job():
    topology = {"mode": "soft", "highestTierAllowed": 2}
    partitions = {"totalPartitions": 2, "partitionSize": 2, "minPartitions": 1, "networkTopology": topology}
    document = job_document(
        a_task("a", 4, partitionPolicy=partitions), a_task("b", 2), queue="gold", priorityClassName="high",
        networkTopology={"highestTierName": "rack"}, minAvailable=3,
    )  # fmt: skip
    document["metadata"]["labels"], document["metadata"]["annotations"] = {"x": "1"}, {"y": "2"}
    made = groups.document(as_job(document), {})
    spec = made["spec"]
    assert (spec["minMember"], spec["minTaskMember"], spec["queue"]) == (3, {"a": 2, "b": 2}, "gold")
    assert (spec["priorityClassName"], spec["networkTopology"]) == ("high", {"mode": "hard", "highestTierName": "rack"})
    (policy,) = spec["subGroupPolicy"]
    assert (policy["name"], policy["subGroupSize"], policy["minSubGroups"]) == ("a", 2, 1)
    assert policy["networkTopology"] == topology
    assert (made["metadata"]["labels"], made["metadata"]["annotations"]) == ({"x": "1"}, {"y": "2"})
    assert made["metadata"]["ownerReferences"][0]["uid"] == "job-uid"


def test_the_group_follows_the_jobs_edits():
    job = a_job(a_task("a", 2), a_task("b", 2))
    group = _group_of(job)
    assert groups.update(job, group, {}) is None
    edited = a_job(a_task("a", 3), a_task("b", 2), priorityClassName="high", queue="other")
    changed = groups.update(edited, group, {})
    assert changed is not None
    spec = changed["spec"]
    assert (spec["minMember"], spec["minTaskMember"], spec["priorityClassName"]) == (5, {"a": 3}, "high")
    assert "queue" not in spec
    assert spec["minResources"]["pods"] == "5"


# Pods


def _made(job: Document, *wanted: NewPod, is_forwarded: bool = False) -> list[Document]:
    return list(make_pods(as_job(job), job, wanted, is_forwarded=is_forwarded))


def test_the_pods_of_a_job():
    document = job_document(
        a_task("a", 1), a_task("b", 3, topologyPolicy="restricted", partitionPolicy={"partitionSize": 2}),
        status={"version": 4, "retryCount": 2}, queue="gold", priorityClassName="high",
    )  # fmt: skip
    document["metadata"]["annotations"] = {
        "volcano.sh/preemptable": "true",
        "volcano.sh/jdb-min-available": "1",
        "x": "y",
    }
    document["spec"]["tasks"][1]["template"]["metadata"] = {"labels": {"l": "1"}, "annotations": {"a": "2"}}
    document["spec"]["tasks"][1]["template"]["spec"]["unknownField"] = {"kept": True}
    (pod,) = _made(document, NewPod(1, 2), is_forwarded=True)
    meta, spec = pod["metadata"], pod["spec"]
    assert (meta["name"], meta["namespace"]) == ("j-b-2", "default")
    assert meta["labels"] == {
        "l": "1", "volcano.sh/task-index": "2", "volcano.sh/task-spec": "b", "volcano.sh/job-name": "j",
        "volcano.sh/queue-name": "gold", "volcano.sh/job-namespace": "default", "volcano.sh/partition-id": "1",
        "volcano.sh/job-forwarding": "true",
    }  # fmt: skip
    assert meta["annotations"] == {
        "a": "2", "volcano.sh/task-index": "2", "volcano.sh/task-spec": "b", "volcano.sh/job-name": "j",
        "volcano.sh/queue-name": "gold", "volcano.sh/job-forwarding": "true",
        "scheduling.k8s.io/group-name": "j-job-uid", "volcano.sh/job-version": "4", "volcano.sh/job-retry-count": "2",
        "volcano.sh/template-uid": "j-b", "volcano.sh/preemptable": "true", "volcano.sh/jdb-min-available": "1",
        "volcano.sh/numa-topology-policy": "restricted",
    }  # fmt: skip
    assert (spec["schedulerName"], spec["priorityClassName"]) == ("volcano", "high")
    assert spec["unknownField"] == {"kept": True}


def test_a_claim_is_mounted_once_everywhere():
    volumes = [
        {"mountPath": "/data", "volumeClaimName": "c"}, {"mountPath": "/again", "volumeClaimName": "c"},
        {"mountPath": "/own", "volumeClaim": {"accessModes": ["ReadWriteOnce"]}},
    ]  # fmt: skip
    document = job_document(a_task("a", 2), volumes=volumes)
    one, other = _made(document, NewPod(0, 0), NewPod(0, 1))
    claims = [volume["persistentVolumeClaim"]["claimName"] for volume in one["spec"]["volumes"]]
    assert (claims[0], len(claims), claims[1].startswith("j-pvc-")) == ("c", 2, True)
    assert one["spec"] == other["spec"]
    mounts = [mount["mountPath"] for mount in one["spec"]["containers"][0]["volumeMounts"]]
    assert mounts == ["/data", "/own"]
    assert "volumes" not in document["spec"]["tasks"][0]["template"]["spec"], "the template stays as it is"


# The status


def test_each_phase_stands_once_where_it_was_last_entered():
    status = volcano.JobStatus()
    for phase in ("Pending", "Running", "Pending"):
        status = statuses.stamped(
            volcano.JobStatus(state=volcano.JobState(phase=phase), conditions=status.conditions), NOW
        )
    assert [condition.status for condition in status.conditions] == ["Running", "Pending"]


@pytest.mark.parametrize(("seconds", "text"), [(5, "5s"), (65, "1m5s"), (3600, "1h0m0s"), (-3, "0s")])
def test_durations_are_written_as_go_writes_them(seconds, text):
    assert statuses.duration_text(seconds) == text


PHASE_COUNTS = st.dictionaries(st.sampled_from(["Pending", "Running", "Odd"]), st.integers(1, 3), max_size=2)


@given(st.dictionaries(st.sampled_from("ab"), PHASE_COUNTS), st.dictionaries(st.sampled_from("ab"), PHASE_COUNTS))
def test_the_difference_makes_the_one_of_the_other(before, after):
    old, new = (_counted(phases) for phases in (before, after))
    patch = statuses.difference(old, new)
    stored = patching.merge(statuses._document(old), patch or {})
    found = view_of(volcano.JOB, {"status": stored})
    assert isinstance(found, volcano.Job)
    assert found.status == new
    assert (patch is None) == (old == new)


def _counted(by_task: Mapping[str, Mapping[str, int]]) -> volcano.JobStatus:
    tally = statuses.Tally()
    for task, phases in by_task.items():
        for phase, count in phases.items():
            for _ in range(count):
                tally.add(phase, task)
    return tally.onto(volcano.JobStatus())


def test_only_what_is_over_and_says_how_long_expires():
    over = a_job(status=in_phase("Failed"), ttlSecondsAfterFinished=5)
    assert expiring.time_left(over, NOW) == -25.0
    assert expiring.time_left(a_job(status=in_phase("Failed")), NOW) is None
    assert expiring.time_left(a_job(status=in_phase("Aborted"), ttlSecondsAfterFinished=5), NOW) is None
    assert expiring.finish_time(a_job(status={"state": {"phase": "Failed", "lastTransitionTime": "soon"}})) is None
    assert at(0) == "2026-01-01T00:00:00Z"
