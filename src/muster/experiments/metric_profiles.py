"""Metrics of machines, as profilers name them: by agent, and by the device of it where there are several. Pure, but for
what reads the records."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection

from muster.experiments import metric_blocks
from muster.experiments.metric_reports import SEPARATOR, SYSTEM
from muster.experiments.series import Series
from muster.experiments.states import TrialId

_OTHER: Final = "profiling"
"""The group of what is measured inside a program, such as how long a batch takes to be read."""
_GROUPS: Final[Mapping[str, str]] = {
    "cpu": "cpu",
    "memory": "memory",
    "free_memory": "memory",
    "gpu": "gpu",
    "disk": "disk",
    "net": "network",
}
"""By how a name begins."""


@dataclass(frozen=True, slots=True)
class Label:
    """`device`: of the agent, where it has several; "" where it has not."""

    group: str
    name: str
    agent: str = ""
    device: str = ""

    @property
    def path(self) -> str:
        return SEPARATOR.join(part for part in (self.agent, self.device, self.name) if part)


def group_of(name: str, *, is_of_system: bool) -> str:
    """Where a metric belongs that comes without a group."""
    if not is_of_system:
        return _OTHER
    return next((group for start, group in _GROUPS.items() if name.startswith(start)), _OTHER)


def labels(connection: Connection, trial: TrialId) -> Sequence[Label]:
    """Of all that was measured about a trial's machines."""
    return [
        label
        for group in (*SYSTEM, _OTHER)
        for path in sorted(metric_blocks.read(connection, trial, group, lambda _: True))
        if (label := _label(group, path)) is not None
    ]


def series(connection: Connection, trial: TrialId, label: Label) -> Series | None:
    """None where nothing was measured."""
    return metric_blocks.read(connection, trial, label.group, lambda path: path == label.path).get(label.path)


def _label(group: str, path: str) -> Label | None:
    match path.split(SEPARATOR):
        case [name]:
            return Label(group, name)
        case [agent, name]:
            return Label(group, name, agent)
        case [agent, device, name]:
            return Label(group, name, agent, device)
        case _:
            return None
