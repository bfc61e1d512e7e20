"""Where trials keep what TensorBoard shows: below their checkpoint storage, as Determined's library puts it there."""

import posixpath
from collections.abc import Iterator, Sequence
from typing import Final

from sqlalchemy import Connection, select

from muster.accounts import workspaces
from muster.accounts.audit import By
from muster.accounts.authorizing import Authorizer
from muster.accounts.permissions import Permission
from muster.api import errors
from muster.api.raw import Document
from muster.experiments import experiment_records, launching, trial_records
from muster.experiments.config.storage import SAVED
from muster.experiments.states import ExperimentId, TrialId
from muster.records import Database
from muster.records.tables_experiments import TRIALS
from muster.tasks.glue.storages import SHARED_PATH, inside_shared
from muster.tasks.kinds import EventFiles

_MOST_TRIALS: Final = 100
"""Of one experiment, in one TensorBoard."""


def path(cluster: str, experiment: ExperimentId, trial: int | None = None) -> str:
    """In the storage; of all trials, or of one. `cluster`: its id."""
    of_experiment = f"{cluster}/tensorboard/experiment/{experiment}"
    return of_experiment if trial is None else f"{of_experiment}/trial/{trial}"


class RecordedEvents:
    """For `tasks.submitting`, which starts TensorBoards. `cluster`: its id."""

    def __init__(self, database: Database, authorizer: Authorizer, cluster: str) -> None:
        self._database = database
        self._authorizer = authorizer
        self._cluster = cluster

    async def find(self, by: By, experiments: Sequence[int], trials: Sequence[int]) -> EventFiles:
        """Raises NotFound, also for what may not be seen; Forbidden; BadRequest where they share no storage."""
        chosen = await self._database.read(lambda connection: _chosen(connection, experiments, trials))
        storages: dict[ExperimentId, Document] = {}
        for experiment, _ in chosen:
            if experiment not in storages:
                storages[experiment] = await self._storage(by, experiment)
        first = next(iter(storages))
        for experiment, storage in storages.items():
            if storage != storages[first]:
                raise errors.BadRequest(
                    f"experimentIds: experiments {first} and {experiment} keep their files in different storages; "
                    "start a TensorBoard for each"
                )
        paths = [_seen(storages[first], path(self._cluster, *each)) for each in chosen]
        return EventFiles(storages[first], paths, tuple(launching.storage_volumes(storages[first])))

    async def _storage(self, by: By, experiment: ExperimentId) -> Document:
        """A TensorBoard has the keys of the storage: where there are any, only who may see them starts one."""
        found = await self._database.read(lambda connection: experiment_records.get(connection, experiment))
        if not await self._authorizer.allows(by.caller, Permission.VIEW_EXPERIMENTS, found.workspace):
            raise experiment_records.not_found(experiment)
        config: Document = found.config.get("checkpoint_storage") or {}
        storage = {name: value for name, value in config.items() if name not in SAVED}
        if workspaces.without_secrets(storage) != storage:
            await self._authorizer.check(by.caller, Permission.EDIT_EXPERIMENTS, found.workspace)
        return storage


def _chosen(
    connection: Connection, experiments: Sequence[int], trials: Sequence[int]
) -> list[tuple[ExperimentId, TrialId | None]]:
    """Raises NotFound."""
    found = [each for id in dict.fromkeys(experiments) for each in _of_experiment(connection, ExperimentId(id))]
    for trial in dict.fromkeys(trials):
        experiment = connection.scalar(select(TRIALS.c.experiment_id).where(TRIALS.c.id == trial))
        if experiment is None:
            raise trial_records.not_found(trial)
        found.append((ExperimentId(experiment), TrialId(trial)))
    return found


def _of_experiment(
    connection: Connection, experiment: ExperimentId
) -> Iterator[tuple[ExperimentId, TrialId | None]]:  # fmt: skip
    """All that it has and will have; or the best, where that is more than anybody wants to see. Raises NotFound."""
    about = experiment_records.get(connection, experiment)
    if about.trial_count <= _MOST_TRIALS:
        yield experiment, None
        return
    metric = TRIALS.c.searcher_metric
    best = (metric.asc() if about.is_smaller_better else metric.desc()).nulls_last()
    query = select(TRIALS.c.id).where(TRIALS.c.experiment_id == experiment).order_by(best, TRIALS.c.id)
    for trial in connection.scalars(query.limit(_MOST_TRIALS)):
        yield experiment, TrialId(trial)


def _seen(storage: Document, path: str) -> str:
    """As the TensorBoard's own program wants it told: a path of its node, or an address in a bucket."""
    match storage.get("type"):
        case "shared_fs":
            return posixpath.normpath(posixpath.join(SHARED_PATH, inside_shared(storage), path))
        case "directory":
            return posixpath.join(storage["container_path"], path)
        case kind:
            bucket = storage.get("bucket") or storage.get("container") or ""
            return posixpath.join(f"{kind}://{bucket}", (storage.get("prefix") or "").strip("/"), path)
