"""Which queues there are in a replay, and how many GPUs each of them owns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from muster.api import errors
from muster.sim.traces import Trace

DEMAND: Final = "demand"
EQUAL: Final = "equal"
ONE: Final = "one"
RULES: Final = (DEMAND, EQUAL, ONE)


@dataclass(frozen=True, slots=True)
class Shares:
    """All queues are in one cohort, and lend each other what they do not use."""

    quotas: Mapping[str, int]
    """GPUs by queue."""
    only: str = ""
    """Where all jobs go, whatever queue the trace has for them."""

    def queue_of(self, queue: str) -> str:
        return self.only or queue

    @staticmethod
    def parse(text: str, trace: Trace, gpus: int) -> "Shares":
        """By a rule, or `NAME=GPUS,…` for all queues of the trace. Raises BadRequest."""
        if text == ONE:
            return Shares({ONE: gpus}, only=ONE)
        if text == EQUAL:
            return Shares(_split(gpus, trace.queues, [Fraction(1)] * len(trace.queues)))
        if text == DEMAND:
            work = [Fraction(trace.work_by_queue[name]) for name in trace.queues]
            return Shares(_split(gpus, trace.queues, work))
        return Shares(_named(text, trace.queues, gpus))


def _split(gpus: int, names: Sequence[str], parts: Sequence[Fraction]) -> dict[str, int]:
    """In proportion, whole GPUs, all of them: what is left by rounding down goes to the largest remainders."""
    whole = sum(parts)
    if not whole:
        return _split(gpus, names, [Fraction(1)] * len(names))
    exact = [gpus * part / whole for part in parts]
    found = [int(each) for each in exact]
    by_remainder = sorted(range(len(names)), key=lambda index: (found[index] - exact[index], names[index]))
    for index in by_remainder[: gpus - sum(found)]:
        found[index] += 1
    return dict(zip(names, found, strict=True))


def _named(text: str, names: Sequence[str], gpus: int) -> dict[str, int]:
    found: dict[str, int] = {}
    for part in text.split(","):
        name, sign, amount = part.strip().rpartition("=")
        if not sign or not name or not (amount.isascii() and amount.isdigit()):
            raise errors.BadRequest(f"queues: {part!r} is neither NAME=GPUS nor one of {', '.join(RULES)}")
        if name in found:
            raise errors.BadRequest(f"queues: {name} is there twice")
        found[name] = int(amount)
    missing = [name for name in names if name not in found]
    if missing:
        raise errors.BadRequest(f"queues: the trace has jobs in {', '.join(missing)}, which are not named")
    if sum(found.values()) != gpus:
        raise errors.BadRequest(f"queues: they own {sum(found.values())} GPUs together, and the nodes have {gpus}")
    return found
