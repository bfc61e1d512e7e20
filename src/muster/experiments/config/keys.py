"""Every key of an experiment's configuration, and what it is for. A test holds it against what is read.

`searcher` and `hyperparameters` are not in here: package `search` has them, and docs/reference/search.md.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from muster.api.raw import Document

Path: TypeAlias = tuple[str | int, ...]
REFUSED: Final = "Refused: "
NO_EFFECT: Final = "No effect: "
_LENGTH: Final = "{batches: n}`, or in `records` or `epochs`; 0 for never. For trial classes of old."
_DEVICES: Final = {
    "cpu": "For trials without GPU.",
    "cuda": "For trials on GPUs of NVIDIA.",
    "rocm": "On those of AMD.",
}
_SAVED: Final = {
    "save_experiment_best": "How many of the best checkpoints of all trials stay when the experiment has ended.",
    "save_trial_best": "How many of the best of each trial stay.",
    "save_trial_latest": "How many of the latest of each trial stay.",
}


@dataclass(frozen=True, slots=True)
class Section:
    """`example`: what must be said for the section to be there. Its keys are those that must be given."""

    title: str
    path: Path
    keys: Mapping[str, str]
    text: str = ""
    example: Document = field(default_factory=dict)


def _storage(kind: str, text: str, required: Document, keys: Mapping[str, str]) -> Section:
    return Section(
        f"checkpoint_storage: {kind}",
        ("checkpoint_storage",),
        {"type": f"`{kind}`", **keys, **_SAVED},
        text,
        {"checkpoint_storage": {"type": kind, **required}},
    )


SECTIONS: Final[Sequence[Section]] = (
    Section(
        "The whole",
        (),
        {
            "name": "For people to find it by. One is made up where none is given.",
            "description": "For people.",
            "labels": "Words to find it by, as a list or as an object of flags.",
            "data": "What training code wants to know: `ClusterInfo.user_data`. Values under `secrets` are not shown.",
            "workspace": "Where it belongs, by name. With `project`, or neither: then whoever submits it says where.",
            "project": "See `workspace`.",
            "entrypoint": "What a trial runs: a line for the shell, or a list of words. `module:Class`, a trial class "
            "of old, is run by `determined.launch.torch_distributed`. `determined.launch.horovod` and `deepspeed` are "
            "refused: use `torch_distributed`. Unmanaged experiments need none.",
            "environment": "See below.",
            "resources": "See below.",
            "bind_mounts": "See below.",
            "hyperparameters": "See [search](search.md). A value without `type` is a constant; names can have levels.",
            "searcher": "See [search](search.md). Unmanaged experiments may have `custom`: trials are made elsewhere.",
            "checkpoint_storage": "See below. Where it says nothing, that of the workspace or of the cluster is taken.",
            "checkpoint_policy": "Which validations trainers save a checkpoint after: `best`, `all` or `none`.",
            "min_validation_period": f"At least how often they validate: `{_LENGTH}",
            "min_checkpoint_period": f"At least how often they save: `{_LENGTH}",
            "scheduling_unit": "After how many batches trial classes of old report and look for signals.",
            "records_per_epoch": "For trial classes of old.",
            "perform_initial_validation": "Whether trainers validate before they train.",
            "max_restarts": "How often a trial that failed is tried again.",
            "log_policies": "See below.",
            "retention_policy": "See below.",
            "preemption_timeout": "Seconds from the signal that asks a trial to end to its kill. The cluster can have "
            "another default, in `task_container_defaults`.",
            "profiling": "See below.",
            "optimizations": "See below.",
            "reproducibility": "See below.",
            "integrations": "See below.",
            "slurm": f"{NO_EFFECT}it is kept, and trials run as pods: `environment.pod_spec`.",
            "pbs": f"{NO_EFFECT}it is kept, and trials run as pods: `environment.pod_spec`.",
            "debug": "Whether the harness says more in the log.",
            "data_layer": f"{NO_EFFECT}gone.",
            "internal": f"{NO_EFFECT}gone.",
            "security": f"{NO_EFFECT}gone.",
            "tensorboard_storage": f"{NO_EFFECT}gone: event files are with the checkpoints.",
        },
    ),
    Section(
        "environment",
        ("environment",),
        {
            "image": "Of the container: a text, or one for each device.",
            "environment_variables": "A list of `NAME=value`, or one for each device. The first of a name counts.",
            "proxy_ports": "Ports of the trial that are reached through the server; see below.",
            "ports": "Ports that the trial uses, by name.",
            "force_pull_image": "Whether the image is fetched each time.",
            "add_capabilities": "Of Linux.",
            "drop_capabilities": "Of Linux.",
            "pod_spec": "What is special about the pod: node selector, tolerations, affinity, volumes and the like.",
            "registry_auth": f"{REFUSED}use `imagePullSecrets` in `environment.pod_spec`.",
        },
    ),
    Section("environment.image", ("environment", "image"), _DEVICES, "`gpu` is an old name of `cuda`."),
    Section("environment.environment_variables", ("environment", "environment_variables"), _DEVICES),
    Section(
        "environment.proxy_ports",
        ("environment", "proxy_ports", 0),
        {
            "proxy_port": "The port.",
            "proxy_tcp": "Whether it speaks something else than HTTP.",
            "unauthenticated": "Whether anybody may reach it.",
            "default_service_id": f"{REFUSED}a port is reached as `<task>:<port>`.",
        },
        "A list of objects.",
        {"environment": {"proxy_ports": [{"proxy_port": 8080}]}},
    ),
    Section(
        "resources",
        ("resources",),
        {
            "slots_per_trial": "How many slots a trial has; more than a node has make it a gang over several.",
            "max_slots": "How many slots all its trials may hold together. A policy's limit is its default.",
            "weight": "Its share beside other experiments.",
            "priority": "From 1 to 99; the smallest number goes first.",
            "resource_pool": "Empty for the workspace's, or the cluster's.",
            "is_single_node": "Whether all slots of a trial must be on one node.",
            "shm_size": "Of `/dev/shm`, in bytes, or as `4Gi`.",
            "budget_gpu_hours": "**Not in Determined.** When all trials together have used so many hours of slots, "
            "none is started any more, and those that run are asked to save what they have and end.",
            "slots": f"{NO_EFFECT}use `slots_per_trial`.",
            "agent_label": f"{NO_EFFECT}use `resource_pool`.",
            "native_parallel": f"{REFUSED}use `determined.launch.torch_distributed`.",
            "devices": f"{REFUSED}a trial sees the devices of its slots, and no others.",
        },
    ),
    Section(
        "bind_mounts",
        ("bind_mounts", 0),
        {
            "host_path": "Of the node. Administrators say which may be mounted (`tasks.bind_mounts`).",
            "container_path": "Absolute, or below the working directory.",
            "read_only": "Whether trials cannot write there.",
            "propagation": "As the system calls it.",
        },
        "A list of objects.",
        {"bind_mounts": [{"host_path": "/data", "container_path": "/data"}]},
    ),
    _storage(
        "shared_fs",
        "A path that is the same for all nodes. What holds for bind mounts holds for a path that the user names.",
        {"host_path": "/checkpoints"},
        {
            "host_path": "Of every node.",
            "storage_path": "Below it. Of old: `checkpoint_path`, `tensorboard_path`.",
            "propagation": "As of a bind mount.",
            "container_path": f"{NO_EFFECT}trials see it where the harness looks for it.",
        },
    ),
    _storage(
        "directory",
        "A path that trials see by themselves, as by a bind mount.",
        {"container_path": "/checkpoints"},
        {"container_path": "Absolute."},
    ),
    _storage(
        "s3",
        "",
        {"bucket": "b"},
        {
            "bucket": "Its name.",
            "access_key": "None: as the environment says.",
            "secret_key": "Is not shown.",
            "endpoint_url": "Of a service that is not Amazon's.",
            "prefix": "Of all that is kept there.",
        },
    ),
    _storage(
        "gcs",
        "Keys come from the environment: Google's application default credentials.",
        {"bucket": "b"},
        {"bucket": "Its name.", "prefix": "Of all that is kept there."},
    ),
    _storage(
        "azure",
        "Exactly one of `connection_string` and `account_url`.",
        {"container": "c", "connection_string": "s"},
        {
            "container": "Its name.",
            "connection_string": "Is not shown.",
            "account_url": "With `credential`, where it has no signature itself.",
            "credential": "A key or a shared access signature. Is not shown.",
        },
    ),
    Section(
        "log_policies",
        ("log_policies", 0),
        {
            "name": "The trial is labelled with it; not needed with an action. It replaces the cluster's of the name.",
            "pattern": "RE2, anywhere in a line of the log. Empty, with a name: that policy is off.",
            "action": "`cancel_retries`: the trial is not tried again. `exclude_node`: not on that node. As of old "
            "it may be an object with a `type`.",
            "actions": f"{REFUSED}one action a policy.",
            "signal": f"{REFUSED}it is `name` now.",
        },
        "A list of objects, that grows from layer to layer. Every cluster has `CUDA OOM` and `ECC Error`, which label.",
        {"log_policies": [{"name": "x", "pattern": "x"}]},
    ),
    Section(
        "retention_policy",
        ("retention_policy",),
        {"log_retention_days": "How long logs are kept, up to 32767; -1 for ever. None: as the cluster has it."},
    ),
    Section(
        "profiling",
        ("profiling",),
        {
            "enabled": "Whether trainers report system metrics.",
            "begin_on_batch": "From which on.",
            "end_after_batch": "Until which; None for the end.",
            "sync_timings": "For trial classes of old.",
        },
    ),
    Section(
        "optimizations",
        ("optimizations",),
        {
            "aggregation_frequency": "After how many batches gradients are exchanged.",
            "average_aggregated_gradients": "Whether they are divided by that number.",
            "average_training_metrics": "Whether metrics of training are those of all ranks.",
            "gradient_compression": "Whether gradients are exchanged in half precision.",
            "grad_updates_size_file": "For Horovod, of old.",
            "mixed_precision": "`O0` to `O3`, for Apex, of old.",
            "tensor_fusion_threshold": "For Horovod, of old.",
            "tensor_fusion_cycle_time": "For Horovod, of old.",
            "auto_tune_tensor_fusion": "For Horovod, of old.",
        },
        "For trial classes of old: kept for them, and for nobody else.",
    ),
    Section(
        "reproducibility",
        ("reproducibility",),
        {"experiment_seed": "From 0 to 4294967295. What the search draws, and the seeds of its trials, come of it."},
    ),
    Section(
        "integrations",
        ("integrations",),
        {
            "webhooks": "See below.",
            "pachyderm": "For clients and training code to read; nothing acts on it. See below.",
        },
    ),
    Section(
        "integrations.webhooks",
        ("integrations", "webhooks"),
        {
            "webhook_id": "Which are told of this experiment, beside those that are told of all.",
            "webhook_name": "The same by name.",
            "exclude": "Whether nobody is told.",
        },
    ),
    *(
        Section(
            f"integrations.pachyderm.{name}",
            ("integrations", "pachyderm", name),
            dict.fromkeys(keys, "As Pachyderm has it."),
            example={"integrations": {"pachyderm": {}}},
        )
        for name, keys in {
            "pachd": ("host", "port"),
            "proxy": ("scheme", "host", "port"),
            "dataset": ("project", "repo", "commit", "branch", "token"),
        }.items()
    ),
    Section(
        "slurm",
        ("slurm",),
        dict.fromkeys(("slots_per_node", "gpu_type", "sbatch_args"), f"{NO_EFFECT}see above."),
    ),
    Section("pbs", ("pbs",), dict.fromkeys(("slots_per_node", "pbsbatch_args"), f"{NO_EFFECT}see above.")),
)
