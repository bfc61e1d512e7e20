"""What an administrator may set for admission as a whole, with Kueue's defaults.

`PodsReady` is off unless it is configured: on a laptop, slow is not failed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction

from muster.api.managing import USUAL_NAMESPACES
from muster.api.selectors import LabelSelector
from muster.quota.gates import Gates


class ShareRule(StrEnum):
    """When a queue may take from another under fair sharing."""

    FINAL = "LessThanOrEqualToFinalShare"
    INITIAL = "LessThanInitialShare"


@dataclass(frozen=True, slots=True)
class FairSharing:
    rules: tuple[ShareRule, ...] = (ShareRule.FINAL, ShareRule.INITIAL)


@dataclass(frozen=True, slots=True)
class AdmissionFairSharing:
    """Between the local queues of one cluster queue, by what they used before."""

    half_life: float = 0.0
    """Seconds in which past usage loses half of its weight; 0: the past does not count."""
    sampling_interval: float = 300.0
    weights: Mapping[str, Fraction] = field(default_factory=dict)
    """By resource; 1 where nothing is said."""


@dataclass(frozen=True, slots=True)
class PodsReady:
    """How long an admitted workload may take until all its pods are ready, and what then."""

    timeout: float = 1800.0
    recovery_timeout: float | None = 1800.0
    """None: pods that were ready once may take as long as they like to come back."""
    blocks_admission: bool = False
    backoff_base: float = 60.0
    backoff_max: float = 3600.0
    backoff_limit: int | None = None


@dataclass(frozen=True, slots=True)
class Transformation:
    """A resource that is counted as others. `outputs`: by resource, how much for one unit of the input."""

    input: str
    keeps_input: bool = True
    outputs: Mapping[str, Fraction] = field(default_factory=dict)
    multiply_by: str | None = None


@dataclass(frozen=True, slots=True)
class Metrics:
    """What is measured beyond the usual. Kueue leaves out amounts unless it is told otherwise; here they cost nothing
    until somebody asks for them."""

    amounts: bool = True
    """Quotas, and what is used of them."""
    local_queues: bool = True
    local_queue_selector: LabelSelector = field(default_factory=LabelSelector)
    """Which local queues, by their labels."""


@dataclass(frozen=True, slots=True)
class Retention:
    """How many seconds workloads are kept; None: until somebody deletes them."""

    finished: float | None = None
    deactivated: float | None = None
    """Those that quota deactivated, with their jobs."""

    @property
    def is_limited(self) -> bool:
        return self.finished is not None or self.deactivated is not None


@dataclass(frozen=True, slots=True)
class Settings:
    gates: Gates = field(default_factory=Gates.default)
    fair_sharing: FairSharing | None = None
    admission_fair_sharing: AdmissionFairSharing | None = None
    pods_ready: PodsReady | None = None
    requeues_by_eviction_time: bool = True
    """A workload whose pods were not ready in time queues again from when it was evicted, not from when it was made."""
    ignores_undeclared: bool = False
    """Resources that a queue does not cover are free there, instead of keeping the workload out."""
    excluded_prefixes: tuple[str, ...] = ()
    transformations: tuple[Transformation, ...] = ()
    copied_labels: tuple[str, ...] = ()
    """Labels of a job that its workload gets too, when it is made."""
    managed_namespaces: LabelSelector = USUAL_NAMESPACES
    """Whose jobs queue."""
    retention: Retention = Retention()
    metrics: Metrics = field(default_factory=Metrics)
    placement_patience: float = 30.0
    """Seconds that a pod may stay unschedulable where its topology assignment put it; then the workload is put back."""
