"""Tasks that were submitted: who sees them, how they fare, how they are ended; and what happens when they have.

Commands, notebooks, shells and TensorBoards run once. Generic tasks may be paused and run again, and have children.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Final

from sqlalchemy import Connection

from muster.accounts import policies
from muster.accounts.audit import By, Deed, note
from muster.accounts.authorizing import Hidden
from muster.accounts.callers import Caller, WorkspaceId
from muster.accounts.permissions import Permission
from muster.accounts.policies import Workload
from muster.accounts.projects import ProjectId
from muster.api import errors
from muster.api.errors import ApiError
from muster.api.meta import Instant
from muster.records.paging import Page
from muster.tasks import config_fields, priorities, task_records
from muster.tasks.allocation_states import Signal
from muster.tasks.contract import Exited
from muster.tasks.generic_states import SIGNALS, GenericState, Settled, settle
from muster.tasks.log_lines import Level
from muster.tasks.submitting import Services, Submission, Submitted, Submitter
from muster.tasks.task_config import TaskType
from muster.tasks.task_records import Task, TaskFilter

RUN_ONCE: Final = (TaskType.COMMAND, TaskType.NOTEBOOK, TaskType.SHELL, TaskType.TENSORBOARD)
ALL: Final = (*RUN_ONCE, TaskType.GENERIC)
_SHOWN_SECONDS: Final = 86_400.0
"""For so long what has ended is still listed."""
_SECRETS: Final = frozenset({"private_key"})
_VACATE_SECONDS: Final = 0.2


class Tasks:
    """Register its handlers by `attach` before allocations run, and call `restore`; then keep `run` running."""

    def __init__(self, services: Services, submitter: Submitter) -> None:
        self._services = services
        self.submitter = submitter
        self.idle = services.idle

    def attach(self) -> None:
        allocations = self._services.allocations
        for kind in RUN_ONCE:
            allocations.on_exit(kind.value, self._exited)
        allocations.on_exit(TaskType.GENERIC.value, self._generic_exited)

    async def restore(self, contexts: Iterable[str] = ()) -> None:
        """After a start: what was never acknowledged is not done, idleness is watched again. `contexts`: kept for
        others."""
        services = self._services
        rows = await services.database.read(lambda connection: task_records.unfinished(connection, ALL))
        for task in rows:
            run = task.allocation
            if run is None:
                await self._end(task.id, services.clock.now())
            elif run.phase != "TERMINATED":
                self.idle.watch(task.id, run.id, config_fields.duration(task.config.get("idle_timeout")))
            elif task.state == GenericState.ACTIVE and not run.is_open:
                await self._move(task.id, [GenericState.ACTIVE], GenericState.PAUSED)
        kept = [task.id for task in rows if task.allocation is not None]
        generic = await services.database.read(lambda c: task_records.ids(c, TaskType.GENERIC.value))
        await services.contexts.keep_only([*kept, *generic, *contexts])

    async def run(self) -> None:
        """Whoever was to stop right before a crash may not have been told. Then idleness is watched."""
        for task in await self._services.database.read(lambda c: task_records.unfinished(c, [TaskType.GENERIC])):
            if task.state in SIGNALS:
                await self._stop_run(task.id, "it was to stop before the server was started again")
        await self.idle.run()

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
            raise Hidden(task_records.not_found(task).message)
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
            await self._cancel(task.id, reason)
        elif task.allocation is not None:
            await self._services.allocations.signal(task.allocation.id, Signal.KILL, reason)

    async def set_priority(self, task: Task, priority: int) -> None:
        """Raises BadRequest, Conflict where it has ended."""
        run = task.allocation
        if not 1 <= priority <= 99:
            raise errors.BadRequest(f"priority: must be a whole number from 1 to 99, found {priority}")
        applying = await self._services.accounts.policies.applying(Workload.TASK, task.workspace)
        policies.check_change({"resources": {"priority": priority}}, applying)
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
        if not await self._move(task.id, [GenericState.ACTIVE], GenericState.STOPPING_PAUSED):
            raise errors.Conflict(f"task {task.id} is {task.state}: only one that is active can be paused")
        await self._stop_run(task.id, f"user {by.caller.username} paused it")

    async def unpause(self, task: Task) -> None:
        """Raises Conflict."""
        if task.state == GenericState.ACTIVE:
            return
        if not await self._move(task.id, [GenericState.PAUSED], GenericState.ACTIVE):
            raise errors.Conflict(f"task {task.id} is {task.state}: only one that is paused can go on")
        try:
            await self._again(await self.get(task.id))
        except Exception:
            await self._move(task.id, [GenericState.ACTIVE], GenericState.PAUSED)
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

    async def _cancel(self, task: str, reason: str) -> None:
        """One that does not run ends at once."""
        if await self._move(task, [GenericState.PAUSED], GenericState.CANCELED):
            await self._end(task, self._services.clock.now())
            return
        await self._move(task, [GenericState.ACTIVE, GenericState.STOPPING_PAUSED], GenericState.STOPPING_CANCELED)
        await self._stop_run(task, reason)

    async def _stop_run(self, task: str, reason: str) -> None:
        """Its latest run, where it is to stop."""
        found = await self.get(task)
        if found.allocation is not None and found.state in SIGNALS:
            signal = SIGNALS[GenericState(found.state)]
            await self._services.allocations.signal(found.allocation.id, signal, reason)

    async def _again(self, task: Task) -> None:
        await self.submitter.again(task)
        # Whoever wanted it to stop meanwhile has only found the run before.
        await self._stop_run(task.id, "it was to stop before it had begun again")

    async def _move(self, task: str, before: Sequence[GenericState], after: GenericState) -> bool:
        """False where it is in none of these states."""
        return await self._services.database.write(lambda c: task_records.move(c, task, before, after))

    # When they end

    async def _exited(self, exited: Exited) -> None:
        self.idle.forget(exited.task)
        await self._end(exited.task, exited.state.ended_at or self._services.clock.now())
        await self._services.contexts.delete(exited.task)

    async def _generic_exited(self, exited: Exited) -> None:
        task, settled = await self._settled(exited)
        if settled.is_over:
            await self._end(task.id, exited.state.ended_at or self._services.clock.now())
            return
        await self._services.accounts.accounts.close_task(task.id)
        run = task.allocation
        if settled.state is not GenericState.ACTIVE or run is None or run.id != exited.allocation:
            return
        try:
            await self._again(task)
        except ApiError as error:
            if error.retryable:
                raise
            await self._services.logs.tell(task.id, f"it cannot be run again: {error.message}", Level.ERROR)
            await self._move(task.id, [GenericState.ACTIVE], GenericState.ERROR)
            await self._end(task.id, self._services.clock.now())

    async def _settled(self, exited: Exited) -> tuple[Task, Settled]:
        while True:  # somebody may pause or cancel it at this moment
            task = await self.get(exited.task)
            state = GenericState(task.state)
            settled = settle(state, exited)
            if await self._move(task.id, [state], settled.state):
                return task, settled

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
