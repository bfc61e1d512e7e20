"""The requests that Volcano's command line makes, as a Go client writes them, against a real platform.

vcctl itself cannot be had here. What it sends is known: typed Go structs, so that times which are not set come as null
and empty parts as {}; options of a delete that carry the group's version; commands with the job or queue as owner and
target. kubectl is there, and does the same at the end of this file.
"""

import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from tests.e2e.cli_platform import Platform, platform
from tests.e2e.kubectl_runner import Kubectl, require_kubectl

from muster.sdk import trusting
from muster.sdk.transport import Request

JOBS = "/apis/batch.volcano.sh/v1alpha1"
SCHEDULING = "/apis/scheduling.volcano.sh/v1beta1"
FLOWS = "/apis/flow.volcano.sh/v1alpha1"
COMMANDS = "/apis/bus.volcano.sh/v1alpha1"
INSIDE = "/namespaces/default"


class Vcctl:
    def __init__(self, up: Platform) -> None:
        self._transport = trusting.transport(up.client.connection)
        self._headers = {
            "Accept": "application/json, */*",
            "User-Agent": "vcctl/v0.0.0 (linux/amd64) kubernetes/$Format",
        }

    def close(self) -> None:
        self._transport.close()

    def send(
        self, method: str, path: str, body: Any = None, *, type: str = "application/json", **query: str
    ) -> tuple[int, dict]:
        headers = {**self._headers, **({"Content-Type": type} if body is not None else {})}
        sent = json.dumps(body).encode() if body is not None else None
        reply = self._transport.exchange(Request(method, path, query, sent, headers))
        return reply.status, json.loads(reply.body)

    def get(self, path: str, **query: str) -> dict:
        code, found = self.send("GET", path, **query)
        assert code == 200, found
        return found

    def post(self, path: str, body: dict) -> dict:
        code, found = self.send("POST", path, body)
        assert code == 201, found
        return found

    def delete(self, path: str, version: str) -> None:
        code, found = self.send("DELETE", path, {"kind": "DeleteOptions", "apiVersion": version})
        assert code == 200, found

    def names(self, path: str, **query: str) -> list[str]:
        return [item["metadata"]["name"] for item in self.get(path, **query)["items"]]

    def command(self, path: str, target: dict, kind: str, action: str) -> None:
        """As `vcctl job suspend` and `vcctl queue operate` give orders."""
        reference = {
            "apiVersion": "scheduling.volcano.sh/v1beta1" if kind == "Queue" else "batch.volcano.sh/v1alpha1",
            "kind": kind,
            "name": target["metadata"]["name"],
            "uid": target["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
        order = {
            "kind": "Command",
            "apiVersion": "bus.volcano.sh/v1alpha1",
            "metadata": {
                "generateName": f"{target['metadata']['name']}-{action.lower()}-",
                "namespace": "default",
                "creationTimestamp": None,
                "ownerReferences": [reference],
            },
            "action": action,
            "target": reference,
        }
        self.post(path, order)


@pytest.fixture(scope="module")
def up() -> Iterator[Platform]:
    with platform() as found:
        yield found


@pytest.fixture(scope="module")
def vcctl(up: Platform) -> Iterator[Vcctl]:
    found = Vcctl(up)
    yield found
    found.close()


# So long, since the garbage collector of a new cluster learns of our kinds only after half a minute.
def until(holds: Callable[[], object], seconds: float = 90.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def a_job(name: str, *command: str, queue: str = "", replicas: int = 2) -> dict:
    """What `vcctl job run` posts: the Go struct with everything that its options leave empty."""
    container = {
        "name": name,
        "image": "host",
        "command": list(command),
        "resources": {"limits": {"cpu": "100m"}, "requests": {"cpu": "100m"}},
        "imagePullPolicy": "IfNotPresent",
    }
    return {
        "kind": "Job",
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "metadata": {"name": name, "namespace": "default", "creationTimestamp": None},
        "spec": {
            "schedulerName": "volcano",
            "minAvailable": replicas,
            **({"queue": queue} if queue else {}),
            "tasks": [
                {
                    "name": "task",
                    "replicas": replicas,
                    "template": {
                        "metadata": {"name": name, "creationTimestamp": None, "labels": {"volcano.sh/job-name": name}},
                        "spec": {"containers": [container], "restartPolicy": "Never"},
                    },
                }
            ],
        },
        "status": {"state": {"lastTransitionTime": None}},
    }


def phase(vcctl: Vcctl, name: str) -> str:
    return str(vcctl.get(f"{JOBS}{INSIDE}/jobs/{name}").get("status", {}).get("state", {}).get("phase"))


def test_a_job_is_run_listed_viewed_suspended_resumed_and_deleted(vcctl: Vcctl) -> None:
    made = vcctl.post(f"{JOBS}{INSIDE}/jobs", a_job("train", "sleep", "100"))
    assert made["spec"]["queue"] == "default"
    until(lambda: phase(vcctl, "train") == "Running")

    listed = vcctl.get(f"{JOBS}{INSIDE}/jobs")
    assert listed["kind"] == "JobList"
    [found] = [item for item in listed["items"] if item["metadata"]["name"] == "train"]
    # The columns of `vcctl job list`.
    assert found["status"]["running"] == 2
    assert found["status"]["minAvailable"] == 2
    assert "train" in vcctl.names(f"{JOBS}/jobs")
    assert vcctl.names(f"{JOBS}{INSIDE}/jobs", labelSelector="team=none") == []

    viewed = vcctl.get(f"{JOBS}{INSIDE}/jobs/train")
    assert viewed["status"]["taskStatusCount"] == {"task": {"phase": {"Running": 2}}}
    assert viewed["status"]["conditions"][-1]["status"] == "Running"
    about = f"involvedObject.kind=Job,involvedObject.name=train,involvedObject.uid={viewed['metadata']['uid']}"
    assert vcctl.get(f"/api/v1{INSIDE}/events", fieldSelector=about)["kind"] == "EventList"
    assert vcctl.names(f"/api/v1{INSIDE}/pods", labelSelector="volcano.sh/job-name=train") == [
        "train-task-0",
        "train-task-1",
    ]

    vcctl.command(f"{COMMANDS}{INSIDE}/commands", viewed, "Job", "AbortJob")
    until(lambda: phase(vcctl, "train") == "Aborted")
    assert vcctl.names(f"{COMMANDS}{INSIDE}/commands") == []
    vcctl.command(f"{COMMANDS}{INSIDE}/commands", viewed, "Job", "ResumeJob")
    until(lambda: phase(vcctl, "train") == "Running")
    assert vcctl.get(f"{JOBS}{INSIDE}/jobs/train")["status"]["retryCount"] == 1

    vcctl.delete(f"{JOBS}{INSIDE}/jobs/train", "batch.volcano.sh/v1alpha1")
    until(lambda: vcctl.names(f"/api/v1{INSIDE}/pods", labelSelector="volcano.sh/job-name=train") == [])
    code, refused = vcctl.send("GET", f"{JOBS}{INSIDE}/jobs/train")
    assert (code, refused["reason"]) == (404, "NotFound")


def test_a_job_runs_to_its_end(vcctl: Vcctl) -> None:
    vcctl.post(f"{JOBS}{INSIDE}/jobs", a_job("brief", "true"))
    until(lambda: phase(vcctl, "brief") == "Completed")
    assert vcctl.get(f"{JOBS}{INSIDE}/jobs/brief")["status"]["succeeded"] == 2


def test_what_is_wrong_comes_back_as_a_go_client_reads_it(vcctl: Vcctl) -> None:
    wrong = a_job("wrong", "true", replicas=2)
    wrong["spec"]["minAvailable"] = 5
    code, refused = vcctl.send("POST", f"{JOBS}{INSIDE}/jobs", wrong)
    assert code == 422
    assert (refused["kind"], refused["status"], refused["reason"]) == ("Status", "Failure", "Invalid")
    assert any("minAvailable" in cause["field"] for cause in refused["details"]["causes"])
    code, refused = vcctl.send("POST", f"{JOBS}{INSIDE}/jobs", a_job("brief", "true"))
    assert (code, refused["reason"]) == (409, "AlreadyExists")


def test_a_queue_is_created_listed_operated_and_deleted(vcctl: Vcctl) -> None:
    made = vcctl.post(
        f"{SCHEDULING}/queues",
        {
            "kind": "Queue",
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "metadata": {"name": "research", "creationTimestamp": None},
            "spec": {"weight": 3},
            "status": {"state": "Open", "reservation": {}},
        },
    )
    until(lambda: state(vcctl) == "Open")
    listed = vcctl.get(f"{SCHEDULING}/queues")
    assert listed["kind"] == "QueueList"
    assert {"default", "research"} <= {item["metadata"]["name"] for item in listed["items"]}
    assert vcctl.get(f"{SCHEDULING}/queues/research")["spec"]["weight"] == 3
    assert vcctl.get(f"{SCHEDULING}/podgroups")["kind"] == "PodGroupList"

    vcctl.command(f"{COMMANDS}{INSIDE}/commands", made, "Queue", "CloseQueue")
    until(lambda: state(vcctl) == "Closed")
    code, refused = vcctl.send("POST", f"{JOBS}{INSIDE}/jobs", a_job("late", "true", queue="research"))
    assert code in (403, 422), refused
    assert "research" in refused["message"]
    vcctl.command(f"{COMMANDS}{INSIDE}/commands", made, "Queue", "OpenQueue")
    until(lambda: state(vcctl) == "Open")

    for type, patch in (
        ("application/merge-patch+json", {"spec": {"weight": 5}}),
        ("application/json-patch+json", [{"op": "replace", "path": "/spec/weight", "value": 5}]),
    ):
        code, changed = vcctl.send("PATCH", f"{SCHEDULING}/queues/research", patch, type=type)
        assert (code, changed["spec"]["weight"]) == (200, 5)

    vcctl.delete(f"{SCHEDULING}/queues/research", "scheduling.volcano.sh/v1beta1")
    until(lambda: "research" not in vcctl.names(f"{SCHEDULING}/queues"))
    code, refused = vcctl.send("DELETE", f"{SCHEDULING}/queues/default")
    assert code in (403, 422), refused


def state(vcctl: Vcctl) -> str:
    return str(vcctl.get(f"{SCHEDULING}/queues/research").get("status", {}).get("state"))


def test_flows_and_templates(vcctl: Vcctl) -> None:
    for name in ("first", "second"):
        template = a_job(name, "true", replicas=1)
        template |= {"kind": "JobTemplate", "apiVersion": "flow.volcano.sh/v1alpha1", "status": {}}
        vcctl.post(f"{FLOWS}{INSIDE}/jobtemplates", template)
    assert vcctl.names(f"{FLOWS}{INSIDE}/jobtemplates") == ["first", "second"]
    assert vcctl.get(f"{FLOWS}{INSIDE}/jobtemplates/first")["spec"]["tasks"][0]["name"] == "task"

    flow = {
        "kind": "JobFlow",
        "apiVersion": "flow.volcano.sh/v1alpha1",
        "metadata": {"name": "pipe", "namespace": "default", "creationTimestamp": None},
        "spec": {
            "jobRetainPolicy": "retain",
            "flows": [{"name": "first"}, {"name": "second", "dependsOn": {"targets": ["first"]}}],
        },
        "status": {"state": {}},
    }
    vcctl.post(f"{FLOWS}{INSIDE}/jobflows", flow)
    until(lambda: flow_phase(vcctl) == "Succeed")
    assert vcctl.names(f"{FLOWS}{INSIDE}/jobflows") == ["pipe"]
    assert "pipe" in vcctl.names(f"{FLOWS}/jobflows")
    described = vcctl.get(f"{FLOWS}{INSIDE}/jobflows/pipe")
    assert described["status"]["completedJobs"] == ["pipe-first", "pipe-second"]
    made = vcctl.get(f"{JOBS}{INSIDE}/jobs", labelSelector="volcano.sh/createdByJobFlow=default.pipe")
    assert [item["metadata"]["name"] for item in made["items"]] == ["pipe-first", "pipe-second"]

    vcctl.delete(f"{FLOWS}{INSIDE}/jobflows/pipe", "flow.volcano.sh/v1alpha1")
    until(lambda: "pipe-first" not in vcctl.names(f"{JOBS}{INSIDE}/jobs"))
    for name in ("first", "second"):
        vcctl.delete(f"{FLOWS}{INSIDE}/jobtemplates/{name}", "flow.volcano.sh/v1alpha1")
    assert vcctl.names(f"{FLOWS}{INSIDE}/jobtemplates") == []
    code, refused = vcctl.send("GET", f"{FLOWS}{INSIDE}/jobflows/pipe")
    assert (code, refused["details"]["kind"]) == (404, "jobflows")


def flow_phase(vcctl: Vcctl) -> str:
    return str(vcctl.get(f"{FLOWS}{INSIDE}/jobflows/pipe").get("status", {}).get("state", {}).get("phase"))


def test_pods_are_listed_by_job_queue_and_phase(vcctl: Vcctl) -> None:
    vcctl.post(f"{JOBS}{INSIDE}/jobs", a_job("members", "sleep", "100", replicas=1))
    until(lambda: phase(vcctl, "members") == "Running")
    pods = f"/api/v1{INSIDE}/pods"
    assert vcctl.names(pods, labelSelector="volcano.sh/queue-name=default", fieldSelector="status.phase=Running") == [
        "members-task-0"
    ]
    assert vcctl.names("/api/v1/pods", labelSelector="volcano.sh/job-name=members") == ["members-task-0"]
    assert vcctl.names(pods, labelSelector="volcano.sh/job-name=members,volcano.sh/task-spec=other") == []
    vcctl.delete(f"{JOBS}{INSIDE}/jobs/members", "batch.volcano.sh/v1alpha1")


# The same with kubectl

ORDER = """
apiVersion: bus.volcano.sh/v1alpha1
kind: Command
metadata: {generateName: order-}
action: ACTION
target: {apiVersion: GROUP, kind: KIND, name: NAME, uid: UID}
"""


def an_order(action: str, group: str, kind: str, name: str, uid: str) -> str:
    text = ORDER
    for word, value in (("ACTION", action), ("GROUP", group), ("KIND", kind), ("NAME", name), ("UID", uid)):
        text = text.replace(word, value)
    return text


@pytest.fixture
async def kubectl(up: Platform) -> AsyncIterator[Kubectl]:
    require_kubectl()
    runner = Kubectl(up.data, up.data / "kubeconfig")
    yield runner
    await runner.stop()


@pytest.mark.kubectl
async def test_kubectl_runs_lists_views_suspends_resumes_and_deletes_jobs(kubectl: Kubectl) -> None:
    async def reach(phase: str) -> None:
        waited = f"--for=jsonpath={{.status.state.phase}}={phase}"
        await kubectl("wait", waited, "vcjob/kube", "--timeout=30s")

    assert "created" in await kubectl("create", "-f", "-", stdin=json.dumps(a_job("kube", "sleep", "100")))
    await reach("Running")
    header, line = (await kubectl("get", "vcjob", "kube")).splitlines()
    assert dict(zip(header.split(), line.split(), strict=True))["STATUS"] == "Running"
    assert "kube-task-0" in await kubectl("get", "pods", "-l", "volcano.sh/job-name=kube")
    assert "Task Status Count" in await kubectl("describe", "vcjob", "kube")
    uid = await kubectl("get", "vcjob", "kube", "-o", "jsonpath={.metadata.uid}")
    for action, phase in (("AbortJob", "Aborted"), ("ResumeJob", "Running")):
        order = an_order(action, "batch.volcano.sh/v1alpha1", "Job", "kube", uid)
        assert "created" in await kubectl("create", "-f", "-", stdin=order)
        await reach(phase)
    patch = [{"op": "replace", "path": "/spec/tasks/0/replicas", "value": 3}]
    await kubectl("patch", "vcjob", "kube", "--type=json", "-p", json.dumps(patch))
    await kubectl("wait", "--for=jsonpath={.status.running}=3", "vcjob/kube", "--timeout=30s")
    await kubectl("delete", "vcjob", "kube", "--grace-period=1")
    assert "NotFound" in await kubectl.fails("get", "vcjob", "kube")


@pytest.mark.kubectl
async def test_kubectl_makes_closes_opens_and_deletes_queues(kubectl: Kubectl) -> None:
    queue = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": "kube"},
        "spec": {"weight": 2},
    }
    await kubectl("apply", "-f", "-", stdin=json.dumps(queue))
    assert "kube" in await kubectl("get", "queues.scheduling.volcano.sh")
    uid = await kubectl("get", "q", "kube", "-o", "jsonpath={.metadata.uid}")
    for action, state in (("CloseQueue", "Closed"), ("OpenQueue", "Open")):
        await kubectl(
            "create", "-f", "-", stdin=an_order(action, "scheduling.volcano.sh/v1beta1", "Queue", "kube", uid)
        )
        await kubectl("wait", f"--for=jsonpath={{.status.state}}={state}", "q/kube", "--timeout=30s")
    await kubectl("apply", "-f", "-", stdin=json.dumps({**queue, "spec": {"weight": 4}}))
    assert await kubectl("get", "q", "kube", "-o", "jsonpath={.spec.weight}") == "4"
    await kubectl("delete", "q", "kube")
    assert "root" in await kubectl.fails("delete", "q", "root")
