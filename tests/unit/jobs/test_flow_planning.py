"""Which steps of a flow may start, what is asked first, and what the flow's status says."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.api import timestamps, volcano
from muster.api.meta import Instant
from muster.api.objects import view_of
from muster.api.raw import Document
from muster.jobs import flow as flows
from muster.jobs.flow import Problem, Question
from muster.jobs.flow.states import Counts, Phase, step
from muster.jobs.flow.status import running_histories

NOW = timestamps.parse("2025-03-11T12:00:00Z")


def a_flow(*steps: Document, status: Document | None = None, **spec: Any) -> volcano.JobFlow:
    metadata = {"name": "f", "namespace": "ns", "uid": "u"}
    view = view_of(volcano.JOB_FLOW, {"metadata": metadata, "spec": {"flows": steps, **spec}, "status": status or {}})
    assert isinstance(view, volcano.JobFlow)
    return view


def a_step(name: str, *targets: str, **probe: Any) -> Document:
    depends: Document = {"targets": targets} | ({"probe": probe} if probe else {})
    return {"name": name, "dependsOn": depends} if targets else {"name": name}


def jobs(**phases: str) -> dict[str, volcano.Job]:
    found = {}
    for name, phase in phases.items():
        document = {
            "metadata": {"name": f"f-{name}", "namespace": "ns", "creationTimestamp": "2025-03-11T11:00:00Z"},
            "spec": {"tasks": [{"name": "t", "replicas": 3, "minAvailable": 2}]},
            "status": {"state": {"phase": phase}, "runningDuration": "90s", "retryCount": 1},
        }
        view = view_of(volcano.JOB, document)
        assert isinstance(view, volcano.Job)
        found[f"f-{name}"] = view
    return found


ALL = ("a", "b", "c")
CHAIN = (a_step("a"), a_step("b", "a"), a_step("c", "a", "b"))


@pytest.mark.parametrize(
    ("present", "started"),
    [
        ({}, ["a"]),
        ({"a": "Running"}, []),
        ({"a": "Failed"}, []),
        ({"a": "Completed"}, ["b"]),
        ({"a": "Completed", "b": "Completed"}, ["c"]),
        ({"b": "Completed"}, ["a"]),
    ],
)
def test_a_step_starts_when_those_before_it_are_done(present: dict[str, str], started: list[str]) -> None:
    due = flows.due(a_flow(*CHAIN), jobs(**present), ALL, {})
    assert (due.steps, due.problems, due.questions) == (started, {}, [])


def test_a_missing_template_is_a_problem_of_its_job() -> None:
    due = flows.due(a_flow(a_step("a"), a_step("x")), {}, ["a"], {})
    assert due.steps == ["a"]
    assert due.problems == {
        "f-x": Problem("JobTemplateNotFound", 'there is no JobTemplate "x" in namespace "ns"; create it')
    }
    status = flows.status_of(a_flow(a_step("a"), a_step("x")), jobs(a="Running"), due.problems or {}, NOW)
    assert status["conditions"]["f-x"]["reason"] == "JobTemplateNotFound"
    assert "f-x" not in status["runningJobs"]
    assert status["state"] == {"phase": "Running"}


def test_a_job_that_was_cleaned_up_is_not_made_again() -> None:
    flow = a_flow(*CHAIN)
    status = flows.status_of(flow, jobs(a="Completed"), {}, NOW)
    later = a_flow(*CHAIN, status=status)
    assert flows.due(later, {}, ALL, {}).steps == ["b"]
    after = flows.status_of(later, {}, {}, NOW)
    assert after["completedJobs"] == ["f-a"]
    assert after["conditions"] == status["conditions"]
    failed = a_flow(*CHAIN, status=flows.status_of(flow, jobs(a="Failed"), {}, NOW))
    assert flows.due(failed, {}, ALL, {}).steps == ["a"], "one that failed and is gone is tried again"


def test_the_jobs_of_a_flow_that_is_done_go_where_it_keeps_none() -> None:
    done: Document = {"state": {"phase": "Succeed"}}
    left = jobs(a="Completed", b="Completed")
    assert flows.due(a_flow(*CHAIN, status=done), left, ALL, {}) == flows.Due()
    due = flows.due(a_flow(*CHAIN, status=done, jobRetainPolicy="delete"), left, ALL, {})
    assert due.removed == ["f-a", "f-b"]
    assert due.steps == ()


def test_a_probe_lets_a_step_start_before_its_target_is_done() -> None:
    http = {"taskName": "t", "path": "/ready", "port": 8080, "httpHeader": {"name": "k", "value": "v"}}
    probe: Any = {"httpGetList": [http], "tcpSocketList": [{"taskName": "t", "port": 22}]}
    flow = a_flow(a_step("a"), a_step("b", "a", **probe))
    assert flows.due(flow, {}, ALL, {}).questions == [], "nobody is there to ask"
    asked = flows.due(flow, jobs(a="Running"), ALL, {})
    assert asked.steps == []
    assert list(asked.questions) == [Question("f-a", "t", 8080, "/ready", ("k", "v")), Question("f-a", "t", 22)]
    one, other = asked.questions
    assert flows.due(flow, jobs(a="Running"), ALL, {one: True, other: False}).steps == []
    assert flows.due(flow, jobs(a="Running"), ALL, {one: True, other: True}).steps == ["b"]
    assert flows.due(flow, jobs(a="Completed"), ALL, {}).steps == ["b"]


@pytest.mark.parametrize(("running", "expected"), [(1, []), (2, ["b"]), (3, ["b"])])
def test_a_probe_for_the_phase_of_a_task(running: int, expected: list[str]) -> None:
    status: Any = {"taskStatusList": [{"taskName": "t", "phase": "Running"}]}
    flow = a_flow(a_step("a"), a_step("b", "a", **status))
    found = view_of(
        volcano.JOB,
        {
            "metadata": {"name": "f-a"},
            "spec": {"tasks": [{"name": "t", "replicas": 3, "minAvailable": 2}]},
            "status": {"state": {"phase": "Running"}, "taskStatusCount": {"t": {"phase": {"Running": running}}}},
        },
    )
    assert isinstance(found, volcano.Job)
    assert flows.due(flow, {"f-a": found}, ALL, {}).steps == expected


def test_the_status_lists_jobs_by_what_they_do() -> None:
    status = flows.status_of(a_flow(*CHAIN), jobs(a="Completed", b="Restarting", c=""), {}, NOW)
    assert status["completedJobs"] == ["f-a"]
    assert status["unKnowJobs"] == ["f-b"]
    assert status["pendingJobs"] == ["f-c"]
    assert status["state"] == {"phase": "Running"}
    entry = status["jobStatusList"][0]
    assert (entry["startTimestamp"], entry["endTimestamp"]) == ("2025-03-11T11:00:00Z", "2025-03-11T11:01:30Z")
    assert entry["restartCount"] == 1
    again = flows.status_of(
        a_flow(*CHAIN, status=status), jobs(a="Completed", b="Restarting", c=""), {}, Instant(NOW + 99)
    )
    assert again == status, "nothing is written when nothing happens"


def test_what_a_job_went_through() -> None:
    known = None
    for minute, phase in enumerate(["Pending", "Running", "Running", "Completed"]):
        (job,) = jobs(a=phase).values()
        histories = running_histories(known, job, f"2025-03-11T12:0{minute}:00Z")
        known = volcano.FlowJobStatus(
            running_histories=tuple(
                volcano.JobRunningHistory(
                    start_timestamp=entry["startTimestamp"],
                    end_timestamp=entry.get("endTimestamp"),
                    state=entry["state"],
                )
                for entry in histories
            )
        )
    assert known is not None
    told = [
        (entry.state, (entry.start_timestamp or "")[14:16], entry.end_timestamp) for entry in known.running_histories
    ]
    assert told == [
        ("Pending", "00", "2025-03-11T12:01:00Z"),
        ("Running", "01", "2025-03-11T12:03:00Z"),
        ("Completed", "03", "2025-03-11T12:03:00Z"),
    ]


def test_the_job_of_a_step() -> None:
    flow: Document = {"metadata": {"name": "f" * 61, "namespace": "ns", "uid": "u"}}
    template: Document = {"metadata": {"name": "a"}, "spec": {"queue": "gold", "maxRetry": 1, "tasks": [{"name": "t"}]}}
    made = flows.make_job(flow, {"name": "a", "patch": {"jobSpec": {"maxRetry": 5}}}, template)
    assert made["spec"] == {"queue": "gold", "maxRetry": 5, "tasks": [{"name": "t"}]}
    assert template["spec"]["maxRetry"] == 1
    assert made["metadata"]["name"] == f"{'f' * 61}-a"
    assert made["metadata"]["labels"] == {"volcano.sh/createdByJobTemplate": "ns.a"}, "the other is no label value"
    assert made["metadata"]["annotations"]["volcano.sh/createdByJobFlow"] == f"ns.{'f' * 61}"


COUNTS = st.builds(Counts, st.integers(0, 4), st.integers(0, 4), st.integers(0, 4), st.integers(0, 2))


@given(COUNTS, st.sampled_from([None, "", *Phase]))
def test_laws_of_the_phase(counts: Counts, before: str | None) -> None:
    after = step(before, counts)
    assert step(after, counts) is after, "what does not change stays"
    assert step(Phase.SUCCEED, counts) is Phase.SUCCEED
    if before != Phase.SUCCEED:
        assert (after is Phase.FAILED) == (counts.failed > 0)
