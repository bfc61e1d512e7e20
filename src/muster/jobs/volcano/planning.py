"""The decision of the job controller, complete: from a job and all that belongs to it to everything to be done.

Whatever was done of an earlier plan, and whatever was not, the next plan starts from what is there. What it asks for is
order: where pods end, the status is written first. It says which version of the pods is over, so that somebody who is
interrupted finds the rest of them; and the pod that caused it goes last, so that it calls for the same again.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as changed
from typing import Literal

from msgspec.structs import replace

from muster.api import core, volcano
from muster.api.meta import Instant
from muster.api.raw import Document
from muster.api.volcano.waiting import OBSTACLES
from muster.jobs.volcano import (
    claiming,
    deciding,
    expiring,
    groups,
    holding,
    killing,
    members,
    noticing,
    states,
    syncing,
)
from muster.jobs.volcano import status as statuses
from muster.jobs.volcano.deciding import Decision
from muster.jobs.volcano.members import Known, Member
from muster.jobs.volcano.policies import Request
from muster.jobs.volcano.states import NOBODY, Scope, Step
from muster.jobs.volcano.status import Tally
from muster.jobs.volcano.syncing import NewPod, Work
from muster.jobs.volcano.vocabulary import OVER, Action, Phase, phase_of

_PLUGIN = "plugin-"


@dataclass(frozen=True, slots=True)
class Told:
    """An event about the job."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Seen:
    """A job and what belongs to it."""

    job: volcano.Job
    pods: Sequence[core.Pod] = ()
    group: volcano.PodGroup | None = None
    priorities: Mapping[str, int] = field(default_factory=dict)
    """Of the PriorityClasses, by name."""
    obstacle: "Told | None" = None
    """Why the job cannot begin: its queue is missing or closed, say, or a plugin is not known."""
    is_forwarded: bool = False
    """Its queue sends jobs on to other clusters, which read it off the pods."""


@dataclass(frozen=True, slots=True)
class Plan:
    status: Document | None = None
    """What to merge into the job's status; None: it is as it should be."""
    is_status_first: bool = False
    """Or else last, and only if everything else was done."""
    created: Sequence[NewPod] = ()
    ended: Sequence[Member] = ()
    """To delete, in this order."""
    is_marked: bool = False
    """They are to be marked as out of sync before: nothing else says that they were not evicted."""
    group_created: Document | None = None
    group_changed: Document | None = None
    is_group_deleted: bool = False
    claims_created: Sequence[Document] = ()
    plugins_begun: Collection[str] = ()
    """Plugins whose objects are to be made."""
    plugins_ended: Collection[str] = ()
    """Plugins whose objects are to be removed, before `status_after` says that there are none."""
    status_after: Document | None = None
    handled: Sequence[Request] = ()
    told: Sequence[Told] = ()
    is_expired: bool = False
    """The job is over, and its time to live as well: to be deleted with all that belongs to it."""
    again_after: float | None = None
    """Seconds after which time alone may call for more."""


def plan(seen: Seen, requests: Sequence[Request], now: Instant) -> Plan:
    """`requests`: what happened and leaves no trace (pods that are gone, commands), oldest first."""
    job = seen.job
    if job.metadata.deletion_timestamp is not None:
        return Plan(handled=requests)
    known = members.by_task(members.read(pod) for pod in seen.pods)
    if phase_of(job.status.state.phase) in OVER:
        return _after_the_end(seen, known, requests, now)
    decision = deciding.decide(job, known, requests, noticing.notice(job, known, seen.group), now)
    return execute(seen, known, decision, now)


def execute(seen: Seen, known: Known, decision: Decision, now: Instant) -> Plan:
    """What the job's phase answers to the action."""
    step = states.respond(phase_of(seen.job.status.state.phase), decision.action)
    if step.scope is Scope.SYNC:
        return _sync(seen, known, step, decision, now)
    if step.scope is Scope.KILL:
        return _kill(seen, known, step, decision, now)
    return _kill_targets(seen, known, step, decision, now)


# Looking after the pods


def _sync(seen: Seen, known: Known, step: Step, decision: Decision, now: Instant) -> Plan:
    job = seen.job
    before = statuses.initiated(job, now)
    is_held, is_let_in = holding.is_held(job), groups.is_admitted(seen.group)
    if seen.obstacle is not None and not is_let_in and not is_held:
        return _wait(job, before, seen.obstacle, decision)
    heard = holding.heard(job, before)
    if heard != before and is_let_in and not is_held:
        # Written down before a pod is made: one that is not counted yet could not be known of by who takes it back.
        status = statuses.difference(job.status, heard)
        return Plan(status, is_status_first=True, handled=decision.handled, again_after=decision.again_after)
    recorded = before.controlled_resources or {}
    begun: Sequence[str] = ()
    claims: Sequence[Document] = ()
    if not is_held:
        begun = [name for name in sorted(job.spec.plugins or {}) if f"{_PLUGIN}{name}" not in recorded]
        claims = list(claiming.wanted(job, recorded))
        resources = {**(heard.controlled_resources or {}), **_plugins(job), **claiming.records(job)}
        heard = replace(heard, controlled_resources=resources or None)
    left_over = _left_over(job, known)
    if is_held or is_let_in:
        work = syncing.work(job, known, {member.name for member in left_over}, holding.sizes(job))
        counted = work.tally.onto(replace(heard, min_available=job.spec.min_available, running_duration=None))
    else:
        work = Work(removed=left_over)
        counted = _with_terminating(heard, known)
    # Not on before the last of the old pods is on its way out, or nobody would know that it should be.
    after = counted if left_over else _next_phase(seen, step, counted)
    if after != before:
        after = statuses.stamped(after, now)
    return Plan(
        statuses.difference(job.status, after),
        created=work.created,
        ended=work.removed,
        is_marked=True,
        group_created=groups.document(job, seen.priorities) if seen.group is None else None,
        group_changed=_group_change(seen),
        claims_created=claims,
        plugins_begun=begun,
        handled=decision.handled,
        told=[seen.obstacle] if is_held and seen.obstacle is not None else _warnings(seen.group),
        again_after=decision.again_after,
    )


def _next_phase(seen: Seen, step: Step, counted: volcano.JobStatus) -> volcano.JobStatus:
    job = seen.job
    before = job.status.state
    after = step.judge(job, counted) if not holding.is_held(job) else holding.judge(job, step, counted)
    if holding.is_held(job) and phase_of(after.state.phase) is Phase.PENDING:
        return after if seen.obstacle is None else _obstructed(after, seen.obstacle)
    if after.state.phase != before.phase or before.reason in OBSTACLES:
        after = replace(after, state=replace(after.state, reason=None, message=None))
    return after


def _plugins(job: volcano.Job) -> dict[str, str]:
    """What is kept for the job when the objects of all its plugins are."""
    return {f"{_PLUGIN}{name}": name for name in sorted(job.spec.plugins or {})}


def _wait(job: volcano.Job, before: volcano.JobStatus, obstacle: Told, decision: Decision) -> Plan:
    status = statuses.difference(job.status, _obstructed(before, obstacle))
    return Plan(status, handled=decision.handled, told=[obstacle], again_after=decision.again_after)


def _obstructed(status: volcano.JobStatus, obstacle: Told) -> volcano.JobStatus:
    return replace(status, state=replace(status.state, reason=obstacle.reason, message=obstacle.message))


def _group_change(seen: Seen) -> Document | None:
    if seen.group is None or seen.group.metadata.deletion_timestamp is not None:
        return None
    return groups.update(seen.job, seen.group, seen.priorities)


def _with_terminating(status: volcano.JobStatus, known: Known) -> volcano.JobStatus:
    """Nothing is counted anew while no pods may be made; only that the old ones have gone must not be missed."""
    if phase_of(status.state.phase) is not Phase.RESTARTING:
        return status
    going = sum(member.is_terminating for member in members.listed(known))
    return replace(status, terminating=min(going, status.terminating or 0) or None)


def _left_over(job: volcano.Job, known: Known) -> Sequence[Member]:
    """Pods that an earlier decision has ended, by somebody who did not get to the last of them."""
    state = job.status.state
    is_hard = phase_of(state.phase) is Phase.RESTARTING and state.reason == Action.RESTART_JOB
    is_last = (job.status.retry_count or 0) >= (job.spec.max_retry or 0)
    kept = NOBODY if is_hard and not is_last else members.FINISHED
    return killing.left_over(known, job.status.version or 0, kept)


def _warnings(group: volcano.PodGroup | None) -> Sequence[Told]:
    message = group_warning(group) if group is not None else None
    return [Told("Warning", "PodGroupPending", message)] if message else []


def group_warning(group: volcano.PodGroup) -> str | None:
    """What keeps the group from being scheduled, if that is the last that was heard of it."""
    true = [condition for condition in group.status.conditions if condition.status == "True"]
    if not true:
        return None
    last = max(true, key=lambda condition: condition.last_transition_time or "")
    if last.type == "Scheduled":
        return None
    where = f"{group.metadata.namespace}:{group.metadata.name}"
    return f"PodGroup {where} {last.type.lower()}, reason: {last.message or ''}"


# Ending pods


def _kill(seen: Seen, known: Known, step: Step, decision: Decision, now: Instant) -> Plan:
    job = seen.job
    doomed = killing.all_of(job, known, step)
    tally = Tally()
    tally.add_members(doomed.left)
    tally.terminating += len(doomed.ended)
    is_news = bool(doomed.ended) or decision.action is not Action.SYNC_JOB
    version = (job.status.version or 0) + 1 if is_news else job.status.version
    before = replace(statuses.initiated(job, now), version=version or None)
    after = _judged(job, step, tally.onto(before), decision, now)
    controlled: list[str] = []
    # A job that begins again goes on with what its plugins have: the same hosts, the same keys.
    if phase_of(after.state.phase) is not Phase.RESTARTING:
        after = holding.forgotten(after)
        if is_news:
            # Also those that were made by somebody who did not get to write it down.
            after = replace(after, controlled_resources={**(after.controlled_resources or {}), **_plugins(job)} or None)
        controlled = [key for key in after.controlled_resources or {} if key.startswith(_PLUGIN)]
    return Plan(
        statuses.difference(job.status, after),
        is_status_first=True,
        ended=doomed.ended,
        is_group_deleted=_is_there(seen.group),
        plugins_ended=[key.removeprefix(_PLUGIN) for key in controlled],
        status_after={"controlledResources": dict.fromkeys(controlled)} if controlled else None,
        handled=decision.handled,
        told=_executed(decision),
        again_after=decision.again_after,
    )


def _kill_targets(seen: Seen, known: Known, step: Step, decision: Decision, now: Instant) -> Plan:
    """The job's other pods go on, and so do its version, its group and the objects of its plugins."""
    job = seen.job
    found = killing.targets(known, decision.action, decision.cause)
    if decision.action is Action.RESTART_PARTITION and not found:
        return _sync(seen, known, states.respond(phase_of(job.status.state.phase), Action.SYNC_JOB), decision, now)
    ended = [member for member in found if not member.is_terminating]
    names = {member.name for member in ended}
    tally = Tally()
    tally.add_members(member for member in members.listed(known) if member.name not in names)
    tally.terminating += len(ended)
    after = _judged(job, step, tally.onto(statuses.initiated(job, now)), decision, now)
    return Plan(
        statuses.difference(job.status, after),
        is_status_first=True,
        ended=ended,
        is_marked=True,
        handled=decision.handled,
        told=_executed(decision),
    )


def _judged(
    job: volcano.Job, step: Step, counted: volcano.JobStatus, decision: Decision, now: Instant
) -> volcano.JobStatus:
    after = step.judge(job, counted)
    if after.state.phase != job.status.state.phase:
        after = statuses.stamped(replace(after, state=replace(after.state, reason=None, message=None)), now)
    if decision.action is not Action.SYNC_JOB:
        after = replace(after, state=replace(after.state, reason=decision.action, message=_why(decision.cause)))
    return statuses.with_duration(job, after)


def _executed(decision: Decision) -> Sequence[Told]:
    if decision.action is Action.SYNC_JOB:
        return ()
    return [Told("Normal", "ExecuteAction", f"Start to execute action {decision.action}: {_why(decision.cause)}")]


def _why(cause: Request) -> str:
    if cause.action:
        return "by command"
    where = f" of pod {cause.pod}" if cause.pod else f" of task {cause.task}" if cause.task else ""
    code = f", exit code {cause.exit_code}" if cause.exit_code else ""
    return f"{cause.event}{where}{code}"


def _is_there(group: volcano.PodGroup | None) -> bool:
    return group is not None and group.metadata.deletion_timestamp is None


# The end


def _after_the_end(seen: Seen, known: Known, requests: Sequence[Request], now: Instant) -> Plan:
    """Pods that still run are of no use any more. Those that have ended stay, and so does the count of them, also when
    somebody cleans them up."""
    job = seen.job
    step = states.respond(phase_of(job.status.state.phase), Action.SYNC_JOB)
    decided = _kill(seen, known, step, Decision(handled=requests), now)
    if not decided.ended:
        going = sum(member.is_terminating for member in members.listed(known))
        after = replace(job.status, terminating=going or None, pending=None, running=None, unknown=None)
        decided = changed(decided, status=statuses.difference(job.status, after))
    left = expiring.time_left(job, now)
    if left is None:
        return decided
    return changed(decided, is_expired=left <= 0, again_after=left if left > 0 else None)
