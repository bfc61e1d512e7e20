"""Options of PodTopologySpread: what is wrong is named by field, all of it."""

from typing import Any

import pytest

from muster.placement.plugins.topology_spread import PodTopologySpreadArgs
from muster.placement.plugins.topology_spread.args import SYSTEM_CONSTRAINTS


def a_constraint(**changes: Any) -> dict[str, Any]:
    found = {"topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway", "maxSkew": 1, **changes}
    return {key: value for key, value in found.items() if value is not None}


def errors(document: dict[str, Any]) -> set[tuple[str, str]]:
    found = PodTopologySpreadArgs.from_document(document)
    return {(error.path, error.reason) for error in found} if isinstance(found, list) else set()


def test_nothing_said_means_the_built_in_constraints() -> None:
    found = PodTopologySpreadArgs.from_document(
        {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "PodTopologySpreadArgs"}
    )
    assert isinstance(found, PodTopologySpreadArgs)
    assert found.constraints == SYSTEM_CONSTRAINTS
    assert found == PodTopologySpreadArgs()


def test_a_list_replaces_them() -> None:
    listed = [a_constraint(minDomains=2, whenUnsatisfiable="DoNotSchedule", nodeTaintsPolicy="Honor")]
    found = PodTopologySpreadArgs.from_document({"defaultingType": "List", "defaultConstraints": listed})
    assert isinstance(found, PodTopologySpreadArgs)
    assert [(c.topology_key, c.max_skew, c.min_domains, c.node_taints_policy) for c in found.constraints] == [
        ("zone", 1, 2, "Honor")
    ]


@pytest.mark.parametrize(
    ("change", "path", "reason"),
    [
        ({"maxSkew": 0}, ".maxSkew", "FieldValueInvalid"),
        ({"maxSkew": None}, ".maxSkew", "FieldValueInvalid"),
        ({"maxSkew": "1"}, ".maxSkew", "FieldValueInvalid"),
        ({"maxSkew": True}, ".maxSkew", "FieldValueInvalid"),
        ({"maxSkew": 2**31}, ".maxSkew", "FieldValueInvalid"),
        ({"minDomains": 0}, ".minDomains", "FieldValueInvalid"),
        ({"topologyKey": ""}, ".topologyKey", "FieldValueRequired"),
        ({"topologyKey": None}, ".topologyKey", "FieldValueRequired"),
        ({"topologyKey": "no key"}, ".topologyKey", "FieldValueInvalid"),
        ({"whenUnsatisfiable": None}, ".whenUnsatisfiable", "FieldValueRequired"),
        ({"whenUnsatisfiable": "Never"}, ".whenUnsatisfiable", "FieldValueNotSupported"),
        ({"whenUnsatisfiable": 1}, ".whenUnsatisfiable", "FieldValueInvalid"),
        ({"labelSelector": {}}, ".labelSelector", "FieldValueForbidden"),
        ({"nodeAffinityPolicy": "Maybe"}, ".nodeAffinityPolicy", "FieldValueNotSupported"),
        ({"nodeTaintsPolicy": "Maybe"}, ".nodeTaintsPolicy", "FieldValueNotSupported"),
        ({"maxskew": 1}, ".maxskew", "FieldValueForbidden"),
    ],
)
def test_a_wrong_constraint_is_refused_by_the_field_that_is_wrong(change: Any, path: str, reason: str) -> None:
    listed = [a_constraint(topologyKey="host"), a_constraint(**change)]
    found = errors({"defaultingType": "List", "defaultConstraints": listed})
    assert found == {(f"defaultConstraints[1]{path}", reason)}


def test_the_same_constraint_twice_is_refused() -> None:
    found = errors({"defaultingType": "List", "defaultConstraints": [a_constraint(), a_constraint(maxSkew=2)]})
    assert found == {("defaultConstraints[1]", "FieldValueDuplicate")}


@pytest.mark.parametrize(
    ("document", "path", "reason"),
    [
        ({"defaultingType": "Other"}, "defaultingType", "FieldValueNotSupported"),
        ({"defaultConstraints": [a_constraint()]}, "defaultingType", "FieldValueInvalid"),
        ({"defaultingType": "List", "defaultConstraints": {}}, "defaultConstraints", "FieldValueInvalid"),
        ({"defaultingType": "List", "defaultConstraints": ["x"]}, "defaultConstraints[0]", "FieldValueInvalid"),
        ({"defaultConstraint": []}, "defaultConstraint", "FieldValueForbidden"),
        ({"defaultingType": 1}, "defaultingType", "FieldValueInvalid"),
        ({"kind": "NodeAffinityArgs"}, "kind", "FieldValueNotSupported"),
    ],
)
def test_a_wrong_document_is_refused_by_the_field_that_is_wrong(document: Any, path: str, reason: str) -> None:
    assert errors(document) == {(path, reason)}


def test_every_mistake_is_named_at_once() -> None:
    listed = [a_constraint(maxSkew=-1, whenUnsatisfiable="Never"), a_constraint(topologyKey="")]
    assert errors({"defaultingType": "?", "defaultConstraints": listed, "more": 1}) == {
        ("more", "FieldValueForbidden"),
        ("defaultingType", "FieldValueNotSupported"),
        ("defaultConstraints[0].maxSkew", "FieldValueInvalid"),
        ("defaultConstraints[0].whenUnsatisfiable", "FieldValueNotSupported"),
        ("defaultConstraints[1].topologyKey", "FieldValueRequired"),
    }
