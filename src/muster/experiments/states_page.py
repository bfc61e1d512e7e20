"""docs/reference/states.md, from the tables of changes: `python -m muster.experiments.states_page` prints it."""

import sys
from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

from muster.agent.states import CONTAINER_CHANGES, POD_CHANGES, Phase, PodPhase
from muster.experiments import experiment, trial
from muster.experiments.states import ExperimentState, TrialState
from muster.jobs.volcano import states as volcano_states
from muster.jobs.volcano.vocabulary import Phase as VolcanoPhase
from muster.tasks import allocation_states
from muster.tasks.allocation_states import Phase as AllocationPhase

_HEAD = """\
# States

<!-- Rendered from the code's tables by `python -m muster.experiments.states_page`; a test fails when it is stale. -->

A node's agent moves a pod and its containers along these edges, the job controller a Volcano Job, and the server the
allocations of tasks, the trials and the experiments, and along no others: a change that is not listed here is a bug,
and whoever comes upon it stops instead of going on with a state that nobody foresaw.
"""
_POD = """\
What `status.phase` says. A pod that has ended stays as it ended; a new try is a new pod.
"""
_CONTAINER = """\
Of one container, over all its attempts. `status.containerStatuses` shows Waiting and Starting as `waiting`, Running and
Stopping as `running`, and Exited as `terminated`, or as `waiting` with reason CrashLoopBackOff while a restart is due.
"""
_VOLCANO_JOB = """\
What `status.state.phase` of a Volcano Job says; `status.conditions` lists the phases it has been in. Restarts are
counted in `status.retryCount`. Completed, Failed and Terminated are final. In each phase the controller keeps the pods
as they should be: it makes what is missing while the job is Pending, Running or Restarting, and ends what still runs in
all others.
"""

_ALLOCATION = """\
One run of a task, as Determined's API shows it; PENDING and ASSIGNED appear there as queued. A task that was asked to
stop is TERMINATING until it has. TERMINATED is final: another run of the task is another allocation.
"""

_TRIAL = """\
One sample of a search. Each of its runs is an allocation, and there is never more than one that is not over. An ACTIVE
trial whose run was preempted, lost with its node, or has failed and may be tried again, waits for another run. The
states in which it stops only ever become more severe. COMPLETED, CANCELED and ERROR are final, unless its experiment is
continued.
"""

_EXPERIMENT = """\
A search and its trials. What it is asked holds for all of them. It ends with the last of its trials, as it was stopped.
"""

_Of = TypeVar("_Of", bound=StrEnum)


def render() -> str:
    return "\n".join(
        [
            _HEAD,
            *_machine("Pods", _POD, POD_CHANGES, PodPhase.PENDING),
            *_machine("Containers", _CONTAINER, CONTAINER_CHANGES, Phase.WAITING),
            *_machine("Volcano Jobs", _VOLCANO_JOB, volcano_states.CHANGES, VolcanoPhase.PENDING),
            *_machine("Allocations", _ALLOCATION, allocation_states.CHANGES, AllocationPhase.PENDING),
            *_machine("Trials", _TRIAL, trial.CHANGES, TrialState.ACTIVE),
            *_machine("Experiments", _EXPERIMENT, experiment.CHANGES, ExperimentState.ACTIVE),
        ]
    )


def _machine(title: str, text: str, changes: Mapping[tuple[_Of, _Of], str], first: _Of) -> list[str]:
    return [f"## {title}\n", text, _diagram(changes, first), _table(changes)]


def _diagram(changes: Mapping[tuple[_Of, _Of], str], first: _Of) -> str:
    left = {before for before, _ in changes}
    final = dict.fromkeys(after for _, after in changes if after not in left)
    lines = [f"    [*] --> {first}"]
    lines += [f"    {before} --> {after}" for before, after in changes]
    lines += [f"    {state} --> [*]" for state in final]
    return "\n".join(["```mermaid", "stateDiagram-v2", *lines, "```\n"])


def _table(changes: Mapping[tuple[_Of, _Of], str]) -> str:
    rows = (f"| {before} | {after} | {why} |" for (before, after), why in changes.items())
    return "\n".join(["| from | to | when |", "| --- | --- | --- |", *rows, ""])


if __name__ == "__main__":
    sys.stdout.write(render())
