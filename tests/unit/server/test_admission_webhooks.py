"""AdmissionReviews: the same rules as in the embedded store, asked by another server."""

import base64
import json

import pytest

from muster.api import batch, core, kueue, managing, patching, raw, volcano
from muster.api.kueue import names
from muster.api.ownership import CLASS_LABEL, Ownership, Unlabelled
from muster.api.volcano import taking_in
from muster.runtime.clock import SystemClock
from muster.runtime.mirroring import mirrored
from muster.server.admission.answering import Webhooks
from muster.server.admission.reviewing import Completing
from muster.store.embedded import EmbeddedStore
from muster.store.protocol import Create, Selection, write_one
from muster.testing.asgi import AsgiClient
from muster.testing.builders import a_pod

CONTAINERS = [{"name": "main", "image": "x", "resources": {"requests": {"cpu": "1"}}}]
TEMPLATE = {"spec": {"containers": CONTAINERS, "restartPolicy": "Never"}}


def take_in(kind, document, find):
    taking_in.take_in(kind, document, find)
    managing.take_in(kind, document, find)


@pytest.fixture
async def world():
    clock = SystemClock()
    async with EmbeddedStore.in_memory(clock=clock) as store, mirrored(store, clock) as mirror:
        yield store, mirror


def asked_of(world, unlabelled=Unlabelled.OURS):
    _, mirror = world
    return AsgiClient(Webhooks(mirror, mirror.find, Completing(take_in, Ownership(unlabelled))))


async def review(client, path, kind, document, *, operation="CREATE", old=None):
    request = {
        "uid": "u-1",
        "kind": {"group": kind.group, "version": kind.version, "kind": kind.name},
        "namespace": document.get("metadata", {}).get("namespace", ""),
        "operation": operation,
        "object": None if operation == "DELETE" else document,
        "oldObject": document if operation == "DELETE" else old,
    }
    sent = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    reply = await client.request("POST", path, json=sent)
    assert reply.status == 200, reply.body
    response = reply.json["response"]
    assert response["uid"] == "u-1"
    return response


async def mutated(client, kind, document, **options):
    response = await review(client, "/mutate", kind, raw.copy(document), **options)
    assert response["allowed"], response
    if "patch" not in response:
        return document
    return patching.json_patch(document, json.loads(base64.b64decode(response["patch"])))


def a_job(**labels):
    metadata = {"name": "j", "namespace": "default", "labels": labels}
    return {"metadata": metadata, "spec": {"template": raw.copy(TEMPLATE), "suspend": False}}


async def test_a_job_in_a_queue_is_suspended_and_others_are_left_alone(world):
    client = asked_of(world)
    queued = a_job(**{names.QUEUE_LABEL: "research"})
    assert (await mutated(client, batch.JOB, queued))["spec"]["suspend"] is True
    assert await mutated(client, batch.JOB, a_job()) == a_job()


async def test_a_job_of_somebody_elses_queue_is_left_alone(world):
    theirs = a_job(**{names.QUEUE_LABEL: "research", CLASS_LABEL: "kueue"})
    assert await mutated(asked_of(world), batch.JOB, theirs) == theirs
    unlabelled = a_job(**{names.QUEUE_LABEL: "research"})
    assert await mutated(asked_of(world, Unlabelled.THEIRS), batch.JOB, unlabelled) == unlabelled


async def test_a_pod_in_a_queue_waits_behind_gates(world):
    pod = a_pod("p").label(names.QUEUE_LABEL, "research").document()
    made = await mutated(asked_of(world), core.POD, pod)
    assert made["metadata"]["labels"][names.MANAGED] == "true"
    assert {"name": names.ADMISSION_GATE} in made["spec"]["schedulingGates"]
    assert await mutated(asked_of(world), core.POD, a_pod("p").document()) == a_pod("p").document()


async def test_the_default_queue_of_a_namespace_takes_what_names_none(world):
    store, mirror = world
    client = asked_of(world)
    local = {"metadata": {"name": names.DEFAULT, "namespace": "default"}, "spec": {"clusterQueue": "all"}}
    await write_one(store, Create(kueue.LOCAL_QUEUE, local))
    await mirror.list(Selection(kueue.LOCAL_QUEUE))
    made = await mutated(client, batch.JOB, a_job())
    assert made["metadata"]["labels"][names.QUEUE_LABEL] == names.DEFAULT
    assert made["spec"]["suspend"] is True


async def test_part_of_a_job_that_our_copy_does_not_show_yet_is_held_with_it(world):
    store, _ = world
    metadata = {"name": "above", "namespace": "default", "labels": {names.QUEUE_LABEL: "research"}}
    above = await write_one(
        store, Create(batch.JOB, {"metadata": metadata, "spec": {"template": TEMPLATE, "suspend": True}})
    )
    part = a_job(**{names.QUEUE_LABEL: "research"})
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "above", "uid": above.uid, "controller": True}
    part["metadata"]["ownerReferences"] = [owner]
    assert (await mutated(asked_of(world), batch.JOB, part))["spec"]["suspend"] is True


def a_volcano_job(**spec):
    tasks = [{"name": "t", "replicas": 2, "template": TEMPLATE}]
    return {"metadata": {"name": "v", "namespace": "default"}, "spec": {"tasks": tasks, **spec}}


async def test_a_volcano_job_gets_its_defaults_and_names_our_scheduler_where_theirs_is_there_too(world):
    made = await mutated(asked_of(world), volcano.JOB, a_volcano_job())
    assert (made["spec"]["schedulerName"], made["spec"]["queue"]) == ("volcano", "default")
    ours = a_volcano_job()
    ours["metadata"]["labels"] = {CLASS_LABEL: "muster"}
    made = await mutated(asked_of(world, Unlabelled.THEIRS), volcano.JOB, ours)
    assert made["spec"]["schedulerName"] == "muster"


async def test_what_is_wrong_is_told_by_field(world):
    client = asked_of(world)
    response = await review(client, "/validate", volcano.JOB, a_volcano_job(minAvailable=9))
    assert not response["allowed"]
    assert response["status"]["code"] == 422
    assert any(cause["field"] == "spec.minAvailable" for cause in response["status"]["details"]["causes"])
    bad = a_job(**{CLASS_LABEL: "volcanoo"})
    response = await review(client, "/validate", batch.JOB, bad)
    assert "muster.dev/class" in response["status"]["message"]


async def test_fields_that_must_not_change_are_kept_by_an_update(world):
    flavor = {"metadata": {"name": "f"}, "spec": {"topologyName": "racks", "nodeLabels": {"a": "b"}}}
    changed = {"metadata": {"name": "f"}, "spec": {"topologyName": "rooms", "nodeLabels": {"a": "b"}}}
    response = await review(
        asked_of(world), "/validate", kueue.RESOURCE_FLAVOR, changed, operation="UPDATE", old=flavor
    )
    assert not response["allowed"]
    response = await review(asked_of(world), "/validate", kueue.RESOURCE_FLAVOR, flavor, operation="UPDATE", old=flavor)
    assert response["allowed"]


async def test_a_queue_that_must_stay_cannot_be_deleted(world):
    queue = {"metadata": {"name": "default"}}
    response = await review(asked_of(world), "/validate", volcano.QUEUE, queue, operation="DELETE")
    assert (response["allowed"], response["status"]["code"]) == (False, 403)


@pytest.mark.parametrize(
    "body", [{}, {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}, {"kind": "Pod"}]
)
async def test_what_is_no_review_is_refused(world, body):
    reply = await asked_of(world).request("POST", "/mutate", json=body)
    assert reply.status == 400


async def test_other_paths_and_methods_are_not_served(world):
    assert (await asked_of(world).request("GET", "/mutate")).status == 404
    assert (await asked_of(world).request("POST", "/other", json={})).status == 404
