"""The job controller: states, policies, which pods are made and ended, PodGroups, and when finished jobs go."""

import asyncio
from collections.abc import Callable
from typing import Any

from muster.api import core, patching, quantity, raw, timestamps, volcano
from muster.api.objects import Key, Object
from muster.controllers.jobs.commands import Commands
from muster.controllers.jobs.volcano import _Keeper
from muster.jobs.volcano import (
    Request,
    claiming,
    dependencies,
    expiring,
    groups,
    killing,
    making,
    minimum,
    names,
    plan,
    planning,
    policies,
    states,
)
from muster.jobs.volcano import status as statuses
from muster.jobs.volcano.deciding import Decision
from muster.jobs.volcano.plugins import KeyPair, UnknownPlugin, load
from muster.jobs.volcano.syncing import NewPod
from muster.jobs.volcano.vocabulary import Action
from muster.runtime.clock import SystemClock
from muster.store.embedded import EmbeddedStore
from muster.store.protocol import DEFAULT_OPTIONS, Change, Event, Revision
from tests.conformance.adapters.kube.building import without_nulls
from tests.conformance.adapters.volcano.job_building import (
    NOW,
    a_group,
    a_job,
    a_pod,
    known_of,
    part,
    seen_of,
    settled,
)
from tests.conformance.cases import (
    Adapters,
    Case,
    Failed,
    NotApplicable,
    Outcome,
    Passed,
    compare,
)

GO_SORTING = "Swap of Go's sort.Interface: Python sorts by a key and has no such function"
GO_TYPES = "a Go informer handler that is given an object of another type: a typed copy has no such case"
_TARGETS = {"task": Action.RESTART_TASK, "pod": Action.RESTART_POD, "partition": Action.RESTART_PARTITION}


# The machine


def _execute(case: Case) -> Outcome:
    row = case["row"]
    seen = seen_of(row["JobInfo"])
    seen = planning.Seen(seen.job, [*seen.pods, *_going(seen.job, len(seen.pods))])
    found = planning.execute(seen, known_of(seen), Decision(Action(row["Action"])), NOW)
    after = patching.merge(raw.decode(raw.encode(seen.job.status)), found.status or {})
    if "expectPhase" in case:
        wrong = compare("phase", raw.dig(after, "state", "phase"), case["expectPhase"])
        if wrong is not None:
            return wrong
    for asserted in case.get("asserts") or ():
        expression = str((asserted.get("actual") or {}).get("$expr", ""))
        if expression.endswith(".Status.RetryCount"):
            is_equal = after.get("retryCount", 0) == asserted["expected"]
            if is_equal != (asserted["op"] == "=="):
                return Failed(f"retryCount: found {after.get('retryCount', 0)}, wanted {asserted}")
    return Passed()


def _going(job: volcano.Job, known: int) -> list[Any]:
    """The pods that the row's counter says are terminating: the harness counts them without having them."""
    deleted = {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}
    missing = (job.status.terminating or 0) - known
    return [a_pod(deleted, job.metadata.name, "gone", f"gone-{number}") for number in range(missing)]


def _apply_policies(case: Case) -> Outcome:
    row = case["row"]
    asked = row["Request"]
    request = Request(
        event=asked.get("Event", ""),
        action=asked.get("Action", ""),
        job_uid=asked.get("JobUid", ""),
        task=asked.get("TaskName", ""),
        pod=asked.get("PodName", ""),
        partition=asked.get("PartitionID", ""),
        exit_code=asked.get("ExitCode", 0),
        version=asked.get("JobVersion", 0),
    )
    answer = policies.resolve(a_job(row["Job"]), request)
    return compare("action", str(answer.action), row["ReturnVal"]) or Passed()


def _append_condition(case: Case) -> Outcome:
    row = case["row"]
    listed = [part(found, volcano.JobCondition) for found in row["Conditions"] or []]
    after = statuses.with_condition(listed, part(row["NewCondition"], volcano.JobCondition))
    return (
        compare("conditions", len(after), row["ExpectedLen"])
        or compare("the last", after[-1].status, row["ExpectedPhase"])
        or Passed()
    )


# Pods


def _sync(case: Case) -> Outcome:
    row = case["row"]
    seen = seen_of(row["JobInfo"], {**row["Job"], "spec": _with_plugins(row)}, row["PodGroup"])
    found = plan(seen, [], NOW)
    load(seen.job)
    return compare("pods", len(seen.pods) + len(found.created) - len(found.ended), row["TotalNumPods"]) or Passed()


def _with_plugins(row: dict[str, Any]) -> dict[str, Any]:
    return {**(row["Job"].get("spec") or {}), "plugins": {name: [] for name in row.get("Plugins") or ()}}


def _kill(case: Case) -> Outcome:
    """Whole or targeted: which pods are left, and whether the group and the plugins' objects are."""
    row = case["row"]
    controlled = {f"plugin-{name}": name for name in row.get("Plugins") or ()}
    status = {**(row["Job"].get("status") or {}), "controlledResources": controlled}
    job = {**row["Job"], "spec": _with_plugins(row), "status": status}
    seen = seen_of(row["JobInfo"], job, row.get("PodGroup"))
    found = _killed(seen, row)
    if isinstance(found, Failed):
        return found
    ended = {member.name for member in found.ended}
    for name, is_left in (row.get("ExpectedPods") or {}).items():
        wrong = compare(f"pod {name} is left", name not in ended, is_left)
        if wrong is not None:
            return wrong
    removed = {
        (made.kind.name, made.document["metadata"]["name"])
        for plugin in load(seen.job).plugins
        if plugin.name in found.plugins_ended
        for made in plugin.objects(seen.job, KeyPair("", ""))
    }
    return _check_left(case, row, found, removed)


def _killed(seen: planning.Seen, row: dict[str, Any]) -> planning.Plan | Failed:
    target = row.get("Target") or {}
    action = _TARGETS.get(target.get("Type", ""))
    if action is None:
        kept = frozenset(row.get("PodRetainPhase") or {})
        step = states.Step(states.Scope.KILL, lambda _job, status: status, kept)
        return planning._kill(seen, known_of(seen), step, Decision(Action.RESTART_JOB), NOW)
    cause = Request(
        task=target.get("TaskName", ""), pod=target.get("PodName", ""), partition=str(target.get("PartitionName", ""))
    )
    known = known_of(seen)
    wanted = [member.name for member in killing.targets(known, action, cause) if not member.is_terminating]
    found = planning.execute(seen, known, Decision(action, cause), NOW)
    wrong = compare("targets", [member.name for member in found.ended], wanted)
    return wrong or found


def _check_left(case: Case, row: dict[str, Any], found: planning.Plan, removed: set[tuple[str, str]]) -> Outcome:
    for asserted in case.get("asserts") or ():
        expression = str((asserted.get("actual") or {}).get("$expr", ""))
        if not expression.endswith("#1") or ".Get(" not in expression:
            continue
        is_left = asserted["op"] == "=="
        if "PodGroups(" in expression:
            wrong = compare("the group is left", not found.is_group_deleted, is_left)
        elif "Services(" in expression and row.get("Services"):
            gone = all(("Service", service["metadata"]["name"]) in removed for service in row["Services"])
            wrong = compare("the services are left", not gone, is_left)
        else:
            continue
        if wrong is not None:
            return wrong
    return Passed()


def _depends(case: Case) -> Outcome:
    row = case["row"]
    job = a_job(row["Job"])
    pods = [a_pod(pod, job.metadata.name, _task_of(pod, job)) for pod in row.get("Pods") or ()]
    known = known_of(planning.Seen(job, pods))
    return compare("ready", dependencies.is_task_ready(job, row["Task"], known), row["ExpectedReady"]) or Passed()


def _task_of(pod: dict[str, Any], job: volcano.Job) -> str:
    name = pod["metadata"]["name"]
    return (
        next((task.name for task in job.spec.tasks if name.startswith(f"{job.metadata.name}-{task.name}-")), "") or ""
    )


def _partitioned(case: Case) -> Outcome:
    row = case["row"]
    task = {
        "name": row["expectedTask"],
        "replicas": row["index"] + 1,
        "partitionPolicy": {"partitionSize": row["partitionSize"]},
    }
    document = without_nulls({"metadata": {"name": "j", "namespace": "default"}, "spec": {"tasks": [task]}})
    (pod,) = making.make_pods(a_job(document), document, [NewPod(0, row["index"])])
    labels = pod["metadata"]["labels"]
    return (
        compare("partition", labels.get(names.PARTITION), row["expectedPart"])
        or compare("task", labels.get(names.TASK), row["expectedTask"])
        or Passed()
    )


def _pod_name(case: Case) -> Outcome:
    row = case["row"]
    return compare("name", names.pod_name(row["JobName"], row["TaskName"], row["Index"]), row["ReturnVal"]) or Passed()


# The group


def _group_made(case: Case) -> Outcome:
    row = case["row"]
    made = groups.document(a_job(row["Job"]), {})
    return compare("minTaskMember", made["spec"]["minTaskMember"], row["ExpectMinTaskMember"]) or Passed()


def _group_updated(case: Case) -> Outcome:
    row = case["row"]
    job = a_job(row["Job"])
    after = patching.merge(row["PodGroup"], groups.update(job, a_group(row["PodGroup"]), {}) or {})["spec"]
    return (
        compare("priorityClassName", after.get("priorityClassName"), job.spec.priority_class_name)
        or compare("minTaskMember", after.get("minTaskMember") or {}, row["ExpectMinTaskMember"] or {})
        or compare("minMember", after.get("minMember", 0), job.spec.min_available or 0)
        or Passed()
    )


def _sub_group(case: Case) -> Outcome:
    row = case["row"]
    task = part(row["TaskSpec"], volcano.TaskSpec)
    assert task.partition_policy is not None
    made = groups.sub_group_policy(task, task.partition_policy)
    return (
        compare("minSubGroups", made["minSubGroups"], row["ExpectedMinSubGroups"] or 0)
        or compare("subGroupSize", made["subGroupSize"], row["ExpectedSubGroupSize"] or 0)
        or compare("name", made["name"], task.name)
        or compare("labels", made["labelSelector"], {"matchLabels": {names.TASK: task.name}})
        or compare("keys", made["matchLabelKeys"], [names.PARTITION])
        or compare(
            "networkTopology", made.get("networkTopology"), row["TaskSpec"]["partitionPolicy"].get("networkTopology")
        )
        or Passed()
    )


def _group_event(case: Case) -> Outcome:
    row = case["row"]
    meta = {"name": "job1", "namespace": "default"}
    group = a_group({"metadata": meta, "status": {"conditions": row["pgConditions"]}})
    told = [f"{told.type} {told.reason} {told.message}" for told in planning._warnings(group)]
    return compare("event", told, [row["ExpectEvent"]] if row["ExpectEvent"] else []) or Passed()


def _minimum(case: Case) -> Outcome:
    """One test is of the whole formula; the other only of its part that takes each task's own minimum first, on rows
    that leave out what the webhook would have filled in."""
    row, is_filled = case["row"], case["test"] == "TestTaskPriority_CalcPGMin"
    tasks = row.get("TasksPriority") or (case.get("fixtures") or {})["job"]["spec"]["tasks"]
    minimums = row.get("TasksMinAvailable") or [task.get("minAvailable") for task in tasks]
    parts = [
        minimum.Part(
            minimum.usage(part(task, volcano.TaskSpec).template.spec),
            task.get("replicas", 0),
            task.get("replicas", 0) if is_filled and least is None else least,
            task.get("priority", 0),
        )
        for task, least in zip(tasks, minimums, strict=True)
    ]
    if is_filled:
        found = minimum.minimums_first(parts, row["JobMinMember"] or sum(part.minimum or 0 for part in parts))
    else:
        found = minimum.total(parts, row["JobMinMember"])
    return compare("least", _amounts(found), _amounts(row["ExpectValue"] or {})) or Passed()


def _amounts(listed: Any) -> dict[str, int]:
    return {
        name: (quantity.parse(amount) if isinstance(amount, str) else amount).nano for name, amount in listed.items()
    }


def _is_first(case: Case) -> Outcome:
    """Of two tasks, the one whose pods count first."""
    row = case["row"]
    one, other = (row["TasksPriority"][row[f"Task{number}Index"]].get("priority", 0) for number in (1, 2))
    amounts = [{"one": quantity.from_units(1)}, {"other": quantity.from_units(1)}]
    parts = [minimum.Part(amounts[1], 1, 1, other), minimum.Part(amounts[0], 1, 1, one)]
    return compare("first", list(minimum.total(parts, 1)) == ["one"], row["ReturnVal"]) or Passed()


# What the controller hears


def _keeper() -> _Keeper:
    clock = SystemClock()

    async def no_key() -> KeyPair:
        return KeyPair("", "")

    return _Keeper(EmbeddedStore.in_memory(clock=clock), clock, no_key)


def _heard(keeper: _Keeper, kind: str, change: Change, document: dict[str, Any], revision: int) -> None:
    found = without_nulls(settled(document))
    found["metadata"] = {**found["metadata"], "resourceVersion": str(revision)}
    informer = {"job": keeper._jobs, "pod": keeper._pods}[kind]
    event = Event(change, Object(informer.selection.kind, raw.encode(found)), Revision(revision))
    copy = informer._copy
    copy._followers.setdefault(informer)  # nothing runs here: it hears what the copy is told
    copy._take(event)


def _job_added(case: Case) -> Outcome:
    async def run() -> Outcome:
        keeper = _keeper()
        _heard(keeper, "job", Change.ADDED, case["row"]["job"], 1)
        return compare("waiting", keeper._reconciler.queue.depth, case["row"]["ExpectValue"]) or Passed()

    return asyncio.run(run())


def _job_updated(case: Case) -> Outcome:
    async def run() -> Outcome:
        keeper, row = _keeper(), case["row"]
        for document in (row["oldJob"], row["newJob"]):
            _heard(keeper, "job", Change.MODIFIED, document, int(document["metadata"]["resourceVersion"]))
        (job,) = keeper._jobs.items()
        return compare("phase", job.read(volcano.Job).status.state.phase, case["expectPhase"]) or Passed()

    return asyncio.run(run())


def _pods_changed(case: Case) -> Outcome:
    """Pods that are added, updated or deleted, and what is known of them then."""
    row = case["row"]
    steps = [(Change.ADDED, pod) for pod in row.get("pods") or row.get("availablePods") or ()]
    steps += [(Change.MODIFIED, row[name]) for name in ("oldPod", "newPod") if name in row]
    steps += [(Change.DELETED, row["deletePod"])] if "deletePod" in row else []

    async def run() -> Outcome:
        keeper = _keeper()
        _heard(keeper, "job", Change.ADDED, row["Job"], 1)
        job = row["Job"]["metadata"]["name"]
        for number, (change, pod) in enumerate(steps):
            meta = {**pod["metadata"], "annotations": row["Annotation"]}
            meta["ownerReferences"] = [{**owner, "name": job, "uid": "u"} for owner in meta["ownerReferences"]]
            _heard(keeper, "pod", change, {**pod, "metadata": meta}, number + 2)
        found = keeper._pods.by_index("job", str(Key("test", job)))
        if isinstance(row["ExpectedValue"], str):
            phases = [pod.read(core.Pod).status.phase for pod in found]
            return compare("phases", phases, [row["ExpectedValue"]]) or Passed()
        return compare("pods", len(found), row["ExpectedValue"]) or Passed()

    return asyncio.run(run())


def _command_added(case: Case) -> Outcome:
    row = case["row"]
    if not isinstance(row["command"], dict):
        return NotApplicable(GO_TYPES)

    async def run() -> Outcome:
        clock = SystemClock()
        store = EmbeddedStore.in_memory(clock=clock)
        commands = Commands(store, clock, DEFAULT_OPTIONS, lambda *_: False)
        found = Object(volcano.COMMAND, raw.encode(without_nulls(settled(row["command"]))))
        commands._heard(Event(Change.ADDED, found, Revision(1)))
        return compare("waiting", commands.reconciler.queue.depth, row["ExpectValue"]) or Passed()

    return asyncio.run(run())


def _plugins(case: Case) -> Outcome:
    row = case["row"]
    document = {**row["Job"], "spec": _with_plugins(row)}
    job = a_job(document)
    error = ""
    try:
        for plugin in load(job).plugins:
            if "Pod" in row:
                plugin.change_pod(without_nulls(row["Pod"]), job)
            plugin.objects(job, KeyPair("private", "public"))
    except UnknownPlugin as raised:
        error = str(raised)
    return compare("error", error, (row["RetVal"] or {}).get("$error", "")) or Passed()


def _claims(case: Case) -> Outcome:
    row = case["row"]
    volume = {"mountPath": "/data", "volumeClaimName": "pvc1", "volumeClaim": row["VolumeClaim"]}
    job = a_job({**row["Job"], "spec": {"volumes": [volume]}})
    (made,) = claiming.wanted(job, {})
    meta = made["metadata"]
    found = (meta["namespace"], meta["name"], made["spec"])
    return compare("claim", found, (job.metadata.namespace, "pvc1", row["VolumeClaim"])) or Passed()


def _swap(_case: Case) -> Outcome:
    return NotApplicable(GO_SORTING)


_TESTS: dict[str, Callable[[Case], Outcome]] = {
    "TestKillJobFunc": _kill,
    "TestPodsToKill": _kill,
    "TestKillPodsPodGroupDeletion": _kill,
    "TestSyncJobFunc": _sync,
    "TestCreatePVCFunc": _claims,
    "TestCreatePodGroupIfNotExistFunc": _group_made,
    "TestUpdatePodGroupIfJobUpdateFunc": _group_updated,
    "TestRecordPodGroupEvent": _group_event,
    "TestGetSubGroupPolicy": _sub_group,
    "TestAppendJobCondition": _append_condition,
    "TestIsDependsOnPodsReady": _depends,
    "TestAddCommandFunc": _command_added,
    "TestJobAddFunc": _job_added,
    "TestUpdateJobFunc": _job_updated,
    "TestAddPodFunc": _pods_changed,
    "TestUpdatePodFunc": _pods_changed,
    "TestDeletePodFunc": _pods_changed,
    "TestPluginOnPodCreate": _plugins,
    "TestPluginOnJobAdd": _plugins,
    "TestPluginOnJobDelete": _plugins,
    "TestMakePodName": _pod_name,
    "TestCreatePodWithPartitionPolicy": _partitioned,
    "TestApplyPolicies": _apply_policies,
    "TestTasksPriority_Less": _is_first,
    "TestTasksPriority_Swap": _swap,
    "TestTaskPriority_CalcPGMin": _minimum,
    "TestCalcPGMinResources": _minimum,
}


def _job_controller(case: Case) -> Outcome:
    test = case["test"]
    if test.endswith("State_Execute"):
        return _execute(case)
    return _TESTS[test](case) if test in _TESTS else Failed(f"no adapter for {test}")


# The end


def _garbage(case: Case) -> Outcome:
    row = case["row"]
    job = a_job(row["Job"])
    error = (row.get("ExpectedErr") or {}).get("$error", "") if isinstance(row.get("ExpectedErr"), dict) else ""
    match case["test"].removeprefix("TestGarbageCollector_"):
        case "ProcessTTL":
            return compare("expired", plan(planning.Seen(job), [], NOW).is_expired, row["ExpectedVal"]) or Passed()
        case "NeedsCleanup":
            return compare("cleaned up", expiring.is_cleaned_up(job), row["ExpectedVal"]) or Passed()
        case "IsJobFinished":
            return compare("over", states.is_over(job), row["ExpectedVal"]) or Passed()
        case "GetFinishAndExpireTime":
            return compare("known", expiring.finish_time(job) is not None, not error) or Passed()
        case "TimeLeft":
            left = expiring.time_left(job, timestamps.parse(settled(row["Time"])))
            return compare("left", left, None if error else row["ExpectedVal"]) or Passed()
        case "JobFinishTime":
            failed = isinstance(row["ExpectedVal"], dict) and "$error" in row["ExpectedVal"]
            return compare("known", expiring.finish_time(job) is not None, not failed) or Passed()
        case other:
            return Failed(f"no adapter for {other}")


ADAPTERS: Adapters = {"job_controller": _job_controller, "garbagecollector": _garbage}
