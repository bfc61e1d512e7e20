import pytest
from tests.unit.sdk.scripted_transport import Tap, a_client

from muster.access.credentials import Credential, FileCredentials
from muster.access.kubeconfig import Cluster
from muster.api import errors, raw
from muster.sdk import gangs, jobs
from muster.sdk.config import Connection
from muster.sdk.following import Ended, Moved, Patience, Stuck
from muster.sdk.gangs import Gang, Phase, Rendezvous
from muster.sdk.log_reading import Line


class Platform:
    """Accepts a gang, and lets the test play scheduler and agent."""

    def __init__(self):
        self.watch = Tap()
        self.logs = {}
        self.created = []
        self.deleted = []
        self.version = 10
        self.client, self.transport = a_client(self.answer)
        self.refuse = None

    def answer(self, request):
        name = request.path.rpartition("/")[2]
        if request.query.get("watch"):
            return self.watch
        if name == "log":
            return self.logs[request.path.split("/")[-2]]
        if request.method == "POST":
            document = raw.decode(request.body or b"")
            self.created.append(document)
            if self.refuse and document["kind"] == "Pod":
                return self.refuse
            document["metadata"] |= {"uid": f"uid-{len(self.created)}", "resourceVersion": "10"}
            return document
        if request.method == "DELETE":
            self.deleted.append(name)
            return {"kind": "Status"}
        if name == "nodes":
            return {"items": [{"metadata": {"name": n, "labels": {gangs.MACHINE_LABEL: "m"}}} for n in "ab"]}
        return {"items": []}

    def pod(self, rank, phase, code=None, change="MODIFIED"):
        self.version += 1
        ended = {"terminated": {"exitCode": code}} if code is not None else {}
        self.watch.pour(
            change,
            {
                "metadata": {
                    "name": f"train-{rank}",
                    "labels": {gangs.RANK_LABEL: str(rank)},
                    "resourceVersion": str(self.version),
                },
                "spec": {"nodeName": f"node-{rank}"},
                "status": {
                    "phase": phase,
                    "containerStatuses": [{"state": ended or {"running": {"startedAt": "x"}}}]
                    if phase != "Pending"
                    else [],
                },
            },
        )


def submit(platform, gang):
    return jobs.submit_gang(platform.client, gang, Rendezvous("127.0.0.1", 5555))


def events(follower, until=Ended):
    found: list = []
    while not found or not isinstance(found[-1], until):
        found.append(follower.next(timeout=5))
        assert found[-1] is not None
    return found


def test_a_gang_is_followed_from_submit_to_exit_code_with_whole_logs():
    platform = Platform()
    platform.logs = {"train-0": [b"1 hello\n2 wor", b"ld\n"], "train-1": [b"1 hi\n"]}
    submitted = submit(platform, Gang("train", ["x"], replicas=2))
    for rank in (0, 1):
        platform.pod(rank, "Pending", change="ADDED")
        platform.pod(rank, "Running")
        platform.pod(rank, "Succeeded", 0)
    follower = jobs.follow(platform.client, submitted)
    found = events(follower)
    assert sorted((e.rank, e.text) for e in found if isinstance(e, Line)) == [(0, "hello"), (0, "world"), (1, "hi")]
    assert found[-1].exit_code == 0
    assert found[-1].status.phase is Phase.SUCCEEDED
    assert Phase.RUNNING in {e.status.phase for e in found if isinstance(e, Moved)}
    watched = next(request for request in platform.transport.requests if request.query.get("watch"))
    assert watched.query["labelSelector"] == "muster.dev/job=train"
    assert watched.query["resourceVersion"] == "10"


def test_the_code_is_of_the_member_that_was_seen_to_fail_first():
    platform = Platform()
    platform.logs = {"train-0": [], "train-1": []}
    submitted = submit(platform, Gang("train", ["x"], replicas=2))
    platform.pod(1, "Failed", 9)
    platform.pod(0, "Failed", 1)
    assert events(jobs.follow(platform.client, submitted))[-1].exit_code == 9


def test_pods_deleted_under_way_count_as_stopped():
    platform = Platform()
    platform.logs = {"train-0": [b"1 x\n"]}
    submitted = submit(platform, Gang("train", ["x"]))
    platform.pod(0, "Running")
    platform.pod(0, "Running", change="DELETED")
    last = events(jobs.follow(platform.client, submitted))[-1]
    assert last.exit_code == 143
    assert last.status.phase is Phase.STOPPED


def test_a_log_that_does_not_end_with_its_pod_is_left():
    platform = Platform()
    endless = Tap()
    endless.poured.put(b"1 x\n")
    platform.logs = {"train-0": endless}
    submitted = submit(platform, Gang("train", ["x"]))
    platform.pod(0, "Running")
    platform.pod(0, "Running", change="DELETED")
    found = events(jobs.follow(platform.client, submitted, patience=Patience(after_deletion=0.05)))
    assert [e.text for e in found if isinstance(e, Line)] == ["x"]
    assert found[-1].exit_code == 143


def test_those_that_wait_for_a_failed_member_are_named():
    platform = Platform()
    platform.logs = {"train-0": [], "train-1": []}
    submitted = submit(platform, Gang("train", ["x"], replicas=2))
    platform.pod(0, "Running")
    platform.pod(1, "Failed", 4)
    follower = jobs.follow(platform.client, submitted, patience=Patience(after_failure=0.0))
    stuck = events(follower, Stuck)[-1]
    assert stuck.pods == ("train-0",)
    assert stuck.failed.rank == 1
    platform.pod(0, "Running", change="DELETED")
    assert events(follower)[-1].exit_code == 4


def test_a_log_that_breaks_is_resumed_without_losing_or_repeating_a_line():
    platform = Platform()
    first = Tap()
    for line in (b"t1 a\n", b"t2 b\n", b"t2 b\n"):
        first.poured.put(line)
    first.end(errors.Unavailable("broken"))
    answers = iter([first, [b"t2 b\nt2 b\nt2 b\nt3 c\n"]])

    class Broken(dict):
        def __getitem__(self, name):
            return next(answers)

    platform.logs = Broken()
    submitted = submit(platform, Gang("train", ["x"]))
    platform.pod(0, "Succeeded", 0)
    found = events(jobs.follow(platform.client, submitted))
    assert [e.text for e in found if isinstance(e, Line)] == ["a", "b", "b", "b", "c"]
    resumed = [request.query for request in platform.transport.requests if request.path.endswith("/log")][1]
    assert resumed["sinceTime"] == "t2"


def test_a_gang_of_which_one_pod_is_refused_leaves_nothing():
    platform = Platform()
    platform.refuse = errors.Invalid("no")
    with pytest.raises(errors.Invalid):
        submit(platform, Gang("train", ["x"], replicas=4))
    assert platform.deleted == ["train"]


def test_one_machine_meets_on_loopback_and_several_do_not():
    machines = iter(["m", "m", "m", "other"])

    def answer(request):
        labels = {gangs.MACHINE_LABEL: next(machines)}, {gangs.MACHINE_LABEL: next(machines)}
        return {"items": [{"metadata": {"name": str(n), "labels": found}} for n, found in enumerate(labels)]}

    client, transport = a_client(answer)
    gang = Gang("train", ["x"], replicas=2)
    assert jobs.choose_rendezvous(client, gang, lambda: 5555).address == "127.0.0.1"
    assert jobs.choose_rendezvous(client, gang, lambda: 5555).address == ""
    asked = len(transport.requests)
    assert jobs.choose_rendezvous(client, Gang("train", ["x"]), lambda: 5555).port == 5555
    assert len(transport.requests) == asked  # a single process needs no look at the nodes
    in_containers = Gang("train", ["x"], replicas=2, image="torch:2")
    assert jobs.choose_rendezvous(client, in_containers, lambda: 5555).address == ""
    assert len(transport.requests) == asked


def test_who_may_not_see_the_nodes_cannot_know_where_the_ranks_meet():
    client, _ = a_client(lambda request: errors.Forbidden("nodes is forbidden"))
    assert jobs.choose_rendezvous(client, Gang("train", ["x"], replicas=2)).address == ""


CLUSTER = Connection("https://lab", cluster=Cluster("https://lab", FileCredentials(Credential)))


@pytest.mark.parametrize(
    ("labels", "image", "is_refused"),
    [({}, "host", True), ({}, "torch:2", False), ({gangs.MACHINE_LABEL: "m"}, "host", False)],
)
def test_a_cluster_whose_nodes_run_containers_needs_an_image(labels, image, is_refused):
    def answer(request):
        if request.method == "GET":
            return {"items": [{"metadata": {"name": "n", "labels": labels}}]}
        return {"metadata": {"name": "train", "uid": "u", "resourceVersion": "1"}}

    client, transport = a_client(answer, CLUSTER)
    gang = Gang("train", ["x"], image=image)
    if is_refused:
        with pytest.raises(errors.Invalid, match=r"image: Required value: .*--image"):
            jobs.submit_gang(client, gang)
    else:
        jobs.submit_gang(client, gang)
    assert any(request.method == "POST" for request in transport.requests) is not is_refused
