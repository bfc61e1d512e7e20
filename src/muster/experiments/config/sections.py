"""The smaller sections of an experiment's configuration: as they are understood, and as documents. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from muster.api.raw import Document
from muster.engines.protocol import DEFAULT_PRIORITY


class CheckpointPolicy(StrEnum):
    """After which validations there is a checkpoint."""

    BEST = "best"
    ALL = "all"
    NONE = "none"


class Unit(StrEnum):
    BATCHES = "batches"
    RECORDS = "records"
    EPOCHS = "epochs"


@dataclass(frozen=True, slots=True)
class Length:
    """Of training."""

    value: int = 0
    unit: Unit = Unit.BATCHES

    def document(self) -> Document:
        return {self.unit.value: self.value}


@dataclass(frozen=True, slots=True)
class Resources:
    slots_per_trial: int = 1
    max_slots: int | None = None
    """Of all its trials together; None for no limit."""
    weight: float = 1.0
    priority: int = DEFAULT_PRIORITY
    pool: str = ""
    """Empty: the workspace's, or the default one."""
    is_single_node: bool = False
    shm_bytes: int | None = None
    budget_gpu_hours: float | None = None
    """After so many no trial is started any more, and those that run are asked to end."""

    def document(self) -> Document:
        return {
            "slots_per_trial": self.slots_per_trial,
            "max_slots": self.max_slots,
            "weight": self.weight,
            "priority": self.priority,
            "resource_pool": self.pool,
            "is_single_node": self.is_single_node,
            "shm_size": self.shm_bytes,
            "budget_gpu_hours": self.budget_gpu_hours,
            "devices": [],
            "native_parallel": False,
        }


@dataclass(frozen=True, slots=True)
class Profiling:
    is_enabled: bool = False
    begin_on_batch: int = 0
    end_after_batch: int | None = None
    is_synchronous: bool = True

    def document(self) -> Document:
        return {
            "enabled": self.is_enabled,
            "begin_on_batch": self.begin_on_batch,
            "end_after_batch": self.end_after_batch,
            "sync_timings": self.is_synchronous,
        }


@dataclass(frozen=True, slots=True)
class Optimizations:
    """What trial classes of old are run with."""

    aggregation_frequency: int = 1
    average_aggregated_gradients: bool = True
    average_training_metrics: bool = True
    gradient_compression: bool = False
    grad_updates_size_file: str | None = None
    mixed_precision: str = "O0"
    tensor_fusion_threshold: int = 64
    tensor_fusion_cycle_time: int = 1
    auto_tune_tensor_fusion: bool = False

    def document(self) -> Document:
        return {
            "aggregation_frequency": self.aggregation_frequency,
            "average_aggregated_gradients": self.average_aggregated_gradients,
            "average_training_metrics": self.average_training_metrics,
            "gradient_compression": self.gradient_compression,
            "grad_updates_size_file": self.grad_updates_size_file,
            "mixed_precision": self.mixed_precision,
            "tensor_fusion_threshold": self.tensor_fusion_threshold,
            "tensor_fusion_cycle_time": self.tensor_fusion_cycle_time,
            "auto_tune_tensor_fusion": self.auto_tune_tensor_fusion,
        }


@dataclass(frozen=True, slots=True)
class Webhooks:
    """Which of the workspace's are told. None named: those that are told of all experiments."""

    ids: Sequence[int] = ()
    names: Sequence[str] = ()
    are_excluded: bool = False
    """Nobody is told."""

    def document(self) -> Document:
        return {"webhook_id": list(self.ids), "webhook_name": list(self.names), "exclude": self.are_excluded}


@dataclass(frozen=True, slots=True)
class Integrations:
    """`pachyderm`: for training code and clients to read; nothing here acts on it."""

    webhooks: Webhooks = Webhooks()
    pachyderm: Document | None = None

    def document(self) -> Document:
        return {"webhooks": self.webhooks.document(), "pachyderm": self.pachyderm}
