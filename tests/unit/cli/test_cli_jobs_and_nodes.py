"""What `ps`, `nodes`, `describe` and the end of `run` say, from documents alone."""

import pytest

from muster.api import errors
from muster.cli import describe, nodes, ps, run_view, starting, targets
from muster.sdk import finding, gangs
from muster.sdk.resources import NODES, POD_GROUPS, PODS, Catalog, Resource

CREATED = "2026-01-01T00:00:00Z"
NOW = 1767225600.0 + 90


def a_pod(name, phase, *, group="", node="", rank=0, created=CREATED, code=None, message=""):
    conditions = [{"type": "PodScheduled", "status": "False", "message": message}] if message else []
    state = [{"state": {"terminated": {"exitCode": code}}}] if code is not None else []
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "creationTimestamp": created,
            "labels": {gangs.RANK_LABEL: str(rank)},
            "annotations": {gangs.GROUP_ANNOTATION: group} if group else {},
        },
        "spec": {"nodeName": node, "containers": [{"resources": {"requests": {"cpu": "500m", gangs.GPU: "1"}}}]},
        "status": {"phase": phase, "conditions": conditions, "containerStatuses": state},
    }


def a_group(name, size):
    metadata = {"name": name, "namespace": "default", "creationTimestamp": CREATED}
    return {"metadata": metadata, "spec": {"minMember": size}}


def rows(groups, pods):
    return [list(row) for row in ps.tabulate(finding.collect([], groups, pods, []), NOW).rows]


def test_ps_gathers_gangs_and_bare_pods_and_says_why_they_wait():
    pods = [
        a_pod("train-0", "Running", group="train", node="n0"),
        a_pod("train-1", "Running", group="train", node="n1", rank=1),
        a_pod("big-0", "Pending", group="big", message="0/2 nodes have 8 GPUs"),
        a_pod("web", "Failed", code=3, node="n0", created="2026-01-01T00:01:00Z"),
    ]
    assert rows([a_group("train", 2), a_group("big", 2)], pods) == [
        ["big", "gang", "Pending", "0/2", "-", "1m30s", "0/2 nodes have 8 GPUs"],
        ["train", "gang", "Running", "2/2", "-", "1m30s", "-"],
        ["web", "pod", "Failed", "0/1", "-", "30s", "exit code 3"],
    ]


def test_ps_shows_a_gang_without_pods_and_pods_without_their_group():
    assert rows([a_group("early", 3)], []) == [
        ["early", "gang", "Pending", "0/3", "-", "1m30s", "waits for 3 more pods"]
    ]
    assert rows([], [a_pod("late-0", "Succeeded", group="late", code=0)])[0][:3] == ["late", "gang", "Succeeded"]


def test_ps_does_not_show_what_a_job_has_left_that_is_gone():
    owner = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "uid": "gone", "controller": True}
    left = a_group("train-1234", 2)
    left["metadata"]["ownerReferences"] = [owner]
    assert rows([left], []) == []
    owner["kind"] = "SomebodysJob"
    assert rows([left], [])[0][0] == "train-1234"


def a_node(name, **spec):
    return {
        "metadata": {"name": name, "creationTimestamp": CREATED},
        "spec": spec,
        "status": {
            "allocatable": {"cpu": "2", "memory": "4Gi", gangs.GPU: "4", "pods": "10"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def test_nodes_count_what_unfinished_pods_have_asked_for():
    pods = [
        a_pod("a", "Running", node="n0"),
        a_pod("b", "Pending", node="n0"),
        a_pod("c", "Succeeded", node="n0"),
        a_pod("d", "Pending"),
    ]
    first, second = nodes.fill([a_node("n0"), a_node("n1", unschedulable=True)], pods)
    assert (first.cpu.used, first.cpu.total) == (1.0, 2.0)
    assert (first.gpus.used, first.gpus.total, first.pods.used) == (2.0, 4.0, 2)
    assert second.state == "Ready,SchedulingDisabled"
    shown = nodes.tabulate([first], NOW).rows[0]
    assert shown[2] == "█████░░░░░ 1/2"
    assert shown[3].endswith("0/4Gi")


def test_describe_shows_state_reason_conditions_and_events():
    pod = a_pod("web", "Pending", message="no node has room")
    pod["metadata"]["managedFields"] = [{"manager": "noise"}]
    event = {
        "reason": "FailedScheduling",
        "message": "no room",
        "count": 3,
        "lastTimestamp": CREATED,
        "type": "Warning",
    }
    shown = describe.describe(pod, [event], NOW)
    assert "Why:          no node has room" in shown
    assert "noise" not in shown
    assert "PodScheduled" in shown
    assert "1m30s (x3)   Warning   FailedScheduling" in shown
    assert "Events: none" in describe.describe(pod, [], NOW)


CATALOG = Catalog([PODS, NODES, POD_GROUPS, Resource("batch", "v1", "jobs", "Job", categories=("all",))])


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["pods"], [("pods", "")]),
        (["po", "a", "b"], [("pods", "a"), ("pods", "b")]),
        (["pod/a", "pg/b"], [("pods", "a"), ("podgroups", "b")]),
        (["pods,nodes"], [("pods", ""), ("nodes", "")]),
        (["all"], [("jobs", "")]),
    ],
)
def test_words_become_targets(words, expected):
    assert [(found.resource.plural, found.name) for found in targets.parse(words, CATALOG)] == expected


@pytest.mark.parametrize("words", [["pod/a/b"], ["pod/"], ["/a"], ["pod/a", "b"], ["pods,nodes", "x"]])
def test_words_that_make_no_sense_are_refused(words):
    with pytest.raises(errors.BadRequest):
        targets.parse(words, CATALOG)


def test_a_name_is_demanded_where_one_is_needed():
    with pytest.raises(errors.BadRequest, match="which Pod"):
        targets.named(["pods"], CATALOG)


def test_the_summary_says_who_failed_where():
    status = gangs.observe(
        "train", [a_pod("t-0", "Succeeded", node="n0", code=0), a_pod("t-1", "Failed", node="n1", rank=1, code=9)]
    )
    assert run_view.summary(status, 9, 3.0) == "train failed after 3.0s: rank 1 exit code 9 on n1"
    done = gangs.observe("solo", [a_pod("solo-0", "Succeeded", node="n0", code=0)])
    assert run_view.summary(done, 0, 75) == "solo succeeded in 1m15s (1 rank on n0)"


def test_the_status_line_follows_the_gang():
    assert run_view.situation(None, 0.2) == ("Pending", "0s  submitted")
    waiting = gangs.observe("big", [a_pod("b", "Pending", message="no room")])
    assert run_view.situation(waiting, 65) == ("Pending", "1m5s  no room")
    running = gangs.observe("t", [a_pod("t-0", "Running", node="n0"), a_pod("t-1", "Succeeded", node="n1", code=0)])
    assert run_view.situation(running, 3) == ("Running", "3s  1 of 2 ranks, 1 done, on n0,n1")


def test_labels_are_checked_before_anything_starts():
    assert starting.parse_labels(["a.b/c=d", "e="]) == {"a.b/c": "d", "e": ""}
    with pytest.raises(errors.BadRequest, match="key=value"):
        starting.parse_labels(["rack"])
