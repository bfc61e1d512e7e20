"""Tables of the kinds of Kubernetes itself."""

from collections.abc import Mapping, Sequence

from muster.api import batch, coordination, core, networking, node, policy, scheduling, storage
from muster.api.kinds import Kind
from muster.api.meta import Instant
from muster.api.objects import Object
from muster.api.raw import JSON
from muster.api.storage import provisioning
from muster.server.columns import pods
from muster.server.columns.printing import (
    AGE,
    NAME,
    NONE,
    UNKNOWN,
    Column,
    Printer,
    age,
    condition,
    duration,
    instant,
    labels,
    since,
)

_ROLE_PREFIX = "node-role.kubernetes.io/"


def _node(found: Object, now: Instant) -> Sequence[JSON]:
    node = found.read(core.Node)
    ready = {"True": "Ready", "False": "NotReady"}.get(condition(node.status.conditions, "Ready"), "NotReady")
    if not any(c.type == "Ready" for c in node.status.conditions):
        ready = "Unknown"
    state = [ready, "SchedulingDisabled"] if node.spec.unschedulable else [ready]
    roles = sorted(
        label.removeprefix(_ROLE_PREFIX) for label in found.meta.labels or {} if label.startswith(_ROLE_PREFIX)
    )
    info = node.status.node_info or core.NodeSystemInfo()
    addresses = {address.type: address.address for address in node.status.addresses}
    return (
        found.key.name,
        ",".join(state),
        ",".join(roles) or NONE,
        age(found, now),
        info.kubelet_version or UNKNOWN,
        addresses.get("InternalIP", NONE),
        addresses.get("ExternalIP", NONE),
        info.os_image or UNKNOWN,
        info.kernel_version or UNKNOWN,
        info.container_runtime_version or UNKNOWN,
    )


def _namespace(found: Object, now: Instant) -> Sequence[JSON]:
    return found.key.name, found.read(core.Namespace).status.phase or "Active", age(found, now)


def _config_map(found: Object, now: Instant) -> Sequence[JSON]:
    view = found.read(core.ConfigMap)
    return found.key.name, len(view.data or {}) + len(view.binary_data or {}), age(found, now)


def _secret(found: Object, now: Instant) -> Sequence[JSON]:
    view = found.read(core.Secret)
    return found.key.name, view.type or "Opaque", len(view.data or {}), age(found, now)


def _service(found: Object, now: Instant) -> Sequence[JSON]:
    spec = found.read(core.Service).spec
    ports = [
        f"{port.port}:{port.node_port}/{port.protocol or 'TCP'}"
        if port.node_port
        else f"{port.port}/{port.protocol or 'TCP'}"
        for port in spec.ports
    ]
    return (
        found.key.name,
        spec.type or "ClusterIP",
        spec.cluster_ip or NONE,
        ",".join(spec.external_ips) or spec.external_name or NONE,
        ",".join(ports) or NONE,
        age(found, now),
        labels(spec.selector),
    )


def _event(found: Object, now: Instant) -> Sequence[JSON]:
    event = found.read(core.Event)
    target = event.involved_object
    first = event.first_timestamp or event.event_time
    last = event.series.last_observed_time if event.series else event.last_timestamp or first
    count = (event.series.count if event.series else event.count) or 1
    source = event.source.component or event.reporting_component or ""
    seen = since(last, now)
    return (
        seen if count == 1 else f"{seen} (x{count} over {since(first, now)})",
        event.type or "",
        event.reason or "",
        f"{(target.kind or '').lower()}/{target.name or ''}",
        target.field_path or "",
        f"{source}, {event.source.host}" if event.source.host else source,
        (event.message or "").strip(),
        since(first, now),
        count,
        found.key.name,
    )


def _job(found: Object, now: Instant) -> Sequence[JSON]:
    job = found.read(batch.Job)
    spec, status = job.spec, job.status
    if spec.completions is not None:
        done = f"{status.succeeded or 0}/{spec.completions}"
    elif (spec.parallelism or 0) > 1:
        done = f"{status.succeeded or 0}/1 of {spec.parallelism}"
    else:
        done = f"{status.succeeded or 0}/1"
    started, ended = instant(status.start_time), instant(status.completion_time)
    took = "" if started is None else duration((now if ended is None else ended) - started)
    containers = spec.template.spec.containers
    return (
        found.key.name,
        _job_status(job),
        done,
        took,
        age(found, now),
        ",".join(container.name for container in containers),
        ",".join(container.image or "" for container in containers),
        labels(spec.selector.match_labels if spec.selector else None),
    )


def _job_status(job: batch.Job) -> str:
    conditions = job.status.conditions
    for type_, shown in (("Complete", "Complete"), ("Failed", "Failed")):
        if condition(conditions, type_) == "True":
            return shown
    if job.metadata.deletion_timestamp is not None:
        return "Terminating"
    for type_, shown in (("Suspended", "Suspended"), ("FailureTarget", "FailureTarget")):
        if condition(conditions, type_) == "True":
            return shown
    if condition(conditions, "SuccessCriteriaMet") == "True":
        return "SuccessCriteriaMet"
    return "Running"


def _lease(found: Object, now: Instant) -> Sequence[JSON]:
    return found.key.name, found.read(coordination.Lease).spec.holder_identity or "", age(found, now)


def _budget(found: Object, now: Instant) -> Sequence[JSON]:
    budget = found.read(policy.PodDisruptionBudget)
    minimum, maximum = budget.spec.min_available, budget.spec.max_unavailable
    return (
        found.key.name,
        "N/A" if minimum is None else str(minimum),
        "N/A" if maximum is None else str(maximum),
        budget.status.disruptions_allowed,
        age(found, now),
    )


def _limit_range(found: Object, _now: Instant) -> Sequence[JSON]:
    return found.key.name, found.meta.creation_timestamp or ""


_ACCESS = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}
UNSET = "<unset>"


def _claim(found: Object, now: Instant) -> Sequence[JSON]:
    claim = found.read(core.PersistentVolumeClaim)
    spec, status = claim.spec, claim.status
    is_bound = bool(spec.volume_name)
    return (
        found.key.name,
        "Terminating" if claim.metadata.deletion_timestamp is not None else status.phase or "Pending",
        spec.volume_name or "",
        str((status.capacity or {}).get("storage", "")) if is_bound else "",
        ",".join(_ACCESS.get(mode, mode) for mode in status.access_modes) if is_bound else "",
        spec.storage_class_name or "",
        spec.volume_attributes_class_name or UNSET,
        age(found, now),
        spec.volume_mode or "Filesystem",
    )


def _storage_class(found: Object, now: Instant) -> Sequence[JSON]:
    view = found.read(storage.StorageClass)
    return (
        f"{found.key.name} (default)" if provisioning.is_default(view) else found.key.name,
        view.provisioner,
        view.reclaim_policy or "Delete",
        view.volume_binding_mode or "Immediate",
        bool(view.allow_volume_expansion),
        age(found, now),
    )


def _network_policy(found: Object, now: Instant) -> Sequence[JSON]:
    selector = found.read(networking.NetworkPolicy).spec.pod_selector
    return found.key.name, labels(selector.match_labels if selector else None), age(found, now)


def _priority_class(found: Object, now: Instant) -> Sequence[JSON]:
    view = found.read(scheduling.PriorityClass)
    return found.key.name, view.value, bool(view.global_default), age(found, now), view.preemption_policy or ""


def _runtime_class(found: Object, now: Instant) -> Sequence[JSON]:
    return found.key.name, found.read(node.RuntimeClass).handler, age(found, now)


def _wide(*names: str) -> tuple[Column, ...]:
    return tuple(Column(name, priority=1) for name in names)


PRINTERS: Mapping[Kind, Printer] = {
    core.POD: pods.PRINTER,
    core.NODE: Printer(
        (
            NAME, Column("Status"), Column("Roles"), AGE, Column("Version"),
            *_wide("Internal-IP", "External-IP", "OS-Image", "Kernel-Version", "Container-Runtime"),
        ),
        _node,
    ),
    core.NAMESPACE: Printer((NAME, Column("Status"), AGE), _namespace),
    core.CONFIG_MAP: Printer((NAME, Column("Data", "integer"), AGE), _config_map),
    core.SECRET: Printer((NAME, Column("Type"), Column("Data", "integer"), AGE), _secret),
    core.SERVICE: Printer(
        (NAME, Column("Type"), Column("Cluster-IP"), Column("External-IP"), Column("Port(s)"), AGE, *_wide("Selector")),
        _service,
    ),
    core.EVENT: Printer(
        (
            Column("Last Seen"), Column("Type"), Column("Reason"), Column("Object"), *_wide("Subobject", "Source"),
            Column("Message"), *_wide("First Seen"), Column("Count", "integer", 1), Column("Name", priority=1),
        ),
        _event,
    ),
    core.PERSISTENT_VOLUME_CLAIM: Printer(
        (
            NAME, Column("Status"), Column("Volume"), Column("Capacity"), Column("Access Modes"),
            Column("StorageClass"), Column("VolumeAttributesClass"), AGE, *_wide("VolumeMode"),
        ),
        _claim,
    ),
    core.LIMIT_RANGE: Printer((NAME, Column("Created At")), _limit_range),
    batch.JOB: Printer(
        (
            NAME, Column("Status"), Column("Completions"), Column("Duration"), AGE,
            *_wide("Containers", "Images", "Selector"),
        ),
        _job,
    ),
    coordination.LEASE: Printer((NAME, Column("Holder"), AGE), _lease),
    policy.POD_DISRUPTION_BUDGET: Printer(
        (
            NAME, Column("Min Available"), Column("Max Unavailable"), Column("Allowed Disruptions", "integer"), AGE,
        ),
        _budget,
    ),
    storage.STORAGE_CLASS: Printer(
        (
            NAME, Column("Provisioner"), Column("ReclaimPolicy"), Column("VolumeBindingMode"),
            Column("AllowVolumeExpansion", "boolean"), AGE,
        ),
        _storage_class,
    ),
    networking.NETWORK_POLICY: Printer((NAME, Column("Pod-Selector"), AGE), _network_policy),
    node.RUNTIME_CLASS: Printer((NAME, Column("Handler"), AGE), _runtime_class),
    scheduling.PRIORITY_CLASS: Printer(
        (NAME, Column("Value", "integer"), Column("Global-Default", "boolean"), AGE, Column("PreemptionPolicy")),
        _priority_class,
    ),
}  # fmt: skip
