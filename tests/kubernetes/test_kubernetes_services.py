"""Replicas of an installation, as the API server finds them: by their Services, and what only a leader knows, by the
label of its pod.

The pods are objects only: their containers are processes of this machine, which answer at its address.
"""

import asyncio
import contextlib
import json
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.processes import MUSTER, end
from tests.kubernetes.own_planes import Plane, own_plane

from muster.deploying import names

OURS = "/apis/visibility.muster.dev/v1"
DECISIONS = f"{OURS}/schedulers/muster/decisions"


@pytest.fixture(scope="module")
def plane() -> Iterator[Plane]:
    with own_plane(by_endpoints=True) as started:
        done = started.muster("install")
        assert done.code == 0, done.err
        yield started


def own_address() -> str:
    """One at which the API server may look for pods: not loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        with contextlib.suppress(OSError):
            probe.connect(("203.0.113.1", 9))  # sends nothing
        found = str(probe.getsockname()[0])
    if found.startswith(("127.", "0.")):
        pytest.skip("this machine has no address but loopback")
    return found


def free_port(host: str) -> int:
    with socket.create_server((host, 0)) as probe:
        return int(probe.getsockname()[1])


def a_pod(plane: Plane, name: str, address: str, port: int) -> None:
    """As the Deployment would have made it, and a kubelet have reported it."""
    template = plane.get("deployment", "-n", names.NAMESPACE, names.CONTROLLER)["spec"]["template"]
    container = template["spec"]["containers"][0]
    container["ports"] = [{"name": "webhook", "containerPort": port, "protocol": "TCP"}]
    metadata = {"name": name, "namespace": names.NAMESPACE, "labels": template["metadata"]["labels"]}
    spec = {**template["spec"], "nodeName": "machine"}
    plane.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    ready = [{"type": "Ready", "status": "True"}]
    status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "conditions": ready}
    change = json.dumps({"status": status})
    plane.kubectl("patch", "pod", "-n", names.NAMESPACE, name, "--subresource=status", "--type=merge", f"-p={change}")


@contextlib.contextmanager
def a_replica(plane: Plane, name: str, address: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    port = free_port(address)
    a_pod(plane, name, address, port)
    account = plane.as_account(names.NAMESPACE, names.CONTROLLER, folder / name)
    told = ["--metrics-port=0", f"--host={address}", f"--webhook-port={port}", f"--pod={name}"]
    with (folder / f"{name}.log").open("wb") as log:
        line = [*MUSTER, "controller", "--kubeconfig", str(account), *told]
        process = subprocess.Popen(line, stdout=log, stderr=log)
    try:
        yield process
    finally:
        end(process)


def leader(plane: Plane) -> str:
    return plane.kubectl("get", "pods", "-n", names.NAMESPACE, "-l", names.LEADER, "-o", "name").strip()


def answers(plane: Plane) -> bool:
    """Whether the API server gets through to somebody for all of them."""
    found = plane.kubectl("get", "apiservices", "--ignore-not-found", *names.API_SERVICES)
    return found.count(" True ") == len(names.API_SERVICES)


async def until(holds: Callable[[], Any], seconds: float = 40.0) -> None:
    async with asyncio.timeout(seconds):
        while not await asyncio.to_thread(holds):
            await asyncio.sleep(0.3)


async def test_the_api_server_is_led_to_who_leads(plane: Plane, tmp_path: Path) -> None:
    address = own_address()
    plane.kubectl("scale", "-n", names.NAMESPACE, "deployment", names.CONTROLLER, "--replicas=0")
    plane.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "machine"}})
    with a_replica(plane, "one", address, tmp_path) as one:
        await until(lambda: leader(plane) == "pod/one")
        with a_replica(plane, "two", address, tmp_path):
            await until(lambda: answers(plane))
            assert plane.kubectl("get", "--raw", DECISIONS).startswith('{"began"')
            found = {each["about"]: each["verdict"] for each in json.loads(plane.muster("doctor", "-o", "json").out)}
            assert (found["visibility"], found["webhooks"]) == ("ok", "ok")
            end(one)
            plane.kubectl("delete", "pod", "-n", names.NAMESPACE, "one", "--force")
            await until(lambda: leader(plane) == "pod/two")
            await until(lambda: answers(plane))
            assert plane.kubectl("get", "--raw", DECISIONS).startswith('{"began"')
    assert "visibility" not in plane.kubectl("get", "apiservices", "-o", "name")
