"""How most controllers run: copies of what they watch, and, once these are complete, whatever acts on them."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence

from muster.runtime.informers import Informer, all_synced

Act = Callable[[], Coroutine[None, None, None]]


async def keep(name: str, informers: Sequence[Informer], *acts: Act) -> None:
    """Until it is cancelled, or one of them fails: then all end. Nobody acts on a copy that is only half there."""
    async with asyncio.TaskGroup() as tasks:
        for informer in informers:
            tasks.create_task(informer.run(), name=f"{name}: {informer.selection.kind.plural}")
        await all_synced(informers)
        for act in acts:
            tasks.create_task(act(), name=f"{name}: {act.__qualname__}")
