"""The registry of models."""

from uuid import UUID

import pytest
from tests.unit.experiments.checkpoint_worlds import ANN, LAB, filled

from muster.accounts.callers import WorkspaceId
from muster.api import errors
from muster.experiments import checkpoint_records
from muster.experiments.checkpoint_records import NewCheckpoint
from muster.experiments.model_records import ModelFilter, ModelOrder, Patch
from muster.experiments.models import Models
from muster.experiments.states import TrialId
from muster.records.paging import WHOLE
from muster.runtime.clock import SystemClock

UUIDS = [str(UUID(int=number)) for number in (1, 2, 3)]


@pytest.fixture
async def models() -> Models:
    database, clock = await filled(), SystemClock()
    for uuid in UUIDS:
        new = NewCheckpoint(uuid, "1.a", "1.a.1", {"x": 1}, {"steps_completed": 1})
        await database.write(lambda c, n=new: checkpoint_records.add(c, n, TrialId(1), clock.now()))  # type: ignore[misc]
    await database.write(lambda connection: checkpoint_records.set_resources(connection, UUIDS[2], {}))
    return Models(database, clock)


async def test_a_model_is_found_by_its_name_and_by_its_number(models: Models) -> None:
    made = await models.create(ANN, LAB, Patch(name=" nets ", labels=["b", "a", "b"], metadata={"k": 1}))
    assert (made.name, made.labels, made.metadata, made.username) == ("nets", ("b", "a"), {"k": 1}, "ann")
    assert await models.get("nets") == await models.get(str(made.id)) == made


@pytest.mark.parametrize("name", ["", "12", "a/b", "a\nb", "x" * 300])
async def test_names_that_cannot_be_part_of_a_url_are_refused(models: Models, name: str) -> None:
    with pytest.raises(errors.BadRequest, match="name"):
        await models.create(ANN, LAB, Patch(name=name))


async def test_a_name_is_given_once(models: Models) -> None:
    await models.create(ANN, LAB, Patch(name="a"))
    await models.create(ANN, LAB, Patch(name="b"))
    for act in (models.create(ANN, LAB, Patch(name="a")), models.patch(ANN, "b", Patch(name="a"))):
        with pytest.raises(errors.AlreadyExists):
            await act
    assert (await models.patch(ANN, "b", Patch(name="b", notes="n"))).notes == "n"


async def test_numbers_of_versions_are_never_given_again(models: Models) -> None:
    await models.create(ANN, LAB, Patch(name="m"))
    first = await models.add_version(ANN, "m", UUIDS[0], Patch(name="v", comment="c"))
    assert (first.number, first.checkpoint.uuid, first.comment, first.model.version_count) == (1, UUIDS[0], "c", 1)
    await models.delete_version(ANN, "m", 1)
    second = await models.add_version(ANN, "m", UUIDS[1], Patch())
    assert second.number == 2
    page = await models.versions("m", by_time=False, descending=True, window=WHOLE)
    assert [version.number for version in page.items] == [2]
    with pytest.raises(errors.NotFound, match="no version 1"):
        await models.version("m", 1)


async def test_a_version_is_a_whole_checkpoint_that_may_be_seen(models: Models) -> None:
    await models.create(ANN, LAB, Patch(name="m"))
    with pytest.raises(errors.Conflict, match="DELETED"):
        await models.add_version(ANN, "m", UUIDS[2], Patch())
    with pytest.raises(errors.NotFound):
        await models.add_version(ANN, "m", UUIDS[0], Patch(), visible=[WorkspaceId(9)])
    with pytest.raises(errors.NotFound):
        await models.add_version(ANN, "m", str(UUID(int=77)), Patch())


async def test_what_is_archived_is_not_changed(models: Models) -> None:
    await models.create(ANN, LAB, Patch(name="m"))
    await models.add_version(ANN, "m", UUIDS[0], Patch())
    await models.archive(ANN, "m", is_archived=True)
    for act in (
        models.patch(ANN, "m", Patch(notes="x")),
        models.add_version(ANN, "m", UUIDS[1], Patch()),
        models.patch_version(ANN, "m", 1, Patch(notes="x")),
        models.delete_version(ANN, "m", 1),
    ):
        with pytest.raises(errors.Conflict, match="unarchive it first"):
            await act
    await models.archive(ANN, "m", is_archived=False)
    changed = await models.patch_version(ANN, "m", 1, Patch(notes="x", labels=["l"]))
    assert (changed.notes, changed.labels) == ("x", ("l",))


async def test_models_are_listed_by_what_is_asked_for(models: Models) -> None:
    for name, labels in (("Alpha", ["x"]), ("beta", ["x", 'q"']), ("gamma", ["y"])):
        await models.create(ANN, LAB, Patch(name=name, description=f"the {name}", labels=labels))
    await models.add_version(ANN, "beta", UUIDS[0], Patch())
    await models.archive(ANN, "gamma", is_archived=True)

    async def listed(chosen: ModelFilter) -> list[str]:
        return [model.name for model in (await models.list(chosen)).items]

    assert await listed(ModelFilter(order=ModelOrder.NAME)) == ["Alpha", "beta", "gamma"]
    assert await listed(ModelFilter(order=ModelOrder.VERSIONS, is_descending=True)) == ["beta", "gamma", "Alpha"]
    assert await listed(ModelFilter(name="ALP")) == ["Alpha"]
    assert await listed(ModelFilter(name="%")) == []
    assert await listed(ModelFilter(description="the b")) == ["beta"]
    assert await listed(ModelFilter(labels=["x", 'q"'])) == ["beta"]
    assert await listed(ModelFilter(is_archived=True)) == ["gamma"]
    assert await listed(ModelFilter(visible=[WorkspaceId(9)])) == []
    assert await listed(ModelFilter(usernames=["ann"], workspace_names=["Lab"], is_archived=False)) == ["Alpha", "beta"]
    assert await models.labels(None, None) == ["x", 'q"', "y"]
    assert await models.labels([WorkspaceId(9)], None) == []


async def test_a_deleted_model_leaves_its_checkpoints(models: Models) -> None:
    await models.create(ANN, LAB, Patch(name="m"))
    await models.add_version(ANN, "m", UUIDS[0], Patch())
    await models.delete(ANN, "m")
    with pytest.raises(errors.NotFound):
        await models.get("m")
    await models.create(ANN, LAB, Patch(name="again"))
    assert (await models.add_version(ANN, "again", UUIDS[0], Patch())).checkpoint.uuid == UUIDS[0]


async def test_long_texts_are_refused_by_field(models: Models) -> None:
    with pytest.raises(errors.BadRequest, match="metadata"):
        await models.create(ANN, LAB, Patch(name="m", metadata={"k": "x" * 2**21}))
