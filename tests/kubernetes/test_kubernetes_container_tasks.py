"""A task in a real container: what it starts with is mounted by a kubelet of Kubernetes, and it reaches the server over
the network of pods."""

import asyncio
import json
import tempfile
from pathlib import Path

from tests.det.det_platform import eventually, free_port
from tests.e2e.kubectl_runner import Kubectl
from tests.kubernetes.containers import GATEWAY, IMAGE, ContainerNode, require_containers
from tests.kubernetes.controllers import define
from tests.kubernetes.machines import Machines, a_name
from tests.kubernetes.served import Served, as_server, require_client, serving

PYTHON = "/usr/bin/python3"
MOUNTED = ("/usr", "/lib", "/lib64")
"""Of this machine: the image has a shell, but no Python."""


def config(*mounted: str) -> str:
    mounts = [
        {"host_path": str(Path(path).resolve()), "container_path": path, "read_only": True}
        for path in mounted
        if Path(path).exists()
    ]
    never = {"name": "determined-container", "imagePullPolicy": "Never"}
    pod_spec = {"spec": {"containers": [never]}}
    return json.dumps({"environment": {"image": IMAGE, "pod_spec": pod_spec}, "bind_mounts": mounts})


def hello(served: Served) -> None:
    det = served.admin
    det.write("context/word.txt", "in the context")
    told = det(
        "cmd", "run", "-c", "context", "--config-file", det.write("config.yaml", config(*MOUNTED)),
        "echo hello from $HOSTNAME; /bin/busybox cat word.txt", timeout=90,
    ).out  # fmt: skip
    identity = told.partition("(id: ")[2].partition(",")[0]
    assert f"hello from {identity}.1-0" in told
    assert "in the context" in told
    assert "exited with code 0" in told


def without_python(served: Served) -> None:
    """Nothing is there that could ship its log: what the kubelet has kept is fetched."""
    det = served.admin
    command = det("cmd", "run", "-d", "--config-file", det.write("config.yaml", config()), "true").lines[-1]
    eventually(lambda: "python3: not found" in det("task", "logs", command).out, seconds=60)


def is_idle(served: Served) -> bool:
    return not served.http("GET", "/api/v1/tasks", token=served.token(served.admin)).json["allocationIdToSummary"]


async def test_commands_run_in_containers(
    kubectl: Kubectl, machines: Machines, configuration: Path, tmp_path: Path
) -> None:
    require_client()
    programs, port = require_containers(), free_port()
    await define(kubectl)
    told = [f"tasks.master_url=http://{GATEWAY}:{port}", f"tasks.python={PYTHON}", 'tasks.bind_mounts=["/"]']
    settings = [word for each in told for word in ("--set", each)]
    with tempfile.TemporaryDirectory(prefix="muster-ctr-", ignore_cleanup_errors=True) as home:
        async with ContainerNode(a_name(), Path(home), programs, kubectl).running():
            await machines.controller()
            account = await as_server(kubectl, configuration, tmp_path / "kubeconfig")
            with serving(account, "--host", "0.0.0.0", *settings, port=port) as served:
                await asyncio.to_thread(hello, served)
                await asyncio.to_thread(without_python, served)
                await asyncio.to_thread(eventually, lambda: is_idle(served))
