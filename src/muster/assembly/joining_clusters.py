"""A node of a Kubernetes cluster: the agent in a kubelet's place, which runs pods as processes of this machine."""

import contextlib
import logging
import random
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from muster.access.kubeconfig import Cluster
from muster.agent import certificates, cgroups, kubelet, registration
from muster.agent.asking import ClusterQuestions
from muster.agent.host_process import HostProcessRuntime
from muster.agent.node import Agent, NodeConfig, own_environment
from muster.api import core, errors
from muster.api.objects import Key
from muster.assembly.joining import LateAgent
from muster.assembly.machines import NodeSettings, shares
from muster.assembly.private_files import make_private
from muster.runtime.clock import SystemClock
from muster.runtime.supervision import supervise
from muster.server.listening import listening
from muster.store.connection import Connection
from muster.store.kubernetes import KubernetesStore
from muster.store.protocol import Store

_log = logging.getLogger(__name__)
_PUBLISHED: Final = Key("kube-system", "extension-apiserver-authentication")
"""The ConfigMap in which an API server says, among others, who signs the certificates of clients."""
_FRESH_SECONDS: Final = 10.0
"""Every pod of a cluster shows its authority's certificate: to look at that each second would be most of the load."""


@dataclass(frozen=True, slots=True)
class KubeletSettings:
    """`host`: the address of this machine, where the API server reads logs; empty for the one it speaks from. `port` 0
    takes any free one. `client_ca`: PEM of who signs the certificates of callers; None for what the cluster says."""

    cluster: Cluster
    data: Path
    node: NodeSettings = field(default_factory=NodeSettings)
    host: str = ""
    port: int = 0
    client_ca: str | None = None


async def agent(settings: KubeletSettings, announce: Callable[[str], None]) -> None:
    """A node of the cluster, until cancelled."""
    clock, cluster = SystemClock(), settings.cluster
    make_private(settings.data)
    [(name, machine)] = shares(settings.node)
    host = settings.host or registration.own_address()
    async with contextlib.AsyncExitStack() as stack:
        store = await stack.enter_async_context(KubernetesStore(cluster))
        connection = Connection(cluster.url, cluster.credentials, server_name=cluster.server_name)
        questions = ClusterQuestions(await stack.enter_async_context(connection), name)
        late = LateAgent()
        authority = settings.client_ca or await _published_authority(store)
        port = 0
        if authority:
            served = kubelet.application(late, permits=questions.permits, clock=clock)
            tls = _requiring(certificates.make(name, settings.data, clock.now()).context, authority)
            url = await stack.enter_async_context(listening(served, host, settings.port, tls=tls))
            port = urlsplit(url).port or 0
        config = NodeConfig(
            name,
            settings.data / "nodes" / name,
            machine,
            settings.node.labels,
            address=host,
            port=port,
            base=own_environment() | _service(cluster),
            fresh_seconds=_FRESH_SECONDS,
        )
        runtime = HostProcessRuntime(clock, groups=cgroups.find())
        stack.push_async_callback(runtime.close)
        late.agent = Agent(
            store, runtime=runtime, clock=clock, entropy=random.SystemRandom(), config=config, issuer=questions
        )
        announce(name)
        await supervise({f"agent {name}": late.agent.run}, clock=clock)


async def _published_authority(store: Store) -> str:
    """Empty where the cluster does not say it, or not to us: then nobody can be let in."""
    try:
        found = (await store.get(core.CONFIG_MAP, _PUBLISHED)).read(core.ConfigMap)
    except (errors.NotFound, errors.Forbidden) as error:
        _log.warning("logs of this node cannot be read through the cluster: %s; see --client-ca", error.message)
        return ""
    return (found.data or {}).get("client-ca-file", "")


def _requiring(context: ssl.SSLContext, authority: str) -> ssl.SSLContext:
    """Lets in nobody without a certificate of the authority. Raises BadRequest."""
    try:
        context.load_verify_locations(cadata=authority)
    except ssl.SSLError as error:
        raise errors.BadRequest(f"the authority that signs clients' certificates is no certificate: {error}") from error
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def _service(cluster: Cluster) -> dict[str, str]:
    """How programs in pods find the API server: there is no network of services here, so it is its own address."""
    url = urlsplit(cluster.url)
    port = url.port or (443 if url.scheme == "https" else 80)
    return {"KUBERNETES_SERVICE_HOST": url.hostname or "", "KUBERNETES_SERVICE_PORT": str(port)}
