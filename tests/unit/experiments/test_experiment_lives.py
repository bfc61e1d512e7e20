"""Experiments through the service that routes use: made, turned, changed, continued, deleted; and those elsewhere."""

import asyncio
import base64
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import func, select
from tests.unit.experiments.experiment_services import CONFIG, PATIENCE, Life, a_platform

from muster.accounts.callers import WorkspaceId
from muster.api import errors
from muster.engines.protocol import AllocationId, Caveat, Exit, Failure
from muster.experiments.contract import NewExperiment
from muster.experiments.states import ExperimentId, ExperimentState, TrialState
from muster.records.tables_experiments import EXPERIMENTS
from muster.tasks.contexts import File
from muster.testing.accounts import ADMIN

pytestmark = pytest.mark.postgres
E, T = ExperimentState, TrialState
BAD = Exit(1, Failure.RESOURCES_FAILED, "it broke")
CODE = [File("train.py", content=base64.b64encode(b"print(1)").decode())]


@pytest.fixture
async def life(tmp_path: Path) -> AsyncIterator[Life]:
    async with a_platform(tmp_path) as found:
        yield found


async def test_an_experiment_is_made_runs_and_ends(life: Life) -> None:
    made = await life.create(files=CODE)
    assert (made.name, made.labels, made.state, made.slots_per_trial) == ("mnist", ("a", "b"), E.ACTIVE, 1)
    assert made.config["checkpoint_storage"]["type"] == "shared_fs"
    trial = await life.until_runs(made.id)
    assert (trial.hparams, trial.run) == ({"lr": 0.1}, 1)
    task = await life.interactive.tasks.get(trial.task)
    assert (task.type, await life.interactive.contexts.get(task.snapshot["context"])) != ("TRIAL", b"")
    life.finish(trial)
    assert (await life.until(made.id, E.COMPLETED)).progress == 1.0
    assert ("experiment.create", str(made.id)) in await life.deeds()


async def test_what_is_only_checked_is_not_made(life: Life) -> None:
    checked = await life.service.validate(ADMIN, NewExperiment(CONFIG))
    assert (checked.experiment, checked.config["name"]) == (None, "mnist")
    large = await life.service.validate(ADMIN, NewExperiment(f"{CONFIG}\nresources: {{slots_per_trial: 512}}"))
    assert list(large.caveats) == [Caveat.CURRENT_SLOTS_EXCEEDED]
    for wrong, told in (
        ("name: [", "line 2"),
        (CONFIG.replace("metric: loss", "metrik: loss"), "metrik"),
        (f"{CONFIG}\nresources: {{max_slots: 1, slots_per_trial: 2}}", "max_slots"),
        (f"{CONFIG}\nresources: {{resource_pool: nowhere}}", "nowhere"),
        (f"{CONFIG}\nworkspace: some\nproject: where", "no project 'where'"),
        (CONFIG.replace("metric: loss", "metric: loss, source_trial_id: 77"), "source_trial_id"),
    ):
        with pytest.raises(errors.ApiError, match=told):
            await life.service.create(ADMIN, NewExperiment(wrong, files=CODE))
    assert await life.database.read(lambda c: c.scalar(select(func.count()).select_from(EXPERIMENTS))) == 0
    assert not list((life.folder / "contexts").glob("*")), "nor are its files kept"


async def test_a_paused_experiment_stops_its_trial_and_goes_on_in_another_run(life: Life) -> None:
    made = await life.create()
    trial = await life.until_runs(made.id)
    await life.service.pause(ADMIN, made.id)
    await life.service.pause(ADMIN, made.id)
    async with asyncio.timeout(PATIENCE):
        while life.allocations.state(AllocationId(f"{trial.task}.1")) is not None:
            await asyncio.sleep(0.01)
    assert [found.state for found in await life.trials(made.id)] == [T.PAUSED]
    await life.service.activate(ADMIN, made.id)
    again = await life.until_runs(made.id)
    assert (again.run, again.restarts) == (2, 0)
    life.finish(again)
    await life.until(made.id, E.COMPLETED)
    for turn in (life.service.pause, life.service.activate):
        with pytest.raises(errors.Conflict, match="COMPLETED"):
            await turn(ADMIN, made.id)
    await life.service.kill(ADMIN, made.id)
    await life.service.cancel(ADMIN, made.id)
    assert (await life.get(made.id)).state is E.COMPLETED


async def test_one_that_is_made_paused_runs_only_when_it_is_activated(life: Life) -> None:
    made = await life.create(is_active=False)
    async with asyncio.timeout(PATIENCE):
        while not (trials := await life.trials(made.id)):
            await asyncio.sleep(0.005)
    assert (made.state, trials[0].state, trials[0].run) == (E.PAUSED, T.PAUSED, 0)
    await life.service.activate(ADMIN, made.id)
    await life.until_runs(made.id)


@pytest.mark.parametrize("how", ["cancel", "kill"])
async def test_one_that_is_ended_by_its_user_is_canceled(life: Life, how: str) -> None:
    made = await life.create()
    await life.until_runs(made.id)
    await getattr(life.service, how)(ADMIN, made.id)
    await life.until(made.id, E.CANCELED)
    assert [trial.state for trial in await life.trials(made.id)] == [T.CANCELED]
    assert (f"experiment.{how}", str(made.id)) in await life.deeds()


async def test_killing_its_only_trial_cancels_a_search(life: Life) -> None:
    made = await life.create()
    trial = await life.until_runs(made.id)
    await life.service.kill_trial(ADMIN, trial.id)
    await life.until(made.id, E.CANCELED)
    await life.service.kill_trial(ADMIN, trial.id)


async def test_a_fork_has_the_model_definition_of_its_parent(life: Life) -> None:
    parent = await life.create(files=CODE)
    fork = await life.create(parent=parent.id)
    assert fork.forked_from == parent.id
    contexts = life.interactive.contexts
    archive = await contexts.get(f"experiment-{parent.id}")
    assert archive
    assert archive == await contexts.get(f"experiment-{fork.id}")
    stranger = await life.ground.caller("eve")
    with pytest.raises(errors.ApiError):
        await life.service.create(ADMIN.__class__(stranger), NewExperiment(CONFIG, parent=parent.id))


async def test_one_that_failed_is_continued_with_another_configuration_and_the_same_trial(life: Life) -> None:
    made = await life.create()
    trial = await life.until_runs(made.id)
    with pytest.raises(errors.Conflict, match="ACTIVE"):
        await life.service.continue_(ADMIN, made.id, "")
    life.finish(trial, BAD)
    await life.until(made.id, E.ERROR)
    again = await life.service.continue_(ADMIN, made.id, "hyperparameters: {lr: 0.5}")
    assert (again.state, again.error, again.ended) == (E.ACTIVE, "", None)
    going = await life.until_runs(made.id)
    assert (going.id, going.task, going.run, going.restarts) == (trial.id, f"{trial.task}-1", 2, 0)
    assert going.hparams == {"lr": 0.5}
    life.finish(going)
    ended = await life.until(made.id, E.COMPLETED)
    assert ended.trial_count == 1


async def test_a_search_that_was_canceled_goes_on_with_what_is_missing(life: Life) -> None:
    config = CONFIG.replace("name: single", "name: random, max_trials: 2, max_concurrent_trials: 1")
    made = await life.create(config)
    life.finish(await life.until_runs(made.id))
    async with asyncio.timeout(PATIENCE):
        while len(await life.trials(made.id)) < 2:
            await asyncio.sleep(0.005)
    await life.until_runs(made.id)
    await life.service.kill(ADMIN, made.id)
    await life.until(made.id, E.CANCELED)
    await life.service.continue_(ADMIN, made.id, "")
    going = await life.until_runs(made.id)
    assert going.id == (await life.trials(made.id))[1].id
    life.finish(going)
    await life.until(made.id, E.COMPLETED)
    assert [trial.state for trial in await life.trials(made.id)] == [T.COMPLETED, T.COMPLETED]
    with pytest.raises(errors.Conflict, match="nothing to continue"):
        await life.service.continue_(ADMIN, made.id, "")


async def test_unknown_experiments_and_trials_are_not_found(life: Life) -> None:
    for act in (life.service.pause, life.service.activate, life.service.kill, life.service.delete):
        with pytest.raises(errors.NotFound):
            await act(ADMIN, ExperimentId(77))


async def test_trials_wait_for_room_in_their_workspace_and_can_be_ended_while_they_do(life: Life) -> None:
    await life.ground.services.bindings.set_quotas(ADMIN, WorkspaceId(1), {"": 2})
    config = CONFIG.replace("name: single", "name: random, max_trials: 3")
    made = await life.create(config)
    await life.until_runs(made.id)
    await asyncio.sleep(0.1)
    assert len(life.engine.machine.entries) == 2
    first = (await life.trials(made.id))[0]
    life.finish(first)
    async with asyncio.timeout(PATIENCE):
        while f"{(await life.trials(made.id))[2].task}.1" not in life.engine.machine.entries:
            await asyncio.sleep(0.005)
    other = await life.create()
    await asyncio.sleep(0.1)
    await life.service.kill(ADMIN, other.id)
    assert (await life.until(other.id, E.CANCELED)).slot_seconds == 0.0
    too_large = await life.create(f"{CONFIG}\nresources: {{slots_per_trial: 3}}")
    await life.until(too_large.id, E.ERROR)
