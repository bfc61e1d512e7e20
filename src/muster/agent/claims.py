"""Directories of PersistentVolumeClaims on a node: where a pod finds them, and how those of the node go.

A claim to storage of this node is a directory below the agent's own. It is removed when the claim is deleted and no pod
here uses it any more, and only then is the claim let go. A directory whose claim has vanished without that stays: what
is in it may be all that is left. Directories that nodes share stay as well.
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Collection, Sequence
from pathlib import Path

from muster.agent import directories
from muster.agent.volumes import NotMounted
from muster.api import core, errors
from muster.api.errors import ApiError
from muster.api.kinds import Kind
from muster.api.objects import Key, Object
from muster.api.storage import provisioning
from muster.api.storage.provisioning import LOCAL_FINALIZER
from muster.runtime.clock import Clock
from muster.store.protocol import Options, Patch, Revision, Store, write_one

_log = logging.getLogger(__name__)
_LOOK_SECONDS = 3.0
_PATIENCE_SECONDS = 10.0
_PAUSE_SECONDS = 0.05
_DATA = "data"  # in a directory with the claim's namespace, name and uid
_OPTIONS = Options(manager="muster-agent")


class ClaimDirectories:
    """`get` reads an object, or None where it is not there. `used`: the claims of pods that may still run here."""

    def __init__(
        self,
        node: str,
        root: Path,
        store: Store,
        clock: Clock,
        get: Callable[[Kind, Key], Awaitable[Object | None]],
        used: Callable[[], Collection[Key]],
    ) -> None:
        self._node = node
        self._root = root
        self._store = store
        self._clock = clock
        self._get = get
        self._used = used

    async def find(self, pod: core.Pod) -> dict[str, Path]:
        """By name of the claim. Raises NotMounted or ApiError."""
        namespace = pod.metadata.namespace
        return {name: await self._path(Key(namespace, name)) for name in core.claims_of(pod.spec)}

    async def _path(self, key: Key) -> Path:
        found = await self._bound(key)
        claim = found.read(core.PersistentVolumeClaim)
        node = provisioning.node_of(claim)
        if node == self._node:
            return await self._own(found)
        if node is not None:
            raise NotMounted(f'persistentvolumeclaim "{key.name}" is a directory of node {node}, and this is another')
        shared = (claim.metadata.annotations or {}).get(provisioning.PATH_ANNOTATION)
        if not shared:
            raise NotMounted(f'persistentvolumeclaim "{key.name}": it is not said where it is')
        root = Path(shared).parent.parent
        if not root.is_dir():
            raise NotMounted(f'persistentvolumeclaim "{key.name}": {root} is not there on this node; is it mounted?')
        return _made(Path(shared))

    async def _bound(self, key: Key) -> Object:
        """A claim that waited for its first pod is bound a moment after that has been given its node."""
        give_up_at = self._clock.monotonic() + _PATIENCE_SECONDS
        while True:
            found = await self._get(core.PERSISTENT_VOLUME_CLAIM, key)
            if found is None:
                raise NotMounted(f'persistentvolumeclaim "{key.name}" not found')
            if provisioning.is_bound(found.read(core.PersistentVolumeClaim)):
                return found
            if self._clock.monotonic() >= give_up_at:
                raise NotMounted(f'persistentvolumeclaim "{key.name}" is not bound yet')
            await self._clock.sleep(_PAUSE_SECONDS)

    async def _own(self, found: Object) -> Path:
        if found.is_terminating:
            raise NotMounted(f'persistentvolumeclaim "{found.key.name}" is being deleted')
        path = _made(self._root / found.key.namespace / found.key.name / found.uid / _DATA)
        finalizers = found.read(core.PersistentVolumeClaim).metadata.finalizers
        if LOCAL_FINALIZER not in finalizers:
            try:
                await self._set_finalizers(found, [*finalizers, LOCAL_FINALIZER])
            except errors.Conflict:  # another pod has just done the same, or it was bound this moment
                return await self._path(found.key)
        return path

    async def _set_finalizers(self, found: Object, finalizers: Sequence[str]) -> None:
        body = {"metadata": {"finalizers": list(finalizers)}}
        revision = Revision(found.revision)
        patch = Patch(core.PERSISTENT_VOLUME_CLAIM, found.key, body, based_on=revision, options=_OPTIONS)
        await write_one(self._store, patch)

    async def tidy(self) -> None:
        """Until cancelled: removes what was claimed and is no longer."""
        while True:
            await self._clock.sleep(_LOOK_SECONDS)
            for path in sorted(self._root.glob("*/*/*")):
                try:
                    await self._look_at(path)
                except (ApiError, OSError) as error:
                    _log.info("%s: whether it is still claimed is not known: %s", path, error)

    async def _look_at(self, path: Path) -> None:
        namespace, name, uid = path.parts[-3:]
        key = Key(namespace, name)
        found = await self._get(core.PERSISTENT_VOLUME_CLAIM, key)
        if found is None or found.uid != uid or not found.is_terminating or key in self._used():
            return
        await asyncio.to_thread(directories.erase, path / _DATA)
        finalizers = found.read(core.PersistentVolumeClaim).metadata.finalizers
        await self._set_finalizers(found, [name for name in finalizers if name != LOCAL_FINALIZER])
        # Last: as long as it is there, whoever was interrupted looks at it again.
        await asyncio.to_thread(os.removedirs, path)


def _made(path: Path) -> Path:
    """Whoever the pods run as, it is theirs."""
    if not path.is_dir():
        path.mkdir(parents=True)
        path.chmod(0o777)
    return path
