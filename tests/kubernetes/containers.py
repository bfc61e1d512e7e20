"""A node with a real kubelet and containerd on this machine, for pods in real containers.

Nothing is pulled: one image is made here, of a static busybox, and serves as every pod's sandbox too; others are taken
from archives. Everything lies below one directory, and whoever is not root cannot have this.
"""

import asyncio
import contextlib
import hashlib
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import tarfile
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.e2e.kubectl_runner import Kubectl
from tests.e2e.processes import end
from tests.kubernetes import node_identities

IMAGE = "muster.test/box:1"
GATEWAY = "10.217.0.1"
"""This machine, as pods reach it."""
_PODS = "10.217.0.0/24"
_PLUGINS = Path("/usr/lib/cni")
_BUSYBOX = Path("/bin/busybox")
_COMMANDS = ("sh", "sleep", "hostname", "ls")
_READY_SECONDS = 60
_END_SECONDS = 20


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
    """`programs`: the folder of Kubernetes' own. `images`: archives, as of `docker save`. `address`: of this machine in
    a network of its own, as by tools/isolated; then Services lead to pods. `dns`: who knows the names of Services."""

    name: str
    home: Path
    programs: Path
    kubectl: Kubectl
    images: Sequence[Path] = ()
    address: str = ""
    dns: str = "10.96.0.10"

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Ready within. Pods must be gone before the block ends: what they have mounted and connected is theirs."""
        self._write_configuration()
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(self._remove_cgroups)
            self._start(stack, "containerd", f"--config={self.home / 'containerd.toml'}")
            _write_image(self.home / "image.tar")
            for archive in (self.home / "image.tar", *self.images):
                await self._import_image(archive)
            if self.address:
                self._start_proxy(stack)
            stack.push_async_callback(self.kubectl.run, "delete", "node", self.name)
            stack.callback(self._unmount)
            await self._start_kubelet(stack)
            await self._until_ready()
            yield

    async def _start_kubelet(self, stack: contextlib.AsyncExitStack) -> None:
        identity = await node_identities.configuration_of(self.name, self.kubectl, self.home)
        authority = await node_identities.client_authority(self.kubectl, self.home)
        self._make_cgroups()
        (self.home / "kubelet.json").write_text(json.dumps(self._kubelet_configuration(authority)))
        flags = [f"--node-ip={self.address}"] if self.address else []
        self._start(
            stack,
            str(self.programs / "kubelet"),
            f"--config={self.home / 'kubelet.json'}",
            f"--kubeconfig={identity}",
            f"--hostname-override={self.name}",
            f"--root-dir={self.home / 'kubelet'}",
            f"--cert-dir={self.home / 'certificates'}",
            *flags,
        )

    def _start_proxy(self, stack: contextlib.AsyncExitStack) -> None:
        configuration = {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "clientConnection": {"kubeconfig": str(self.kubectl.kubeconfig)},
            "hostnameOverride": self.name,
            "mode": "iptables",
            "clusterCIDR": _PODS,
            "conntrack": {"maxPerCore": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},  # the machine's
        }
        path = self.home / "kube-proxy.json"
        path.write_text(json.dumps(configuration))
        self._start(stack, str(self.programs / "kube-proxy"), f"--config={path}")

    def _make_cgroups(self) -> None:
        """Of its own: kubelets end whatever runs in those of another on the same machine."""
        for controllers in self._cgroups():
            controllers.mkdir()
            if (controllers / "cpuset.cpus").exists():
                for name in ("cpuset.cpus", "cpuset.mems"):
                    (controllers / name).write_text((controllers.parent / name).read_text())

    async def _remove_cgroups(self) -> None:
        """With what a failed test has left running in them."""
        for controllers in self._cgroups():
            for folder in [Path(name) for name, _, _ in os.walk(controllers, topdown=False)]:
                async with asyncio.timeout(_END_SECONDS):
                    while left := (folder / "cgroup.procs").read_text().split():
                        for process in left:
                            with contextlib.suppress(ProcessLookupError):
                                os.kill(int(process), signal.SIGKILL)
                        await asyncio.sleep(0.1)
                folder.rmdir()

    def _cgroups(self) -> list[Path]:
        """One for each hierarchy."""
        mounted = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
        return [Path(words[1]) / self.name for words in mounted if words[2] in ("cgroup", "cgroup2")]

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

    async def _import_image(self, archive: Path) -> None:
        line = ["ctr", "-a", str(self._socket), "-n", "k8s.io", "images", "import", str(archive)]
        for _ in range(50):
            done = await asyncio.to_thread(subprocess.run, line, capture_output=True, text=True, check=False)
            if done.returncode == 0:
                return
            await asyncio.sleep(0.2)
        raise AssertionError(f"containerd does not take an image: {done.stderr}")

    def _start(self, stack: contextlib.AsyncExitStack, program: str, *arguments: str) -> None:
        """It ends with the stack."""
        environment = {**os.environ, "PATH": _path()}
        with (self.home / f"{Path(program).name}.log").open("wb") as log:
            stack.callback(end, subprocess.Popen([program, *arguments], stdout=log, stderr=log, env=environment))

    @property
    def _socket(self) -> Path:
        return self.home / "containerd.sock"

    def _write_configuration(self) -> None:
        network = {
            "type": "ptp",
            "ipam": {
                "type": "host-local",
                "dataDir": str(self.home / "addresses"),
                "ranges": [[{"subnet": _PODS, "gateway": GATEWAY}]],
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
            "cgroupRoot": f"/{self.name}",
            "failCgroupV1": False,
            "failSwapOn": False,
            "port": _free_port(),
            "healthzPort": 0,
            "authentication": {"x509": {"clientCAFile": str(authority)}, "anonymous": {"enabled": False}},
            "authorization": {"mode": "Webhook"},
            "clusterDNS": [self.dns],
            "clusterDomain": "cluster.local",
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
