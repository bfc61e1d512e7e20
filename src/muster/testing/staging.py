"""Puts objects into a store and components into motion, for tests."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from muster.api.everything import REGISTRY
from muster.api.objects import Object
from muster.api.raw import Document
from muster.store.protocol import Create, Patch, Store, write_one
from muster.testing.builders import Builder


async def stage(store: Store, *wanted: Builder | Document) -> list[Object]:
    """Create the objects, status included (which a plain create drops), in order."""
    made = []
    for item in wanted:
        document = item if isinstance(item, dict) else item.document()
        kind = REGISTRY.by_document(document["apiVersion"], document["kind"])
        found = await write_one(store, Create(kind, document))
        status = document.get("status")
        if status and kind.has_status:
            found = await write_one(store, Patch(kind, found.key, {"status": status}, subresource="status"))
        made.append(found)
    return made


@asynccontextmanager
async def running(*components: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """The components run while the block does. One that fails fails the block."""

    async def run(component: Callable[[], Awaitable[None]]) -> None:
        await component()

    failure: BaseException | None = None
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(run(component), name=f"component-{n}") for n, component in enumerate(components)]
        try:
            yield
        except BaseException as error:  # carried past the group, which would wrap a failed assertion in a group
            failure = error
        for task in tasks:
            task.cancel()
    if failure is not None:
        raise failure
