"""What every handler works with. Small on purpose: a handler that needs more takes it as its own argument."""

from dataclasses import dataclass

from muster.api.registry import Registry
from muster.runtime.clock import Clock
from muster.server.access import Identity
from muster.server.exchange import Request
from muster.server.paths import Target
from muster.store.protocol import Store


@dataclass(frozen=True, slots=True)
class Context:
    store: Store
    registry: Registry
    clock: Clock


@dataclass(frozen=True, slots=True)
class Call:
    """One request to one resource, by somebody known."""

    request: Request
    target: Target
    identity: Identity
