"""Objects of a Kubernetes cluster, for a server of tasks and experiments beside them. `muster controller` looks after
the objects; here they are made, watched, and told apart by whose tasks they are."""

import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

from muster.access.kubeconfig import Cluster
from muster.api.ownership import EVERYTHING, Ownership
from muster.assembly.configured import Policies, ServeSettings
from muster.assembly.platform import ForeignCluster, Objects, Tokens
from muster.controllers.quota.standings import Standings
from muster.runtime.clock import Clock
from muster.runtime.informers import Shared
from muster.runtime.metrics import Registry
from muster.runtime.mirroring import mirrored
from muster.server import access
from muster.server.admission.reviewing import SCHEDULER
from muster.server.app import App, ObjectsElsewhere, Version
from muster.server.cluster_logs import ClusterLogs
from muster.store.connection import Connection
from muster.store.kubernetes import KubernetesStore
from muster.version import VERSION


@dataclass(frozen=True, slots=True)
class ClusterObjects:
    """`service`: the URL of our Service there; empty where we run elsewhere."""

    cluster: Cluster
    ownership: Ownership = EVERYTHING
    service: str = ""

    @contextlib.asynccontextmanager
    async def __call__(
        self, _settings: ServeSettings, policies: Policies, clock: Clock, tokens: Tokens, /
    ) -> AsyncIterator[Objects]:
        """Open while the context lasts."""
        cluster = self.cluster
        async with (
            KubernetesStore(cluster, owned=self.ownership) as store,
            # Logs are read for as long as they come, beside requests that take turns.
            Connection(cluster.url, cluster.credentials, server_name=cluster.server_name) as connection,
            mirrored(store, clock) as mirror,
        ):
            shared, metrics = Shared(mirror), Registry()
            standings = Standings(shared, clock, policies.quota)
            known: Mapping[str, access.Identity] = {tokens.admin: access.administrator()}
            yield Objects(
                store=shared,
                app=App(ObjectsElsewhere(), access.TokenAuthenticator(known), Version(VERSION), metrics.pieces),
                logs=ClusterLogs(connection),
                samples=None,
                queues=standings,
                metrics=metrics,
                components={"standings in queues": standings.run},
                cluster=ForeignCluster(SCHEDULER, self.service),
            )
