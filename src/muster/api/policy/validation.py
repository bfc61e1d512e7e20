"""Checks of PodDisruptionBudget."""

import re
from collections.abc import Iterator

from muster.api import fields
from muster.api.errors import FieldError
from muster.api.metadata import validate_label_selector
from muster.api.policy.views import PodDisruptionBudget

_PERCENTAGE = re.compile(r"[0-9]+%")
_EVICTION_POLICIES = frozenset({"IfHealthyBudget", "AlwaysAllow"})


def validate_budget(budget: PodDisruptionBudget) -> list[FieldError]:
    return list(_budget(budget))


def _budget(budget: PodDisruptionBudget) -> Iterator[FieldError]:
    spec = budget.spec
    if spec.min_available is not None and spec.max_unavailable is not None:
        yield fields.invalid("spec", "", "minAvailable and maxUnavailable cannot be both set")
    yield from _share("spec.minAvailable", spec.min_available)
    yield from _share("spec.maxUnavailable", spec.max_unavailable)
    yield from validate_label_selector("spec.selector", spec.selector)
    yield from fields.one_of("spec.unhealthyPodEvictionPolicy", spec.unhealthy_pod_eviction_policy, _EVICTION_POLICIES)


def _share(path: str, value: int | str | None) -> Iterator[FieldError]:
    """A number of pods, or a part of them."""
    if isinstance(value, int):
        yield from fields.non_negative(path, value)
    elif value is not None and _PERCENTAGE.fullmatch(value) is None:
        yield fields.invalid(path, value, "a valid percent string must be a numeric followed by a % (e.g. '1%', '93%')")
    elif value is not None and int(value[:-1][:9]) > 100:
        yield fields.invalid(path, value, "must not be greater than 100%")
