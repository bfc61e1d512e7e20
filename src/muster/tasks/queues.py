"""Who waits for quota, as the views of the cluster ask for it."""

from collections.abc import Iterator
from typing import Protocol

from muster.api.raw import Document


class Queues(Protocol):
    """`controllers.quota` has two that know: `visibility` beside the engine, `standings` in another process."""

    async def in_cluster_queue(self, name: str, offset: int, limit: int) -> Iterator[Document] | None:
        """From the first on, as Kueue's visibility API writes them. None where there is no such queue."""
        ...
