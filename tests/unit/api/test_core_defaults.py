import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.api import core, raw
from muster.api.core import pod_defaults


def defaulted(kind, document):
    made = raw.copy(document)
    kind.default(made)
    return made


def pod(spec=None, **container):
    return {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", **container}], **(spec or {})}}


def test_a_bare_pod_gets_what_an_api_server_gives():
    made = defaulted(core.POD, pod(image="train"))
    assert made["spec"] == {
        "containers": [
            {
                "name": "c",
                "image": "train",
                "imagePullPolicy": "Always",
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
                "resources": {},
            }
        ],
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "schedulerName": "default-scheduler",
        "securityContext": {},
        "enableServiceLinks": True,
        "serviceAccountName": "default",
        "serviceAccount": "default",
        "tolerations": [
            {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
            for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
        ],
    }
    assert made["status"] == {"phase": "Pending", "qosClass": "BestEffort"}


def test_what_is_given_stays():
    given_spec = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "dnsPolicy": "Default",
        "schedulerName": "mine",
        "securityContext": {"runAsUser": 7},
        "enableServiceLinks": False,
        "serviceAccountName": "robot",
    }
    made = defaulted(core.POD, pod(given_spec, image="x"))["spec"]
    assert {key: made[key] for key in given_spec} == given_spec
    assert made["serviceAccount"] == "robot"


PULL = {
    "train": "Always",
    "train:latest": "Always",
    "train:v1": "IfNotPresent",
    "registry:5000/team/train": "Always",
    "registry:5000/team/train:v1": "IfNotPresent",
    "train@sha256:0123": "IfNotPresent",
    "train:latest@sha256:0123": "IfNotPresent",
    "": "IfNotPresent",
}


@pytest.mark.parametrize(("image", "policy"), PULL.items(), ids=PULL.keys())
def test_only_a_moving_tag_is_pulled_each_time(image, policy):
    made = defaulted(core.POD, pod(image=image))
    assert made["spec"]["containers"][0]["imagePullPolicy"] == policy


def test_requests_come_from_limits_one_by_one():
    made = defaulted(core.POD, pod(resources={"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1"}}))
    assert made["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1", "memory": "1Gi"}


def test_a_template_keeps_its_requests_as_written():
    spec = pod(resources={"limits": {"cpu": "2"}})["spec"]
    core.default_pod_spec(spec)
    assert "requests" not in spec["containers"][0]["resources"]
    assert "tolerations" not in spec


def test_limits_of_the_whole_pod_become_its_requests():
    spec = {"resources": {"limits": {"cpu": "4", "memory": "8Gi", "hugepages-2Mi": "2Mi"}}}
    made = defaulted(core.POD, pod(spec, resources={"requests": {"cpu": "1500m"}}))
    assert made["spec"]["resources"]["requests"] == {"cpu": "1500m", "memory": "8Gi", "hugepages-2Mi": "2Mi"}


def test_probes_ports_and_hooks():
    made = defaulted(
        core.POD,
        pod(
            ports=[{"containerPort": 80}, {"containerPort": 53, "protocol": "UDP"}],
            livenessProbe={"httpGet": {"port": 80}, "periodSeconds": 3, "timeoutSeconds": 0},
            readinessProbe={"grpc": {"port": 1}},
            lifecycle={"preStop": {"httpGet": {"port": 80, "scheme": "HTTPS"}}},
            env=[{"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        ),
    )["spec"]["containers"][0]
    assert made["ports"] == [{"containerPort": 80, "protocol": "TCP"}, {"containerPort": 53, "protocol": "UDP"}]
    assert made["livenessProbe"] == {
        "httpGet": {"port": 80, "path": "/", "scheme": "HTTP"},
        "periodSeconds": 3,
        "timeoutSeconds": 1,
        "successThreshold": 1,
        "failureThreshold": 3,
    }
    assert made["readinessProbe"]["grpc"] == {"port": 1, "service": ""}
    assert made["lifecycle"]["preStop"]["httpGet"] == {"port": 80, "scheme": "HTTPS", "path": "/"}
    assert made["env"][0]["valueFrom"]["fieldRef"]["apiVersion"] == "v1"


def test_on_the_host_network_a_port_is_a_port_of_the_host():
    made = defaulted(core.POD, pod({"hostNetwork": True}, ports=[{"containerPort": 80}]))
    assert made["spec"]["containers"][0]["ports"] == [{"containerPort": 80, "hostPort": 80, "protocol": "TCP"}]


@pytest.mark.parametrize(
    "env",
    [
        [{"name": "RANK", "value": "0"}],
        [{"name": "RANK", "value": "1"}],
        [{"name": "RANK", "value": None}],
        [{"name": "A", "value": "1"}, {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
    ],
)
def test_members_of_one_template_keep_what_sets_them_apart(env):
    made = defaulted(core.POD, pod({"hostname": "h-1", "nodeName": "n1"}, env=env, image="i:1"))
    assert (made["spec"]["hostname"], made["spec"]["nodeName"]) == ("h-1", "n1")
    plain = [variable for variable in env if variable.get("value") is not None]
    assert [variable for variable in made["spec"]["containers"][0]["env"] if "value" in variable] == plain
    assert list(made["spec"]["containers"][0])[:3] == ["name", "env", "image"]
    for variable in made["spec"]["containers"][0]["env"]:
        assert variable.get("valueFrom", {}).get("fieldRef", {}).get("apiVersion", "v1") == "v1"
        assert "value" not in variable or variable["value"] is not None


def test_volumes():
    volumes = [
        {"name": "scratch"},
        {"name": "config", "configMap": {"name": "c"}},
        {"name": "secret", "secret": {"secretName": "s", "defaultMode": 0}},
        {"name": "host", "hostPath": {"path": "/x"}},
        {
            "name": "all",
            "projected": {
                "sources": [
                    {"serviceAccountToken": {"path": "t"}},
                    {"downwardAPI": {"items": [{"path": "n", "fieldRef": {"fieldPath": "metadata.name"}}]}},
                ]
            },
        },
    ]
    scratch, config, secret, host, everything = defaulted(core.POD, pod({"volumes": volumes}))["spec"]["volumes"]
    assert scratch["emptyDir"] == {}
    assert config["configMap"]["defaultMode"] == 0o644
    assert secret["secret"]["defaultMode"] == 0
    assert host["hostPath"]["type"] == ""
    token, fields = everything["projected"]["sources"]
    assert token["serviceAccountToken"]["expirationSeconds"] == 3600
    assert fields["downwardAPI"]["items"][0]["fieldRef"]["apiVersion"] == "v1"


def test_a_pod_that_speaks_of_lost_nodes_itself_is_left_alone():
    own = [
        {"key": pod_defaults.NOT_READY_TAINT, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5},
        {"operator": "Exists"},
    ]
    assert defaulted(core.POD, pod({"tolerations": own}))["spec"]["tolerations"] == own
    made = defaulted(core.POD, pod({"tolerations": own[:1]}))["spec"]["tolerations"]
    assert [toleration["key"] for toleration in made] == [pod_defaults.NOT_READY_TAINT, pod_defaults.UNREACHABLE_TAINT]


BOTH = {"cpu": "1", "memory": "1Gi"}
QOS = {
    "nothing asked": ({}, {}, "BestEffort"),
    "zero is nothing": ({"requests": {"cpu": "0"}}, {}, "BestEffort"),
    "a GPU alone": ({"limits": {"nvidia.com/gpu": "1"}}, {}, "BestEffort"),
    "limits of both": ({"limits": BOTH}, {}, "Guaranteed"),
    "the same in other words": ({"limits": BOTH, "requests": {"cpu": "1000m", "memory": "1024Mi"}}, {}, "Guaranteed"),
    "less requested": ({"limits": BOTH, "requests": {"cpu": "500m"}}, {}, "Burstable"),
    "memory has no limit": ({"limits": {"cpu": "1"}}, {}, "Burstable"),
    "only requests": ({"requests": BOTH}, {}, "Burstable"),
    "the pod as a whole": ({}, {"limits": BOTH}, "Guaranteed"),
    "the pod as a whole, in part": ({}, {"limits": {"cpu": "1"}}, "Burstable"),
}


@pytest.mark.parametrize(("container", "whole", "expected"), QOS.values(), ids=QOS.keys())
def test_quality_of_service(container, whole, expected):
    spec = {"resources": whole} if whole else {}
    assert defaulted(core.POD, pod(spec, resources=container))["status"]["qosClass"] == expected


def test_quality_of_service_needs_every_container():
    document = pod(resources={"limits": BOTH})
    document["spec"]["containers"].append({"name": "d"})
    assert defaulted(core.POD, document)["status"]["qosClass"] == "Burstable"


def test_a_namespace():
    made = defaulted(core.NAMESPACE, {"metadata": {"name": "team"}})
    assert made["spec"]["finalizers"] == ["kubernetes"]
    assert made["metadata"]["labels"] == {"kubernetes.io/metadata.name": "team"}
    assert made["status"]["phase"] == "Active"


def test_a_namespace_that_gave_up_its_finalizers_does_not_get_them_back():
    gone = {"metadata": {"name": "team", "deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {}}
    assert "finalizers" not in defaulted(core.NAMESPACE, gone)["spec"]


def test_a_secret_takes_plain_text_in():
    document = {"data": {"a": "eA==", "b": "eQ=="}, "stringData": {"b": "zürich"}}
    made = defaulted(core.SECRET, document)
    assert made == {"type": "Opaque", "data": {"a": "eA==", "b": base64.b64encode("zürich".encode()).decode()}}


def test_a_service():
    made = defaulted(core.SERVICE, {"spec": {"ports": [{"port": 80}, {"port": 81, "targetPort": "web"}]}})
    assert made["spec"] == {
        "ports": [
            {"port": 80, "protocol": "TCP", "targetPort": 80},
            {"port": 81, "protocol": "TCP", "targetPort": "web"},
        ],
        "type": "ClusterIP",
        "sessionAffinity": "None",
        "internalTrafficPolicy": "Cluster",
    }
    balanced = defaulted(core.SERVICE, {"spec": {"type": "LoadBalancer", "sessionAffinity": "ClientIP"}})["spec"]
    assert balanced["externalTrafficPolicy"] == "Cluster"
    assert balanced["allocateLoadBalancerNodePorts"] is True
    assert balanced["sessionAffinityConfig"] == {"clientIP": {"timeoutSeconds": 10_800}}


def test_a_node_offers_all_it_has_unless_it_says_less():
    assert defaulted(core.NODE, {"status": {"capacity": {"cpu": "4"}}})["status"]["allocatable"] == {"cpu": "4"}
    less = {"status": {"capacity": {"cpu": "4"}, "allocatable": {"cpu": "3"}}}
    assert defaulted(core.NODE, less)["status"]["allocatable"] == {"cpu": "3"}


def test_null_is_absent():
    document = pod({"volumes": None, "nodeSelector": None}, image="x", env=None)
    document["metadata"]["creationTimestamp"] = None
    document["status"] = None
    made = defaulted(core.POD, document)
    assert "volumes" not in made["spec"]
    assert "env" not in made["spec"]["containers"][0]
    assert made["status"]["phase"] == "Pending"


def test_a_document_nested_beyond_the_stack_is_no_trouble():
    deep: raw.Document = {}
    current = deep
    for _ in range(100_000):
        current["a"] = {}
        current = current["a"]
    core.CONFIG_MAP.default({"data": deep})


def test_events_have_two_spellings():
    (conversion,) = core.EVENT.conversions
    newer = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "e"},
        "note": "said",
        "regarding": {"kind": "Pod", "name": "p"},
        "reportingController": "agent",
        "deprecatedCount": 2,
        "deprecatedSource": {"component": "agent"},
        "reason": "Because",
    }
    older = conversion.to_stored(raw.copy(newer))
    assert older["apiVersion"] == "v1"
    assert older["message"] == "said"
    assert older["involvedObject"]["name"] == "p"
    assert older["reportingComponent"] == "agent"
    assert conversion.from_stored(raw.copy(older)) == newer


# Words that mean something to the defaults, in places where they do and where they do not belong.
words = st.sampled_from(
    [
        "spec", "metadata", "status", "containers", "initContainers", "volumes", "resources", "limits", "requests",
        "cpu", "memory", "image", "ports", "containerPort", "hostPort", "hostNetwork", "env", "valueFrom", "fieldRef",
        "livenessProbe", "httpGet", "grpc", "lifecycle", "preStop", "secret", "configMap", "projected", "sources",
        "downwardAPI", "items", "serviceAccountToken", "tolerations", "key", "effect", "labels", "name", "template",
        "podFailurePolicy", "rules", "onPodConditions", "pytorchReplicaSpecs", "worker", "Worker", "Master",
        "runPolicy", "elasticPolicy", "completions", "stringData", "data", "capacity", "sessionAffinity", "type",
        "restartPolicy", "port", "targetPort", "hostPath", "serviceAccount", "finalizers",
    ]
)  # fmt: skip
leaves = st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["", "1", "Always", "ClientIP", "x:y", "1Gi"])
values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=4), max_leaves=25
)
shapes = st.dictionaries(words, values, max_size=4)
wild_containers = st.lists(st.dictionaries(words, values, max_size=5) | leaves, max_size=3)
wild_specs = st.fixed_dictionaries(
    {}, optional={"containers": wild_containers, "initContainers": wild_containers, "volumes": st.lists(shapes),
                  "tolerations": values, "resources": shapes, "template": shapes, "ports": st.lists(shapes)}
)  # fmt: skip
wild = shapes | st.fixed_dictionaries({"spec": wild_specs, "metadata": shapes}, optional={"status": values})


@pytest.mark.parametrize("kind", core.KINDS, ids=lambda kind: kind.name)
@given(document=wild)
def test_defaults_take_any_shape_and_once_is_enough(kind, document):
    once = defaulted(kind, document)
    assert defaulted(kind, once) == once
