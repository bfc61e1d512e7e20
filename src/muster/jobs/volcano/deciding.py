"""Which of the things that happened calls for an action now, and which for one later."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from muster.api import timestamps, volcano
from muster.api.meta import Instant
from muster.jobs.volcano import states
from muster.jobs.volcano.members import Known
from muster.jobs.volcano.policies import Request, resolve
from muster.jobs.volcano.states import Scope
from muster.jobs.volcano.vocabulary import OVER, Action, Happening, Phase, phase_of

_GIVING_UP = frozenset({Action.ABORT_JOB, Action.COMPLETE_JOB, Action.TERMINATE_JOB})
_WINDING_DOWN = frozenset({Phase.ABORTING, Phase.ABORTED, Phase.COMPLETING, Phase.TERMINATING})

_NOTHING = Request()


@dataclass(frozen=True, slots=True)
class Decision:
    action: Action = Action.SYNC_JOB
    cause: Request = _NOTHING
    handled: Sequence[Request] = ()
    """Of those that were told, which need not be told again."""
    again_after: float | None = None


def decide(
    job: volcano.Job, known: Known, told: Sequence[Request], noticed: Sequence[Request], now: Instant
) -> Decision:
    """`told`: what leaves no trace, in the order in which it happened. `noticed`: what the pods show."""
    taken_back = _taken_back(told)
    left = [request for request in told if request not in taken_back]
    decision = _decide(job, known, left, noticed, now)
    return replace(decision, handled=[*taken_back, *decision.handled]) if taken_back else decision


def _taken_back(told: Sequence[Request]) -> Sequence[Request]:
    """Commands before the last one to go on. Where the answer to their writes was lost they come again, and would stop
    what was resumed since."""
    resumed = [number for number, request in enumerate(told) if request.action == Action.RESUME_JOB]
    return [request for request in told[: resumed[-1]] if request.action] if resumed else ()


def _decide(
    job: volcano.Job, known: Known, told: Sequence[Request], noticed: Sequence[Request], now: Instant
) -> Decision:
    phase = phase_of(job.status.state.phase)
    if phase in OVER:
        return Decision(handled=told)
    if phase in _WINDING_DOWN:
        return _while_winding_down(phase, told)
    handled: list[Request] = []
    waits: list[float] = []
    for request in (*told, *noticed):
        answer = resolve(job, request)
        if states.respond(phase, answer.action).scope is Scope.SYNC or _is_over_with(request, known):
            handled.append(request)
            continue
        if phase is Phase.RESTARTING and request.action and answer.action in _GIVING_UP:
            continue  # where Volcano forgets the command: it is carried out when the restart is through
        left = timestamps.left_of(answer.delay, request.at, now) if answer.delay else 0.0
        if left > 0:
            waits.append(left)
            continue
        settled = [other for other in told if other is request or _is_settled_by(other, answer.action, request)]
        return Decision(answer.action, request, _among(told, [*handled, *settled]))
    return Decision(handled=_among(told, handled), again_after=min(waits, default=None))


def _among(told: Sequence[Request], handled: Collection[Request]) -> list[Request]:
    return [request for request in told if request in handled]


def _while_winding_down(phase: Phase, told: Sequence[Request]) -> Decision:
    """Nothing counts any more but the wish to go on."""
    for number, request in enumerate(told, 1):
        if request.action == Action.RESUME_JOB and phase in (Phase.ABORTING, Phase.ABORTED):
            return Decision(Action.RESUME_JOB, request, told[:number])
    return Decision(handled=told)


def _is_over_with(request: Request, known: Known) -> bool:
    """A pod that was lost runs again."""
    if request.event != Happening.POD_EVICTED:
        return False
    member = known.get(request.task, {}).get(request.pod)
    return member is not None and member.phase == "Running" and not member.is_terminating


def _is_settled_by(other: Request, action: Action, cause: Request) -> bool:
    """Whether an action that still waits for its time has become pointless by this one. Commands never do."""
    if other.action:
        return False
    match action:
        case Action.RESTART_TASK:
            return other.task == cause.task
        case Action.RESTART_POD:
            return (other.task, other.pod) == (cause.task, cause.pod)
        case Action.RESTART_PARTITION:
            return (other.task, other.partition) == (cause.task, cause.partition)
        case _:
            return True
