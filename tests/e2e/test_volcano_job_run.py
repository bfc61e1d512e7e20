"""A Volcano Job as a user applies it, on a real platform with real processes that find each other by name."""

import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.e2e.cli_platform import Platform, platform

from muster.api import raw
from muster.api.raw import Document

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/usr/bin")
MASTER = """
import os, socket
server = socket.create_server(("", int(os.environ["MASTER_PORT"])))
heard = [server.accept()[0].makefile().readline().strip() for _ in range(int(os.environ["WORLD_SIZE"]) - 1)]
print("rank", os.environ["RANK"], "heard", *sorted(heard), flush=True)
"""
WORKER = """
import os, socket, time
for _ in range(200):
    try:
        peer = socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])), 5)
        break
    except ConnectionRefusedError:
        time.sleep(0.1)
peer.sendall(os.environ["RANK"].encode() + b"\\n")
hosts = open(os.environ["MUSTER_HOSTS_FILE"]).read()
assert "rendezvous-worker-1.rendezvous" in hosts, hosts
assert len(open(os.environ["MUSTER_VOLUME_RENDEZVOUS_SVC"] + "/worker.host").read().split()) == 2
"""


def a_job(port: int) -> Document:
    def task(name: str, replicas: int, program: str) -> Document:
        container = {"name": "main", "image": "host", "command": ["python3", "-c", program]}
        return {
            "name": name,
            "replicas": replicas,
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
        }

    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "rendezvous", "namespace": "default"},
        "spec": {
            "minAvailable": 3,
            "plugins": {"pytorch": [f"--port={port}"], "svc": []},
            "policies": [{"event": "PodFailed", "action": "AbortJob"}],
            "tasks": [task("master", 1, MASTER), task("worker", 2, WORKER)],
        },
    }


KEYS = """
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: keys, namespace: default}
spec:
  plugins: {ssh: []}
  tasks:
  - name: only
    replicas: 1
    template:
      spec:
        restartPolicy: Never
        containers:
        - {name: main, image: host, command: [sh, -c, "ssh-keygen -l -f $MUSTER_VOLUME_KEYS_SSH/id_rsa.pub"]}
"""


LOGIN = """
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: login, namespace: default}
spec:
  plugins: {ssh: [--ssh-port=22022], mpi: [--port=22022], env: []}
  tasks:
  - name: master
    replicas: 1
    policies: [{event: TaskCompleted, action: CompleteJob}]
    template:
      spec:
        restartPolicy: Never
        containers:
        - name: main
          image: host
          command:
          - sh
          - -c
          - |
            echo "hosts: $MPI_HOST"
            keys=$MUSTER_VOLUME_LOGIN_SSH
            for try in $(seq 100); do
              ssh -q -F $keys/config -i $keys/id_rsa -o BatchMode=yes login-worker-0 'echo logged in' && exit
              sleep 0.1
            done
            exit 1
  - name: worker
    replicas: 1
    template:
      spec:
        restartPolicy: Never
        containers:
        - name: main
          image: host
          command:
          - sh
          - -c
          - |
            ssh-keygen -q -t ed25519 -N '' -f $TMPDIR/host
            exec $(command -v sshd || echo /usr/sbin/sshd) -D -p 22022 -h $TMPDIR/host -o PidFile=none \\
              -o StrictModes=no -o UsePAM=no -o AuthorizedKeysFile=$MUSTER_VOLUME_LOGIN_SSH/authorized_keys
"""


@pytest.fixture(scope="module")
def up() -> Iterator[Platform]:
    with platform() as found:
        yield found


def until(holds: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def phase(up: Platform, name: str) -> str:
    status: Document = up.client.get("jobs.batch.volcano.sh", name).get("status") or {}
    return str((status.get("state") or {}).get("phase"))


def test_members_find_each_other_by_name(up: Platform) -> None:
    done = up.muster("apply", "-f", "-", stdin=raw.to_yaml(a_job(29571)))
    assert "created" in done.stdout, done.stderr
    until(lambda: phase(up, "rendezvous") in ("Completed", "Failed", "Aborted"))
    logs = {name: up.muster("logs", f"rendezvous-{name}").stdout for name in ("master-0", "worker-0", "worker-1")}
    assert phase(up, "rendezvous") == "Completed", logs
    assert logs["master-0"] == "rank 0 heard 1 2\n"


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="no ssh-keygen here")
def test_members_have_a_key_of_their_own(up: Platform) -> None:
    done = up.muster("apply", "-f", "-", stdin=KEYS)
    assert "created" in done.stdout, done.stderr
    until(lambda: phase(up, "keys") in ("Completed", "Failed"))
    assert up.muster("logs", "keys-only-0").stdout.startswith("2048 SHA256:")
    assert phase(up, "keys") == "Completed"


@pytest.mark.skipif(not SSHD or not Path("/run/sshd").is_dir(), reason="no OpenSSH server here")
def test_members_log_in_to_each_other(up: Platform) -> None:
    done = up.muster("apply", "-f", "-", stdin=LOGIN)
    assert "created" in done.stdout, done.stderr
    until(lambda: phase(up, "login") in ("Completed", "Failed"))
    said = up.muster("logs", "login-master-0").stdout
    assert phase(up, "login") == "Completed", said + up.muster("logs", "login-worker-0").stdout
    assert re.fullmatch(r"hosts: [\d.]+\nlogged in\n", said)


QUEUE = """
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {name: small}
spec: {capability: {cpu: "1"}}
"""
WAITING = """
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: NAME, namespace: default}
spec:
  queue: small
  tasks:
  - name: only
    replicas: 1
    template:
      spec:
        restartPolicy: Never
        containers:
        - name: main
          image: host
          command: [sh, -c, "COMMAND"]
          resources: {requests: {cpu: "1"}}
"""


def test_a_second_job_waits_for_the_queue_says_why_and_starts_when_the_first_ends(up: Platform, tmp_path: Path) -> None:
    up.muster("apply", "-f", "-", stdin=QUEUE)
    until(lambda: (up.client.get("queues.scheduling.volcano.sh", "small").get("status") or {}).get("state") == "Open")
    gate = tmp_path / "gate"
    for name, command in (("first", f"until test -e {gate}; do sleep 0.05; done"), ("second", "true")):
        done = up.muster("apply", "-f", "-", stdin=WAITING.replace("NAME", name).replace("COMMAND", command))
        assert "created" in done.stdout, done.stderr
        if name == "first":
            until(lambda: phase(up, "first") == "Running")
    until(lambda: "Waiting" in {entry["type"] for entry in conditions(up, "second")})
    state = up.client.get("jobs.batch.volcano.sh", "second")["status"]["state"]
    assert (state["phase"], state["reason"]) == ("Pending", "WaitingForQuota")
    why = up.muster("why", "vcjob/second").stdout
    assert "volcano-small" in why, why
    assert "cpu" in why, why
    gate.touch()
    until(lambda: phase(up, "second") == "Completed")
    assert phase(up, "first") == "Completed"


def conditions(up: Platform, job: str) -> list[Document]:
    """Of the job's workload."""
    for workload in up.client.list("workloads"):
        if workload["metadata"]["ownerReferences"][0]["name"] == job:
            return list((workload.get("status") or {}).get("conditions") or [])
    return []
