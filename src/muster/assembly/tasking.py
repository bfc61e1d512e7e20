"""Tasks: the engine that runs them, their logs and allocations, put together."""

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass

from muster.accounts.authorizing import Authorizer
from muster.accounts.service import Accounts
from muster.assembly.controlling import Component
from muster.engines.pod_documents import USUAL, Customs, service_host
from muster.engines.pods import PodsEngine
from muster.engines.protocol import ResourceManager
from muster.engines.sizing import Auxiliary
from muster.records import Database
from muster.runtime.clock import Clock
from muster.server.determined import allocations
from muster.server.determined import logs as log_routes
from muster.server.determined.routing import Route, large
from muster.store.protocol import Store
from muster.tasks.allocating import AllocationService
from muster.tasks.allocation_effects import at_first_part
from muster.tasks.harness import Harness
from muster.tasks.log_retention import FOREVER, Retention
from muster.tasks.logs import TaskLogs


@dataclass(frozen=True, slots=True)
class TaskServices:
    """`components` must be kept running. Whoever launches tasks names its handlers (`allocations.on_exit`) before."""

    engine: ResourceManager
    logs: TaskLogs
    allocations: AllocationService
    harness: Harness
    retention: Retention
    database: Database
    clock: Clock
    customs: Customs = USUAL

    @property
    def components(self) -> Mapping[str, Component]:
        return {
            "pods engine": self.engine.run,
            "allocations of tasks": self.allocations.run,
            "retention of logs": self.retention.run,
        }

    def routes(self, authorizer: Authorizer) -> Sequence[Route]:
        return (
            *allocations.routes(self.harness, self.database),
            *map(large, log_routes.routes(self.logs, self.retention, authorizer, self.clock)),
        )


@contextlib.asynccontextmanager
async def task_services(
    store: Store,
    clock: Clock,
    database: Database,
    accounts: Accounts,
    auxiliary: Auxiliary,
    retention_days: int = FOREVER,
    customs: Customs = USUAL,
) -> AsyncIterator[TaskServices]:
    """Open while the context lasts. `auxiliary`: what a task without slots asks for. `retention_days`: of logs.
    `customs`: of the cluster that they run on."""
    engine = PodsEngine(store, clock, auxiliary, customs=customs)
    async with TaskLogs(database, clock) as logs:
        host = service_host if customs.is_proxied_by_service else at_first_part
        service = AllocationService(database, clock, engine, accounts, logs, host=host)
        harness, retention = Harness(service, database, clock), Retention(database, clock, retention_days, logs.forget)
        yield TaskServices(engine, logs, service, harness, retention, database, clock, customs)
