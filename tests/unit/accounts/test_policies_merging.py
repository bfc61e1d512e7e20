"""Policies: what is fixed stays fixed, what is forbidden is found."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.accounts import policies
from muster.accounts.policies import Constraints, Policy, Workload
from muster.api import errors

SCALARS = st.one_of(st.integers(), st.booleans(), st.text(max_size=3), st.none())
DOCUMENTS = st.recursive(
    SCALARS,
    lambda inner: (
        st.dictionaries(st.sampled_from(["resources", "a", "b", "bind_mounts"]), inner, max_size=3)
        | st.lists(inner, max_size=3)
    ),
    max_leaves=10,
)
CONFIGS = st.dictionaries(st.sampled_from(["resources", "a", "b", "bind_mounts"]), DOCUMENTS, max_size=4)


def fixing(invariant: dict[str, object], **limits: int) -> Policy:
    return Policy(invariant, Constraints(**limits))


def test_the_cluster_wins_over_the_workspace_and_both_over_the_user() -> None:
    user = {"resources": {"priority": 1, "slots": 2, "weight": 3}, "entrypoint": ["a"], "debug": True}
    workspace = fixing({"resources": {"priority": 2, "slots": 1}, "entrypoint": ["b"]})
    cluster = fixing({"resources": {"priority": 3}})
    assert policies.merge(user, [workspace, cluster]) == {
        "resources": {"priority": 3, "slots": 1, "weight": 3}, "entrypoint": ["b"], "debug": True,
    }  # fmt: skip


def test_mounts_and_variables_are_joined_the_policys_first() -> None:
    user = {
        "bind_mounts": [{"host_path": "/u"}, {"host_path": "/p"}],
        "environment": {"environment_variables": ["A=1"]},
    }
    policy = fixing({"bind_mounts": [{"host_path": "/p"}], "environment": {"environment_variables": ["B=2"]}})
    assert policies.merge(user, [policy]) == {
        "bind_mounts": [{"host_path": "/p"}, {"host_path": "/u"}],
        "environment": {"environment_variables": ["B=2", "A=1"]},
    }


def contains(found: object, fixed: object) -> bool:
    if isinstance(fixed, dict) and isinstance(found, dict):
        return all(name in found and contains(found[name], value) for name, value in fixed.items())
    if isinstance(fixed, list) and isinstance(found, list):
        return all(each in found for each in fixed)
    return found == fixed


@given(CONFIGS, CONFIGS, CONFIGS)
def test_whatever_the_user_says_the_cluster_is_obeyed_and_merging_twice_changes_nothing(
    user: dict[str, object], workspace: dict[str, object], cluster: dict[str, object]
) -> None:
    layers = [fixing(workspace), fixing(cluster)]
    merged = policies.merge(user, layers)
    assert contains(merged, cluster)
    assert contains(policies.merge(merged, layers), cluster)
    assert set(merged) == set(user) | set(workspace) | set(cluster)


@given(CONFIGS, CONFIGS)
def test_merging_leaves_its_arguments_alone(user: dict[str, object], fixed: dict[str, object]) -> None:
    before = repr((user, fixed))
    policies.merge(user, [fixing(fixed)])
    assert repr((user, fixed)) == before


def test_constraints_of_the_cluster_hold_where_both_are_made() -> None:
    held = policies.constraints([fixing({}, max_slots=8, priority_limit=5), fixing({}, max_slots=4)])
    assert held == Constraints(max_slots=4, priority_limit=5)
    assert policies.violations({"resources": {"slots": 4, "priority": 5}}, held) == []
    assert len(policies.violations({"resources": {"slots_per_trial": 5, "priority": 4}}, held)) == 2
    assert policies.violations({"resources": None}, held) == []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "expected one document"),
        ("{}", "must have"),
        ("[]", "expected a JSON object"),
        ("a: [", "not valid YAML"),
        ("invariants: {}", "configPolicies.invariants: unknown field"),
        ("invariant_config: 3", "configPolicies.invariant_config: expected an object"),
        ("invariant_config: {searcher: {}}", "experiments only"),
        ("constraints: {max_slots: 3}", "configPolicies.constraints.max_slots: unknown field"),
        ("constraints: {resources: {slots: 3}}", "configPolicies.constraints.resources.slots: unknown field"),
        ("constraints: {resources: {max_slots: -1}}", "max_slots: expected a number"),
        ("constraints: {priority_limit: true}", "priority_limit: expected a number"),
        ("constraints: {priority_limit: 100}", "priority_limit: expected a number"),
        ("invariant_config: {resources: {slots: 9}}\nconstraints: {resources: {max_slots: 8}}", "what it forbids"),
    ],
)
def test_a_policy_that_is_none_is_told_by_its_field(text: str, told: str) -> None:
    with pytest.raises(errors.BadRequest, match=told):
        policies.read(text, Workload.TASK)


def test_a_policy_is_written_as_it_was_read() -> None:
    text = "invariant_config: {searcher: {name: single}}\nconstraints: {resources: {max_slots: 0}}"
    policy = policies.read(text, Workload.EXPERIMENT)
    assert policies.of(policy.document(), Workload.EXPERIMENT) == policy
