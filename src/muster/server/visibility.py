"""Kueue's visibility API, who waits in a queue and in which order; and our own, why a workload waits and what the
scheduler has decided.

/apis/visibility.kueue.x-k8s.io/<version>/clusterqueues/<name>/pendingworkloads
/apis/visibility.kueue.x-k8s.io/<version>/namespaces/<namespace>/localqueues/<name>/pendingworkloads
/apis/visibility.muster.dev/v1/namespaces/<namespace>/workloads/<name>/explanation
/apis/visibility.muster.dev/v1/schedulers/muster/decisions
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, Protocol, TypeAlias

from muster.api import errors, kueue, raw
from muster.api.objects import Key
from muster.api.raw import Document
from muster.api.visibility import GROUP, KUEUE_GROUP, KUEUE_VERSIONS, SCHEDULER, VERSION, VERSIONS
from muster.quota import situation
from muster.server.access import Attributes
from muster.server.exchange import Query, Request, Response, json_response
from muster.server.paths import MISSING
from muster.store.protocol import Store

Decisions: TypeAlias = Callable[[], Iterable[bytes]]
Check: TypeAlias = Callable[[Attributes], Awaitable[None]]
"""Raises Forbidden where whoever is asking may not."""
PENDING: Final = "pendingworkloads"
SUMMARY: Final = "PendingWorkloadsSummary"
EXPLANATION: Final = "explanation"
DECISIONS: Final = "decisions"
_KUEUE: Final = ("apis", KUEUE_GROUP)
_OURS: Final = ("apis", GROUP, VERSION)
_USUAL_LIMIT, _LARGEST_LIMIT = 1000, 100_000
_STEP: Final = 500
"""Items that are written before others get their turn."""


class Visibility(Protocol):
    """Whoever knows. None: there is no such queue, or the workload does not wait."""

    @property
    def is_served(self) -> bool:
        """Whether Kueue's part is switched on."""
        ...

    async def in_cluster_queue(self, name: str, offset: int, limit: int) -> Iterator[Document] | None: ...

    async def in_local_queue(self, namespace: str, name: str, offset: int, limit: int) -> Iterator[Document] | None: ...

    async def explain(self, namespace: str, name: str) -> Document | None: ...


class VisibilityApi:
    def __init__(self, store: Store, visibility: Visibility | None, decisions: Decisions = tuple) -> None:
        """`visibility`: None where no quota is at work."""
        self._store = store
        self._visibility = visibility
        self._decisions = decisions

    @property
    def versions(self) -> Sequence[tuple[str, str]]:
        """Group and version of what is served."""
        is_kueues_on = self._visibility is not None and self._visibility.is_served
        return VERSIONS if is_kueues_on else ((GROUP, VERSION),)

    async def answer(self, request: Request, check: Check, parts: tuple[str, ...]) -> Response | None:
        """None for paths that are somebody else's. `parts`: below the prefix."""
        match parts:
            case (*group, version, "clusterqueues", name, "pendingworkloads") if tuple(group) == _KUEUE:
                await _allow(request, check, Attributes("get", KUEUE_GROUP, f"clusterqueues/{PENDING}", "", name))
                return await self._cluster_queue(request.query, version, name)
            case (
                *group, version, "namespaces", space, "localqueues", name, "pendingworkloads",
            ) if tuple(group) == _KUEUE:  # fmt: skip
                await _allow(request, check, Attributes("get", KUEUE_GROUP, f"localqueues/{PENDING}", space, name))
                return await self._local_queue(request.query, version, space, name)
            case (*ours, "namespaces", space, "workloads", name, "explanation") if tuple(ours) == _OURS:
                await _allow(request, check, Attributes("get", GROUP, f"workloads/{EXPLANATION}", space, name))
                return await self._explanation(space, name)
            case (*ours, "schedulers", name, "decisions") if tuple(ours) == _OURS:
                await _allow(request, check, Attributes("get", GROUP, f"schedulers/{DECISIONS}", "", name))
                return self._decided(name)
        return None

    async def _cluster_queue(self, query: Query, version: str, name: str) -> Response:
        offset, limit = _page(query)
        found = await self._known(version).in_cluster_queue(name, offset, limit)
        if found is None:
            raise _unknown("clusterqueue", name, KUEUE_GROUP)
        return await _summary(version, found)

    async def _local_queue(self, query: Query, version: str, namespace: str, name: str) -> Response:
        offset, limit = _page(query)
        found = await self._known(version).in_local_queue(namespace, name, offset, limit)
        if found is None:
            raise _unknown("localqueue", name, KUEUE_GROUP)
        return await _summary(version, found)

    def _known(self, version: str) -> Visibility:
        if self._visibility is None or not self._visibility.is_served or version not in KUEUE_VERSIONS:
            raise errors.NotFound(MISSING)
        return self._visibility

    async def _explanation(self, namespace: str, name: str) -> Response:
        """Raises NotFound for a workload that does not exist."""
        found = await self._store.get(kueue.WORKLOAD, Key(namespace, name))
        why = await self._visibility.explain(namespace, name) if self._visibility is not None else None
        return json_response(why or situation.to_document(found.read(kueue.Workload)))

    def _decided(self, scheduler: str) -> Response:
        if scheduler != SCHEDULER:
            raise _unknown("scheduler", scheduler, GROUP)
        return Response(200, b"".join(self._decisions()), "application/x-ndjson")


async def _allow(request: Request, check: Check, asked: Attributes) -> None:
    if request.method not in ("GET", "HEAD"):
        raise errors.MethodNotAllowed(
            f"the server does not allow this method on the requested resource: {request.method}; allowed are GET"
        )
    await check(asked)


def _page(query: Query) -> tuple[int, int]:
    offset, limit = query.integer("offset"), query.integer("limit")
    for name, value in (("offset", offset), ("limit", limit)):
        if value is not None and value < 0:
            raise errors.BadRequest(f"query parameter {name!r}: expected 0 or more, found {value}")
    return offset or 0, min(_USUAL_LIMIT if limit is None else limit, _LARGEST_LIMIT)


def _unknown(resource: str, name: str, group: str) -> errors.NotFound:
    return errors.NotFound(f'{resource}.{group} "{name}" not found', kind=resource, name=name, group=group)


async def _summary(version: str, items: Iterator[Document]) -> Response:
    """Written piece by piece: a hundred thousand may be asked for."""
    head = raw.encode({"kind": SUMMARY, "apiVersion": f"{KUEUE_GROUP}/{version}", "metadata": {}})
    pieces: list[bytes] = []
    while some := list(islice(items, _STEP)):
        pieces.append(raw.encode(some)[1:-1])
        await asyncio.sleep(0)
    return Response(200, head[:-1] + b',"items":[' + b",".join(pieces) + b"]}")
