"""Kueue's configuration file: what it sets, what it may say without effect, and what is wrong with it."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.api.managing import USUAL_NAMESPACES
from muster.api.selectors import parse_labels
from muster.quota import configuration
from muster.quota.configuration import V1BETA1, V1BETA2, Configuration
from muster.quota.gates import Gate
from muster.quota.settings import (
    AdmissionFairSharing,
    FairSharing,
    Metrics,
    PodsReady,
    Retention,
    Settings,
    ShareRule,
    Transformation,
)


def read(version=V1BETA2, **document):
    return configuration.parse({"apiVersion": version, "kind": "Configuration", **document})


def settings(version=V1BETA2, **document) -> Settings:
    found = read(version, **document)
    assert isinstance(found, Configuration), found
    return found.settings


def problems(version=V1BETA2, **document):
    found = read(version, **document)
    assert isinstance(found, list), found
    return {problem.path: problem.message for problem in found}


def warnings(**document):
    found = read(**document)
    assert isinstance(found, Configuration), found
    return [warning.partition(":")[0] for warning in found.warnings]


def test_an_empty_file_changes_nothing():
    assert read() == Configuration(Settings())
    assert read(V1BETA1) == Configuration(Settings())


def test_gates_are_switched_with_what_they_need():
    gates = settings(featureGates={"TopologyAwareScheduling": False, "PriorityBoost": True}).gates
    assert Gate.PRIORITY_BOOST in gates
    assert Gate.TAS_PROFILE_MIXED not in gates


def test_a_gate_without_effect_is_accepted_with_a_word():
    assert warnings(featureGates={"MultiKueue": True}) == ["featureGates.MultiKueue"]


RULES = ["LessThanOrEqualToFinalShare", "LessThanInitialShare"]


@pytest.mark.parametrize(
    ("version", "section", "expected"),
    [
        (V1BETA2, {"preemptionStrategies": RULES}, FairSharing()),
        (V1BETA2, {"preemptionStrategies": RULES[1:]}, FairSharing((ShareRule.INITIAL,))),
        (V1BETA1, {"enable": True}, FairSharing()),
        (V1BETA1, {"enable": True, "preemptionStrategies": RULES[:1]}, FairSharing((ShareRule.FINAL,))),
        (V1BETA1, {"enable": False, "preemptionStrategies": RULES}, None),
    ],
)
def test_fair_sharing(version, section, expected):
    assert settings(version, fairSharing=section).fair_sharing == expected


def test_waiting_for_pods():
    found = settings(
        waitForPodsReady={
            "timeout": "5m",
            "recoveryTimeout": "1m30s",
            "blockAdmission": True,
            "requeuingStrategy": {
                "timestamp": "Creation",
                "backoffBaseSeconds": 10,
                "backoffMaxSeconds": 100,
                "backoffLimitCount": 0,
            },
        }
    )
    assert found.pods_ready == PodsReady(300.0, 90.0, True, 10, 100, 0)
    assert not found.requeues_by_eviction_time


def test_recovery_takes_as_long_as_the_start_may_unless_it_is_not_watched():
    assert settings(waitForPodsReady={"timeout": "7m"}).pods_ready == PodsReady(420.0, 420.0)
    assert settings(waitForPodsReady={"recoveryTimeout": "0s"}).pods_ready == PodsReady(1800.0, None)


def test_the_older_version_has_a_switch_and_a_gate_switches_off_as_well():
    section = {"timeout": "5m"}
    assert settings(V1BETA1, waitForPodsReady=section).pods_ready is None
    assert settings(V1BETA1, waitForPodsReady={"enable": True, **section}).pods_ready is not None
    off = {"DisableWaitForPodsReady": True}
    assert settings(waitForPodsReady=section, featureGates=off).pods_ready is None


def test_admission_fair_sharing():
    section = {"usageHalfLifeTime": "168h", "usageSamplingInterval": "1m", "resourceWeights": {"cpu": 0.1, "gpu": 2}}
    assert settings(admissionFairSharing=section).admission_fair_sharing == AdmissionFairSharing(
        604800.0, 60.0, {"cpu": Fraction(1, 10), "gpu": Fraction(2)}
    )
    assert settings(admissionFairSharing={"usageHalfLifeTime": "0s"}).admission_fair_sharing == AdmissionFairSharing()


def test_resources():
    found = settings(
        resources={
            "excludeResourcePrefixes": ["example.com/"],
            "transformations": [
                {"input": "nvidia.com/mig-1g.5gb", "strategy": "Replace", "outputs": {"example.com/memory": "5Gi"}},
                {"input": "a", "outputs": {"b": "500m"}, "multiplyBy": "c"},
            ],
        }
    )
    assert found.excluded_prefixes == ("example.com/",)
    assert found.transformations == (
        Transformation("nvidia.com/mig-1g.5gb", False, {"example.com/memory": Fraction(5 * 2**30)}),
        Transformation("a", True, {"b": Fraction(1, 2)}, "c"),
    )


def test_undeclared_resources():
    ignoring = {"resources": {"quotaCheckStrategy": "IgnoreUndeclared"}}
    assert settings(**ignoring).ignores_undeclared
    assert not settings(resources={"quotaCheckStrategy": "BlockUndeclared"}).ignores_undeclared
    assert not settings(featureGates={"QuotaCheckStrategy": False}, **ignoring).ignores_undeclared


def test_labels_that_workloads_get():
    integrations = {"frameworks": ["batch/job", "pod"], "labelKeysToCopy": ["team", "example.com/cost"]}
    assert settings(integrations=integrations).copied_labels == ("team", "example.com/cost")


def test_whose_jobs_queue():
    assert settings().managed_namespaces == USUAL_NAMESPACES
    chosen = settings(managedJobsNamespaceSelector={"matchLabels": {"team": "ml"}}).managed_namespaces
    assert chosen.matches({"team": "ml"})
    assert not chosen.matches({"kubernetes.io/metadata.name": "default"})


def test_how_long_workloads_are_kept():
    assert not settings().retention.is_limited
    policies = {"workloads": {"afterFinished": "72h", "afterDeactivatedByKueue": "0"}}
    assert settings(objectRetentionPolicies=policies).retention == Retention(259_200.0, 0.0)


def test_kinds_of_jobs_that_are_not_there_are_named():
    listed = ["batch/job", "pod", "ray.io/rayjob"]
    assert warnings(integrations={"frameworks": listed}) == ["integrations.frameworks[2]"]


def test_what_is_measured():
    assert settings().metrics == Metrics()
    chosen = {
        "enableClusterQueueResources": False,
        "localQueueMetrics": {"enable": True, "localQueueSelector": {"matchLabels": {"team": "a"}}},
    }
    assert settings(metrics=chosen).metrics == Metrics(amounts=False, local_queue_selector=parse_labels("team=a"))
    listed = {"matchExpressions": [{"key": "team", "operator": "In", "values": ["a", "b"]}]}
    found = settings(metrics={"localQueueMetrics": {"localQueueSelector": listed}}).metrics
    assert (found.local_queue_selector.matches({"team": "b"}), found.local_queue_selector.matches({})) == (True, False)
    assert not settings(metrics={"localQueueMetrics": {"enable": False}}).metrics.local_queues
    assert not settings(featureGates={"LocalQueueMetrics": False}).metrics.local_queues


def test_what_kueue_has_and_this_platform_does_without_is_named():
    given_ = {
        "manageJobsWithoutQueueName": True,
        "leaderElection": {"leaderElect": True},
        "metrics": {"bindAddress": ":8443"},
        "integrations": {"podOptions": {}},
        "resources": {"deviceClassMappings": []},
    }
    assert warnings(**given_) == [
        "manageJobsWithoutQueueName",
        "leaderElection",
        "integrations.podOptions",
        "metrics.bindAddress",
        "resources.deviceClassMappings",
    ]


NO_REQUIREMENT = {"key": "a", "operator": "Is"}
BAD = {
    "a namespace selector that is none": (
        {"managedJobsNamespaceSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}},
        "managedJobsNamespaceSelector.matchExpressions[0].operator",
        "Near",
    ),
    "a retention that is no time": (
        {"objectRetentionPolicies": {"workloads": {"afterFinished": "soon"}}},
        "objectRetentionPolicies.workloads.afterFinished",
        "length of time",
    ),
    "an unknown gate": (
        {"featureGates": {"PartialAdmision": True}},
        "featureGates.PartialAdmision",
        "PartialAdmission",
    ),
    "a gate that is text": ({"featureGates": {"PartialAdmission": "on"}}, "featureGates.PartialAdmission", "true"),
    "metrics of local queues by no selector": (
        {
            "metrics": {
                "localQueueMetrics": {"localQueueSelector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}}
            }
        },
        "metrics.localQueueMetrics.localQueueSelector.matchExpressions[0].operator",
        "In",
    ),
    "an unknown switch of metrics": ({"metrics": {"enableCohorts": True}}, "metrics.enableCohorts", "unknown field"),
    "gates in a list": ({"featureGates": []}, "featureGates", "must be an object"),
    "a bad duration": (
        {"waitForPodsReady": {"timeout": "five minutes"}},
        "waitForPodsReady.timeout",
        "must be a length of time",
    ),
    "a switch that is gone": ({"waitForPodsReady": {"enable": True}}, "waitForPodsReady.enable", "unknown field"),
    "a negative backoff": (
        {"waitForPodsReady": {"requeuingStrategy": {"backoffBaseSeconds": -1}}},
        "waitForPodsReady.requeuingStrategy.backoffBaseSeconds",
        "must be 0 or more",
    ),
    "another timestamp": (
        {"waitForPodsReady": {"requeuingStrategy": {"timestamp": "Now"}}},
        "waitForPodsReady.requeuingStrategy.timestamp",
        "Eviction",
    ),
    "fair sharing by nothing": ({"fairSharing": {}}, "fairSharing.preemptionStrategies", "Required value"),
    "fair sharing in another order": (
        {"fairSharing": {"preemptionStrategies": RULES[::-1]}},
        "fairSharing.preemptionStrategies",
        "must be",
    ),
    "fair sharing by something else": (
        {"fairSharing": {"preemptionStrategies": ["Coin"]}},
        "fairSharing.preemptionStrategies",
        "supported values",
    ),
    "no half-life": ({"admissionFairSharing": {}}, "admissionFairSharing.usageHalfLifeTime", "Required value"),
    "a weight below nothing": (
        {"admissionFairSharing": {"usageHalfLifeTime": "1h", "resourceWeights": {"cpu": -1}}},
        "admissionFairSharing.resourceWeights.cpu",
        "must be 0 or more",
    ),
    "a weight that is none": (
        {"admissionFairSharing": {"usageHalfLifeTime": "1h", "resourceWeights": {"cpu": "1"}}},
        "admissionFairSharing.resourceWeights.cpu",
        "must be a number",
    ),
    "a prefix that is a number": (
        {"resources": {"excludeResourcePrefixes": ["a", 1]}},
        "resources.excludeResourcePrefixes[1]",
        "must be a string",
    ),
    "two ways to leave out": (
        {"resources": {"excludeResourcePrefixes": ["a"], "quotaCheckStrategy": "IgnoreUndeclared"}},
        "resources.excludeResourcePrefixes",
        "must be empty",
    ),
    "a transformation of nothing": (
        {"resources": {"transformations": [{"outputs": {"a": 1}}]}},
        "resources.transformations[0].input",
        "Required value",
    ),
    "a transformation twice": (
        {"resources": {"transformations": [{"input": "a"}, {"input": "a"}]}},
        "resources.transformations[1].input",
        "Duplicate value",
    ),
    "an output that is no amount": (
        {"resources": {"transformations": [{"input": "a", "outputs": {"b": "much"}}]}},
        "resources.transformations[0].outputs.b",
        "Invalid value",
    ),
    "a field that nobody has": ({"fairsharing": {}}, "fairsharing", "unknown field"),
    "a label that is none": ({"integrations": {"labelKeysToCopy": ["a b"]}}, "integrations.labelKeysToCopy[0]", "name"),
    "a framework in a word": ({"integrations": {"frameworks": "pod"}}, "integrations.frameworks", "must be a list"),
}


@pytest.mark.parametrize(("document", "path", "message"), BAD.values(), ids=BAD.keys())
def test_what_is_wrong_is_told_with_its_path(document, path, message):
    found = problems(**document)
    assert list(found) == [path]
    assert message in found[path]


def test_everything_that_is_wrong_is_told_at_once():
    found = problems("config.kueue.x-k8s.io/v1", kind="Settings", waitForPodsReady={"timeout": 5}, typo=1)
    assert list(found) == ["apiVersion", "kind", "waitForPodsReady.timeout", "typo"]


names = st.sampled_from(
    ["featureGates", "fairSharing", "admissionFairSharing", "waitForPodsReady", "resources", "integrations", "enable",
     "transformations", "outputs", "resourceWeights", "requeuingStrategy", "timeout", "input", "PartialAdmission"]
)  # fmt: skip
leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4)
values = st.recursive(leaves, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=3))


@given(version=st.sampled_from([V1BETA1, V1BETA2]), document=st.dictionaries(names, values, max_size=4))
def test_any_document_gets_an_answer(version, document):
    assert isinstance(read(version, **document), Configuration | list)
