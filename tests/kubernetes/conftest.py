"""Tests on a real cluster, that of KUBECONFIG: `make test-kubernetes` starts one where there is none.

Each test has a namespace of its own. Nodes are agents of ours, which run pods as processes of this machine.
"""

import asyncio
import os
import secrets
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.e2e.kubectl_runner import Kubectl, require_kubectl
from tests.kubernetes.machines import Machines

from muster.access import kubeconfig
from muster.access.kubeconfig import Cluster
from muster.api import core
from muster.api.objects import Key
from muster.store.kubernetes import KubernetesStore
from muster.store.protocol import Create, Delete, Selection, write_one

_ACCOUNT_SECONDS = 20.0


@pytest.fixture(scope="session")
def configuration() -> Path:
    """The file that says where the cluster is."""
    named = os.environ.get("KUBECONFIG", "")
    if not named:
        pytest.skip("KUBECONFIG names no cluster; `make test-kubernetes` starts one")
    return Path(named)


@pytest.fixture
def cluster(configuration: Path) -> Cluster:
    return kubeconfig.read(configuration)


@pytest.fixture
async def store(cluster: Cluster) -> AsyncIterator[KubernetesStore]:
    async with KubernetesStore(cluster) as opened:
        yield opened


@pytest.fixture
async def namespace(store: KubernetesStore) -> AsyncIterator[str]:
    """One that admits pods."""
    name = f"t-{secrets.token_hex(4)}"
    await write_one(store, Create(core.NAMESPACE, {"metadata": {"name": name}}))
    await _until_accounted(store, name)
    yield name
    await write_one(store, Delete(core.NAMESPACE, Key("", name)))


async def _until_accounted(store: KubernetesStore, namespace: str) -> None:
    """Until the cluster has published its authority there, which comes after the account that pods run as."""
    key = Key(namespace, "kube-root-ca.crt")
    async with asyncio.timeout(_ACCOUNT_SECONDS):
        while key not in {found.key for found in (await store.list(Selection(core.CONFIG_MAP, namespace))).items}:
            await asyncio.sleep(0.05)


@pytest.fixture
async def kubectl(configuration: Path, tmp_path: Path) -> AsyncIterator[Kubectl]:
    require_kubectl()
    runner = Kubectl(tmp_path, configuration)
    yield runner
    await runner.stop()


@pytest.fixture
async def machines(store: KubernetesStore, configuration: Path) -> AsyncIterator[Machines]:
    # Not below pytest's own directory, which has a long name: agents keep sockets there.
    with tempfile.TemporaryDirectory(prefix="muster-k8s-", ignore_cleanup_errors=True) as home:
        started = Machines(store, configuration, Path(home))
        yield started
        await started.close()
