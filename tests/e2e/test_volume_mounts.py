"""Volumes as users write them for a cluster, on nodes of our own: at their mountPath, with names that resolve, and with
claims that outlive the pods."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.e2e.cli_platform import Platform, platform

from muster.api import errors
from muster.api.raw import Document

CLAIMS = "persistentvolumeclaims"
OWN_STORAGE = pytest.mark.embedded(
    "a cluster provides for claims by itself, and knows nothing of our nodes' directories"
)
# Volcano's usual MPI example, with a shell for mpiexec and no sshd.
MPI = """
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: mpi, namespace: default}
spec:
  minAvailable: 3
  schedulerName: volcano
  plugins: {ssh: [], svc: []}
  policies: [{event: PodFailed, action: AbortJob}]
  tasks:
  - replicas: 1
    name: mpimaster
    policies: [{event: TaskCompleted, action: CompleteJob}]
    template:
      spec:
        restartPolicy: OnFailure
        containers:
        - name: mpimaster
          image: volcanosh/example-mpi:0.0.3
          workingDir: /home
          command:
          - /bin/sh
          - -ec
          - |
            until getent hosts mpi-mpiworker-1.mpi; do sleep 0.05; done
            for host in $(cat /etc/volcano/mpiworker.host); do getent hosts $host > /dev/null && echo listed; done
            grep -qx mpi-mpiworker-0.mpi /etc/volcano/mpiworker.host && echo by name
            for index in 0 1; do getent hosts mpi-mpiworker-$index > /dev/null && echo made up; done
            getent hosts $HOSTNAME > /dev/null && getent hosts localhost > /dev/null && echo self
            test -s /root/.ssh/id_rsa && test -s /root/.ssh/authorized_keys && echo keys
            pwd
  - replicas: 2
    name: mpiworker
    template:
      spec:
        restartPolicy: OnFailure
        containers:
        - name: mpiworker
          image: volcanosh/example-mpi:0.0.3
          command: [/bin/sh, -c, "mkdir -p /var/run/sshd; exec sleep 60"]
"""
CONFIG = """
apiVersion: v1
kind: ConfigMap
metadata: {name: config, namespace: default}
data: {a.conf: "of the map"}
---
apiVersion: v1
kind: Pod
metadata: {name: plain, namespace: default}
spec:
  restartPolicy: Never
  hostAliases: [{ip: 127.0.0.9, hostnames: [alias.example]}]
  volumes:
  - {name: config, configMap: {name: config}}
  - {name: scratch, emptyDir: {}}
  containers:
  - name: main
    image: busybox
    workingDir: /muster-e2e/work
    command: [/bin/sh, -ec, "cat /muster-e2e/config/a.conf a.txt; echo; pwd; getent hosts alias.example; echo x > b"]
    volumeMounts:
    - {name: config, mountPath: /muster-e2e/config, readOnly: true}
    - {name: scratch, mountPath: /muster-e2e/work}
    - {name: config, mountPath: /muster-e2e/work/a.txt, subPath: a.conf}
"""
CLAIMING = """
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: claiming, namespace: default}
spec:
  minAvailable: 3
  volumes:
  - mountPath: /muster-data
    volumeClaim: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
  tasks:
  - replicas: 3
    name: member
    template:
      spec:
        restartPolicy: Never
        containers:
        - name: main
          image: busybox
          command: [/bin/sh, -ec, "echo $HOSTNAME > /muster-data/$HOSTNAME; until test $(ls /muster-data | wc -l) = 3; do sleep 0.05; done"]
"""  # noqa: E501 - one line of shell


@pytest.fixture(scope="module")
def up() -> Iterator[Platform]:
    with platform("--nodes", "2") as found:
        yield found


def until(holds: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def apply(up: Platform, text: str) -> None:
    done = up.muster("apply", "-f", "-", stdin=text)
    assert done.returncode == 0, done.stderr


def ended(up: Platform, name: str) -> str:
    """The log of a pod that has run to its end."""
    until(lambda: phase(up, "pods", name) in ("Succeeded", "Failed"))
    said = up.muster("logs", name).stdout
    assert phase(up, "pods", name) == "Succeeded", said
    return said


def phase(up: Platform, kind: str, name: str) -> str:
    try:
        status: Document = up.client.get(kind, name).get("status") or {}
    except errors.NotFound:
        return ""
    return str(status.get("phase") or (status.get("state") or {}).get("phase"))


def a_pod(name: str, claim: str, command: str) -> str:
    return f"""
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: default}}
spec:
  restartPolicy: Never
  volumes: [{{name: data, persistentVolumeClaim: {{claimName: {claim}}}}}]
  containers:
  - name: main
    image: busybox
    command: [/bin/sh, -ec, "{command}"]
    volumeMounts: [{{name: data, mountPath: /data}}]
"""


def test_the_usual_mpi_job_runs_as_it_was_written(up: Platform) -> None:
    apply(up, MPI)
    said = ended(up, "mpi-mpimaster-0").splitlines()
    assert said[1:] == ["listed", "listed", "by name", "made up", "made up", "self", "keys", "/home"]
    assert not Path("/etc/volcano").exists()
    until(lambda: phase(up, "jobs.batch.volcano.sh", "mpi") == "Completed")


def test_a_pods_volumes_are_where_it_wants_them_and_nowhere_else(up: Platform) -> None:
    apply(up, CONFIG)
    said = ended(up, "plain")
    assert said.startswith("of the mapof the map\n/muster-e2e/work\n127.0.0.9")
    assert not Path("/muster-e2e").exists()


@OWN_STORAGE
def test_members_share_a_claim_and_whoever_comes_later_finds_what_they_left(up: Platform) -> None:
    apply(up, CLAIMING)
    until(lambda: phase(up, "jobs.batch.volcano.sh", "claiming") == "Completed")
    (claim,) = (found["metadata"]["name"] for found in up.client.list(CLAIMS))
    assert claim.startswith("claiming-pvc-")
    status = up.client.get("jobs.batch.volcano.sh", "claiming")["status"]
    assert status["controlledResources"][f"volume-pvc-{claim}"] == claim
    pods = [pod for pod in up.client.list("pods") if pod["metadata"]["name"].startswith("claiming-")]
    (node,) = {pod["spec"]["nodeName"] for pod in pods}
    apply(up, a_pod("later", claim, "ls /data; echo more > /data/more"))
    assert ended(up, "later").split() == ["claiming-member-0", "claiming-member-1", "claiming-member-2"]
    assert up.client.get("pods", "later")["spec"]["nodeName"] == node
    (directory,) = up.data.rglob(claim)
    assert "Bound" in up.muster("get", "pvc").stdout
    up.muster("delete", "vcjob", "claiming")  # the claim is the job's, and goes with it
    until(lambda: not up.client.list(CLAIMS))
    until(lambda: not directory.exists())


@OWN_STORAGE
def test_a_shared_class_gives_directories_that_all_nodes_have(up: Platform, tmp_path: Path) -> None:
    apply(
        up,
        f"""
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {{name: nfs}}
provisioner: muster.dev/shared
parameters: {{path: {tmp_path}}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {{name: shared, namespace: default}}
spec: {{accessModes: [ReadWriteMany], storageClassName: nfs, resources: {{requests: {{storage: 1Gi}}}}}}
""",
    )
    apply(up, a_pod("sharing", "shared", "echo kept > /data/file"))
    ended(up, "sharing")
    assert (tmp_path / "default" / "shared" / "file").read_text() == "kept\n"


@OWN_STORAGE
def test_what_waits_for_a_claim_says_so_and_goes_on_when_it_comes(up: Platform) -> None:
    apply(up, a_pod("waiting", "absent", "echo done"))
    named = CLAIMING.replace("name: claiming", "name: named").replace(
        "volumeClaim: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}", "volumeClaimName: absent"
    )
    apply(
        up,
        named.replace("minAvailable: 3", "minAvailable: 1").replace("replicas: 3", "replicas: 1").replace("= 3", "= 1"),
    )
    job = "jobs.batch.volcano.sh"
    until(lambda: "pvc absent is not found" in str(up.client.get(job, "named").get("status")))
    until(lambda: 'persistentvolumeclaim "absent" not found' in str(up.client.get("pods", "waiting").get("status")))
    apply(
        up,
        """
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: absent, namespace: default}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
""",
    )
    assert ended(up, "waiting") == "done\n"
    until(lambda: phase(up, job, "named") == "Completed")
