"""Small questions about jobs and pods, and what the controller's copies know."""

from collections.abc import Callable
from typing import Any

from muster.api import patching, raw, volcano
from muster.api.objects import Key
from muster.controllers.jobs.carrying import _deleting
from muster.jobs.volcano import Seen, members, names
from muster.jobs.volcano.plugins import PluginError, changing
from muster.jobs.volcano.plugins.hcclrank import task_index
from muster.store.protocol import Patch
from tests.conformance.adapters.kube.building import view, without_nulls
from tests.conformance.adapters.volcano.job_building import a_job, a_pod, known_of, pods_of
from tests.conformance.cases import Adapters, Case, Failed, NotApplicable, Outcome, Passed, compare

FILLING = (
    "what the controller's own cache answers to those who fill it: ours is filled by a watch, which adds, updates and "
    "deletes without such callers"
)


def _task_position(case: Case) -> Outcome:
    row = case["row"]
    job = a_job(row["Job"])
    task = changing.find_task(job, row["TaskName"])
    return compare("position", job.spec.tasks.index(task) if task is not None else -1, row["Expect"]) or Passed()


def _pod_names(case: Case) -> Outcome:
    row = case["row"]
    job = a_job(row["Job"])
    count = changing.replicas(job, row["TaskName"])
    found = [names.pod_name(job.metadata.name, row["TaskName"], index) for index in range(count)]
    return compare("names", found, row["Expect"]) or Passed()


def _task_index(case: Case) -> Outcome:
    row = case["row"]
    try:
        found = task_index(without_nulls(row["pod"]))
    except PluginError:
        return compare("refused", True, row["expectErr"]) or Passed()
    return compare("refused", False, row["expectErr"]) or compare("index", found, row["expected"]) or Passed()


def _replicas(case: Case) -> Outcome:
    row = case["row"]
    return compare("replicas", changing.replicas(a_job(row["job"]), row["taskName"]), row["expected"]) or Passed()


def _is_out_of_sync(case: Case) -> Outcome:
    row = case["row"]
    found = members.read(a_pod(row["pod"], "j", "t")).is_out_of_sync
    return compare("out of sync", found, row["expected"]) or Passed()


def _out_of_sync_patch(case: Case) -> Outcome:
    """Ours is a merge patch: it must do the same to a pod."""
    pod = {"metadata": {"name": "p", "uid": "u", "annotations": {"a": "b"}}, "status": {}}
    member = members.read(a_pod(pod, "j", "t"))
    patches = [write for write in _deleting([member], is_marked=True) if isinstance(write, Patch)]
    wanted = patching.json_patch(pod, _decoded(case["row"]["expected"]))
    return compare("pod", patching.merge(pod, patches[0].body), wanted) or Passed()


def _decoded(value: Any) -> Any:
    return raw.decode(value) if isinstance(value, str) else value


def _has_pod(case: Case) -> Outcome:
    row = case["row"]
    pods = pods_of(row["jobinfo"], "j")
    known = known_of(Seen(a_job({}), pods))
    meta = row["pod"]["metadata"]
    task = (meta.get("annotations") or {}).get(names.TASK)
    found = task is not None and meta["name"] in known.get(task, {})
    return compare("known", found, row["expectRes"]) or Passed()


class _Copy:
    """The jobs and pods of a row, filed as the controller files them."""

    def __init__(self, row: dict[str, Any]) -> None:
        jobs = [a_job(document) for document in (row.get("JobsInCache") or {}).values()]
        self.jobs = {Key(job.metadata.namespace, job.metadata.name): job for job in jobs}
        self.pods: dict[tuple[Key, str], Any] = {}

    def add(self, document: dict[str, Any]) -> str:
        """The error that Volcano has for a pod that does not say whose it is."""
        pod = view(without_nulls(document))
        job = members.job_of(pod.metadata)
        if not job:
            return f"failed to find job name of pod <{pod.metadata.namespace}/{pod.metadata.name}>"
        self.pods[Key(pod.metadata.namespace, job), pod.metadata.name] = pod
        return ""

    def members(self, key: Key) -> list[members.Member]:
        return [members.read(pod) for (job, _), pod in self.pods.items() if job == key]


def _cached(case: Case) -> Outcome:
    row, asked = case["row"], case["test"].removeprefix("TestJobCache_")
    if asked in ("Add", "Update", "Delete"):
        return NotApplicable(FILLING)
    copy = _Copy(row)
    if asked in ("Get", "GetStatus"):
        return _got(copy, row)
    if asked in ("AddPod", "DeletePod", "UpdatePod"):
        return _pods(copy, row, asked)
    return _task(copy, row, asked)


def _got(copy: _Copy, row: dict[str, Any]) -> Outcome:
    meta = (row.get("Job") or {}).get("metadata") or {}
    namespace, _, name = row.get("Key", f"{meta.get('namespace')}/{meta.get('name')}").partition("/")
    job = copy.jobs.get(Key(namespace, name))
    if job is None:
        return compare("found", False, not _error(row, "ExpectedErr")) or Passed()
    wanted = row["ExpectedVal"]
    phase = wanted.get("phase") or ((wanted.get("Job") or {}).get("status") or {}).get("state", {}).get("phase")
    return (
        compare("error", "", _error(row, "ExpectedErr")) or compare("phase", job.status.state.phase, phase) or Passed()
    )


def _pods(copy: _Copy, row: dict[str, Any], asked: str) -> Outcome:
    if asked == "AddPod":
        return compare("error", copy.add(row["AddPod"]), _error(row, "ExpectedErr")) or Passed()
    for pod in row["AddPod"].values():
        copy.add(pod)
    changed = row[asked]
    error = copy.add(changed)
    if asked == "DeletePod":
        meta = changed["metadata"]
        job = (meta.get("annotations") or {}).get(names.JOB, "")
        copy.pods.pop((Key(meta.get("namespace", ""), job), meta["name"]), None)
    left = len(row["AddPod"]) - (asked == "DeletePod")
    return compare("error", error, _error(row, "ExpectedErr")) or compare("pods", len(copy.pods), left) or Passed()


def _task(copy: _Copy, row: dict[str, Any], asked: str) -> Outcome:
    tests = {"TaskCompleted": members.is_task_completed, "TaskFailed": members.is_task_failed}
    if asked not in tests:
        return Failed(f"no adapter for {asked}")
    for pod in row["AddPod"].values():
        copy.add(pod)
    (key,) = copy.jobs or {Key("test", "job1")}
    job = copy.jobs.get(key, volcano.Job())
    pods = copy.members(key)
    name = row.get("TaskName") or (pods[0].task if pods else "task1")
    task = changing.find_task(job, name)
    found = task is not None and tests[asked](task, [member for member in pods if member.task == name])
    return compare(asked, found, row["ExpectedVal"]) or Passed()


def _error(row: dict[str, Any], field: str) -> str:
    value = row.get(field)
    return str(value["$error"]) if isinstance(value, dict) and "$error" in value else ""


_TESTS: dict[str, Callable[[Case], Outcome]] = {
    "TestGetTasklndexUnderJobFunc": _task_position,
    "TestGetPodsNameUnderTaskFunc": _pod_names,
    "TestGetTaskIndexOfPod": _task_index,
    "TestGetTaskReplicasUnderJob": _replicas,
    "TestIsOutOfSyncPod": _is_out_of_sync,
    "TestOutOfSyncJSONPatch": _out_of_sync_patch,
    "TestHasPod": _has_pod,
}


def _job_helpers(case: Case) -> Outcome:
    test = case["test"]
    if test.startswith("TestJobCache_"):
        return _cached(case)
    return _TESTS[test](case) if test in _TESTS else Failed(f"no adapter for {test}")


ADAPTERS: Adapters = {"job_helpers": _job_helpers}
