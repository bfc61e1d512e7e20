"""Every field that the Kubernetes client knows, our views know too, with a type that takes what Kubernetes sends."""

import re
import typing
from collections.abc import Mapping

import msgspec
import pytest
from kubernetes.client import models

from muster.api import batch, coordination, core, meta, networking, policy, scheduling, storage
from muster.api.meta import OPAQUE, Condition, ObjectMeta, View

ROOTS: dict[str, type[View]] = {
    "Namespace": core.Namespace,
    "Node": core.Node,
    "Pod": core.Pod,
    "ConfigMap": core.ConfigMap,
    "Secret": core.Secret,
    "Service": core.Service,
    "CoreV1Event": core.Event,
    "PriorityClass": scheduling.PriorityClass,
    "Job": batch.Job,
    "Lease": coordination.Lease,
    "PodDisruptionBudget": policy.PodDisruptionBudget,
    "PersistentVolumeClaim": core.PersistentVolumeClaim,
    "StorageClass": storage.StorageClass,
    "NetworkPolicy": networking.NetworkPolicy,
}
SHARED = {Condition, ObjectMeta}  # one view for several near twins: a superset of each
OPAQUE_TO_THE_CLIENT_TOO = {"fieldsV1"}


def model(name):
    return getattr(models, name, None) or getattr(models, f"V1{name}")


def last_word(text):
    """`V1Container` of `List[V1Container]`."""
    return re.findall(r"\w+", text)[-1]


def inner(annotation):
    """The view inside a field's type, whether it is opaque, and whether it holds many."""
    if typing.get_origin(annotation) is typing.Annotated:
        found, opaque, many = inner(annotation.__origin__)
        return found, opaque or any(note is OPAQUE for note in annotation.__metadata__), many
    arguments = typing.get_args(annotation)
    if not arguments:
        is_view = isinstance(annotation, type) and issubclass(annotation, View)
        return (annotation if is_view else None), False, False
    parts = [inner(argument) for argument in arguments if argument not in (type(None), ...)]
    many = typing.get_origin(annotation) in (tuple, Mapping) or any(part[2] for part in parts)
    view = next((part[0] for part in parts if part[0]), None)
    return view, any(part[1] for part in parts), many


def pairs():
    """Every (client model, view) that is reachable from a kind."""
    pending: list[tuple[typing.Any, type[View]]] = [(model(name), view) for name, view in ROOTS.items()]
    seen: set[tuple[typing.Any, type[View]]] = set()
    while pending:
        pair = pending.pop()
        if pair in seen:
            continue
        seen.add(pair)
        yield pair
        theirs, ours = pair
        hints = typing.get_type_hints(ours, include_extras=True)
        by_wire = {field.encode_name: hints[field.name] for field in msgspec.structs.fields(ours)}
        for attribute, wire in theirs.attribute_map.items():
            type_name = last_word(theirs.openapi_types[attribute])
            view = inner(by_wire[wire])[0] if wire in by_wire else None
            if view is not None and hasattr(models, type_name):
                pending.append((getattr(models, type_name), view))


PAIRS = sorted(pairs(), key=lambda pair: pair[0].__name__)


def test_the_walk_reaches_the_depths():
    reached = {ours for _, ours in PAIRS}
    assert {core.HTTPHeader, core.NodeSelectorRequirement, core.ContainerStateTerminated, core.KeyToPath} <= reached


@pytest.mark.parametrize(("theirs", "ours"), PAIRS, ids=lambda found: found.__name__)
def test_no_field_is_missing_and_none_is_invented(theirs, ours):
    known = {field.encode_name for field in msgspec.structs.fields(ours)}
    wanted = set(theirs.attribute_map.values())
    assert wanted - known == set()
    if ours not in SHARED:
        assert known - wanted <= {"workloadRef"}  # alpha in 1.35 under this name, renamed since


@pytest.mark.parametrize(("theirs", "ours"), PAIRS, ids=lambda found: found.__name__)
def test_lists_are_lists_and_objects_are_typed_or_opaque(theirs, ours):
    hints = typing.get_type_hints(ours, include_extras=True)
    wire_types = {theirs.attribute_map[name]: text for name, text in theirs.openapi_types.items()}
    for field in msgspec.structs.fields(ours):
        text = wire_types.get(field.encode_name)
        if text is None or field.encode_name in OPAQUE_TO_THE_CLIENT_TOO:
            continue
        view, is_opaque, is_many = inner(hints[field.name])
        is_object = hasattr(models, last_word(text))
        assert bool(view or is_opaque) == is_object, field.name
        if not is_opaque:
            assert is_many == text.startswith(("List", "Dict")), field.name


OWN = sorted({ours for _, ours in PAIRS if ours.__module__ != meta.__name__}, key=lambda found: found.__name__)


@pytest.mark.parametrize("view", OWN, ids=lambda found: found.__name__)
def test_every_view_explains_itself(view):
    assert view.__doc__
    assert view.__doc__.strip()


def test_views_are_not_tracked_by_the_garbage_collector():
    assert all(ours.__struct_config__.gc is False and ours.__struct_config__.frozen for _, ours in PAIRS)


MERGED = {
    "containers": (core.PodSpec, ["name"]),
    "initContainers": (core.PodSpec, ["name"]),
    "volumes": (core.PodSpec, ["name"]),
    "hostAliases": (core.PodSpec, ["ip"]),
    "imagePullSecrets": (core.PodSpec, ["name"]),
    "schedulingGates": (core.PodSpec, ["name"]),
    "topologySpreadConstraints": (core.PodSpec, ["topologyKey", "whenUnsatisfiable"]),
    "tolerations": (core.PodSpec, None),
    "env": (core.Container, ["name"]),
    "ports": (core.Container, ["containerPort", "protocol"]),
    "volumeMounts": (core.Container, ["mountPath"]),
    "command": (core.Container, None),
    "taints": (core.NodeSpec, ["key", "effect"]),
    "addresses": (core.NodeStatus, ["type"]),
    "conditions": (core.PodStatus, ["type"]),
}


@pytest.mark.parametrize(("wire", "view", "keys"), [(w, v, k) for w, (v, k) in MERGED.items()], ids=MERGED.keys())
def test_lists_merge_by_the_keys_of_kubernetes(wire, view, keys):
    hints = typing.get_type_hints(view, include_extras=True)
    name = next(field.name for field in msgspec.structs.fields(view) if field.encode_name == wire)
    (note,) = hints[name].__metadata__
    assert note.extra_json_schema.get("x-kubernetes-list-map-keys") == keys


def test_numbers_that_kubernetes_could_not_hold_are_refused():
    with pytest.raises(msgspec.ValidationError, match=r"2147483647.*\$\.spec\.priority"):
        msgspec.json.decode(b'{"spec": {"priority": 2147483648}}', type=core.Pod)


def test_quantities_may_be_bare_numbers():
    pod = msgspec.json.decode(
        b'{"spec": {"containers": [{"resources": {"limits": {"cpu": 1, "memory": 0.5, "x.y/z": "3"}}}]}}', type=core.Pod
    )
    (container,) = pod.spec.containers
    assert container.resources is not None
    assert container.resources.limits == {"cpu": 1, "memory": 0.5, "x.y/z": "3"}
