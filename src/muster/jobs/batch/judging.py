"""Whether a job is decided: it has failed or succeeded for good, and why. Reasons and messages are Kubernetes'."""

from dataclasses import dataclass
from typing import Literal

from muster.api import batch, conditions, timestamps
from muster.api.meta import Instant
from muster.jobs.batch import failures, indexes, members, standing
from muster.jobs.batch.standing import Standing


@dataclass(frozen=True, slots=True)
class Verdict:
    """Final: from now on the job's pods are ended, and what is left to count is counted."""

    target: Literal["SuccessCriteriaMet", "FailureTarget"]
    reason: str
    message: str

    @property
    def is_success(self) -> bool:
        return self.target == "SuccessCriteriaMet"


COMPLETED = Verdict("SuccessCriteriaMet", "CompletionsReached", "Reached expected number of succeeded pods")


def judge(found: Standing, now: Instant) -> Verdict | None:
    """The verdict once given, or the one that the pods and the time call for. Not the plain case that all pods which
    were wanted have succeeded: for that the others must be gone."""
    job = found.job
    for target in ("SuccessCriteriaMet", "FailureTarget"):
        given = conditions.find(job.status.conditions, target)
        if given is not None and given.status == conditions.TRUE:
            return Verdict(target, given.reason or "", given.message or "")
    if job.spec.pod_failure_policy is not None:
        for member in found.failed_pods.values():
            judgement = failures.judge(job.spec.pod_failure_policy, member)
            if judgement.message:
                return _failure("PodFailurePolicy", judgement.message)
    if found.failed > (job.spec.backoff_limit or 0) or _restarts_too_often(found):
        return _failure("BackoffLimitExceeded", "Job has reached the specified backoff limit")
    left = deadline_left(job, now)
    if left is not None and left <= 0:
        return _failure("DeadlineExceeded", "Job was active longer than specified deadline")
    return _judge_indexes(found) if standing.is_indexed(job) else None


def deadline_left(job: batch.Job, now: Instant) -> float | None:
    """Seconds; None where no deadline runs."""
    seconds, start = job.spec.active_deadline_seconds, job.status.start_time
    if seconds is None or job.spec.suspend:
        return None
    return (timestamps.parse(start) if start else now) + seconds - now


def is_complete(found: Standing, active: int) -> bool:
    """Whether enough pods have succeeded. Where nobody said how many, the first success means that all is done."""
    if active:
        return False
    completions = found.job.spec.completions
    return found.succeeded > 0 if completions is None else found.succeeded >= completions


def _failure(reason: str, message: str) -> Verdict:
    return Verdict("FailureTarget", reason, message)


def _restarts_too_often(found: Standing) -> bool:
    """Where containers are restarted in place, it is their restarts that the limit is about."""
    spec = found.job.spec
    if spec.template.spec.restart_policy != "OnFailure":
        return False
    count = sum(members.restarts(member) for member in found.members if member.phase in ("Pending", "Running"))
    return count >= max(1, spec.backoff_limit or 0)


def _judge_indexes(found: Standing) -> Verdict | None:
    spec = found.job.spec
    failed = len(found.failed_indexes)
    if spec.max_failed_indexes is not None and failed > spec.max_failed_indexes:
        message = "Job has exceeded the specified maximal number of failed indexes"
        return _failure("MaxFailedIndexesExceeded", message)
    if failed and failed + len(found.completed) >= (spec.completions or 0):
        return _failure("FailedIndexes", "Job has failed indexes")
    for number, rule in enumerate(spec.success_policy.rules if spec.success_policy is not None else ()):
        if _is_met(rule, found):
            return Verdict("SuccessCriteriaMet", "SuccessPolicy", f"Matched rules at index {number}")
    return None


def _is_met(rule: batch.SuccessPolicyRule, found: Standing) -> bool:
    completed = found.completed
    if rule.succeeded_indexes is None:
        return len(completed) >= (rule.succeeded_count or 0)
    wanted = indexes.parse(rule.succeeded_indexes, found.job.spec.completions or 0)
    needed = len(wanted) if rule.succeeded_count is None else rule.succeeded_count
    return len(wanted & completed) >= needed
