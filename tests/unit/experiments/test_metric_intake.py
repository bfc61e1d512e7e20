"""Reports of trials, taken in: once each, in whatever order they come, with all that follows from them."""

import asyncio
import contextlib
import json
import math
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from muster.api import errors
from muster.experiments import metric_blocks, metric_reports
from muster.experiments.inbox import Validated
from muster.experiments.metric_intake import MetricIntake
from muster.experiments.metric_reports import Report
from muster.experiments.states import TrialId
from muster.testing import trials
from muster.testing.trials import Reporting, a_report

pytestmark = pytest.mark.postgres


@pytest.fixture
async def at(tmp_path: Path) -> AsyncIterator[Reporting]:
    async with trials.reporting(tmp_path) as found:
        yield found


@pytest.fixture
async def trial(at: Reporting) -> TrialId:
    return await at.trial(await at.experiment())


async def in_force(at: Reporting, trial: TrialId) -> list[tuple[Any, ...]]:
    rows = [row for row in await at.rows(trial) if not row.is_archived]
    return [(row.run, row.group, row.steps, metric_reports.decode(row.group, row.metrics)[0]) for row in rows]


async def summary(at: Reporting, trial: TrialId, group: str, name: str) -> Any:
    return (await at.told(trial)).summary_metrics[group][name]


# What is kept


async def test_a_report_is_kept_as_it_is_told_and_summed_up(at: Reporting, trial: TrialId) -> None:
    await at.train(trial, 10, loss=4.0, lr=1)
    await at.train(trial, 20, loss=2.0, lr=1, note="warm")
    rows = await at.rows(trial)
    assert json.loads(rows[0].metrics) == {"avg_metrics": {"loss": 4.0, "lr": 1}}
    assert (rows[0].steps, rows[0].at, rows[0].run) == (10, trials.START + 10, 1)
    told = await at.told(trial)
    assert told.total_batches == 20
    assert told.summary_metrics["avg_metrics"] == {
        "loss": {"type": "number", "last": 2.0, "count": 2, "min": 2.0, "max": 4.0, "sum": 6.0, "mean": 3.0},
        "lr": {"type": "number", "last": 1, "count": 2, "min": 1.0, "max": 1.0, "sum": 2.0, "mean": 1.0},
        "note": {"type": "string", "last": "warm"},
    }


async def test_a_validation_is_what_the_search_hears_in_the_same_change(at: Reporting) -> None:
    experiment = await at.experiment()
    first, second = await at.trial(experiment), await at.trial(experiment)
    await at.validate(first, 10, loss=0.5)
    await at.validate(first, 20, loss=0.7)
    await at.validate(second, 10, loss=0.4, accuracy=1.0)
    await at.validate(second, 20, accuracy=0.9)
    assert await at.posted(experiment) == [
        Validated(first, 0.5, 10.0), Validated(first, 0.7, 20.0), Validated(second, 0.4, 10.0),
    ]  # fmt: skip
    assert at.woken.experiments == [experiment] * 3
    ids = {(row.steps): row.id for row in await at.rows(first)}
    told = await at.told(first)
    assert (told.searcher_metric, told.best_validation, told.latest_validation) == (0.5, ids[10], ids[20])
    best = await at.told_experiment(experiment)
    assert (best.best_metric, best.best_trial) == (0.4, second)


async def test_greater_may_be_better_and_a_nan_is_never_the_best(at: Reporting) -> None:
    experiment = await at.experiment("acc", is_smaller_better=False)
    trial = await at.trial(experiment)
    for steps, value in enumerate(("NaN", 0.3, "NaN", 0.6, 0.5)):
        await at.validate(trial, steps, acc=value)
    assert (await at.told(trial)).searcher_metric == 0.6
    assert (await at.told_experiment(experiment)).best_metric == 0.6
    heard = [event.metric for event in await at.posted(experiment) if isinstance(event, Validated)]
    assert math.isnan(heard[0])
    assert heard[3] == 0.6
    found = await summary(at, trial, "validation_metrics", "acc")
    assert (found["min"], found["max"], found["mean"], found["last"]) == (0.3, 0.6, "NaN", 0.5)


async def test_a_search_may_measure_length_by_another_metric(at: Reporting) -> None:
    experiment = await at.experiment(time_metric="epochs")
    trial = await at.trial(experiment)
    await at.validate(trial, 100, loss=1.0, epochs=3)
    assert await at.posted(experiment) == [Validated(trial, 1.0, 3.0)]
    with pytest.raises(errors.BadRequest, match=r"avgMetrics\.epochs: is the time metric"):
        await at.validate(trial, 200, loss=1.0)
    with pytest.raises(errors.BadRequest, match=r"avgMetrics\.loss: is the metric of the search"):
        await at.validate(trial, 200, loss="low", epochs=4)
    assert len(await at.rows(trial)) == 1


async def test_what_is_of_the_machine_belongs_to_no_step(at: Reporting, trial: TrialId) -> None:
    sample = {"node-1": {"cpu_util_simple": 12.5}}
    for _ in range(2):  # the second time because the first answer was lost
        await at.intake.report(a_report(trial, "cpu", None, sample, at=1))
    await at.intake.report(a_report(trial, "cpu", None, sample, at=2))
    assert await in_force(at, trial) == [(1, "cpu", None, sample)] * 2
    told = await at.told(trial)
    assert told.total_batches == 0
    assert told.summary_metrics["cpu"]["node-1"] == {"type": "object", "last": {"cpu_util_simple": 12.5}}


# Again, and more of the same


async def test_a_report_that_is_sent_again_changes_nothing(at: Reporting) -> None:
    experiment = await at.experiment()
    trial = await at.trial(experiment)
    for _ in range(2):
        await at.validate(trial, 10, loss=0.5, worst="NaN", confusion=[[1, 2], [3, 4]])
        await at.train(trial, 10, loss=0.6)
    before = await at.told(trial)
    after_a_restart = MetricIntake(at.database, at.ground.clock, at.woken)
    async with trials.running(after_a_restart):
        await after_a_restart.report(a_report(trial, "training", 10, {"loss": 0.6}))
    assert len(await at.rows(trial)) == 2
    assert len(await at.posted(experiment)) == 1
    assert await at.told(trial) == before


async def test_a_second_report_of_a_step_adds_to_the_first(at: Reporting) -> None:
    experiment = await at.experiment()
    trial = await at.trial(experiment)
    await at.validate(trial, 10, accuracy=0.9)
    assert await at.posted(experiment) == []
    await at.validate(trial, 10, loss=0.5)
    await at.validate(trial, 10, accuracy=0.9)
    assert await in_force(at, trial) == [(1, "validation", 10, {"accuracy": 0.9, "loss": 0.5})]
    assert await at.posted(experiment) == [Validated(trial, 0.5, 10.0)]
    assert (await summary(at, trial, "validation_metrics", "accuracy"))["count"] == 1


async def test_both_halves_of_a_step_may_come_in_one_change(at: Reporting, trial: TrialId) -> None:
    halves = [a_report(trial, "training", 5, {"loss": 1.0}), a_report(trial, "training", 5, {"lr": 2.0})]
    await at.intake.report_all([*halves, *halves])
    assert await in_force(at, trial) == [(1, "training", 5, {"loss": 1.0, "lr": 2.0})]
    assert (await summary(at, trial, "avg_metrics", "lr"))["count"] == 1


async def test_a_value_is_not_said_in_two_ways_but_in_groups_of_ones_own(at: Reporting, trial: TrialId) -> None:
    await at.train(trial, 10, loss=0.5)
    with pytest.raises(errors.Conflict, match=r"avgMetrics\.loss: training step 10 of trial \d+ has it as 0.5 already"):
        await at.train(trial, 10, loss=0.6)
    for value in (1.0, 3.0, 2.0):
        await at.intake.report(a_report(trial, "mine", 10, {"x": value}))
    await at.intake.report(a_report(trial, "mine", 11, {"x": 5}))
    assert await in_force(at, trial) == [
        (1, "training", 10, {"loss": 0.5}), (1, "mine", 10, {"x": 2.0}), (1, "mine", 11, {"x": 5}),
    ]  # fmt: skip
    assert await summary(at, trial, "mine", "x") == {
        "type": "number", "last": 5, "count": 2, "min": 2.0, "max": 5.0, "sum": 7.0, "mean": 3.5,
    }  # fmt: skip


async def test_batches_are_kept_and_may_come_again(at: Reporting, trial: TrialId) -> None:
    report = replace(a_report(trial, "training", 2, {"loss": 1.5}), batches=({"loss": 1.0}, {"loss": 2.0}))
    for _ in range(2):
        await at.intake.report(report)
    assert metric_reports.decode("training", (await at.rows(trial))[0].metrics)[1] == [{"loss": 1.0}, {"loss": 2.0}]
    with pytest.raises(errors.Conflict, match="batchMetrics"):
        await at.intake.report(replace(report, batches=({"loss": 9.0},)))


async def test_reports_out_of_order_are_all_kept(at: Reporting, trial: TrialId) -> None:
    for steps in (30, 10, 20):
        await at.validate(trial, steps, loss=float(steps))
    told = await at.told(trial)
    latest = next(row.id for row in await at.rows(trial) if row.steps == 30)
    assert (told.total_batches, told.searcher_metric, told.latest_validation) == (30, 10.0, latest)


# Another run


async def test_a_run_that_goes_on_takes_the_place_of_what_was_not_saved(at: Reporting) -> None:
    experiment = await at.experiment()
    trial = await at.trial(experiment)
    for steps in range(10, 60, 10):
        await at.train(trial, steps, loss=float(steps))
    await at.validate(trial, 20, loss=0.2)
    await at.validate(trial, 40, loss=0.1)
    await at.checkpoint(trial, "saved", 20)
    await at.change_trial(trial, run=2)
    assert (await at.told(trial)).total_batches == 50  # until it says something itself
    await at.train(trial, 30, run=2, loss=7.0)
    assert await in_force(at, trial) == [
        (1, "training", 10, {"loss": 10.0}),
        (1, "training", 20, {"loss": 20.0}),
        (1, "validation", 20, {"loss": 0.2}),
        (2, "training", 30, {"loss": 7.0}),
    ]
    told = await at.told(trial)
    assert (told.total_batches, told.searcher_metric) == (30, 0.2)
    assert told.best_validation == told.latest_validation is not None
    best = await at.told_experiment(experiment)
    assert (best.best_metric, best.best_trial) == (0.2, trial)
    found = await summary(at, trial, "avg_metrics", "loss")
    assert (found["count"], found["max"], found["last"]) == (3, 20.0, 7.0)


async def test_without_a_checkpoint_all_is_made_again(at: Reporting) -> None:
    experiment = await at.experiment()
    trial, other = await at.trial(experiment), await at.trial(experiment)
    await at.validate(other, 10, loss=3.0)
    await at.validate(trial, 0, loss=9.0)
    await at.validate(trial, 10, loss=1.0)
    await at.change_trial(trial, run=2)
    await at.validate(trial, 0, run=2, loss=8.0)
    assert await in_force(at, trial) == [(2, "validation", 0, {"loss": 8.0})]
    assert (await at.told(trial)).searcher_metric == 8.0
    best = await at.told_experiment(experiment)
    assert (best.best_metric, best.best_trial) == (3.0, other)


async def test_a_run_that_is_over_says_nothing_new(at: Reporting, trial: TrialId) -> None:
    await at.train(trial, 10, loss=1.0)
    await at.change_trial(trial, run=2)
    await at.train(trial, 10, run=1, loss=1.0)  # it had not heard the answer
    for run, steps in ((1, 20), (3, 20)):
        with pytest.raises(errors.Conflict, match=rf"trialRunId: trial {trial} is in its run 2"):
            await at.train(trial, steps, run=run, loss=1.0)
    assert len(await at.rows(trial)) == 1


async def test_a_task_speaks_for_its_own_latest_run_only(at: Reporting, trial: TrialId) -> None:
    task = (await at.told(trial)).task
    report = a_report(trial, "training", 1, {"loss": 1.0})
    await at.intake.report(replace(report, allocation=f"{task}.1"))
    for allocation in (f"{task}.2", "other.1", task):
        with pytest.raises(errors.Forbidden):
            await at.intake.report(replace(report, steps=2, allocation=allocation))
    with pytest.raises(errors.NotFound, match="trial 999 not found"):
        await at.intake.report(replace(report, trial=TrialId(999)))


# What is wrong


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"group": ""}, "group: "),
        ({"group": "a.b"}, "group: "),
        ({"group": "x" * 255}, "group: "),
        ({"steps": None}, "metrics.stepsCompleted: training metrics belong to a step"),
        ({"steps": -1}, "metrics.stepsCompleted: must be"),
        ({"metrics": {"": 1}}, "metrics.metrics.avgMetrics.: a name"),
        ({"metrics": {"a\0b": 1}}, "metrics.metrics.avgMetrics.a\0b: a name"),
        ({"metrics": {"big": 2**64}}, r"metrics.metrics.avgMetrics.big: 184467"),
        ({"metrics": {"nan": math.nan}}, "metrics.metrics.avgMetrics.nan: write it as a word"),
        ({"metrics": {str(each): each for each in range(2001)}}, "avgMetrics: at most 2000 values"),
        ({"metrics": {"text": "x" * 2**20}}, "metrics: is 1024 KiB long"),
        ({"metrics": json.loads('{"a":' * 9 + "1" + "}" * 9)}, "avgMetrics.a: is nested deeper than 8"),
    ],
)
async def test_a_bad_report_is_told_by_its_field(
    at: Reporting, trial: TrialId, changed: dict[str, Any], told: str
) -> None:
    with pytest.raises(errors.BadRequest) as caught:
        await at.intake.report(replace(a_report(trial, "training", 1, {"loss": 1.0}), **changed))
    assert told in caught.value.message
    assert await at.rows(trial) == []


async def test_one_bad_report_among_many_is_refused_alone(at: Reporting, trial: TrialId) -> None:
    reports = [a_report(trial, "training", steps, {"loss": 1.0}) for steps in range(5)]
    with pytest.raises(errors.Conflict):
        await at.intake.report_all([*reports[:3], replace(reports[1], metrics={"loss": 2.0}), *reports[3:]])
    assert [row.steps for row in await at.rows(trial)] == [0, 1, 2, 3, 4]


async def test_a_change_that_fails_leaves_nothing_in_memory(at: Reporting, trial: TrialId) -> None:
    await at.train(trial, 1, loss=1.0)

    # A row that the table refuses: what was summed up before it must be forgotten again.
    bad = replace(a_report(trial, "training", 2, {"loss": 100.0}), at=None)  # type: ignore[arg-type]
    with pytest.raises(errors.Unavailable):
        await at.intake.report(bad)
    await at.train(trial, 2, loss=3.0)
    found = await summary(at, trial, "avg_metrics", "loss")
    assert (found["count"], found["max"]) == (2, 3.0)


async def test_reports_of_many_trials_at_once_are_all_there(at: Reporting) -> None:
    experiment = await at.experiment()
    found = [await at.trial(experiment) for _ in range(5)]
    async with asyncio.TaskGroup() as group:
        for steps in range(20):
            for trial in found:
                group.create_task(at.validate(trial, steps, loss=float(steps + trial)))
    for trial in found:
        assert len(await at.rows(trial)) == 20
        assert (await at.told(trial)).searcher_metric == float(trial)
    assert len(await at.posted(experiment)) == 100


# Columns


async def test_columns_are_the_same_as_rows(at: Reporting, trial: TrialId, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metric_blocks, "BLOCK", 32)
    monkeypatch.setattr(metric_blocks, "SPARE", 8)

    async def columns() -> dict[str, list[tuple[int, float]]]:
        read = await at.database.read(lambda c: metric_blocks.read(c, trial, "mine", lambda _: True))
        return {name: list(zip(of.steps.tolist(), of.values.tolist(), strict=True)) for name, of in read.items()}

    expected: dict[int, dict[str, float]] = {}

    async def say(steps: int, run: int = 1, **metrics: float) -> None:
        expected[steps] = {**expected.get(steps, {}), **metrics}
        await at.intake.report(a_report(trial, "mine", steps, metrics, run))

    async def agrees() -> bool:
        names = {name for each in expected.values() for name in each}
        return await columns() == {
            name: [(steps, expected[steps][name]) for steps in sorted(expected) if name in expected[steps]]
            for name in names
        }

    for steps in range(100):
        await say(steps * 2, a=float(steps))
        if steps % 3 == 0:
            await say(steps * 2, b=float(-steps))
    ends = await at.database.read(lambda c: metric_blocks.end(c, trial, "mine"))
    assert ends > 60  # some are in blocks
    assert await agrees()
    await say(7, a=70.0)  # late
    await say(10, b=1.0)  # more of what is in a block
    await say(12, a=1000.0)  # another value of what is in a block
    assert await agrees()
    found = await summary(at, trial, "mine", "a")
    assert (found["count"], found["max"], found["min"]) == (101, 1000.0, 0.0)
    await at.checkpoint(trial, "saved", 50)
    await at.change_trial(trial, run=2)
    for steps in [each for each in expected if each > 50]:
        del expected[steps]
    for steps in range(60, 160, 2):
        await say(steps, run=2, a=1.0)
    assert await agrees()


# Whatever happens


@pytest.mark.parametrize("seed", range(6))
async def test_whatever_is_reported_what_is_known_agrees_with_the_rows(
    at: Reporting, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs that go on from checkpoints or do not, reports that come again, late, in halves, and a server that is
    restarted; all that is kept beside the rows must be what they come to."""
    monkeypatch.setattr(metric_blocks, "BLOCK", 16)
    monkeypatch.setattr(metric_blocks, "SPARE", 4)
    chance = random.Random(seed)
    experiment = await at.experiment()
    found = [await at.trial(experiment) for _ in range(2)]
    runs, steps = dict.fromkeys(found, 1), dict.fromkeys(found, 0)
    intake, told = at.intake, list[Report]()
    async with AsyncExitStack() as stack:
        for _ in range(150):
            trial = chance.choice(found)
            deed = chance.random()
            if deed < 0.03:
                runs[trial] += 1
                steps[trial] = chance.choice([0, steps[trial] // 2, steps[trial]])
                await at.change_trial(trial, run=runs[trial])
            elif deed < 0.06:
                await at.checkpoint(trial, f"saved-{chance.random()}", steps[trial], run=runs[trial])
            elif deed < 0.08:
                intake = MetricIntake(at.database, at.ground.clock, at.woken)
                await stack.enter_async_context(trials.running(intake))
            elif deed < 0.2 and told:
                with contextlib.suppress(errors.Conflict):  # of a run that is over, and was archived
                    await intake.report_all(chance.sample(told, min(3, len(told))))
            else:
                steps[trial] += chance.choice([0, 1, 1, 2])
                names = chance.sample(["loss", "a", "b"], chance.randint(1, 3))
                values = {name: chance.choice([chance.uniform(-9, 9), "NaN", 3]) for name in names}
                group = chance.choice(["training", "validation", "mine"])
                told.append(a_report(trial, group, steps[trial], values, runs[trial]))
                with contextlib.suppress(errors.Conflict):  # the same step was said otherwise
                    await intake.report(told[-1])
        for trial in found:
            await agrees(at, trial)
    best = [each.searcher_metric for trial in found if (each := await at.told(trial)).searcher_metric is not None]
    assert (await at.told_experiment(experiment)).best_metric == min(best, default=None)


async def agrees(at: Reporting, trial: TrialId) -> None:
    rows = await in_force(at, trial)
    assert len({(group, steps) for _, group, steps, _ in rows}) == len(rows)
    told = await at.told(trial)
    assert told.total_batches == max([0, *(steps for _, _, steps, _ in rows)])
    losses = [metric_reports.number(metrics.get("loss")) for _, group, _, metrics in rows if group == "validation"]
    numbers = [loss for loss in losses if loss is not None and not math.isnan(loss)]
    assert told.searcher_metric == min(numbers, default=None)
    for key, summary in told.summary_metrics.items():
        group = metric_reports.group_of(key)
        columns = await at.database.read(partial(metric_blocks.read, trial=trial, group=group, wanted=lambda _: True))
        for name in ("loss", "a", "b"):
            mine = [metrics[name] for _, of, _, metrics in rows if of == group and name in metrics]
            assert summary.get(name, {"count": 0})["count"] == len(mine), (group, name)
            assert len(columns.get(name, ())) == len(mine)
            values = [value for each in mine if not math.isnan(value := metric_reports.number(each) or 0.0)]
            if values:
                assert (summary[name]["min"], summary[name]["max"]) == (min(values), max(values))
