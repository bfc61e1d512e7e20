"""Experiments that are changed, moved, archived and deleted; those that run elsewhere; and who hears of their ends."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import func, insert, select, update
from tests.unit.experiments.experiment_services import CONFIG, PATIENCE, Life, a_platform

from muster.accounts.projects import ProjectPatch
from muster.accounts.workspaces import WorkspacePatch
from muster.api import errors
from muster.engines.protocol import Exit, Failure
from muster.experiments.contract import ExperimentPatch, NewTrial
from muster.experiments.experiment_records import Experiment
from muster.experiments.states import ExperimentState, TrialState
from muster.experiments.unmanaged import SILENT_SECONDS
from muster.records.tables_experiments import CHECKPOINTS, EXPERIMENT_LABELS, EXPERIMENTS, METRICS, TRIALS
from muster.records.tables_logs import TASK_LOGS
from muster.records.tables_tasks import ALLOCATIONS, TASKS
from muster.records.tables_webhooks import WEBHOOK_DELIVERIES
from muster.tasks.log_lines import Line, Origin, Piece
from muster.tasks.webhook_rules import Format, Mode, NewTrigger, NewWebhook, TriggerType
from muster.testing.accounts import ADMIN

pytestmark = pytest.mark.postgres
E, T = ExperimentState, TrialState
BAD = Exit(1, Failure.RESOURCES_FAILED, "it broke")


@pytest.fixture
async def life(tmp_path: Path) -> AsyncIterator[Life]:
    async with a_platform(tmp_path) as found:
        yield found


async def ended(life: Life, config: str = CONFIG) -> Experiment:
    made = await life.create(config)
    life.finish(await life.until_runs(made.id))
    return await life.until(made.id, E.COMPLETED)


async def count(life: Life, table: object) -> int:
    query = select(func.count()).select_from(table)  # type: ignore[arg-type]
    return await life.database.read(lambda connection: connection.scalar(query)) or 0


async def a_project(life: Life, workspace: str) -> int:
    where = (await life.ground.services.workspaces.create(ADMIN, WorkspacePatch(name=workspace))).id
    return (await life.ground.services.projects.create(ADMIN, where, ProjectPatch(name="p"))).id


# Changing


async def test_what_is_patched_is_in_the_record_and_in_the_configuration(life: Life) -> None:
    made = await life.create(is_active=False)
    wanted = ExperimentPatch(
        name="new", description="d", notes="n", labels=["x", "x", "y"], priority=7, weight=2.0, max_slots=4,
        save_trial_best=3,
    )  # fmt: skip
    after = await life.service.patch(ADMIN, made.id, wanted)
    assert (after.name, after.description, after.notes, after.labels) == ("new", "d", "n", ("x", "y"))
    assert (after.priority, after.weight, after.max_slots) == (7, 2.0, 4)
    resources = after.config["resources"]
    assert (resources["priority"], resources["max_slots"], after.config["labels"]) == (7, 4, ["x", "y"])
    assert after.config["checkpoint_storage"]["save_trial_best"] == 3
    assert await count(life, EXPERIMENT_LABELS) == 2
    assert (await life.service.patch(ADMIN, made.id, ExperimentPatch(is_unlimited=True))).max_slots is None
    for wrong in (
        ExperimentPatch(name=" "),
        ExperimentPatch(priority=0),
        ExperimentPatch(weight=-1.0),
        ExperimentPatch(max_slots=-1),
        ExperimentPatch(labels=[""]),
        ExperimentPatch(save_trial_latest=-1),
    ):
        with pytest.raises(errors.BadRequest):
            await life.service.patch(ADMIN, made.id, wrong)


async def test_a_limit_of_slots_that_is_raised_lets_more_trials_run(life: Life) -> None:
    config = CONFIG.replace("name: single", "name: random, max_trials: 3") + "\nresources: {max_slots: 1}"
    made = await life.create(config)
    await life.until_runs(made.id)
    assert [trial.run for trial in await life.trials(made.id)] == [1, 0, 0]
    await life.service.patch(ADMIN, made.id, ExperimentPatch(max_slots=2))
    assert [trial.run for trial in await life.trials(made.id)] == [1, 1, 0]


async def test_a_move_takes_its_tasks_along_and_its_later_trials(life: Life) -> None:
    config = CONFIG.replace("name: single", "name: random, max_trials: 2, max_concurrent_trials: 1")
    made = await life.create(config)
    first = await life.until_runs(made.id)
    project = await a_project(life, "lab")
    await life.service.move(ADMIN, made.id, project)  # type: ignore[arg-type]
    moved = await life.get(made.id)
    assert (moved.project, moved.workspace_name, moved.config["workspace"]) == (project, "lab", "lab")
    life.finish(first)
    async with asyncio.timeout(PATIENCE):
        while len(trials := await life.trials(made.id)) < 2:
            await asyncio.sleep(0.005)
    tasks = [await life.interactive.tasks.get(trial.task) for trial in trials]
    assert {task.workspace for task in tasks} == {moved.workspace}


async def test_only_what_has_ended_is_archived_or_deleted_and_nothing_goes_where_no_more_is_taken(life: Life) -> None:
    made = await life.create()
    for act in (life.service.archive(ADMIN, made.id, is_archived=True), life.service.delete(ADMIN, made.id)):
        with pytest.raises(errors.Conflict, match="ACTIVE"):
            await act
    life.finish(await life.until_runs(made.id))
    await life.until(made.id, E.COMPLETED)
    await life.service.archive(ADMIN, made.id, is_archived=True)
    assert (await life.get(made.id)).is_archived
    project = await a_project(life, "lab")
    with pytest.raises(errors.Conflict, match="archived"):
        await life.service.move(ADMIN, made.id, project)  # type: ignore[arg-type]
    await life.ground.services.projects.archive(ADMIN, project, archived=True)
    with pytest.raises(errors.BadRequest, match="archived"):
        await life.create(project=project)


# Deleting


async def test_a_deleted_experiment_leaves_only_what_it_has_used(life: Life) -> None:
    made = await ended(life)
    [trial] = await life.trials(made.id)
    await life.logs.append(trial.task, [Piece(Origin(), [Line(1, "hello")])])
    metric = {"trial_id": trial.id, "run": 1, "group": "training", "steps": 1, "at": 0.0, "metrics": "{}"}
    await life.database.write(lambda c: c.execute(insert(METRICS).values(metric)))
    await life.service.delete(ADMIN, made.id)
    async with asyncio.timeout(PATIENCE):
        while await count(life, EXPERIMENTS):
            await asyncio.sleep(0.005)
    assert [await count(life, table) for table in (TRIALS, METRICS)] == [0, 0]
    # Beside the trial's task there is the one that removed what it had kept, with a log of its own.
    logged = select(func.count()).select_from(TASK_LOGS).where(TASK_LOGS.c.task_id == trial.task)
    assert await life.database.read(lambda c: c.scalar(logged)) == 0
    assert [await count(life, table) for table in (TASKS, ALLOCATIONS)] == [2, 2]


async def test_what_cannot_be_removed_is_told_and_can_be_tried_again(life: Life) -> None:
    class Stubborn:
        is_stubborn = True

        async def remove(self, experiment: Experiment) -> None:
            if self.is_stubborn:
                raise errors.Unavailable("the storage is away")

    stubborn = Stubborn()
    life.experimenting.core.belongings.append(stubborn)
    made = await ended(life)
    await life.service.delete(ADMIN, made.id)
    failed = await life.until(made.id, E.DELETE_FAILED)
    assert "the storage is away" in failed.error
    stubborn.is_stubborn = False
    await life.service.delete(ADMIN, made.id)
    async with asyncio.timeout(PATIENCE):
        while await count(life, EXPERIMENTS):
            await asyncio.sleep(0.005)


async def test_a_workspace_that_is_deleted_takes_its_experiments_along(life: Life) -> None:
    project = await a_project(life, "lab")
    running = await life.create(project=project)
    await life.until_runs(running.id)
    elsewhere = await life.create(project=project, is_unmanaged=True)
    workspace = elsewhere.workspace
    assert await life.experimenting.core.remover.is_in(workspace, None)
    async with asyncio.timeout(PATIENCE):
        await life.experimenting.core.remover.vacate(workspace, None)
    assert await count(life, EXPERIMENTS) == 0
    assert not life.engine.machine.entries


# Those that run elsewhere


async def test_one_that_runs_elsewhere_is_found_again_by_its_own_id(life: Life) -> None:
    config = "name: mine\nsearcher: {name: single, metric: loss}"
    made = await life.create(config, is_unmanaged=True, external_id="e1")
    assert (await life.create(config, is_unmanaged=True, external_id="e1")).id == made.id
    trial = await life.service.add_trial(ADMIN, NewTrial(made.id, {"lr": 1}, "t1"))
    assert (await life.service.add_trial(ADMIN, NewTrial(made.id, {"lr": 2}, "t1"))).id == trial.id
    assert (trial.hparams, trial.state, bool(trial.task)) == ({"lr": 1}, T.ACTIVE, True)
    begun = await life.service.start_trial(trial.id, is_resumed=False)
    assert (begun.run, begun.latest_checkpoint, begun.steps) == (1, None, 0)
    for act in (life.service.pause, life.service.kill):
        with pytest.raises(errors.BadRequest, match="runs elsewhere"):
            await act(ADMIN, made.id)
    with pytest.raises(errors.BadRequest, match="state"):
        await life.service.beat(trial.id, "HAPPY")
    await life.service.beat(trial.id, "RUNNING")
    after = await life.service.beat(trial.id, "COMPLETED")
    assert (after.state, after.ended is not None) == (T.COMPLETED, True)
    assert (await life.get(made.id)).state is E.COMPLETED
    row = {"uuid": "c1", "trial_id": trial.id, "experiment_id": made.id, "state": "COMPLETED", "steps": 9}
    await life.database.write(lambda c: c.execute(insert(CHECKPOINTS).values(**row, reported=0.0)))
    latest = update(TRIALS).where(TRIALS.c.id == trial.id).values(latest_checkpoint="c1")
    await life.database.write(lambda c: c.execute(latest))
    again = await life.service.start_trial(trial.id, is_resumed=True)
    assert (again.run, again.latest_checkpoint, again.steps) == (2, "c1", 9)
    assert (await life.get(made.id)).state is E.ACTIVE


async def test_one_that_has_fallen_silent_is_given_up_until_it_is_heard_again(life: Life) -> None:
    made = await life.create("name: x\nsearcher: {name: single, metric: loss}", is_unmanaged=True)
    trial = await life.service.add_trial(ADMIN, NewTrial(made.id))
    long_ago = trial.created - SILENT_SECONDS - 1.0
    silent = update(TRIALS).values(last_activity=long_ago)
    await life.database.write(lambda c: c.execute(silent))
    await life.experimenting.core.unmanaged.look()
    assert [found.state for found in await life.trials(made.id)] == [T.ERROR]
    assert (await life.get(made.id)).state is E.ERROR
    await life.service.beat(trial.id, None)
    assert (await life.get(made.id)).state is E.ACTIVE


async def test_one_that_runs_here_does_not_report_its_own_state(life: Life) -> None:
    made = await life.create()
    trial = await life.until_runs(made.id)
    for act in (
        life.service.beat(trial.id, "COMPLETED"),
        life.service.start_trial(trial.id, is_resumed=False),
        life.service.add_trial(ADMIN, NewTrial(made.id)),
    ):
        with pytest.raises(errors.BadRequest, match="runs here"):
            await act


# Who hears of it


async def test_webhooks_are_told_of_an_end_once(life: Life) -> None:
    triggers = [NewTrigger(TriggerType.STATE_CHANGE, state=state) for state in ("COMPLETED", "ERROR")]
    hook = NewWebhook("w", "http://127.0.0.1:1/x", Format.DEFAULT, Mode.WORKSPACE, triggers)
    await life.hooks.create(ADMIN, hook)
    await life.hooks.create(ADMIN, replace(hook, name="other", triggers=triggers[1:]))
    await ended(life)
    assert await count(life, WEBHOOK_DELIVERIES) == 1


async def test_a_trial_may_speak_for_its_experiment_and_progress_is_kept(life: Life) -> None:
    made = await life.create()
    trial = await life.until_runs(made.id)
    await life.service.progressed(trial.id, 0.25)
    assert ((await life.get(made.id)).progress, (await life.trials(made.id))[0].progress) == (0.25, 0.25)
    with pytest.raises(errors.BadRequest, match="progress"):
        await life.service.progressed(trial.id, 7.0)


async def test_a_line_of_its_log_labels_a_trial(life: Life) -> None:
    made = await life.create()
    trial = await life.until_runs(made.id)
    await life.logs.append(
        trial.task, [Piece(Origin(f"{trial.task}.1"), [Line(1, "RuntimeError: CUDA out of memory.")])]
    )
    async with asyncio.timeout(PATIENCE):
        while not (await life.trials(made.id))[0].log_signal:
            await asyncio.sleep(0.005)
    assert (await life.trials(made.id))[0].log_signal == "CUDA OOM"
