"""Takes tasks of all kinds: configures them, keeps their files, and has them run.

What was acknowledged is in the records and will run; what fails on the way leaves nothing behind.
"""

import asyncio
import secrets
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol
from uuid import uuid4

from sqlalchemy import Connection

from muster.accounts.audit import By, Deed, note
from muster.accounts.callers import WorkspaceId
from muster.accounts.permissions import Permission
from muster.accounts.policies import Workload
from muster.accounts.services import AccountServices
from muster.api import errors
from muster.api.errors import ApiError
from muster.api.raw import JSON, Document
from muster.engines.protocol import AllocationId, Caveat, Pool, Request
from muster.engines.sizing import DEFAULT_POOL, GPU
from muster.records import Database
from muster.runtime.clock import Clock
from muster.store.protocol import Store
from muster.tasks import agent_users, configuring, kinds, naming, task_pods, task_records, workspace_room
from muster.tasks.allocating import AllocationService
from muster.tasks.config_sections import Allowed
from muster.tasks.configuring import Layers
from muster.tasks.container_defaults import ContainerDefaults
from muster.tasks.contexts import Contexts, File
from muster.tasks.contract import Launch
from muster.tasks.idle import IdleWatch
from muster.tasks.kinds import EventFiles, Means
from muster.tasks.logs import TaskLogs
from muster.tasks.ports import PORT_VARIABLE, ServicePorts
from muster.tasks.proxy_tokens import ProxyTokens
from muster.tasks.task_config import TaskConfig, TaskType
from muster.tasks.task_pods import Cluster, TaskFacts
from muster.tasks.task_records import NewTask, Task


class PoolList(Protocol):
    async def pools(self) -> Sequence[Pool]: ...


class EventSource(Protocol):
    """Where TensorBoards find what experiments and trials have written."""

    async def find(self, by: By, experiments: Sequence[int], trials: Sequence[int]) -> EventFiles:
        """Raises NotFound."""
        ...


@dataclass(frozen=True, slots=True)
class TaskSettings:
    """`idle_seconds`: by kind, where a configuration says nothing. `agent_user`: under whom tasks run."""

    defaults: ContainerDefaults = field(default_factory=ContainerDefaults)
    allowed: Allowed = field(default_factory=Allowed)
    agent_user: str = "root"
    idle_seconds: Mapping[TaskType, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Submission:
    """What somebody wants to run. `archive`: a tar.gz instead of `files`. `parent`, `forked_from`, `is_unpausable` and
    `inherits_context`: of generic tasks."""

    kind: TaskType
    workspace: WorkspaceId
    config: Mapping[str, JSON]
    template: str = ""
    files: Sequence[File] = ()
    archive: bytes = field(default=b"", repr=False)
    experiments: Sequence[int] = ()
    trials: Sequence[int] = ()
    parent: str = ""
    forked_from: str = ""
    inherits_context: bool = False
    is_unpausable: bool = False


@dataclass(frozen=True, slots=True)
class Submitted:
    task: Task
    caveats: Sequence[Caveat]


@dataclass(frozen=True, slots=True)
class Services:
    """What submitting needs of others."""

    database: Database
    clock: Clock
    store: Store
    accounts: AccountServices
    allocations: AllocationService
    logs: TaskLogs
    pools: PoolList
    contexts: Contexts
    tokens: ProxyTokens
    idle: IdleWatch
    events: EventSource


class Submitter:
    def __init__(self, services: Services, settings: TaskSettings, cluster: Cluster) -> None:
        self._services = services
        self._settings = settings
        self._cluster = cluster
        self._ports = ServicePorts(lambda: services.allocations.ports.taken, secrets.randbelow)

    async def configure(self, by: By, wanted: Submission) -> TaskConfig:
        """Raises BadRequest, NotFound, Forbidden."""
        accounts, settings = self._services.accounts, self._settings
        workspace = await accounts.workspaces.get(wanted.workspace)
        if workspace.is_archived or workspace.state:
            raise errors.BadRequest(f"workspaceId: workspace {workspace.name!r} is archived or being deleted")
        layers = Layers(
            defaults=settings.defaults.config,
            template=await find_template(accounts, by, wanted.template),
            user=wanted.config,
            policies=await accounts.policies.applying(Workload.TASK, wanted.workspace),
        )
        config = configuring.configure(wanted.kind, layers, settings.allowed)
        usual = workspace.default_compute_pool if config.resources.slots else workspace.default_aux_pool
        available = await accounts.bindings.available(wanted.workspace)
        config = configuring.placed(config, usual or DEFAULT_POOL, available)
        if config.idle_seconds is None and wanted.kind in settings.idle_seconds:
            config = replace(config, idle_seconds=settings.idle_seconds[wanted.kind])
        if not config.description:
            config = replace(config, description=naming.description(wanted.kind, secrets.randbelow))
        agent = await agent_users.find(accounts, by.caller.user, wanted.workspace)
        name = (agent.user if agent is not None else None) or settings.agent_user
        return configuring.with_user(config, by.caller.username, name)

    async def submit(self, by: By, wanted: Submission) -> Submitted:
        """Raises BadRequest, TooLarge, NotFound, Forbidden, TooManyRequests."""
        config = await self.configure(by, wanted)
        task = str(uuid4())
        means = await self._means(by, wanted, task)
        try:
            kinds.check_ports(config, means.port)
            has_context = await self._keep_files(task, wanted)
        except BaseException:
            await self._forget(task, means)
            raise
        agent = await agent_users.find(self._services.accounts, by.caller.user, wanted.workspace)
        snapshot: Document = {
            **kinds.special(wanted.kind, config, means).snapshot,
            "experiment_ids": list(wanted.experiments),
            "trial_ids": list(wanted.trials),
            "has_context": has_context,
            "forked_from": wanted.forked_from,
            "is_unpausable": wanted.is_unpausable,
            "agent": agent_users.document(agent),
        }
        new = NewTask(
            id=task,
            type=wanted.kind.value,
            job=str(uuid4()),
            user=by.caller.user,
            workspace=wanted.workspace,
            description=config.description,
            config=config.document(),
            snapshot=snapshot,
            parent=wanted.parent,
            state="ACTIVE" if wanted.kind is TaskType.GENERIC else "",
        )
        return await self._wholly(self._begun(by, new, means), task, means)

    async def again(self, task: Task) -> Submitted:
        """A further run of a generic task, as it was configured."""
        number = len(task.allocations) + 1
        return await self._wholly(self._launched(task.id, Means(), number), task.id)

    async def _wholly(
        self, act: Coroutine[None, None, Sequence[Caveat]], task: str, means: Means | None = None
    ) -> Submitted:
        """Not in the task of whoever asks, who may go away: then it would be neither there nor not. `means`: of a new
        one, which is forgotten where it cannot even be begun."""
        try:
            running = self._services.allocations.spawn(_tried(act), f"submit {task}")
        except ApiError:
            act.close()
            if means is not None:
                await self._forget(task, means)
            raise
        done = await asyncio.shield(running)
        if isinstance(done, Exception):
            raise done
        return Submitted(await self._services.database.read(lambda c: task_records.get(c, task)), done)

    async def _forget(self, task: str, means: Means) -> None:
        self._ports.let_go(means.port)
        await self._services.contexts.delete(task)

    async def _begun(self, by: By, new: NewTask, means: Means) -> Sequence[Caveat]:
        services = self._services
        now = services.clock.now()
        slots = new.config["resources"]["slots"]

        def record(connection: Connection) -> None:
            workspace_room.check(connection, new.workspace, slots)
            task_records.add(connection, new, now)
            note(connection, now, by, Deed("task.create", new.id, f"{new.type} in workspace {new.workspace}"))

        try:
            await services.database.write(record)
            return await self._launched(new.id, means, 1)
        except Exception:
            await services.contexts.delete(new.id)
            await services.database.write(lambda connection: task_records.remove(connection, new.id))
            raise
        finally:
            self._ports.let_go(means.port)

    # Inside

    async def _means(self, by: By, wanted: Submission, task: str) -> Means:
        events = None
        if wanted.kind is TaskType.TENSORBOARD and (wanted.experiments or wanted.trials):
            events = await self._services.events.find(by, wanted.experiments, wanted.trials)
        return Means(
            port=self._ports.pick(wanted.kind) if wanted.kind in PORT_VARIABLE else 0,
            token=self._services.tokens.of(task) if wanted.kind is TaskType.NOTEBOOK else "",
            keys=naming.key_pair() if wanted.kind is TaskType.SHELL else None,
            events=events,
        )

    async def _keep_files(self, task: str, wanted: Submission) -> bool:
        contexts = self._services.contexts
        source = wanted.forked_from or (wanted.parent if wanted.inherits_context else "")
        if wanted.files:
            return await contexts.put(task, wanted.files)
        if wanted.archive:
            await contexts.put_archive(task, wanted.archive)
            return True
        return bool(source) and await contexts.copy(source, task)

    async def _launched(self, id: str, means: Means, number: int) -> Sequence[Caveat]:
        services = self._services
        task = await services.database.read(lambda connection: task_records.get(connection, id))
        kind = TaskType(task.type)
        config = configuring.configure(kind, Layers(user=_own(task.config, kind)), Allowed(["/"]))
        special = kinds.special(kind, config, means)
        namespace = await workspace_room.namespace(services.accounts.bindings, services.store, task.workspace)
        await self._cluster.glue.place(services.store, namespace)
        facts = TaskFacts(
            kind=kind,
            username=task.username,
            device=await self._device(config),
            words=special.words,
            variables=special.variables,
            has_context=bool(task.snapshot.get("has_context")),
            agent=agent_users.read(task.snapshot.get("agent") or {}),
        )
        defaults = self._settings.defaults
        pod_spec = defaults.gpu_pod_spec if facts.device == "cuda" else defaults.cpu_pod_spec
        template = task_pods.template(config, facts, self._cluster, pod_spec)
        if means.events is not None:
            task_pods.add_volumes(template, means.events.volumes)
        allocation = AllocationId(f"{id}.{number}")
        request = Request(
            allocation=allocation,
            task=id,
            task_type=kind.value,
            template=template,
            job=task.job,
            name=task.description,
            owner=task.username,
            namespace=namespace,
            pool=config.resources.pool,
            priority=config.resources.priority,
            slots=config.resources.slots,
            is_single_node=config.resources.is_single_node,
            is_preemptible=kind is TaskType.GENERIC and not task.snapshot.get("is_unpausable"),
            preemption_timeout_seconds=(
                defaults.preemption_seconds if config.preemption_seconds is None else config.preemption_seconds
            ),
        )
        ports = {PORT_VARIABLE[kind]: means.port} if means.port else {}
        try:
            token = await services.accounts.accounts.open_task(task.user, id)
            held = {**special.secrets, "DET_USER_TOKEN": token}
            services.idle.watch(id, allocation, config.idle_seconds)
            return await services.allocations.start(Launch(request, task.user, special.proxies, ports, held))
        except Exception:
            services.idle.forget(id)
            await services.accounts.accounts.close_task(id)
            raise

    async def _device(self, config: TaskConfig) -> str:
        if not config.resources.slots:
            return "cpu"
        pools = await self._services.pools.pools()
        found = [pool for pool in pools if pool.name == config.resources.pool]
        return "cuda" if found and found[0].slot_resource == GPU else "cpu"


async def find_template(accounts: AccountServices, by: By, name: str) -> Document:
    """`name`: empty for none. Raises NotFound, also where it may not be seen."""
    if not name:
        return {}
    found = await accounts.templates.get(name)
    if not await accounts.authorizer.allows(by.caller, Permission.VIEW_TEMPLATES, found.workspace):
        raise errors.NotFound(f"template {name[:80]!r} not found")
    return found.config


async def _tried(act: Coroutine[None, None, Sequence[Caveat]]) -> Sequence[Caveat] | Exception:
    """An error is whoever asked's to hear: here it would end the service."""
    try:
        return await act
    except Exception as error:
        return error


def _own(config: Document, kind: TaskType) -> Document:
    """As it is given again: services have an entrypoint of their own."""
    if kind in (TaskType.COMMAND, TaskType.GENERIC):
        return config
    return {name: value for name, value in config.items() if name != "entrypoint"}
