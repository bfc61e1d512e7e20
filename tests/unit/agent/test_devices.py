"""What a node offers, and who holds what."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.agent import devices, directories
from muster.agent.devices import Claim, Gpu, Grant, Ledger, Machine, claim
from muster.api import core
from muster.cluster.amounts import GPU, GPU_MILLI
from muster.cluster.devices import Holding
from muster.cluster.pods import DEVICES_ANNOTATION

MACHINE = Machine(4000, 2**33, 10, tuple(Gpu(i, "fake", 2**34) for i in range(4)))


def a_claim(
    *gpus: int, init: int = 0, sidecar: int = 0, cpu: str = "100m", milli: tuple[int, ...] = (), **annotations: str
) -> Claim:
    """`gpus` and `milli`: of each container."""

    def container(name: str, count: int, share: int = 0) -> dict[str, object]:
        limits = ({GPU: str(count)} if count else {}) | ({GPU_MILLI: str(share)} if share else {})
        return {"name": name, "resources": {"limits": limits, "requests": {"cpu": cpu, **limits}}}

    inits: list[dict[str, object]] = []
    if sidecar:
        inits.append({**container("side", sidecar), "restartPolicy": "Always"})
    if init:
        inits.append(container("init", init))
    shares = milli + (0,) * len(gpus)
    mains = [container(f"m{i}", count, shares[i]) for i, count in enumerate(gpus)]
    named = {{"on": DEVICES_ANNOTATION, "share": GPU_MILLI}[name]: text for name, text in annotations.items()}
    spec = {"containers": mains, "initContainers": inits}
    return claim(msgspec.convert({"metadata": {"name": "p", "annotations": named}, "spec": spec}, core.Pod))


def take(ledger: Ledger, uid: str, claimed: Claim) -> Grant | None:
    return None if ledger.shortage(claimed) else ledger.grant(uid, claimed)


def taken(ledger: Ledger, uid: str, claimed: Claim) -> Grant:
    found = take(ledger, uid, claimed)
    assert found is not None
    return found


def test_this_machine_has_something() -> None:
    found = devices.discover(fake_gpus=3)
    assert found.cpu_milli >= 1000
    assert found.memory_bytes > 2**26
    assert [gpu.index for gpu in found.gpus] == [0, 1, 2]
    assert (found.resource_list()[GPU], found.resource_list()[GPU_MILLI]) == ("3", "3000")


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
    assert taken(ledger, "a", a_claim(2)).gpus == {"m0": (0, 1)}
    assert taken(ledger, "b", a_claim(1, 1)).gpus == {"m0": (2,), "m1": (3,)}
    assert take(ledger, "c", a_claim(1)) is None
    assert ledger.release("a")
    assert not ledger.release("a")
    assert taken(ledger, "c", a_claim(1)).gpus == {"m0": (0,)}


def test_init_containers_share_with_the_others_and_sidecars_do_not() -> None:
    found = taken(Ledger(MACHINE), "a", a_claim(2, init=3, sidecar=1))
    assert found.gpus == {"side": (0,), "m0": (1, 2), "init": (1, 2, 3)}


def test_a_shortage_is_worded_as_kubelets_do() -> None:
    ledger = Ledger(MACHINE)
    take(ledger, "a", a_claim(3))
    shortage = ledger.shortage(a_claim(2))
    assert shortage is not None
    assert shortage.reason == "OutOfnvidia.com/gpu"
    assert "requested: 2, used: 3, capacity: 4" in shortage.message
    assert ledger.shortage(a_claim(2), besides=["a"]) is None
    too_much = ledger.shortage(a_claim(0, cpu="5"))
    assert too_much is not None
    assert too_much.reason == "OutOfcpu"


def test_what_was_held_before_a_restart_is_held_again(tmp_path: Path) -> None:
    before = Ledger(MACHINE)
    taken(before, "x", a_claim(1))
    directories.save_grant(tmp_path, taken(before, "a", a_claim(2, milli=(300,))))
    held = directories.saved_grant(tmp_path)
    assert held is not None
    ledger = Ledger(MACHINE)
    assert ledger.restore("a", held).holdings == (Holding(1, 1000), Holding(2, 1000), Holding(3, 300))
    assert devices.visibility(held, "m0")["CUDA_VISIBLE_DEVICES"] == "1,2,3"
    assert taken(ledger, "b", a_claim(1)).gpus == {"m0": (0,)}
    assert taken(ledger, "c", a_claim(0, milli=(700,))).gpus == {"m0": (3,)}


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"gpus": {"main": [0]}}'])
def test_what_was_not_written_whole_is_not_believed(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "devices.json").write_bytes(content)
    assert directories.saved_grant(tmp_path) is None
    assert directories.saved_grant(tmp_path / "missing") is None


def test_a_container_sees_its_own_gpus_or_none() -> None:
    grant = Grant({}, gpus={"m0": (1, 3)})
    assert devices.visibility(grant, "m0") == {"CUDA_VISIBLE_DEVICES": "1,3", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert devices.visibility(grant, "m1")["CUDA_VISIBLE_DEVICES"] == ""


def test_devices_that_the_scheduler_chose_are_used_by_their_place_on_the_node() -> None:
    ledger = Ledger(devices.share(MACHINE, 1, 2))
    assert [gpu.index for gpu in ledger.machine.gpus] == [2, 3]
    found = taken(ledger, "a", a_claim(1, on="1"))
    assert found.gpus == {"m0": (3,)}
    assert taken(ledger, "b", a_claim(1)).gpus == {"m0": (2,)}


@pytest.mark.parametrize(
    ("claimed", "shown", "milli", "percent"),
    [
        (a_claim(0, milli=(500,), on="2:500"), "2", "500", "50"),
        (a_claim(0, share="125", on="1:125"), "1", "125", "12.5"),
        (a_claim(0, share="1000", on="3"), "3", "1000", None),
        (a_claim(2, milli=(500,), on="2:500,0,3"), "0,3,2", "500", None),
        (a_claim(2, on="0,3"), "0,3", None, None),
    ],
)
def test_a_container_is_told_its_share(claimed: Claim, shown: str, milli: str | None, percent: str | None) -> None:
    told = devices.visibility(taken(Ledger(MACHINE), "a", claimed), "m0")
    assert told["CUDA_VISIBLE_DEVICES"] == shown
    assert told.get("MUSTER_GPU_MILLI") == milli
    assert told.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE") == percent


def test_containers_of_one_pod_share_one_gpu_as_each_asked() -> None:
    found = taken(Ledger(MACHINE), "a", a_claim(0, 0, 1, milli=(300, 200)))
    assert found.holdings == (Holding(0, 1000), Holding(3, 500))
    assert found.gpus == {"m0": (3,), "m1": (3,), "m2": (0,)}
    assert found.shares == {"m0": 300, "m1": 200}


@pytest.mark.parametrize("said", ["x", "0,0", "0", "0,1,2", "0:500,1", "999,0", "0,1:1001"])
def test_devices_that_make_no_sense_are_chosen_anew(said: str) -> None:
    assert taken(Ledger(MACHINE), "a", a_claim(2, on=said)).gpus == {"m0": (0, 1)}


def test_devices_that_are_taken_are_refused_by_name() -> None:
    ledger = Ledger(MACHINE)
    taken(ledger, "a", a_claim(0, milli=(600,), on="2:600"))
    whole = ledger.shortage(a_claim(1, on="2"))
    assert whole is not None
    assert whole.reason == "OutOfnvidia.com/gpu"
    assert "GPU 2 of this node, which was chosen for it, has 400 of 1000 free" in whole.message
    share = ledger.shortage(a_claim(0, milli=(500,), on="2:500"))
    assert share is not None
    assert (share.reason, share.used, share.capacity) == ("OutOfmuster.dev/gpu-milli", 600, 4000)
    assert ledger.shortage(a_claim(0, milli=(400,), on="2:400")) is None
    assert ledger.shortage(a_claim(1, on="2"), besides=["a"]) is None
    missing = ledger.shortage(a_claim(1, on="4"))
    assert missing is not None
    assert "GPU 4" in missing.message


def test_a_share_of_more_than_one_gpu_says_what_to_ask_for() -> None:
    shortage = Ledger(MACHINE).shortage(a_claim(0, milli=(1500,)))
    assert shortage is not None
    assert shortage.reason == "OutOfmuster.dev/gpu-milli"
    assert "ask for nvidia.com/gpu instead" in shortage.message


_claims = st.one_of(
    st.builds(lambda whole, share: a_claim(whole, milli=(share,)), st.integers(0, 4), st.integers(0, 1000)),
    st.builds(lambda share: a_claim(0, share=str(share)), st.integers(1, 1000)),
    st.lists(st.integers(0, 5), min_size=1, max_size=4, unique=True).map(
        lambda chosen: a_claim(len(chosen), on=",".join(map(str, chosen)))
    ),
    st.tuples(st.integers(0, 5), st.integers(1, 999)).map(
        lambda chosen: a_claim(0, milli=(chosen[1],), on=f"{chosen[0]}:{chosen[1]}")
    ),
)


@given(st.lists(st.tuples(st.sampled_from("abcdef"), _claims, st.booleans()), max_size=40))
def test_no_gpu_is_ever_given_beyond_its_whole(steps: list[tuple[str, Claim, bool]]) -> None:
    ledger = Ledger(MACHINE)
    held: dict[str, Grant] = {}
    for uid, claimed, is_release in steps:
        if is_release or uid in held:
            assert ledger.release(uid) == (uid in held)
            held.pop(uid, None)
            continue
        granted = take(ledger, uid, claimed)
        if granted is None:
            continue
        held[uid] = granted
        if claimed.stated is not None:
            assert set(granted.holdings) == set(claimed.stated)
        assert sum(holding.milli for holding in granted.holdings) == 1000 * claimed.wanted.whole + claimed.wanted.share
        use: dict[int, list[int]] = {}
        for grant in held.values():
            for index, milli in grant.holdings:
                use.setdefault(index, []).append(milli)
        assert set(use) <= {gpu.index for gpu in MACHINE.gpus}
        for index, parts in use.items():
            assert sum(parts) <= 1000, index
            assert 1000 not in parts or parts == [1000], "a whole GPU is nobody else's"
        everything = {index for grant in held.values() for shown in grant.gpus.values() for index in shown}
        assert everything <= set(use)
