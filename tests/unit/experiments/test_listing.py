"""Experiments in lists: pages, how far those that are active have come, and that no list reads all there is."""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import Connection, event, insert

from muster.accounts.projects import ProjectId
from muster.api.meta import Instant
from muster.experiments import experiment_records, filters, listing, standings, trial_listing
from muster.experiments.listing import ExperimentFilter, Numbers, Ordered
from muster.experiments.states import ExperimentId, TrialId
from muster.records import Database
from muster.records.paging import Page, Window
from muster.records.tables_tasks import ALLOCATIONS
from muster.testing import trials
from muster.testing.trials import Reporting

NOW = Instant(trials.START)
pytestmark = pytest.mark.postgres


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[Reporting]:
    async with trials.reporting(tmp_path) as found:
        yield found


async def _named(world: Reporting, *names: str) -> list[ExperimentId]:
    made = [await world.experiment() for _ in names]
    for id, name in zip(made, names, strict=True):
        await _change(world, id, name=name)
    return made


async def _change(world: Reporting, id: ExperimentId, **values: object) -> None:
    await world.database.write(lambda connection: experiment_records.change(connection, id, values))


async def _page(world: Reporting, chosen: ExperimentFilter, window: Window) -> Page[listing.Listed]:
    return await world.database.read(lambda c: listing.listed(c, chosen, Ordered(), window, NOW))


@pytest.mark.parametrize("chosen", [ExperimentFilter(), ExperimentFilter(name="x")], ids=["counted", "looked through"])
async def test_pages_are_the_same_however_they_are_found(world: Reporting, chosen: ExperimentFilter) -> None:
    ids = await _named(world, *("x1", "x2", "x3"))

    async def page(offset: int, limit: int) -> tuple[list[int], int, int, int]:
        found = await _page(world, chosen, Window(offset, limit))
        return [each.experiment.id for each in found.items], found.start, found.end, found.total

    assert await page(0, 0) == (ids, 0, 3, 3)
    assert await page(1, 1) == (ids[1:2], 1, 2, 3)
    assert await page(2, 9) == (ids[2:], 2, 3, 3)
    assert await page(7, 2) == ([], 3, 3, 3)
    assert await page(-1, 0) == (ids[2:], 2, 3, 3)
    assert await page(0, -2) == ([], 0, 0, 3)


async def test_who_asks_for_all_gets_as_many_as_fit_and_where_to_read_on(
    world: Reporting, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = await _named(world, "a", "ab", "abc")
    monkeypatch.setattr(listing, "MOST_TOGETHER", 2)
    for chosen in (ExperimentFilter(), ExperimentFilter(name="a")):
        page = await _page(world, chosen, Window())
        assert ([each.experiment.id for each in page.items], page.end, page.total) == (ids[:2], 2, 3)


async def _runs(world: Reporting, trial: TrialId, phase: str, *, is_open: bool = True) -> None:
    task = (await world.told(trial)).task
    row = {
        "id": f"{task}.1",
        "task_id": task,
        "user_id": 1,
        "phase": phase,
        "requested": 1.0,
        "launch": "",
        "state": "",
    }
    await world.database.write(lambda c: c.execute(insert(ALLOCATIONS).values(**row, is_open=is_open)))


async def test_one_that_is_active_is_as_far_as_its_furthest_run(world: Reporting) -> None:
    wanted = {
        (): "QUEUED", ("PENDING",): "QUEUED", ("ASSIGNED", "PULLING"): "PULLING", ("STARTING", "PULLING"): "STARTING",
        ("STARTING", "RUNNING", "PENDING"): "RUNNING", ("WAITING",): "RUNNING", ("TERMINATING",): "RUNNING",
        ("TERMINATED",): "QUEUED",
    }  # fmt: skip
    found: dict[ExperimentId, str] = {}
    for phases, standing in wanted.items():
        experiment = await world.experiment()
        found[experiment] = standing
        for phase in phases:
            await _runs(world, await world.trial(experiment), phase)
    gone = await world.experiment()
    await _runs(world, await world.trial(gone), "RUNNING", is_open=False)
    found[gone] = "QUEUED"
    paused = await world.experiment()
    await _runs(world, await world.trial(paused), "RUNNING")
    await _change(world, paused, state="PAUSED")
    found[paused] = "PAUSED"
    elsewhere = await world.experiment()
    await world.trial(elsewhere)
    await _change(world, elsewhere, is_unmanaged=True)
    found[elsewhere] = "RUNNING"
    page = await _page(world, ExperimentFilter(), Window())
    assert {each.experiment.id: each.state for each in page.items} == found
    # Whoever asks for those in a state gets those that are shown in it.
    for state in {*found.values(), "COMPLETED"}:
        page = await _page(world, ExperimentFilter(states=[state]), Window())
        assert [each.experiment.id for each in page.items] == [id for id, is_in in found.items() if is_in == state]
    page = await _page(world, ExperimentFilter(states=["ACTIVE"]), Window())
    assert len(page.items) == len(found) - 1


async def test_trials_of_one_experiment_are_each_as_far_as_they_are(world: Reporting) -> None:
    experiment = await world.experiment()
    made = [await world.trial(experiment) for _ in range(3)]
    await _runs(world, made[1], "PULLING")
    await _runs(world, made[2], "RUNNING")

    async def listed(*states: str) -> dict[TrialId, str]:
        order = (trial_listing.TrialOrder.ID, False)
        found = await world.database.read(
            lambda c: trial_listing.of_experiment(c, experiment, states, order, Window(), NOW)
        )
        return {each.trial.id: each.details.state for each in found.items}

    everything = dict(zip(made, ["QUEUED", "PULLING", "RUNNING"], strict=True))
    assert await listed() == await listed("ACTIVE") == everything
    for trial, state in everything.items():
        assert await listed(state) == {trial: state}
    assert await world.database.read(lambda c: standings.of_trials(c, [])) == {}


async def test_the_best_checkpoint_is_that_of_the_best_validation_that_was_kept(world: Reporting) -> None:
    experiment = await world.experiment(is_smaller_better=False)
    trial = await world.trial(experiment)
    for steps, loss in ((10, 1.0), (20, 4.0), (30, 3.0), (40, 9.0), (50, "NaN")):
        await world.validate(trial, steps, loss=loss)
    for steps, state in ((10, "COMPLETED"), (20, "DELETED"), (30, "PARTIALLY_DELETED"), (50, "COMPLETED")):
        await world.checkpoint(trial, f"uuid-{steps}", steps, state)
    found = await world.database.read(lambda c: trial_listing.get(c, trial, NOW))
    assert found.details.best_checkpoint is not None
    assert found.details.best_checkpoint.uuid == "uuid-30"
    assert found.details.best_validation is not None
    assert found.details.best_validation.steps == 40


@pytest.mark.parametrize(
    "chosen",
    [
        ExperimentFilter(),
        ExperimentFilter(is_archived=False),
        ExperimentFilter(labels=["x"], is_archived=False),
        ExperimentFilter(users=[1], is_archived=False),
        ExperimentFilter(usernames=["admin"]),
        ExperimentFilter(states=["ERROR"], is_archived=False),
        ExperimentFilter(states=["RUNNING", "QUEUED"]),
        ExperimentFilter(project=ProjectId(1), is_archived=False),
        ExperimentFilter(name="x", is_archived=False),
        ExperimentFilter(ids=Numbers(including=[1, 2])),
        ExperimentFilter(filter=filters.parse('{"filterGroup": {"kind": "group", "children": [{"kind": "field", '
                                              '"columnName": "name", "operator": "contains", "value": "x"}]}}')),
    ],
)  # fmt: skip
async def test_no_list_reads_the_rows_that_it_does_not_show(tmp_path: Path, chosen: ExperimentFilter) -> None:
    """Of SQLite, which has no statistics here: rows of experiments are found by an index, or in their order."""
    asked: list[tuple[str, object]] = []
    database = await Database.at(tmp_path / "plans.db")

    def plans(connection: Connection) -> list[str]:
        listing.listed(connection, chosen, Ordered(is_descending=True), Window(0, 200), NOW)
        event.remove(database._engine, "before_cursor_execute", note)
        questions = [(sql, values) for sql, values in asked if sql.startswith("SELECT")]
        return [
            str(row[3])
            for sql, values in questions
            if "LIMIT" not in sql or "OVER" in sql  # a page is read in its order, and ends when it is full
            for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}", values)  # type: ignore[arg-type]
        ]

    def note(_connection: object, _cursor: object, sql: str, values: object, *_rest: object) -> None:
        asked.append((sql, values))

    event.listen(database._engine, "before_cursor_execute", note)
    found = await database.read(plans)
    await database.close()
    assert found
    assert not [plan for plan in found if re.match(r"SCAN experiments(?! USING COVERING)", plan)], found
