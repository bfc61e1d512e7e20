"""Volcano's suites, by what they are about. A module of this package fills its own `ADAPTERS`."""

import importlib
import pkgutil

from tests.conformance.cases import Adapter, Adapters


def _collected() -> dict[str, Adapter]:
    found: dict[str, Adapter] = {}
    for module in pkgutil.iter_modules(__path__):
        found.update(getattr(importlib.import_module(f"{__name__}.{module.name}"), "ADAPTERS", {}))
    return found


ADAPTERS: Adapters = _collected()
