"""The configuration of an experiment from all who have a say in it. Pure.

The user's word goes before the template's, that before the workspace's checkpoint storage, that before what the cluster
gives every task, and that before our own defaults; what policies fix goes before all. Every key that Determined knows
is honoured, or refused with what to use instead. Neither time nor chance is in here: the name and the seed of an
experiment that has none are arguments.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from muster.accounts import policies
from muster.accounts.policies import Policy
from muster.api import raw
from muster.api.raw import JSON, Document
from muster.experiments.config import layering, log_policies, reading, searchers, shapes, storage
from muster.experiments.config.experiment_config import ExperimentConfig
from muster.experiments.config.storage import CheckpointStorage, Directory, SharedFs
from muster.tasks import config_fields, config_sections
from muster.tasks.config_fields import Fields
from muster.tasks.config_sections import Allowed
from muster.tasks.container_defaults import ContainerDefaults
from muster.tasks.pod_specs import check_pod_spec

LONGEST_NAME: Final = 254


@dataclass(frozen=True, slots=True)
class Layers:
    """All that a configuration is made from, the weakest first. `policies`: a workspace's before the cluster's."""

    name: str
    """Where nobody gives one."""
    seed: int
    """Where nobody gives one."""
    cluster_storage: Mapping[str, JSON] = field(default_factory=dict)
    container_defaults: ContainerDefaults = field(default_factory=ContainerDefaults)
    workspace_storage: Mapping[str, JSON] = field(default_factory=dict)
    accepted: Mapping[str, JSON] = field(default_factory=dict)
    """Of the experiment that is continued: what it mounts was allowed."""
    template: Mapping[str, JSON] = field(default_factory=dict)
    user: Mapping[str, JSON] = field(default_factory=dict)
    policies: Sequence[Policy] = ()
    is_unmanaged: bool = False
    """It runs elsewhere: nothing is started, mounted or searched here."""


def parse(layers: Layers, allowed: Allowed) -> ExperimentConfig:
    """Raises BadRequest with all that is wrong."""
    merged = _merged([*_by_cluster(layers), layers.accepted, layers.template, layers.user, *_fixed(layers)])
    problems = [*policies.violations(merged, policies.constraints(layers.policies))]
    config = _read(Fields(merged, problems=problems), layers)
    if not layers.is_unmanaged:
        trusted = _merged([*_by_cluster(layers), layers.accepted, *_fixed(layers)])
        problems += config_sections.mounts_refused(config.bind_mounts, trusted, allowed)
        problems += check_pod_spec(config.environment.pod_spec, allowed.allows)
        storages = [layers.cluster_storage, layers.workspace_storage, trusted.get("checkpoint_storage")]
        problems += _storage_refused(config.checkpoint_storage, storages, allowed)
    config_fields.refuse(problems, "config")
    return config


def placed(config: ExperimentConfig, default_pool: str, available: Iterable[str]) -> ExperimentConfig:
    """See `config_sections.placed`."""
    pool = config_sections.placed(config.resources.pool, default_pool, available)
    return replace(config, resources=replace(config.resources, pool=pool))


def _by_cluster(layers: Layers) -> Iterator[Mapping[str, JSON]]:
    yield {"log_policies": [policy.document() for policy in log_policies.DEFAULTS]}
    yield {"checkpoint_storage": layers.cluster_storage or None}
    given = layers.container_defaults
    yield {name: value for name, value in given.config.items() if name != "work_dir"}  # trials have their own
    yield {"log_policies": given.log_policies, "preemption_timeout": given.preemption_seconds}
    yield {"checkpoint_storage": layers.workspace_storage or None}


def _fixed(layers: Layers) -> Iterator[Mapping[str, JSON]]:
    return (policy.invariant for policy in layers.policies)


def _merged(documents: Iterable[Mapping[str, JSON]]) -> Document:
    merged: Document = {}
    for document in documents:
        merged = layering.over(merged, shapes.plain(document))
    return merged


def _read(fields: Fields, layers: Layers) -> ExperimentConfig:
    warnings: list[str] = []
    held = policies.constraints(layers.policies)
    hyperparameters = fields.document("hyperparameters")
    config = ExperimentConfig(
        name=_name(fields) or layers.name,
        description=fields.text("description"),
        labels=tuple(dict.fromkeys(fields.texts("labels"))),
        data=fields.document("data"),
        workspace=fields.text("workspace"),
        project=fields.text("project"),
        entrypoint=reading.read_entrypoint(fields, is_unmanaged=layers.is_unmanaged),
        environment=config_sections.read_environment(fields.inside("environment")),
        resources=reading.read_resources(fields.inside("resources"), held, warnings),
        bind_mounts=config_sections.read_bind_mounts(fields),
        hyperparameters=hyperparameters,
        searcher=searchers.read(fields, hyperparameters, is_unmanaged=layers.is_unmanaged),
        checkpoint_storage=_storage(fields),
        checkpoint_policy=reading.read_checkpoint_policy(fields),
        min_validation_period=reading.read_length(fields, "min_validation_period"),
        min_checkpoint_period=reading.read_length(fields, "min_checkpoint_period"),
        scheduling_unit=fields.integer("scheduling_unit", least=1) or 100,
        records_per_epoch=fields.integer("records_per_epoch") or 0,
        performs_initial_validation=fields.flag("perform_initial_validation"),
        max_restarts=_or(fields.integer("max_restarts"), 5),
        log_policies=log_policies.read(fields),
        log_retention_days=reading.read_retention(fields.inside("retention_policy")),
        preemption_seconds=fields.integer("preemption_timeout") or 0,
        profiling=reading.read_profiling(fields.inside("profiling")),
        optimizations=reading.read_optimizations(fields.inside("optimizations")),
        seed=reading.read_seed(fields.inside("reproducibility"), layers.seed),
        integrations=reading.read_integrations(fields.inside("integrations")),
        slurm=reading.read_batch_system(fields.inside("slurm"), "sbatch_args", "gpu_type"),
        pbs=reading.read_batch_system(fields.inside("pbs"), "pbsbatch_args"),
        is_debug=fields.flag("debug"),
    )
    if bool(config.workspace) != bool(config.project):
        fields.problem("project" if config.workspace else "workspace", "is missing: both are given, or neither")
    reading.ignore_gone(fields, warnings)
    fields.finish()
    return replace(config, warnings=tuple(warnings))


def _name(fields: Fields) -> str:
    found = fields.text("name").strip()
    if len(found) > LONGEST_NAME:
        fields.problem("name", f"must have at most {LONGEST_NAME} characters")
    return found


def _storage(fields: Fields) -> CheckpointStorage:
    found = storage.read(fields)
    if found is None:
        fields.problem("checkpoint_storage", "must be given, as neither the workspace nor the cluster has one")
        return CheckpointStorage(Directory(""))
    return found


def _or(value: int | None, default: int) -> int:
    return default if value is None else value


def _storage_refused(wanted: CheckpointStorage, trusted: Iterable[JSON], allowed: Allowed) -> Iterator[str]:
    """A shared file system is mounted as bind mounts are. `trusted`: those that administrators set up."""
    if not isinstance(wanted.place, SharedFs):
        return
    path = wanted.place.host_path
    if path not in (raw.dig(storage, "host_path") for storage in trusted) and not allowed.allows(path):
        yield allowed.refusal("checkpoint_storage.host_path", path)
