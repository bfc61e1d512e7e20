"""Storage of the cluster, before a pod is bound: claims that wait for a node are told which, and the pod waits until
they are bound there. Whoever provides the volumes may give the node back: then the pod is placed anew."""

from collections.abc import Mapping, Sequence
from typing import Final

from muster.api import core, errors
from muster.api.errors import ApiError
from muster.api.kinds import Kind
from muster.api.objects import Key, Object
from muster.api.storage import waiting
from muster.api.storage.provisioning import NODE_ANNOTATION
from muster.cluster.pods import PodInfo
from muster.controllers.scheduling.reporter import OPTIONS
from muster.runtime.clock import Clock
from muster.store.protocol import Patch, Revision, Store, write_one

NAME: Final = "VolumeBinding"
_LOOK_SECONDS: Final = 0.1
_PATIENCE_SECONDS: Final = 600.0  # kube-scheduler's bindTimeoutSeconds


class VolumeBinder:
    """`objects`: all that is known, kept up to date."""

    def __init__(self, store: Store, clock: Clock, objects: Mapping[tuple[Kind, Key], Object]) -> None:
        self._store = store
        self._clock = clock
        self._objects = objects

    def has_work(self, pod: PodInfo) -> bool:
        return bool(pod.shape.claims) and bool(self._unbound(pod.shape.claims))

    async def objection(self, pod: PodInfo, node: str) -> str:
        """Why the pod cannot be bound to the node; empty once all its claims are bound."""
        deadline = self._clock.monotonic() + _PATIENCE_SECONDS
        try:
            for claim in self._unbound(pod.shape.claims):
                await self._choose(claim, node)
            while unbound := self._unbound(pod.shape.claims):
                refused = [claim.key.name for claim in unbound if await self._is_given_back(claim, node)]
                if refused:
                    return f"no volume could be made on node {node} for {', '.join(refused)}"
                if self._clock.monotonic() > deadline:
                    return f"claims were not bound in time: {', '.join(claim.key.name for claim in unbound)}"
                await self._clock.sleep(_LOOK_SECONDS)
        except (ApiError, OSError) as error:
            return f"claims could not be told their node: {error}"
        return ""

    def _unbound(self, keys: Sequence[Key]) -> list[Object]:
        found = (self._objects.get((core.PERSISTENT_VOLUME_CLAIM, key)) for key in keys)
        return [
            claim
            for claim in found
            if claim is not None and not waiting.is_bound(claim.read(core.PersistentVolumeClaim))
        ]

    async def _choose(self, claim: Object, node: str) -> None:
        chosen = waiting.chosen_node(claim.read(core.PersistentVolumeClaim))
        if chosen == node:
            return
        body = {"metadata": {"annotations": {NODE_ANNOTATION: node}}}
        based_on = Revision(claim.revision)
        await write_one(
            self._store, Patch(core.PERSISTENT_VOLUME_CLAIM, claim.key, body, based_on=based_on, options=OPTIONS)
        )

    async def _is_given_back(self, claim: Object, node: str) -> bool:
        """What we know may be older than what we wrote, so the claim itself is asked before it is believed."""
        if waiting.chosen_node(claim.read(core.PersistentVolumeClaim)) == node:
            return False
        try:
            now = await self._store.get(core.PERSISTENT_VOLUME_CLAIM, claim.key)
        except errors.NotFound:
            return True
        view = now.read(core.PersistentVolumeClaim)
        return not waiting.is_bound(view) and waiting.chosen_node(view) != node
