"""Agents, slots, pools, the job queue, usage reports and generic tasks, through the unmodified client."""

import csv
import io
import re
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.det.det_client import Det
from tests.det.det_platform import DetPlatform, eventually
from tests.det.det_tasks import ENDED, Watcher, new_mark, processes

OPTIONS = ("--nodes", "2", "--fake-gpus", "2")
pytestmark = pytest.mark.usefixtures("emptied")


def agents(det: Det) -> dict[str, Any]:
    return {each["id"]: each for each in det("agent", "list", "--json").json}


def slots(det: Det) -> list[Any]:
    found: list[Any] = det("slot", "list", "--json").json
    return found


def job_of(det: Det, task: str) -> Any:
    return next(each for each in det("job", "list", "--json").json["jobs"] if each["entityId"] == task)


def node_of(watch: Watcher, task: str) -> str:
    summaries = watch.get("tasks")["allocationIdToSummary"].values()
    summary = next(each for each in summaries if each["taskId"] == task)
    (agent,) = {agent for part in summary["resources"] for agent in part["agentDevices"]}
    return str(agent)


def test_nodes_and_their_slots_are_shown(det: Det):
    found = agents(det)
    assert len(found) == 2
    for agent in found.values():
        assert (agent["num_slots"], agent["enabled"], agent["draining"]) == (2, True, False)
        assert "default" in agent["resource_pools"]
    assert len(slots(det)) == 4
    assert {(slot["task_name"], slot["type"], slot["enabled"]) for slot in slots(det)} == {("FREE", "cuda", True)}


def test_a_slot_tells_what_runs_on_it(det: Det, watch: Watcher):
    identity = watch.command("sleep 1000", "--config", "resources.slots=2", "--config", "description=busy one")
    watch.until_state("command", identity, "STATE_RUNNING")
    held = [slot for slot in slots(det) if slot["task_name"] != "FREE"]
    assert len(held) == 2
    assert {slot["agent_id"] for slot in held} == {node_of(watch, identity)}
    assert all("busy one" in slot["task_name"] and identity in slot["allocation_id"] for slot in held)
    row = next(row for row in det("task", "list").rows if row["Task ID"] == identity)
    assert (row["Slots Needed"], row["Agent"], row["Resource Pool"]) == ("2", node_of(watch, identity), "default")
    det("cmd", "kill", identity)
    eventually(lambda: all(slot["task_name"] == "FREE" for slot in slots(det)))


def test_a_disabled_node_takes_nothing_and_a_draining_one_lets_finish(det: Det, watch: Watcher):
    first, second = sorted(agents(det))
    running = watch.command("sleep 1000", "--config", "resources.slots=1")
    watch.until_state("command", running, "STATE_RUNNING")
    busy = node_of(watch, running)
    other = second if busy == first else first
    told = det("agent", "disable", busy, "--drain")
    assert "Tasks still in progress on draining nodes." in told.out
    assert running in told.out
    assert agents(det)[busy]["draining"] is True
    assert watch.state("command", running) == "STATE_RUNNING"
    new = [watch.command("sleep 1000", "--config", "resources.slots=1") for _ in range(3)]
    for identity in new[:2]:
        watch.until_state("command", identity, "STATE_RUNNING")
        assert node_of(watch, identity) == other
    assert watch.state("command", new[2]) == "STATE_QUEUED"
    det("agent", "enable", busy)
    watch.until_state("command", new[2], "STATE_RUNNING")
    assert node_of(watch, new[2]) == busy
    det("agent", "disable", busy)  # without draining: what runs there is ended
    watch.until_state("command", running, ENDED)
    watch.until_state("command", new[2], ENDED)
    assert watch.state("command", new[0]) == "STATE_RUNNING"
    assert agents(det)[busy]["enabled"] is False
    det("agent", "enable", "--all")
    assert all(agent["enabled"] for agent in agents(det).values())
    det("cmd", "kill", new[0], new[1])


def test_a_disabled_slot_is_not_used(det: Det, watch: Watcher):
    first, second = sorted(agents(det))
    det("slot", "disable", first, "0")
    shown = {(slot["agent_id"], slot["slot_id"]): slot["enabled"] for slot in slots(det)}
    assert [shown[first, "0"], shown[first, "1"], shown[second, "0"]] == [False, True, True]
    both = [watch.command("sleep 1000", "--config", "resources.slots=2") for _ in range(2)]
    eventually(lambda: any(watch.state("command", each) == "STATE_RUNNING" for each in both))
    states = {watch.state("command", each): each for each in both}
    assert node_of(watch, states["STATE_RUNNING"]) == second
    det("slot", "enable", first, "0")
    for each in both:
        watch.until_state("command", each, "STATE_RUNNING")
    det("cmd", "kill", *both)


def test_jobs_are_reordered(det: Det, watch: Watcher):
    holding = [watch.command("sleep 1000", "--config", "resources.slots=2") for _ in range(2)]
    for each in holding:
        watch.until_state("command", each, "STATE_RUNNING")
    early, late = (watch.command("sleep 1000", "--config", "resources.slots=2") for _ in range(2))
    assert [job_of(det, each)["summary"]["state"] for each in (early, late)] == ["STATE_QUEUED"] * 2
    assert job_of(det, early)["summary"]["jobsAhead"] < job_of(det, late)["summary"]["jobsAhead"]
    det("job", "update", job_of(det, late)["jobId"], "--priority", "1")
    assert job_of(det, late)["priority"] == 1
    eventually(lambda: job_of(det, late)["summary"]["jobsAhead"] < job_of(det, early)["summary"]["jobsAhead"])
    # Who was just tried in vain is not tried again for up to ten seconds: until then the other one may come first.
    time.sleep(11)
    det("cmd", "kill", holding[0])
    watch.until_state("command", late, "STATE_RUNNING")
    assert watch.state("command", early) == "STATE_QUEUED"
    det("job", "update-batch", f"{job_of(det, early)['jobId']}.priority=2")
    assert job_of(det, early)["priority"] == 2
    rows = det("job", "list").rows
    assert {row["ID"] for row in rows} >= {job_of(det, each)["jobId"] for each in (early, late, holding[1])}
    det("cmd", "kill", holding[1], early, late)
    eventually(lambda: det("job", "list", "--json").json["jobs"] == [])


def test_what_was_used_is_reported(det: Det, watch: Watcher):
    identity = watch.command("sleep 1.5", "--config", "resources.slots=1")
    watch.until_ended(identity)
    now = datetime.now(UTC)
    after, before = ((now + timedelta(hours=hours)).strftime("%Y-%m-%dT%H:%M:%SZ") for hours in (-1, 1))
    raw = list(csv.DictReader(io.StringIO(det("resources", "raw", after, before).out)))
    assert any(row.get("username") == "admin" for row in raw), raw
    allocations = det("resources", "allocations", after, before).out
    assert identity in allocations
    day = now.strftime("%Y-%m-%d")
    aggregated = det("resources", "aggregated", day, day)
    total = next(row for row in csv.DictReader(io.StringIO(aggregated.out)) if row["aggregation_type"] == "total")
    assert float(total["seconds"]) > 1
    entries = det("resources", "aggregated", day, day, "--json").json["resourceEntries"]
    assert entries[0]["byUsername"]["admin"] > 1
    assert det("resources", "aggregated", "yesterday", day, code=1).code == 1


def test_pools_are_told(watch: Watcher):
    pools = {pool["name"]: pool for pool in watch.get("resource-pools")["resourcePools"]}
    pool = pools["default"]
    assert pool["defaultComputePool"] is True
    assert (pool["slotsAvailable"], pool["numAgents"], pool["slotType"]) == (4, 2, "TYPE_CUDA")


def test_who_is_no_administrator_may_not_disable_nodes(det: Det, platform: DetPlatform):
    nina = platform.new_user("nina")
    node = min(agents(det))
    for words in (("agent", "disable", node), ("slot", "disable", node, "0")):
        refused = nina(*words, code=1)
        assert "may not" in refused.text or "Forbidden" in refused.text
    assert agents(det)[node]["enabled"] is True
    assert "no-such-node" in det("agent", "disable", "no-such-node", code=1).text


def create(det: Det, text: str, *options: str) -> str:
    told = det("task", "create", det.write("task.yaml", text), *options).out
    return re.search(r"Created task (\S+)", told)[1]  # type: ignore[index]


def test_a_generic_task_runs_pauses_and_goes_on(det: Det, watch: Watcher):
    mark = new_mark()
    det.write("ctx/word.txt", "carried")
    text = (
        f"entrypoint: ['sh', '-c', 'cat word.txt; echo; while :; do sleep 1; done # {mark}']\nresources: {{slots: 1}}\n"
    )
    identity = create(det, text, "-c", "ctx")
    watch.until_logged(identity, "carried")
    assert "slots: 1" in det("task", "config", identity).out
    det("task", "pause", identity)
    eventually(lambda: not processes(mark))
    eventually(lambda: all(slot["task_name"] == "FREE" for slot in slots(det)))
    det("task", "unpause", identity)
    eventually(lambda: processes(mark))
    eventually(lambda: watch.logs(identity).count("carried") == 2)
    fork = re.search(r"Created task (\S+)", det("task", "fork", identity).out)[1]  # type: ignore[index]
    watch.until_logged(fork, "carried")
    det("task", "kill", fork)
    det("task", "kill", identity)
    eventually(lambda: not processes(mark))
    watch.until_ended(identity)


def test_the_end_of_a_parent_is_the_end_of_its_children(det: Det, watch: Watcher):
    mark = new_mark()
    text = f"entrypoint: ['sh', '-c', 'while :; do sleep 1; done # {mark}']\nresources: {{slots: 0}}\n"
    parent = create(det, text)
    child = create(det, text, "--parent", parent)
    eventually(lambda: len({process.ppid() for process in processes(mark)}) >= 2)
    det("task", "kill", child, "--root")
    watch.until_ended(parent)
    watch.until_ended(child)
    assert processes(mark) == []
    refused = det("task", "pause", parent, code=1)
    assert "Traceback" not in refused.text


def test_a_generic_task_that_must_not_pause_is_not_paused(det: Det, watch: Watcher):
    identity = create(det, "entrypoint: ['sleep', '1000']\nresources: {slots: 0}\n", "--no_pause")
    eventually(lambda: watch.task(identity)["allocations"])
    assert "paus" in det("task", "pause", identity, code=1).text.lower()
    det("task", "kill", identity)
    watch.until_ended(identity)


def test_old_logs_are_cleaned_up(det: Det, platform: DetPlatform):
    assert "Deleted 0 rows" in det("task", "cleanup-logs").out
    assert platform.new_user("cleo").start("task", "cleanup-logs").wait().code == 1
