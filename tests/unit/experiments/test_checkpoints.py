"""Checkpoints in the records: what is reported, what is left, what is kept."""

from uuid import UUID

import pytest
from tests.unit.experiments.checkpoint_worlds import ANN, LAB, STORAGE, Asked, filled, validate

from muster.api import errors
from muster.experiments import checkpoint_gc, event_files, experiment_records, trial_records
from muster.experiments.checkpoint_gc import Policy
from muster.experiments.checkpoint_records import CheckpointFilter, CheckpointState, NewCheckpoint
from muster.experiments.checkpoints import Checkpoints
from muster.experiments.experiment_records import Experiment
from muster.experiments.model_records import Patch
from muster.experiments.models import Models
from muster.experiments.states import ExperimentId
from muster.experiments.trial_records import Trial
from muster.runtime.clock import SystemClock
from muster.tasks.glue.storages import ALL
from muster.testing.inline_database import InlineDatabase

EXPERIMENT = ExperimentId(1)


class World:
    def __init__(self, database: InlineDatabase) -> None:
        self.database = database
        self.clock = SystemClock()
        self.asked = Asked()
        self.checkpoints = Checkpoints(database, self.clock, self.asked, "cluster")  # type: ignore[arg-type]
        self.models = Models(database, self.clock)

    async def save(self, number: int, steps: int, *, task: str = "1.a", size: int = 10) -> str:
        uuid = str(UUID(int=number))
        new = NewCheckpoint(uuid, task, f"{task}.1", {"model.pt": size, "code/": 0}, {"steps_completed": steps})
        await self.checkpoints.report(new)
        return uuid

    async def trial(self, number: int = 1) -> Trial:
        return await self.database.read(lambda connection: trial_records.get(connection, number))

    async def experiment(self) -> Experiment:
        return await self.database.read(lambda connection: experiment_records.get(connection, 1))

    async def kept(self, policy: Policy) -> list[int]:
        """The numbers of those that a policy keeps."""
        listed = await self.checkpoints.list(CheckpointFilter(experiment=EXPERIMENT))
        gone = {each.uuid for each in await self.checkpoints.superfluous(EXPERIMENT, policy)}
        return [UUID(each.uuid).int for each in listed if each.uuid not in gone]


@pytest.fixture
async def world() -> World:
    return World(await filled())


async def test_what_is_reported_is_there_with_its_training_and_its_measure(world: World) -> None:
    await validate(world.database, 1, 100, 0.25)
    uuid = await world.save(1, 100)
    found = await world.checkpoints.get(uuid)
    assert (found.state, found.steps, found.bytes) == (CheckpointState.COMPLETED, 100, 10)
    assert found.training is not None
    assert (found.training.trial, found.training.experiment, found.training.metric) == (1, 1, 0.25)
    assert await world.checkpoints.where(found) == STORAGE
    trial, experiment = await world.trial(), await world.experiment()
    assert (trial.latest_checkpoint, trial.checkpoint_count, trial.checkpoint_bytes) == (uuid, 1, 10)
    assert (experiment.checkpoint_count, experiment.checkpoint_bytes) == (1, 10)


async def test_a_report_that_comes_again_changes_nothing_and_anothers_is_refused(world: World) -> None:
    uuid = await world.save(1, 100)
    await world.checkpoints.left({uuid: {}})
    await world.save(1, 100)
    assert (await world.checkpoints.get(uuid)).state is CheckpointState.DELETED
    with pytest.raises(errors.Conflict, match="another task"):
        await world.save(1, 100, task="1.b")


async def test_the_latest_is_the_furthest_that_is_whole(world: World) -> None:
    early, late = await world.save(1, 100), await world.save(2, 200)
    await world.save(3, 50)
    assert (await world.trial()).latest_checkpoint == late
    await world.checkpoints.left({late: {"model.pt": 10}})
    assert (await world.checkpoints.get(late)).state is CheckpointState.PARTIALLY_DELETED
    assert (await world.trial()).latest_checkpoint == early
    await world.checkpoints.left({early: {}})
    trial = await world.trial()
    assert (trial.checkpoint_count, trial.checkpoint_bytes) == (2, 20)


async def test_what_is_left_as_it_was_is_still_whole(world: World) -> None:
    uuid = await world.save(1, 100)
    await world.checkpoints.left({uuid: {"model.pt": 10, "code/": 0}})
    assert (await world.checkpoints.get(uuid)).state is CheckpointState.COMPLETED


@pytest.mark.parametrize(
    ("uuid", "resources", "names"),
    [
        ("x", {}, "uuid"),
        (str(UUID(int=1)), {"../a": 1}, "resources"),
        (str(UUID(int=1)), {"/a": 1}, "resources"),
        (str(UUID(int=1)), {"a": -1}, "resources"),
    ],
)
async def test_a_bad_report_is_refused_by_field(world: World, uuid: str, resources: dict[str, int], names: str) -> None:
    with pytest.raises(errors.BadRequest, match=names):
        await world.checkpoints.report(NewCheckpoint(uuid, "1.a", "1.a.1", resources, {}))


async def test_storages_are_known_by_what_they_are(world: World) -> None:
    first = await world.checkpoints.storage({"type": "s3", "bucket": "b"})
    assert await world.checkpoints.storage({"bucket": "b", "type": "s3"}) == first
    assert await world.checkpoints.storage({"type": "s3", "bucket": "c"}) != first


# What is kept


@pytest.mark.parametrize(
    ("policy", "kept"),
    [
        (Policy(0, 1, 1), {3, 4, 7, 8}),  # 7 is as good as 5, and later; 6 and 8 cannot be compared
        (Policy(0, 0, 1), {4, 8}),
        (Policy(0, 1, 0), {3, 7}),
        (Policy(1, 0, 0), {3}),
        (Policy(2, 0, 0), {2, 3}),
        (Policy(0, 0, 0), set[int]()),
        (Policy(9, 9, 9), {1, 2, 3, 4, 5, 6, 7, 8}),
    ],
)
async def test_policies(world: World, policy: Policy, kept: set[int]) -> None:
    losses: list[float | str] = [0.9, 0.2, 0.1, 0.4, 0.5, "NaN", 0.5]
    for number, loss in enumerate(losses, 1):
        trial, task = (1, "1.a") if number <= 4 else (2, "1.b")
        await validate(world.database, trial, number * 100, loss)
        await world.save(number, number * 100, task=task)
    await world.save(8, 800, task="1.b")
    assert set(await world.kept(policy)) == kept


async def test_versions_of_models_are_kept_whatever_the_policy(world: World) -> None:
    first, second = await world.save(1, 100), await world.save(2, 200)
    await world.models.create(ANN, LAB, Patch(name="m"))
    await world.models.add_version(ANN, "m", first, Patch())
    assert await world.kept(Policy(0, 0, 0)) == [1]
    with pytest.raises(errors.Conflict, match="delete that version first"):
        await world.checkpoints.discard(ANN, [second, first])
    assert world.asked.removals == []


def test_a_policy_is_read_from_the_configuration() -> None:
    assert checkpoint_gc.policy({}) == Policy(0, 1, 1)
    assert checkpoint_gc.policy({"checkpoint_storage": {"save_trial_best": 3}}) == Policy(0, 3, 1)


# Removing


async def test_a_removal_is_one_task_for_each_storage(world: World) -> None:
    first = await world.save(1, 100)
    other = await world.checkpoints.storage({"type": "s3", "bucket": "b"})
    second = str(UUID(int=2))
    await world.checkpoints.report(NewCheckpoint(second, "1.a", "1.a.1", {"x": 1}, {}, storage=other))
    gone = await world.save(3, 300)
    await world.checkpoints.left({gone: {}})
    await world.checkpoints.discard(ANN, [second, first, gone, first], ["*.pt"])
    assert [(removal.storage["type"], removal.uuids, removal.globs) for _, removal in world.asked.removals] == [
        ("directory", [first], ["*.pt"]),
        ("s3", [second], ["*.pt"]),
    ]


async def test_collecting_removes_what_the_experiments_own_policy_does_not_keep(world: World) -> None:
    uuids = [await world.save(number, number * 100) for number in (1, 2, 3)]
    await world.checkpoints.collect(EXPERIMENT)
    ((experiment, removal),) = world.asked.removals
    assert (experiment, removal.uuids, removal.globs) == (1, uuids[:2], ALL)


async def test_an_experiment_that_is_deleted_loses_all_of_it(world: World) -> None:
    uuid = await world.save(1, 100)
    world.asked.failure = "the disk is away"
    with pytest.raises(errors.Unavailable, match="the disk is away"):
        await world.checkpoints.remove(await world.experiment())
    world.asked = Asked()
    world.checkpoints = Checkpoints(world.database, world.clock, world.asked, "cluster")  # type: ignore[arg-type]
    await world.checkpoints.remove(await world.experiment())
    assert [(removal.uuids, removal.directories) for _, removal in world.asked.removals] == [
        ((), ["cluster/tensorboard/experiment/1"]),
        ([uuid], ()),
    ]
    assert event_files.path("cluster", EXPERIMENT, 2) == "cluster/tensorboard/experiment/1/trial/2"


async def test_what_is_not_there_is_not_found(world: World) -> None:
    missing = str(UUID(int=9))
    with pytest.raises(errors.NotFound):
        await world.checkpoints.get(missing)
    with pytest.raises(errors.NotFound):
        await world.checkpoints.left({missing: {}})
    with pytest.raises(errors.NotFound):
        await world.checkpoints.discard(ANN, [missing])
