"""NoExecute taints on virtual time: who must go, when, and who may stay after all."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from muster.api import conditions, core, errors
from muster.api.objects import Key
from muster.controllers.taints import TaintEvictionController, patience
from muster.runtime.clock import VirtualClock
from muster.store.embedded import EmbeddedStore
from muster.store.protocol import Patch, Selection, Store, write_one
from muster.testing.builders import PodBuilder, a_node, a_pod
from muster.testing.staging import running, stage
from muster.testing.virtual import on_virtual_time

TAINT = {"key": "maintenance", "effect": "NoExecute"}


def on_n(name: str) -> PodBuilder:
    return a_pod(name).on_node("n").phase("Running")


@asynccontextmanager
async def a_cluster(clock: VirtualClock, *pods: PodBuilder, taints: Any = ()) -> AsyncIterator[EmbeddedStore]:
    async with EmbeddedStore.in_memory(clock=clock) as store:
        await stage(store, a_node("n"), a_node("other"), *pods)
        await taint(store, *taints)
        async with running(TaintEvictionController(store, clock).run):
            await clock.sleep(1)
            yield store


async def taint(store: Store, *taints: dict[str, str]) -> None:
    await write_one(store, Patch(core.NODE, Key("", "n"), {"spec": {"taints": list(taints) or None}}))


async def tolerate(store: Store, name: str, **more: Any) -> None:
    found = (await store.get(core.POD, Key("default", name))).document()
    added = [*found["spec"].get("tolerations", []), {"key": "maintenance", "operator": "Exists", **more}]
    await write_one(store, Patch(core.POD, Key("default", name), {"spec": {"tolerations": added}}))


async def staying(store: Store) -> set[str]:
    """Pods that nobody has told to go."""
    return {pod.key.name for pod in (await store.list(Selection(core.POD))).items if not pod.is_terminating}


async def told(store: Store, name: str) -> list[str]:
    events = [found.read(core.Event) for found in (await store.list(Selection(core.EVENT))).items]
    return [event.message or "" for event in events if event.involved_object.name == name]


@on_virtual_time
async def test_pods_that_do_not_tolerate_a_taint_go_at_once(clock: VirtualClock) -> None:
    tolerant = on_n("tolerant").tolerating("maintenance")
    async with a_cluster(clock, on_n("p"), tolerant, a_pod("elsewhere").on_node("other")) as store:
        assert await staying(store) == {"p", "tolerant", "elsewhere"}
        await taint(store, TAINT)
        await clock.sleep(1)
        assert await staying(store) == {"tolerant", "elsewhere"}
        gone = (await store.get(core.POD, Key("default", "p"))).read(core.Pod)
        why = conditions.find(gone.status.conditions, "DisruptionTarget")
        assert why is not None
        assert (why.status, why.reason) == ("True", "DeletionByTaintManager")
        await clock.sleep(10)
        assert await told(store, "p") == ["Marking for deletion Pod default/p"]


@on_virtual_time
async def test_other_effects_and_lost_nodes_are_not_its_business(clock: VirtualClock) -> None:
    others = [
        {"key": "a", "effect": "NoSchedule"},
        {"key": "b", "effect": "PreferNoSchedule"},
        {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"},
        {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"},
    ]
    async with a_cluster(clock, on_n("p"), taints=others) as store:
        await clock.sleep(3600)
        assert await staying(store) == {"p"}


@on_virtual_time
async def test_a_pod_stays_for_as_long_as_it_tolerates_the_taint(clock: VirtualClock) -> None:
    pods = (on_n(f"p{seconds}").tolerating("maintenance", effect="NoExecute", seconds=seconds) for seconds in (30, 300))
    async with a_cluster(clock, *pods, taints=[TAINT]) as store:
        await clock.sleep(28)
        assert await staying(store) == {"p30", "p300"}
        await clock.sleep(2)
        assert await staying(store) == {"p300"}
        await clock.sleep(268)
        assert await staying(store) == {"p300"}
        await clock.sleep(2)
        assert await staying(store) == set()


@on_virtual_time
async def test_a_taint_that_is_taken_away_in_time_costs_nobody(clock: VirtualClock) -> None:
    async with a_cluster(
        clock, on_n("p").tolerating("maintenance", effect="NoExecute", seconds=60), taints=[TAINT]
    ) as store:
        await clock.sleep(50)
        await taint(store)
        await clock.sleep(100)
        assert await staying(store) == {"p"}
        assert await told(store, "p") == ["Cancelling deletion of Pod default/p"]
        await taint(store, TAINT)
        await clock.sleep(55)
        assert await staying(store) == {"p"}, "its time begins anew"
        await clock.sleep(10)
        assert await staying(store) == set()


@on_virtual_time
async def test_the_time_runs_from_when_the_pod_came(clock: VirtualClock) -> None:
    async with a_cluster(clock, taints=[TAINT]) as store:
        await clock.sleep(1000)
        await stage(store, on_n("late").tolerating("maintenance", effect="NoExecute", seconds=60), on_n("never"))
        await clock.sleep(1)
        assert await staying(store) == {"late"}
        await clock.sleep(57)
        assert await staying(store) == {"late"}
        await clock.sleep(3)
        assert await staying(store) == set()


@on_virtual_time
async def test_a_second_taint_shortens_the_time_but_does_not_start_it_anew(clock: VirtualClock) -> None:
    pod = (
        on_n("p")
        .tolerating("maintenance", effect="NoExecute", seconds=300)
        .tolerating("fire", effect="NoExecute", seconds=60)
    )
    async with a_cluster(clock, pod, taints=[TAINT]) as store:
        await clock.sleep(40)
        await taint(store, TAINT, {"key": "fire", "effect": "NoExecute"})
        await clock.sleep(15)
        assert await staying(store) == {"p"}
        await clock.sleep(6)
        assert await staying(store) == set()


@on_virtual_time
async def test_a_toleration_that_is_added_later_counts(clock: VirtualClock) -> None:
    pod = on_n("p").set([{"key": "other", "operator": "Exists"}], "spec", "tolerations")
    async with a_cluster(clock, pod) as store:
        await tolerate(store, "p", effect="NoExecute", tolerationSeconds=100)
        await taint(store, TAINT)
        await clock.sleep(50)
        assert await staying(store) == {"p"}
        await clock.sleep(60)
        assert await staying(store) == set()


@on_virtual_time
async def test_what_has_finished_or_is_leaving_is_left_alone(clock: VirtualClock) -> None:
    async with a_cluster(clock, on_n("done").phase("Succeeded"), taints=[TAINT]) as store:
        await clock.sleep(100)
        assert await staying(store) == {"done"}
        assert await told(store, "done") == []


@on_virtual_time
async def test_a_store_that_is_away_for_a_moment_is_asked_again(clock: VirtualClock) -> None:
    class Away:
        """Refuses the first writes to pods."""

        def __init__(self, inner: EmbeddedStore) -> None:
            self.inner, self.refusals = inner, 3

        async def write(self, writes: Any) -> Any:
            if self.refusals and writes[0].kind is core.POD:
                self.refusals -= 1
                raise errors.Unavailable("away")
            return await self.inner.write(writes)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inner, name)

    async with EmbeddedStore.in_memory(clock=clock) as store:
        away: Any = Away(store)
        await stage(store, a_node("n"), on_n("p"))
        await taint(store, TAINT)
        async with running(TaintEvictionController(away, clock).run):
            await clock.sleep(60)
            assert away.refusals == 0
            assert await staying(store) == set()


@pytest.mark.parametrize(
    ("tolerations", "expected"),
    [
        ([], 0.0),
        ([{"operator": "Exists"}], None),
        ([{"key": "a", "operator": "Exists", "tolerationSeconds": 5}], 0.0),
        ([{"operator": "Exists", "tolerationSeconds": 5}, {"operator": "Exists"}], 5.0),
        ([{"operator": "Exists"}, {"operator": "Exists", "tolerationSeconds": 5}], None),
        (
            [
                {"key": "a", "operator": "Exists", "tolerationSeconds": 9},
                {"key": "b", "operator": "Exists", "tolerationSeconds": 7},
            ],
            7.0,
        ),
        ([{"operator": "Exists", "tolerationSeconds": -5}], 0.0),
        ([{"operator": "Exists", "effect": "NoSchedule"}], 0.0),
    ],
)
def test_how_long_a_pod_stays_under_two_taints(tolerations: list[dict[str, Any]], expected: float | None) -> None:
    taints = [msgspec.convert({"key": key, "effect": "NoExecute"}, core.Taint) for key in "ab"]
    assert patience(taints, msgspec.convert(tolerations, list[core.Toleration])) == expected
