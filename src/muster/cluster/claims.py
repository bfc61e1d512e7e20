"""`Claims`: claims to storage as placement sees them, and where pods are that use them."""

from collections.abc import Collection, Mapping

from muster.api.core import PersistentVolumeClaim
from muster.api.objects import Key
from muster.api.storage import PersistentVolume, StorageClass
from muster.cluster.pods import PodInfo


class Claims:
    """A `PodObserver`. Sparse, because few pods use claims."""

    def __init__(self) -> None:
        self._claims: dict[Key, PersistentVolumeClaim] = {}
        self._classes: dict[str, StorageClass] = {}
        self._volumes: dict[str, PersistentVolume] = {}
        self.are_foreign = False
        """Whether a cluster provides for them, with volumes of its own."""
        self._users: dict[Key, dict[int, int]] = {}
        """Claim → slot → how many pods there use it."""
        self.version = 0
        """Grows with every change of a claim or a class: whatever was worked out from them is then stale."""

    @property
    def classes(self) -> Mapping[str, StorageClass]:
        return self._classes

    def get(self, key: Key) -> PersistentVolumeClaim | None:
        return self._claims.get(key)

    def put(self, key: Key, claim: PersistentVolumeClaim) -> None:
        self._claims[key] = claim
        self.version += 1

    def drop(self, key: Key) -> None:
        self._claims.pop(key, None)
        self.version += 1

    def put_class(self, name: str, found: StorageClass) -> None:
        self._classes[name] = found
        self.version += 1

    def drop_class(self, name: str) -> None:
        self._classes.pop(name, None)
        self.version += 1

    def volume(self, name: str) -> PersistentVolume | None:
        return self._volumes.get(name)

    def put_volume(self, name: str, found: PersistentVolume) -> None:
        self._volumes[name] = found
        self.version += 1

    def drop_volume(self, name: str) -> None:
        self._volumes.pop(name, None)
        self.version += 1

    def users(self, key: Key) -> Collection[int]:
        """Slots of the nodes with pods that use the claim."""
        return self._users.get(key, {}).keys()

    def pod_assigned(self, pod: PodInfo, slot: int) -> None:
        for key in pod.shape.claims:
            slots = self._users.setdefault(key, {})
            slots[slot] = slots.get(slot, 0) + 1

    def pod_released(self, pod: PodInfo, slot: int) -> None:
        for key in pod.shape.claims:
            slots = self._users[key]
            slots[slot] -= 1
            if not slots[slot]:
                del slots[slot]
                if not slots:
                    del self._users[key]
