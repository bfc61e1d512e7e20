"""What `ps`, `describe job`, `submit`, `scale` and `queue` print, from documents alone, and how it fits a terminal."""

import json
from dataclasses import replace

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.sdk.job_documents import a_condition, a_pod, a_workload, batch, cron, flow, pytorch, volcano

from muster.api import errors
from muster.cli import completing, cron_times, describe, describe_job, main, ps, queue, rendering, submit_view
from muster.cli.rendering import Table
from muster.sdk import dialects, gangs, summaries
from muster.sdk.details import Details, Pod, timeline
from muster.sdk.queues import Queue
from muster.sdk.resources import NODES, PODS, Catalog
from muster.sdk.summaries import Surroundings

NOW = 1767225600.0 + 90
WAITS = a_workload(
    a_condition("QuotaReserved", "False"), a_condition("Waiting", message="2 ahead in ClusterQueue gold; 8 cpu missing")
)


def listed():
    return [
        summaries.observe(volcano("Pending"), Surroundings(workload=WAITS)),
        summaries.observe(batch(a_condition("Complete"), succeeded=4)),
        summaries.observe(pytorch(a_condition("Running"), Worker={"active": 3}, Master={"active": 1})),
        summaries.observe(flow("Running", runningJobs=["pipe-a"])),
        summaries.observe(cron()),
    ]


def test_ps_has_every_kind_in_one_table():
    table = ps.tabulate(listed(), NOW)
    assert [column.upper() for column in table.columns] == ["NAME", "KIND", "STATE", "PODS", "QUEUE", "AGE", "WHY"]
    assert [list(row) for row in table.rows] == [
        ["train", "volcano", "Pending", "0/4", "gold", "1m30s", "2 ahead in ClusterQueue gold; 8 cpu missing"],
        ["train", "batch", "Succeeded", "4/4", "-", "1m30s", "-"],
        ["train", "pytorch", "Running", "4/4", "-", "1m30s", "-"],
        ["pipe", "flow", "Running", "1/2", "-", "1m30s", "-"],
        ["nightly", "cron", "Scheduled", "-", "-", "1m30s", "next in 2h58m, never ran yet"],
    ]


def test_ps_gives_way_on_a_narrow_terminal():
    assert "Queue" in ps.tabulate(listed(), NOW, width=120).columns
    narrow = ps.tabulate(listed(), NOW, width=66)
    assert list(narrow.columns) == ["Name", "Kind", "State", "Pods", "Age", "Why"]
    assert list(ps.tabulate(listed(), NOW, width=60).columns) == ["Name", "Kind", "State", "Pods", "Why"]
    assert narrow.cut
    assert "Nodes" in ps.tabulate(listed(), NOW, wide=True).columns


@pytest.mark.parametrize(
    ("why", "brief"),
    [
        (
            "1 of the 3 pods that must start together can be placed: 0/2 nodes are available: 2 Insufficient cpu.",
            "0/2 nodes: 2 Insufficient cpu",
        ),
        (
            "first in ClusterQueue gold; 2 cpu of flavor a missing at /gold (held by x: 8); 1 tpu of flavor b missing "
            "at /gold",
            "first in gold; 2 cpu missing; 1 tpu missing",
        ),
        ("waits for quota", "waits for quota"),
    ],
)
def test_what_matters_stands_first_where_it_is_cut(why, brief):
    assert ps.in_brief(why) == brief


def test_ps_for_programs():
    found = ps.plain(listed()[0])
    assert (found["kind"], found["state"], found["phase"], found["wanted"]) == ("volcano", "Pending", "Pending", 4)
    assert ps.plain(listed()[4])["schedule"] == "0 3 * * *"
    json.dumps([ps.plain(job) for job in listed()])


@given(st.lists(st.integers(1, 60), min_size=2, max_size=6), st.integers(20, 200))
def test_a_column_of_prose_gives_way_first(natural, available):
    widths = rendering.fitted(natural, available, last_to=16)
    assert sum(widths) <= max(available, len(natural))
    if sum(natural[:-1]) + min(natural[-1], 16) <= available:
        assert widths[:-1] == natural[:-1]


@given(st.lists(st.text("abc", min_size=1, max_size=12), min_size=1, max_size=30), st.integers(20, 120))
def test_folded_tables_stay_within_the_terminal_and_lose_nothing(words, width):
    lines = rendering.folded(Table(["Name", "Said"], [["a-name", " ".join(words)]]), width)
    assert all(len(line) <= width for line in lines)
    assert " ".join(lines[1:]).split() == ["a-name", *words]


# Times of cron jobs


def test_when_a_cron_job_runs_next():
    ran = summaries.observe(cron(lastScheduleTime="2026-01-01T00:00:30Z"))
    assert cron_times.words(ran, NOW) == "next in 2h58m, last 1m ago"
    assert cron_times.words(summaries.observe(cron(suspend=True)), NOW) == "never ran yet"
    paced = summaries.observe(cron(lastScheduleTime="2026-01-01T00:01:00Z"))
    assert cron_times.next_run(replace(paced, schedule="@every 60s"), NOW) == NOW + 30
    assert cron_times.next_run(replace(paced, schedule="nonsense"), NOW) is None


# describe job


def a_description(job, pods=(), workload=None, events=()):
    workload = workload or {}
    return Details(
        job=job,
        summary=summaries.observe(job, Surroundings(pods, workload)),
        tasks=summaries.tasks(job),
        pods=[Pod(gangs.observe_pod(pod), "worker", pod["metadata"]["creationTimestamp"]) for pod in pods],
        children=[],
        workload=workload,
        explanation={"state": "Waiting", "clusterQueue": "gold", "position": 2, "summary": "8 cpu missing"}
        if workload
        else {},
        timeline=timeline(job, workload, pods),
        events=list(events),
    )


def test_describe_tells_all_about_a_job():
    event = {
        "reason": "FailedScheduling",
        "message": "no room",
        "type": "Warning",
        "lastTimestamp": "2026-01-01T00:01:00Z",
    }
    job = volcano("Pending", retryCount=1, spec={"maxRetry": 3})
    pods = [a_pod("train-worker-0", "Pending"), a_pod("train-worker-1", "Failed", code=3)]
    shown = describe_job.describe(a_description(job, pods, WAITS, [event, event]), NOW)
    for line in (
        "Kind:         volcano (Job of batch.volcano.sh/v1alpha1)\n",
        "State:        Pending, 0 of 4 pods\n",
        "Why:          2 ahead in ClusterQueue gold; 8 cpu missing\n",
        "Queue:        gold\n",
        "Starts with:  4 pods at the least\n",
        "Retries:      1 of 3\n",
        "  worker   3        3\n",
        "  train-worker-1   Failed    -      3      1m30s   -\n",
        "  Job train: Waiting (Workload wl-train, ClusterQueue gold)\n",
        "    2 ahead in its ClusterQueue\n",
        "  30s (x2)   Warning   FailedScheduling   no room\n",
    ):
        assert line in shown, shown


def test_describe_of_a_flow_has_its_steps_and_of_a_cron_job_its_times():
    shown = describe_job.describe(a_description(flow("Running", conditions={"pipe-a": {"phase": "Running"}})), NOW)
    assert "Steps:\n  STEP   STATE\n  a      Running\n  b      Waiting\n" in shown
    assert "Events: none" in shown
    assert "Schedule:     0 3 * * * (next in 2h58m, never ran yet)" in describe_job.describe(a_description(cron()), NOW)


def test_describe_for_programs_is_json():
    found = json.loads(json.dumps(describe_job.plain(a_description(volcano(), [a_pod("train-worker-0")]))))
    assert found["pods"][0]["task"] == "worker"
    assert [task["name"] for task in found["tasks"]] == ["ps", "worker"]


CATALOG = Catalog([PODS, NODES, *(dialect.resource for dialect in dialects.DIALECTS)])


@pytest.mark.parametrize(
    ("words", "jobs"),
    [
        (["job", "a", "b"], ["job/a", "job/b"]),
        (["job/a", "vcjob/b"], ["job/a", "vcjob/b"]),
        (["pytorchjob", "a"], ["pytorchjob/a"]),
        (["gang/a"], ["gang/a"]),
        (["train"], ["train"]),
        (["pod/a"], [""]),
        (["podgroup", "a"], [""]),
        (["nodes"], [""]),
    ],
)
def test_which_words_mean_jobs(words, jobs):
    assert [job for _, job in describe._split(words, CATALOG)] == jobs


def test_a_job_needs_a_name():
    with pytest.raises(errors.BadRequest, match="which job"):
        list(describe._split(["job"], CATALOG))


# submit


def test_the_status_line_and_the_last_one():
    waiting, done, running, *_ = listed()
    assert submit_view.situation(None, 0.1) == ("Pending", "0s  submitted")
    assert submit_view.situation(waiting, 65) == ("Pending", "1m5s  2 ahead in ClusterQueue gold; 8 cpu missing")
    assert submit_view.situation(running, 3) == ("Running", "3s  ░░░░░░░░░░░░  4 running, 0 of 4 done")
    assert submit_view.end_of(done, 3) == "train succeeded in 3.0s (4 of 4 done)"
    failed = summaries.observe(batch(a_condition("Failed")), Surroundings([a_pod("train-0", "Failed", code=7)]))
    assert submit_view.end_of(failed, 75) == "train failed after 1m15s: exit code 7"
    assert (
        submit_view.end_of(summaries.observe(volcano("Terminated")), 3) == "train was stopped after 3.0s: exit code 143"
    )


# queue


def test_amounts_of_a_queue():
    assert queue.parse_amounts("capability", "cpu=8, nvidia.com/gpu=4") == {"cpu": "8", "nvidia.com/gpu": "4"}
    assert queue.parse_amounts("capability", "") == {}
    for wrong in ("cpu", "cpu=", "=8"):
        with pytest.raises(errors.BadRequest, match="--deserved"):
            queue.parse_amounts("deserved", wrong)


def test_both_kinds_of_queues_in_one_table():
    gold = {
        "metadata": {"name": "gold"},
        "spec": {"weight": 2, "parent": "root"},
        "status": {"pending": 1, "inqueue": 1},
    }
    research = {"metadata": {"name": "research"}, "spec": {"cohortName": "all"}, "status": {"reservingWorkloads": 3}}
    rows = queue.tabulate([Queue("volcano", gold), Queue("cluster", research)], NOW).rows
    assert [list(row[:7]) for row in rows] == [
        ["gold", "volcano", "Open", "root", "2", "2", "0"],
        ["research", "cluster", "Open", "all", "-", "0", "3"],
    ]


def test_cancel_is_stop(capsys):
    assert main.invoke(["cancel", "--help"]) == 0
    assert "Stop jobs of any kind" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["ls", "get", "create", "delete", "open", "close"])
def test_every_part_of_queue_teaches_by_example(name):
    found = queue.command.commands[name]
    assert f"muster queue {name}" in (found.help or "")
    assert all(option.help for option in found.params if isinstance(option, click.Option))


def test_completion_is_quiet_where_no_platform_answers(tmp_path, monkeypatch):
    monkeypatch.setenv("MUSTER_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("MUSTER_SERVER", raising=False)
    context = click.Context(main.muster, info_name="muster")
    assert completing.jobs(context, main.muster.params[0], "tr") == []
    assert completing.queue_names(context, main.muster.params[0], "") == []
