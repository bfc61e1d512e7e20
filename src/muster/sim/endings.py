"""How one tells that a job is over, and that nothing is left of what has ended."""

from collections.abc import Sequence

from muster.api import batch, conditions, core, kubeflow, kueue, muster, timestamps, volcano
from muster.api.kinds import Kind
from muster.api.meta import Condition, Instant
from muster.api.muster.names import Phase
from muster.api.objects import Key, Object
from muster.jobs.flow.states import Phase as FlowPhase
from muster.jobs.volcano.vocabulary import OVER, phase_of
from muster.sim.invariants import place_of
from muster.sim.ledger import Ledger, Violation
from muster.sim.quotas import holdings


class Endings:
    """Which jobs are over, also where they have been cleaned away since."""

    name = "endings"
    kinds = frozenset({batch.JOB, kubeflow.PYTORCH_JOB, volcano.JOB, volcano.JOB_FLOW, muster.ALLOCATION, core.POD})

    def __init__(self) -> None:
        self._over: set[tuple[Kind, Key]] = set()

    def heard(self, old: Object | None, new: Object | None) -> None:
        found = new or old
        assert found is not None
        # A lone pod that has gone is over too: whoever evicts it does not make it anew.
        if is_over(found) if new is not None else found.kind is core.POD:
            self._over.add((found.kind, found.key))

    def broken(self) -> Violation | None:
        return None

    def has_ended(self, kind: Kind, key: Key) -> bool:
        return (kind, key) in self._over


def is_over(found: Object) -> bool:
    if found.kind is batch.JOB:
        return _is_any_true(found.read(batch.Job).status.conditions, "Complete", "Failed")
    if found.kind is kubeflow.PYTORCH_JOB:
        return _is_any_true(found.read(kubeflow.PyTorchJob).status.conditions, "Succeeded", "Failed")
    if found.kind is volcano.JOB:
        return phase_of(found.read(volcano.Job).status.state.phase) in OVER
    if found.kind is volcano.JOB_FLOW:
        return found.read(volcano.JobFlow).status.state.phase in (FlowPhase.SUCCEED, FlowPhase.FAILED)
    if found.kind is muster.ALLOCATION:
        return found.read(muster.Allocation).status.phase == Phase.TERMINATED
    return found.read(core.Pod).status.phase in ("Succeeded", "Failed")


def _is_any_true(listed: Sequence[Condition], *types: str) -> bool:
    return any(conditions.is_true(listed, type) for type in types)


def has_run(found: Object, since: Instant, *, is_new: bool) -> bool:
    """A cron job is never over: it has done its work when a run was started after `since`, unless it is so new that
    none was due, and once it is suspended, when none runs any more."""
    cron_job = found.read(volcano.CronJob)
    if cron_job.spec.suspend:
        return not cron_job.status.active
    last = cron_job.status.last_schedule_time
    return is_new if last is None else timestamps.parse(last) >= since


def leftovers(ledger: Ledger, processes: int) -> Violation | None:
    """All jobs are over: nobody holds quota, no pod has a node or waits for one, and no process runs."""
    for workload in ledger.all(kueue.WORKLOAD):
        if holdings(workload.read(kueue.Workload)) is not None:
            return Violation(
                "leak", f"workload {workload.key} holds quota, and all jobs are over", (place_of(workload),)
            )
    for pod in ledger.all(core.POD):
        if pod.read(core.Pod).status.phase not in ("Succeeded", "Failed"):
            return Violation("leak", f"pod {pod.key} is not over, and all jobs are", (place_of(pod),))
    if processes:
        return Violation("leak", f"{processes} processes run, and all jobs are over")
    return None
