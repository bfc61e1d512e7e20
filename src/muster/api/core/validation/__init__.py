"""Checks of the v1 kinds. Each `validate_<kind>` returns everything that is wrong, with paths."""

from muster.api.core.validation.claims import validate_claim, validate_claim_update
from muster.api.core.validation.configuration import (
    validate_config_map,
    validate_config_map_update,
    validate_secret,
    validate_secret_update,
)
from muster.api.core.validation.constraints import validate_affinity, validate_node_selector, validate_tolerations
from muster.api.core.validation.limit_ranges import validate_limit_range
from muster.api.core.validation.nodes import validate_namespace, validate_node, validate_node_update, validate_taints
from muster.api.core.validation.pod_updates import validate_pod_update
from muster.api.core.validation.pods import validate_pod, validate_pod_spec, validate_pod_template
from muster.api.core.validation.resources import validate_resource_list, validate_resources
from muster.api.core.validation.services import validate_event, validate_service

__all__ = [
    "validate_affinity",
    "validate_claim",
    "validate_claim_update",
    "validate_config_map",
    "validate_config_map_update",
    "validate_event",
    "validate_limit_range",
    "validate_namespace",
    "validate_node",
    "validate_node_selector",
    "validate_node_update",
    "validate_pod",
    "validate_pod_spec",
    "validate_pod_template",
    "validate_pod_update",
    "validate_resource_list",
    "validate_resources",
    "validate_secret",
    "validate_secret_update",
    "validate_service",
    "validate_taints",
    "validate_tolerations",
]
