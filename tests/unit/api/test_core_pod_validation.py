"""A good pod, and one wrong thing at a time: the complaint names that field and nothing else."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.api import core, errors, raw
from muster.api.objects import decode_view

GOOD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "train-0", "namespace": "default"},
    "spec": {
        "initContainers": [
            {"name": "fetch", "image": "fetch:1", "command": ["fetch"]},
            {
                "name": "proxy",
                "image": "proxy:1",
                "restartPolicy": "Always",
                "readinessProbe": {"exec": {"command": ["x"]}},
            },
        ],
        "containers": [
            {
                "name": "train",
                "image": "train:1",
                "command": ["python", "train.py"],
                "workingDir": "anywhere/at all",
                "env": [
                    {"name": "PLAIN", "value": "1"},
                    {"name": "dotted.name-1", "value": ""},
                    {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
                    {
                        "name": "RANK",
                        "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['muster.dev/rank']"}},
                    },
                    {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}},
                    {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k.1", "optional": True}}},
                ],
                "envFrom": [{"configMapRef": {"name": "c"}, "prefix": "C_"}],
                "resources": {
                    "limits": {"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": 2, "hugepages-2Mi": "4Mi"},
                    "requests": {"cpu": 0.5},
                },
                "ports": [{"containerPort": 23456, "name": "rdzv"}, {"containerPort": 80, "hostPort": 8080}],
                "volumeMounts": [
                    {"name": "scratch", "mountPath": "/scratch", "subPath": "a/b"},
                    {"name": "config", "mountPath": "/etc/config", "readOnly": True},
                ],
                "livenessProbe": {"httpGet": {"port": "rdzv"}},
                "lifecycle": {"preStop": {"sleep": {"seconds": 1}}},
            },
            {"name": "log", "image": "log:1"},
        ],
        "volumes": [
            {"name": "scratch", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
            {"name": "config", "configMap": {"name": "c", "items": [{"key": "k", "path": "sub/k", "mode": 256}]}},
            {"name": "data", "persistentVolumeClaim": {"claimName": "d"}},
            {"name": "other", "nfs": {"server": "s", "path": "/"}},
        ],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "gpu", "operator": "In", "values": ["h200"]}]},
                        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]},
                    ]
                },
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 1,
                        "preference": {"matchExpressions": [{"key": "n", "operator": "Gt", "values": ["-1"]}]},
                    }
                ],
            },
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 100,
                        "podAffinityTerm": {
                            "topologyKey": "kubernetes.io/hostname",
                            "labelSelector": {"matchLabels": {"app": "train"}},
                            "matchLabelKeys": ["version"],
                        },
                    }
                ]
            },
        },
        "tolerations": [
            {"operator": "Exists"},
            {"key": "a", "value": "b", "effect": "NoExecute", "tolerationSeconds": 5},
        ],
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "minDomains": 2},
            {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"},
        ],
        "schedulingGates": [{"name": "kueue.x-k8s.io/admission"}],
        "nodeSelector": {"kubernetes.io/arch": "amd64"},
        "hostname": "train-0",
        "subdomain": "train",
        "activeDeadlineSeconds": 10,
        "priorityClassName": "high",
        "hostAliases": [{"ip": "::1", "hostnames": ["here"]}],
        "overhead": {"cpu": "10m"},
    },
}


def problems(document):
    made = raw.copy(document)
    core.POD.default(made)
    return core.POD.validate(decode_view(core.POD, raw.encode(made)))


def changed(path, value):
    """The good pod with one value put elsewhere; `...` takes it out."""
    document = raw.copy(GOOD)
    *steps, last = path
    at = document["spec"]
    for step in steps:
        at = at[step]
    if value is ...:
        del at[last]
    elif isinstance(at, list) and last == len(at):
        at.append(value)
    else:
        at[last] = value
    return document


def test_a_good_pod_has_no_fault():
    assert problems(GOOD) == []


C = ("containers", 0)
I = ("initContainers", 0)  # noqa: E741
R = (*C, "resources")
NODES = ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
NODES_PATH = "spec." + ".".join(NODES)
PODS = ("affinity", "podAntiAffinity", "preferredDuringSchedulingIgnoredDuringExecution", 0)
PODS_PATH = "spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0]"
S = "spec.containers[0]"
BAD = {
    "no containers": (("containers",), [], "spec.containers"),
    "a container without a name": ((*C, "name"), "", f"{S}.name"),
    "a name that is no label": ((*C, "name"), "Train_0", f"{S}.name"),
    "a name twice, across init containers": ((*C, "name"), "fetch", f"{S}.name"),
    "no image": ((*C, "image"), ..., f"{S}.image"),
    "an image with a space at its end": ((*C, "image"), "train ", f"{S}.image"),
    "a pull policy": ((*C, "imagePullPolicy"), "Sometimes", f"{S}.imagePullPolicy"),
    "a message policy": ((*C, "terminationMessagePolicy"), "Pipe", f"{S}.terminationMessagePolicy"),
    "restart policy of a plain container": ((*C, "restartPolicy"), "Always", f"{S}.restartPolicy"),
    "restart policy of an init container": ((*I, "restartPolicy"), "Never", "spec.initContainers[0].restartPolicy"),
    "a probe of an init container": (
        (*I, "livenessProbe"),
        {"exec": {"command": ["x"]}},
        "spec.initContainers[0].livenessProbe",
    ),
    "an unnamed variable": ((*C, "env", 0, "name"), "", f"{S}.env[0].name"),
    "a variable with =": ((*C, "env", 0, "name"), "A=B", f"{S}.env[0].name"),
    "a value and a source": ((*C, "env", 2, "value"), "x", f"{S}.env[2].valueFrom"),
    "a source of nothing": ((*C, "env", 2, "valueFrom"), {}, f"{S}.env[2].valueFrom"),
    "two sources": ((*C, "env", 2, "valueFrom", "secretKeyRef"), {"name": "s", "key": "k"}, f"{S}.env[2].valueFrom"),
    "a field that pods have not": (
        (*C, "env", 2, "valueFrom", "fieldRef", "fieldPath"),
        "spec.magic",
        f"{S}.env[2].valueFrom.fieldRef.fieldPath",
    ),
    "a field of another version": (
        (*C, "env", 2, "valueFrom", "fieldRef", "apiVersion"),
        "v2",
        f"{S}.env[2].valueFrom.fieldRef.apiVersion",
    ),
    "a resource nobody can read": (
        (*C, "env", 4, "valueFrom", "resourceFieldRef", "resource"),
        "cpu",
        f"{S}.env[4].valueFrom.resourceFieldRef.resource",
    ),
    "a key that is a path": (
        (*C, "env", 5, "valueFrom", "secretKeyRef", "key"),
        "../k",
        f"{S}.env[5].valueFrom.secretKeyRef.key",
    ),
    "no secret to read": (
        (*C, "env", 5, "valueFrom", "secretKeyRef", "name"),
        "",
        f"{S}.env[5].valueFrom.secretKeyRef.name",
    ),
    "all variables of nothing": ((*C, "envFrom", 0), {"prefix": "A"}, f"{S}.envFrom[0]"),
    "a quantity that is none": ((*R, "limits", "cpu"), "lots", f"{S}.resources.limits[cpu]"),
    "a negative quantity": ((*R, "limits", "memory"), "-1Gi", f"{S}.resources.limits[memory]"),
    "an absurd quantity": ((*R, "requests", "cpu"), "1e999", f"{S}.resources.requests[cpu]"),
    "more cpu than 64 bits of milli": ((*R, "limits", "cpu"), "9e18", f"{S}.resources.limits[cpu]"),
    "more requested than allowed": ((*R, "requests", "cpu"), "5", f"{S}.resources.requests"),
    "half a GPU": ((*R, "limits", "nvidia.com/gpu"), "500m", f"{S}.resources.limits[nvidia.com/gpu]"),
    "fewer GPUs requested than allowed": ((*R, "requests", "nvidia.com/gpu"), "1", f"{S}.resources.requests"),
    "a GPU without a limit": ((*R, "requests", "amd.com/gpu"), "1", f"{S}.resources.limits[amd.com/gpu]"),
    "a resource without a domain": ((*R, "limits", "gpu"), "1", f"{S}.resources.limits[gpu]"),
    "huge pages alone": (
        ("containers", 1, "resources"),
        {"limits": {"hugepages-2Mi": "2Mi"}},
        "spec.containers[1].resources",
    ),
    "a port out of range": ((*C, "ports", 0, "containerPort"), 65536, f"{S}.ports[0].containerPort"),
    "no port": ((*C, "ports", 0, "containerPort"), ..., f"{S}.ports[0].containerPort"),
    "a host port twice": ((*C, "ports", 2), {"containerPort": 1, "hostPort": 8080}, f"{S}.ports[2].hostPort"),
    "a port's name twice": ((*C, "ports", 1, "name"), "rdzv", f"{S}.ports[1].name"),
    "a port's name too long": ((*C, "ports", 1, "name"), "a" * 16, f"{S}.ports[1].name"),
    "a port's name without letter": ((*C, "ports", 1, "name"), "12", f"{S}.ports[1].name"),
    "a protocol": ((*C, "ports", 0, "protocol"), "ICMP", f"{S}.ports[0].protocol"),
    "a host address": ((*C, "ports", 1, "hostIP"), "host", f"{S}.ports[1].hostIP"),
    "a mount of nothing": ((*C, "volumeMounts", 0, "name"), "missing", f"{S}.volumeMounts[0].name"),
    "a mount nowhere": ((*C, "volumeMounts", 0, "mountPath"), "", f"{S}.volumeMounts[0].mountPath"),
    "a mount that climbs": ((*C, "volumeMounts", 0, "mountPath"), "/a/../b", f"{S}.volumeMounts[0].mountPath"),
    "two mounts at one place": ((*C, "volumeMounts", 0, "mountPath"), "/etc/config", f"{S}.volumeMounts[1].mountPath"),
    "a sub path that climbs": ((*C, "volumeMounts", 0, "subPath"), "../../etc", f"{S}.volumeMounts[0].subPath"),
    "a sub path from the root": ((*C, "volumeMounts", 0, "subPath"), "/etc", f"{S}.volumeMounts[0].subPath"),
    "a device of nothing": ((*C, "volumeDevices"), [{"name": "x", "devicePath": "/d"}], f"{S}.volumeDevices[0].name"),
    "a probe that asks nothing": ((*C, "livenessProbe"), {"periodSeconds": 1}, f"{S}.livenessProbe"),
    "a probe that asks twice": ((*C, "livenessProbe", "exec"), {"command": ["x"]}, f"{S}.livenessProbe.httpGet"),
    "a probe that counts backwards": ((*C, "livenessProbe", "periodSeconds"), -1, f"{S}.livenessProbe.periodSeconds"),
    "liveness that needs two": ((*C, "livenessProbe", "successThreshold"), 2, f"{S}.livenessProbe.successThreshold"),
    "a probe of port 0": ((*C, "livenessProbe", "httpGet", "port"), 0, f"{S}.livenessProbe.httpGet.port"),
    "a hook that does nothing": ((*C, "lifecycle", "preStop"), {}, f"{S}.lifecycle.preStop"),
    "a negative user": ((*C, "securityContext"), {"runAsUser": -1}, f"{S}.securityContext.runAsUser"),
    "a volume's name": (("volumes", 0, "name"), "Scratch", ["spec.volumes[0].name", f"{S}.volumeMounts[0].name"]),
    "a volume's name twice": (("volumes", 3, "name"), "scratch", "spec.volumes[3].name"),
    "two sources of a volume": (("volumes", 0, "hostPath"), {"path": "/x"}, "spec.volumes[0].hostPath"),
    "a host path that climbs": (
        ("volumes", 3),
        {"name": "o", "hostPath": {"path": "/a/../b"}},
        "spec.volumes[3].hostPath.path",
    ),
    "a host path of no type": (
        ("volumes", 3),
        {"name": "o", "hostPath": {"path": "/a", "type": "Pipe"}},
        "spec.volumes[3].hostPath.type",
    ),
    "a negative size": (("volumes", 0, "emptyDir", "sizeLimit"), "-1", "spec.volumes[0].emptyDir.sizeLimit"),
    "a medium": (("volumes", 0, "emptyDir", "medium"), "Tape", "spec.volumes[0].emptyDir.medium"),
    "no claim": (
        ("volumes", 2, "persistentVolumeClaim", "claimName"),
        "",
        "spec.volumes[2].persistentVolumeClaim.claimName",
    ),
    "a file that climbs": (
        ("volumes", 1, "configMap", "items", 0, "path"),
        "../k",
        "spec.volumes[1].configMap.items[0].path",
    ),
    "a mode": (("volumes", 1, "configMap", "items", 0, "mode"), 0o1000, "spec.volumes[1].configMap.items[0].mode"),
    "a projection of nothing": (
        ("volumes", 3),
        {"name": "o", "projected": {"sources": [{}]}},
        "spec.volumes[3].projected.sources[0]",
    ),
    "a restart policy": (("restartPolicy",), "Sometimes", "spec.restartPolicy"),
    "a deadline of zero": (("activeDeadlineSeconds",), 0, "spec.activeDeadlineSeconds"),
    "a negative grace": (("terminationGracePeriodSeconds",), -1, "spec.terminationGracePeriodSeconds"),
    "a DNS policy": (("dnsPolicy",), "Always", "spec.dnsPolicy"),
    "no DNS at all": (("dnsPolicy",), "None", "spec.dnsConfig.nameservers"),
    "a preemption policy": (("preemptionPolicy",), "Maybe", "spec.preemptionPolicy"),
    "a hostname": (("hostname",), "a.b", "spec.hostname"),
    "a subdomain": (("subdomain",), "A", "spec.subdomain"),
    "a node's name": (("nodeName",), "node/1", ["spec.nodeName", "spec.nodeName"]),
    "a node for a gated pod": (("nodeName",), "node-1", "spec.nodeName"),
    "a priority class": (("priorityClassName",), "High", "spec.priorityClassName"),
    "a node selector": (("nodeSelector", "a"), "b c", "spec.nodeSelector"),
    "a toleration's operator": (("tolerations", 0, "operator"), "Near", ["spec.tolerations[0].operator"] * 2),
    "a toleration's effect": (("tolerations", 0, "effect"), "NoFun", "spec.tolerations[0].effect"),
    "seconds of an effect that has none": (("tolerations", 1, "effect"), "NoSchedule", "spec.tolerations[1].effect"),
    "a toleration of a value that exists": (("tolerations", 0, "value"), "x", "spec.tolerations[0].operator"),
    "a toleration of nothing": (("tolerations", 0, "operator"), ..., "spec.tolerations[0].operator"),
    "no node terms": (NODES, [], NODES_PATH),
    "a node operator": (
        (*NODES, 0, "matchExpressions", 0, "operator"),
        "Like",
        f"{NODES_PATH}[0].matchExpressions[0].operator",
    ),
    "a node key": ((*NODES, 0, "matchExpressions", 0, "key"), "", f"{NODES_PATH}[0].matchExpressions[0].key"),
    "in nothing": ((*NODES, 0, "matchExpressions", 0, "values"), [], f"{NODES_PATH}[0].matchExpressions[0].values"),
    "a node field": ((*NODES, 1, "matchFields", 0, "key"), "spec.x", f"{NODES_PATH}[1].matchFields[0].key"),
    "weight zero": ((*PODS, "weight"), 0, f"{PODS_PATH}.weight"),
    "weight 101": ((*PODS, "weight"), 101, f"{PODS_PATH}.weight"),
    "no topology": ((*PODS, "podAffinityTerm", "topologyKey"), "", f"{PODS_PATH}.podAffinityTerm.topologyKey"),
    "a pod selector": (
        (*PODS, "podAffinityTerm", "labelSelector", "matchLabels"),
        {"a": "b c"},
        f"{PODS_PATH}.podAffinityTerm.labelSelector.matchLabels",
    ),
    "keys without a selector": (
        (*PODS, "podAffinityTerm", "labelSelector"),
        ...,
        f"{PODS_PATH}.podAffinityTerm.matchLabelKeys",
    ),
    "no skew": (("topologySpreadConstraints", 0, "maxSkew"), 0, "spec.topologySpreadConstraints[0].maxSkew"),
    "a spread twice": (
        ("topologySpreadConstraints", 1, "whenUnsatisfiable"),
        "DoNotSchedule",
        "spec.topologySpreadConstraints[1].{topologyKey, whenUnsatisfiable}",
    ),
    "a spread that gives up": (
        ("topologySpreadConstraints", 1, "whenUnsatisfiable"),
        "Cry",
        "spec.topologySpreadConstraints[1].whenUnsatisfiable",
    ),
    "domains that do not matter": (
        ("topologySpreadConstraints", 1, "minDomains"),
        1,
        "spec.topologySpreadConstraints[1].minDomains",
    ),
    "a gate twice": (("schedulingGates", 1), {"name": "kueue.x-k8s.io/admission"}, "spec.schedulingGates[1].name"),
    "an unnamed gate": (("schedulingGates", 0, "name"), "", "spec.schedulingGates[0].name"),
    "a gate's name": (("schedulingGates", 0, "name"), "a b", "spec.schedulingGates[0].name"),
    "a host alias": (("hostAliases", 0, "ip"), "localhost", "spec.hostAliases[0].ip"),
    "negative overhead": (("overhead", "cpu"), "-1", "spec.overhead[cpu]"),
    "a GPU for the pod as a whole": (
        ("resources",),
        {"limits": {"nvidia.com/gpu": "1"}, "requests": {"nvidia.com/gpu": "1"}},
        ["spec.resources.limits[nvidia.com/gpu]", "spec.resources.requests[nvidia.com/gpu]"],
    ),
    "less for the pod than for its containers": (
        ("resources",),
        {"limits": {"cpu": "8"}, "requests": {"cpu": "100m"}},
        "spec.resources.requests[cpu]",
    ),
    "a container above its pod": (
        ("resources",),
        {"limits": {"cpu": "2"}, "requests": {"cpu": "1"}},
        f"{S}.resources.limits[cpu]",
    ),
}


@pytest.mark.parametrize(("path", "value", "expected"), BAD.values(), ids=BAD.keys())
def test_one_wrong_thing(path, value, expected):
    found = [problem.path for problem in problems(changed(path, value))]
    assert found == ([expected] if isinstance(expected, str) else expected)


def test_on_the_host_network_a_port_cannot_be_another():
    document = changed(("hostNetwork",), True)
    assert [problem.path for problem in problems(document)] == [f"{S}.ports[1].hostPort"]


def test_everything_wrong_is_said_at_once():
    document = changed(("restartPolicy",), "Sometimes")
    document["spec"]["containers"][0]["image"] = ""
    document["spec"]["containers"][0]["resources"]["limits"]["memory"] = "-1Gi"
    document["spec"]["volumes"][0]["name"] = "scratch_1"
    assert {problem.path for problem in problems(document)} == {
        "spec.restartPolicy",
        f"{S}.image",
        f"{S}.resources.limits[memory]",
        "spec.volumes[0].name",
        f"{S}.volumeMounts[0].name",
    }


def test_a_complaint_says_what_was_found_and_what_is_wanted():
    (problem,) = problems(changed((*R, "requests", "cpu"), "5"))
    assert problem.message == 'Invalid value: "5": must be less than or equal to cpu limit of 4'
    (problem,) = problems(changed(("dnsPolicy",), "Always"))
    assert problem.message.startswith('Unsupported value: "Always": supported values: "ClusterFirst"')


def test_a_template_that_had_no_defaults_yet_is_fine():
    template = {"metadata": GOOD["metadata"], "spec": GOOD["spec"]}
    view = msgspec.json.decode(raw.encode(template), type=core.Pod)
    assert list(core.validate_pod_template("t", core.PodTemplateSpec(metadata=view.metadata, spec=view.spec))) == []


def test_a_template_names_its_own_path():
    template = core.PodTemplateSpec(spec=core.PodSpec(containers=(core.Container(name="a"),)))
    assert [p.path for p in core.validate_pod_template("spec.template", template)] == [
        "spec.template.spec.containers[0].image"
    ]


strange = st.none() | st.integers(-(2**40), 2**40) | st.text(max_size=4) | st.lists(st.text(max_size=2), max_size=2)
steps = st.lists(st.sampled_from([*{step for path, _, _ in BAD.values() for step in path}]), min_size=1, max_size=6)


@given(steps, strange)
def test_strange_values_anywhere_never_break_the_checks(path, value):
    document = raw.copy(GOOD)
    at = document["spec"]
    for step in path[:-1]:
        inner = at[step] if isinstance(at, dict) and step in at else None
        if isinstance(at, list) and isinstance(step, int) and step < len(at):
            inner = at[step]
        at = inner if isinstance(inner, dict | list) else at
    if isinstance(at, dict):
        at[str(path[-1])] = value
    core.POD.default(document)
    try:
        view = decode_view(core.POD, raw.encode(document))
    except errors.Invalid:
        return
    core.POD.validate(view)
