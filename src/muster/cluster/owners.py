"""`PodSelectors`: whose pods are a set that should be spread, by the selectors of Services and of the controllers that
make pods. Fed by watch changes, as `ClusterState` is; it only remembers selectors, never the objects.
"""

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from muster.api.objects import Key
from muster.api.selectors import EVERYTHING, LabelSelector, Operator, Requirement
from muster.cluster.pods import Controller, PodInfo

_Label: TypeAlias = tuple[str, str]


class PodSelectors:
    """Services match pods by labels; a ReplicaSet, StatefulSet or ReplicationController counts only for the pods that
    name it as their controller."""

    def __init__(self) -> None:
        self.version = 0
        """Grows with every change: a selector that was deduced for a pod is then stale."""
        self._services: dict[Key, Mapping[str, str]] = {}
        self._candidates: dict[tuple[str, _Label | None], dict[str, None]] = {}
        """(namespace, one label of the selector) → names of services, in order. A pod without that label cannot match:
        a namespace may have thousands of services, and a pod has few labels."""
        self._controllers: dict[tuple[str, Controller], LabelSelector] = {}

    def __bool__(self) -> bool:
        """Whether anything selects pods at all."""
        return bool(self._services or self._controllers)

    def service_changed(self, key: Key, selector: Mapping[str, str] | None) -> None:
        """A service was added or changed. One without a selector stands for no pods."""
        self.service_removed(key)
        if selector is not None:
            self._services[key] = selector
            self._candidates.setdefault((key.namespace, _first(selector)), {})[key.name] = None
            self.version += 1

    def service_removed(self, key: Key) -> None:
        selector = self._services.pop(key, None)
        if selector is not None:
            place = (key.namespace, _first(selector))
            names = self._candidates[place]
            del names[key.name]
            if not names:
                del self._candidates[place]
            self.version += 1

    def controller_changed(self, namespace: str, controller: Controller, selector: LabelSelector) -> None:
        self._controllers[namespace, controller] = selector
        self.version += 1

    def controller_removed(self, namespace: str, controller: Controller) -> None:
        if self._controllers.pop((namespace, controller), None) is not None:
            self.version += 1

    def services_of(self, namespace: str, labels: Mapping[str, str]) -> Iterator[str]:
        """Names of the services that select such pods."""
        for label in (None, *labels.items()):
            for name in self._candidates.get((namespace, label), ()):
                if self._services[Key(namespace, name)].items() <= labels.items():
                    yield name

    def selector_of(self, pod: PodInfo) -> LabelSelector:
        """What selects the pod's like: all that its services and its controller ask for, taken together. Empty where
        nothing selects the pod."""
        wanted: dict[str, str] = {}
        for name in self.services_of(pod.namespace, pod.labels):
            wanted.update(self._services[Key(pod.namespace, name)])  # all match the pod, so none contradicts another
        exact = tuple(Requirement(key, Operator.IN, frozenset({value})) for key, value in sorted(wanted.items()))
        own = self._controllers.get((pod.namespace, pod.controller)) if pod.controller else None
        more = tuple(r for r in own.requirements if r not in exact) if own else ()
        return LabelSelector((*exact, *more)) if exact or more else EVERYTHING.labels


def _first(selector: Mapping[str, str]) -> _Label | None:
    return min(selector.items(), default=None)
