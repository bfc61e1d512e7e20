"""What the API server is told: nothing of a cluster's own work waits for us."""

import base64

from muster.api.ownership import Ownership, Unlabelled
from muster.server.admission.configurations import Address, mutating, validating

SERVICE = Address(b"PEM", "muster-system", "muster-webhook")


def by_name(hooks):
    return {hook["name"].removesuffix(".muster.dev"): hook for hook in hooks}


def test_what_the_cluster_does_without_us_goes_on_when_nobody_answers():
    for hook in [*mutating(SERVICE, Ownership()), *validating(SERVICE, Ownership())]:
        resources = {resource for rule in hook["rules"] for resource in rule["resources"]}
        selected = {each["key"] for each in hook["objectSelector"].get("matchExpressions", [])}
        must_answer = hook["failurePolicy"] == "Fail"
        queued = {"key": "kueue.x-k8s.io/queue-name", "operator": "Exists"} in hook["objectSelector"][
            "matchExpressions"
        ]
        asks_for_volcano = any("schedulerName" in c["expression"] for c in hook.get("matchConditions", []))
        if resources & {"pods"} and must_answer:
            assert queued or asks_for_volcano, hook["name"]
        assert selected, hook["name"]
        (namespaces,) = hook["namespaceSelector"]["matchExpressions"]
        assert namespaces["values"] == ["kube-system", "muster-system"]


def test_pods_of_controllers_are_not_asked_about():
    others = by_name(mutating(SERVICE, Ownership()))["other-pods"]
    assert any("ownerReferences" in condition["expression"] for condition in others["matchConditions"])
    steering = by_name(mutating(SERVICE, Ownership(), steers_pods=True))["other-pods"]
    assert "matchConditions" not in steering


def test_only_what_is_labelled_as_ours_where_others_are_there_too():
    hooks = by_name(mutating(SERVICE, Ownership(Unlabelled.THEIRS)))
    assert {"key": "muster.dev/class", "operator": "In", "values": ["muster"]} in hooks["objects"]["objectSelector"][
        "matchExpressions"
    ]


def test_a_controller_outside_of_the_cluster_is_asked_by_its_url():
    client = mutating(Address(b"PEM", "x", "y", "https://127.0.0.1:9443/"), Ownership())[0]["clientConfig"]
    assert client == {"url": "https://127.0.0.1:9443/mutate", "caBundle": base64.b64encode(b"PEM").decode()}
    service = validating(SERVICE, Ownership())[0]["clientConfig"]["service"]
    assert service == {"namespace": "muster-system", "name": "muster-webhook", "path": "/validate", "port": 443}


def test_what_is_being_deleted_is_not_held_up():
    for hooks in (mutating(SERVICE, Ownership()), validating(SERVICE, Ownership())):
        conditions = [condition["expression"] for condition in by_name(hooks)["objects"]["matchConditions"]]
        assert conditions == ["!has(object.metadata.deletionTimestamp)"]
