"""Where threads meet one reader: what they put, he takes in order, and turns into events."""

import math
import queue
import time
from collections.abc import Callable
from typing import Generic, TypeVar

M = TypeVar("M")
E = TypeVar("E")


class Inbox(Generic[M, E]):
    """Of messages, and the events that they become."""

    def __init__(self) -> None:
        self._messages: queue.SimpleQueue[M] = queue.SimpleQueue()

    def put(self, message: M, /) -> None:
        self._messages.put(message)

    @property
    def is_empty(self) -> bool:
        return self._messages.empty()

    def next(
        self,
        timeout: float | None,
        *,
        take: Callable[[M], E | None],
        due: Callable[[], E | None],
        due_at: Callable[[], float],
    ) -> E | None:
        """The next event, of a message or (`due`) of time alone, which is asked again at `due_at`; None when `timeout`
        seconds passed without one."""
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        while True:
            found = due()
            if found is not None:
                return found
            left = min(deadline, due_at()) - time.monotonic()
            try:
                message = self._messages.get(timeout=None if left == math.inf else max(left, 0.0))
            except queue.Empty:
                if time.monotonic() >= deadline:
                    return None
                continue
            event = take(message)
            if event is not None:
                return event
