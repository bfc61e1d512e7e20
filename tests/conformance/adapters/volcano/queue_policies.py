"""Single questions about queues: who may be let in, how far a queue is served, who gets what in the end."""

from collections import Counter
from typing import Any

from muster.api import raw
from muster.quota.shares import part_served
from tests.conformance.adapters.volcano import limits, queue_sessions
from tests.conformance.adapters.volcano.queue_sessions import QueueSession
from tests.conformance.adapters.volcano.quota_worlds import QuotaWorld, key_of
from tests.conformance.cases import Adapters, Case, NotApplicable, Outcome, Passed, compare


def _is_let_in(case: Case) -> Outcome:
    """Each group is counted first, and then it is asked whether there is room for it once more."""
    if case.get("resourceQuotas"):
        return NotApplicable(limits.NAMESPACE_QUOTAS)
    if case.get("checks"):
        return queue_sessions.run(case)
    twins = [twin for group in case["podGroups"] for twin in (group, _twin(group))]
    world = QuotaWorld(case | {"podGroups": twins})
    admitted = {part.job for part in world.decide().admitted}
    found = all(key_of(_twin(group)) in admitted for group in case["podGroups"])
    return compare("let in", found, case["row"]["expectedEnqueueAble"]) or Passed()


def _twin(group: dict[str, Any]) -> dict[str, Any]:
    copied: dict[str, Any] = raw.copy(group)
    copied["metadata"]["name"] += "-again"
    copied["status"] = {"phase": "Pending"}
    return copied


def _shared(case: Case) -> Outcome:
    """What each job has once all that fits is bound."""
    if limits.shares_queue_by_job(case):
        return NotApplicable(limits.JOB_BY_JOB)
    session = QueueSession(case, is_fair=True)
    jobs = {pod: job.partition("/")[2] for pod, job in session.world.jobs.items()}
    found = Counter(jobs[pod] for pod in session.binds)
    wanted = {job: amounts["ScalarResources"]["pods"] for job, amounts in case["row"]["expected"].items()}
    return compare("pods", dict(found), wanted) or Passed()


def _capacity(case: Case) -> Outcome:
    if case["test"] != "Test_updateQueueAttrShare":
        return queue_sessions.run(case)
    row = case["row"]
    allocated, deserved, request = (_amounts(row[field]) for field in ("allocated", "deserved", "request"))
    found = part_served(allocated, deserved, is_wanting=any(request.values()))
    return compare("share", found, row["wantShare"]) or Passed()


def _amounts(resource: dict[str, Any]) -> dict[str, int]:
    """Volcano's own type for amounts has a field for cpu and one for memory."""
    named = {"cpu": resource.get("MilliCPU"), "memory": resource.get("Memory")}
    named |= resource.get("ScalarResources") or {}
    return {name: int(amount) for name, amount in named.items() if amount is not None}


def _proportion(case: Case) -> Outcome:
    return NotApplicable(limits.UNCOMPARED) if case["kind"] == "table" else queue_sessions.run(case)


ADAPTERS: Adapters = {
    "capacity": _capacity,
    "drf": _shared,
    "overcommit": _is_let_in,
    "proportion": _proportion,
    "resourcequota": _is_let_in,
}
