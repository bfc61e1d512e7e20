"""A gang in real containers: our controller, a kubelet of Kubernetes and containerd."""

import json
import tempfile
from pathlib import Path

from tests.e2e.kubectl_runner import Kubectl
from tests.kubernetes.containers import IMAGE, ContainerNode, require_containers
from tests.kubernetes.controllers import define
from tests.kubernetes.machines import Machines, a_name


async def test_a_gang_runs_in_containers(kubectl: Kubectl, namespace: str, machines: Machines) -> None:
    programs = require_containers()
    await define(kubectl)
    container = {
        "name": "main",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", "hostname; ls /bin/busybox; ls /usr 2>&1 || true"],
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
    }
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    gang = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "gang"},
        "spec": {"minAvailable": 3, "tasks": [{"name": "worker", "replicas": 3, "template": template}]},
    }
    with tempfile.TemporaryDirectory(prefix="muster-ctr-", ignore_cleanup_errors=True) as home:
        async with ContainerNode(a_name(), Path(home), programs, kubectl).running():
            await machines.controller()
            await kubectl("apply", "-n", namespace, "-f", "-", stdin=json.dumps(gang))
            finished = "--for=jsonpath={.status.state.phase}=Completed"
            await kubectl("wait", "-n", namespace, finished, "--timeout=50s", "vcjob/gang")
            for index in range(3):
                told = (await kubectl("logs", "-n", namespace, f"gang-worker-{index}")).splitlines()
                assert told[:2] == [f"gang-worker-{index}", "/bin/busybox"]
                assert "No such file" in told[2], "the machine's own files are not there"
            await kubectl("delete", "-n", namespace, "--timeout=60s", "vcjob", "gang")
            await kubectl("delete", "-n", namespace, "--timeout=60s", "pods", "--all")
