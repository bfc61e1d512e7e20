"""Small traces, written as what comes when: made up, so that what must happen can be told."""

from muster.sim.replay.machines import Machines
from muster.sim.replay.policies import POLICIES, Options
from muster.sim.replay.running import History, Setup, replay
from muster.sim.replay.shares import Shares
from muster.sim.traces import Job, Trace

EXACT = Options(noise=0.0)


def trace(*jobs: tuple[float, float, int] | tuple[float, float, int, str]) -> Trace:
    """Each: when it comes, how long it runs, GPUs and queue."""
    return Trace([Job(number, *job[:3], job[3] if len(job) == 4 else "a") for number, job in enumerate(jobs)])


def lived(found: Trace, nodes: str, policy: str, queues: str = "one", options: Options = EXACT) -> History:
    machines = Machines.parse(nodes)
    return replay(Setup(found, machines, Shares.parse(queues, found, machines.gpus), POLICIES[policy], options))


def starts(history: History) -> list[float]:
    return [life.job.arrives + life.waited for life in history.lives]


def most_in_use(history: History) -> dict[str, int]:
    """By node, what was in use at the worst moment. Only for jobs that ran once; what ends makes room for what starts
    in the same instant."""
    changes: dict[str, list[tuple[float, int]]] = {}
    for life in history.lives:
        assert life.first_started is not None
        assert life.ended is not None
        for name, gpus in life.nodes:
            changes.setdefault(name, []).extend([(life.ended, -gpus), (life.first_started, gpus)])
    worst: dict[str, int] = {}
    for name, listed in changes.items():
        used = 0
        for _, gpus in sorted(listed):
            used += gpus
            worst[name] = max(worst.get(name, 0), used)
    return worst
