"""Experiments, put together: who takes them, conducts them, and removes what is left of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from muster.accounts.services import AccountServices
from muster.api.raw import JSON
from muster.assembly.controlling import Component
from muster.assembly.interactive import InteractiveTasks, Setting
from muster.assembly.tasking import TaskServices
from muster.experiments import changing, creating, starting
from muster.experiments.budgets import Budgets
from muster.experiments.changing import Changer
from muster.experiments.creating import Creator
from muster.experiments.deleting import Belonging, ExperimentRemover
from muster.experiments.launching import LaunchServices, TrialLauncher
from muster.experiments.log_labels import Labels
from muster.experiments.metric_intake import MetricIntake
from muster.experiments.places import Places
from muster.experiments.registry import Conductors
from muster.experiments.running import ExperimentService, Parts
from muster.experiments.telling import Herald
from muster.experiments.unmanaged import Unmanaged
from muster.server.determined import metric_series, metric_views, metrics, profiling, trial_reports, workloads
from muster.server.determined.routing import Route
from muster.settings.sections import PlatformSettings
from muster.tasks.task_config import TaskType
from muster.tasks.webhooks import Webhooks


@dataclass(frozen=True, slots=True)
class Core:
    """Who takes experiments and conducts them. `remover` empties workspaces and projects that are deleted;
    `belongings`: what experiments keep elsewhere than in the records, to be added to before anything runs."""

    service: ExperimentService
    remover: ExperimentRemover
    unmanaged: Unmanaged
    belongings: list[Belonging]
    components: Mapping[str, Component]


@dataclass(frozen=True, slots=True)
class Experimenting:
    """`components` must be kept running."""

    core: Core
    intake: MetricIntake
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
    return Experimenting(
        core=core,
        intake=intake,
        routes=(
            *trial_reports.routes(core.service, database, places),
            *metrics.routes(intake, database, places, clock),
            *workloads.routes(database, places),
            *metric_series.routes(database, places),
            *metric_views.routes(database, places, clock),
            *profiling.routes(intake, database, places, clock),
        ),
        components={**core.components, "reports of trials": intake.run},
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


def _storage(settings: PlatformSettings, around: Setting) -> Mapping[str, JSON]:
    """Of checkpoints, where nobody says otherwise: the data directory, which all nodes of a laptop share."""
    return settings.checkpoint_storage or {"type": "shared_fs", "host_path": str(around.data / "checkpoints")}
