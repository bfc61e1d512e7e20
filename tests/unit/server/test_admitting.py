"""Checks at the edge that need other objects: queues that exist, are open and fit into their tree."""

import pytest

from muster.api import volcano
from muster.api.objects import Key
from muster.store.protocol import Patch, write_one

QUEUES = "/k8s/apis/scheduling.volcano.sh/v1beta1/queues"
GROUPS = "/k8s/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups"
JOBS = "/k8s/apis/batch.volcano.sh/v1alpha1/namespaces/default/jobs"
PODS = "/k8s/api/v1/namespaces/default/pods"


def a_queue(name: str, **spec) -> dict:
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"weight": 1, **spec},
    }


def a_job(queue: str, **spec) -> dict:
    template = {"spec": {"containers": [{"name": "main", "image": "host", "command": ["true"]}]}}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "j"},
        "spec": {"queue": queue, "tasks": [{"name": "t", "replicas": 1, "template": template}], **spec},
    }


def fields(reply) -> list[str]:
    assert reply.status == 422, reply.json
    return [cause["field"] for cause in reply.json["details"]["causes"]]


async def close(store, name: str) -> None:
    patch = Patch(volcano.QUEUE, Key("", name), {"status": {"state": "Closed"}}, subresource="status")
    await write_one(store, patch)


async def test_all_that_is_wrong_with_a_job_is_told_at_once(client):
    reply = await client.request("POST", JOBS, json=a_job("lost", maxRetry=-1, priorityClassName="none"))
    assert fields(reply) == ["spec.maxRetry", "spec.queue", "spec.priorityClassName"]
    assert "unable to find job queue" in reply.json["message"]


async def test_a_job_enters_an_open_queue_only(client, store):
    await client.request("POST", QUEUES, json=a_queue("gold"))
    await close(store, "gold")
    assert fields(await client.request("POST", JOBS, json=a_job("gold"))) == ["spec.queue"]
    assert (await client.request("POST", JOBS, json=a_job("default"))).status == 201


async def test_a_job_that_exists_already_is_told_as_such(client):
    await client.request("POST", JOBS, json=a_job("default"))
    assert (await client.request("POST", JOBS, json=a_job("lost"))).status == 409


async def test_to_apply_is_checked_like_to_create(client, store):
    headers, query = {"content-type": "application/apply-patch+yaml"}, {"fieldManager": "me"}
    reply = await client.request("PATCH", f"{JOBS}/j", json=a_job("lost"), headers=headers, query=query)
    assert fields(reply) == ["spec.queue"]
    wrong = a_job("lost", maxRetry=-1)
    reply = await client.request("PATCH", f"{JOBS}/j", json=wrong, headers=headers, query=query)
    assert fields(reply) == ["spec.maxRetry", "spec.queue"]
    await client.request("POST", QUEUES, json=a_queue("gold"))
    assert (await client.request("PATCH", f"{JOBS}/j", json=a_job("gold"), headers=headers, query=query)).status == 201
    await close(store, "gold")
    again = a_job("gold") | {"metadata": {"name": "j", "labels": {"a": "b"}}}
    reply = await client.request("PATCH", f"{JOBS}/j", json=again, headers=headers, query=query)
    assert reply.status == 200, "a job that is there stays there"


async def test_a_pod_group_enters_a_queue_that_exists(client):
    group = {"metadata": {"name": "g"}, "spec": {"minMember": 1, "queue": "lost"}}
    assert fields(await client.request("POST", GROUPS, json=group)) == ["spec.queue"]
    group = {"metadata": {"name": "g"}, "spec": {"minMember": 1, "queue": "default"}}
    assert (await client.request("POST", GROUPS, json=group)).status == 201


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
async def test_a_queue_cannot_be_moved_where_it_does_not_fit(client, method):
    for queue in (a_queue("top", capability={"cpu": "4"}), a_queue("leaf", capability={"cpu": "8"})):
        assert (await client.request("POST", QUEUES, json=queue)).status == 201
    if method == "PUT":
        reply = await client.request(
            "PUT", f"{QUEUES}/leaf", json=a_queue("leaf", capability={"cpu": "8"}, parent="top")
        )
    else:
        headers = {"content-type": "application/merge-patch+json"}
        reply = await client.request("PATCH", f"{QUEUES}/leaf", json={"spec": {"parent": "top"}}, headers=headers)
    assert fields(reply) == ["spec.capability.cpu"]


async def test_a_queue_that_others_need_stays(client):
    for queue in (a_queue("top"), a_queue("leaf", parent="top"), a_queue("default")):
        await client.request("POST", QUEUES, json=queue)
    reply = await client.request("DELETE", f"{QUEUES}/top")
    assert (reply.status, reply.json["reason"]) == (403, "Forbidden")
    assert "it has 1 child queues: leaf" in reply.json["message"]
    assert (await client.request("DELETE", f"{QUEUES}/default")).status == 403
    assert (await client.request("DELETE", QUEUES)).status == 403
    assert (await client.request("DELETE", f"{QUEUES}/leaf")).status == 200
    assert (await client.request("DELETE", f"{QUEUES}/top")).status == 200


async def test_a_pod_says_one_way_how_many_may_be_disrupted(client, make_pod):
    pod = make_pod(schedulerName="volcano")
    pod["metadata"]["annotations"] = {"volcano.sh/jdb-min-available": "200%"}
    assert fields(await client.request("POST", PODS, json=pod)) == [
        "metadata.annotations[volcano.sh/jdb-min-available]"
    ]


# Labels of what queues

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
BATCH_JOBS = "/k8s/apis/batch/v1/namespaces/default/jobs"
LOCAL_QUEUES = "/k8s/apis/kueue.x-k8s.io/v1beta2/namespaces/default/localqueues"
MERGE = {"content-type": "application/merge-patch+json"}


def labelled(kind: str, version: str, spec: dict, **labels: str) -> dict:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "x", "labels": labels}, "spec": spec}


async def relabel(client, path: str, **labels: str | None):
    body = {"metadata": {"labels": labels}}
    return await client.request("PATCH", f"{path}/x", json=body, headers=MERGE)


async def test_a_job_leaves_its_queue_only_where_there_is_no_default_one(client):
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "host"}]}}
    job = labelled("Job", "batch/v1", {"suspend": True, "template": template}, **{QUEUE_LABEL: "a"})
    await client.request("POST", BATCH_JOBS, json=job)
    assert (await relabel(client, BATCH_JOBS, **{QUEUE_LABEL: None})).status == 200
    assert (await relabel(client, BATCH_JOBS, **{QUEUE_LABEL: "a"})).status == 200
    default = labelled("LocalQueue", "kueue.x-k8s.io/v1beta2", {"clusterQueue": "c"})
    default["metadata"]["name"] = "default"
    assert (await client.request("POST", LOCAL_QUEUES, json=default)).status == 201
    assert fields(await relabel(client, BATCH_JOBS, **{QUEUE_LABEL: None})) == [f"metadata.labels[{QUEUE_LABEL}]"]
    assert (await relabel(client, BATCH_JOBS, **{QUEUE_LABEL: "b"})).status == 200
    assert (await relabel(client, BATCH_JOBS, team="x")).status == 200


async def test_a_pod_stays_in_its_queue_once_it_was_let_go(client):
    managed = "kueue.x-k8s.io/managed"
    spec = {
        "containers": [{"name": "main", "image": "host"}],
        "schedulingGates": [{"name": "kueue.x-k8s.io/admission"}],
    }
    pod = labelled("Pod", "v1", spec, **{QUEUE_LABEL: "a", managed: "true"})
    await client.request("POST", PODS, json=pod)
    assert (await relabel(client, PODS, **{QUEUE_LABEL: "b"})).status == 200
    assert fields(await relabel(client, PODS, **{managed: None})) == [f"metadata.labels[{managed}]"]
    let_go = await client.request("PATCH", f"{PODS}/x", json={"spec": {"schedulingGates": None}}, headers=MERGE)
    assert let_go.status == 200
    assert fields(await relabel(client, PODS, **{QUEUE_LABEL: "c"})) == [f"metadata.labels[{QUEUE_LABEL}]"]
    assert (await relabel(client, PODS, team="x")).status == 200
