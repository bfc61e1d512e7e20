"""From the merged document of an experiment's configuration to its typed sections, or to all that is wrong. Pure."""

import re
from collections.abc import Sequence
from typing import Final

from muster.accounts.policies import Constraints
from muster.api.raw import JSON, Document
from muster.engines.protocol import DEFAULT_PRIORITY
from muster.experiments.config.sections import (
    CheckpointPolicy,
    Integrations,
    Length,
    Optimizations,
    Profiling,
    Resources,
    Unit,
    Webhooks,
)
from muster.tasks.config_fields import Fields

MOST_SLOTS: Final = 100_000
_MOST_SEED: Final = 2**32 - 1
_MOST_DAYS: Final = 32767
_PRECISIONS: Final = ("O0", "O1", "O2", "O3")
_UNSUPPORTED: Final = re.compile(r"\bdetermined\.launch\.(horovod|deepspeed)\b")
_GONE: Final = ("data_layer", "internal", "security", "tensorboard_storage")


def read_entrypoint(fields: Fields, *, is_unmanaged: bool) -> str | Sequence[str]:
    is_line = isinstance(fields.raw("entrypoint"), str)
    found = fields.text("entrypoint") if is_line else fields.texts("entrypoint")
    text = found if isinstance(found, str) else " ".join(found)
    if not text.strip() and not is_unmanaged:
        fields.problem("entrypoint", "must name what to run, as a line for the shell or as a list of words")
    launcher = _UNSUPPORTED.search(text)
    if launcher is not None:
        fields.problem("entrypoint", f"{launcher[0]} is not supported: use determined.launch.torch_distributed")
    return found


def read_resources(fields: Fields, held: Constraints, warnings: list[str]) -> Resources:
    """`held`: what policies set; it is what counts where the configuration says nothing."""
    usual = max(DEFAULT_PRIORITY, held.priority_limit or 0)
    slots = fields.integer("slots_per_trial", 1, most=MOST_SLOTS)
    most = fields.integer("max_slots", held.max_slots, most=MOST_SLOTS)
    found = Resources(
        slots_per_trial=1 if slots is None else slots,
        max_slots=most,
        weight=fields.number("weight", 1.0, above=0) or 1.0,
        priority=fields.integer("priority", least=1, most=99) or usual,
        pool=fields.text("resource_pool"),
        is_single_node=fields.flag("is_single_node"),
        shm_bytes=fields.size("shm_size"),
        budget_gpu_hours=fields.number("budget_gpu_hours", above=0),
    )
    if most is not None and found.slots_per_trial > most:
        fields.problem("slots_per_trial", f"no trial could run: it is {found.slots_per_trial}, and max_slots is {most}")
    ignore(fields, "slots", "is for other tasks: trials have resources.slots_per_trial", warnings)
    ignore(fields, "agent_label", "there are no labels of agents: use resources.resource_pool", warnings)
    fields.refuse("native_parallel", "use determined.launch.torch_distributed in the entrypoint")
    fields.refuse("devices", "a trial sees the devices of its slots, and no others")
    fields.finish()
    return found


def read_checkpoint_policy(fields: Fields) -> CheckpointPolicy:
    return CheckpointPolicy(fields.text("checkpoint_policy", CheckpointPolicy.BEST, choices=[*CheckpointPolicy]))


def read_length(fields: Fields, name: str) -> Length:
    if fields.raw(name) is None:
        return Length()
    inside = fields.inside(name)
    given = [unit for unit in Unit if inside.raw(unit) is not None]
    inside.finish()
    if len(given) != 1:
        fields.problem(name, f"must have one of {', '.join(Unit)}, as {{batches: 100}}")
        return Length()
    return Length(inside.integer(given[0], 0) or 0, given[0])


def read_profiling(fields: Fields) -> Profiling:
    found = Profiling(
        is_enabled=fields.flag("enabled"),
        begin_on_batch=fields.integer("begin_on_batch", 0) or 0,
        end_after_batch=fields.integer("end_after_batch"),
        is_synchronous=fields.flag("sync_timings", True),
    )
    if found.end_after_batch is not None and found.end_after_batch < found.begin_on_batch:
        fields.problem("end_after_batch", f"must not be below begin_on_batch, which is {found.begin_on_batch}")
    fields.finish()
    return found


def read_optimizations(fields: Fields) -> Optimizations:
    usual = Optimizations()
    found = Optimizations(
        aggregation_frequency=fields.integer("aggregation_frequency", least=1) or usual.aggregation_frequency,
        average_aggregated_gradients=fields.flag("average_aggregated_gradients", usual.average_aggregated_gradients),
        average_training_metrics=fields.flag("average_training_metrics", usual.average_training_metrics),
        gradient_compression=fields.flag("gradient_compression", usual.gradient_compression),
        grad_updates_size_file=fields.text("grad_updates_size_file") or None,
        mixed_precision=fields.text("mixed_precision", usual.mixed_precision, choices=_PRECISIONS),
        tensor_fusion_threshold=fields.integer("tensor_fusion_threshold", usual.tensor_fusion_threshold) or 0,
        tensor_fusion_cycle_time=fields.integer("tensor_fusion_cycle_time", usual.tensor_fusion_cycle_time) or 0,
        auto_tune_tensor_fusion=fields.flag("auto_tune_tensor_fusion", usual.auto_tune_tensor_fusion),
    )
    fields.finish()
    return found


def read_seed(fields: Fields, fallback: int) -> int:
    found = fields.integer("experiment_seed", fallback, most=_MOST_SEED)
    fields.finish()
    return fallback if found is None else found


def read_retention(fields: Fields) -> int | None:
    found = fields.integer("log_retention_days", least=-1, most=_MOST_DAYS)
    fields.finish()
    return found


def read_integrations(fields: Fields) -> Integrations:
    hooks = fields.inside("webhooks")
    webhooks = Webhooks(hooks.integers("webhook_id"), hooks.texts("webhook_name"), hooks.flag("exclude"))
    hooks.finish()
    pachyderm = None
    if fields.raw("pachyderm") is not None:
        inside = fields.inside("pachyderm")
        pachyderm = {
            "pachd": _texts(inside.inside("pachd"), "host", with_port=True),
            "proxy": _texts(inside.inside("proxy"), "scheme", "host", with_port=True),
            "dataset": _texts(inside.inside("dataset"), "project", "repo", "commit", "branch", "token"),
        }
        inside.finish()
    fields.finish()
    return Integrations(webhooks, pachyderm)


def _texts(fields: Fields, *names: str, with_port: bool = False) -> Document:
    found: Document = {name: fields.text(name) for name in names}
    if with_port:
        found["port"] = fields.integer("port", most=65535)
    fields.finish()
    return found


def read_batch_system(fields: Fields, arguments: str, *texts: str) -> Document:
    """What Slurm or PBS would be told: for those who look at it."""
    found: Document = {
        "slots_per_node": fields.integer("slots_per_node", least=1),
        arguments: list(fields.texts(arguments)),
        **{name: fields.text(name) for name in texts},
    }
    fields.finish()
    return {name: value for name, value in found.items() if value}


def ignore_gone(fields: Fields, warnings: list[str]) -> None:
    """What old files still have, and what is said to other systems."""
    for name in ("slurm", "pbs"):
        ignore(fields, name, "trials run as pods here: environment.pod_spec says what is special about them", warnings)
    for name in _GONE:
        ignore(fields, name, "there is nothing of the kind any more", warnings)


def ignore(fields: Fields, name: str, why: str, warnings: list[str]) -> None:
    found: JSON = fields.raw(name)
    if found not in (None, "", {}, []):
        warnings.append(f"{fields.at(name)}: has no effect: {why}")
