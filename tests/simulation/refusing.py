"""A store that says no for a while."""

from collections.abc import Sequence

from muster.api import errors
from muster.api.kinds import Kind
from muster.store.embedded import EmbeddedStore
from muster.store.protocol import Patch, Refused, Result, Write


class Refusing:
    """A `Store` that refuses so many patches of a kind, and nothing else."""

    def __init__(self, inner: EmbeddedStore, kind: Kind) -> None:
        self.left = 0
        self._inner = inner
        self._kind = kind
        self.get, self.list, self.watch = inner.get, inner.list, inner.watch

    async def write(self, writes: Sequence[Write]) -> Sequence[Result]:
        results: list[Result] = []
        for write in writes:
            if self.left and isinstance(write, Patch) and write.kind is self._kind:
                self.left -= 1
                results.append(Refused(errors.Conflict("somebody was quicker")))
            else:
                results += await self._inner.write([write])
        return results
