"""Checkpoints: what trials report of them, who sees them, and how they are removed."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from uuid import UUID

from sqlalchemy import Connection

from muster.accounts.audit import SYSTEM, By
from muster.api import errors, raw
from muster.api.raw import Document
from muster.experiments import checkpoint_gc, event_files, experiment_records, trial_records
from muster.experiments import checkpoint_records as records
from muster.experiments.checkpoint_gc import Policy
from muster.experiments.checkpoint_records import PRESENT, Checkpoint, CheckpointFilter, CheckpointState, NewCheckpoint
from muster.experiments.experiment_records import Experiment
from muster.experiments.removals import Removal, Removals
from muster.experiments.states import ExperimentId
from muster.records import Database
from muster.runtime.clock import Clock
from muster.tasks.glue.storages import ALL

_LONGEST_METADATA = 1024 * 1024


class Checkpoints:
    """`cluster`: its id, below which event files are kept."""

    def __init__(self, database: Database, clock: Clock, removals: Removals, cluster: str) -> None:
        self._database = database
        self._clock = clock
        self._removals = removals
        self._cluster = cluster

    # Told by trials

    async def storage(self, config: Document) -> int:
        """The number of a storage, by which checkpoints name where they are."""
        return await self._database.write(lambda connection: records.storage_id(connection, config))

    async def report(self, new: NewCheckpoint) -> None:
        """Told again: nothing happens. Raises BadRequest, Conflict."""
        _check(new)
        now = self._clock.now()

        def add(connection: Connection) -> None:
            records.add(connection, new, trial_records.of_task(connection, new.task), now)

        await self._database.write(add)

    async def left(self, files: Mapping[str, Mapping[str, int]]) -> None:
        """What is left of each, by path. Raises NotFound."""

        def change(connection: Connection) -> None:
            for uuid, resources in files.items():
                records.set_resources(connection, uuid, resources)

        await self._database.write(change)

    # Looking

    async def get(self, uuid: str) -> Checkpoint:
        """Raises NotFound."""
        return await self._database.read(lambda connection: records.get(connection, uuid))

    async def list(self, chosen: CheckpointFilter) -> Sequence[Checkpoint]:
        """The oldest first."""
        return await self._database.read(lambda connection: records.listed(connection, chosen))

    async def where(self, checkpoint: Checkpoint) -> Document:
        """The storage that it is kept in, with its secrets. Raises NotFound."""
        return await self._database.read(lambda connection: records.storage_config(connection, checkpoint))

    async def superfluous(self, experiment: ExperimentId, wanted: Policy | None = None) -> Sequence[Checkpoint]:
        """What need not be kept by the experiment's policy, or by another."""

        def read(connection: Connection) -> Sequence[Checkpoint]:
            found = experiment_records.get(connection, experiment)
            listed = records.listed(connection, CheckpointFilter(experiment=experiment, states=PRESENT))
            kept = records.registered(connection, [each.uuid for each in listed])
            policy = wanted or checkpoint_gc.policy(found.config)
            return checkpoint_gc.superfluous(listed, policy, is_smaller_better=found.is_smaller_better, kept=kept)

        return await self._database.read(read)

    async def metric(self, experiment: ExperimentId) -> str:
        """The one that its checkpoints are compared by. Raises NotFound."""
        return (await self._experiment(experiment)).searcher_metric

    # Changing

    async def set_metadata(self, uuid: str, metadata: Document) -> Checkpoint:
        """Raises BadRequest, NotFound."""
        _check_metadata(metadata)

        def change(connection: Connection) -> Checkpoint:
            records.get(connection, uuid)
            records.set_metadata(connection, uuid, metadata)
            return records.get(connection, uuid)

        return await self._database.write(change)

    async def discard(self, by: By, uuids: Sequence[str], globs: Sequence[str] = ALL) -> None:
        """Begins with it; a task goes on. Raises NotFound, Conflict for those that are versions of models."""

        def read(connection: Connection) -> Sequence[Checkpoint]:
            found = [records.get(connection, uuid) for uuid in dict.fromkeys(uuids)]
            registered = sorted(records.registered(connection, uuids))
            if registered:
                raise errors.Conflict(
                    f"checkpointUuids: {registered[0]} is a version of a model; delete that version first"
                )
            return found

        present = [each for each in await self._database.read(read) if each.state is not CheckpointState.DELETED]
        await self._remove(by, present, globs)

    async def collect(self, experiment: ExperimentId) -> None:
        """Begins to remove what its policy does not keep."""
        await self._remove(SYSTEM, await self.superfluous(experiment), ALL)

    async def remove_event_files(self, by: By, experiment: ExperimentId) -> None:
        """Begins with it; a task goes on. Raises NotFound."""
        found = await self._experiment(experiment)
        storage = found.config.get("checkpoint_storage") or {}
        await self._removals.start(
            by, found, Removal(storage, directories=[event_files.path(self._cluster, experiment)])
        )

    async def remove(self, experiment: Experiment) -> None:
        """All that an experiment which is being deleted has kept: returns when nothing is left. Raises Unavailable."""
        listed = await self.list(CheckpointFilter(experiment=experiment.id))
        left = [each for each in listed if each.state is not CheckpointState.DELETED]
        if not left and not experiment.trial_count:
            return
        own: Document = experiment.config.get("checkpoint_storage") or {}
        removals = [Removal(own, directories=[event_files.path(self._cluster, experiment.id)])]
        for storage in {each.storage for each in left}:
            part = [each for each in left if each.storage == storage]
            removals.append(Removal(await self.where(part[0]), [each.uuid for each in part]))
        for wanted in removals:
            failure = await self._removals.finish(SYSTEM, experiment, wanted)
            if failure:
                raise errors.Unavailable(f"checkpoints of experiment {experiment.id} could not be removed: {failure}")

    async def _remove(self, by: By, checkpoints: Sequence[Checkpoint], globs: Sequence[str]) -> None:
        """By experiment and storage: each such part is a task of its own."""

        def place(checkpoint: Checkpoint) -> tuple[int, int]:
            return (checkpoint.training.experiment if checkpoint.training else 0, checkpoint.storage or 0)

        for (experiment, _), group in groupby(sorted(checkpoints, key=place), place):
            part = list(group)
            if not experiment:
                raise errors.BadRequest(f"checkpointUuids: {part[0].uuid} is not a trial's; remove its files yourself")
            wanted = Removal(await self.where(part[0]), [each.uuid for each in part], globs)
            await self._removals.start(by, await self._experiment(ExperimentId(experiment)), wanted)

    async def _experiment(self, experiment: ExperimentId) -> Experiment:
        return await self._database.read(lambda connection: experiment_records.get(connection, experiment))


def _check(new: NewCheckpoint) -> None:
    try:
        UUID(new.uuid)
    except ValueError as error:
        raise errors.BadRequest(f"uuid: must be a UUID, found {new.uuid[:80]!r}") from error
    for path, size in new.resources.items():
        if path.startswith("/") or ".." in path.split("/"):
            raise errors.BadRequest(f'resources: {path[:200]!r} is not a relative path without ".."')
        if size < 0:
            raise errors.BadRequest(f"resources: {path[:200]!r} cannot have {size} bytes")
    _check_metadata(new.metadata)


def _check_metadata(metadata: Document) -> None:
    size = len(raw.encode(metadata))
    if size > _LONGEST_METADATA:
        raise errors.BadRequest(f"metadata: is {size} bytes long; at most {_LONGEST_METADATA} are taken")
