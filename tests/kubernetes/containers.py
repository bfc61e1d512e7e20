"""A node with a real kubelet and containerd on this machine, for pods in real containers.

Nothing is pulled: the one image that it has is made here, of a static busybox, and serves as every pod's sandbox too.
Everything lies below one directory, and whoever is not root cannot have this.
"""

import asyncio
import contextlib
import hashlib
import io
import json
import os
import shutil
import socket
import subprocess
import tarfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.e2e.kubectl_runner import Kubectl
from tests.e2e.processes import end
from tests.kubernetes import node_identities

IMAGE = "muster.test/box:1"
GATEWAY = "10.217.0.1"
"""This machine, as pods reach it."""
_PLUGINS = Path("/usr/lib/cni")
_BUSYBOX = Path("/bin/busybox")
_COMMANDS = ("sh", "sleep", "hostname", "ls")
_READY_SECONDS = 60


def require_containers() -> Path:
    """The folder of the kubelet. Skips the test where there is none, or no runtime; but in CI there is both."""
    missing = [name for name in ("containerd", "runc") if shutil.which(name, path=_path()) is None]
    missing += [str(path) for path in (_PLUGINS / "ptp", _BUSYBOX) if not path.exists()]
    if os.geteuid() != 0:
        missing.append("root's rights")
    folder = os.environ.get("MUSTER_KUBERNETES_BIN", "")
    if not folder:
        pytest.skip("this cluster is not of tools/kubernetes.py, and there is no kubelet to join it with")
    if missing:
        message = f"containers need {', '.join(missing)}; see tools/install-containerd"
        if os.environ.get("CI", "").lower() == "true":
            pytest.fail(message)
        pytest.skip(message)
    return Path(folder)


@dataclass(frozen=True)
class ContainerNode:
    name: str
    home: Path
    kubelet: Path
    kubectl: Kubectl

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Ready within. Pods must be gone before the block ends: what they have mounted and connected is theirs."""
        self._write_configuration()
        runtime = self._start("containerd", "--config", str(self.home / "containerd.toml"))
        try:
            await self._import_image()
            identity = await node_identities.configuration_of(self.name, self.kubectl, self.home)
            authority = await node_identities.client_authority(self.kubectl, self.home)
            (self.home / "kubelet.json").write_text(json.dumps(self._kubelet_configuration(authority)))
            kubelet = self._start(
                str(self.kubelet),
                f"--config={self.home / 'kubelet.json'}",
                f"--kubeconfig={identity}",
                f"--hostname-override={self.name}",
                f"--root-dir={self.home / 'kubelet'}",
                f"--cert-dir={self.home / 'certificates'}",
            )
            try:
                await self._until_ready()
                yield
            finally:
                end(kubelet)
                self._unmount()
                await self.kubectl.run("delete", "node", self.name)
        finally:
            end(runtime)

    def _unmount(self) -> None:
        """What a kubelet leaves behind for the next one."""
        mounted = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        for place in reversed([place for place in mounted if place.startswith(f"{self.home}/kubelet")]):
            subprocess.run(["umount", "-l", place], check=True)

    async def _until_ready(self) -> None:
        for _ in range(_READY_SECONDS):
            outcome = await self.kubectl.run("wait", "--for=condition=Ready", "--timeout=1s", f"node/{self.name}")
            if outcome.code == 0:
                return
            await asyncio.sleep(1.0)
        raise AssertionError(f"the node is not ready:\n{(self.home / 'kubelet.log').read_text()[-5000:]}")

    async def _import_image(self) -> None:
        _write_image(self.home / "image.tar")
        line = ["ctr", "-a", str(self._socket), "-n", "k8s.io", "images", "import", str(self.home / "image.tar")]
        for _ in range(50):
            done = await asyncio.to_thread(subprocess.run, line, capture_output=True, text=True, check=False)
            if done.returncode == 0:
                return
            await asyncio.sleep(0.2)
        raise AssertionError(f"containerd does not take an image: {done.stderr}")

    def _start(self, program: str, *arguments: str) -> "subprocess.Popen[bytes]":
        environment = {**os.environ, "PATH": _path()}
        with (self.home / f"{Path(program).name}.log").open("wb") as log:
            return subprocess.Popen([program, *arguments], stdout=log, stderr=log, env=environment)

    @property
    def _socket(self) -> Path:
        return self.home / "containerd.sock"

    def _write_configuration(self) -> None:
        network = {
            "type": "ptp",
            "ipam": {
                "type": "host-local",
                "dataDir": str(self.home / "addresses"),
                "ranges": [[{"subnet": "10.217.0.0/24", "gateway": GATEWAY}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }
        networks = self.home / "networks"
        networks.mkdir()
        listed = {"cniVersion": "0.4.0", "name": "test", "plugins": [network]}
        (networks / "10-test.conflist").write_text(json.dumps(listed))
        # Not all machines let us make a sandbox less likely to be killed for memory than others; it runs all the same.
        (self.home / "containerd.toml").write_text(
            f'version = 2\nroot = "{self.home}/root"\nstate = "{self.home}/state"\n'
            f'[grpc]\naddress = "{self._socket}"\n'
            f'[plugins."io.containerd.grpc.v1.cri"]\nsandbox_image = "{IMAGE}"\nrestrict_oom_score_adj = true\n'
            f'[plugins."io.containerd.grpc.v1.cri".cni]\nbin_dir = "{_PLUGINS}"\nconf_dir = "{networks}"\n'
        )

    def _kubelet_configuration(self, authority: Path) -> dict[str, object]:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "containerRuntimeEndpoint": f"unix://{self._socket}",
            "cgroupDriver": "cgroupfs",
            "failCgroupV1": False,
            "failSwapOn": False,
            "port": _free_port(),
            "healthzPort": 0,
            "authentication": {"x509": {"clientCAFile": str(authority)}, "anonymous": {"enabled": False}},
            "authorization": {"mode": "Webhook"},
            "clusterDNS": ["10.96.0.10"],
            "evictionHard": {"memory.available": "1Mi"},  # a test's machine may be full of other things
            "localStorageCapacityIsolation": False,
        }


def _write_image(path: Path) -> None:
    """In the form of `docker save`."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as files:
        files.add(str(_BUSYBOX.resolve()), "bin/busybox")
        for name in _COMMANDS:
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            files.addfile(link)
    content = layer.getvalue()
    digest = hashlib.sha256(content).hexdigest()
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Env": ["PATH=/bin"], "Cmd": ["/bin/sleep", "999999"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [IMAGE], "Layers": ["layer.tar"]}]
    parts = {"config.json": json.dumps(config).encode(), "layer.tar": content}
    parts["manifest.json"] = json.dumps(manifest).encode()
    with tarfile.open(path, "w") as archive:
        for name, data in parts.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))


def _path() -> str:
    return f"{os.environ['PATH']}:/usr/sbin"


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])
