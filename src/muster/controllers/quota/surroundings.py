"""What decisions about jobs may ask for besides the job: flavors, priority classes, and whose jobs queue at all.
Followed once for all."""

from muster.api import core, kueue, scheduling
from muster.api.core.defaults import NAMESPACE_LABEL
from muster.api.objects import Key
from muster.quota.integrations.ranking import Classes
from muster.quota.integrations.steps import World
from muster.quota.settings import Settings
from muster.runtime.clock import Clock
from muster.runtime.informers import Informer
from muster.store.protocol import Selection, Store


class Surroundings:
    def __init__(self, store: Store, clock: Clock, settings: Settings) -> None:
        self._clock = clock
        self._settings = settings
        self._flavors = Informer(store, Selection(kueue.RESOURCE_FLAVOR), clock=clock)
        self._workload_classes = Informer(store, Selection(kueue.WORKLOAD_PRIORITY_CLASS), clock=clock)
        self._classes = Informer(store, Selection(scheduling.PRIORITY_CLASS), clock=clock)
        self.namespaces = Informer(store, Selection(core.NAMESPACE), clock=clock)
        self.informers = (self._flavors, self._workload_classes, self._classes, self.namespaces)

    def manages(self, namespace: str) -> bool:
        """Whether the jobs of that namespace queue."""
        found = self.namespaces.get(Key("", namespace))
        labels = found.meta.labels or {} if found is not None else {}
        return self._settings.managed_namespaces.matches({NAMESPACE_LABEL: namespace, **labels})

    def now(self) -> World:
        return World(
            self._clock.now(),
            self._settings,
            Classes(
                {found.key.name: found.read(kueue.WorkloadPriorityClass) for found in self._workload_classes.items()},
                {found.key.name: found.read(scheduling.PriorityClass) for found in self._classes.items()},
            ),
            {found.key.name: found.read(kueue.ResourceFlavor) for found in self._flavors.items()},
        )
