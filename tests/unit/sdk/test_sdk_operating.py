"""What suspend, resume, restart, scale and the queues send."""

import pytest
from tests.unit.sdk.job_documents import a_condition, a_job, a_workload, batch, cron, flow, pytorch, volcano
from tests.unit.sdk.scripted_transport import a_client

from muster.api import errors, raw
from muster.sdk import dialects, finding, job_following, operating, queues, remaking, scaling, summaries
from muster.sdk.queues import NewQueue, Queue

GOLD = {summaries.QUEUE_LABEL: "gold"}


class Server:
    """Has one job and its workload; remembers what was written."""

    def __init__(self, job, workload=None):
        self.job = job
        self.workload = workload
        self.written = []
        self.client, _ = a_client(self._answer)

    def _answer(self, request):
        if request.method != "GET":
            self.written.append((request.method, request.path, raw.decode(request.body)))
            return {}
        if "workloads" in request.path:
            return {"items": [self.workload] if self.workload else []}
        if request.path == self.job.dialect.resource.path("default", self.job.name):
            return self.job.document
        if request.path.endswith("/jobs") and "volcano" in request.path:
            return {"items": []}
        return errors.NotFound(f"no {request.path}")

    def only(self):
        [(method, path, body)] = self.written
        return method, path.rpartition("default/")[2], body


def test_a_batch_job_is_suspended_by_its_field_and_forgets_that_a_queue_held_it():
    server = Server(batch(active=2, ready=2))
    operating.suspend(server.client, server.job)
    method, path, body = server.only()
    assert (method, path) == ("PATCH", "jobs/train")
    assert body == {"spec": {"suspend": True}, "metadata": {"annotations": {summaries.QUEUED_ANNOTATION: None}}}


def test_a_job_that_names_a_queue_leaves_it_instead():
    server = Server(batch(labels=GOLD, active=1, ready=1), a_workload(a_condition("QuotaReserved")))
    operating.suspend(server.client, server.job)
    assert server.only() == ("PATCH", "workloads/wl-train", {"spec": {"active": False}})
    back = Server(batch(labels=GOLD, spec={"suspend": True}), a_workload(active=False))
    operating.resume(back.client, back.job)
    assert back.only() == ("PATCH", "workloads/wl-train", {"spec": {"active": True}})


def test_a_volcano_job_gets_orders():
    for phase, order, action in (
        ("Running", operating.suspend, "AbortJob"),
        ("Aborted", operating.resume, "ResumeJob"),
        ("Running", operating.restart, "RestartJob"),
    ):
        server = Server(volcano(phase))
        order(server.client, server.job)
        method, path, body = server.only()
        assert (method, path, body["action"]) == ("POST", "commands", action)
        assert body["target"] == body["metadata"]["ownerReferences"][0]
        assert (body["target"]["kind"], body["target"]["uid"]) == ("Job", "uid-train")


def test_pytorch_and_cron_jobs_have_fields_for_it():
    server = Server(pytorch(a_condition("Running")))
    operating.suspend(server.client, server.job)
    assert server.only()[2]["spec"] == {"runPolicy": {"suspend": True}}
    nightly = Server(cron(suspend=True))
    operating.resume(nightly.client, nightly.job)
    assert nightly.only()[2] == {"spec": {"suspend": False}}


def test_what_is_so_already_is_left_alone():
    server = Server(volcano("Running"))
    operating.resume(server.client, server.job)
    server.job = volcano("Aborting")
    operating.suspend(server.client, server.job)
    assert server.written == []


@pytest.mark.parametrize(
    ("job", "do", "said"),
    [
        (volcano("Completed"), operating.suspend, "muster restart"),
        (batch(a_condition("Failed")), operating.resume, "muster restart"),
        (volcano("Aborted"), operating.restart, "muster resume train"),
        (flow("Running"), operating.suspend, "its jobs can"),
        (cron(), operating.restart, "the jobs that it makes can"),
        (a_job(dialects.GANG, spec={"minMember": 1}), operating.restart, "muster stop train"),
    ],
)
def test_what_cannot_be_done_says_what_can(job, do, said):
    server = Server(job)
    with pytest.raises(errors.BadRequest, match=said):
        do(server.client, job)
    assert server.written == []


def test_a_cron_job_has_no_end_to_wait_for():
    client, transport = a_client(lambda _: {})
    with pytest.raises(errors.BadRequest, match="no end"):
        job_following.wait(client, cron())
    assert transport.requests == []


# Finding


def test_a_name_that_two_kinds_have_is_asked_back_and_a_kind_settles_it():
    def answer(request):
        known = {
            dialects.BATCH.resource.path("default", "train"): batch().document,
            dialects.VOLCANO.resource.path("default", "train"): volcano().document,
        }
        return known.get(request.path) or errors.NotFound("nothing here")

    client, _ = a_client(answer)
    with pytest.raises(finding.Ambiguous, match="batch/train or volcano/train"):
        finding.find(client, "job/train")
    assert finding.find(client, "vcjob/train").dialect is dialects.VOLCANO
    with pytest.raises(errors.NotFound, match="muster ps"):
        finding.find(client, "nobody")
    for wrong in ("a/b/c", "/train", "volcano/"):
        with pytest.raises(errors.BadRequest):
            finding.find(client, wrong)


# Making anew


def test_a_job_made_anew_has_nothing_of_its_first_life():
    given = {"controller-uid": "u", "batch.kubernetes.io/job-name": "train", "app": "x"}
    first = a_job(
        dialects.BATCH,
        labels={"team": "a", "controller-uid": "u"},
        metadata={
            "resourceVersion": "7",
            "generation": 3,
            "managedFields": [{}],
            "annotations": {"muster.dev/queued": "true", "note": "mine"},
        },
        spec={
            "suspend": False,
            "selector": {"matchLabels": given},
            "template": {"metadata": {"labels": given}, "spec": {"nodeSelector": {"flavor": "h200"}, "containers": []}},
        },
        status={"succeeded": 2},
    )
    original = {"metadata": {"labels": given}, "spec": {"nodeSelector": {"disk": "fast"}}}
    workload = a_workload(spec={"podSets": [{"name": "main", "template": original}]})
    made = remaking.clean(first, workload)
    assert made["metadata"] == {
        "name": "train",
        "namespace": "default",
        "labels": {"team": "a"},
        "annotations": {"note": "mine"},
    }
    assert made["spec"] == {
        "template": {"metadata": {"labels": {"app": "x"}}, "spec": {"nodeSelector": {"disk": "fast"}, "containers": []}}
    }
    assert "status" not in made
    assert first.document["spec"]["selector"], "the document itself stays as it was"


def test_what_the_server_would_refuse_is_not_deleted():
    def answer(request):
        if request.method == "POST":
            assert request.query["dryRun"] == "All"
            return errors.Invalid("spec.tasks: no longer allowed")
        raise AssertionError(request)

    client, _ = a_client(answer)
    with pytest.raises(errors.Invalid):
        remaking.remake(client, volcano("Failed"), {})


def test_a_job_that_is_lost_on_the_way_is_handed_back():
    def answer(request):
        if request.method == "POST" and "dryRun" not in request.query:
            return errors.Forbidden("the queue has just closed")
        return {"items": [], "metadata": {"resourceVersion": "1"}}

    client, _ = a_client(answer)
    with pytest.raises(remaking.Lost, match="just closed") as lost:
        remaking.remake(client, volcano("Failed"), {})
    assert lost.value.document["spec"]["queue"] == "gold"


# Scaling


def changed(job, *replicas):
    patch, changes = scaling.plan(job, scaling.parse(replicas))
    return {entry["path"]: entry["value"] for entry in patch if entry["op"] != "test"}, changes


def test_a_gang_of_all_pods_stays_one():
    assert changed(volcano(), "worker=5") == (
        {"/spec/tasks/1/replicas": 5, "/spec/tasks/1/minAvailable": 5, "/spec/minAvailable": 6},
        ["worker: 3 -> 5", "minAvailable: 4 -> 6"],
    )
    loose = volcano(spec={"minAvailable": 2})
    assert "/spec/minAvailable" not in changed(loose, "worker=5")[0]
    assert changed(volcano(), "worker=3") == ({}, [])


def test_scaling_of_other_kinds():
    assert changed(pytorch(), "2")[0] == {"/spec/pytorchReplicaSpecs/Worker/replicas": 2}
    assert changed(pytorch(), "worker=2")[1] == ["Worker: 3 -> 2"]
    assert changed(batch(), "3")[0] == {"/spec/parallelism": 3}
    elastic = batch(spec={"completionMode": "Indexed", "completions": 2})
    assert changed(elastic, "3")[0] == {"/spec/parallelism": 3, "/spec/completions": 3}


@pytest.mark.parametrize(
    ("job", "replicas", "said"),
    [
        (volcano(), "3", "has 2 tasks"),
        (volcano(), "chief=1", "no task 'chief'"),
        (volcano(), "worker=many", "TASK=N"),
        (volcano(), "=3", "TASK=N"),
        (flow("Running"), "3", "its jobs"),
        (a_job(dialects.GANG), "3", "muster|run it again"),
    ],
)
def test_a_scale_that_makes_no_sense(job, replicas, said):
    with pytest.raises(errors.BadRequest, match=said):
        changed(job, replicas)


# Queues


def a_queue(kind, name="gold", *, spec=None, **status):
    return Queue(kind, {"metadata": {"name": name, "uid": "q"}, "spec": spec or {}, "status": status})


@pytest.mark.parametrize(
    ("queue", "state"),
    [
        (a_queue(queues.VOLCANO), "Open"),
        (a_queue(queues.VOLCANO, state="Closing"), "Closing"),
        (a_queue(queues.CLUSTER), "Open"),
        (a_queue(queues.CLUSTER, spec={"stopPolicy": "Hold"}, reservingWorkloads=2), "Closed"),
        (a_queue(queues.CLUSTER, spec={"stopPolicy": "HoldAndDrain"}, reservingWorkloads=2), "Closing"),
        (
            a_queue(queues.CLUSTER, conditions=[{"type": "Active", "status": "False", "reason": "FlavorNotFound"}]),
            "FlavorNotFound",
        ),
    ],
)
def test_states_of_queues(queue, state):
    assert queue.state == state


def test_queues_are_closed_and_opened_each_in_its_way():
    written = []

    def answer(request):
        written.append((request.method, raw.decode(request.body)))
        return {}

    client, _ = a_client(answer)
    queues.close(client, a_queue(queues.VOLCANO))
    queues.close(client, a_queue(queues.CLUSTER), drain=True)
    queues.open_again(client, a_queue(queues.CLUSTER))
    assert [written[0][1]["action"], *(body for _, body in written[1:])] == [
        "CloseQueue",
        {"spec": {"stopPolicy": "HoldAndDrain"}},
        {"spec": {"stopPolicy": "None"}},
    ]
    with pytest.raises(errors.BadRequest, match="--drain"):
        queues.close(client, a_queue(queues.VOLCANO), drain=True)


def test_a_new_queue_says_only_what_was_asked_for():
    assert NewQueue("gold", weight=2, guarantee={"cpu": "1"}).document()["spec"] == {
        "weight": 2,
        "guarantee": {"resource": {"cpu": "1"}},
    }


def test_a_cluster_queue_that_stands_for_a_volcano_queue_is_not_listed_twice():
    def answer(request):
        name, labels = (
            ("volcano-gold", {queues.STANDS_FOR_LABEL: "gold"}) if "cluster" in request.path else ("gold", {})
        )
        return {"items": [{"metadata": {"name": name, "labels": labels}}], "metadata": {}}

    client, _ = a_client(answer)
    assert [queue.shown for queue in queues.listed(client)] == ["volcano/gold"]
