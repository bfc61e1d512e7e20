"""Removes checkpoints and event files where they are kept: as a task on a node, which can reach what the server may
not.

Whatever is asked for may be asked for again: what is gone already is no trouble.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from uuid import uuid4

from sqlalchemy import Connection

from muster.accounts.audit import By, Deed, note
from muster.api import raw
from muster.api.raw import Document
from muster.engines.protocol import AllocationId, Request
from muster.experiments import launching
from muster.experiments.experiment_records import Experiment
from muster.experiments.launching import LaunchServices
from muster.runtime.clock import Clock
from muster.tasks import task_pods, task_records, workspace_room
from muster.tasks.contract import Allocations, Exited, Launch
from muster.tasks.glue.storages import ALL
from muster.tasks.logs import TaskLogs
from muster.tasks.submitting import TaskSettings
from muster.tasks.task_config import Environment, Resources, TaskConfig, TaskType
from muster.tasks.task_pods import Cluster, TaskFacts
from muster.tasks.task_records import NewTask

MOST_AT_ONCE: Final = 1000
"""Checkpoints of one task: what it is told must fit into its environment."""


@dataclass(frozen=True, slots=True)
class Removal:
    """`storage`: where all of it is kept. `directories`: beside checkpoints, wholly."""

    storage: Document
    uuids: Sequence[str] = ()
    globs: Sequence[str] = ALL
    directories: Sequence[str] = ()


class Removals:
    """Register its handlers by `attach` before allocations run."""

    def __init__(
        self,
        services: LaunchServices,
        allocations: Allocations,
        logs: TaskLogs,
        clock: Clock,
        settings: TaskSettings,
        cluster: Cluster,
    ) -> None:
        self._services = services
        self._allocations = allocations
        self._logs = logs
        self._clock = clock
        self._settings = settings
        self._cluster = cluster
        self._waiting: dict[str, asyncio.Future[str]] = {}
        """By task: for how it ended; empty where it went well."""

    def attach(self) -> None:
        self._allocations.on_exit(TaskType.CHECKPOINT_GC.value, self._exited)

    async def start(self, by: By, experiment: Experiment, wanted: Removal) -> list[str]:
        """The tasks that will do it."""
        parts = [wanted.uuids[at : at + MOST_AT_ONCE] for at in range(0, len(wanted.uuids), MOST_AT_ONCE)] or [()]
        tasks = []
        for number, uuids in enumerate(parts):
            directories = wanted.directories if number == 0 else ()
            part = Removal(wanted.storage, uuids, wanted.globs, directories)
            tasks.append(await self._start(by, experiment, part))
        return tasks

    async def finish(self, by: By, experiment: Experiment, wanted: Removal) -> str:
        """Returns when it has ended: empty where all went well, else what did not."""
        ended = [asyncio.shield(self._waiting[task]) for task in await self.start(by, experiment, wanted)]
        return next(filter(None, await asyncio.gather(*ended)), "")

    async def _start(self, by: By, experiment: Experiment, wanted: Removal) -> str:
        id, now = str(uuid4()), self._clock.now()
        new = NewTask(
            id=id,
            type=TaskType.CHECKPOINT_GC.value,
            job=str(uuid4()),
            user=experiment.user,
            workspace=experiment.workspace,
            description=f"Removal of checkpoints (Experiment {experiment.id})",
            config={},
            snapshot={"experiment": experiment.id},
        )

        def record(connection: Connection) -> None:
            task_records.add(connection, new, now)
            what = f"{len(wanted.uuids)} checkpoints, {len(wanted.directories)} directories of event files"
            note(connection, now, by, Deed("checkpoint.remove", f"experiment {experiment.id}", what))

        await self._services.database.write(record)
        self._waiting[id] = asyncio.get_running_loop().create_future()
        try:
            await self._allocations.start(await self._launch(experiment, id, wanted))
        except BaseException:
            self._waiting.pop(id).cancel()
            await self._services.database.write(lambda connection: task_records.remove(connection, id))
            raise
        return id

    async def _launch(self, experiment: Experiment, task: str, wanted: Removal) -> Launch:
        services = self._services
        namespace = await workspace_room.namespace(services.accounts.bindings, services.store, experiment.workspace)
        await self._cluster.glue.place(services.store, namespace)
        facts = TaskFacts(kind=TaskType.CHECKPOINT_GC, username=experiment.username, device="cpu")
        template = task_pods.template(
            task_config(experiment), facts, self._cluster, self._settings.defaults.cpu_pod_spec
        )
        task_pods.add_volumes(template, launching.storage_volumes(wanted.storage))
        told = {
            "storage": wanted.storage,
            "uuids": list(wanted.uuids),
            "globs": list(wanted.globs),
            "directories": list(wanted.directories),
        }
        request = Request(
            allocation=AllocationId(f"{task}.1"),
            task=task,
            task_type=TaskType.CHECKPOINT_GC.value,
            template=template,
            name=f"Removal of checkpoints (Experiment {experiment.id})",
            owner=experiment.username,
            namespace=namespace,
        )
        # Not among the plain variables: it may hold keys of the storage.
        return Launch(request, experiment.user, secrets={"DET_REMOVAL": raw.encode(told).decode()})

    async def _exited(self, exited: Exited) -> None:
        services, at = self._services, exited.state.ended_at or self._clock.now()
        await services.accounts.accounts.close_task(exited.task)
        await services.database.write(lambda connection: task_records.change(connection, exited.task, {"ended": at}))
        await self._logs.ended(exited.task)
        waiting = self._waiting.pop(exited.task, None)
        if waiting is not None and not waiting.done():
            ended = exited.ended
            waiting.set_result("" if ended.failure is None and not ended.is_killed else ended.reason)


def task_config(experiment: Experiment) -> TaskConfig:
    """It reaches the storage as the experiment's trials do: by a directory that they have mounted, by variables or a
    service account that lead to credentials."""
    trials = launching.task_config(experiment)
    environment = Environment(variables=trials.environment.variables, pod_spec=trials.environment.pod_spec)
    return TaskConfig(environment=environment, resources=Resources(slots=0), bind_mounts=trials.bind_mounts)
