"""The policies that a replay compares. Each is a way to set up the same engine, and at most two things in front of it:
another order of those who wait, and a reservation for the oldest large job."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from muster.quota.queues import Strategy, Victims


@dataclass(frozen=True, slots=True)
class Policy:
    name: str
    summary: str
    strategy: Strategy = Strategy.BEST_EFFORT
    shares_fairly: bool = False
    reclaims: Victims = Victims.NEVER
    """Whom a queue may preempt that has less than its quota."""
    shortest_first: bool = False
    """By what jobs are estimated to take, instead of by when they came."""
    reserves: bool = False
    """Nodes for the oldest large job, once it has waited long enough."""


@dataclass(frozen=True, slots=True)
class Options:
    """What holds for all policies of a replay."""

    seed: int = 0
    noise: float = 0.5
    """Of estimates: the standard deviation of the logarithm of what they are wrong by. 0: they are right."""
    checkpoint_seconds: float = 3600.0
    """A job that is preempted loses what it did since it last had run for a multiple of this. 0: all it did."""
    bound_seconds: float = 6 * 3600.0
    """How long a large job waits before nodes are reserved for it."""
    large_gpus: int = 8
    """How many GPUs make a job large."""


POLICIES: Final[Mapping[str, Policy]] = {
    policy.name: policy
    for policy in (
        Policy("fifo", "in the order of arrival; who does not fit holds up its queue", Strategy.STRICT),
        Policy("best-effort", "in the order of arrival; who does not fit is passed by"),
        Policy(
            "fair",
            "queues by what they borrow, relative to what could be lent; they take back what is theirs",
            shares_fairly=True,
            reclaims=Victims.ANY,
        ),
        Policy("shortest", "the job first that is estimated to end first", shortest_first=True),
        Policy("backfill", "as best-effort, with nodes reserved for the oldest large job", reserves=True),
    )
}
