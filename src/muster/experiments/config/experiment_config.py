"""The configuration of an experiment as it is understood: typed, complete, and as what trials are given. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from muster.api.raw import Document
from muster.experiments.config import searchers
from muster.experiments.config.log_policies import LogPolicy
from muster.experiments.config.searchers import Searcher
from muster.experiments.config.sections import (
    CheckpointPolicy,
    Integrations,
    Length,
    Optimizations,
    Profiling,
    Resources,
)
from muster.experiments.config.storage import CheckpointStorage
from muster.tasks.task_config import BindMount, Environment


@dataclass(frozen=True, slots=True)
class ExperimentConfig:
    name: str
    description: str
    labels: Sequence[str]
    data: Document
    workspace: str
    """Empty as the project is: where whoever asks says otherwise."""
    project: str
    entrypoint: str | Sequence[str]
    """A line for the shell, or words, or a trial class of old as `module:Class`. Empty: it runs elsewhere."""
    environment: Environment
    resources: Resources
    bind_mounts: Sequence[BindMount]
    hyperparameters: Document
    """All with their type; levels of names are objects without."""
    searcher: Searcher
    checkpoint_storage: CheckpointStorage
    checkpoint_policy: CheckpointPolicy
    min_validation_period: Length
    min_checkpoint_period: Length
    scheduling_unit: int
    records_per_epoch: int
    performs_initial_validation: bool
    max_restarts: int
    log_policies: Sequence[LogPolicy]
    log_retention_days: int | None
    """None: as the cluster has it. -1: for ever."""
    preemption_seconds: int
    """From the signal to the kill."""
    profiling: Profiling
    optimizations: Optimizations
    seed: int
    integrations: Integrations
    slurm: Document
    pbs: Document
    is_debug: bool
    warnings: Sequence[str] = field(default=(), compare=False)
    """What was accepted, and has no effect."""

    def document(self) -> Document:
        """With every key that the harness asks for; parsed again, it is this again."""
        return {
            "name": self.name,
            "description": self.description,
            "labels": list(self.labels),
            "data": self.data,
            "workspace": self.workspace,
            "project": self.project,
            "entrypoint": self.entrypoint if isinstance(self.entrypoint, str) else list(self.entrypoint),
            "environment": self.environment.document(),
            "resources": self.resources.document(),
            "bind_mounts": [mount.document() for mount in self.bind_mounts],
            "hyperparameters": self.hyperparameters,
            "searcher": searchers.document(self.searcher),
            "checkpoint_storage": self.checkpoint_storage.document(),
            "checkpoint_policy": self.checkpoint_policy.value,
            "min_validation_period": self.min_validation_period.document(),
            "min_checkpoint_period": self.min_checkpoint_period.document(),
            "scheduling_unit": self.scheduling_unit,
            "records_per_epoch": self.records_per_epoch,
            "perform_initial_validation": self.performs_initial_validation,
            "max_restarts": self.max_restarts,
            "log_policies": [policy.document() for policy in self.log_policies],
            "retention_policy": {"log_retention_days": self.log_retention_days},
            "preemption_timeout": self.preemption_seconds,
            "profiling": self.profiling.document(),
            "optimizations": self.optimizations.document(),
            "reproducibility": {"experiment_seed": self.seed},
            "integrations": self.integrations.document(),
            "slurm": self.slurm,
            "pbs": self.pbs,
            "debug": self.is_debug,
        }
