"""Plans by seed: a small cluster, some work, and faults of every kind while it is done."""

import random
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Final

from muster.sim import loads
from muster.sim.plans import (
    ChangeQuota,
    CordonNode,
    CrashPart,
    CrashPod,
    CrashProcess,
    CrashServer,
    CutOff,
    Event,
    FullDisk,
    JumpClock,
    LoseNode,
    NodeShape,
    Plan,
    QueueShape,
    Storm,
    Withdraw,
    submit,
)
from muster.sim.tape import Tear

JOBS: Final = 12
FAULTS: Final = 10
_PARTS: Final = 64  # more than there are: a number is taken modulo how many there are

Maker = Callable[[float, random.Random, Plan], Event]


def plan(seed: int, *, jobs: int = JOBS, faults: int = FAULTS, seconds: float = 300.0) -> Plan:
    """`jobs` come and `faults` happen within so many virtual seconds."""
    chance = random.Random(seed)  # noqa: S311  a simulation
    bare = _cluster(seed, chance)
    most = min(sum(node.gpus for node in bare.nodes), *(queue.gpus for queue in bare.queues))
    load = loads.mixed([queue.name for queue in bare.queues], most, chance)
    events: list[Event] = [submit(chance.uniform(0, seconds), document) for document in islice(load, jobs)]
    events += [
        chance.choices(tuple(_FAULTS), tuple(_FAULTS.values()))[0](chance.uniform(0, seconds), chance, bare)
        for _ in range(faults)
    ]
    return _with(bare, events)


def _with(bare: Plan, events: list[Event]) -> Plan:
    in_order = tuple(sorted(events, key=lambda event: event.at))
    return Plan(bare.seed, bare.nodes, bare.queues, in_order, bare.processes, bare.patience)


def _cluster(seed: int, chance: random.Random) -> Plan:
    nodes = tuple(NodeShape(rack=f"r{number % 2}") for number in range(chance.randint(2, 5)))
    gpus = 8 * len(nodes)
    cohort = chance.choice(("", "all"))
    queues = tuple(
        QueueShape(
            name,
            cpus=32 * len(nodes),
            gpus=chance.randint(8, gpus),
            cohort=cohort,
            borrowing=chance.choice((None, 4)) if cohort else None,
            preempts=chance.random() < 0.5,
        )
        for name in ("red", "blue")[: chance.randint(1, 2)]
    )
    return Plan(seed, nodes, queues, processes=chance.choice((1, 1, 2)))


# Faults


def _crash_part(at: float, chance: random.Random, _: Plan) -> Event:
    return CrashPart(at=at, part=chance.randrange(_PARTS), commits=chance.randrange(12))


def _crash_process(at: float, chance: random.Random, plan: Plan) -> Event:
    process, seconds = chance.randrange(plan.processes), chance.uniform(0.1, 30)
    return CrashProcess(at=at, process=process, seconds=seconds, commits=chance.randrange(12))


def _crash_server(at: float, chance: random.Random, _: Plan) -> Event:
    fates: tuple[Tear, ...] = ("kept", "lost", "torn")
    return CrashServer(at=at, seconds=chance.uniform(0.1, 20), fate=chance.choice(fates), commits=chance.randrange(12))


def _cut_off(at: float, chance: random.Random, plan: Plan) -> Event:
    return CutOff(at=at, process=chance.randrange(plan.processes), seconds=chance.uniform(1, 60))


def _storm(at: float, chance: random.Random, _: Plan) -> Event:
    def share() -> float:
        return chance.choice((0.0, 0.0, 0.1, 0.4))

    return Storm(
        at=at,
        seconds=chance.uniform(1, 60),
        seed=chance.randrange(2**32),
        refused=share(),
        conflicts=share(),
        unanswered=share(),
        slow=chance.choice((0.0, 0.01, 0.5)),
        broken=share(),
        expired=chance.choice((0.0, 0.0, 0.1)),
        repeated=share(),
        late=share(),
        shuffled=share(),
    )


def _full_disk(at: float, chance: random.Random, _: Plan) -> Event:
    return FullDisk(at=at, seconds=chance.uniform(0.1, 20))


def _lose_node(at: float, chance: random.Random, plan: Plan) -> Event:
    seconds = chance.choice((chance.uniform(1, 30), chance.uniform(60, 300)))
    return LoseNode(at=at, node=chance.randrange(len(plan.nodes)), seconds=seconds, reboots=chance.random() < 0.5)


def _crash_pod(at: float, chance: random.Random, _: Plan) -> Event:
    return CrashPod(at=at, share=chance.random())


def _jump_clock(at: float, chance: random.Random, _: Plan) -> Event:
    return JumpClock(at=at, seconds=chance.choice((-3600.0, -5.0, 5.0, 3600.0)))


def _change_quota(at: float, chance: random.Random, plan: Plan) -> Event:
    share = chance.choice((0.0, 0.5, 2.0))
    return ChangeQuota(at=at, queue=chance.randrange(len(plan.queues)), share=share, seconds=chance.uniform(10, 200))


def _cordon_node(at: float, chance: random.Random, plan: Plan) -> Event:
    return CordonNode(at=at, node=chance.randrange(len(plan.nodes)), seconds=chance.uniform(10, 200))


def _withdraw(at: float, chance: random.Random, _: Plan) -> Event:
    return Withdraw(at=at, number=chance.randrange(JOBS))


_FAULTS: Mapping[Maker, int] = {
    _crash_part: 20,
    _crash_process: 10,
    _crash_server: 10,
    _cut_off: 5,
    _storm: 15,
    _full_disk: 3,
    _lose_node: 12,
    _crash_pod: 10,
    _jump_clock: 3,
    _change_quota: 5,
    _cordon_node: 5,
    _withdraw: 5,
}
"""How often each is chosen, relative to the others."""
