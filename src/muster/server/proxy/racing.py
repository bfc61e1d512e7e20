"""Several things at once, until the first of them is done."""

import asyncio
from collections.abc import Coroutine


async def first_done(name: str, *parts: Coroutine[None, None, None]) -> None:
    """Runs them together; when one returns or raises the others are cancelled. Raises what the first one raised."""
    failure: Exception | None = None
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_kept(part), name=f"{name} {number}") for number, part in enumerate(parts)]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
    for task in tasks:
        if task in done:
            failure = failure or task.result()
    if failure is not None:
        raise failure


async def _kept(part: Coroutine[None, None, None]) -> Exception | None:
    """A group would wrap what is raised in it."""
    try:
        await part
    except Exception as error:
        return error
    return None
