"""A cluster to install Muster on: a real control plane, a node with containers, kube-proxy and names of Services."""

import asyncio
import contextlib
import json
import os
import subprocess
import tempfile
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.kubectl_runner import Kubectl, require_kubectl
from tests.e2e.processes import MUSTER, ROOT
from tests.installation import service_names
from tests.kubernetes.containers import ContainerNode, require_containers
from tests.kubernetes.machines import a_name

from muster.access import kubeconfig
from muster.store.kubernetes import KubernetesStore

ARCHIVE = ROOT / "build" / "image.tar"
_LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Site:
    """`home`: of the node, which reads volumes there."""

    kubectl: Kubectl
    node: str
    home: Path

    async def muster(self, *arguments: str, code: int = 0) -> str:
        """What it printed. Fails the test where it ends with another code."""
        environment = {**os.environ, "KUBECONFIG": str(self.kubectl.kubeconfig)}
        done = await asyncio.to_thread(
            subprocess.run, [*MUSTER, *arguments], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == code, f"muster {' '.join(arguments)}: {done.stdout}{done.stderr}"
        return done.stdout

    async def get(self, *arguments: str) -> Any:
        return json.loads(await self.kubectl("get", *arguments, "-o", "json"))

    async def apply(self, *documents: dict[str, Any]) -> None:
        await self.kubectl("apply", "--server-side", "-f", "-", stdin="\n".join(map(json.dumps, documents)))


@contextlib.asynccontextmanager
async def prepared(folder: Path) -> AsyncIterator[Site]:
    """Ready, with the image and without Muster. Skips the test where there is no network for it, or no image."""
    require_kubectl()
    address = os.environ.get("MUSTER_KUBERNETES_ADDRESS", _LOOPBACK)
    if address == _LOOPBACK or not ARCHIVE.exists():
        pytest.skip("there is no network of its own, or no image: `make test-installation` makes both")
    programs = require_containers()
    configuration = Path(os.environ["KUBECONFIG"])
    kubectl = Kubectl(folder, configuration)
    # Not below pytest's own directory, which has a long name: there are sockets.
    with tempfile.TemporaryDirectory(prefix="muster-site-", ignore_cleanup_errors=True) as name:
        home = Path(name)
        node = ContainerNode(a_name(), home, programs, kubectl, [ARCHIVE], address, dns=address)
        async with (
            KubernetesStore(kubeconfig.read(configuration)) as store,
            service_names.answering(store, address),
            node.running(),
        ):
            yield Site(kubectl, node.name, home)
            await kubectl.stop()
