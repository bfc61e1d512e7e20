"""What `muster up` gives, on a Kubernetes cluster: a control plane of its own, `muster controller` with webhooks, and
agents as its nodes. The end-to-end tests about jobs, quota and placement run on either, unchanged."""

import contextlib
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from tests.e2e.processes import MUSTER, ROOT, Platform, end, is_ready, processes_of
from tests.kubernetes.own_planes import own_plane

from muster.api import errors, raw
from muster.deploying import names
from muster.sdk import Client
from muster.sdk.config import connection
from muster.sdk.resources import NODES

_DEFINITIONS = ROOT / "deploy" / "helm" / "muster" / "crds"
_CRDS = "customresourcedefinitions"
_WEBHOOKS = "validatingwebhookconfigurations"
_READY_SECONDS = 90.0
_OF_NODES = ("--fake-gpus", "--label")
_DEFAULT_QUEUE = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "LocalQueue",
    "metadata": {"name": "default", "namespace": "default"},
    "spec": {"clusterQueue": "default"},
}
"""With it, Jobs that name no queue are no more the cluster's own business than on a platform of ours."""


@contextlib.contextmanager
def on_cluster(*options: str) -> Iterator[Platform]:
    """With the options of `muster up`: those that are about nodes go to the agents, all others to the controller."""
    # Not below pytest's own directory, which has a long name: agents keep sockets there.
    with tempfile.TemporaryDirectory(prefix="muster-e2e-", ignore_cleanup_errors=True) as directory:
        data = Path(directory) / "data"
        data.mkdir()
        with own_plane() as plane:
            kubeconfig = data / "kubeconfig"
            shutil.copyfile(plane.configuration, kubeconfig)
            machines = _Machines(data, kubeconfig)
            try:
                client = machines.started(_Options.read(options))
                log, environment = machines.log("controller"), {"MUSTER_KUBECONFIG": str(kubeconfig)}
                yield Platform(data, machines.running["controller"], client, log, environment)
                client.close()
            finally:
                machines.end()
                for left in processes_of(directory):
                    with contextlib.suppress(psutil.NoSuchProcess):
                        left.kill()


@dataclass
class _Options:
    nodes: int = 1
    of_nodes: list[str] = field(default_factory=list)
    of_controller: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, options: Sequence[str]) -> "_Options":
        found = cls()
        for name, value in zip(options[::2], options[1::2], strict=True):
            if name == "--nodes":
                found.nodes = int(value)
            else:
                (found.of_nodes if name in _OF_NODES else found.of_controller).extend((name, value))
        return found


@dataclass
class _Machines:
    data: Path
    kubeconfig: Path
    running: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    def started(self, options: _Options) -> Client:
        """With whom to ask, once all are up."""
        nodes = [f"node-{index}" for index in range(options.nodes)]
        for name in nodes:
            own = ["--name", name, "--host", "127.0.0.1", "--data", str(self.data / name)]
            self._start(name, "agent", *own, *options.of_nodes)
        client = self._client()
        _define(client)
        client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": names.NAMESPACE}})
        port = _free_port()
        webhooks = ["--webhook-port", str(port), "--webhook-url", f"https://127.0.0.1:{port}"]
        self._start("controller", "controller", "--metrics-port", "0", *webhooks, *options.of_controller)
        self._until(lambda: _is_asked_at(client, port) and _are_fit(client, nodes))
        client.close()
        knowing = self._client()  # of our kinds
        knowing.create(_DEFAULT_QUEUE)
        return knowing

    def log(self, name: str) -> Path:
        return self.data / f"{name}.log"

    def end(self) -> None:
        for process in self.running.values():
            if process.poll() is None:
                end(process)

    def _client(self) -> Client:
        return Client(connection(kubeconfig=self.kubeconfig, env={"HOME": str(self.data)}))

    def _start(self, name: str, *arguments: str) -> None:
        with self.log(name).open("ab") as output:
            self.running[name] = subprocess.Popen(
                [*MUSTER, *arguments, "--kubeconfig", str(self.kubeconfig)],
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def _until(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _READY_SECONDS
        while time.monotonic() < deadline and all(process.poll() is None for process in self.running.values()):
            with contextlib.suppress(errors.NotFound):
                if holds():
                    return
            time.sleep(0.1)
        raise AssertionError("\n".join(self.log(name).read_text() for name in self.running))


def _define(client: Client) -> None:
    """All kinds of ours, as an installation does."""
    for file in sorted(_DEFINITIONS.glob("*.yaml")):
        for document in raw.decode_yaml(file.read_bytes()):
            client.create(document)
    deadline = time.monotonic() + _READY_SECONDS
    while not all(_is_established(found) for found in client.list(_CRDS)):
        assert time.monotonic() < deadline, "the API server does not take our kinds"
        time.sleep(0.1)


def _is_established(definition: raw.Document) -> bool:
    conditions = definition.get("status", {}).get("conditions") or ()
    return any(found["type"] == "Established" and found["status"] == "True" for found in conditions)


def _is_asked_at(client: Client, port: int) -> bool:
    """Whether the API server asks the webhooks that listen there."""
    return f":{port}/" in str(client.get(_WEBHOOKS, names.WEBHOOK)["webhooks"])


def _are_fit(client: Client, nodes: Sequence[str]) -> bool:
    """Ready, and as far as the cluster knows, too: it takes the taint off that new nodes have."""
    found = client.list(NODES)
    return len(found) == len(nodes) and all(is_ready(node) and not node["spec"].get("taints") for node in found)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])
