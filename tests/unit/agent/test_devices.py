"""What a node offers, and who holds what."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from muster.agent import devices
from muster.agent.devices import GPU, Gpu, Ledger, Machine
from muster.api import core
from muster.cluster import needs_of

MACHINE = Machine(4000, 2**33, 10, tuple(Gpu(i, "fake", 2**34) for i in range(4)))


def spec(*gpus: int, init: int = 0, sidecar: int = 0, cpu: str = "100m") -> core.PodSpec:
    def container(name: str, count: int) -> dict[str, object]:
        limits = {GPU: str(count)} if count else {}
        return {"name": name, "resources": {"limits": limits, "requests": {"cpu": cpu, **limits}}}

    inits: list[dict[str, object]] = []
    if sidecar:
        inits.append({**container("side", sidecar), "restartPolicy": "Always"})
    if init:
        inits.append(container("init", init))
    mains = [container(f"m{i}", count) for i, count in enumerate(gpus)]
    return msgspec.convert({"containers": mains, "initContainers": inits}, core.PodSpec)


def take(ledger: Ledger, uid: str, pod: core.PodSpec) -> devices.Grant | None:
    needs = needs_of(pod)
    return None if ledger.shortage(needs) else ledger.grant(uid, needs, pod)


def test_this_machine_has_something() -> None:
    found = devices.discover(fake_gpus=3)
    assert found.cpu_milli >= 1000
    assert found.memory_bytes > 2**26
    assert [gpu.index for gpu in found.gpus] == [0, 1, 2]
    assert found.resource_list()[GPU] == "3"


def test_without_gpus_the_resource_is_not_offered() -> None:
    listed = Machine(1500, 2**30).resource_list()
    assert listed == {"cpu": "1500m", "memory": "1048576Ki", "pods": "500"}


@given(gpus=st.integers(0, 9), count=st.integers(1, 5))
def test_shares_never_overlap_and_never_exceed_the_whole(gpus: int, count: int) -> None:
    machine = Machine(4000, 2**33, 10, tuple(Gpu(i, "fake", 1) for i in range(gpus)))
    shares = [devices.share(machine, index, count) for index in range(count)]
    dealt = [gpu for part in shares for gpu in part.gpus]
    assert dealt == list(machine.gpus)
    assert sum(part.cpu_milli for part in shares) <= machine.cpu_milli
    assert sum(part.memory_bytes for part in shares) <= machine.memory_bytes


def test_gpus_are_given_once() -> None:
    ledger = Ledger(MACHINE)
    first, second = take(ledger, "a", spec(2)), take(ledger, "b", spec(1, 1))
    assert first is not None
    assert second is not None
    assert first.gpus == {"m0": (0, 1)}
    assert second.gpus == {"m0": (2,), "m1": (3,)}
    assert take(ledger, "c", spec(1)) is None
    assert ledger.release("a")
    assert not ledger.release("a")
    third = take(ledger, "c", spec(1))
    assert third is not None
    assert third.gpus == {"m0": (0,)}


def test_init_containers_share_with_the_others_and_sidecars_do_not() -> None:
    found = take(Ledger(MACHINE), "a", spec(2, init=3, sidecar=1))
    assert found is not None
    assert found.gpus == {"side": (0,), "m0": (1, 2), "init": (1, 2, 3)}


def test_a_shortage_is_worded_as_kubelets_do() -> None:
    ledger = Ledger(MACHINE)
    take(ledger, "a", spec(3))
    shortage = ledger.shortage(needs_of(spec(2)))
    assert shortage is not None
    assert shortage.reason == "OutOfnvidia.com/gpu"
    assert "requested: 2, used: 3, capacity: 4" in shortage.message
    assert ledger.shortage(needs_of(spec(2)), besides=["a"]) is None
    too_much = ledger.shortage(needs_of(spec(0, cpu="5")))
    assert too_much is not None
    assert too_much.reason == "OutOfcpu"


def test_what_was_held_before_a_restart_is_held_again() -> None:
    ledger = Ledger(MACHINE)
    ledger.restore("a", needs_of(spec(2)), {"m0": [1, 2]})
    found = take(ledger, "b", spec(2))
    assert found is not None
    assert found.gpus == {"m0": (0, 3)}


def test_a_container_sees_its_own_gpus_or_none() -> None:
    grant = devices.Grant({}, {"m0": (1, 3)})
    assert devices.visibility(grant, "m0")["CUDA_VISIBLE_DEVICES"] == "1,3"
    assert devices.visibility(grant, "m1")["CUDA_VISIBLE_DEVICES"] == ""


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 4), st.booleans()), max_size=40))
def test_no_gpu_is_ever_held_by_two(steps: list[tuple[str, int, bool]]) -> None:
    ledger = Ledger(MACHINE)
    held: dict[str, frozenset[int]] = {}
    for uid, count, is_release in steps:
        if is_release or uid in held:
            ledger.release(uid)
            held.pop(uid, None)
            continue
        granted = take(ledger, uid, spec(count))
        if granted is not None:
            held[uid] = granted.gpu_indices
            assert len(granted.gpu_indices) == count
        everything = [index for indices in held.values() for index in indices]
        assert len(everything) == len(set(everything))
        if granted is None:
            assert len(everything) + count > 4 or len(held) >= 10
