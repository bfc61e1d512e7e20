"""Volcano's suites, by what they are about. A module of this package fills its own `ADAPTERS`."""

import importlib
import pkgutil

from tests.conformance.adapters.volcano import limits
from tests.conformance.cases import Adapter, Adapters


def _collected() -> dict[str, Adapter]:
    found: dict[str, Adapter] = {}
    for module in pkgutil.iter_modules(__path__):
        found.update(getattr(importlib.import_module(f"{__name__}.{module.name}"), "ADAPTERS", {}))
    return found


ADAPTERS: Adapters = _collected()

WITHOUT: dict[str, str] = {
    "cdp": "Muster keeps nobody from being evicted for a time after he was placed",
    "gangpreempt": limits.MOST_DOMAINS,
    "gangreclaim": limits.MOST_DOMAINS,
    "numa_aware": "Muster does not see the NUMA nodes of a machine: its kubelet or agent places within it",
    "scheduler_api": limits.INTERNAL,
    "shuffle": limits.PLUGIN,
    "sla": "Muster knows no time by which a job must be let in",
    "task_topology": "affinity between tasks of a job is said with pod affinity, not with annotations of their group",
    "tdm": "Muster knows no nodes that are lent for some hours of the day",
    "usage": "Muster does not see the load of machines: what pods take of a node is what they ask for",
}
