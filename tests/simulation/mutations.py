"""Bugs planted in the control plane, one line each, and a seed under which the simulation finds each of them.

`python -m tests.simulation.mutations` looks for the seeds anew: a change of the plans, or of the platform, moves them.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from muster.api.errors import ApiError
from muster.assembly.controlling import controllers
from muster.cluster.devices import DeviceLedger
from muster.cluster.groups import Members
from muster.cluster.state import ClusterState
from muster.controllers.jobs.currency import Currency
from muster.controllers.quota.writer import Writer
from muster.controllers.scheduling import evicting
from muster.placement.engine import Engine as PlacementEngine
from muster.placement.queueing import SchedulingQueue
from muster.quota import queues, workloads
from muster.quota.engine import Engine as QuotaEngine
from muster.quota.state import QuotaState
from muster.quota.topology import flavors as topology_flavors
from muster.runtime.informers import Copy
from muster.runtime.workqueue import WorkQueue
from muster.sim import planning, world
from muster.sim.ledger import Violation
from muster.store.embedded import EmbeddedStore
from muster.store.protocol import Page

MOST_SEEDS = 500


@dataclass(frozen=True)
class Mutation:
    """`broken` takes the place of `owner.name`, which it may call."""

    story: str
    owner: object
    name: str
    broken: Callable[[Callable[..., Any]], Any]
    seed: int

    @contextmanager
    def planted(self) -> Iterator[None]:
        original = getattr(self.owner, self.name)
        setattr(self.owner, self.name, self.broken(original))
        try:
            yield
        finally:
            setattr(self.owner, self.name, original)

    def found(self, seed: int) -> Violation | None:
        with self.planted():
            return world.run(planning.plan(seed), controllers).violation


def nothing(_: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *_, **__: None


def answers(value: object) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return lambda _: lambda *_, **__: value


def _swallowing(make: Callable[..., Any]) -> Callable[..., Any]:
    async def durable(self: EmbeddedStore, entries: object, revision: int) -> None:
        with suppress(ApiError):
            await make(self, entries, revision)

    return durable


async def _at_once(self: Currency, key: object) -> float:
    return 0.0


def _skip(copy: Copy, page: Page) -> bool:
    copy.revision = page.revision
    return True


MUTATIONS = (
    Mutation("a lost requeue: what fails once is never tried again", WorkQueue, "retry", answers(0.0), 2),
    Mutation("a double bind: what has been bound takes no room", PlacementEngine, "_pod_assigned", nothing, 4),
    Mutation("a leak of quota: what an evicted workload held stays taken", QuotaEngine, "_release", nothing, 0),
    Mutation("a missed wake-up: nobody is told that quota is free", QuotaEngine, "_make_room", nothing, 1),
    Mutation("quota given twice: what is admitted is not counted", QuotaState, "add_usage", nothing, 0),
    Mutation("a refused admission is believed", Writer, "read_answers", nothing, 5),
    Mutation("a list after a broken watch does not show what has gone", Copy, "_take_list", lambda take: (
        lambda self, page: take(self, type(page)([*page.items, *(
            found for key, found in self.objects.items() if key not in {item.key for item in page.items}
        )], page.revision))
    ), 199),
    Mutation("a write is acknowledged though the disk has refused it", EmbeddedStore, "_make_durable", _swallowing, 8),
    Mutation("victims are evicted, and nobody is promised their place", evicting, "_nominate", lambda nominate: (
        lambda pod, node: nominate(pod, None)
    ), 3),
    Mutation("events that were lost with a watch stay lost", Copy, "_take_list", lambda take: (
        lambda self, page: take(self, page) if not self.is_synced else _skip(self, page)
    ), 2),
    Mutation("room is not given back: pods that have ended still count", ClusterState, "release", nothing, 0),
    Mutation("one GPU is given to two pods", DeviceLedger, "pod_assigned", nothing, 0),
    Mutation("pods are made again before the first are seen", Currency, "wait_for", lambda _: _at_once, 137),
    Mutation("a half gang after a crash: those that were bound before do not count", Members, "scheduled_count",
        lambda _: property(lambda self: 0), 0),
    Mutation("usage that is not given back: pods that are done still count", workloads, "_given", lambda given: (
        lambda pods, assignment, done, settings: given(pods, assignment, 0, settings)
    ), 17),
    Mutation("lending limits are not kept", queues, "read_quotas", lambda read: (
        lambda groups: {what: replace(quota, lending_limit=None) for what, quota in read(groups).items()}
    ), 8),
    Mutation("borrowing limits are not kept", queues, "read_quotas", lambda read: (
        lambda groups: {what: replace(quota, borrowing_limit=None) for what, quota in read(groups).items()}
    ), 359),
    Mutation("a queue that is stopped admits", QuotaState, "inactive", answers([]), 299),
    Mutation("starvation: who came last is served first", workloads.WorkloadInfo, "_queued_since", lambda since: (
        lambda self, settings: -since(self, settings)
    ), 59),
    Mutation("what an extender failed to answer for is never tried again", SchedulingQueue, "failed", nothing, 15),
    Mutation("what must be in one rack is spread over several", topology_flavors, "shape_of", lambda shape_of: (
        lambda *asked: replace(shape_of(*asked), is_required=False)
    ), 8),
)  # fmt: skip


def main(most: int) -> None:
    for number, mutation in enumerate(MUTATIONS):
        if len(sys.argv) > 2 and str(number) not in sys.argv[2:]:
            continue
        for seed in range(most):
            found = mutation.found(seed)
            if found is not None:
                print(f"{number} {mutation.story}: seed {seed}: {found}", flush=True)
                break
        else:
            print(f"{number} {mutation.story}: not found in {most} seeds", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else MOST_SEEDS)
