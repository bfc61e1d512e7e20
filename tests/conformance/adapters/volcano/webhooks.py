"""Volcano's webhooks: what is refused, with which words, and what is filled in.

The rows carry the reviewed object; the objects that exist beforehand stand in the bodies of the tests, which the data
does not have. The worlds below are what the rows' own names and messages say of them. A row that leans on anything
else says so (`_UNSEEN`).
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from muster.api import core, raw, volcano
from muster.api.errors import FieldError
from muster.api.kinds import Kind
from muster.api.objects import Key, Object, view_of
from muster.api.raw import Document
from muster.api.volcano import admission, cron_validation, graphs, job_updates, resource_groups, taking_in
from muster.api.volcano.queue_tree import QueueRules, QueueTree, check_queue, check_queue_removal
from tests.conformance.cases import Adapters, Case, Failed, NotApplicable, Outcome, Passed, compare

_UNSEEN = NotApplicable(
    "the case leans on an object that exists before the call; the body of the Go test makes it, and the data lacks it"
)


def _queue(name: str, parent: str = "root", state: str = "Open", **spec: Any) -> Document:
    return {"metadata": {"name": name}, "spec": {"parent": parent, **spec}, "status": {"state": state}}


def _amounts(cpu: str, memory: str) -> Document:
    return {"cpu": cpu, "memory": memory}


def _promised(name: str, parent: str, amounts: Document) -> Document:
    return _queue(name, parent, guarantee={"resource": amounts}, deserved=amounts)


_ROOT: Document = {"metadata": {"name": "root"}, "spec": {}, "status": {"state": "Open"}}
_BUSY: Document = {"state": "Open", "allocated": {"pods": "1"}}
_WORLDS: dict[str, list[Document]] = {
    "TestValidateJobCreate": [_queue("default")],
    "TestValidateHierarchyCreate": [_ROOT, _queue("parentQueue"), _queue("childQueue", "parentQueue")],
    "TestAdmitQueues": [
        _queue("default"),
        {
            "metadata": {
                "name": "ordinary-hierarchical-queue",
                "annotations": {
                    "volcano.sh/hierarchy": "root/node1/node2",
                    "volcano.sh/hierarchy-weights": "1/2/3",
                },
            },
            "spec": {},
        },
    ],
    "TestAdmitHierarchicalQueues": [
        _ROOT,
        {**_queue("queue-with-jobs"), "status": _BUSY},
        _queue("queue-without-jobs"),
        _queue("queue-with-child-queues"),
        _queue("child-queue", "queue-with-child-queues"),
        _promised("one-child-of-it", "parent-queue-to-update", _amounts("8", "16Gi")),
        _promised("another-child-of-it", "parent-queue-to-update", _amounts("5", "10Gi")),
        _queue("child-of-empty-parent", "parent-queue-empty-parent", capability=_amounts("50", "20Gi")),
    ],
    "TestValidateQueueDepthDynamic": [_ROOT, _queue("q1"), _queue("q2", "q1")],
    "TestValidateChildAgainstAncestorForCapability": [
        _ROOT,
        _queue("ancestor-gp", capability={**_amounts("100", "50Gi"), "nvidia.com/gpu": "8"}),
        _queue("ancestor-p", "ancestor-gp", capability={"cpu": "50"}),
        _queue("ancestor-p-nocap", "ancestor-gp"),
    ],
    "TestValidateChildrenConstraintsForCapability": [
        _ROOT,
        _queue("vc-grandchild", "vc-child-a1", capability={"cpu": "30"}),
    ],
}


def _view(kind: Kind, document: Document) -> Any:
    completed = raw.copy(document)
    completed.setdefault("spec", {})
    kind.default(completed)
    return view_of(kind, completed)


def _tree(test: str, *more: Document) -> QueueTree:
    documents = {document["metadata"]["name"]: document for document in (*_WORLDS[test], *more)}
    return QueueTree.of(_view(volcano.QUEUE, document) for document in documents.values())


def _said(problems: Iterable[FieldError]) -> list[str]:
    return [str(problem) for problem in problems]


def _judge(problems: Sequence[str], wanted: str, *, is_refused: bool) -> Outcome:
    """`wanted`: what one of the problems, or all of them in a row, must say."""
    if bool(problems) != is_refused:
        return Failed(f"found {problems!r}, wanted {'a refusal' if is_refused else 'none'}: {wanted}")
    part = _as_ours(wanted)
    is_said = any(part in problem for problem in problems) or part in ", ".join(problems)
    return Passed() if is_said or not is_refused else Failed(f"found {problems!r}, wanted {part!r}")


def _as_ours(text: str) -> str:
    """Volcano names fields of the request's body, and two of them as they are not spelled; it ends parts with `;`."""
    for theirs, ours in (
        ("requestBody.spec.state", "status.state"),
        ("requestBody.", ""),
        ("spec.task[", "spec.tasks["),
    ):
        text = text.replace(theirs, ours)
    return text.strip(" ;").removeprefix("[").removesuffix("]") if text.startswith("[") else text.strip(" ;")


# Jobs


def _job_create(case: Case) -> Outcome:
    row = case["row"]
    document = {"kind": "Job", **row["Job"]}
    job = _view(volcano.JOB, document if row.get("PodLevelResourcesEnabled") else _without_pod_level(document))
    problems = [*volcano.JOB.validate(job), *admission.check_job(job, _tree(case["test"]))]
    if problems and not row["ExpectErr"] and job.spec.queue not in _tree(case["test"]).by_name:
        return _UNSEEN
    return _judge(_said(problems), row["ret"], is_refused=row["ExpectErr"])


def _without_pod_level(document: Document) -> Document:
    """Without the gate, nobody looks at `resources` of a whole pod."""
    copied: Document = raw.copy(document)
    for task in raw.dig(copied, "spec", "tasks") or ():
        (raw.dig(task, "template", "spec") or {}).pop("resources", None)
    return copied


def _job_update(case: Case) -> Outcome:
    row = case["row"]
    template = {"spec": {"containers": [{"name": "main", "image": "busybox"}]}}
    old: Document = {
        "metadata": {"name": "job", "namespace": "default"},
        "spec": {
            "minAvailable": 5,
            "tasks": [{"name": "task-1", "replicas": 5, "minAvailable": 2, "template": template}],
        },
    }
    new = raw.copy(old)
    new["spec"]["minAvailable"] = row["minAvailable"]
    new["spec"]["tasks"][0]["replicas"] = row["replicas"]
    if row["addTask"]:
        new["spec"]["tasks"].append({"name": "task-2", "replicas": 5, "template": template})
    if row["mutateTaskName"]:
        new["spec"]["tasks"][0]["name"] = "mutated-name"
    if row["mutateSpec"]:
        new["spec"]["policies"] = [{"action": "RestartJob", "event": "PodFailed"}]
    before, after = _view(volcano.JOB, old), _view(volcano.JOB, new)
    problems = [*volcano.JOB.validate(after), *job_updates.validate_job_update(before, after)]
    return compare(f"refused {_said(problems)}", bool(problems), row["expectErr"]) or Passed()


def _sorted_tasks(case: Case) -> Outcome:
    row = case["row"]
    tasks = _view(volcano.JOB, row["job"]).spec.tasks
    graph = {task.name: task.depends_on.name if task.depends_on else () for task in tasks}
    is_ordered = not graphs.find_cycle(graph) and not graphs.find_undefined(graph)
    order = row["sortedTasks"] or []
    is_kept = all(order.index(target) < order.index(name) for name in order for target in graph[name])
    return compare("has an order", is_ordered, row["isDag"]) or compare("their order is one", is_kept, True) or Passed()


def _job_defaults(case: Case) -> Outcome:
    row = case["row"]
    document = {"spec": {"tasks": raw.copy(row["InputTasks"])}}
    volcano.JOB.default(document)
    return compare("tasks", document["spec"]["tasks"], row["ExpectedTasks"]) or Passed()


# Queues


def _admit_queue(case: Case) -> Outcome:
    row = case["row"]
    request, response = row["AR"]["request"], row["reviewResponse"]
    wanted = response.get("result", {}).get("message", "")
    is_refused = not response.get("allowed", False)
    if request["operation"] == "DELETE":
        why = check_queue_removal(request["name"], _tree(case["test"]))
        return _judge([why] if why else [], wanted, is_refused=is_refused)
    if request["operation"] not in ("CREATE", "UPDATE"):
        return NotApplicable("there is no review to send an operation other than create, update and delete to")
    old = request.get("oldObject", {}).get("raw")
    tree = _tree(case["test"], *([old] if old else []))
    queue = _view(volcano.QUEUE, request["object"]["raw"])
    before = _view(volcano.QUEUE, old) if old else None
    problems = _said([*volcano.QUEUE.validate(queue), *check_queue(queue, before, tree)])
    if problems and not is_refused and (queue.spec.parent or "root") not in {"root", *tree.by_name}:
        return _UNSEEN
    return _judge(problems, wanted, is_refused=is_refused)


def _queue_depth(case: Case) -> Outcome:
    row = case["row"]
    rules = QueueRules(deepest=row["maxDepth"])
    problems = check_queue(_view(volcano.QUEUE, row["queue"]), None, _tree(case["test"]), rules)
    return compare(f"refused {_said(problems)}", bool(problems), row["expectedError"]) or Passed()


def _child_capability(case: Case) -> Outcome:
    row = case["row"]
    child, tree = _view(volcano.QUEUE, row["child"]), _tree(case["test"])
    if child.spec.parent not in tree.by_name:
        return _UNSEEN
    return _judge(_said(check_queue(child, None, tree)), row["errSubstr"], is_refused=row["expectErr"])


def _children_capability(case: Case) -> Outcome:
    row = case["row"]
    tree = _tree(case["test"], row["parent"], *row["children"])
    problems = check_queue(_view(volcano.QUEUE, row["parent"]), None, tree)
    return _judge(_said(problems), row["errSubstr"], is_refused=row["expectErr"])


def _mutated_queue(case: Case) -> Outcome:
    row = case["row"]
    before = row["AR"]["request"]["object"]["raw"]
    return _patched(before, volcano.QUEUE.default, row["reviewResponse"].get("patch") or [])


def _patched(before: Document, change: Callable[[Document], None], wanted: list[Document]) -> Outcome:
    """The changes are those that the patch makes. A patch may set what is already so, and may leave a value out that
    the data could not hold."""
    after = raw.copy(before)
    change(after)
    paths = {operation["path"] for operation in wanted}
    for operation in wanted:
        found: Any = after
        for part in operation["path"].strip("/").split("/"):
            found = found.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
        if "value" in operation and found != operation["value"]:
            return Failed(f"{operation['path']}: found {found!r}, wanted {operation['value']!r}")
        if found is None:
            return Failed(f"{operation['path']}: found nothing")
    changed = {
        f"/{section}/{name}"
        for section in ("spec", "metadata")
        for name, value in (after.get(section) or {}).items()
        if (before.get(section) or {}).get(name) != value
    }
    missing = {path for path in changed if not any(found == path or found.startswith(f"{path}/") for found in paths)}
    return compare("changed beyond the patch", missing, set()) or Passed()


# The others


def _pod_group(case: Case) -> Outcome:
    row = case["row"]
    group = view_of(volcano.POD_GROUP, row["podGroup"])  # as Volcano's validation sees it: without defaults
    assert isinstance(group, volcano.PodGroup)
    queues = [row["queue"]] if row["queue"].get("metadata") else []
    tree = QueueTree.of(_view(volcano.QUEUE, queue) for queue in queues)
    problems = _said([*admission.check_pod_group(group, tree), *volcano.POD_GROUP.validate(group)])
    said = "; ".join(problems)
    refused = compare(f"refused {problems}", bool(problems), row["expectError"])
    parts = (Failed(f"{part!r} is not in {said!r}") for part in row["msgContains"] or () if part not in said)
    return refused or next(parts, Passed())


def _pod_group_patch(case: Case) -> Outcome:
    row = case["row"]
    name = row["podgroup"]["metadata"].get("namespace", "")
    metadata = {"name": name, "annotations": row["nsAnnotations"] or {}}
    namespace = Object(core.NAMESPACE, raw.encode({"metadata": metadata}))

    def find(kind: Kind, key: Key) -> Object | None:
        return namespace if (kind, key) == (core.NAMESPACE, Key("", name)) else None

    def change(document: Document) -> None:
        taking_in.take_in(volcano.POD_GROUP, document, find)

    return _patched(row["podgroup"], change, row["wantPatch"] or [])


def _pod(case: Case) -> Outcome:
    row = case["row"]
    pod = view_of(core.POD, row["Pod"])
    assert isinstance(pod, core.Pod)
    problems = _said(admission.check_pod(pod))
    return _judge(problems, row["ret"], is_refused=row["ExpectErr"])


_ADMISSION_CONFIGURATION = """
resourceGroups:
- resourceGroup: management
  object: {key: namespace, value: [mng-ns-1]}
  schedulerName: default-scheduler
  tolerations: [{key: mng-taint-1, operator: Exists, effect: NoSchedule}]
  affinity: '{"nodeAffinity": {}}'
  labels: {volcano.sh/nodetype: management}
- resourceGroup: cpu
  object: {key: annotation, value: ["volcano.sh/resource-group: cpu"]}
  schedulerName: volcano
  labels: {volcano.sh/nodetype: cpu}
- resourceGroup: gpu
  schedulerName: volcano
  labels: {volcano.sh/nodetype: gpu}
"""
"""The example of Volcano's documentation, which the test's configuration is."""


def _mutated_pod(case: Case) -> Outcome:
    row = case["row"]
    groups = resource_groups.read(raw.decode_yaml(_ADMISSION_CONFIGURATION)[0])
    return _patched(row["Pod"], lambda pod: resource_groups.steer(pod, groups), row["expect"] or [])


def _hyper_node(case: Case) -> Outcome:
    row = case["row"]
    problems = _said(volcano.HYPER_NODE.validate(_view(volcano.HYPER_NODE, row["HyperNode"])))
    return compare(f"refused {problems}", bool(problems), row["ExpectErr"]) or Passed()


def _dag(case: Case) -> Outcome:
    row = case["row"]
    undefined, cycle = graphs.find_undefined(row["graph"]), graphs.find_cycle(row["graph"])
    return (
        compare("undefined", bool(undefined), row["isErr"])
        or compare("is in order", not undefined and not cycle, row["isDAG"])
        or Passed()
    )


def _job_flow(case: Case) -> Outcome:
    row = case["row"]
    problems = volcano.JOB_FLOW.validate(_view(volcano.JOB_FLOW, row["JobFlow"]))
    return _judge(_said(problems), row["ret"], is_refused=row["ExpectErr"])


def _cron_job(case: Case) -> Outcome:
    row = case["row"]
    problems = volcano.CRON_JOB.validate(_view(volcano.CRON_JOB, row["CronJob"]))
    return _judge(_said(problems), row["ret"], is_refused=row["ExpectErr"])


def _cron_job_name(case: Case) -> Outcome:
    row = case["row"]
    document = {"metadata": {"name": row["input"]}, "spec": {"schedule": "* * * * *"}}
    view = view_of(volcano.CRON_JOB, document)
    assert isinstance(view, volcano.CronJob)
    problems = [found for found in cron_validation.validate_cron_job(view) if found.path == "metadata.name"]
    return _judge(_said(problems), row["expected"], is_refused=bool(row["expected"]))


_TESTS: dict[str, Callable[[Case], Outcome]] = {
    "TestValidateJobCreate": _job_create,
    "TestValidateHierarchyCreate": _job_create,
    "TestValidateJobUpdate": _job_update,
    "TestTopoSort": _sorted_tasks,
    "TestMutateSpecPartitionPolicyDefaults": _job_defaults,
    "TestAdmitQueues": _admit_queue,
    "TestAdmitHierarchicalQueues": _admit_queue,
    "TestValidateQueueDepthDynamic": _queue_depth,
    "TestValidateChildAgainstAncestorForCapability": _child_capability,
    "TestValidateChildrenConstraintsForCapability": _children_capability,
    "TestMutateQueues": _mutated_queue,
    "TestValidatePodGroup": _pod_group,
    "Test_createPodGroupPatch": _pod_group_patch,
    "TestValidatePod": _pod,
    "TestMutatePods": _mutated_pod,
    "TestValidateHyperNode": _hyper_node,
    "TestIsDAG": _dag,
    "TestValidateJobFlowCreate": _job_flow,
    "TestValidateCronjobSpec": _cron_job,
    "TestValidateCronJobName": _cron_job_name,
}


def _run(case: Case) -> Outcome:
    return _TESTS[case["test"]](case)


ADAPTERS: Adapters = {"webhook_jobs": _run, "webhook_queues": _run, "webhook_others": _run}
