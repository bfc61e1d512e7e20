"""Slots of a node that are not to be used: as its annotation says it, and what that leaves of the node.

A slot is one of its GPUs, counted from 0; or one of its CPUs, where it has no GPU.
"""

from collections.abc import Mapping
from typing import Final

from muster.api import quantity
from muster.api.core.requests import CPU
from muster.api.scalars import ResourceList

DISABLED_SLOTS: Final = "muster.dev/disabled-slots"
"""As in `1,3:drain`: what runs on the third may end by itself."""
DRAINING: Final = "muster.dev/draining"
"""On a node that takes nothing new: what runs there may end by itself."""
DISABLED_TAINT: Final = "muster.dev/disabled"
"""Of a node whose pods have to go."""
GPU_UUIDS: Final = "muster.dev/gpu-uuids"
"""Of its GPUs, in order, with commas between."""
GPU_PRODUCT: Final = "nvidia.com/gpu.product"
"""A label, as NVIDIA's own discovery writes it."""
GPU: Final = "nvidia.com/gpu"
GPU_MILLI: Final = "muster.dev/gpu-milli"
MOST: Final = 4096
_DRAIN: Final = "drain"


def parse_disabled(text: str | None) -> dict[int, bool]:
    """By number, whether what runs there may end by itself. What makes no sense is left out: an annotation is anybody's
    to write."""
    found: dict[int, bool] = {}
    for part in (text or "").split(","):
        number, _, how = part.strip().partition(":")
        if number.isascii() and number.isdigit() and int(number[:6]) < MOST and how in ("", _DRAIN):
            found[int(number)] = how == _DRAIN
    return found


def format_disabled(disabled: Mapping[int, bool]) -> str:
    return ",".join(f"{number}:{_DRAIN}" if drains else str(number) for number, drains in sorted(disabled.items()))


def left(capacity: ResourceList, disabled: Mapping[int, bool]) -> dict[str, str | int | float]:
    """What may be used of a node that has so much."""
    found = dict(capacity)
    if not disabled:
        return found
    gpus = _units(capacity.get(GPU))
    if gpus:
        gone = sum(number < gpus for number in disabled)
        found[GPU] = str(gpus - gone)
        if GPU_MILLI in found:
            found[GPU_MILLI] = str(max(0, _units(capacity[GPU_MILLI]) - 1000 * gone))
        return found
    cpus = quantity.parsed_or_none(capacity.get(CPU))
    if cpus is not None:
        gone = sum(number < cpus.milli // 1000 for number in disabled)
        found[CPU] = str(quantity.from_milli(cpus.milli - 1000 * gone))
    return found


def _units(text: object) -> int:
    found = quantity.parsed_or_none(text)
    return 0 if found is None else found.units
