import pytest

from muster.api import core, raw
from muster.api.objects import decode_view


def view(kind, document):
    made = raw.copy({"metadata": {"name": "good"}, **document})
    kind.default(made)
    return decode_view(kind, raw.encode(made))


def paths(kind, document):
    return [problem.path for problem in kind.validate(view(kind, document))]


def update_paths(kind, old, new):
    return [problem.path for problem in kind.validate_update(view(kind, old), view(kind, new))]


def taint(**taint):
    return {
        "spec": {"taints": [{"key": "gpu", "effect": "NoSchedule"}, {"key": "a.b/c", "effect": "NoExecute", **taint}]}
    }


def ports(*ports, **spec):
    return {"spec": {"ports": list(ports), **spec}}


GOOD = {
    "a namespace": (core.NAMESPACE, {}),
    "a node": (core.NODE, {**taint(value="x"), "status": {"capacity": {"cpu": "8", "nvidia.com/gpu": 8, "pods": 110}}}),
    "a config map": (core.CONFIG_MAP, {"data": {"a.b-c_D": "x", ".hidden": ""}, "binaryData": {"b": "eA=="}}),
    "a secret": (core.SECRET, {"data": {"a": "eA=="}, "stringData": {"b": "plain"}}),
    "a TLS secret": (core.SECRET, {"type": "kubernetes.io/tls", "stringData": {"tls.crt": "", "tls.key": ""}}),
    "a service": (core.SERVICE, ports({"port": 80, "name": "a"}, {"port": 80, "protocol": "UDP", "name": "b"})),
    "a headless service": (core.SERVICE, {"spec": {"clusterIP": "None", "selector": {"a": "b"}}}),
    "a name for a service elsewhere": (core.SERVICE, {"spec": {"type": "ExternalName", "externalName": "a.b.com"}}),
    "an event": (core.EVENT, {"metadata": {"name": "e", "namespace": "n"}, "involvedObject": {"namespace": "n"}}),
    "an event about a node": (core.EVENT, {"metadata": {"name": "e", "namespace": "default"}}),
}


@pytest.mark.parametrize(("kind", "document"), GOOD.values(), ids=GOOD.keys())
def test_good(kind, document):
    assert paths(kind, document) == []


BAD = {
    "a namespace with a dot": (core.NAMESPACE, {"metadata": {"name": "a.b"}}, "metadata.name"),
    "a namespace's finalizer": (core.NAMESPACE, {"spec": {"finalizers": ["a b"]}}, "spec.finalizers[0]"),
    "a taint without a key": (core.NODE, taint(key=""), "spec.taints[1].key"),
    "a taint's value": (core.NODE, taint(value="x y"), "spec.taints[1].value"),
    "a taint without effect": (core.NODE, taint(effect=""), "spec.taints[1].effect"),
    "a taint of no effect": (core.NODE, taint(effect="NoFun"), "spec.taints[1].effect"),
    "a taint twice": (core.NODE, taint(key="gpu", effect="NoSchedule"), "spec.taints[1]"),
    "negative capacity": (
        core.NODE,
        {"status": {"capacity": {"memory": "-1Gi"}, "allocatable": {"memory": "1"}}},
        "status.capacity[memory]",
    ),
    "half a GPU to offer": (
        core.NODE,
        {"status": {"allocatable": {"nvidia.com/gpu": "0.5"}}},
        "status.allocatable[nvidia.com/gpu]",
    ),
    "a config key with a slash": (core.CONFIG_MAP, {"data": {"a/b": ""}}, "data[a/b]"),
    "a config key that climbs": (core.CONFIG_MAP, {"data": {"..": ""}}, "data[..]"),
    "a config key twice": (core.CONFIG_MAP, {"data": {"a": ""}, "binaryData": {"a": ""}}, "data[a]"),
    "binary data that is not base64": (core.CONFIG_MAP, {"binaryData": {"a": "?"}}, "binaryData[a]"),
    "too much configuration": (core.CONFIG_MAP, {"data": {"a": "x" * 1_048_577}}, "data"),
    "a secret that is not base64": (core.SECRET, {"data": {"a": "plain!"}}, "data[a]"),
    "a TLS secret without key": (
        core.SECRET,
        {"type": "kubernetes.io/tls", "stringData": {"tls.crt": ""}},
        "data[tls.key]",
    ),
    "a service with a dot": (core.SERVICE, {"metadata": {"name": "a.b"}, **ports({"port": 80})}, "metadata.name"),
    "a service without ports": (core.SERVICE, {"spec": {}}, "spec.ports"),
    "a service of no type": (core.SERVICE, ports({"port": 80}, type="Magic"), "spec.type"),
    "a service's port out of range": (core.SERVICE, ports({"port": 0, "targetPort": 1}), "spec.ports[0].port"),
    "a service's target": (core.SERVICE, ports({"port": 1, "targetPort": "Web"}), "spec.ports[0].targetPort"),
    "a service's port twice": (
        core.SERVICE,
        ports({"port": 80, "name": "a"}, {"port": 80, "name": "b"}),
        "spec.ports[1]",
    ),
    "a port's name twice": (
        core.SERVICE,
        ports({"port": 80, "name": "a"}, {"port": 81, "name": "a"}),
        "spec.ports[1].name",
    ),
    "two ports, one unnamed": (core.SERVICE, ports({"port": 80, "name": "a"}, {"port": 81}), "spec.ports[1].name"),
    "a cluster address": (core.SERVICE, ports({"port": 80}, clusterIP="here"), "spec.clusterIP"),
    "a service's affinity": (core.SERVICE, ports({"port": 80}, sessionAffinity="Cookie"), "spec.sessionAffinity"),
    "a service's selector": (core.SERVICE, ports({"port": 80}, selector={"a": "b c"}), "spec.selector"),
    "no external name": (core.SERVICE, {"spec": {"type": "ExternalName"}}, "spec.externalName"),
    "an event of another namespace": (
        core.EVENT,
        {"metadata": {"name": "e", "namespace": "n"}, "involvedObject": {"namespace": "m"}},
        "involvedObject.namespace",
    ),
}


@pytest.mark.parametrize(("kind", "document", "path"), BAD.values(), ids=BAD.keys())
def test_bad(kind, document, path):
    assert paths(kind, document) == [path]


def test_a_complaint_about_a_secret_does_not_repeat_it():
    (problem,) = core.SECRET.validate(view(core.SECRET, {"data": {"a": "hunter2!"}}))
    assert "hunter2" not in str(problem)


UPDATES = {
    "data of a config map": (core.CONFIG_MAP, {"data": {"a": "1"}}, {"data": {"a": "2"}}, []),
    "data of a fixed config map": (
        core.CONFIG_MAP,
        {"data": {"a": "1"}, "immutable": True},
        {"data": {"a": "2"}, "immutable": True},
        ["data"],
    ),
    "unfixing a config map": (core.CONFIG_MAP, {"immutable": True}, {}, ["immutable"]),
    "fixing a config map": (core.CONFIG_MAP, {}, {"immutable": True}, []),
    "data of a fixed secret": (
        core.SECRET,
        {"stringData": {"a": "1"}, "immutable": True},
        {"stringData": {"a": "2"}, "immutable": True},
        ["data"],
    ),
    "labels of a fixed secret": (
        core.SECRET,
        {"immutable": True},
        {"immutable": True, "metadata": {"name": "good", "labels": {"a": "b"}}},
        [],
    ),
    "type of a secret": (core.SECRET, {}, {"type": "example.com/x"}, ["type"]),
    "taints of a node": (core.NODE, {}, taint(), []),
    "a node's first provider": (core.NODE, {}, {"spec": {"providerID": "a"}}, []),
    "a node's other provider": (
        core.NODE,
        {"spec": {"providerID": "a"}},
        {"spec": {"providerID": "b"}},
        ["spec.providerID"],
    ),
}


@pytest.mark.parametrize(("kind", "old", "new", "expected"), UPDATES.values(), ids=UPDATES.keys())
def test_updates(kind, old, new, expected):
    assert update_paths(kind, old, new) == expected


SELECTABLE = {
    "a pod's node": (core.POD, {"spec": {"nodeName": "n"}}, "spec.nodeName", "n"),
    "a pod without node": (core.POD, {}, "spec.nodeName", ""),
    "a pod's phase": (core.POD, {}, "status.phase", "Pending"),
    "a pod's address": (core.POD, {"status": {"podIP": "::1"}}, "status.podIP", "::1"),
    "a pod's scheduler": (core.POD, {}, "spec.schedulerName", "default-scheduler"),
    "a cordoned node": (core.NODE, {"spec": {"unschedulable": True}}, "spec.unschedulable", "true"),
    "an open node": (core.NODE, {}, "spec.unschedulable", "false"),
    "a namespace's phase": (core.NAMESPACE, {}, "status.phase", "Active"),
    "a secret's type": (core.SECRET, {}, "type", "Opaque"),
    "what an event is about": (core.EVENT, {"involvedObject": {"uid": "u"}}, "involvedObject.uid", "u"),
    "where an event came from": (core.EVENT, {"reportingComponent": "agent"}, "source", "agent"),
}


@pytest.mark.parametrize(("kind", "document", "path", "expected"), SELECTABLE.values(), ids=SELECTABLE.keys())
def test_field_selectors(kind, document, path, expected):
    assert kind.selectable[path](view(kind, document)) == expected


def test_every_selectable_field_answers_for_an_empty_object():
    for kind in core.KINDS:
        for extract in kind.selectable.values():
            assert isinstance(extract(view(kind, {})), str)
