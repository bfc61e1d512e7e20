"""Where TensorBoards find what experiments have written."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from muster.api import errors
from muster.api.raw import Document
from muster.experiments import experiment_records
from muster.experiments.event_files import RecordedEvents
from muster.experiments.states import ExperimentId
from muster.testing import trials
from muster.testing.accounts import ADMIN
from muster.testing.trials import Reporting


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[Reporting]:
    async with trials.reporting(tmp_path) as found:
        yield found


async def _stored(world: Reporting, storage: Document, **columns: object) -> ExperimentId:
    id = await world.experiment()
    values = {"config": {"checkpoint_storage": storage}, **columns}
    await world.database.write(lambda connection: experiment_records.change(connection, id, values))
    return id


async def _paths(world: Reporting, *experiments: int) -> list[str]:
    source = RecordedEvents(world.database, world.ground.services.authorizer, "c")
    return list((await source.find(ADMIN, experiments, ())).paths)


@pytest.mark.parametrize(
    ("storage", "place"),
    [
        ({"type": "shared_fs", "host_path": "/mnt", "storage_path": None}, "/determined_shared_fs"),
        ({"type": "shared_fs", "host_path": "/mnt", "storage_path": "/mnt/lab"}, "/determined_shared_fs/lab"),
        ({"type": "directory", "container_path": "/data"}, "/data"),
        ({"type": "s3", "bucket": "b", "prefix": "/lab/"}, "s3://b/lab"),
        ({"type": "gcs", "bucket": "b", "prefix": None}, "gcs://b"),
        ({"type": "azure", "container": "b"}, "azure://b"),
    ],
)
async def test_paths_are_told_as_the_program_wants_them(world: Reporting, storage: Document, place: str) -> None:
    id = await _stored(world, storage)
    assert await _paths(world, id) == [f"{place}/c/tensorboard/experiment/{id}"]


async def test_how_many_checkpoints_stay_is_no_difference(world: Reporting) -> None:
    storage = {"type": "directory", "container_path": "/data"}
    first = await _stored(world, {**storage, "save_trial_best": 1})
    second = await _stored(world, {**storage, "save_trial_best": 2})
    assert len(await _paths(world, first, second, first)) == 2
    other = await _stored(world, {"type": "directory", "container_path": "/other"})
    with pytest.raises(errors.BadRequest, match=f"experiments {first} and {other}"):
        await _paths(world, first, other)


async def test_of_a_large_search_the_best_are_shown(world: Reporting) -> None:
    id = await _stored(world, {"type": "directory", "container_path": "/data"}, trial_count=102)
    made = [await world.trial(id, searcher_metric=None if number == 5 else -float(number)) for number in range(102)]
    found = await _paths(world, id)
    assert len(found) == 100
    assert found[0] == f"/data/c/tensorboard/experiment/{id}/trial/{made[-1]}"
    assert not {f"/data/c/tensorboard/experiment/{id}/trial/{made[place]}" for place in (0, 5)} & set(found)
