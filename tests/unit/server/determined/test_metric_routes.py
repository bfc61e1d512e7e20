"""Metrics over the wire: as Determined's library reports them and its client reads them, and who may."""

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from muster.accounts.callers import Caller, UserId
from muster.experiments import experiment_records
from muster.experiments.contract import Experiments
from muster.experiments.inbox import EarlyExit, Validated
from muster.experiments.places import Places
from muster.experiments.states import ExperimentId, TrialId
from muster.server.determined import (
    metric_series,
    metric_views,
    metrics,
    profiling,
    trial_reports,
    workloads,
)  # fmt: skip
from muster.server.determined.router import Router
from muster.server.determined.routing import Route
from muster.store.embedded import EmbeddedStore
from muster.testing import trials
from muster.testing.accounts import ADMIN
from muster.testing.asgi import AsgiClient, Reply
from muster.testing.servers import app_for
from muster.testing.trials import Reporting, a_report

pytestmark = pytest.mark.postgres
START = "2023-11-14T22:13:20.000000Z"


@dataclass
class Heard:
    """What an experiment is asked to do."""

    gave_up: list[tuple[TrialId, EarlyExit]] = field(default_factory=list)
    progress: list[tuple[TrialId, float]] = field(default_factory=list)

    async def give_up(self, trial: TrialId, reason: EarlyExit) -> None:
        self.gave_up.append((trial, reason))

    async def progressed(self, trial: TrialId, progress: float) -> None:
        self.progress.append((trial, progress))


@dataclass
class Wire:
    reporting: Reporting
    routes: list[Route]
    client: AsgiClient
    callers: dict[str, Caller]
    heard: Heard

    async def request(self, method: str, path: str, body: object = None, token: str = "admin", **query: Any) -> Reply:
        asked = urlencode({name.replace("__", "."): value for name, value in query.items()}, doseq=True)
        headers = {"authorization": f"Bearer {token}"}
        sent = b"" if body is None else json.dumps(body).encode()
        return await self.client.request(method, f"/api/v1{path}?{asked}", body=sent, headers=headers)

    async def get(self, path: str, **query: Any) -> Any:
        reply = await self.request("GET", path, **query)
        assert reply.status == 200, reply.body
        return reply.json

    async def stream(self, path: str, **query: Any) -> list[Any]:
        reply = await self.request("GET", path, **query)
        assert reply.status == 200, reply.body
        return [json.loads(line)["result"] for line in reply.body.splitlines()]

    async def post(self, path: str, body: object, token: str = "own") -> Any:
        reply = await self.request("POST", path, body, token)
        assert reply.status == 200, reply.body
        return reply.json

    async def refusal(self, method: str, path: str, body: object = None, token: str = "admin", **query: Any) -> str:
        reply = await self.request(method, path, body, token, **query)
        assert reply.status != 200, reply.body
        return f"{reply.status} {reply.json['error']['error']}"


def body(steps: int | None, group: str = "training", run: int = 1, **values: Any) -> dict[str, Any]:
    told = {"trialId": 1, "trialRunId": run, "stepsCompleted": steps, "reportTime": None}
    return {"group": group, "metrics": {**told, "metrics": {"avgMetrics": values, "batchMetrics": None}}}


@pytest.fixture
async def at(tmp_path: Path) -> AsyncIterator[Wire]:
    """One experiment, with trial 1 that speaks as `own`, and trial 2 that speaks as `other`."""
    async with trials.reporting(tmp_path) as found, EmbeddedStore.in_memory(clock=found.ground.clock) as store:
        experiment = await found.experiment()
        made = [await found.trial(experiment, hparams={"lr": number}) for number in range(2)]
        assert (experiment, made) == (1, [1, 2])
        callers = {"admin": ADMIN.caller}
        for name, trial in zip(("own", "other"), made, strict=True):
            task = (await found.told(trial)).task
            callers[name] = Caller(UserId(1), "admin", allocation=f"{task}.1", task=task)

        async def authenticate(headers: Mapping[str, str]) -> Caller | None:
            return callers.get(headers.get("authorization", "").removeprefix("Bearer "))

        database, clock, authorizer = found.database, found.ground.clock, found.ground.services.authorizer
        places, heard = Places(database, authorizer), Heard()
        experiments: Experiments = heard  # type: ignore[assignment]
        routes = [
            *metrics.routes(found.intake, database, places, clock),
            *workloads.routes(database, places),
            *metric_series.routes(database, places),
            *metric_views.routes(database, places, clock),
            *profiling.routes(found.intake, database, places, clock),
            *trial_reports.routes(experiments, database, places),
        ]
        app = app_for(store)
        app.mount(Router(routes, authenticate, authorizer))
        yield Wire(found, routes, AsgiClient(app), callers, heard)


# Reported


async def test_what_the_library_reports_is_what_the_client_reads(at: Wire) -> None:
    assert await at.post("/trials/1/metrics", body(10, loss=0.5, note="warm", worst="NaN")) == {}
    await at.post("/trials/1/metrics", body(10, "validation", loss=0.25))
    [reply] = await at.stream("/trials/metrics/training_metrics", trialIds=[1, 2])
    [told] = reply["metrics"]
    assert told == {
        "trialId": 1, "endTime": START, "metrics": {"avg_metrics": {"loss": 0.5, "note": "warm", "worst": "NaN"}},
        "totalBatches": 10, "archived": False, "id": told["id"], "trialRunId": 1, "group": "training",
    }  # fmt: skip
    [reply] = await at.stream("/trials/metrics/validation_metrics", trialIds=1)
    assert reply["metrics"][0]["metrics"] == {"validation_metrics": {"loss": 0.25}}
    assert await at.stream("/trials/metrics/trial_metrics", trialIds=1, group="validation") == [reply]
    assert await at.reporting.posted(ExperimentId(1)) == [Validated(TrialId(1), 0.25, 10.0)]


async def test_older_and_newer_ways_to_report(at: Wire) -> None:
    told = body(1, loss=1.0)["metrics"]
    await at.post("/trials/1/training_metrics", told)
    await at.post("/trials/1/validation_metrics", {**told, "reportTime": "2026-01-02T03:04:05Z"})
    await at.post("/trials/1/metrics/batch", {"reports": [body(steps, loss=1.0) for steps in range(1, 5)]})
    rows = await at.reporting.rows(TrialId(1))
    assert [(row.group, row.steps) for row in rows] == [
        ("training", 1), ("validation", 1), ("training", 2), ("training", 3), ("training", 4),
    ]  # fmt: skip


async def test_a_stream_is_cut_into_messages_in_the_order_of_steps(at: Wire) -> None:
    for steps in (5, 1, 3, 2, 4):
        await at.reporting.train(TrialId(1), steps, loss=1.0)
    replies = await at.stream("/trials/metrics/training_metrics", trialIds=1, sizeLimit=2)
    assert [[each["totalBatches"] for each in reply["metrics"]] for reply in replies] == [[1, 2], [3, 4], [5]]
    for second in range(3):
        sample = a_report(TrialId(1), "cpu", None, {"node": {"cpu_util_simple": second}}, at=second + 1)
        await at.reporting.intake.report(sample)
    replies = await at.stream("/trials/metrics/trial_metrics", trialIds=1, sizeLimit=2, group="cpu")
    assert [len(reply["metrics"]) for reply in replies] == [2, 1]


async def test_the_best_metric_is_not_found_until_there_is_one(at: Wire) -> None:
    path = "/experiments/1/searcher/best_searcher_validation_metric"
    assert (await at.request("GET", path, token="own")).status == 404
    await at.post("/trials/1/metrics", body(1, "validation", loss=0.5))
    assert (await at.request("GET", path, token="own")).json == {"metric": 0.5}
    await at.post("/trials/2/metrics", {**body(1, "validation", loss="-Infinity"), **_of(2)}, token="other")
    assert (await at.get(path))["metric"] == "-Infinity"
    elsewhere = await at.reporting.experiment()
    assert "403" in await at.refusal("GET", path.replace("1", str(elsewhere)), token="own")


def _of(trial: int) -> dict[str, Any]:
    told = body(1, "validation", loss="-Infinity")
    return {"metrics": {**told["metrics"], "trialId": trial}}


@pytest.mark.parametrize(
    ("path", "sent", "token", "told"),
    [
        ("/trials/1/metrics", body(1, loss=1.0), "other", "403"),
        ("/trials/1/metrics", body(1, run=2, loss=1.0), "own", "403 run 2 of trial 1"),
        ("/trials/1/metrics", body(1, run=2, loss=1.0), "admin", "409 metrics.trialRunId"),
        ("/trials/2/metrics", body(1, loss=1.0), "admin", "400 metrics.trialId: is 1"),
        ("/trials/9/metrics", body(1, loss=1.0), "admin", "404 trial 9 not found"),
        ("/trials/1/metrics", body(1, "a.b", loss=1.0), "own", "400 group: "),
        ("/trials/1/metrics", body(None, loss=1.0), "own", "400 metrics.stepsCompleted"),
        ("/trials/1/metrics", {"group": "x", "metrics": {"stepsCompleted": "many"}}, "own", "400 metrics.stepsComp"),
        ("/trials/1/metrics", {"group": "x", "metrics": {"metrics": {"avgMetrics": 3}}}, "own", "400 metrics.metrics"),
        ("/trials/1/metrics", {**body(1), "metrics": {"reportTime": "noon"}}, "own", "400 metrics.reportTime"),
        ("/trials/1/metrics/batch", {"reports": [body(1)] * 1001}, "own", "400 reports: at most 1000"),
        ("/trials/1/progress", {"progress": 2}, "own", "400 progress"),
        ("/trials/1/progress", {"progress": "NaN"}, "own", "400 progress"),
        ("/trials/1/early_exit", {"reason": "BORED"}, "own", "400 reason"),
        ("/runs/1/metadata", {"metadata": {"x": "y" * 2**17}}, "own", "400 metadata: must have at most 128 KiB"),
        ("/runs/1/metadata", {"metadata": json.loads('{"a":' * 11 + "1" + "}" * 11)}, "own", "400 metadata: must not"),
        ("/runs/1/metadata", {"metadata": {str(n): n for n in range(1001)}}, "own", "400 metadata: must have"),
        ("/trial-source-info", {"trialSourceInfo": {"trialId": 1}}, "own", "400 trialSourceInfo.trialSourceInfoType"),
        ("/trials/profiler/metrics", {"batches": []}, "own", "400 batches: "),
    ],
)  # fmt: skip
async def test_bad_reports_are_told_by_their_field(at: Wire, path: str, sent: object, token: str, told: str) -> None:
    assert (await at.refusal("POST", path, sent, token)).startswith(told)


# Workloads


async def test_workloads_are_listed_as_describe_wants_them(at: Wire) -> None:
    told = body(10, loss=0.5)
    told["metrics"]["metrics"]["batchMetrics"] = [{"loss": 0.4}, {"loss": 0.6}]
    await at.post("/trials/1/metrics", told)
    await at.post("/trials/1/metrics", body(10, "validation", loss=0.25))
    await at.post("/trials/1/metrics", body(10, "mine", x=1))
    await at.reporting.checkpoint(TrialId(1), "aaaa", 10)
    await at.reporting.checkpoint(TrialId(1), "bbbb", 5, "PARTIALLY_DELETED")
    await at.reporting.checkpoint(TrialId(1), "cccc", 1, "DELETED")

    async def listed(**query: Any) -> list[Any]:
        reply = await at.get("/trials/1/workloads", **query)
        assert all(sum(part is not None for part in each.values()) == 1 for each in reply["workloads"])
        return [next((name, part) for name, part in each.items() if part) for each in reply["workloads"]]

    found = await listed()
    assert [name for name, _ in found] == ["checkpoint", "checkpoint", "training", "validation", "checkpoint"]
    assert found[2][1] == {
        "metrics": {"avgMetrics": {"loss": 0.5}, "batchMetrics": []}, "numInputs": 0, "totalBatches": 10,
        "endTime": START,
    }  # fmt: skip
    assert (found[1][1]["state"], found[1][1]["uuid"], found[4][1]["resources"]) == (
        "STATE_COMPLETED", "bbbb", {"model": "1"},
    )  # fmt: skip
    assert (await listed(includeBatchMetrics="true"))[2][1]["metrics"]["batchMetrics"] == [{"loss": 0.4}, {"loss": 0.6}]
    assert [part["totalBatches"] for _, part in await listed(orderBy="ORDER_BY_DESC", limit=2, offset=3)] == [5, 1]
    assert len(await listed(removeDeletedCheckpoints="true")) == 4
    assert [name for name, _ in await listed(filter="FILTER_OPTION_CHECKPOINT")] == ["checkpoint"] * 3
    assert [name for name, _ in await listed(filter="FILTER_OPTION_VALIDATION")] == ["validation"]
    assert len(await listed(filter="FILTER_OPTION_CHECKPOINT_OR_VALIDATION")) == 4
    assert [part["metrics"]["avgMetrics"] for _, part in await listed(group="mine")] == [{"x": 1}]
    page = (await at.get("/trials/1/workloads", limit=2))["pagination"]
    assert (page["endIndex"], page["total"]) == (2, 5)
    assert "400 sortKey" in await at.refusal("GET", "/trials/1/workloads", sortKey="loss")


# Series


async def test_series_are_thinned_out_bounded_and_beside_each_other(at: Wire) -> None:
    spiked = [a_report(TrialId(1), "training", n, {"loss": 1.0, "epoch": n // 10, "lr": n}) for n in range(200)]
    await at.reporting.intake.report_all([*spiked, a_report(TrialId(1), "training", 200, {"loss": 99.0})])

    async def series(**query: Any) -> list[Any]:
        reply = await at.get("/trials/time-series", trialIds=1, **query)
        assert reply["trials"][0]["trial"]["hparams"] == {"lr": 0}
        found: list[Any] = reply["trials"][0]["metrics"]
        return found

    [found] = await series(metricNames="loss", group="training", maxDatapoints=10)
    assert (found["group"], found["type"]) == ("training", "METRIC_TYPE_TRAINING")
    assert len(found["data"]) <= 10
    assert found["data"][-1] == {
        "batches": 200, "values": {"loss": 99.0}, "time": "2023-11-14T22:16:40.000000Z", "epoch": None,
    }  # fmt: skip
    [both] = await series(metricIds=["training.loss", "training.lr"], startBatches=10, endBatches=12)
    assert [point["values"] for point in both["data"]] == [{"loss": 1.0, "lr": float(n)} for n in (10, 11, 12)]
    [some] = await series(
        metricIds="training.loss", timeSeriesFilter__name="epoch", timeSeriesFilter__doubleRange__gte=19.0
    )
    assert {point["epoch"] for point in some["data"]} == {19.0}
    late = "2023-11-14T22:16:38Z"
    [some] = await series(metricIds="training.lr", timeSeriesFilter__name="time", timeSeriesFilter__timeRange__gt=late)
    assert [point["batches"] for point in some["data"]] == [199]
    [some] = await series(
        metricIds="training.lr", timeSeriesFilter__name="batches", timeSeriesFilter__integerRange__incl=[3, 5],
        timeSeriesFilter__integerRange__notIn=[5],
    )  # fmt: skip
    assert [point["batches"] for point in some["data"]] == [3]
    for query, told in (
        ({}, "400 metricIds"),
        ({"metricNames": "loss"}, "400 group"),
        ({"metricIds": "loss"}, "400 metricIds: expected group.name"),
        ({"metricIds": "a.b", "maxDatapoints": 10**6}, "400 maxDatapoints"),
        ({"metricIds": "a.b", "timeSeriesFilter__name": "mood"}, "400 timeSeriesFilter.name"),
    ):
        assert (await at.refusal("GET", "/trials/time-series", trialIds=1, **query)).startswith(told)


async def test_what_is_nested_is_drawn_nested(at: Wire) -> None:
    for second in (1, 2):
        sample = {"node.a": {"GPU-1": {"gpu_util": second}, "GPU-2": {"gpu_util": 10 * second}}}
        await at.reporting.intake.report(a_report(TrialId(1), "gpu", None, sample, at=second))
    reply = await at.get("/trials/time-series", trialIds=1, metricIds=["gpu.node.a", "gpu.node.a.GPU-2.gpu_util"])
    [found] = reply["trials"][0]["metrics"]
    assert found["type"] == "METRIC_TYPE_PROFILING"
    assert [point["values"] for point in found["data"]] == [
        {
            "node.a": {"GPU-1": {"gpu_util": float(second)}, "GPU-2": {"gpu_util": 10.0 * second}},
            "node.a.GPU-2.gpu_util": 10.0 * second,
        }
        for second in (1, 2)
    ]


# Experiments


async def test_trials_of_an_experiment_are_compared_until_it_has_ended(at: Wire) -> None:
    for trial, offset in ((TrialId(1), 0.0), (TrialId(2), 0.5)):
        for steps in (10, 20):
            await at.reporting.validate(trial, steps, loss=1.0 / steps + offset)
            await at.reporting.train(trial, steps, lr=0.1)
    await _ended(at)
    here = "/experiments/1/metrics-stream"
    assert await at.stream("/experiments/metrics-stream/metric-names", ids=1) == [
        {
            "searcherMetrics": ["loss"], "trainingMetrics": ["lr"], "validationMetrics": ["loss"],
            "metricNames": [{"group": "training", "name": "lr"}, {"group": "validation", "name": "loss"}],
        }
    ]  # fmt: skip
    assert await at.stream(f"{here}/batches", metricName="loss", group="validation") == [{"batches": [10, 20]}]
    assert await at.stream(f"{here}/batches", metricName="lo", group="validation") == [{"batches": []}]
    [found] = await at.stream(
        f"{here}/trials-snapshot", metricName="loss", metricType="METRIC_TYPE_VALIDATION", batchesProcessed=15,
        batchesMargin=5,
    )  # fmt: skip
    assert found == {
        "trials": [
            {"trialId": 1, "hparams": {"lr": 0}, "metric": 0.05, "batchesProcessed": 20},
            {"trialId": 2, "hparams": {"lr": 1}, "metric": 0.55, "batchesProcessed": 20},
        ]
    }
    [found] = await at.stream(f"{here}/trials-sample", metricName="loss", group="validation", maxTrials=1)
    assert (found["promotedTrials"], found["demotedTrials"]) == ([1], [])
    assert [point["values"]["loss"] for point in found["trials"][0]["data"]] == [0.1, 0.05]
    assert "400 metricName" in await at.refusal("GET", f"{here}/batches", metricName="loss")


async def _ended(at: Wire) -> None:
    await at.reporting.database.write(
        lambda c: experiment_records.change(c, ExperimentId(1), {"state": "COMPLETED"})
    )  # fmt: skip


# What a trial says of itself


async def test_a_trial_says_what_it_does_how_far_it_is_and_that_it_gives_up(at: Wire) -> None:
    await at.post("/trials/1/runner/metadata", {"state": "training"})
    assert (await at.reporting.told(TrialId(1))).runner_state == "training"
    await at.post("/trials/1/progress", {"progress": 0.5, "is_raw": True})
    await at.post("/trials/1/early_exit", {"reason": "EXITED_REASON_INVALID_HP"})
    assert at.heard == Heard([(TrialId(1), EarlyExit.INVALID_HP)], [(TrialId(1), 0.5)])
    storage = {"type": "shared_fs", "host_path": "/shared"}
    first = await at.post("/runs/start", {"runId": 1, "checkpointStorage": storage})
    assert await at.post("/runs/start", {"runId": 1, "checkpointStorage": storage}) == first
    assert await at.post("/runs/start", {"runId": 1}) == {"storageId": None}
    metadata = {"data": {"rows": [1, 2]}, "note": "x"}
    assert await at.post("/runs/1/metadata", {"runId": 1, "metadata": metadata}) == {"metadata": metadata}
    assert (await at.request("GET", "/runs/1/metadata", token="own")).json == {"metadata": metadata}


async def test_a_trial_says_which_checkpoint_it_uses(at: Wire) -> None:
    await at.reporting.checkpoint(TrialId(2), "aaaa", 10)
    told = {"trialId": 1, "checkpointUuid": "aaaa", "trialSourceInfoType": "TRIAL_SOURCE_INFO_TYPE_INFERENCE"}
    for _ in range(2):
        reply = await at.post("/trial-source-info", {"trialSourceInfo": told})
        assert reply == {"trialId": 1, "checkpointUuid": "aaaa"}
    told["checkpointUuid"] = "bbbb"
    assert "404" in await at.refusal("POST", "/trial-source-info", {"trialSourceInfo": told}, "own")


# Profilers


async def test_profilers_send_and_read_single_series(at: Wire) -> None:
    labels = {"trialId": 1, "name": "gpu_util", "agentId": "node", "gpuUuid": "GPU-1",
              "metricType": "PROFILER_METRIC_TYPE_SYSTEM"}  # fmt: skip
    batch = {"values": [1.0, "NaN"], "batches": [0, 0], "labels": labels,
             "timestamps": ["2026-01-02T03:04:05Z", "2026-01-02T03:04:06Z"]}  # fmt: skip
    await at.post("/trials/profiler/metrics", {"batches": [batch]})
    [available] = await at.stream("/trials/1/profiler/available_series")
    assert available["labels"] == [labels]
    [found] = await at.stream(
        "/trials/1/profiler/metrics", labels__name="gpu_util", labels__agentId="node", labels__gpuUuid="GPU-1"
    )
    assert found["batch"]["values"] == [1.0, "NaN"]
    assert found["batch"]["timestamps"][0] == "2026-01-02T03:04:05.000000Z"
    assert "403" in await at.refusal("POST", "/trials/profiler/metrics", {"batches": [batch]}, "other")


# Who may


async def test_strangers_see_nothing_viewers_change_nothing_and_other_trials_say_nothing(at: Wire) -> None:
    ground = at.reporting.ground
    at.callers |= {"viewer": await ground.caller("vic", "Viewer"), "stranger": await ground.caller("sid")}
    bodies: dict[str, Any] = {
        "/api/v1/trials/{trialId}/training_metrics": body(1, loss=1.0)["metrics"],
        "/api/v1/trials/{trialId}/validation_metrics": body(1, loss=1.0)["metrics"],
        "/api/v1/trials/{trialId}/metrics/batch": {"reports": [body(1, loss=1.0)]},
        "/api/v1/trials/profiler/metrics": {"batches": [{"labels": {"trialId": 1}}]},
        "/api/v1/trial-source-info": {"trialSourceInfo": {"trialId": 1}},
        "/api/v1/runs/start": {"runId": 1},
    }
    query: dict[str, Any] = {"trialIds": 1, "ids": 1, "metricName": "loss", "group": "validation"}
    await _ended(at)
    for route in at.routes:
        path = route.path.removeprefix("/api/v1").replace("{trialId}", "1").replace("{experimentId}", "1")
        path = path.replace("{runId}", "1")
        sent = bodies.get(route.path, body(1, loss=1.0)) if route.method == "POST" else None
        reply = await at.request(route.method, path, sent, "stranger", **query)
        assert reply.status == 404, (route.path, reply.body)
        reply = await at.request(route.method, path, sent, "viewer", **query)
        assert reply.status == 403 if route.method == "POST" else reply.status in (200, 400, 404), (route.path, reply)
        reply = await at.request(route.method, path, sent, "other", **query)
        is_of_experiment = route.path.endswith("best_searcher_validation_metric")
        assert reply.status == (404 if is_of_experiment else 403), (route.path, reply.body)


async def test_a_run_that_another_has_followed_says_nothing_any_more(at: Wire) -> None:
    await at.reporting.change_trial(TrialId(1), run=2)
    for path, sent in (
        ("/trials/1/progress", {"progress": 0.5}),
        ("/trials/1/early_exit", {"reason": "EXITED_REASON_INVALID_HP"}),
        ("/runs/1/metadata", {"metadata": {}}),
        ("/trials/1/metrics", body(1, run=2, loss=1.0)),
    ):
        assert (await at.refusal("POST", path, sent, "own")).startswith("403")
    assert (await at.refusal("POST", "/trials/1/metrics", body(1, loss=1.0), "own")).startswith("409")
    assert at.heard == Heard()
