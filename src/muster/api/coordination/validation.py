"""Checks of Lease."""

from collections.abc import Iterator

from muster.api import fields, timestamps
from muster.api.coordination.views import Lease
from muster.api.errors import FieldError

_STRATEGIES = frozenset({"OldestEmulationVersion"})


def validate_lease(lease: Lease) -> list[FieldError]:
    return list(_lease(lease))


def _lease(lease: Lease) -> Iterator[FieldError]:
    spec = lease.spec
    yield from fields.positive("spec.leaseDurationSeconds", spec.lease_duration_seconds)
    yield from fields.non_negative("spec.leaseTransitions", spec.lease_transitions)
    for name, value in (("acquireTime", spec.acquire_time), ("renewTime", spec.renew_time)):
        if value:
            yield from _time(f"spec.{name}", value)
    if spec.preferred_holder and not spec.strategy:
        yield fields.forbidden("spec.preferredHolder", "cannot be specified when strategy is not set")
    if spec.strategy and "/" not in spec.strategy:
        yield from fields.one_of("spec.strategy", spec.strategy, _STRATEGIES)


def _time(path: str, text: str) -> Iterator[FieldError]:
    try:
        timestamps.parse(text)
    except timestamps.BadTimestamp as error:
        yield fields.invalid(path, text, str(error))
