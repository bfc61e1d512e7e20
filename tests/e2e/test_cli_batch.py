"""`muster submit` and its companions for jobs of every kind, against a real platform."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.e2e.cli_platform import Platform, platform

from muster.cli import main
from muster.sdk import Client, Job, State, describe, find, restart, resume, scale, stop, submit, suspend, wait
from muster.sdk.resources import BATCH_JOBS, PODS

CONTAINER = '{name: pytorch, image: host, command: [sh, -c, "COMMAND"]}'
TEMPLATE = f"{{spec: {{restartPolicy: Never, containers: [{CONTAINER}]}}}}"

BATCH = f"""
apiVersion: batch/v1
kind: Job
metadata: {{name: NAME}}
spec: {{backoffLimit: 0, template: {TEMPLATE}}}
"""
VOLCANO = f"""
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {{name: NAME}}
spec:
  tasks:
  - {{name: ps, replicas: 1, template: {TEMPLATE}}}
  - {{name: worker, replicas: 2, template: {TEMPLATE}}}
"""
PYTORCH = f"""
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {{name: NAME}}
spec:
  pytorchReplicaSpecs:
    Master: {{replicas: 1, restartPolicy: Never, template: {TEMPLATE}}}
    Worker: {{replicas: 1, restartPolicy: Never, template: {TEMPLATE}}}
"""
CRON = f"""
apiVersion: batch.volcano.sh/v1alpha1
kind: CronJob
metadata: {{name: NAME}}
spec:
  schedule: "0 3 * * *"
  jobTemplate: {{spec: {{tasks: [{{name: only, replicas: 1, template: {TEMPLATE}}}]}}}}
"""


def manifest(kind: str, name: str, command: str = "exec sleep 100") -> str:
    return kind.replace("NAME", name).replace("COMMAND", command)


@pytest.fixture(scope="module")
def up() -> Iterator[Platform]:
    with platform() as found:
        yield found


@dataclass
class Muster:
    """The command line within this process: a process of its own for each line would take most of the time."""

    directory: Path
    capsys: pytest.CaptureFixture[str]

    def __call__(self, *arguments: str, text: str = "") -> "Said":
        file = self.directory / "manifest.yaml"
        file.write_text(text)
        try:
            code = main.invoke([str(file) if word == "FILE" else word for word in arguments])
        except SystemExit as left:
            code = int(left.code or 0)
        said = self.capsys.readouterr()
        return Said(code, said.out, said.err)


@dataclass
class Said:
    code: int
    out: str
    err: str


@pytest.fixture
def muster(up: Platform, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Muster:
    for name, value in up.env.items():
        monkeypatch.setenv(name, value)
    for name in [name for name in os.environ if name.startswith("MUSTER_") and name not in up.env]:
        monkeypatch.delenv(name)
    return Muster(tmp_path, capsys)


def until(client: Client, job: Job, state: State = State.RUNNING) -> None:
    """And all its pods run, where it does."""

    def is_there(_: object) -> bool:
        found = describe(client, job).summary
        return found.state is state and (state is not State.RUNNING or found.ready == found.wanted)

    client.wait(job.dialect.resource, job.name, is_there)


def test_submit_wait_passes_on_the_code_and_logs_name_their_pods(muster: Muster) -> None:
    text = manifest(VOLCANO, "speak", "echo hello from $VC_TASK_INDEX")
    done = muster("submit", "-f", "FILE", "--logs", text=text)
    assert done.code == 0, done.err
    first, *lines = done.out.splitlines()
    assert first == "job.batch.volcano.sh/speak created"
    assert sorted(line.split("]")[0] for line in lines) == ["[ps-0", "[worker-0", "[worker-1"]
    assert "speak succeeded in" in done.err
    failed = muster("submit", "-f", "FILE", "--wait", text=manifest(BATCH, "fails", "exit 7"))
    assert failed.code == 7
    assert "exit code 7" in failed.err


def test_submit_prints_what_was_made_and_stops_at_what_is_refused(muster: Muster) -> None:
    queue = "\napiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\nmetadata: {name: side}\n"
    text = "---".join([queue, manifest(BATCH, "first", "true"), manifest(VOLCANO, "Wrong_Name"), queue])
    done = muster("submit", "-f", "FILE", text=text)
    assert done.code == 2
    assert done.out.splitlines() == ["queue.scheduling.volcano.sh/side created", "job.batch/first created"]
    for words in ("document 3", "metadata.name", "(1 more not looked at)"):
        assert words in done.err
    again = muster("submit", "-f", "FILE", text=manifest(BATCH, "first", "true"))
    assert "muster restart" in again.err
    tried = muster("submit", "-f", "FILE", "--dry-run", "-o", "name", text=manifest(BATCH, "never", "true"))
    assert tried.out == "job.batch/never\n"
    assert muster("get", "jobs.batch/never").code == 2
    endless = muster("submit", "-f", "FILE", "--wait", text=manifest(CRON, "endless", "true"))
    assert "no end" in endless.err
    assert muster("get", "cronjobs/endless").code == 2


def test_every_kind_is_listed_suspended_resumed_and_stopped(up: Platform, muster: Muster) -> None:
    kinds = {"b": BATCH, "v": VOLCANO, "p": PYTORCH, "c": CRON}
    muster("submit", "-f", "FILE", text="---".join(manifest(kind, name) for name, kind in kinds.items()))
    for name in "bvp":
        until(up.client, find(up.client, name))
    listed = {job["name"]: job for job in json.loads(muster("ps", "-o", "json").out)}
    assert [(listed[name]["kind"], listed[name]["ready"], listed[name]["wanted"]) for name in kinds] == [
        ("batch", 1, 1),
        ("volcano", 3, 3),
        ("pytorch", 2, 2),
        ("cron", 0, 0),
    ]
    done = muster("suspend", *kinds)
    assert done.out.splitlines() == [f"{word} suspended" for word in ("batch/b", "volcano/v", "pytorch/p", "cron/c")]
    suspended = muster("ps", "--active").out
    assert suspended.count("Suspended") == 4, suspended
    assert muster("resume", *kinds).code == 0
    for name in "bvp":
        until(up.client, find(up.client, name))
    done = muster("cancel", *kinds, "--grace-period", "1")
    assert done.out.splitlines() == [f"{word} stopped" for word in ("batch/b", "volcano/v", "pytorch/p", "cron/c")]
    assert not set(kinds) & set(muster("ps", "-o", "name").out.split())


def test_describe_restart_and_scale_from_python(up: Platform) -> None:
    client = up.client
    [job] = submit(client, manifest(VOLCANO, "py"))
    until(client, job)
    assert scale(client, job, {"worker": 1}) == ["worker: 2 -> 1", "minAvailable: 3 -> 2"]
    client.wait(PODS, "py-worker-1", lambda pod: pod is None)
    suspend(client, job)
    until(client, job, State.SUSPENDED)
    resume(client, job)
    until(client, job)
    found = describe(client, job)
    assert [(task.name, task.wanted, task.least) for task in found.tasks] == [("ps", 1, 1), ("worker", 1, 1)]
    assert {"Aborted", "Restarting", "Running"} <= {moment.what for moment in found.timeline}
    stop(client, job, grace_seconds=1)

    [once] = submit(client, manifest(BATCH, "once", "exit 3"))
    assert wait(client, once, timeout=30).exit_code == 3
    assert restart(client, once) == "anew"
    again = find(client, "batch/once")
    assert again.uid != once.uid
    assert wait(client, again, timeout=30).exit_code == 3


def test_describe_finds_whichever_kind_has_the_name(up: Platform, muster: Muster) -> None:
    muster("submit", "-f", "FILE", "--wait", text=manifest(VOLCANO, "twin", "true"))
    assert "Kind:         volcano" in muster("describe", "job", "twin").out
    muster("submit", "-f", "FILE", "--wait", text=manifest(BATCH, "twin", "true"))
    which = muster("describe", "job", "twin")
    assert which.code == 2
    assert "batch/twin or volcano/twin" in which.err
    shown = muster("describe", "batch/twin").out
    for section in ("Quota:", "Timeline:", "Conditions:", "Events:", "Pods:"):
        assert f"\n{section}\n" in shown
    assert "hello" not in muster("logs", "volcano/twin").out
    up.client.delete(BATCH_JOBS, "twin")


def test_queues_of_both_kinds(muster: Muster) -> None:
    made = muster("queue", "create", "lab", "--weight", "2", "--capability", "cpu=4")
    assert made.out == "volcano/lab created\n", made.err
    assert muster("queue", "close", "lab").out == "volcano/lab closed\n"
    refused = muster(
        "submit", "-f", "FILE", text=manifest(VOLCANO, "late").replace("spec:\n", "spec:\n  queue: lab\n", 1)
    )
    assert refused.code == 2
    assert "lab" in refused.err
    assert muster("queue", "open", "lab").out == "volcano/lab open\n"
    gold = "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ClusterQueue\nmetadata: {name: gold}\n"
    assert muster("apply", "-f", "FILE", text=gold).code == 0
    assert muster("queue", "close", "gold", "--drain").out.startswith("cluster/gold clos")
    listed = {queue["name"]: queue for queue in json.loads(muster("queue", "ls", "-o", "json").out)}
    assert (listed["gold"]["state"], listed["lab"]["state"]) == ("Closed", "Open")
    assert muster("queue", "open", "cluster/gold").out.startswith("cluster/gold ")
    assert "AT MOST" in muster("queue", "get", "lab").out
    assert muster("queue", "delete", "lab", "gold").code == 0
    assert muster("queue", "get", "lab").code == 2
