"""What a flavor, a topology, a check and a priority class must look like."""

from collections.abc import Iterator

from muster.api import core, fields
from muster.api.errors import FieldError
from muster.api.kueue.queue_views import AdmissionCheck, ResourceFlavor, Topology, WorkloadPriorityClass

MAX_FLAVOR_ITEMS = 8
MAX_LEVELS = 16
MAX_DESCRIPTION = 2048
HOSTNAME_LABEL = "kubernetes.io/hostname"


def validate_resource_flavor(flavor: ResourceFlavor) -> list[FieldError]:
    return list(_resource_flavor(flavor))


def _resource_flavor(flavor: ResourceFlavor) -> Iterator[FieldError]:
    spec = flavor.spec
    node_labels = spec.node_labels or {}
    yield from fields.at_most("spec.nodeLabels", node_labels, MAX_FLAVOR_ITEMS)
    yield from fields.labels("spec.nodeLabels", node_labels)
    yield from fields.at_most("spec.nodeTaints", spec.node_taints, MAX_FLAVOR_ITEMS)
    yield from core.validate_taints("spec.nodeTaints", spec.node_taints)
    yield from fields.at_most("spec.tolerations", spec.tolerations, MAX_FLAVOR_ITEMS)
    yield from core.validate_tolerations("spec.tolerations", spec.tolerations)
    if spec.topology_name:
        yield from fields.dns_subdomain("spec.topologyName", spec.topology_name)
        if not node_labels:
            yield fields.required(
                "spec.nodeLabels", "Required value: at least one nodeLabel is required when topology is set"
            )


def validate_resource_flavor_update(old: ResourceFlavor, new: ResourceFlavor) -> list[FieldError]:
    # May be added later: nothing was placed by topology while there was none.
    if not old.spec.topology_name:
        return []
    return list(fields.immutable("spec.topologyName", old.spec.topology_name, new.spec.topology_name))


def validate_topology(topology: Topology) -> list[FieldError]:
    return list(_topology(topology))


def _topology(topology: Topology) -> Iterator[FieldError]:
    labels = [level.node_label for level in topology.spec.levels]
    if not labels:
        yield fields.required("spec.levels")
    yield from fields.at_most("spec.levels", labels, MAX_LEVELS)
    yield from fields.unique("spec.levels", labels, "nodeLabel")
    for index, label in enumerate(labels):
        yield from fields.qualified_name(f"spec.levels[{index}].nodeLabel", label)
        if label == HOSTNAME_LABEL and index != len(labels) - 1:
            yield fields.invalid(
                f"spec.levels[{index}].nodeLabel",
                label,
                "the kubernetes.io/hostname label can only be used at the lowest level of topology",
            )


def validate_topology_update(old: Topology, new: Topology) -> list[FieldError]:
    """Assignments name hosts where hosts are the lowest level, so the levels above may then change."""
    both = (old.spec.levels[-1:], new.spec.levels[-1:])
    if all(last and last[0].node_label == HOSTNAME_LABEL for last in both) or old.spec.levels == new.spec.levels:
        return []
    message = "levels can only be changed when the lowest level is kubernetes.io/hostname before and after"
    return [fields.invalid("spec.levels", [level.node_label for level in new.spec.levels], message)]


def validate_admission_check(check: AdmissionCheck) -> list[FieldError]:
    return list(_admission_check(check))


def _admission_check(check: AdmissionCheck) -> Iterator[FieldError]:
    if not check.spec.controller_name:
        yield fields.required("spec.controllerName")
    parameters = check.spec.parameters
    if parameters is None:
        return
    yield from fields.dns_subdomain("spec.parameters.apiGroup", parameters.api_group)
    yield from fields.dns_label("spec.parameters.name", parameters.name)
    if not parameters.kind:
        yield fields.required("spec.parameters.kind")
    elif not fields.is_dns_label(parameters.kind.lower()):
        yield fields.invalid(
            "spec.parameters.kind", parameters.kind, "must consist of letters, digits and '-', starting with a letter"
        )


def validate_admission_check_update(old: AdmissionCheck, new: AdmissionCheck) -> list[FieldError]:
    return list(fields.immutable("spec.controllerName", old.spec.controller_name, new.spec.controller_name))


def validate_workload_priority_class(priority: WorkloadPriorityClass) -> list[FieldError]:
    found = []
    if priority.value is None:
        found.append(fields.required("value"))
    if len(priority.description or "") > MAX_DESCRIPTION:
        found.append(fields.too_long("description", MAX_DESCRIPTION))
    return found
