"""What a job wants done when something happens: its lifecycle policies, those of the task first."""

from collections.abc import Iterable
from dataclasses import dataclass

from muster.api import volcano
from muster.api.meta import Instant
from muster.api.objects import Key
from muster.api.volcano import durations
from muster.api.volcano.durations import BadDuration
from muster.jobs.volcano import names
from muster.jobs.volcano.vocabulary import Action, Happening, action_of

_PLAIN = frozenset({Happening.OUT_OF_SYNC, Happening.COMMAND_ISSUED, Happening.POD_RUNNING})
"""Never looked up: they only say that there is something to look at."""


_EVER = Instant(0.0)


@dataclass(frozen=True, slots=True)
class Request:
    """Something that happened, to one of the job's pods unless `pod` is empty; or a command, then with an action."""

    event: str = ""
    action: str = ""
    command: Key | None = None
    """The command itself."""
    job_uid: str = ""
    task: str = ""
    pod: str = ""
    partition: str = ""
    exit_code: int = 0
    version: int = 0
    """The job's version that the pod belongs to."""
    at: Instant = _EVER


@dataclass(frozen=True, slots=True)
class Answer:
    """What to do, and how many seconds after it happened."""

    action: Action = Action.SYNC_JOB
    delay: float = 0.0


_NOTHING_SPECIAL = Answer()


def resolve(job: volcano.Job, request: Request) -> Answer:
    if request.action:
        return Answer(action_of(request.action))
    if request.event in _PLAIN:
        return _NOTHING_SPECIAL
    if request.job_uid and request.job_uid != job.metadata.uid:
        return _NOTHING_SPECIAL
    if request.version < (job.status.version or 0):
        return _NOTHING_SPECIAL  # of pods that were given up already
    for task in job.spec.tasks:
        if request.task and names.task_name(task) == request.task:
            answer = _first(task.policies, request)
            if answer is not None:
                return answer
    return _first(job.spec.policies, request) or _NOTHING_SPECIAL


def has_any(job: volcano.Job) -> bool:
    return bool(job.spec.policies) or any(task.policies for task in job.spec.tasks)


def _first(policies: Iterable[volcano.LifecyclePolicy], request: Request) -> Answer | None:
    for policy in policies:
        if _matches(policy, request):
            return Answer(action_of(policy.action), _seconds(policy.timeout))
    return None


def _matches(policy: volcano.LifecyclePolicy, request: Request) -> bool:
    wanted = {*policy.events, *([policy.event] if policy.event else [])}
    is_wanted = bool(request.event) and (request.event in wanted or Happening.ANY in wanted)
    # Every pod is pending at first: only for how long can be a reason to act.
    if is_wanted and (request.event != Happening.POD_PENDING or policy.timeout is not None):
        return True
    return policy.exit_code is not None and policy.exit_code == request.exit_code


def _seconds(timeout: str | None) -> float:
    try:
        return durations.parse(timeout) if timeout else 0.0
    except BadDuration:
        return 0.0  # refused where it was written; a job that was stored before that acts at once
