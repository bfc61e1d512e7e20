"""How one tells that a job is over, and that nothing is left of what has ended."""

from muster.api import batch, conditions, core, kubeflow, kueue, volcano
from muster.api.kinds import Kind
from muster.api.objects import Object
from muster.jobs.volcano.vocabulary import OVER, phase_of
from muster.sim.invariants import holdings, place_of
from muster.sim.ledger import Ledger, Violation


def is_over(kind: Kind, found: Object | None) -> bool:
    """A lone pod that has gone is over too: whoever evicts it does not make it anew."""
    if found is None:
        return kind is core.POD
    if kind is batch.JOB:
        listed = found.read(batch.Job).status.conditions
        return any(conditions.is_true(listed, type) for type in ("Complete", "Failed"))
    if kind is volcano.JOB:
        return phase_of(found.read(volcano.Job).status.state.phase) in OVER
    if kind is kubeflow.PYTORCH_JOB:
        return any(
            conditions.is_true(found.read(kubeflow.PyTorchJob).status.conditions, type)
            for type in ("Succeeded", "Failed")
        )
    return found.read(core.Pod).status.phase in ("Succeeded", "Failed")


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
