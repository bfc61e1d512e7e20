"""Environments and command lines of containers."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.agent import environment
from muster.agent.environment import ConfigMissing, Facts, Sources
from muster.api import core

POD: dict[str, Any] = {
    "metadata": {
        "name": "worker-0",
        "namespace": "team",
        "uid": "u-1",
        "labels": {"app": "train", "rank": "0"},
        "annotations": {"note": 'say "hi"'},
    },
    "spec": {
        "nodeName": "n1",
        "serviceAccountName": "robot",
        "containers": [{"name": "main", "resources": {"limits": {"cpu": "1500m", "memory": "1Gi"}}}, {"name": "other"}],
    },
}
SOURCES = Sources({"settings": {"LR": b"0.1", "a-file.txt": b"x", "1bad": b"x"}}, {"keys": {"TOKEN": b"s3cret"}})


def facts() -> Facts:
    return Facts(msgspec.convert(POD, core.Pod), "10.0.0.7", {"cpu": 8000, "memory": 2**33})


def env_of(container: dict[str, Any], base: dict[str, str] | None = None) -> dict[str, str]:
    view = msgspec.convert({"name": "main", **container}, core.Container)
    return environment.variables(view, facts(), SOURCES, base or {})


def field(path: str) -> dict[str, Any]:
    return {"env": [{"name": "X", "valueFrom": {"fieldRef": {"fieldPath": path}}}]}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "worker-0"),
        ("metadata.namespace", "team"),
        ("metadata.uid", "u-1"),
        ("metadata.labels['rank']", "0"),
        ("metadata.labels['none']", ""),
        ("metadata.annotations['note']", 'say "hi"'),
        ("metadata.annotations", 'note="say \\"hi\\""'),
        ("metadata.labels", 'app="train"\nrank="0"'),
        ("spec.nodeName", "n1"),
        ("spec.serviceAccountName", "robot"),
        ("status.hostIP", "10.0.0.7"),
        ("status.podIP", "10.0.0.7"),
        ("status.podIPs", "10.0.0.7"),
    ],
)
def test_fields_of_the_pod(path: str, value: str) -> None:
    assert env_of(field(path)) == {"X": value}


def test_a_field_that_is_not_offered_is_named() -> None:
    with pytest.raises(ConfigMissing, match=r"status\.phase"):
        env_of(field("status.phase"))


@pytest.mark.parametrize(
    ("reference", "value"),
    [
        ({"resource": "limits.cpu"}, "2"),
        ({"resource": "limits.cpu", "divisor": "1m"}, "1500"),
        ({"resource": "limits.memory", "divisor": "1Mi"}, "1024"),
        ({"resource": "requests.cpu"}, "0"),
        ({"resource": "limits.cpu", "containerName": "other"}, "8"),
        ({"resource": "limits.memory", "containerName": "other"}, str(2**33)),
    ],
)
def test_resources_in_multiples_of_the_divisor_and_without_a_limit_what_the_node_has(
    reference: dict[str, str], value: str
) -> None:
    container = POD["spec"]["containers"][0] | {"env": [{"name": "X", "valueFrom": {"resourceFieldRef": reference}}]}
    assert env_of(container)["X"] == value


def test_config_maps_and_secrets_key_by_key_and_whole() -> None:
    container = {
        "envFrom": [{"configMapRef": {"name": "settings"}, "prefix": "P_"}, {"secretRef": {"name": "keys"}}],
        "env": [
            {"name": "RATE", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "LR"}}},
            {"name": "AUTH", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "TOKEN"}}},
        ],
    }
    env = env_of(container)
    assert env == {
        "P_LR": "0.1",
        "P_a-file.txt": "x",
        "P_1bad": "x",
        "TOKEN": "s3cret",
        "RATE": "0.1",
        "AUTH": "s3cret",
    }


def test_keys_that_are_no_variable_names_are_left_out() -> None:
    assert "1bad" not in env_of({"envFrom": [{"configMapRef": {"name": "settings"}}]})


@pytest.mark.parametrize(
    ("container", "message"),
    [
        ({"envFrom": [{"configMapRef": {"name": "gone"}}]}, 'configmap "gone" not found'),
        ({"envFrom": [{"secretRef": {"name": "gone"}}]}, 'secret "gone" not found'),
        (
            {"env": [{"name": "X", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "no"}}}]},
            "couldn't find key no in configmap team/settings",
        ),
        (
            {"env": [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "gone", "key": "no"}}}]},
            'secret "gone" not found',
        ),
    ],
)
def test_what_is_missing_is_named(container: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigMissing, match=message):
        env_of(container)


def test_what_is_optional_may_be_missing() -> None:
    container = {
        "envFrom": [{"configMapRef": {"name": "gone", "optional": True}}],
        "env": [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "gone", "key": "k", "optional": True}}}],
    }
    assert env_of(container) == {}


def test_values_refer_to_those_before_them_and_to_the_base() -> None:
    variables = [
        {"name": "A", "value": "$(HOME)/a"},
        {"name": "B", "value": "$(A)/b:$(LATER):$$(A)"},
        {"name": "LATER", "value": "x"},
    ]
    env = env_of({"env": variables}, {"HOME": "/h"})
    assert env == {"HOME": "/h", "A": "/h/a", "B": "/h/a/b:$(LATER):$(A)", "LATER": "x"}


def test_the_command_line_is_filled_in() -> None:
    container = core.Container(name="main", command=("echo", "$(A)"), args=("$(B)", "$A", "$$(A)", "$(C"))
    assert environment.command(container, {"A": "1", "B": "2"}) == ["echo", "1", "2", "$A", "$(A)", "$(C"]


def test_args_alone_are_no_command() -> None:
    assert environment.command(core.Container(name="main", args=("x",)), {}) == []


@given(st.text(alphabet="ab$() ", max_size=40))
def test_without_known_names_only_doubled_dollars_change(text: str) -> None:
    assert environment.expand(text, {}).count("$") <= text.count("$")
    if "$$" not in text:
        assert environment.expand(text, {}) == text


@given(st.dictionaries(st.text("AB_", min_size=1, max_size=4), st.text(max_size=10), min_size=1), st.data())
def test_a_known_name_is_replaced_by_its_value_as_it_is(env: dict[str, str], data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(env)))
    assert environment.expand(f"<$({name})>", env) == f"<{env[name]}>"


def test_references_are_collected_for_the_caller_to_fetch() -> None:
    spec = msgspec.convert(
        {
            "initContainers": [{"name": "i", "envFrom": [{"secretRef": {"name": "s1"}}]}],
            "containers": [
                {
                    "name": "c",
                    "envFrom": [{"configMapRef": {"name": "m1"}}],
                    "env": [
                        {"name": "X", "valueFrom": {"configMapKeyRef": {"name": "m2", "key": "k"}}},
                        {"name": "Y", "valueFrom": {"secretKeyRef": {"name": "s2", "key": "k"}}},
                    ],
                }
            ],
        },
        core.PodSpec,
    )
    assert environment.references(spec) == (frozenset({"m1", "m2"}), frozenset({"s1", "s2"}))
