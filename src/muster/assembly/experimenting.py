"""Experiments, put together: who takes them, conducts them, and removes what is left of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from muster.accounts.services import AccountServices
from muster.api.raw import JSON
from muster.assembly import experiment_routes
from muster.assembly.controlling import Component
from muster.assembly.interactive import InteractiveTasks, Setting
from muster.assembly.tasking import TaskServices
from muster.experiments import changing, creating, starting
from muster.experiments.budgets import Budgets
from muster.experiments.changing import Changer
from muster.experiments.checkpoints import Checkpoints
from muster.experiments.creating import Creator
from muster.experiments.deleting import Belonging, ExperimentRemover
from muster.experiments.launching import LaunchServices, TrialLauncher
from muster.experiments.log_labels import Labels
from muster.experiments.metric_intake import MetricIntake
from muster.experiments.models import Models
from muster.experiments.places import Places
from muster.experiments.registry import Conductors
from muster.experiments.removals import Removals
from muster.experiments.running import ExperimentService, Parts
from muster.experiments.telling import Herald
from muster.experiments.tidying import Tidier
from muster.experiments.unmanaged import Unmanaged
from muster.server.app import Pages
from muster.server.determined import checkpoints as checkpoint_routes
from muster.server.determined import (
    metric_series,
    metric_views,
    metrics,
    models,
    profiling,
    source_metrics,
    trial_reports,
    workloads,
)
from muster.server.determined.checkpoint_pages import CheckpointPages
from muster.server.determined.router import Authenticate
from muster.server.determined.routing import Route
from muster.settings.sections import PlatformSettings
from muster.tasks.task_config import TaskType
from muster.tasks.webhooks import Webhooks


@dataclass(frozen=True, slots=True)
class Core:
    """Who takes experiments and conducts them. `remover` empties workspaces and projects that are deleted;
    `belongings`: what experiments keep elsewhere than in the records, to be added to before anything runs."""

    changer: Changer
    service: ExperimentService
    conductors: Conductors
    remover: ExperimentRemover
    unmanaged: Unmanaged
    belongings: list[Belonging]
    components: Mapping[str, Component]


@dataclass(frozen=True, slots=True)
class Experimenting:
    """`components` must be kept running."""

    core: Core
    intake: MetricIntake
    checkpoints: Checkpoints
    places: Places
    routes: Sequence[Route]
    components: Mapping[str, Component]


def experimenting(
    settings: PlatformSettings,
    around: Setting,
    tasks: TaskServices,
    interactive: InteractiveTasks,
    accounts: AccountServices,
    hooks: Webhooks,
) -> Experimenting:
    """Before allocations run."""
    database, clock = tasks.database, around.clock
    core = _core(settings, around, tasks, interactive, accounts, hooks)
    intake, places = MetricIntake(database, clock, core.service), Places(database, accounts.authorizer)
    checkpoints = _checkpoints(around, tasks, interactive, accounts)
    tidier = Tidier(database, clock, checkpoints)
    core.conductors.on_change(tidier.changed)
    core.changer.on_policy_change(tidier.wake)
    core.belongings.append(checkpoints)
    return Experimenting(
        core=core,
        intake=intake,
        checkpoints=checkpoints,
        places=places,
        routes=(
            *experiment_routes.routes(core.service, core.conductors, places, tasks, interactive, accounts),
            *checkpoint_routes.routes(checkpoints, places, accounts.authorizer),
            *models.routes(Models(database, clock), accounts.workspaces, accounts.authorizer),
            *trial_reports.routes(core.service, database, places),
            *metrics.routes(intake, database, places, clock),
            *source_metrics.routes(database, accounts.authorizer),
            *workloads.routes(database, places),
            *metric_series.routes(database, places),
            *metric_views.routes(database, places, clock),
            *profiling.routes(intake, database, places, clock),
        ),
        components={
            **core.components,
            "reports of trials": intake.run,
            "checkpoints that need not be kept": tidier.run,
        },
    )


def _core(
    settings: PlatformSettings,
    around: Setting,
    tasks: TaskServices,
    interactive: InteractiveTasks,
    accounts: AccountServices,
    hooks: Webhooks,
) -> Core:
    database, clock, allocations = tasks.database, around.clock, tasks.allocations
    needs = LaunchServices(database, around.store, accounts, tasks.engine)
    launcher = TrialLauncher(needs, interactive.settings, interactive.cluster)
    herald = Herald(database, hooks)
    conductors = Conductors(
        starting.Services(database, clock, allocations, launcher, tasks.logs), herald.write, accounts.accounts.forget
    )
    allocations.on_exit(TaskType.TRIAL.value, conductors.exited)
    budgets = Budgets(conductors, allocations, clock)
    labels = Labels(database, conductors)
    tasks.logs.observe(labels.observe)
    creator = Creator(
        creating.Services(database, clock, accounts, interactive.contexts, tasks.engine),
        creating.Settings(interactive.settings, _storage(settings, around)),
    )
    changer = Changer(changing.Services(database, clock, around.store, accounts, creator, conductors))
    belongings: list[Belonging] = []
    remover = ExperimentRemover(database, clock, conductors, interactive.contexts, tasks.retention, belongings)
    unmanaged = Unmanaged(database, clock, herald)
    return Core(
        conductors=conductors,
        changer=changer,
        service=ExperimentService(Parts(database, conductors, creator, changer, remover, unmanaged)),
        remover=remover,
        unmanaged=unmanaged,
        belongings=belongings,
        components={
            "experiments": conductors.run,
            "budgets of experiments": budgets.run,
            "labels of trials": labels.run,
            "removal of experiments": remover.run,
            "experiments elsewhere": unmanaged.run,
        },
    )


def _checkpoints(
    around: Setting, tasks: TaskServices, interactive: InteractiveTasks, accounts: AccountServices
) -> Checkpoints:
    database, clock = tasks.database, around.clock
    needs = LaunchServices(database, around.store, accounts, tasks.engine)
    removals = Removals(needs, tasks.allocations, tasks.logs, clock, interactive.settings, interactive.cluster)
    removals.attach()
    return Checkpoints(database, clock, removals, around.cluster_id)


def pages(found: Experimenting, authenticate: Authenticate, accounts: AccountServices) -> Sequence[Pages]:
    """Beside the API."""
    return (CheckpointPages(found.checkpoints, found.places, authenticate, accounts.authorizer),)


def _storage(settings: PlatformSettings, around: Setting) -> Mapping[str, JSON]:
    """Of checkpoints, where nobody says otherwise: the data directory, which all nodes of a laptop share. Nodes of a
    foreign cluster do not: there somebody must say."""
    if around.is_foreign:
        return settings.checkpoint_storage
    return settings.checkpoint_storage or {"type": "shared_fs", "host_path": str(around.data / "checkpoints")}
