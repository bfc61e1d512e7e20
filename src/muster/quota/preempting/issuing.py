"""Preemptions as they are to be written: each victim once, however often it is decided on.

Between the decision and the moment at which the store tells of it a victim still looks as if nothing had happened.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from muster.quota.preempting.messages import message_for, preemptor_event, victim_event
from muster.quota.preempting.policies import Target
from muster.quota.state import QueueState
from muster.quota.workloads import WorkloadInfo


@dataclass(frozen=True, slots=True, eq=False)
class Eviction:
    """`message` goes into the victim's conditions; the other two are events, `Preempted` on the victim and
    `PreemptedWorkload` on the preemptor."""

    target: Target
    message: str
    victim_event: str
    preemptor_event: str


class Issuer:
    """Remembers whose eviction is on its way."""

    def __init__(self) -> None:
        self._unseen: dict[str, str] = {}
        """By key, the uid: a workload made anew under the same name is another one."""

    def issue(self, preemptor: WorkloadInfo, queue: QueueState, targets: Iterable[Target]) -> list[Eviction]:
        """What is still to be written. Targets that are evicted, or about to be, need nothing more."""
        found = []
        for target in targets:
            victim = target.info
            if victim.is_evicted or self._unseen.get(victim.key) == victim.uid:
                continue
            self._unseen[victim.key] = victim.uid
            found.append(
                Eviction(
                    target,
                    message_for(preemptor, queue, target),
                    victim_event(preemptor, queue, target),
                    preemptor_event(preemptor, target),
                )
            )
        return found

    def observe(self, key: str) -> None:
        """The store has told of the eviction, or of the end of the workload; or the write was refused."""
        self._unseen.pop(key, None)
