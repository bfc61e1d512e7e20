import pytest

from muster.api import core, raw
from muster.api.objects import decode_view

TERMS = [{"matchExpressions": [{"key": "gpu", "operator": "In", "values": ["h200"]}]}]
SPEC: raw.Document = {
    "containers": [{"name": "train", "image": "train:1"}, {"name": "log", "image": "log:1"}],
    "initContainers": [{"name": "fetch", "image": "fetch:1"}],
    "activeDeadlineSeconds": 100,
    "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}],
    "nodeSelector": {"zone": "a"},
    "affinity": {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": TERMS}},
        "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]},
    },
}
GATES = [{"name": "a/x"}, {"name": "a/y"}]
BOUND = {"nodeName": "node-1"}
GATED = {"schedulingGates": GATES}


def view(spec):
    document = {"metadata": {"name": "p"}, "spec": raw.copy(spec)}
    core.POD.default(document)
    return decode_view(core.POD, raw.encode(document))


def problems(old, change):
    new = raw.copy(old)
    change(new)
    return core.POD.validate_update(view(old), view(new))


def set_image(spec):
    spec["containers"][0]["image"] = "train:2"
    spec["initContainers"][0]["image"] = "fetch:2"


def require_more(spec):
    terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    terms[0]["matchExpressions"].append({"key": "zone", "operator": "Exists"})


def require_other(spec):
    terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    terms[0]["matchExpressions"][0]["values"] = ["b200"]


def add_term(spec):
    terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    terms.append({"matchExpressions": [{"key": "zone", "operator": "Exists"}]})


def prefer(spec):
    spec["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] = [
        {"weight": 1, "preference": TERMS[0]}
    ]


ALLOWED = {
    "nothing": (BOUND, lambda spec: None),
    "images": (BOUND, set_image),
    "a shorter deadline": (BOUND, lambda spec: spec.update(activeDeadlineSeconds=50)),
    "one more toleration": (BOUND, lambda spec: spec["tolerations"].append({"key": "b", "operator": "Exists"})),
    "another patience": (BOUND, lambda spec: spec["tolerations"][0].update(tolerationSeconds=9)),
    "being bound": ({}, lambda spec: spec.update(nodeName="node-1")),
    "a gate removed": (GATED, lambda spec: spec.update(schedulingGates=GATES[1:])),
    "all gates removed": (GATED, lambda spec: spec.pop("schedulingGates")),
    "one more node label while gated": (GATED, lambda spec: spec["nodeSelector"].update(rack="r1")),
    "one more node condition while gated": (GATED, require_more),
    "another preference while gated": (GATED, prefer),
    "node labels as the last gate goes": (
        GATED,
        lambda spec: (spec.pop("schedulingGates"), spec["nodeSelector"].update(rack="r1")),
    ),
}


@pytest.mark.parametrize(("extra", "change"), ALLOWED.values(), ids=ALLOWED.keys())
def test_allowed(extra, change):
    assert problems({**SPEC, **extra}, change) == []


AFFINITY = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
REFUSED = {
    "a container added": (
        BOUND,
        lambda spec: spec["containers"].append({"name": "x", "image": "x"}),
        "spec.containers",
    ),
    "a container renamed": (BOUND, lambda spec: spec["containers"][0].update(name="x"), "spec.containers"),
    "an init container removed": (BOUND, lambda spec: spec["initContainers"].pop(), "spec.initContainers"),
    "a command": (BOUND, lambda spec: spec["containers"][0].update(command=["x"]), "spec"),
    "resources": (BOUND, lambda spec: spec["containers"][0].update(resources={"limits": {"cpu": "1"}}), "spec"),
    "a longer deadline": (
        BOUND,
        lambda spec: spec.update(activeDeadlineSeconds=101),
        "spec.activeDeadlineSeconds",
    ),
    "no deadline any more": (BOUND, lambda spec: spec.pop("activeDeadlineSeconds"), "spec.activeDeadlineSeconds"),
    "a toleration removed": (BOUND, lambda spec: spec["tolerations"].pop(), "spec.tolerations"),
    "grace": (BOUND, lambda spec: spec.update(terminationGracePeriodSeconds=1), "spec"),
    "another node": (BOUND, lambda spec: spec.update(nodeName="node-2"), "spec.nodeName"),
    "no node any more": (BOUND, lambda spec: spec.pop("nodeName"), "spec.nodeName"),
    "a new gate": (GATED, lambda spec: spec["schedulingGates"].append({"name": "a/z"}), "spec.schedulingGates[2]"),
    "a first gate": ({}, lambda spec: spec.update(schedulingGates=GATES[:1]), "spec.schedulingGates[0]"),
    "node labels of a pod without gates": ({}, lambda spec: spec["nodeSelector"].update(rack="r1"), "spec"),
    "another value of a node label": (
        GATED,
        lambda spec: spec["nodeSelector"].update(zone="b"),
        "spec.nodeSelector[zone]",
    ),
    "a node label removed": (GATED, lambda spec: spec["nodeSelector"].pop("zone"), "spec.nodeSelector[zone]"),
    "another node condition": (GATED, require_other, f"{AFFINITY}[0]"),
    "an alternative to the node condition": (GATED, add_term, AFFINITY),
    "no node condition any more": (GATED, lambda spec: spec["affinity"].pop("nodeAffinity"), AFFINITY),
    "attraction to other pods, even while gated": (
        GATED,
        lambda spec: spec["affinity"].pop("podAffinity"),
        "spec",
    ),
    "node conditions of a pod without gates": ({}, require_more, "spec"),
}


@pytest.mark.parametrize(("extra", "change", "path"), REFUSED.values(), ids=REFUSED.keys())
def test_refused(extra, change, path):
    assert [problem.path for problem in problems({**SPEC, **extra}, change)] == [path]


def test_a_refusal_begins_as_in_kubernetes_and_names_what_changed():
    (problem,) = problems(SPEC, lambda spec: spec.update(hostNetwork=True, hostname="x"))
    assert problem.message.startswith("Forbidden: pod updates may not change fields other than `spec.containers[*]")
    assert problem.message.endswith("this update changes spec.hostNetwork, spec.hostname")


def test_the_first_affinity_of_a_gated_pod_may_be_anything():
    bare = {"containers": SPEC["containers"], "schedulingGates": GATES}
    wanted = {"nodeAffinity": SPEC["affinity"]["nodeAffinity"]}
    assert problems(bare, lambda spec: spec.update(affinity=wanted)) == []


def test_a_priority_that_was_resolved_may_be_left_out_but_not_changed():
    old = {**SPEC, "priority": 5}
    assert problems(old, lambda spec: spec.pop("priority")) == []
    assert [problem.path for problem in problems(old, lambda spec: spec.update(priority=6))] == ["spec"]
