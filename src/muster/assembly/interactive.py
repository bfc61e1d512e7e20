"""Commands, notebooks, shells, TensorBoards and generic tasks, put together with their routes."""

import getpass
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from muster.accounts.services import AccountServices
from muster.assembly.controlling import Component
from muster.assembly.tasking import TaskServices
from muster.engines.protocol import AllocationId
from muster.experiments import experiment_records
from muster.experiments.event_files import RecordedEvents
from muster.runtime.clock import Clock
from muster.server.determined import commands, generic, notebooks, shells, tensorboards
from muster.server.determined import tasks as task_routes
from muster.server.determined.interactive import Interactive
from muster.server.determined.routing import Route, large
from muster.settings.sections import PlatformSettings
from muster.store.protocol import Store
from muster.tasks import container_defaults, glue_files
from muster.tasks.allocation_states import Signal
from muster.tasks.commands import Tasks
from muster.tasks.config_sections import Allowed
from muster.tasks.contexts import Contexts
from muster.tasks.idle import IdleWatch
from muster.tasks.proxy_tokens import ProxyTokens
from muster.tasks.submitting import Services, Submitter, TaskSettings
from muster.tasks.task_config import TaskType
from muster.tasks.task_pods import Cluster


@dataclass(frozen=True, slots=True)
class Setting:
    """Where tasks are taken. `url`: by which tasks reach us; `trusted`: in PEM, what they know us by; empty where their
    system does. `is_foreign`: they run in containers of somebody's cluster, and not as whoever runs us."""

    store: Store
    clock: Clock
    data: Path
    url: str
    trusted: str
    cluster_id: str
    is_foreign: bool = False


@dataclass(frozen=True, slots=True)
class InteractiveTasks:
    """`components` must be kept running. `contexts`, `settings`, `cluster`: what other tasks are made with too."""

    tasks: Tasks
    contexts: Contexts
    settings: TaskSettings
    cluster: Cluster
    routes: Sequence[Route]
    components: Mapping[str, Component]


async def interactive_tasks(
    settings: PlatformSettings, around: Setting, services: TaskServices, accounts: AccountServices, tokens: ProxyTokens
) -> InteractiveTasks:
    """Before allocations run. Raises BadRequest where the settings will not do."""
    allocations = services.allocations

    def is_ready(run: AllocationId) -> bool:
        state = allocations.state(run)
        return state is not None and state.is_ready

    def end(run: AllocationId, why: str) -> Awaitable[None]:
        return allocations.signal(run, Signal.TERMINATE, why)

    idle = IdleWatch(allocations.proxies, around.clock, is_ready, end)
    contexts = Contexts(around.data / "contexts")
    wanted = _settings(settings, "root" if around.is_foreign else getpass.getuser())
    needs = Services(
        database=services.database,
        clock=around.clock,
        store=around.store,
        accounts=accounts,
        allocations=allocations,
        logs=services.logs,
        pools=services.engine,
        contexts=contexts,
        tokens=tokens,
        idle=idle,
        events=RecordedEvents(services.database, accounts.authorizer, around.cluster_id),
    )
    cluster = Cluster(
        id=around.cluster_id,
        master=around.url,
        glue=glue_files.read(wanted.defaults.startup_hook, around.trusted),
        python=settings.tasks.python,
    )
    tasks = Tasks(needs, Submitter(needs, wanted, cluster))
    tasks.attach()
    await tasks.restore(await services.database.read(experiment_records.contexts))

    def of(kind: TaskType) -> Interactive:
        return Interactive(kind, tasks, allocations, accounts)

    routes = (
        *task_routes.routes(tasks, allocations, contexts),
        *map(large, commands.routes(of(TaskType.COMMAND))),
        *map(large, notebooks.routes(of(TaskType.NOTEBOOK), tokens)),
        *map(large, shells.routes(of(TaskType.SHELL), wanted.agent_user)),
        *map(large, tensorboards.routes(of(TaskType.TENSORBOARD))),
        *map(large, generic.routes(tasks, accounts)),
    )
    return InteractiveTasks(tasks, contexts, wanted, cluster, routes, {"tasks": tasks.run})


def _settings(settings: PlatformSettings, usual_user: str) -> TaskSettings:
    wanted = settings.tasks
    timeouts = {
        TaskType.NOTEBOOK: wanted.notebook_timeout_seconds,
        TaskType.TENSORBOARD: wanted.tensorboard_timeout_seconds,
        TaskType.SHELL: wanted.shell_timeout_seconds,
    }
    return TaskSettings(
        defaults=container_defaults.read(settings.task_container_defaults),
        allowed=Allowed(tuple(wanted.bind_mounts)),
        agent_user=wanted.agent_user or usual_user,
        idle_seconds={kind: seconds for kind, seconds in timeouts.items() if seconds},
    )
