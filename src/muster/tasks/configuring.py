"""From what users, templates, policies and the cluster say to the configuration of one task. Pure.

The user's word goes before the template's, that before the cluster's defaults; what policies fix goes before all.
Every key that Determined knows is honoured, or refused with what to use instead. What is printed as a task's
configuration can be given again.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Final

from muster.accounts import policies
from muster.accounts.policies import Constraints, Policy
from muster.api.raw import JSON
from muster.engines.protocol import DEFAULT_PRIORITY
from muster.tasks import config_fields, config_sections
from muster.tasks.config_fields import Fields
from muster.tasks.config_sections import Allowed
from muster.tasks.pod_specs import check_pod_spec
from muster.tasks.task_config import IdleType, Resources, TaskConfig, TaskType

_OF_EXPERIMENTS: Final = (
    "hyperparameters", "searcher", "checkpoint_storage", "checkpoint_policy", "max_restarts", "profiling", "labels",
    "min_validation_period", "min_checkpoint_period", "records_per_epoch", "reproducibility", "log_policies",
    "name", "workspace", "project", "data", "integrations", "optimizations", "perform_initial_validation",
    "scheduling_unit", "retention_policy",
)  # fmt: skip
_LONGEST_DESCRIPTION: Final = 1000


@dataclass(frozen=True, slots=True)
class Layers:
    """All that a configuration is made from, the weakest first. `policies`: a workspace's before the cluster's."""

    defaults: Mapping[str, JSON] = field(default_factory=dict)
    """See `container_defaults.ContainerDefaults.config`."""
    template: Mapping[str, JSON] = field(default_factory=dict)
    user: Mapping[str, JSON] = field(default_factory=dict)
    policies: Sequence[Policy] = ()


def configure(kind: TaskType, layers: Layers, allowed: Allowed) -> TaskConfig:
    """Raises BadRequest with all that is wrong."""
    problems: list[str] = []
    if kind in (TaskType.NOTEBOOK, TaskType.SHELL, TaskType.TENSORBOARD) and layers.user.get("entrypoint"):
        problems.append(f"entrypoint: a {kind.words} has its own; use a command for what is to run otherwise")
    fixed = [Policy(config_sections.plain(policy.invariant), policy.constraints) for policy in layers.policies]
    defaults = config_sections.plain(layers.defaults)
    by_admins = policies.merge(defaults, fixed)
    merged = policies.merge(defaults, [_layer(layers.template), _layer(layers.user), *fixed])
    problems += policies.violations(merged, policies.constraints(layers.policies))
    fields = Fields(merged, problems=problems)
    config = _read(kind, fields)
    problems += config_sections.mounts_refused(config.bind_mounts, by_admins, allowed)
    problems += check_pod_spec(config.environment.pod_spec, allowed.allows)
    config_fields.refuse(problems, "config")
    return config


def _layer(document: Mapping[str, JSON]) -> Policy:
    """Policies are put over a configuration just as users' words are put over a template's."""
    return Policy(config_sections.plain(document), Constraints())


def _read(kind: TaskType, fields: Fields) -> TaskConfig:
    is_generic = kind is TaskType.GENERIC
    description = fields.text("description")
    if len(description) > _LONGEST_DESCRIPTION:
        fields.problem("description", f"must have at most {_LONGEST_DESCRIPTION} characters")
    config = TaskConfig(
        description=description,
        entrypoint=_entrypoint(kind, fields),
        environment=config_sections.read_environment(fields.inside("environment")),
        resources=_resources(kind, fields.inside("resources")),
        bind_mounts=config_sections.read_bind_mounts(fields),
        idle_seconds=fields.duration("idle_timeout"),
        notebook_idle_type=IdleType(
            fields.text("notebook_idle_type", IdleType.KERNELS_OR_TERMINALS, choices=[*IdleType])
        ),
        work_dir=fields.text("work_dir"),
        tensorboard_args=fields.texts("tensorboard_args"),
        is_debug=fields.flag("debug"),
        preemption_seconds=fields.integer("preemption_timeout") if is_generic else None,
    )
    if not is_generic:
        told = "a task of this kind is never asked to stop, but killed; use a generic task (det task create)"
        fields.refuse("preemption_timeout", told, unless=[None])
    if config.work_dir and not PurePosixPath(config.work_dir).is_absolute():
        fields.problem("work_dir", f"must be an absolute path, found {config.work_dir!r}")
    for name in ("slurm", "pbs"):
        fields.refuse(name, "tasks run as pods here; environment.pod_spec says what is special about them")
    for name in _OF_EXPERIMENTS:
        fields.refuse(name, "is for experiments only: leave it out")
    fields.finish()
    return config


def _entrypoint(kind: TaskType, fields: Fields) -> tuple[str, ...]:
    is_line = isinstance(fields.raw("entrypoint"), str)
    words = (fields.text("entrypoint"),) if is_line else fields.texts("entrypoint")
    if kind in (TaskType.COMMAND, TaskType.GENERIC) and not any(words):
        fields.problem("entrypoint", "must name what to run, as a list of words or as a line for the shell")
    return words


def _resources(kind: TaskType, fields: Fields) -> Resources:
    usual = 0 if kind is TaskType.TENSORBOARD else 1
    slots = fields.integer("slots", usual, most=100_000)
    found = Resources(
        slots=usual if slots is None else slots,
        pool=fields.text("resource_pool"),
        priority=fields.integer("priority", DEFAULT_PRIORITY, least=1, most=99) or DEFAULT_PRIORITY,
        shm_bytes=fields.size("shm_size"),
        is_single_node=fields.flag("is_single_node", True) if kind is TaskType.GENERIC else True,
    )
    if kind is not TaskType.GENERIC:
        fields.refuse("is_single_node", "a task of this kind is on one node", unless=[True])
    shares = "shares are of queues, and set by fairSharing.weight of the pool's ClusterQueue; use resources.priority"
    fields.refuse("weight", shares, unless=[1, 1.0])
    fields.refuse("slots_per_trial", "is for experiments; use resources.slots")
    fields.refuse("max_slots", "is for experiments; a task has the slots that it asks for", unless=[slots])
    fields.refuse("agent_label", "use resources.resource_pool")
    fields.refuse("native_parallel", "use resources.slots", unless=[False])
    fields.refuse("devices", config_fields.DEVICES_INSTEAD)
    fields.finish()
    return found


def placed(config: TaskConfig, default_pool: str, available: Iterable[str]) -> TaskConfig:
    """See `config_sections.placed`."""
    pool = config_sections.placed(config.resources.pool, default_pool, available)
    return replace(config, resources=replace(config.resources, pool=pool))


def with_user(config: TaskConfig, username: str, agent_user: str) -> TaskConfig:
    """With who it runs for filled in where the working directory names them."""
    path = config.work_dir.replace("$DET_USER", username).replace("$AGENT_USER", agent_user or "root")
    return replace(config, work_dir=path)
