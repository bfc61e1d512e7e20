"""Plans by seed: a small cluster, some work, and faults of every kind while it is done.

Most seeds are small, for a bug rarely needs more; some are larger. In a few nothing fails, and many ask for the same:
those are about whose turn it is.
"""

import dataclasses
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from msgspec.structs import replace

from muster.api import volcano
from muster.sim import faults, mixes
from muster.sim.mixes import Offer
from muster.sim.plans import (
    Event,
    ExtenderShape,
    HoldJob,
    NodeShape,
    Plan,
    QueueShape,
    Submit,
    VolcanoQueueShape,
    document_of,
    submit,
)

DAY: Final = 86_400.0
_GPUS: Final = 8
_CPUS: Final = 32


class Size(NamedTuple):
    nodes: tuple[int, int]
    """At least, at most."""
    jobs: int
    faults: int
    seconds: float
    """In which all of that happens."""
    longest: float
    """Seconds that a pod works at most."""


SMALL: Final = Size((1, 3), jobs=5, faults=5, seconds=120.0, longest=60.0)
USUAL: Final = Size((2, 5), jobs=12, faults=10, seconds=300.0, longest=300.0)
LARGE: Final = Size((5, 10), jobs=40, faults=20, seconds=900.0, longest=300.0)
CROWDED: Final = Size((1, 2), jobs=24, faults=0, seconds=240.0, longest=120.0)
A_DAY: Final = Size((2, 5), jobs=12, faults=8, seconds=DAY, longest=1800.0)
_SCHEDULES: Final = ("7 * * * *", "30 3 * * *", "0 0 * * *", "59 23 * * *")
"""At least once a day."""
_KEPT_SECONDS: Final = 7200
_WITH_RACKS: Final = 0.25
"""Of all plans with faults."""
_HELD: Final = 0.15
"""Of the Volcano jobs in these."""


def plan(seed: int) -> Plan:
    """Of the size that comes with the seed."""
    return _made(seed, size_of(seed), Offer((), 0))


def size_of(seed: int) -> Size:
    if seed % 50 == 49:
        return LARGE
    return {7: USUAL, 8: USUAL, 9: CROWDED}.get(seed % 10, SMALL)


def days(seed: int, count: int) -> Plan:
    """Some jobs and some faults a day, for so many days: what timers, schedules, leases and retention make of it."""
    size = A_DAY._replace(jobs=A_DAY.jobs * count, faults=A_DAY.faults * count, seconds=DAY * count)
    return replace(
        _made(seed, size, Offer((), 0, schedules=_SCHEDULES, keeps=_KEPT_SECONDS)), renews=30.0, cron_gap=DAY
    )


def _made(seed: int, size: Size, offer: Offer) -> Plan:
    """`offer`: all of it that does not depend on the cluster."""
    chance = random.Random(seed)  # noqa: S311  a simulation
    bare = _cluster(seed, size, chance)
    # Of their own, so that the rest of a plan does not depend on them.
    racks, holds = (random.Random(f"{seed}: {what}") for what in ("racks", "holds"))  # noqa: S311
    bare = replace(bare, has_racks=bool(size.faults) and racks.random() < _WITH_RACKS)
    offer = dataclasses.replace(
        offer,
        queues=[queue.name for queue in bare.queues],
        most_gpus=_most(bare),
        volcano_queues=["default", *(queue.name for queue in bare.volcano_queues)],
        longest=size.longest,
    )
    load = mixes.mixed(offer, chance) if size.faults else mixes.alike(offer, chance)
    if bare.has_racks:
        load = mixes.near_each_other(load, _largest_rack(bare), racks)
    submits = [submit(chance.uniform(0, size.seconds), document) for document in islice(load, size.jobs)]
    names = [document_of(event)["metadata"]["name"] for event in submits]
    events: list[Event] = [
        *submits,
        *(_holds(submits, holds) if size.faults else ()),
        *(faults.chosen(chance.uniform(0, size.seconds), chance, bare, names) for _ in range(size.faults)),
    ]
    return replace(bare, events=tuple(sorted(events, key=lambda event: event.at)))


def _holds(submits: Sequence[Submit], chance: random.Random) -> Iterator[HoldJob]:
    """Of the Volcano jobs, some are suspended for a while."""
    for event in submits:
        document = document_of(event)
        is_volcano = (document["apiVersion"], document["kind"]) == (volcano.JOB.api_version, volcano.JOB.name)
        if is_volcano and chance.random() < _HELD:
            at = event.at + chance.uniform(0, 30)
            yield HoldJob(at=at, name=document["metadata"]["name"], seconds=chance.uniform(1, 60))


def _cluster(seed: int, size: Size, chance: random.Random) -> Plan:
    nodes = tuple(NodeShape(_CPUS, _GPUS, f"r{number % 2}") for number in range(chance.randint(*size.nodes)))
    gpus = _GPUS * len(nodes)
    cohort = chance.choice(("", "all"))
    queues = tuple(
        QueueShape(
            name,
            cpus=_CPUS * len(nodes),
            gpus=chance.randint(_GPUS, gpus),
            cohort=cohort,
            borrowing=chance.choice((None, 1)) if cohort else None,
            lending=chance.choice((None, 4)) if cohort else None,
            preempts=chance.random() < 0.5,
        )
        for name in ("red", "blue")[: chance.randint(1, 2)]
    )
    processes = chance.choice((1, 1, 2))
    return Plan(
        seed,
        nodes,
        queues,
        processes=processes,
        volcano_queues=_volcano_queues(gpus, chance) if chance.random() < 0.4 else (),
        extender=_extender(chance) if chance.random() < 0.2 else None,
    )


def _volcano_queues(gpus: int, chance: random.Random) -> tuple[VolcanoQueueShape, ...]:
    deserved = gpus // 2
    return tuple(
        VolcanoQueueShape(name, chance.randint(deserved, gpus), deserved, chance.choice((0, 2)))
        for name in ("gold", "tin")[: chance.randint(1, 2)]
    )


def _extender(chance: random.Random) -> ExtenderShape:
    return ExtenderShape(is_ignorable=chance.random() < 0.3, binds=chance.random() < 0.5)


def _largest_rack(plan: Plan) -> int:
    """Its GPUs."""
    racks: Counter[str] = Counter()
    for node in plan.nodes:
        racks[node.rack] += node.gpus
    return max(racks.values())


def _most(plan: Plan) -> int:
    """GPUs that any queue has room for, were it the only one in use."""
    guaranteed = sum(queue.guarantee for queue in plan.volcano_queues)
    return min(
        sum(node.gpus for node in plan.nodes) - guaranteed,
        *(queue.gpus for queue in plan.queues),
        *(queue.capability for queue in plan.volcano_queues),
    )
