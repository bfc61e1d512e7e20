"""Which pod groups are in which queue, in which phase, and what their pods hold. Kept up to date change by change."""

from collections import Counter
from collections.abc import Iterable, Mapping

from muster.api import quantity
from muster.api.quantity import Family

Amounts = Mapping[str, int]
"""cpu in thousandths, everything else in units."""

_PHASES = {"Pending": "pending", "Running": "running", "Inqueue": "inqueue", "Completed": "completed"}
_UNKNOWN = "unknown"
_BYTES = ("memory", "ephemeral-storage")


class Ledger:
    """Groups are known by any key. One owner."""

    def __init__(self) -> None:
        self._groups: dict[str, tuple[str, str]] = {}
        self._members: dict[str, dict[str, None]] = {}
        self._pods: dict[str, tuple[str, Amounts]] = {}
        self._used: dict[str, Counter[str]] = {}

    def queue_of(self, group: str) -> str | None:
        return self._groups[group][0] if group in self._groups else None

    def set_group(self, group: str, queue: str, phase: str | None) -> None:
        self.remove_group(group)
        self._groups[group] = (queue, _PHASES.get(phase or "Pending", _UNKNOWN))
        self._members.setdefault(queue, {})[group] = None

    def remove_group(self, group: str) -> None:
        known = self._groups.pop(group, None)
        if known is not None:
            members = self._members[known[0]]
            del members[group]
            if not members:
                del self._members[known[0]]

    def holds(self, pod: str) -> bool:
        return pod in self._pods

    def set_pod(self, pod: str, group: str, amounts: Amounts) -> None:
        """From now on the pod holds so much."""
        self.remove_pod(pod)
        self._pods[pod] = (group, amounts)
        self._used.setdefault(group, Counter()).update(amounts)

    def remove_pod(self, pod: str) -> None:
        known = self._pods.pop(pod, None)
        if known is None:
            return
        group, amounts = known
        used = self._used[group]
        used.subtract(amounts)
        if not any(used.values()):
            del self._used[group]

    def has_groups(self, queue: str) -> bool:
        return queue in self._members

    def counts(self, queue: str) -> dict[str, int]:
        """Pod groups by phase, as a queue's status names them."""
        phases = Counter(self._groups[group][1] for group in self._members.get(queue, ()))
        return {phase: phases[phase] for phase in (*_PHASES.values(), _UNKNOWN)}

    def allocated(self, queues: Iterable[str]) -> dict[str, str]:
        """What the pods of all these queues hold, as quantities."""
        total: Counter[str] = Counter()
        for queue in queues:
            for group in self._members.get(queue, ()):
                total.update(self._used.get(group, ()))
        return {name: _text(name, amount) for name, amount in sorted(total.items()) if amount}


def _text(name: str, amount: int) -> str:
    if name == "cpu":
        return str(quantity.from_milli(amount))
    return str(quantity.from_units(amount, Family.BINARY if name in _BYTES else Family.DECIMAL))
