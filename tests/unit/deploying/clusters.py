"""A cluster with little of its own: a store in memory, where definitions are established a moment after they are made,
and namespaces go with what is in them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from typing import Any

from muster.api.everything import REGISTRY
from muster.api.kinds import Kind
from muster.api.objects import Key
from muster.api.registry import Registry
from muster.controllers.namespaces import NamespaceController
from muster.deploying import kinds
from muster.runtime.clock import VirtualClock
from muster.store.embedded import EmbeddedStore
from muster.store.journal import NoJournal
from muster.store.protocol import Create, Patch, Selection, Store, write_one

_KNOWN = Registry((*REGISTRY, *(each for each in vars(kinds).values() if isinstance(each, Kind))))


@contextlib.asynccontextmanager
async def a_cluster(clock: VirtualClock, *, establishes: bool = True) -> AsyncIterator[EmbeddedStore]:
    async with EmbeddedStore(NoJournal(), clock=clock, registry=_KNOWN) as store, asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(NamespaceController(store, clock, _KNOWN).run())]
        if establishes:
            running.append(tasks.create_task(_establish(store)))
        yield store
        for task in running:
            task.cancel()


async def _establish(store: Store) -> None:
    async for events in store.watch(Selection(kinds.CUSTOM_RESOURCE_DEFINITION)):
        for event in events:
            if event.object and event.change == "ADDED":
                await establish(store, event.object.key.name)


async def establish(store: Store, name: str) -> None:
    status = {"status": {"conditions": [{"type": "Established", "status": "True"}]}}
    await write_one(store, Patch(kinds.CUSTOM_RESOURCE_DEFINITION, Key("", name), status, subresource="status"))


async def put(store: Store, kind: Kind, document: dict[str, Any]) -> None:
    """As it is, with its status."""
    written = await write_one(store, Create(kind, document))
    if "status" in document:
        patch = Patch(kind, written.key, {"status": document["status"]}, subresource="status")
        await write_one(store, patch)


def a_definition(name: str, versions: Iterable[str], **labels: str) -> dict[str, Any]:
    """As somebody else has made it."""
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {"versions": [{"name": version, "served": True} for version in versions]},
    }


def a_deployment(namespace: str, name: str, labels: dict[str, str], **spec: Any) -> dict[str, Any]:
    return {"metadata": {"namespace": namespace, "name": name, "labels": labels}, "spec": {"replicas": 1, **spec}}
