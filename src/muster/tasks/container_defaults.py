"""`task_container_defaults`: what administrators give every task, under Determined's names. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from muster.api.raw import JSON, Document
from muster.tasks import config_fields
from muster.tasks.config_fields import Fields

_PATH: Final = "task_container_defaults"
DEFAULT_PREEMPTION_SECONDS: Final = 3600


@dataclass(frozen=True, slots=True)
class ContainerDefaults:
    """`config`: the weakest layer of every configuration. `startup_hook`: a script that is run before each task.
    The last four are for trials."""

    config: Document = field(default_factory=dict)
    cpu_pod_spec: Document = field(default_factory=dict)
    gpu_pod_spec: Document = field(default_factory=dict)
    startup_hook: str = ""
    preemption_seconds: int = DEFAULT_PREEMPTION_SECONDS
    log_policies: JSON = None
    network_interface: str = ""
    nccl_port_range: str = ""
    gloo_port_range: str = ""


def read(document: Mapping[str, JSON]) -> ContainerDefaults:
    """Raises BadRequest with all that is wrong."""
    fields = Fields(document, _PATH)
    config: Document = {}
    environment = {
        "image": fields.raw("image"),
        "environment_variables": fields.raw("environment_variables"),
        "force_pull_image": fields.flag("force_pull_image") or None,
        "add_capabilities": list(fields.texts("add_capabilities")),
        "drop_capabilities": list(fields.texts("drop_capabilities")),
    }
    config["environment"] = {name: value for name, value in environment.items() if value}
    if fields.raw("bind_mounts"):
        config["bind_mounts"] = fields.raw("bind_mounts")
    if fields.text("work_dir"):
        config["work_dir"] = fields.text("work_dir")
    if (shm := fields.size("shm_size_bytes")) is not None:
        config["resources"] = {"shm_size": shm}
    fields.refuse("network_mode", "tasks share the network of their node", unless=["host", "bridge"])
    fields.refuse("registry_auth", "use imagePullSecrets in cpu_pod_spec and gpu_pod_spec")
    fields.refuse("devices", config_fields.DEVICES_INSTEAD)
    for name in ("slurm", "pbs"):
        fields.refuse(name, "tasks run as pods here; cpu_pod_spec and gpu_pod_spec say what is special about them")
    preemption = fields.integer("preemption_timeout", DEFAULT_PREEMPTION_SECONDS)
    found = ContainerDefaults(
        config=config,
        cpu_pod_spec=fields.document("cpu_pod_spec"),
        gpu_pod_spec=fields.document("gpu_pod_spec"),
        startup_hook=fields.text("startup_hook"),
        preemption_seconds=DEFAULT_PREEMPTION_SECONDS if preemption is None else preemption,
        log_policies=fields.raw("log_policies"),
        network_interface=fields.text("dtrain_network_interface"),
        nccl_port_range=fields.text("nccl_port_range"),
        gloo_port_range=fields.text("gloo_port_range"),
    )
    fields.finish()
    config_fields.refuse(fields.problems, "settings")
    return found
