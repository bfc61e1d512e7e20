"""Experiments over the wire: made, looked at, acted on, and by whom."""

import asyncio
import base64
import io
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.server.determined.experiment_api import CONFIG, SEARCH, Wire, as_task, files, serving

from muster.accounts.callers import WorkspaceId

pytestmark = pytest.mark.postgres


@pytest.fixture
async def at(tmp_path: Path) -> AsyncIterator[Wire]:
    async with serving(tmp_path) as wire:
        yield wire


# Made


async def test_what_was_created_is_told_with_all_that_the_client_reads(at: Wire) -> None:
    sent = {"config": CONFIG, "activate": True, "modelDefinition": files(train__py="print(1)")}
    made = await at("POST", "/experiments", sent)
    assert (made["warnings"], made["config"]["max_restarts"]) == ([], 0)
    found = (await at("GET", "/experiments/1"))["experiment"]
    assert found["state"] in ("STATE_QUEUED", "STATE_PULLING", "STATE_STARTING", "STATE_RUNNING")
    told = {
        "id": 1, "name": "first", "username": "admin", "userId": 1, "projectId": 1, "workspaceId": 1,
        "projectName": "Uncategorized", "archived": False, "searcherType": "single", "searcherMetric": "loss",
        "labels": [], "notes": "", "description": "", "originalConfig": CONFIG, "forkedFrom": None, "endTime": None,
        "resourcePool": "default", "unmanaged": False, "checkpointSize": "0", "bestTrialId": None, "error": "",
    }  # fmt: skip
    assert told.items() <= found.items()
    assert found["config"]["hyperparameters"] == found["hyperparameters"]


async def test_one_that_is_only_checked_leaves_nothing(at: Wire) -> None:
    made = await at("POST", "/experiments", {"config": CONFIG, "validateOnly": True})
    assert (made["experiment"]["id"], made["experiment"]["name"]) == (0, "first")
    assert (await at("GET", "/experiments"))["pagination"]["total"] == 0


async def test_mistakes_are_named(at: Wire) -> None:
    wrong = CONFIG + "max_restart: 3\n"
    assert "max_restart" in await at.refusal("POST", "/experiments", {"config": wrong})
    assert "400 config: line" in await at.refusal("POST", "/experiments", {"config": "{"})
    assert await at.refusal("POST", "/experiments", {"config": CONFIG, "projectId": 77}) == "404 project 77 not found"
    assert await at.refusal("POST", "/experiments", {"config": CONFIG, "parentId": 9}) == "404 experiment 9 not found"
    assert (
        await at.refusal("POST", "/experiments", {"config": CONFIG, "template": "no"}) == "404 template 'no' not found"
    )
    for path in ("/experiments/9", "/experiments/9/trials", "/trials/9", "/experiments/9/model_def"):
        assert (await at.refusal("GET", path)).startswith("404")


async def test_more_slots_than_there_are_is_a_warning(at: Wire) -> None:
    config = CONFIG + "resources: {slots_per_trial: 64}\n"
    made = await at("POST", "/experiments", {"config": config, "activate": False})
    assert made["warnings"] == ["LAUNCH_WARNING_CURRENT_SLOTS_EXCEEDED"]
    assert await at.state(1) == "STATE_PAUSED"


async def test_model_definitions_can_be_looked_into_and_are_forked(at: Wire) -> None:
    sent = files(train__py="print(1)")
    sent += [{**sent[0], "path": "data/words.txt", "content": base64.b64encode(b"a b").decode()}]
    parent = await at.create(modelDefinition=sent)
    fork = await at.create(parentId=parent)
    for experiment in (parent, fork):
        archive = base64.b64decode((await at("GET", f"/experiments/{experiment}/model_def"))["b64Tgz"])
        with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
            assert opened.getnames() == ["train.py", "data/words.txt"]
        [data, train] = (await at("GET", f"/experiments/{experiment}/file_tree"))["files"]
        assert (train["path"], train["isDir"], train["contentLength"]) == ("train.py", False, 8)
        assert train["modifiedTime"] == "2023-11-14T22:13:20.000000Z"
        assert (data["isDir"], [each["path"] for each in data["files"]]) == (True, ["data/words.txt"])
        [file] = [await at("POST", f"/experiments/{experiment}/file", {"path": "data/words.txt"})]
        assert base64.b64decode(file["file"]) == b"a b"
    refusal = await at.refusal("POST", f"/experiments/{fork}/file", {"path": "../x"})
    assert refusal == f"404 experiment {fork} has no file '../x'"
    assert (await at("GET", f"/experiments/{fork}"))["experiment"]["forkedFrom"] == parent
    bare = await at.create()
    assert await at("GET", f"/experiments/{bare}/model_def") == {"b64Tgz": ""}
    assert await at("GET", f"/experiments/{bare}/file_tree") == {"files": []}


async def test_a_trials_task_finds_the_files_of_its_experiment(at: Wire) -> None:
    experiment = await at.create(modelDefinition=files(train__py="print(1)"))
    [trial] = await at.trials(experiment)
    at.callers["own"] = as_task(trial["taskId"])
    found = await at("GET", f"/tasks/{trial['taskId']}/context_directory", by="own")
    assert found == await at("GET", f"/experiments/{experiment}/model_def")
    assert (await at("GET", f"/trials/{trial['id']}", by="own"))["trial"]["id"] == trial["id"]
    other = (await at.trials(await at.create()))[0]
    assert (await at.refusal("GET", f"/trials/{other['id']}", by="own")).startswith("403")


# Their course


async def test_a_search_from_its_beginning_to_its_end(at: Wire) -> None:
    experiment = await at.create(SEARCH)
    trials = await at.trials(experiment, 3)
    await at.until(experiment, "STATE_RUNNING")
    for number, trial in enumerate(trials):
        await at.validate(trial["id"], 10, loss=3.0 - number)
        await at.validate(trial["id"], 20, loss=5.0)
    assert await at.finish(experiment, 3) == "STATE_COMPLETED"
    found = (await at("GET", f"/experiments/{experiment}"))["experiment"]
    best = trials[2]["id"]
    assert (found["bestTrialId"], found["bestTrialSearcherMetric"], found["numTrials"]) == (best, 1.0, 3)
    assert (found["trialIds"], found["progress"]) == ([trial["id"] for trial in trials], 1.0)
    told = (await at("GET", f"/trials/{best}"))["trial"]
    assert told["bestValidation"]["metrics"]["avgMetrics"] == {"loss": 1.0}
    assert told["latestValidation"]["totalBatches"] == told["totalBatchesProcessed"] == 20
    assert (told["searcherMetricValue"], told["state"], told["restarts"]) == (1.0, "STATE_COMPLETED", 0)
    assert told["summaryMetrics"]["validation_metrics"]["loss"]["max"] == 5.0
    assert told["wallClockTime"] >= 0
    assert told["taskIds"] == [told["taskId"]]
    assert 0 <= told["hparams"]["lr"] <= 1
    history = (await at("GET", f"/experiments/{experiment}/validation-history"))["validationHistory"]
    assert [(each["trialId"], each["searcherMetric"]) for each in history] == [
        (trial["id"], 3.0 - number) for number, trial in enumerate(trials)
    ]


async def test_trials_are_listed_by_what_is_asked(at: Wire) -> None:
    experiment = await at.create(SEARCH)
    ids = [trial["id"] for trial in await at.trials(experiment, 3)]
    for number, id in enumerate(ids):
        await at.validate(id, 10, loss=float(number))
        await at.validate(id, 20 + number, loss=-float(number))

    async def listed(**query: Any) -> list[int]:
        reply = await at("GET", f"/experiments/{experiment}/trials", **query)
        assert reply["pagination"]["total"] in (0, 3)
        return [trial["id"] for trial in reply["trials"]]

    assert await listed() == ids
    assert await listed(orderBy="ORDER_BY_DESC") == ids[::-1]
    assert await listed(sortBy="SORT_BY_LATEST_VALIDATION_METRIC") == ids[::-1]
    assert await listed(sortBy="SORT_BY_BEST_VALIDATION_METRIC", orderBy="ORDER_BY_DESC") == ids
    assert len(await listed(sortBy="SORT_BY_DURATION", limit=2)) == 2
    assert await listed(offset=1, limit=1) == ids[1:2]
    assert await listed(states=["STATE_COMPLETED", "STATE_PAUSED"]) == []
    await at.until(experiment, "STATE_RUNNING")
    async with asyncio.timeout(5):
        while await listed(states="STATE_RUNNING") != ids:
            await asyncio.sleep(0.005)
    assert await listed(states=["STATE_ACTIVE"]) == ids
    assert "sortBy" in await at.refusal("GET", f"/experiments/{experiment}/trials", sortBy="SORT_BY_LUCK")


async def test_paused_activated_cancelled_killed(at: Wire) -> None:
    first, second = await at.create(SEARCH), await at.create(SEARCH)
    await at.trials(first, 3)
    await at("POST", f"/experiments/{first}/pause")
    assert await at.state(first) == "STATE_PAUSED"
    await at("POST", f"/experiments/{first}/activate")
    await at("POST", f"/experiments/{first}/kill")
    assert await at.until(first, "STATE_CANCELED") == "STATE_CANCELED"
    refusal = await at.refusal("POST", f"/experiments/{first}/pause")
    assert refusal.startswith(f"409 experiment {first} is CANCELED")
    await at("POST", f"/experiments/{second}/cancel")
    assert (await at.state(second)) in ("STATE_STOPPING_CANCELED", "STATE_CANCELED")
    await at("POST", f"/experiments/{second}/kill")
    assert await at.until(second, "STATE_CANCELED", "STATE_ERROR")
    await at("POST", f"/experiments/{second}/kill")  # of one that has ended: nothing happens


async def test_one_trial_is_killed_alone(at: Wire) -> None:
    experiment = await at.create(SEARCH)
    trials = await at.trials(experiment, 3)
    await at("POST", f"/trials/{trials[0]['id']}/kill")
    async with asyncio.timeout(5):
        while (await at("GET", f"/trials/{trials[0]['id']}"))["trial"]["state"] != "STATE_CANCELED":
            await asyncio.sleep(0.005)
    assert (await at("GET", f"/trials/{trials[1]['id']}"))["trial"]["endTime"] is None


async def test_archived_moved_deleted(at: Wire) -> None:
    experiment = await at.create()
    project = (await at("POST", "/workspaces/1/projects", {"name": "new"}))["project"]["id"]
    assert (await at.refusal("POST", f"/experiments/{experiment}/archive")).startswith("409")
    await at("POST", f"/experiments/{experiment}/move", {"destinationProjectId": project})
    assert "destinationProjectId" in await at.refusal("POST", f"/experiments/{experiment}/move", {})
    await at.finish(experiment)
    await at("POST", f"/experiments/{experiment}/archive")
    found = (await at("GET", f"/experiments/{experiment}"))["experiment"]
    assert (found["archived"], found["projectName"], found["config"]["project"]) == (True, "new", "new")
    await at("POST", f"/experiments/{experiment}/unarchive")
    told = (await at("GET", f"/projects/{project}"))["project"]
    assert (told["numExperiments"], told["numActiveExperiments"], told["numRuns"]) == (1, 0, 1)
    assert told["lastExperimentStartedAt"] == found["startTime"]
    assert (await at("GET", "/workspaces/1"))["workspace"]["numExperiments"] == 1
    await at("POST", f"/projects/{project}/archive")
    assert (await at("GET", f"/experiments/{experiment}"))["experiment"]["parentArchived"] is True


async def test_continued_after_its_end(at: Wire) -> None:
    experiment = await at.create()
    assert await at.finish(experiment, code=1) == "STATE_ERROR"
    reply = await at("POST", "/experiments/continue", {"id": experiment, "overrideConfig": "max_restarts: 1"})
    assert (reply["experiment"]["id"], reply["experiment"]["config"]["max_restarts"]) == (experiment, 1)
    async with asyncio.timeout(5):
        while len((trial := (await at.trials(experiment))[0])["taskIds"]) < 2:
            await asyncio.sleep(0.005)
    assert trial["taskIds"] == [trial["taskId"].removesuffix("-1"), trial["taskId"]]
    for number, task in enumerate(trial["taskIds"]):
        line = {"task_id": task, "timestamp": f"2026-01-02T03:04:0{number}Z", "log": f"in {number}\n", "level": "INFO"}
        await at("POST", "/task/logs", {"logs": [{**line, "agent_id": f"a{number}"}]})
    path = f"/trials/{trial['id']}/logs"
    told = [line for line in await at.stream(path) if line["agentId"]]
    assert [line["log"] for line in told] == ["in 0\n", "in 1\n"]
    assert told[0]["message"] == "[2026-01-02T03:04:00.000000Z] || INFO: in 0\n"
    assert (told[0]["trialId"], told[0]["level"]) == (trial["id"], "LOG_LEVEL_INFO")
    newest = await at.stream(path, orderBy="ORDER_BY_DESC", agentIds=["a0", "a1"])
    assert [line["log"] for line in newest] == ["in 1\n", "in 0\n"]
    assert [line["log"] for line in await at.stream(path, agentIds=["a0", "a1"], limit=1)] == ["in 0\n"]
    assert [line["log"] for line in await at.stream(path, searchText="IN 1")] == ["in 1\n"]
    [fields] = await at.stream(f"{path}/fields")
    assert fields["agentIds"] == ["a0", "a1"]
    assert (await at.refusal("GET", "/trials/99/logs")).startswith("404")
    assert "limit" in await at.refusal("GET", path, limit=-1)


async def test_a_log_that_is_followed_ends_with_its_trial(at: Wire) -> None:
    experiment = await at.create()
    [trial] = await at.trials(experiment)
    following = asyncio.create_task(at.stream(f"/trials/{trial['id']}/logs", follow="true"))
    fields = asyncio.create_task(at.stream(f"/trials/{trial['id']}/logs/fields", follow="true"))
    await at.finish(experiment)
    async with asyncio.timeout(5):
        assert (await following)[-1]["source"] == "master"
        assert (await fields)[-1]["sources"] == ["master"]


# Changed


async def test_labels_names_and_notes(at: Wire) -> None:
    experiment = await at.create()
    path = f"/experiments/{experiment}"
    assert await at("PUT", f"{path}/labels/red%20one") == {"labels": ["red one"]}
    await asyncio.gather(*(at("PUT", f"{path}/labels/l{number}") for number in range(5)))
    assert await at("DELETE", f"{path}/labels/red%20one")
    labels = (await at("GET", path))["experiment"]["labels"]
    assert sorted(labels) == ["l0", "l1", "l2", "l3", "l4"]
    assert (await at("GET", "/experiment/labels"))["labels"] == sorted(labels)
    patch = {"id": experiment, "name": "other", "description": "d", "labels": ["x"], "notes": "n"}
    told = (await at("PATCH", path, patch))["experiment"]
    assert {name: told[name] for name in patch} == patch
    told = (await at("PATCH", path, {"id": experiment, "description": None, "labels": [], "notes": ""}))["experiment"]
    assert (told["name"], told["description"], told["labels"], told["notes"]) == ("other", "d", [], "")
    assert (told["config"]["name"], told["config"]["labels"]) == ("other", [])
    assert (await at("GET", "/experiment/labels"))["labels"] == []
    assert "400 name" in await at.refusal("PATCH", path, {"name": " "})
    assert "400 label" in await at.refusal("PUT", f"{path}/labels/{'x' * 300}")


async def test_resources_and_policies_of_checkpoints(at: Wire) -> None:
    path = f"/experiments/{await at.create(SEARCH)}"
    resources = {"maxSlots": 2, "weight": 2.5, "priority": 7}
    kept = {"saveExperimentBest": 1, "saveTrialBest": 2, "saveTrialLatest": 3}
    told = await at("PATCH", path, {"resources": resources, "checkpointStorage": kept})
    config = told["experiment"]["config"]
    assert {"max_slots": 2, "weight": 2.5, "priority": 7}.items() <= config["resources"].items()
    assert config["checkpoint_storage"]["save_trial_latest"] == 3
    told = await at("PATCH", path, {"resources": {"maxSlots": None}})
    assert told["experiment"]["config"]["resources"]["max_slots"] is None
    assert told["experiment"]["config"]["resources"]["priority"] == 7
    assert (await at.refusal("PATCH", path, {"resources": {"priority": 100}})).startswith("400 resources.priority")
    assert (await at.refusal("PATCH", path, {"resources": {"priority": "x"}})).startswith("400 resources")


async def test_how_long_logs_are_kept(at: Wire) -> None:
    experiment = await at.create(SEARCH)
    [trial, *others] = await at.trials(experiment, 3)
    left = f"/trials/{trial['id']}/remaining_log_retention_days"
    assert await at("GET", left) == {"remainingDays": None}
    await at("PUT", f"/experiments/{experiment}/retain_logs", {"experimentId": experiment, "numDays": 10})
    assert await at("GET", left) == {"remainingDays": 10}
    await at("PUT", f"/trials/{trial['id']}/retain_logs", {"trialId": trial["id"], "numDays": 3})
    found = {each["id"]: each["logRetentionDays"] for each in await at.trials(experiment)}
    assert found == {trial["id"]: 3, **{other["id"]: 10 for other in others}}
    assert "numDays" in await at.refusal("PUT", f"/trials/{trial['id']}/retain_logs", {"numDays": 1_000_000})


# By whom


async def test_who_may_not_see_an_experiment_is_told_that_there_is_none(at: Wire) -> None:
    hidden = await at("POST", "/workspaces", {"name": "hidden"})
    workspace = hidden["workspace"]["id"]
    project = (await at("POST", f"/workspaces/{workspace}/projects", {"name": "p"}))["project"]["id"]
    experiment = await at.create(projectId=project)
    [trial] = await at.trials(experiment)
    await at.person("eve", "Editor", 1)
    mine = await at.create(by="eve")
    await at.trials(mine)
    assert [each["id"] for each in (await at("GET", "/experiments", by="eve"))["experiments"]] == [mine]
    assert [each["experiment"]["id"] for each in (await at("POST", "/runs", {}, by="eve"))["runs"]] == [mine]
    for method, path in (
        ("GET", f"/experiments/{experiment}"),
        ("PATCH", f"/experiments/{experiment}"),
        ("DELETE", f"/experiments/{experiment}"),
        ("POST", f"/experiments/{experiment}/kill"),
        ("PUT", f"/experiments/{experiment}/labels/x"),
        ("GET", f"/experiments/{experiment}/trials"),
        ("GET", f"/experiments/{experiment}/model_def"),
        ("POST", f"/experiments/{experiment}/file"),
        ("GET", f"/trials/{trial['id']}"),
        ("GET", f"/trials/{trial['id']}/logs"),
        ("POST", f"/trials/{trial['id']}/kill"),
        ("PATCH", f"/trials/{trial['id']}"),
        ("GET", f"/projects/{project}/columns"),
    ):
        body: object = None if method in ("GET", "DELETE") else {}
        assert (await at.refusal(method, path, body, by="eve")).startswith("404"), path
    assert (await at.refusal("POST", "/experiments/continue", {"id": experiment}, by="eve")).startswith("404")
    many = await at("POST", f"/projects/{project}/experiments/kill", {"experimentIds": [experiment]}, by="eve")
    assert many["results"] == [{"id": experiment, "error": f"experiment {experiment} not found"}]
    forked = {"config": CONFIG, "parentId": experiment}
    assert (await at.refusal("POST", "/experiments", forked, by="eve")).startswith("404")
    assert (await at.refusal("POST", "/experiments", {"config": CONFIG, "projectId": project}, by="eve")).startswith(
        "4"
    )
    assert await at.state(experiment) != "STATE_CANCELED"


async def test_viewers_look_and_see_no_secrets(at: Wire) -> None:
    experiment = await at.create(CONFIG + "# key: hush\n")
    await at.person("vic", "Viewer", 1)
    for by, seen in (("vic", "********"), ("admin", "hush")):
        found = [
            (await at("GET", f"/experiments/{experiment}", by=by))["experiment"],
            (await at("GET", "/experiments", by=by))["experiments"][0],
            (await at("POST", "/experiments-search", {}, by=by))["experiments"][0]["experiment"],
        ]
        for told in found:
            assert told["config"]["checkpoint_storage"]["secret_key"] == seen
            assert (seen in told["originalConfig"], "hush" in told["originalConfig"]) == (True, by == "admin")
    for path in ("pause", "kill", "archive"):
        assert (await at.refusal("POST", f"/experiments/{experiment}/{path}", by="vic")).startswith("403")
    assert (await at.refusal("POST", "/experiments", {"config": CONFIG}, by="vic")).startswith("403")
    many = await at("POST", "/projects/1/experiments/kill", {"experimentIds": [experiment]}, by="vic")
    assert "may not" in many["results"][0]["error"]
    assert await at.refusal("GET", "/experiments", by="nobody") == (
        "401 log in first: no known session or token came with the request"
    )


async def test_a_tensorboard_of_experiments_needs_one_storage_and_the_right_to_its_keys(at: Wire) -> None:
    first, second = await at.create(), await at.create()
    other = await at.create(SEARCH)
    made = await at(
        "POST", "/tensorboards", {"experimentIds": [first], "trialIds": [(await at.trials(second))[0]["id"]]}
    )
    entry = at.engine.machine.entries[f"{made['tensorboard']['id']}.1"]  # type: ignore[index]
    [main] = entry.request.template["spec"]["containers"]
    variables = {each["name"]: each.get("value") for each in main["env"]}
    trial = (await at.trials(second))[0]["id"]
    assert variables["DET_TENSORBOARD_PATHS"] == (
        f"s3://models/cluster/tensorboard/experiment/{first},"
        f"s3://models/cluster/tensorboard/experiment/{second}/trial/{trial}"
    )
    assert '"secret_key":"hush"' in entry.secrets["DET_TENSORBOARD_STORAGE"]
    refusal = await at.refusal("POST", "/tensorboards", {"experimentIds": [first, other]})
    assert "different storages" in refusal
    made = await at("POST", "/tensorboards", {"experimentIds": [other]})
    entry = at.engine.machine.entries[f"{made['tensorboard']['id']}.1"]  # type: ignore[index]
    assert "shared-fs" in [volume["name"] for volume in entry.request.template["spec"]["volumes"]]
    workspace = (await at("POST", "/workspaces", {"name": "own"}))["workspace"]["id"]
    await at.person("vic", "Viewer", 1)
    await at.ground.grant(at.callers["vic"].user, "Editor", WorkspaceId(workspace))
    start = {"experimentIds": [first], "workspaceId": workspace}
    assert (await at.refusal("POST", "/tensorboards", start, by="vic")).startswith("403")
    await at("POST", "/tensorboards", {**start, "experimentIds": [other]}, by="vic")
    assert (await at.refusal("POST", "/tensorboards", {"experimentIds": [77]})).startswith("404")
