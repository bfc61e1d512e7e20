"""The routes about experiments, trials and runs, over the services that `experimenting` has put together."""

from collections.abc import Sequence

from muster.accounts.services import AccountServices
from muster.assembly.interactive import InteractiveTasks
from muster.assembly.tasking import TaskServices
from muster.experiments.bulk import Bulk, RunBulk
from muster.experiments.contract import Experiments
from muster.experiments.log_keeping import LogKeeping
from muster.experiments.model_definitions import ModelDefinitions
from muster.experiments.places import Places
from muster.experiments.registry import Conductors
from muster.server.determined import (
    experiment_actions,
    experiment_lists,
    experiments,
    model_files,
    previews,
    project_views,
    runs,
    trial_logs,
    trials,
    unmanaged,
)
from muster.server.determined.routing import Route


def routes(
    service: Experiments,
    conductors: Conductors,
    places: Places,
    tasks: TaskServices,
    interactive: InteractiveTasks,
    accounts: AccountServices,
) -> Sequence[Route]:
    database, clock, authorizer = tasks.database, tasks.clock, accounts.authorizer
    logs = LogKeeping(database, clock, tasks.retention.days, conductors.refresh)
    bulk = Bulk(database, clock, authorizer)
    of_runs = RunBulk(database, clock, authorizer, service)
    return (
        *experiments.routes(service, database, clock, places, authorizer),
        *experiment_actions.routes(service, bulk, logs, places),
        *experiment_lists.routes(database, clock, authorizer),
        *model_files.routes(ModelDefinitions(interactive.contexts), places),
        *trials.routes(service, logs, database, clock, places),
        *trial_logs.routes(tasks.logs, database, places),
        *unmanaged.routes(service, database, clock, places),
        *runs.routes(of_runs, database, clock, authorizer),
        *project_views.routes(accounts.projects, database, authorizer),
        *previews.routes(),
    )
