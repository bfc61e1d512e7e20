"""Histories by seed: each on a clock and a store of its own, and a failure names the seed."""

import random
from collections.abc import Awaitable, Callable, Iterable

from muster.api.managing import TakeIn
from muster.runtime.clock import VirtualClock, run_virtual
from muster.store.embedded import EmbeddedStore


def live_through(
    seeds: Iterable[int],
    live: Callable[[EmbeddedStore, VirtualClock, random.Random], Awaitable[None]],
    take_in: TakeIn | None = None,
) -> None:
    for seed in seeds:

        async def main(clock: VirtualClock, seed: int = seed) -> None:
            chance = random.Random(seed)
            async with EmbeddedStore.in_memory(clock=clock, entropy=chance, take_in=take_in) as store:
                await live(store, clock, chance)

        try:
            run_virtual(main)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
