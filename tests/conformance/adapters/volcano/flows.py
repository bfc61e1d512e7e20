"""Flows of jobs: their status, what is made from templates, and who belongs to whom."""

import re
from collections.abc import Callable
from typing import Any

from muster.api import raw, timestamps, volcano
from muster.api.kinds import Kind
from muster.api.meta import Instant
from muster.api.objects import Key, Object, view_of
from muster.api.raw import Document
from muster.api.volcano import durations
from muster.jobs import flow as flows
from muster.jobs.flow import status
from muster.jobs.flow.states import Counts, step
from muster.runtime.clock import VirtualClock, run_virtual
from muster.runtime.workqueue import WorkQueue
from tests.conformance.cases import Adapters, Case, Outcome, Passed, compare

_NOW = Instant(1_700_000_000.0)
_TIMES = re.compile(r".*Timestamp|createTime")


def _view(kind: Kind, document: Document) -> Any:
    return view_of(kind, _timed(document))


def _timed(value: Any) -> Any:
    """With times relative to a fixed now."""
    if isinstance(value, dict):
        if "$relativeToNow" in value:
            return timestamps.to_text(Instant(_NOW + durations.parse(value["$relativeToNow"])))
        return {name: _timed(item) for name, item in value.items()}
    return [_timed(item) for item in value] if isinstance(value, list) else value


def _timeless(value: Any) -> Any:
    """Without times: those of the Go test are those of its run."""
    if isinstance(value, dict):
        return {name: _timeless(item) for name, item in value.items() if not _TIMES.fullmatch(name)}
    return [_timeless(item) for item in value] if isinstance(value, list) else value


def _synced(case: Case) -> Outcome:
    args = case["row"]["args"]
    flow = _view(volcano.JOB_FLOW, args["jobFlow"])
    jobs = {}
    for name in flow.spec.flows:
        job = flows.job_name(flow.metadata.name, name.name)
        metadata = {"name": job, "namespace": flow.metadata.namespace}
        jobs[job] = _view(
            volcano.JOB, {"metadata": metadata, "status": {"state": {"phase": args.get("vcjobStatus", "")}}}
        )
    found = flows.status_of(flow, jobs, {}, _NOW)
    return compare("status", _timeless(found), _timeless(case["row"]["want"]["jobFlowStatus"])) or Passed()


def _histories(case: Case) -> Outcome:
    row = case["row"]
    known = _view(volcano.JOB_FLOW, {"status": {"jobStatusList": row["args"]["jobStatusList"]}}).status.job_status_list
    job = _view(volcano.JOB, row["args"]["job"])
    entry = next((entry for entry in known if entry.name == job.metadata.name), None)
    found = status.running_histories(entry, job, timestamps.to_text(_NOW))
    return compare("histories", list(found), _timed(row["want"])) or Passed()


def _own_jobs(case: Case) -> Outcome:
    row = case["row"]
    flow = _view(volcano.JOB_FLOW, row["jobFlow"])
    jobs = [_view(volcano.JOB, job) for job in row["allJobList"]]
    own = sorted(job.metadata.name for job in jobs if flows.belongs(job.metadata, flow.metadata))
    return compare("own jobs", own, sorted(row["wantJobsName"])) or Passed()


def _loaded(case: Case) -> Outcome:
    row = case["row"]
    args, want = row["args"], row["want"]
    made = flows.make_job(args["jobFlow"], {"name": args["flowName"]}, args["jobTemplate"])["metadata"]
    owners = [{name: value for name, value in owner.items() if value != ""} for owner in made["ownerReferences"]]
    return (
        compare("name", made["name"], args["jobName"])
        or compare("owners", owners, want["OwnerReference"])
        or compare("annotations", made["annotations"], want["Annotations"])
        or compare("labels", made["labels"], want["Labels"])
        or Passed()
    )


def _deployed(case: Case) -> Outcome:
    args = case["row"]["args"]
    flow = _view(volcano.JOB_FLOW, args["jobFlow"])
    templates = {template["metadata"]["name"]: template for template in args["jobTemplateList"]}
    due = flows.due(flow, {}, templates, {})
    free = [entry.name for entry in flow.spec.flows if not entry.depends_on or not entry.depends_on.targets]
    made = [flows.make_job(args["jobFlow"], {"name": name}, templates[name]) for name in due.steps]
    is_failed = bool(due.problems)
    names = [job["metadata"]["name"] for job in made]
    return (
        compare("made", names, [flows.job_name(flow.metadata.name, name) for name in free if name in templates])
        or compare("failed", is_failed, case["row"]["want"] is not None)
        or Passed()
    )


def _deleted(case: Case) -> Outcome:
    """Those of the flow, once it is done and keeps none."""
    args = case["row"]["args"]
    document = raw.copy(args["jobFlow"])
    document["spec"]["jobRetainPolicy"] = "delete"
    document["status"] = {"state": {"phase": "Succeed"}}
    flow = _view(volcano.JOB_FLOW, document)
    jobs = [_view(volcano.JOB, job) for job in args["jobList"]]
    own = {job.metadata.name: job for job in jobs if flows.belongs(job.metadata, flow.metadata)}
    return compare("deleted", list(flows.due(flow, own, (), {}).removed), sorted(own)) or Passed()


def _queued(*keys: Key) -> int:
    async def count(clock: VirtualClock) -> int:
        queue: WorkQueue[Key] = WorkQueue(clock)
        for key in keys:
            queue.add(key)
        return queue.depth

    return run_virtual(count)


def _key(document: Document) -> Key:
    return Key(document["metadata"].get("namespace", ""), document["metadata"]["name"])


def _added(case: Case) -> Outcome:
    row = case["row"]
    return compare("queued", _queued(_key(row["jobFlow"])), row["ExpectValue"]) or Passed()


def _flow_changed(case: Case) -> Outcome:
    row = case["row"]
    return compare("queued", _queued(_key(row["oldJobFlow"]), _key(row["newJobFlow"])), row["ExpectValue"]) or Passed()


def _job_changed(case: Case) -> Outcome:
    row = case["row"]
    flow = case["fixtures"]["jobFlow"]
    owner = {"apiVersion": "flow.volcano.sh/v1alpha1", "kind": "JobFlow", "name": flow["metadata"]["name"]}
    keys = []
    for document in (row["oldJob"], row["newJob"]):
        owned = {"metadata": {**document["metadata"], "ownerReferences": [owner]}}
        job = Object(volcano.JOB, raw.encode(owned))
        name = flows.flow_of(job.meta)
        keys += [Key(job.key.namespace, name)] if name else []
    return compare("queued", _queued(*keys), row["ExpectValue"]) or Passed()


def _enqueued(case: Case) -> Outcome:
    row = case["row"]
    keys = [
        Key(request.get("Namespace", ""), request.get("JobFlowName", "")) for request in (row["oldReq"], row["newReq"])
    ]
    return compare("queued", _queued(*keys), row["ExpectValue"]) or Passed()


def _connection(case: Case) -> Outcome:
    args = case["row"]["args"]
    return (
        compare("connection", flows.connection(args.get("namespace", ""), args.get("name", "")), case["row"]["want"])
        or Passed()
    )


def _flow_of(case: Case) -> Outcome:
    row = case["row"]
    job = _view(volcano.JOB, row["args"]["job"])
    return compare("flow", flows.flow_of(job.metadata) or "", row["want"]) or Passed()


def _stepped(case: Case) -> Outcome:
    row = case["row"]
    said = row["status"]
    counts = Counts(
        row["flows"],
        len(said.get("runningJobs", ())),
        len(said.get("completedJobs", ())),
        len(said.get("failedJobs", ())) + len(said.get("terminatedJobs", ())),
    )
    return compare("phase", str(step(said["state"]["phase"], counts)), row["want"]) or Passed()


_TESTS: dict[str, Callable[[Case], Outcome]] = {
    "TestSyncJobFlowFunc": _synced,
    "TestGetRunningHistoriesFunc": _histories,
    "TestGetAllJobsCreatedByJobFlow": _own_jobs,
    "TestLoadJobTemplateAndSetJobFunc": _loaded,
    "TestDeployJobFunc": _deployed,
    "TestDeleteAllJobsCreateByJobFlowFunc": _deleted,
    "TestAddJobFlowFunc": _added,
    "TestUpdateJobFlowFunc": _flow_changed,
    "TestUpdateJobFunc": _job_changed,
    "TestEnqueueJobFlow": _enqueued,
    "TestGetConnectionOfJobAndJobTemplate": _connection,
    "TestGetJobFlowNameByJob": _flow_of,
    "TestRunningStateExecute": _stepped,
}


def _run(case: Case) -> Outcome:
    return _TESTS[case["test"]](case)


ADAPTERS: Adapters = {"jobflow": _run}
