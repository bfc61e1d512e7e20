"""Faults and orders by chance: what may happen to a simulated cluster, and how often relative to the rest."""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from muster.sim.plans import (
    BotherExtender,
    BreakDevices,
    ChangeCapability,
    ChangeQuota,
    CloseQueue,
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
    MoveQueue,
    Plan,
    RelabelNode,
    RestartAgent,
    StopPolicy,
    StopQueue,
    Storm,
    TaintEffect,
    TaintNode,
    Withdraw,
)
from muster.sim.tape import Tear

Maker: TypeAlias = Callable[[float, random.Random, Plan], Event]
_PARTS: Final = 64  # more than there are: a number is taken modulo how many there are


def chosen(at: float, chance: random.Random, plan: Plan, jobs: Sequence[str]) -> Event:
    """Any of them. `jobs`: names of what may be withdrawn."""
    makers = {maker: weight for maker, weight in _MAKERS.items() if _is_possible(maker, plan)}
    maker = chance.choices((*makers, None), (*makers.values(), _WITHDRAWALS if jobs else 0))[0]
    return Withdraw(at=at, name=chance.choice(jobs)) if maker is None else maker(at, chance, plan)


def _is_possible(maker: Maker, plan: Plan) -> bool:
    if maker in (_close_queue, _change_capability):
        return bool(plan.volcano_queues)
    return maker is not _bother_extender or plan.extender is not None


# The control plane


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


def _jump_clock(at: float, chance: random.Random, _: Plan) -> Event:
    return JumpClock(at=at, seconds=chance.choice((-3600.0, -5.0, 5.0, 3600.0)))


def _bother_extender(at: float, chance: random.Random, _: Plan) -> Event:
    return BotherExtender(
        at=at,
        seconds=chance.uniform(1, 60),
        seed=chance.randrange(2**32),
        slow=chance.choice((0.0, 2.0, 10.0)),
        failing=chance.choice((0.0, 0.3, 1.0)),
        objecting=chance.choice((0.0, 0.3, 1.0)),
    )


# Nodes


def _lose_node(at: float, chance: random.Random, plan: Plan) -> Event:
    seconds = chance.choice((chance.uniform(1, 30), chance.uniform(60, 300)))
    return LoseNode(at=at, node=_node(chance, plan), seconds=seconds, reboots=chance.random() < 0.5)


def _restart_agent(at: float, chance: random.Random, plan: Plan) -> Event:
    node, seconds = _node(chance, plan), chance.uniform(0.1, 10)
    return RestartAgent(at=at, node=node, seconds=seconds, adopts=chance.random() < 0.7)


def _crash_pod(at: float, chance: random.Random, _: Plan) -> Event:
    return CrashPod(at=at, share=chance.random())


def _cordon_node(at: float, chance: random.Random, plan: Plan) -> Event:
    return CordonNode(at=at, node=_node(chance, plan), seconds=_while(chance))


def _taint_node(at: float, chance: random.Random, plan: Plan) -> Event:
    effects: tuple[TaintEffect, ...] = ("NoSchedule", "NoExecute")
    return TaintNode(at=at, node=_node(chance, plan), effect=chance.choice(effects), seconds=_while(chance))


def _relabel_node(at: float, chance: random.Random, plan: Plan) -> Event:
    return RelabelNode(at=at, node=_node(chance, plan), seconds=_while(chance))


def _break_devices(at: float, chance: random.Random, plan: Plan) -> Event:
    node = _node(chance, plan)
    return BreakDevices(at=at, node=node, gpus=chance.randrange(plan.nodes[node].gpus), seconds=_while(chance))


def _node(chance: random.Random, plan: Plan) -> int:
    return chance.randrange(len(plan.nodes))


def _while(chance: random.Random) -> float:
    return chance.uniform(10, 200)


# Queues


def _change_quota(at: float, chance: random.Random, plan: Plan) -> Event:
    return ChangeQuota(
        at=at,
        queue=_queue(chance, plan),
        share=chance.choice((0.0, 0.5, 1.0, 2.0)),
        seconds=_while(chance),
        borrowing=chance.choice((None, 0, 4)),
        lending=chance.choice((None, 0, 4)),
    )


def _move_queue(at: float, chance: random.Random, plan: Plan) -> Event:
    return MoveQueue(
        at=at, queue=_queue(chance, plan), cohort=chance.choice(("", "all", "few")), seconds=_while(chance)
    )


def _stop_queue(at: float, chance: random.Random, plan: Plan) -> Event:
    policies: tuple[StopPolicy, ...] = ("Hold", "HoldAndDrain")
    return StopQueue(at=at, queue=_queue(chance, plan), policy=chance.choice(policies), seconds=_while(chance))


def _close_queue(at: float, chance: random.Random, plan: Plan) -> Event:
    return CloseQueue(at=at, queue=chance.randrange(len(plan.volcano_queues)), seconds=_while(chance))


def _change_capability(at: float, chance: random.Random, plan: Plan) -> Event:
    queue, share = chance.randrange(len(plan.volcano_queues)), chance.choice((0.0, 0.5, 2.0))
    return ChangeCapability(at=at, queue=queue, share=share, seconds=_while(chance))


def _queue(chance: random.Random, plan: Plan) -> int:
    return chance.randrange(len(plan.queues))


_WITHDRAWALS: Final = 5
_MAKERS: Mapping[Maker, int] = {
    _crash_part: 20,
    _crash_process: 10,
    _crash_server: 10,
    _cut_off: 5,
    _storm: 15,
    _full_disk: 3,
    _jump_clock: 3,
    _bother_extender: 20,
    _lose_node: 10,
    _restart_agent: 6,
    _crash_pod: 8,
    _cordon_node: 3,
    _taint_node: 4,
    _relabel_node: 3,
    _break_devices: 5,
    _change_quota: 6,
    _move_queue: 3,
    _stop_queue: 4,
    _close_queue: 5,
    _change_capability: 4,
}
"""How often each is chosen, relative to the others."""
