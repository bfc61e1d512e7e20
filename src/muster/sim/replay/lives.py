"""What became of each job of a replay, and of the cluster meanwhile."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from muster.sim.traces import Job


@dataclass(slots=True, eq=False)
class Life:
    """`started`: since when it runs; None while it waits and when it has ended."""

    job: Job
    left: float
    """Seconds that it still has to run, as of its last start."""
    nodes: tuple[tuple[str, int], ...] = ()
    """Where it runs, or ran last, each with its GPUs there."""
    started: float | None = None
    first_started: float | None = None
    ended: float | None = None
    attempt: int = 0
    lost: float = 0.0
    """Seconds that it ran in vain."""

    @property
    def waited(self) -> float:
        """Until it started for the first time."""
        assert self.first_started is not None
        return self.first_started - self.job.arrives

    @property
    def took(self) -> float:
        """From when it came to when it ended."""
        assert self.ended is not None
        return self.ended - self.job.arrives

    def start(self, now: float, nodes: tuple[tuple[str, int], ...]) -> float:
        """When it will end."""
        self.started, self.nodes = now, nodes
        self.attempt += 1
        if self.first_started is None:
            self.first_started = now
        return now + self.left

    def end(self, now: float) -> None:
        self.started, self.ended = None, now

    def preempt(self, now: float, checkpoint_seconds: float) -> None:
        """It waits again, and has what it had done at its last checkpoint."""
        assert self.started is not None
        ran = now - self.started
        kept = ran // checkpoint_seconds * checkpoint_seconds if checkpoint_seconds else 0.0
        self.left -= kept
        self.lost += ran - kept
        self.started = None


@dataclass(slots=True, eq=False)
class Course:
    """How many GPUs were in use and how many jobs waited, from each of these times to the next."""

    times: list[float] = field(default_factory=list)
    busy: list[int] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)

    def note(self, now: float, busy: int, waiting: int) -> None:
        self.times.append(now)
        self.busy.append(busy)
        self.waiting.append(waiting)


@dataclass(frozen=True, slots=True)
class Promise:
    """Nodes were reserved for a job: since then it is known by when it starts, if estimates are right."""

    job: int
    made: float
    due: float


class Dues:
    """What queues are owed, in GPU seconds: of their own quota, what they had jobs for and did not have."""

    def __init__(self, quotas: Mapping[str, int]) -> None:
        self._quotas = quotas
        self._asked = dict.fromkeys(quotas, 0)
        self._used = dict.fromkeys(quotas, 0)
        self._since = dict.fromkeys(quotas, 0.0)
        self._owed = dict.fromkeys(quotas, 0.0)

    def change(self, queue: str, now: float, *, asked: int = 0, used: int = 0) -> None:
        """`asked`: by how much more jobs that run or wait there ask for than before; `used`: by those that run."""
        lacking = min(self._quotas[queue], self._asked[queue]) - self._used[queue]
        if lacking > 0:
            self._owed[queue] += lacking * (now - self._since[queue])
        self._since[queue] = now
        self._asked[queue] += asked
        self._used[queue] += used

    def owed(self) -> Mapping[str, float]:
        """By queue. To be asked when all jobs have ended."""
        return self._owed
