"""Rules that need other objects: the tree of queues, open queues, priority classes, resource groups."""

from typing import Any

import pytest

from muster.api import core, errors, raw, volcano
from muster.api.kinds import Kind
from muster.api.objects import Key, Object, view_of
from muster.api.raw import Document
from muster.api.volcano import admission, resource_groups, taking_in
from muster.api.volcano.queue_tree import QueueRules, QueueTree, check_queue, check_queue_removal


def queue(name: str, parent: str = "", *, state: str = "Open", pods: int = 0, **spec: Any) -> volcano.Queue:
    document: Document = {"metadata": {"name": name}, "spec": {"parent": parent, **spec}, "status": {"state": state}}
    if pods:
        document["status"]["allocated"] = {"pods": pods}
    view = view_of(volcano.QUEUE, document)
    assert isinstance(view, volcano.Queue)
    return view


def tree(*queues: volcano.Queue) -> QueueTree:
    return QueueTree.of(queues)


def told(*problems: errors.FieldError) -> list[str]:
    return [str(problem) for problem in problems]


def test_a_queue_needs_a_parent_that_exists() -> None:
    (problem,) = check_queue(queue("a", "lost"), None, tree())
    assert problem.path == "spec.parent"
    assert 'failed to get parent queue of queue a: queue.scheduling.volcano.sh "lost" not found' in problem.message
    assert check_queue(queue("a", "root"), None, tree()) == []
    assert check_queue(queue("a"), None, tree()) == []


def test_a_queue_cannot_hang_below_itself() -> None:
    others = tree(queue("a"), queue("b", "a"), queue("c", "b"))
    (problem,) = check_queue(queue("a", "c"), others.by_name["a"], others)
    assert "queue c is itself below queue a" in problem.message


def test_the_tree_is_only_so_deep_also_below_a_queue_that_moves() -> None:
    others = tree(*(queue(str(depth), str(depth - 1) if depth else "root") for depth in range(5)))
    assert "6 levels deep" in told(*check_queue(queue("x", "4"), None, others))[0]
    assert check_queue(queue("x", "3"), None, others) == []
    others = others.with_queue(queue("top")).with_queue(queue("below", "top"))
    moved = check_queue(queue("top", "3"), others.by_name["top"], others)
    assert "6 levels deep" in told(*moved)[0]
    assert check_queue(queue("top", "3"), others.by_name["top"], others, QueueRules(deepest=6)) == []


def test_a_leaf_with_pods_does_not_become_a_parent() -> None:
    others = tree(queue("busy", pods=2), queue("old", "busy2"), queue("busy2", pods=1))
    (problem,) = check_queue(queue("new", "busy"), None, others)
    assert "queue busy cannot be the parent queue of queue new because it has allocated Pods: 2" in problem.message
    assert check_queue(queue("new", "busy2"), None, others) == [], "it has children already"
    here = tree(queue("busy", pods=2), queue("child", "busy"))
    assert check_queue(queue("child", "busy", weight=3), here.by_name["child"], here) == [], "it hung there before"


def test_what_may_be_used_is_bounded_by_the_nearest_ancestor_that_says_so() -> None:
    others = tree(queue("top", capability={"cpu": "10", "gpu": "4"}), queue("mid", "top", capability={"cpu": "6"}))
    assert check_queue(queue("leaf", "mid", capability={"cpu": "6", "gpu": "4", "memory": "9Gi"}), None, others) == []
    problems = check_queue(queue("leaf", "mid", capability={"cpu": "7", "gpu": "5"}), None, others)
    assert [problem.path for problem in problems] == ["spec.capability.cpu", "spec.capability.gpu"]
    assert "queue mid has capability[cpu]=6" in problems[0].message
    assert "queue top has capability[gpu]=4" in problems[1].message


def test_a_queue_does_not_shrink_below_those_under_it() -> None:
    others = tree(queue("top"), queue("mid", "top"), queue("leaf", "mid", capability={"cpu": "8"}))
    (problem,) = check_queue(queue("top", capability={"cpu": "7500m"}), others.by_name["top"], others)
    assert "capability[cpu]=7500m is smaller than its descendants' max capability=8" in problem.message


@pytest.mark.parametrize("what", ["deserved", "guarantee"])
def test_a_parent_promises_its_children_no_more_than_it_has(what: str) -> None:
    def promising(name: str, parent: str, cpu: str) -> volcano.Queue:
        amounts = {"cpu": cpu}
        if what == "deserved":
            return queue(name, parent, deserved=amounts)
        return queue(name, parent, guarantee={"resource": amounts})

    others = tree(promising("top", "", "10"), promising("a", "top", "6"), promising("free", "root", "99"))
    assert check_queue(promising("b", "top", "4"), None, others) == []
    (problem,) = check_queue(promising("b", "top", "5"), None, others)
    assert f"sum of children's {what} (cpu 11000.00, memory 0.00) exceeds parent's" in problem.message
    assert len(check_queue(promising("top", "", "5"), others.by_name["top"], others)) == 1
    assert check_queue(queue("top"), others.by_name["top"], others) == [], "what states nothing promises freely"


def test_a_queue_that_is_not_changed_is_not_asked_again() -> None:
    others = tree(queue("top", capability={"cpu": "1"}), queue("leaf", "top", capability={"cpu": "8"}))
    assert check_queue(others.by_name["leaf"], others.by_name["leaf"], others) == []


def test_the_root_can_be_protected() -> None:
    old, new = queue("root"), queue("root", capability={"cpu": "1"})
    assert check_queue(new, old, tree(old)) == []
    (problem,) = check_queue(new, old, tree(old), QueueRules(protects_root=True))
    assert problem.path == "spec.capability"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("default", "`default` queue can not be deleted"),
        ("root", "`root` queue can not be deleted"),
        ("top", "queue top can not be deleted because it has 2 child queues: a, b"),
        ("a", "queue a cannot be deleted because it has allocated Pods: 3"),
        ("b", None),
        ("unknown", None),
    ],
)
def test_which_queues_must_stay(name: str, why: str | None) -> None:
    others = tree(queue("top"), queue("b", "top"), queue("a", "top", pods=3))
    assert check_queue_removal(name, others) == why


def a_job(**spec: Any) -> volcano.Job:
    view = view_of(volcano.JOB, {"metadata": {"name": "j"}, "spec": spec})
    assert isinstance(view, volcano.Job)
    return view


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("open", None),
        ("fresh", None),
        ("default", None),
        ("lost", 'unable to find job queue: queue.scheduling.volcano.sh "lost" not found'),
        ("shut", "can only submit job to queue with state `Open`, queue `shut` status is `Closing`"),
        ("top", "can only submit job to leaf queue, queue `top` has 1 child queues"),
    ],
)
def test_a_job_goes_to_an_open_leaf(name: str, why: str | None) -> None:
    others = tree(queue("open", "top"), queue("fresh", state=""), queue("shut", state="Closing"), queue("top"))
    found = told(*admission.check_job(a_job(queue=name), others))
    assert len(found) == (why is not None)
    assert why is None or why in found[0]


def test_a_job_names_priority_classes_that_exist() -> None:
    task: Document = {"template": {"spec": {"priorityClassName": "low"}}}
    job = a_job(priorityClassName="high", tasks=[task, {"template": {}}])
    found = admission.check_job(job, tree(), ["low"])
    assert [problem.path for problem in found] == ["spec.priorityClassName"]
    found = admission.check_job(job, tree(), ["high"])
    assert [problem.path for problem in found] == ["spec.tasks[0].template.spec.priorityClassName"]
    assert admission.check_job(job, tree()) == []


def test_a_pod_group_goes_to_a_queue_that_is_open() -> None:
    others = tree(queue("shut", state="Closed"), queue("open"))
    for name, expected in (("shut", 1), ("lost", 1), ("open", 0), ("", 0)):
        group = view_of(volcano.POD_GROUP, {"metadata": {"name": "g"}, "spec": {"queue": name}})
        assert isinstance(group, volcano.PodGroup)
        assert len(admission.check_pod_group(group, others)) == expected, name


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        ({"volcano.sh/jdb-min-available": "3"}, 0),
        ({"volcano.sh/jdb-max-unavailable": "99%"}, 0),
        ({"volcano.sh/jdb-min-available": "0"}, 1),
        ({"volcano.sh/jdb-min-available": "-1"}, 1),
        ({"volcano.sh/jdb-min-available": "100%"}, 1),
        ({"volcano.sh/jdb-min-available": "٣"}, 1),
        ({"volcano.sh/jdb-min-available": "half"}, 1),
        ({"volcano.sh/jdb-min-available": "1", "volcano.sh/jdb-max-unavailable": "1"}, 1),
    ],
)
def test_how_many_pods_may_be_disrupted(annotations: dict[str, str], expected: int) -> None:
    for scheduler, count in (("volcano", expected), ("default-scheduler", 0)):
        pod = view_of(core.POD, {"metadata": {"annotations": annotations}, "spec": {"schedulerName": scheduler}})
        assert isinstance(pod, core.Pod)
        assert len(admission.check_pod(pod)) == count


GROUPS = """
resourceGroups:
- {resourceGroup: m, object: {key: namespace, value: [ops]}, schedulerName: s, labels: {a: b}, tolerations: [{key: t}]}
- {resourceGroup: n, object: {key: annotation, value: ["team: x"]}, affinity: {nodeAffinity: {}}}
- {resourceGroup: gpu, labels: {kind: gpu}}
"""


def test_pods_are_steered_to_their_resource_group() -> None:
    groups = resource_groups.read(raw.decode_yaml(GROUPS)[0])
    pod: Document = {
        "metadata": {"namespace": "ops"},
        "spec": {"nodeSelector": {"c": "d"}, "tolerations": [{"key": "u"}]},
    }
    resource_groups.steer(pod, groups)
    assert pod["spec"] == {
        "nodeSelector": {"c": "d", "a": "b"},
        "tolerations": [{"key": "u"}, {"key": "t"}],
        "schedulerName": "s",
    }
    pod = {"metadata": {"annotations": {"team": "x"}}}
    resource_groups.steer(pod, groups)
    assert pod["spec"] == {"affinity": {"nodeAffinity": {}}}
    pod = {"metadata": {"annotations": {"volcano.sh/resource-group": "gpu"}}}
    resource_groups.steer(pod, groups)
    assert pod["spec"] == {"nodeSelector": {"kind": "gpu"}}
    pod = {"metadata": {"annotations": {"volcano.sh/resource-group": "cpu"}}}
    resource_groups.steer(pod, groups)
    assert "spec" not in pod


@pytest.mark.parametrize(
    ("entry", "field"),
    [
        ({}, "resourceGroups[0].resourceGroup"),
        ("x", "resourceGroups[0]"),
        ({"resourceGroup": "a", "object": {"key": "color"}}, "resourceGroups[0].object.key"),
        ({"resourceGroup": "a", "object": {"key": "namespace", "value": [1]}}, "resourceGroups[0].object.value"),
        ({"resourceGroup": "a", "object": {"value": ["no colon"]}}, "resourceGroups[0].object.value"),
        ({"resourceGroup": "a", "labels": ["x"]}, "resourceGroups[0].labels"),
        ({"resourceGroup": "a", "tolerations": "all"}, "resourceGroups[0].tolerations"),
        ({"resourceGroup": "a", "affinity": "{"}, "resourceGroups[0].affinity"),
    ],
)
def test_a_wrong_resource_group_is_named(entry: Any, field: str) -> None:
    with pytest.raises(errors.BadRequest) as refused:
        resource_groups.read({"resourceGroups": [entry]})
    assert [cause.path for cause in refused.value.causes] == [field]


def test_a_namespace_names_the_queue_of_pod_groups_that_name_none() -> None:
    namespace = Object(
        core.NAMESPACE,
        raw.encode({"metadata": {"name": "team", "annotations": {"scheduling.volcano.sh/queue-name": "gold"}}}),
    )

    def find(kind: Kind, key: Key) -> Object | None:
        return namespace if key.name == "team" else None

    for before, where, after in (("default", "team", "gold"), ("own", "team", "own"), ("default", "else", "default")):
        document: Document = {"metadata": {"namespace": where}, "spec": {"queue": before}}
        taking_in.take_in(volcano.POD_GROUP, document, find)
        assert document["spec"]["queue"] == after
