"""What `queues`, `why` and `describe` say of quota, from documents alone."""

import pytest

from muster.cli import describe, queues, rendering, why
from muster.cli.why import Subject
from muster.sdk.resources import PODS, WORKLOADS, Resource

JOBS = Resource("batch", "v1", "jobs", "Job")


def a_queue(name="research", *, cohort="all", active="True", reason="Ready", pending=3, **held):
    def resources(flavor):
        return [{"name": "cpu", "nominalQuota": "8"}, {"name": "nvidia.com/gpu", "nominalQuota": "4"}]

    reservation = [
        {"name": flavor, "resources": [{"name": resource, "total": total, "borrowed": borrowed}]}
        for flavor, (resource, total, borrowed) in held.items()
    ]
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ClusterQueue",
        "metadata": {"name": name},
        "spec": {
            "cohortName": cohort,
            "resourceGroups": [{"flavors": [{"name": "h200", "resources": resources("h200")}]}] if held else [],
        },
        "status": {
            "pendingWorkloads": pending,
            "admittedWorkloads": 2,
            "reservingWorkloads": 2,
            "conditions": [{"type": "Active", "status": active, "reason": reason}],
            "flavorsReservation": reservation,
        },
    }


def rows(*documents, width=200):
    return [list(row) for row in queues.tabulate([queues.read(found) for found in documents], width).rows]


def test_each_quota_has_a_line_with_a_bar():
    assert rows(a_queue(h200=("nvidia.com/gpu", "3", "0"))) == [
        ["research", "all", "Active", "3", "2", "h200", "cpu", "░" * 20 + " 0/8"],
        ["", "", "", "", "", "h200", "nvidia.com/gpu", "█" * 15 + "░" * 5 + " 3/4"],
    ]


def test_what_is_borrowed_is_told():
    [_, gpus] = rows(a_queue(h200=("nvidia.com/gpu", "6", "2")))
    assert gpus[-1] == "█" * 20 + " 6/4, 2 borrowed"


def test_a_queue_without_quota_and_one_that_is_not_active():
    [found] = rows(a_queue(cohort="", active="False", reason="Stopped"))
    assert found == ["research", "-", "Stopped", "3", "2", "-", "-", "no quota is set"]
    new = {"metadata": {"name": "new"}}
    assert rows(new) == [["new", "-", "Unknown", "0", "0", "-", "-", "no quota is set"]]


def test_what_stands_for_a_volcano_queue_without_limits_has_no_line():
    bare = a_queue("volcano-default", pending=0)
    bare["metadata"]["labels"] = {"muster.dev/volcano-queue": "default"}
    assert not queues._is_worth_a_line(queues.read(bare))
    bare["status"]["pendingWorkloads"] = 1
    assert queues._is_worth_a_line(queues.read(bare))
    assert queues._is_worth_a_line(queues.read(a_queue("default", pending=0)))


@pytest.mark.parametrize("width", [100, 110, 120])
def test_bars_fit_the_terminal(width):
    table = queues.tabulate([queues.read(a_queue(h200=("nvidia.com/gpu", "3", "0")))], width)
    assert max(map(len, rendering.plain(table).splitlines())) <= width


def test_on_a_narrow_terminal_bars_stay_readable():
    [cpu, _] = rows(a_queue(h200=("nvidia.com/gpu", "3", "0")), width=40)
    assert cpu[-1] == "░" * 5 + " 0/8"


def test_on_a_narrow_terminal_cohorts_are_left_out_where_there_are_none():
    lonely = [queues.read(a_queue(cohort="", h200=("nvidia.com/gpu", "3", "0")))]
    assert "Cohort" not in queues.tabulate(lonely, 40).columns
    assert "Cohort" in queues.tabulate(lonely, None).columns, "programs count columns"
    assert "Cohort" in queues.tabulate([*lonely, queues.read(a_queue())], 40).columns


def test_describe_shows_how_full_a_queue_is():
    shown = describe.describe(a_queue(h200=("nvidia.com/gpu", "3", "0")), [], 0.0)
    assert "State:        Active, 3 waiting, 2 admitted\n" in shown
    assert "Used:         ████████░░ 3/4 nvidia.com/gpu of h200\n" in shown


@pytest.mark.parametrize(("reserved", "is_shown"), [("False", True), ("True", False)])
def test_describe_says_why_a_workload_waits_while_it_does(reserved, is_shown):
    conditions = [
        {"type": "QuotaReserved", "status": reserved, "message": "insufficient quota"},
        {"type": "Waiting", "status": "True", "message": "first in ClusterQueue research; 1 cpu missing"},
    ]
    workload = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": "w", "namespace": "default"},
        "status": {"conditions": conditions},
    }
    shown = describe.describe(workload, [], 0.0)
    assert ("Why:          first in ClusterQueue research; 1 cpu missing\n" in shown) is is_shown


# why


def a_lack(**more):
    return {
        "flavor": "h200",
        "resource": "nvidia.com/gpu",
        "asked": "4",
        "free": "1",
        "missing": "3",
        "level": "/all/research",
        "isPermanent": False,
        "holders": [
            {"clusterQueue": "team-b", "used": "6", "borrowed": "2", "workloads": ["b/one", "b/two"]},
            {"clusterQueue": "research", "used": "1", "borrowed": "0", "workloads": []},
        ],
        **more,
    }


def an_explanation(**more):
    return {
        "workload": "default/job-train-1a2b3",
        "state": "Waiting",
        "clusterQueue": "research",
        "position": 2,
        "positionInLocalQueue": 1,
        "problem": "",
        "summary": "2 workloads ahead",
        "missing": [a_lack()],
        "tried": [{"flavor": "h200", "mode": "Preempt", "reasons": ["insufficient unused quota"]}],
        **more,
    }


def told(subject, workload, explanation, pods=()):
    return list(why.tell(subject, workload, explanation, list(pods)))


JOB = Subject(JOBS, {"metadata": {"name": "train", "uid": "u"}})


def test_all_that_is_known_of_a_job_that_waits():
    assert told(JOB, "job-train-1a2b3", an_explanation()) == [
        "Job train: Waiting (Workload job-train-1a2b3, ClusterQueue research)",
        "  2 ahead in its ClusterQueue, 1 of them from its own LocalQueue",
        "",
        "Missing: 3 nvidia.com/gpu of flavor h200. It asks for 4, /all/research has 1 left.",
        "  HELD BY    USED   BORROWED   WORKLOADS THAT BORROW",
        "  team-b     6      2          b/one, b/two",
        "  research   1      0          -",
        "",
        "Tried:",
        "  FLAVOR   RESULT    BECAUSE",
        "  h200     Preempt   insufficient unused quota",
    ]


def test_what_can_never_start_and_what_is_first():
    shown = told(JOB, "w", an_explanation(position=0, missing=[a_lack(isPermanent=True)], tried=[]))
    assert shown[1] == "  first in its ClusterQueue"
    assert shown[-1] == (
        "It can never start on nvidia.com/gpu of flavor h200: it asks for 4, and /all/research could give 1 at most."
    )


def test_a_problem_with_the_queue_and_a_workload_that_runs():
    problem = "ClusterQueue research does not exist"
    shown = told(JOB, "w", an_explanation(problem=problem, missing=[], tried=[], position=None))
    assert shown == ["Job train: Waiting (Workload w, ClusterQueue research)", f"  {problem}"]
    runs = an_explanation(state="Admitted", missing=[], tried=[], position=None, summary="it does not wait")
    workload = Subject(WORKLOADS, {"metadata": {"name": "w"}})
    assert told(workload, "w", runs) == ["Workload w: Admitted (ClusterQueue research)", "  it does not wait"]


def test_pods_that_wait_for_a_node_stand_together():
    pods = [(f"train-{rank}", "0/2 nodes have 8 GPUs") for rank in range(5)]
    assert told(JOB, "", {}, pods) == [
        "Job train waits for no quota.",
        "",
        "Waiting for a node: train-0, train-1, train-2 and 2 more",
        "  0/2 nodes have 8 GPUs",
    ]
    pod = Subject(PODS, {"metadata": {"name": "web"}})
    assert told(pod, "", {}) == ["Pod web waits neither for quota nor for a node."]
