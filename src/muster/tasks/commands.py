"""Tasks that were submitted: who sees them, how they fare, how they are ended; and what happens when they have.

Commands, notebooks, shells and TensorBoards run once. Generic tasks may be paused and run again, and have children.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from sqlalchemy import Connection

from muster.accounts.audit import By, Deed, note
from muster.accounts.callers import Caller, WorkspaceId
from muster.accounts.permissions import Permission
from muster.accounts.projects import ProjectId
from muster.api import errors
from muster.api.meta import Instant
from muster.records.paging import Page
from muster.tasks import config_fields, priorities, task_records
from muster.tasks.allocation_states import Signal
from muster.tasks.contract import Exited
from muster.tasks.submitting import Services, Submission, Submitted, Submitter
from muster.tasks.task_config import TaskType
from muster.tasks.task_records import Task, TaskFilter

RUN_ONCE: Final = (TaskType.COMMAND, TaskType.NOTEBOOK, TaskType.SHELL, TaskType.TENSORBOARD)
ALL: Final = (*RUN_ONCE, TaskType.GENERIC)
_SHOWN_SECONDS: Final = 86_400.0
"""For so long what has ended is still listed."""
_SECRETS: Final = frozenset({"private_key"})
_VACATE_SECONDS: Final = 0.2


class GenericState(StrEnum):
    ACTIVE = "ACTIVE"
    PAUSED = "PAUSED"
    COMPLETED = "COMPLETED"
    ERROR = "ERROR"
    CANCELED = "CANCELED"
    STOPPING_PAUSED = "STOPPING_PAUSED"
    STOPPING_CANCELED = "STOPPING_CANCELED"


_OVER: Final = frozenset({GenericState.COMPLETED, GenericState.ERROR, GenericState.CANCELED})


@dataclass(frozen=True, slots=True)
class Settled:
    """What becomes of a generic task whose run has ended."""

    state: GenericState
    is_over: bool


def settle(state: str, exited: Exited) -> Settled:
    """Pure. A run that had to make room, whether it heard of it or not, goes on; one that was paused waits for
    somebody."""
    if state == GenericState.STOPPING_CANCELED:
        return Settled(GenericState.CANCELED, True)
    if state == GenericState.STOPPING_PAUSED:
        return Settled(GenericState.PAUSED, False)
    if exited.ended.is_preempted or exited.ended.is_killed:
        return Settled(GenericState.ACTIVE, False)
    return Settled(GenericState.ERROR if exited.ended.failure is not None else GenericState.COMPLETED, True)


class Tasks:
    """Register its handlers by `attach` before allocations run; call `restore` when it begins."""

    def __init__(self, services: Services, submitter: Submitter) -> None:
        self._services = services
        self.submitter = submitter
        self.idle = services.idle

    def attach(self) -> None:
        allocations = self._services.allocations
        for kind in RUN_ONCE:
            allocations.on_exit(kind.value, self._exited)
        allocations.on_exit(TaskType.GENERIC.value, self._generic_exited)

    async def restore(self) -> None:
        """After a start: what was submitted and never acknowledged is over, idleness is watched again."""
        services = self._services
        rows = await services.database.read(lambda connection: task_records.unfinished(connection, ALL))
        for task in rows:
            run = task.allocation
            if run is None:
                await self._end(task.id, services.clock.now())
            elif run.phase != "TERMINATED":
                self.idle.watch(task.id, run.id, config_fields.duration(task.config.get("idle_timeout")))
        kept = [task.id for task in rows if task.allocation is not None]
        generic = await services.database.read(lambda c: task_records.ids(c, TaskType.GENERIC.value))
        await services.contexts.keep_only([*kept, *generic])

    # Looking

    async def get(self, task: str, kinds: Collection[TaskType] = ()) -> Task:
        """Raises NotFound."""
        types = [kind.value for kind in kinds]
        return await self._services.database.read(lambda connection: task_records.get(connection, task, types))

    async def visible(self, caller: Caller, task: str, kinds: Collection[TaskType] = ()) -> Task:
        """The same answer whether it is not there or not to be seen. Raises NotFound."""
        found = await self.get(task, kinds)
        is_own = caller.task == task
        if not is_own and not await self._services.accounts.authorizer.allows(
            caller, Permission.VIEW_TASKS, found.workspace
        ):
            raise task_records.not_found(task)
        return found

    async def list(self, caller: Caller, chosen: TaskFilter) -> Page[Task]:
        """Of those that may be seen; without what ended long ago."""
        visible = await self._services.accounts.authorizer.workspaces(caller, Permission.VIEW_TASKS)
        after = Instant(self._services.clock.now() - _SHOWN_SECONDS)
        wanted = replace(chosen, visible=visible, ended_after=after)
        return await self._services.database.read(lambda connection: task_records.listed(connection, wanted))

    # Doing

    async def submit(self, by: By, wanted: Submission) -> Submitted:
        return await self.submitter.submit(by, wanted)

    async def kill(self, by: By, task: Task) -> None:
        """Of one that is over: nothing happens."""
        await self._services.database.write(
            lambda c: note(c, self._services.clock.now(), by, Deed("task.kill", task.id))
        )
        await self._kill(task, f"user {by.caller.username} asked for it")

    async def _kill(self, task: Task, reason: str) -> None:
        if task.ended is not None:
            return
        if task.type == TaskType.GENERIC:
            await self._cancel(task)
        run = task.allocation
        if run is not None:
            await self._services.allocations.signal(run.id, Signal.KILL, reason)

    async def set_priority(self, task: Task, priority: int) -> None:
        """Raises BadRequest, Conflict where it has ended."""
        run = task.allocation
        if not 1 <= priority <= 99:
            raise errors.BadRequest(f"priority: must be a whole number from 1 to 99, found {priority}")
        if task.ended is not None or run is None or run.phase == "TERMINATED":
            raise errors.Conflict(f"task {task.id} has ended")
        await priorities.set_priority(self._services.store, task.id, priority)
        config = {**task.config, "resources": {**task.config.get("resources", {}), "priority": priority}}
        await self._services.database.write(lambda c: task_records.change(c, task.id, {"config": config}))

    def busy(self, task: str) -> None:
        self.idle.busy(task)

    # Generic tasks

    async def pause(self, by: By, task: Task) -> None:
        """Raises Conflict, BadRequest."""
        if task.snapshot.get("is_unpausable"):
            raise errors.BadRequest(f"task {task.id} was created as one that cannot be paused")
        if task.state == GenericState.PAUSED:
            return
        if task.ended is not None or task.state != GenericState.ACTIVE:
            raise errors.Conflict(f"task {task.id} is {task.state}: only one that is active can be paused")
        await self._set_state(task.id, GenericState.STOPPING_PAUSED)
        run = task.allocation
        assert run is not None
        await self._services.allocations.signal(run.id, Signal.TERMINATE, f"user {by.caller.username} paused it")

    async def unpause(self, task: Task) -> None:
        """Raises Conflict."""
        if task.state == GenericState.ACTIVE:
            return
        if task.state != GenericState.PAUSED:
            raise errors.Conflict(f"task {task.id} is {task.state}: only one that is paused can go on")
        await self._set_state(task.id, GenericState.ACTIVE)
        try:
            await self.submitter.again(task)
        except BaseException:
            await self._set_state(task.id, GenericState.PAUSED)
            raise

    async def kill_tree(self, by: By, task: Task, *, from_root: bool) -> None:
        """With all that it has made; `from_root`: with all that what made it has made."""
        while from_root and task.parent:
            task = await self.get(task.parent, [TaskType.GENERIC])
        waiting = [task]
        while waiting:
            found = waiting.pop()
            await self.kill(by, found)
            waiting += await self._children(found.id)

    async def _children(self, task: str) -> Sequence[Task]:
        found = await self._services.database.read(lambda connection: task_records.children(connection, task))
        return [await self.get(child, [TaskType.GENERIC]) for child in found]

    async def _cancel(self, task: Task) -> None:
        """One that does not run ends at once."""
        if task.state == GenericState.PAUSED:
            await self._set_state(task.id, GenericState.CANCELED)
            await self._end(task.id, self._services.clock.now())
        elif task.state not in _OVER:
            await self._set_state(task.id, GenericState.STOPPING_CANCELED)

    async def _set_state(self, task: str, state: GenericState) -> None:
        await self._services.database.write(lambda c: task_records.change(c, task, {"state": state.value}))

    # When they end

    async def _exited(self, exited: Exited) -> None:
        self.idle.forget(exited.task)
        await self._end(exited.task, exited.state.ended_at or self._services.clock.now())
        await self._services.contexts.delete(exited.task)

    async def _generic_exited(self, exited: Exited) -> None:
        task = await self.get(exited.task)
        settled = settle(task.state, exited)
        await self._set_state(task.id, settled.state)
        if settled.is_over:
            await self._end(task.id, exited.state.ended_at or self._services.clock.now())
            return
        await self._services.accounts.accounts.close_task(task.id)
        run = task.allocation
        if settled.state is GenericState.ACTIVE and run is not None and run.id == exited.allocation:
            await self.submitter.again(task)

    async def _end(self, task: str, at: Instant) -> None:
        def end(connection: Connection) -> None:
            found = task_records.get(connection, task)
            kept = {name: value for name, value in found.snapshot.items() if name not in _SECRETS}
            task_records.change(connection, task, {"ended": found.ended or at, "snapshot": kept})

        # Its sessions first: what has ended must not be able to do anything any more.
        await self._services.accounts.accounts.close_task(task)
        await self._services.database.write(end)
        await self._services.logs.ended(task)

    # Workspaces that are deleted

    async def is_in(self, workspace: WorkspaceId, project: ProjectId | None) -> bool:
        if project is not None:
            return False
        return bool(await self._services.database.read(lambda c: task_records.count(c, workspace)))

    async def vacate(self, workspace: WorkspaceId, project: ProjectId | None) -> None:
        chosen = TaskFilter(workspace=workspace)
        while await self.is_in(workspace, project):
            page = await self._services.database.read(lambda c: task_records.listed(c, chosen))
            for task in page.items:
                await self._kill(task, "its workspace was deleted")
            await self._services.clock.sleep(_VACATE_SECONDS)
