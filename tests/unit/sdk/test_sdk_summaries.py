"""One vocabulary for jobs of every dialect, and what belongs to which job."""

import pytest
from tests.unit.sdk.job_documents import a_condition, a_job, a_pod, a_workload, batch, cron, flow, pytorch, volcano

from muster.api import errors
from muster.sdk import details, dialects, finding, summaries
from muster.sdk.summaries import State, Surroundings

WAITS = a_workload(a_condition("QuotaReserved", "False", "no quota"), a_condition("Waiting", message="2 cpu missing"))
HAS_QUOTA = a_workload(a_condition("QuotaReserved"), a_condition("Waiting", message="2 cpu missing"))


@pytest.mark.parametrize(
    ("job", "state", "pods"),
    [
        (batch(), State.PENDING, (0, 4)),
        (batch(active=2), State.PENDING, (0, 4)),
        (batch(active=2, ready=2), State.RUNNING, (2, 4)),
        (batch(active=1, ready=1, succeeded=2), State.RUNNING, (3, 4)),
        (batch(failed=1), State.RESTARTING, (0, 4)),
        (batch(a_condition("FailureTarget"), failed=1), State.RUNNING, (0, 4)),
        (batch(a_condition("Complete"), succeeded=4), State.SUCCEEDED, (4, 4)),
        (batch(a_condition("Failed"), failed=7), State.FAILED, (0, 4)),
        (batch(spec={"completions": None}), State.PENDING, (0, 2)),
        (volcano("Pending"), State.PENDING, (0, 4)),
        (volcano("Running", running=3, succeeded=1), State.RUNNING, (4, 4)),
        (volcano("Restarting"), State.RESTARTING, (0, 4)),
        (volcano("Aborting"), State.SUSPENDING, (0, 4)),
        (volcano("Aborted"), State.SUSPENDED, (0, 4)),
        (volcano("Completed", succeeded=4), State.SUCCEEDED, (4, 4)),
        (volcano("Terminated"), State.STOPPED, (0, 4)),
        (volcano("Failed"), State.FAILED, (0, 4)),
        (pytorch(a_condition("Created")), State.PENDING, (0, 4)),
        (pytorch(a_condition("Running"), Master={"active": 1}, Worker={"active": 2}), State.RUNNING, (3, 4)),
        (pytorch(a_condition("Restarting"), Worker={}), State.RESTARTING, (0, 4)),
        (pytorch(a_condition("Running", "False"), a_condition("Succeeded")), State.SUCCEEDED, (0, 4)),
        (flow("Running", completedJobs=["pipe-a"], runningJobs=["pipe-b"]), State.RUNNING, (2, 2)),
        (flow("Succeed", completedJobs=["pipe-a", "pipe-b"]), State.SUCCEEDED, (2, 2)),
        (flow(""), State.PENDING, (0, 2)),
        (cron(), State.SCHEDULED, (0, 0)),
        (cron(active=[{"name": "nightly-1"}]), State.RUNNING, (1, 1)),
        (cron(suspend=True), State.SUSPENDED, (0, 0)),
    ],
)
def test_each_dialect_says_it_in_its_own_way(job, state, pods):
    found = summaries.observe(job)
    assert (found.state, (found.ready, found.wanted)) == (state, pods)


@pytest.mark.parametrize(
    ("job", "workload", "state"),
    [
        (batch(spec={"suspend": True}), {}, State.SUSPENDED),
        (batch(spec={"suspend": True}, labels={summaries.QUEUE_LABEL: "gold"}), {}, State.PENDING),
        (
            batch(spec={"suspend": True}, labels={summaries.QUEUE_LABEL: "gold"}),
            a_workload(active=False),
            State.SUSPENDED,
        ),
        (batch(spec={"suspend": True}, active=2, ready=2), {}, State.SUSPENDING),
        (batch(a_condition("Complete"), spec={"suspend": True}), a_workload(active=False), State.SUCCEEDED),
        (pytorch(a_condition("Suspended"), spec={"runPolicy": {"suspend": True}}), {}, State.SUSPENDED),
        (pytorch(a_condition("Suspended"), labels={summaries.QUEUE_LABEL: "gold"}), {}, State.PENDING),
    ],
)
def test_suspended_means_by_a_user_and_pending_by_a_queue(job, workload, state):
    assert summaries.observe(job, Surroundings(workload=workload)).state is state


def test_a_job_that_the_queue_will_start_is_pending_although_its_field_says_suspend():
    queued = a_job(
        dialects.BATCH, metadata={"annotations": {summaries.QUEUED_ANNOTATION: "true"}}, spec={"suspend": True}
    )
    found = summaries.observe(queued, Surroundings(workload=WAITS))
    assert (found.state, found.why) == (State.PENDING, "2 cpu missing")


def test_a_job_that_is_being_deleted_is_stopping():
    assert summaries.observe(a_job(dialects.VOLCANO, metadata={"deletionTimestamp": "now"})).state is State.STOPPING


def test_why_it_waits_quota_first_then_nodes():
    pods = [a_pod("train-0", "Pending", conditions=[{**a_condition("PodScheduled", "False"), "message": "no GPU"}])]
    waiting = volcano("Pending")
    assert summaries.observe(waiting, Surroundings(pods, WAITS)).why == "2 cpu missing"
    assert summaries.observe(waiting, Surroundings(pods, HAS_QUOTA)).why == "no GPU"
    group = {"status": {"conditions": [a_condition("Unschedulable", message="3 of 4 fit")]}}
    assert summaries.observe(waiting, Surroundings(group=group)).why == "3 of 4 fit"
    assert summaries.observe(waiting, Surroundings(group={"spec": {}})).why == "waits for 4 more pods"
    assert summaries.observe(volcano("Running"), Surroundings(pods, WAITS)).why == ""


def test_how_it_failed_the_code_first():
    pods = [a_pod("train-0", "Failed", code=7), a_pod("train-1", "Succeeded", code=0)]
    failed = batch(a_condition("Failed", message="too many retries"))
    found = summaries.observe(failed, Surroundings(pods))
    assert (found.exit_code, found.why) == (7, "train-0: exit code 7; too many retries")
    assert summaries.observe(failed).exit_code == 1
    bad = flow("Failed", failedJobs=["pipe-a"])
    assert summaries.observe(bad).why == "pipe-a failed"
    missing = flow("Pending", conditions={"pipe-a": {"message": "there is no JobTemplate a"}})
    assert summaries.observe(missing).why == "pipe-a: there is no JobTemplate a"


def test_the_queue_is_the_one_named_else_where_the_quota_is():
    admitted = a_workload(a_condition("QuotaReserved"), admission={"clusterQueue": "shared"})
    assert summaries.observe(volcano()).queue == "gold"
    assert (
        summaries.observe(batch(labels={summaries.QUEUE_LABEL: "mine"}), Surroundings(workload=admitted)).queue
        == "mine"
    )
    assert summaries.observe(batch(), Surroundings(workload=admitted)).queue == "shared"


def test_tasks_with_how_few_will_do():
    job = volcano(taskStatusCount={"worker": {"phase": {"Running": 2, "Pending": 1}}})
    assert [(task.name, task.wanted, task.least, dict(task.counts)) for task in summaries.tasks(job)] == [
        ("ps", 1, 1, {}),
        ("worker", 3, 3, {"Running": 2, "Pending": 1}),
    ]
    elastic = pytorch(spec={"elasticPolicy": {"minReplicas": 2, "maxReplicas": 3}}, Worker={"active": 3})
    assert [(task.name, task.least) for task in summaries.tasks(elastic)] == [("Master", 1), ("Worker", 2)]
    steps = summaries.tasks(flow("Running", conditions={"pipe-a": {"phase": "Completed"}}))
    assert [next(iter(step.counts)) for step in steps] == ["Completed", "Waiting"]


# What belongs to whom


def test_pods_groups_and_workloads_go_to_their_jobs_and_the_rest_are_gangs_and_pods():
    job = volcano("Pending")
    owned = {"metadata": {"name": "train-xyz", "ownerReferences": [{"uid": "uid-train", "controller": True}]}}
    gang = {"metadata": {"name": "run", "namespace": "default", "creationTimestamp": "2026-01-02T00:00:00Z"}}
    loose = a_pod("web", owner="somebody")
    listed = finding.collect([job], [owned, gang], [a_pod("train-ps-0"), loose], [WAITS])
    assert [(found.kind, found.name) for found in listed] == [
        ("volcano", "train"),
        ("pod", "web"),
        ("gang", "run"),
    ]
    assert listed[0].why == "2 cpu missing"


def test_parts_of_an_elastic_job_do_not_stand_for_it():
    part = a_workload(a_condition("QuotaReserved", "False", "no room for more"))
    part["metadata"] |= {"annotations": {"muster.dev/part-of": "wl-train"}, "creationTimestamp": "2026-02-01T00:00:00Z"}
    assert finding.newest([part, HAS_QUOTA]) is HAS_QUOTA
    assert finding.newest([part]) == {}


@pytest.mark.parametrize(
    ("word", "dialect"),
    [
        ("batch", dialects.BATCH),
        ("jobs.batch", dialects.BATCH),
        ("vcjob", dialects.VOLCANO),
        ("job.batch.volcano.sh", dialects.VOLCANO),
        ("PyTorchJob", dialects.PYTORCH),
        ("cronjobs", dialects.CRON),
        ("jf", dialects.FLOW),
        ("podgroup", dialects.GANG),
    ],
)
def test_words_for_kinds(word, dialect):
    assert dialects.of_word(word) is dialect


def test_job_alone_is_no_dialect():
    with pytest.raises(errors.BadRequest, match="batch, volcano, pytorch"):
        dialects.of_word("job")


# Details


def test_a_timeline_puts_what_happened_in_order():
    job = volcano(
        conditions=[
            {"status": "Pending", "lastTransitionTime": "2026-01-01T00:00:00Z"},
            {"status": "Running", "lastTransitionTime": "2026-01-01T00:00:09Z"},
        ]
    )
    workload = a_workload(a_condition("QuotaReserved", message="in gold", at="2026-01-01T00:00:05Z"))
    pods = [a_pod("train-0", "Failed", code=3)]
    assert [(moment.at[-3:-1], moment.what) for moment in details.timeline(job, workload, pods)] == [
        ("00", "created"),
        ("00", "first pod failed"),
        ("05", "quota reserved"),
        ("09", "Running"),
    ]
