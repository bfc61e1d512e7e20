"""Experiments and runs in lists, searched in the filter language, and many of them acted on at once."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.unit.server.determined.experiment_api import CONFIG, SEARCH, Wire, serving

from muster.api.meta import Instant
from muster.experiments import filter_columns

pytestmark = pytest.mark.postgres


@pytest.fixture
async def at(tmp_path: Path) -> AsyncIterator[Wire]:
    async with serving(tmp_path) as wire:
        yield wire


@dataclass
class Shelf:
    """Some experiments: 1 runs, with two labels; 2 is a search that runs; 3 has ended; 4 is Ann's, and paused."""

    at: Wire
    trials: Mapping[int, Sequence[int]]


@pytest.fixture
async def shelf(at: Wire) -> Shelf:
    await at.person("ann", "Editor", 1)
    await at.create(CONFIG + "labels: [red, blue]\ndescription: about cats\n")
    await at.create(SEARCH + "labels: [red]\n")
    await at.create(CONFIG.replace("first", "third 100% Ä"))
    await at.create(CONFIG.replace("first", "fourth"), by="ann", activate=False)
    trials = {
        id: [trial["id"] for trial in await at.trials(id, count)] for id, count in ((1, 1), (2, 3), (3, 1), (4, 1))
    }
    await at.until(2, "STATE_RUNNING")
    for number, trial in enumerate(trials[2]):
        await at.validate(trial, 10, loss=float(number), words=3.0)
    await at.validate(trials[3][0], 5, loss=7.0)
    await at.finish(3)
    return Shelf(at, trials)


async def test_lists_are_narrowed_and_ordered(shelf: Shelf) -> None:
    async def ids(**query: Any) -> list[int]:
        return [each["id"] for each in (await shelf.at("GET", "/experiments", **query))["experiments"]]

    await shelf.at("POST", "/experiments/3/archive")
    assert await ids() == [1, 2, 3, 4]
    assert await ids(archived="false") == [1, 2, 4]
    assert await ids(users="ann") == await ids(userIds=shelf.at.callers["ann"].user) == [4]
    assert await ids(users=["ANN", "admin"], labels="red") == [1, 2]
    assert await ids(labels=["red", "blue"]) == [1]
    assert await ids(states="STATE_PAUSED") == [4]
    assert await ids(states=["STATE_RUNNING", "STATE_COMPLETED"]) == [1, 2, 3]
    assert await ids(states="STATE_QUEUED") == []
    assert await ids(name="IRST") == await ids(description="Cats") == [1]
    assert await ids(name="100%") == await ids(name="Ä") == [3]
    assert await ids(name="1_0%") == []
    assert await ids(projectId=1, orderBy="ORDER_BY_DESC") == [4, 3, 2, 1]
    assert await ids(projectId=99) == []
    assert await ids(experimentIdFilter__gt=1, experimentIdFilter__lte=3) == [2, 3]
    assert await ids(experimentIdFilter__gte=2, experimentIdFilter__lt=4, experimentIdFilter__notIn=[2, 7]) == [3]
    assert await ids(experimentIdFilter__incl=[4, 1, 9]) == [1, 4]
    assert await ids(sortBy="SORT_BY_NAME") == [1, 4, 2, 3]
    assert await ids(sortBy="SORT_BY_SEARCHER_METRIC_VAL", orderBy="ORDER_BY_DESC") == [3, 2, 4, 1]
    assert await ids(sortBy="SORT_BY_USER", orderBy="ORDER_BY_DESC", limit=2, offset=2) == [2, 1]
    for sort in ("ID", "DESCRIPTION", "START_TIME", "END_TIME", "STATE", "NUM_TRIALS", "PROGRESS", "FORKED_FROM",
                 "RESOURCE_POOL", "PROJECT_ID", "CHECKPOINT_SIZE", "CHECKPOINT_COUNT"):  # fmt: skip
        assert sorted(await ids(sortBy=f"SORT_BY_{sort}")) == [1, 2, 3, 4]
    page = (await shelf.at("GET", "/experiments", limit=3, offset=1))["pagination"]
    assert page == {"offset": 1, "limit": 3, "startIndex": 1, "endIndex": 4, "total": 4}
    assert "states" in await shelf.at.refusal("GET", "/experiments", states="STATE_MAYBE")
    many = {"experimentIds": list(range(20_000))}
    assert "experimentIds" in await shelf.at.refusal("POST", "/projects/1/experiments/kill", many)


def a_filter(*children: object, conjunction: str = "and", archived: bool = True) -> str:
    group = {"kind": "group", "conjunction": conjunction, "children": list(children)}
    return json.dumps({"filterGroup": group, "showArchived": archived})


def a_field(column: str, operator: str, value: object = None, **more: object) -> dict[str, object]:
    return {"kind": "field", "columnName": column, "operator": operator, "value": value, "id": "any", **more}


NUMBER, TEXT = {"type": "COLUMN_TYPE_NUMBER"}, {"type": "COLUMN_TYPE_TEXT"}


async def test_experiments_are_searched_in_the_filter_language(shelf: Shelf) -> None:
    async def ids(*children: object, sort: str = "", **more: Any) -> list[int]:
        asked = {"filter": a_filter(*children, **more), "sort": sort, "projectId": 1}
        found = await shelf.at("POST", "/experiments-search", asked)
        assert found["pagination"]["total"] == len(found["experiments"])
        return [each["experiment"]["id"] for each in found["experiments"]]

    f = a_field
    assert await ids() == [4, 3, 2, 1]
    assert await ids(f("id", ">=", 3)) == [4, 3]
    assert await ids(f("id", "=", "2", **NUMBER)) == [2]
    assert await ids(f("name", "contains", "FOUR")) == [4]
    assert await ids(f("name", "notContains", "four"), f("state", "!=", "COMPLETED")) == [2, 1]
    assert await ids(f("tags", "contains", "re"), f("tags", "notContains", "blue")) == [2]
    assert await ids(f("tags", "isEmpty")) == [4, 3]
    assert await ids(f("user", "=", "ann"), f("user", "!=", 1)) == [4]
    assert await ids(f("state", "=", "STATE_RUNNING")) == await ids(f("state", "=", "ACTIVE")) == [2, 1]
    assert await ids(f("endTime", "notEmpty")) == [3]
    assert await ids(f("startTime", "<", "2020-01-01T00:00:00Z", type="COLUMN_TYPE_DATE")) == []
    assert await ids(f("forkedFrom", "isEmpty"), f("progress", "=", 100)) == [3]
    assert await ids(f("archived", "=", False)) == [4, 3, 2, 1]
    # Metrics are the best trial's, hyperparameters any trial's.
    assert await ids(f("validation.loss", "<", 1)) == await ids(f("validation.loss.min", "=", 0, **NUMBER)) == [2]
    assert await ids(f("validation.loss.max", ">", 5), f("searcherMetricsVal", ">=", 7)) == [3]
    assert await ids(f("validation.loss", "isEmpty", **NUMBER)) == [4, 1]
    assert await ids(f("hp.lr", "=", 0.1)) == [4, 3, 1]
    assert await ids(f("hp.lr", "!=", 0.1, **NUMBER)) == [2]
    assert await ids(f("hp.lr", "contains", "0.1", **TEXT), f("id", "<", 3)) in ([1], [2, 1])
    assert await ids(f("hp.nothing", "isEmpty")) == [4, 3, 2, 1]
    # Groups, and what says nothing yet.
    nested = {"kind": "group", "conjunction": "and", "children": [f("id", ">", 1), f("id", "<", 3), f("name", "=", "")]}
    assert await ids(nested, f("id", "=", 4), f("id", "=", None), conjunction="or") == [4, 2]
    assert await ids({"kind": "group", "conjunction": "or", "children": []}, conjunction="or") == [4, 3, 2, 1]
    # In which order.
    assert await ids(sort="name=asc") == [1, 4, 2, 3]
    assert await ids(sort="user=desc,id=asc") == [4, 1, 2, 3]
    assert await ids(sort="validation.loss=desc,id=asc") == [3, 2, 1, 4]
    assert await ids(f("id", "!=", 2), sort="hp.lr=asc,name=desc") == [3, 4, 1]
    for column in filter_columns.of_experiments(Instant(0)).named:
        everything = (f(column, "notEmpty"), f(column, "isEmpty"))
        assert sorted(await ids(*everything, conjunction="or", sort=f"{column}=asc")) == [1, 2, 3, 4]
    await shelf.at("POST", "/experiments/3/archive")
    assert await ids(archived=False) == [4, 2, 1]
    found = await shelf.at("POST", "/experiments-search", {"filter": a_filter(f("id", "=", 2))})
    [best] = [each["bestTrial"] for each in found["experiments"]]
    assert (best["id"], best["bestValidation"]["metrics"]["avgMetrics"]["loss"]) == (shelf.trials[2][0], 0.0)


async def test_filters_that_are_none_are_refused_with_what_is_wrong(at: Wire) -> None:
    async def refusal(**asked: object) -> str:
        return await at.refusal("POST", "/experiments-search", asked)

    f = a_field
    assert "filter" in await refusal(filter="{")
    assert "operator" in await refusal(filter=a_filter(f("id", "~", 1)))
    assert "there is no column 'luck'" in await refusal(filter=a_filter(f("luck", "=", 1)))
    assert "there is no column" in await refusal(filter=a_filter(f('hp."x', "=", 1)))
    assert "id: expected a number" in await refusal(filter=a_filter(f("id", "=", "x")))
    assert "startTime: expected RFC 3339" in await refusal(filter=a_filter(f("startTime", ">", "noon")))
    assert "archived: expected true or false" in await refusal(filter=a_filter(f("archived", "=", 3)))
    assert "contains is not for id" in await refusal(filter=a_filter(f("id", "contains", 1)))
    assert "> is not for name" in await refusal(filter=a_filter(f("name", ">", "x")))
    assert "name: expected a single value" in await refusal(filter=a_filter(f("name", "=", [1])))
    deep: object = f("id", "=", 1)
    for _ in range(40):
        deep = {"kind": "group", "conjunction": "and", "children": [deep]}
    assert "levels deep" in await refusal(filter=a_filter(deep))
    assert "at most 200 fields" in await refusal(filter=a_filter(*[f("id", "=", 1)] * 201))
    assert "characters" in await refusal(filter=" " * 100_000)
    assert "=asc or =desc" in await refusal(sort="id=up")
    assert "there is no column" in await refusal(sort="luck=asc")


async def test_runs_are_searched_across_experiments(shelf: Shelf) -> None:
    async def ids(*children: object, sort: str = "", **more: Any) -> list[int]:
        found = await shelf.at("POST", "/runs", {"filter": a_filter(*children, **more), "sort": sort})
        return [each["id"] for each in found["runs"]]

    f, of = a_field, shelf.trials
    everything = sorted((id for ids in of.values() for id in ids), reverse=True)
    assert await ids() == everything
    assert await ids(f("experimentId", "=", 2), sort="id=asc") == of[2]
    assert await ids(f("isExpMultitrial", "=", True), sort="validation.loss.last=desc") == list(of[2])[::-1]
    assert await ids(f("experimentName", "contains", "third")) == of[3]
    assert await ids(f("state", "=", "COMPLETED")) == of[3]
    assert set(await ids(f("hp.lr", "=", 0.1))) == {*of[1], *of[3], *of[4]}
    assert await ids(f("parentArchived", "=", "true")) == []
    await shelf.at("POST", f"/runs/{of[1][0]}/metadata", {"metadata": {"team": {"name": "blue", "size": 3}}})
    assert await ids(f("metadata.team.size", ">", 2)) == await ids(f("metadata.team.name", "=", "blue")) == of[1]
    for column in filter_columns.of_runs(Instant(0)).named:
        both = (f(column, "notEmpty"), f(column, "isEmpty"))
        assert sorted(await ids(*both, conjunction="or", sort=f"{column}=desc")) == everything[::-1]
    [run] = (await shelf.at("POST", "/runs", {"filter": a_filter(f("id", "=", of[3][0])), "limit": 1}))["runs"]
    told = {"id": of[3][0], "state": "STATE_COMPLETED", "searcherMetricValue": 7.0, "projectId": 1, "workspaceId": 1}
    assert told.items() <= run.items()
    assert (run["experiment"]["name"], run["experiment"]["isMultitrial"]) == ("third 100% Ä", False)


async def test_many_experiments_at_once(shelf: Shelf) -> None:
    at = shelf.at

    async def many(action: str, method: str = "POST", **body: Any) -> dict[int, str]:
        results = (await at(method, f"/projects/1/experiments/{action}", body))["results"]
        return {each["id"]: each["error"] for each in results}

    assert await many("pause") == {}
    found = await many("pause", experimentIds=[1, 3, 77, 1])
    assert (found[1], found[77]) == ("", "experiment 77 not found")
    assert "COMPLETED" in found[3]
    assert await at.state(1) == "STATE_PAUSED"
    assert await many("activate", filters={"states": ["STATE_PAUSED"], "excludedExperimentIds": [4]}) == {1: ""}
    assert await many("archive", filters={"name": "third"}) == {3: ""}
    assert await many("unarchive", filters={"archived": True, "userIds": [1]}) == {3: ""}
    assert await many("retain_logs", "PUT", experimentIds=[3], numDays=5) == {3: ""}
    project = (await at("POST", "/workspaces/1/projects", {"name": "new"}))["project"]["id"]
    assert await many("move", experimentIds=[3, 4], destinationProjectId=project) == {3: "", 4: ""}
    assert await many("kill", experimentIds=[3]) == {3: "experiment 3 not found"}  # it is not there any more
    assert await many("cancel", filters={"labels": ["red", "blue"], "description": "cats"}) == {1: ""}
    assert await many("kill", filters={}) == {1: "", 2: ""}
    await at.until(1, "STATE_CANCELED")
    assert await many("delete", "DELETE", experimentIds=[1]) == {1: ""}
    other = "/projects/2/experiments/move"
    assert "destinationProjectId" in await at.refusal("POST", other, {"experimentIds": [1]})


async def test_many_runs_at_once(shelf: Shelf) -> None:
    at, of = shelf.at, shelf.trials

    async def many(action: str, **body: Any) -> dict[int, str]:
        results = (await at("POST", f"/runs/{action}", {"projectId": 1, **body}))["results"]
        return {each["id"]: each["error"] for each in results}

    assert await many("kill") == {}
    assert await many("pause", runIds=[of[1][0], of[2][0], 999]) == {
        of[1][0]: "", 999: "run 999 not found",
        of[2][0]: f"run {of[2][0]} belongs to search 2, which is paused as a whole",
    }  # fmt: skip
    assert await at.state(1) == "STATE_PAUSED"
    assert await many("resume", runIds=of[1]) == {of[1][0]: ""}
    assert "only one that has ended" in (await many("archive", runIds=of[1]))[of[1][0]]
    assert await many("archive", filter=a_filter(a_field("state", "=", "COMPLETED"))) == {of[3][0]: ""}
    hidden = (await at("POST", "/runs", {"filter": a_filter(archived=False)}))["runs"]
    assert of[3][0] not in [run["id"] for run in hidden]
    assert await many("unarchive", runIds=of[3]) == {of[3][0]: ""}
    project = (await at("POST", "/workspaces/1/projects", {"name": "new"}))["project"]["id"]
    moved = {"sourceProjectId": 1, "destinationProjectId": project}
    assert "belongs to search 2" in (await many("move", runIds=of[2][:1], skipMultitrial=True, **moved))[of[2][0]]
    assert await many("move", runIds=of[2][:2], **moved) == dict.fromkeys(of[2][:2], "")
    assert (await at("GET", "/experiments/2"))["experiment"]["projectId"] == project
    assert await many("kill", runIds=of[2], projectId=project) == dict.fromkeys(of[2], "")
    assert await many("delete", runIds=of[3]) == {of[3][0]: ""}


async def test_what_tables_of_a_project_can_show(shelf: Shelf) -> None:
    found = (await shelf.at("GET", "/projects/1/columns"))["columns"]
    by_name = {each["column"]: (each["location"], each["type"]) for each in found}
    assert by_name["tags"] == ("LOCATION_TYPE_EXPERIMENT", "COLUMN_TYPE_ARRAY")
    assert by_name["hp.lr"] == ("LOCATION_TYPE_HYPERPARAMETERS", "COLUMN_TYPE_NUMBER")
    assert by_name["validation.loss.min"] == ("LOCATION_TYPE_VALIDATIONS", "COLUMN_TYPE_NUMBER")
    await shelf.at("POST", f"/runs/{shelf.trials[1][0]}/metadata", {"metadata": {"team": "blue"}})
    found = (await shelf.at("GET", "/projects/1/columns", tableType="TABLE_TYPE_RUN"))["columns"]
    by_name = {each["column"]: (each["location"], each["type"]) for each in found}
    assert by_name["experimentId"] == ("LOCATION_TYPE_RUN", "COLUMN_TYPE_NUMBER")
    assert by_name["hp.lr"] == ("LOCATION_TYPE_RUN_HYPERPARAMETERS", "COLUMN_TYPE_NUMBER")
    assert await shelf.at("GET", "/projects/1/metadata/team") == {"values": ["blue"]}
    assert await shelf.at("GET", "/projects/1/metadata/nothing") == {"values": []}
    assert by_name["metadata.team"] == ("LOCATION_TYPE_RUN_METADATA", "COLUMN_TYPE_TEXT")
    ranges = (await shelf.at("GET", "/projects/1/experiments/metric-ranges"))["ranges"]
    assert {"metricsName": "validation.loss.last", "min": 0.0, "max": 7.0} in ranges


async def test_a_search_is_previewed(at: Wire) -> None:
    asha = {"name": "adaptive_asha", "metric": "loss", "max_trials": 16, "max_time": 100, "time_metric": "batches"}
    found = await at("POST", "/preview-hp-search", {"config": {"searcher": asha, "hyperparameters": {"lr": 1}}})
    trials = found["summary"]["trials"]
    assert sum(each["count"] for each in trials) == 16
    assert {each["unit"]["name"] for each in trials} == {"batches"}
    assert "400 config: searcher" in await at.refusal("POST", "/preview-hp-search", {"config": {}})
    wrong = {"searcher": {**asha, "max_trials": -1}, "hyperparameters": {"lr": {"type": "int"}}}
    refusal = await at.refusal("POST", "/preview-hp-search", {"config": wrong})
    assert "searcher.max_trials" in refusal
    assert "hyperparameters.lr" in refusal


# Those that run elsewhere


async def test_a_trial_that_runs_elsewhere(at: Wire) -> None:
    config = "name: mine\nsearcher: {name: custom, metric: loss}\n"
    first = await at("PUT", "/experiments/by-external-id/exp%2F1", {"config": config, "unmanaged": True})
    again = await at("PUT", "/experiments/by-external-id/exp%2F1", {"config": config, "unmanaged": True})
    experiment = first["experiment"]["id"]
    assert again["experiment"]["id"] == experiment
    assert (first["experiment"]["externalExperimentId"], first["experiment"]["state"]) == ("exp/1", "STATE_RUNNING")
    new = {"experimentId": experiment, "hparams": {"lr": 1}, "unmanaged": True}
    made = (await at("PUT", "/trials", {"createTrialRequest": new, "externalTrialId": "t"}))["trial"]
    assert (await at("PUT", "/trials", {"createTrialRequest": new, "externalTrialId": "t"}))["trial"] == made
    assert made["taskId"]
    assert (await at("GET", "/trials/by-external-id/exp%2F1/t"))["trial"]["id"] == made["id"]
    assert "404" in await at.refusal("GET", "/trials/by-external-id/exp%2F1/other")
    plain = (await at("POST", "/trials", new))["trial"]
    assert plain["id"] != made["id"]
    started = await at("POST", f"/trials/{made['id']}/start", {"trialId": made["id"], "resume": True})
    assert started == {"trialRunId": 1, "latestCheckpoint": None, "stepsCompleted": 0}
    assert (await at("PATCH", f"/trials/{made['id']}", {"trialId": made["id"]}))["trial"]["state"] == "STATE_RUNNING"
    for id in (made["id"], plain["id"]):
        told = (await at("PATCH", f"/trials/{id}", {"trialId": id, "state": "STATE_COMPLETED"}))["trial"]
        assert told["state"] == "STATE_COMPLETED"
    assert await at.state(experiment) == "STATE_COMPLETED"
    assert "state" in await at.refusal("PATCH", f"/trials/{made['id']}", {"state": "STATE_PAUSED"})
    assert "externalTrialId" in await at.refusal("PUT", "/trials", {"createTrialRequest": new})
    refusal = await at.refusal("POST", "/trials", {"experimentId": await at.create()})
    assert "runs here" in refusal


async def test_an_external_id_tells_nobody_of_what_they_may_not_see(at: Wire) -> None:
    config = "name: mine\nsearcher: {name: custom, metric: loss}\n"
    workspace = (await at("POST", "/workspaces", {"name": "hidden"}))["workspace"]["id"]
    project = (await at("POST", f"/workspaces/{workspace}/projects", {"name": "p"}))["project"]["id"]
    await at("PUT", "/experiments/by-external-id/e", {"config": config, "projectId": project})
    await at.person("eve", "Editor", 1)
    assert (await at.refusal("PUT", "/experiments/by-external-id/e", {"config": config}, by="eve")).startswith("404")
