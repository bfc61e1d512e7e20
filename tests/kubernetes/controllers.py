"""Muster's controllers inside of the test, on the cluster, with their webhooks on loopback."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from tests.e2e.kubectl_runner import Kubectl

from muster.access.kubeconfig import Cluster
from muster.api import batch, core, errors
from muster.api.kueue import names as kueue_names
from muster.api.objects import Key
from muster.api.ownership import EVERYTHING, Ownership
from muster.assembly import clustered
from muster.assembly.admission import WebhookSettings
from muster.assembly.clustered import ControllerSettings, Running
from muster.deploying import kinds, names
from muster.store.kubernetes import KubernetesStore
from muster.store.protocol import Create, Delete, Options, write_one

DEFINITIONS = Path(__file__).parents[2] / "deploy" / "helm" / "muster" / "crds"
CONFIGURATIONS = (kinds.MUTATING_WEBHOOKS, kinds.VALIDATING_WEBHOOKS)


async def define(kubectl: Kubectl) -> None:
    """All kinds of ours that the cluster has not got yet: what the controllers changed in the others stays."""
    present = (await kubectl("get", "crd", "-o", "name")).split()
    missing = [
        file
        for file in sorted(DEFINITIONS.glob("*.yaml"))
        if f"customresourcedefinition.apiextensions.k8s.io/{file.stem}" not in present
    ]
    if missing:
        listed = [word for file in missing for word in ("-f", str(file))]
        await kubectl("create", *listed)
        await kubectl("wait", "--for=condition=Established", "--timeout=30s", *listed)


@contextlib.asynccontextmanager
async def controlling(
    cluster: Cluster, *, ownership: Ownership = EVERYTHING, webhooks: bool = False
) -> AsyncIterator[Running]:
    """Once it has read all kinds. With `webhooks`, once the API server asks them."""
    port = _free_port()
    settings = ControllerSettings(
        ownership=ownership,
        webhooks=WebhookSettings("127.0.0.1", port, f"https://127.0.0.1:{port}") if webhooks else None,
        lease_seconds=3,
    )
    async with KubernetesStore(cluster) as store, asyncio.TaskGroup() as tasks:
        with contextlib.suppress(errors.AlreadyExists):
            await write_one(store, Create(core.NAMESPACE, {"metadata": {"name": names.NAMESPACE}}))
        up: asyncio.Future[Running] = asyncio.get_running_loop().create_future()
        running = tasks.create_task(clustered.controller(cluster, settings, up.set_result))
        try:
            found = await up
            if webhooks:
                await until(lambda: _is_asked(store))
            yield found
        finally:
            running.cancel()
            await asyncio.wait([running])
            if webhooks:
                # Nobody answers any more: what they must be asked about could not be made.
                await store.write([Delete(kind, Key("", names.WEBHOOK)) for kind in CONFIGURATIONS])


async def _is_asked(store: KubernetesStore) -> bool:
    metadata = {"name": "probe", "namespace": "default", "labels": {kueue_names.QUEUE_LABEL: "none"}}
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}}
    job = {"metadata": metadata, "spec": {"template": template}}
    made = await write_one(store, Create(batch.JOB, job, Options(dry_run=True)))
    return made.read(batch.Job).spec.suspend is True


async def until(holds: Callable[[], Awaitable[bool]], seconds: float = 30.0) -> None:
    async with asyncio.timeout(seconds):
        while not await holds():
            await asyncio.sleep(0.1)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
