"""Several streams read at once."""

import queue
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from muster.api import errors

T = TypeVar("T")


def merged(streams: Sequence[Iterable[T]]) -> Iterator[tuple[int, T]]:
    """Items as they come, with the number of their stream. One thread a stream; who reads this alone writes, so that
    lines stay whole. Raises ApiError."""
    found: queue.SimpleQueue[tuple[int, T] | errors.ApiError | None] = queue.SimpleQueue()

    def read(number: int, stream: Iterable[T]) -> None:
        try:
            for item in stream:
                found.put((number, item))
            found.put(None)
        except errors.ApiError as error:
            found.put(error)

    for number, stream in enumerate(streams):
        threading.Thread(target=read, args=[number, stream], daemon=True).start()
    unread = len(streams)
    while unread:
        item = found.get()
        if isinstance(item, tuple):
            yield item
        elif item is None:
            unread -= 1
        else:
            raise item


def one_by_one(streams: Sequence[Iterable[T]]) -> Iterator[tuple[int, T]]:
    """The same, each to its end before the next."""
    for number, stream in enumerate(streams):
        for item in stream:
            yield number, item
