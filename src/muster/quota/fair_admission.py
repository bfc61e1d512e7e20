"""Admission fair sharing: among the local queues of one cluster queue, who used little lately comes first.

Each local queue has an account: what its admitted workloads used, fading with time, and for each workload that was just
given quota a penalty, so that a queue does not get several in before its usage is sampled again. The past fades by
half in every half-life. Amounts are whole billionths of the resource's base unit (a core, a byte), rounded down.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from math import inf
from typing import Final

from muster.api import quantity
from muster.api.meta import Instant
from muster.quota.amounts import CPU, Requests, total
from muster.quota.gates import Gate
from muster.quota.queues import Queue
from muster.quota.settings import AdmissionFairSharing, Settings
from muster.quota.tree import ONE
from muster.quota.workloads import WorkloadInfo

NANO: Final = quantity.NANO
_NANO_OF_MILLI: Final = 1_000_000


def has_ledger(settings: Settings) -> bool:
    return settings.admission_fair_sharing is not None and Gate.ADMISSION_FAIR_SHARING in settings.gates


def is_usage_based(queue: Queue, settings: Settings) -> bool:
    """Past usage of its local queues decides the order of the queue."""
    return queue.is_usage_based and has_ledger(settings)


def charges_entry(info: WorkloadInfo, queue: Queue, settings: Settings) -> bool:
    """Whether its local queue is charged when it is given quota: not again on a second pass."""
    return is_usage_based(queue, settings) and not info.has_reservation


def faded(elapsed: float, half_life: float) -> float:
    """Which part of the past is forgotten after so many seconds. Nothing is where there is no half-life."""
    return 1.0 - 0.5 ** (elapsed / half_life) if half_life > 0 else 0.0


def in_nano(requests: Requests) -> dict[str, int]:
    return {resource: value * (_NANO_OF_MILLI if resource == CPU else NANO) for resource, value in requests.items()}


@dataclass(slots=True, eq=False)
class Account:
    """Of one local queue."""

    consumed: dict[str, int] = field(default_factory=dict)
    updated: Instant | None = None
    """None: never."""
    penalties: dict[str, Mapping[str, int]] = field(default_factory=dict)
    """By workload."""
    weight: Fraction = ONE
    usage: float | None = None
    """None: to be worked out."""


class Ledger:
    """The accounts, by `namespace/name` of the local queue."""

    def __init__(self, settings: Settings) -> None:
        assert settings.admission_fair_sharing is not None
        self._settings = settings
        self._config: AdmissionFairSharing = settings.admission_fair_sharing
        self._accounts: dict[str, Account] = {}
        self._charged: dict[str, str] = {}  # workload → local queue
        self.version = 0
        """Grows whenever the usage of a local queue may have changed."""

    # Questions

    def usage(self, local_queue: str) -> float:
        """What counts in the order: lower comes first. Of a queue of no weight: more than any other."""
        account = self._accounts.get(local_queue)
        if account is None:
            return 0.0
        if account.usage is None:
            account.usage = self._usage(account)
        return account.usage

    def account(self, local_queue: str) -> Account | None:
        return self._accounts.get(local_queue)

    def consumed(self, local_queue: str) -> dict[str, str]:
        """As the status of the local queue shows it."""
        account = self._accounts.get(local_queue)
        if account is None:
            return {}
        return {resource: str(quantity.Quantity(value)) for resource, value in account.consumed.items()}

    def is_charged_for(self, key: str) -> bool:
        """A penalty for the workload is pending."""
        return key in self._charged

    def due(self, local_queue: str) -> Instant | None:
        """When its usage is to be sampled next; None: it never was, so at once."""
        account = self._accounts.get(local_queue)
        if account is None or account.updated is None:
            return None
        return account.updated if account.penalties else Instant(account.updated + self._config.sampling_interval)

    # Changes

    def set_weight(self, local_queue: str, weight: Fraction) -> None:
        account = self._open(local_queue)
        account.weight = weight
        self._touch(account)

    def seed(self, local_queue: str, consumed: Mapping[str, str | int | float], at: Instant) -> None:
        """What the status of the local queue says: after a restart that is all that is known."""
        account = self._open(local_queue)
        account.consumed = {resource: quantity.parse(value).nano for resource, value in consumed.items()}
        account.updated = at
        self._touch(account)

    def remove(self, local_queue: str) -> None:
        account = self._accounts.pop(local_queue, None)
        if account is not None:
            self._touch(account)
            for key in account.penalties:
                del self._charged[key]

    def sample(self, local_queue: str, using: Requests, now: Instant) -> bool:
        """`using`: of its admitted workloads. False, and nothing changes, where it was sampled not long ago and nothing
        was charged since."""
        due = self.due(local_queue)
        if due is not None and now < due:
            return False
        self._sample(self._open(local_queue), using, now)
        return True

    def charge(self, info: WorkloadInfo, queue: Queue) -> None:
        """It was given quota. Only what the queue covers counts where the rest is free."""
        asked = total(pods.requests for pods in info.pod_sets)
        if self._settings.ignores_undeclared or queue.ignores_undeclared:
            asked = {resource: value for resource, value in asked.items() if resource in queue.by_resource}
        part = faded(self._config.sampling_interval, self._config.half_life)
        self.drop(info.key)
        account = self._open(info.local_queue)
        account.penalties[info.key] = _part(in_nano(asked), part)
        self._touch(account)
        self._charged[info.key] = info.local_queue

    def settle(self, key: str, using: Requests, now: Instant) -> None:
        """The workload has been admitted: its penalty becomes usage. `using`: of the admitted workloads of its local
        queue."""
        account, penalty = self._take_penalty(key)
        if account is None:
            return
        self._sample(account, using, now)
        for resource, value in penalty.items():
            account.consumed[resource] = account.consumed.get(resource, 0) + value

    def drop(self, key: str) -> None:
        """The workload was not admitted after all, or is gone."""
        self._take_penalty(key)

    # Within

    def _open(self, local_queue: str) -> Account:
        account = self._accounts.get(local_queue)
        if account is None:
            account = self._accounts[local_queue] = Account()
        return account

    def _touch(self, account: Account) -> None:
        account.usage = None
        self.version += 1

    def _take_penalty(self, key: str) -> tuple[Account | None, Mapping[str, int]]:
        local_queue = self._charged.pop(key, None)
        if local_queue is None:
            return None, {}
        account = self._accounts[local_queue]
        self._touch(account)
        return account, account.penalties.pop(key)

    def _sample(self, account: Account, using: Requests, now: Instant) -> None:
        self._touch(account)
        elapsed = max(0.0, now - account.updated) if account.updated is not None else 0.0
        account.updated = now
        if self._config.half_life <= 0:
            account.consumed = {}
            return
        forgotten = faded(elapsed, self._config.half_life)
        kept, added = _part(account.consumed, 1.0 - forgotten), _part(in_nano(using), forgotten)
        account.consumed = {resource: kept.get(resource, 0) + added.get(resource, 0) for resource in (kept | added)}

    def _usage(self, account: Account) -> float:
        if account.weight <= 0:
            return inf
        summed = total((account.consumed, *account.penalties.values()))
        weights = self._config.weights
        nano = sum((value * weights.get(resource, ONE) for resource, value in summed.items()), Fraction(0))
        return float(nano / NANO / account.weight)


def _part(amounts: Mapping[str, int], part: float) -> dict[str, int]:
    exact = Fraction(part)
    return {resource: int(value * exact) for resource, value in amounts.items()}
