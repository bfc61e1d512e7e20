"""What is asked of the leader through a cluster's own API server: who waits, why, and what was decided."""

import asyncio
import contextlib
import http.client
import json
import secrets
import ssl
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.kubectl_runner import Kubectl
from tests.e2e.processes import MUSTER
from tests.kubernetes.controllers import controlling, define, until
from tests.kubernetes.machines import Machines

from muster.access.kubeconfig import Cluster
from muster.deploying import names

KUEUE = "/apis/visibility.kueue.x-k8s.io"
OURS = "/apis/visibility.muster.dev/v1"
QUEUE = "kueue.x-k8s.io/queue-name"
NAMES = ["v1.visibility.muster.dev", "v1beta1.visibility.kueue.x-k8s.io", "v1beta2.visibility.kueue.x-k8s.io"]


def queues(name: str, *local: str) -> list[dict[str, Any]]:
    """A ClusterQueue without any quota, ways to it, and priorities `NAME-0` to `NAME-2`."""
    quota = [{"name": "cpu", "nominalQuota": 0}]
    groups = [{"coveredResources": ["cpu"], "flavors": [{"name": name, "resources": quota}]}]
    version = "kueue.x-k8s.io/v1beta2"
    return [
        {"apiVersion": version, "kind": "ResourceFlavor", "metadata": {"name": name}},
        {
            "apiVersion": version,
            "kind": "ClusterQueue",
            "metadata": {"name": name},
            "spec": {"namespaceSelector": {}, "resourceGroups": groups},
        },
        *(
            {"apiVersion": version, "kind": "LocalQueue", "metadata": {"name": way}, "spec": {"clusterQueue": name}}
            for way in local
        ),
        *(
            {"apiVersion": version, "kind": "WorkloadPriorityClass", "metadata": {"name": f"{name}-{n}"}, "value": n}
            for n in range(3)
        ),
    ]


def a_job(name: str, queue: str, priority: str) -> dict[str, Any]:
    container = {"name": "main", "image": "host", "command": ["true"], "resources": {"requests": {"cpu": "1"}}}
    pod = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    metadata = {"name": name, "labels": {QUEUE: queue, "kueue.x-k8s.io/priority-class": priority}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": pod}}


@pytest.fixture
async def leader(cluster: Cluster, kubectl: Kubectl) -> AsyncIterator[None]:
    await define(kubectl)
    async with controlling(cluster, webhooks=True):
        await until(lambda: is_passed_on(kubectl))
        yield


async def is_passed_on(kubectl: Kubectl) -> bool:
    return (await kubectl.run("get", "--raw", OURS)).code == 0


async def apply(kubectl: Kubectl, namespace: str, *documents: dict[str, Any]) -> None:
    await kubectl("apply", "-n", namespace, "-f", "-", stdin="\n".join(map(json.dumps, documents)))


async def waiting(kubectl: Kubectl, path: str, *options: str) -> list[tuple[str, int, int]]:
    """Of each that waits: its job, and its position in both queues."""
    found = json.loads(await kubectl("get", "--raw", path, *options))
    return [
        (
            item["metadata"]["ownerReferences"][0]["name"],
            item["positionInClusterQueue"],
            item["positionInLocalQueue"],
        )
        for item in found["items"]
    ]


async def muster(configuration: Path, *arguments: str) -> str:
    line = [*MUSTER, "--kubeconfig", str(configuration), *arguments]
    process = await asyncio.create_subprocess_exec(*line, stdout=PIPE, stderr=PIPE)
    out, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, err.decode()
    return out.decode()


async def test_who_waits_why_and_what_was_decided(
    leader: None, kubectl: Kubectl, namespace: str, configuration: Path
) -> None:
    name = f"q-{secrets.token_hex(3)}"
    await apply(kubectl, namespace, *queues(name, "here", "there"))
    line = (("first", "here", 2), ("second", "there", 1), ("third", "here", 0))
    await apply(kubectl, namespace, *(a_job(job, queue, f"{name}-{priority}") for job, queue, priority in line))

    place = f"{KUEUE}/v1beta2/clusterqueues/{name}/pendingworkloads"

    async def all_wait() -> bool:
        # The engine hears of a queue a moment after the API server has it.
        return (await kubectl.run("get", "--raw", place)).out.count('"priority"') == 3

    await until(all_wait)
    assert await waiting(kubectl, place) == [("first", 0, 0), ("second", 1, 0), ("third", 2, 1)]
    local = f"{KUEUE}/v1beta1/namespaces/{namespace}/localqueues/here/pendingworkloads"
    assert await waiting(kubectl, local) == [("first", 0, 0), ("third", 2, 1)]
    workload = (await kubectl("get", "wl", "-n", namespace, "-o", "name")).split()[0].partition("/")[2]
    why = json.loads(await kubectl("get", "--raw", f"{OURS}/namespaces/{namespace}/workloads/{workload}/explanation"))
    assert (why["state"], why["clusterQueue"]) == ("Waiting", name)
    log = await kubectl("get", "--raw", f"{OURS}/schedulers/muster/decisions")
    assert log.startswith('{"began"')
    assert (await muster(configuration, "decisions")).startswith('{"began"')
    told = await muster(configuration, "why", "job", "third", "-n", namespace)
    assert "Job third: Waiting" in told
    assert "2 ahead in its ClusterQueue, 1 of them from its own LocalQueue" in told


async def registered(kubectl: Kubectl) -> list[str]:
    """The APIServices that lead to somebody else than the API server itself."""
    found = json.loads(await kubectl("get", "apiservices", "-o", "json"))["items"]
    return sorted(each["metadata"]["name"] for each in found if each["spec"].get("service"))


async def until_registered(kubectl: Kubectl, *wanted: str) -> None:
    async def are_so() -> bool:
        return await registered(kubectl) == list(wanted)

    await until(are_so)


async def a_user(kubectl: Kubectl, namespace: str, rule: str) -> str:
    """One who may only get that, in the namespace."""
    name = f"user-{secrets.token_hex(3)}"
    await kubectl("create", "role", name, "-n", namespace, "--verb=get", f"--resource={rule}")
    await kubectl("create", "rolebinding", name, "-n", namespace, f"--role={name}", f"--user={name}")
    return name


async def test_rights_are_those_of_the_cluster(leader: None, kubectl: Kubectl, namespace: str) -> None:
    name = f"q-{secrets.token_hex(3)}"
    await apply(kubectl, namespace, *queues(name, "here"))
    place = f"{KUEUE}/v1beta2/namespaces/{namespace}/localqueues/here/pendingworkloads"

    async def is_known() -> bool:
        return (await kubectl.run("get", "--raw", place)).code == 0

    await until(is_known)
    user = await a_user(kubectl, namespace, "localqueues.visibility.kueue.x-k8s.io/pendingworkloads")
    assert await waiting(kubectl, place, f"--as={user}") == []
    refused = await kubectl.fails("get", "--raw", place, "--as=nobody")
    assert 'User "nobody" cannot get resource "localqueues/pendingworkloads"' in refused
    for path in (f"{KUEUE}/v1beta2/clusterqueues/{name}/pendingworkloads", f"{OURS}/schedulers/muster/decisions"):
        assert "Forbidden" in await kubectl.fails("get", "--raw", path, f"--as={user}")


async def test_only_an_api_server_is_believed_and_rights_are_asked_for_again(
    leader: None, kubectl: Kubectl, configuration: Path
) -> None:
    keys = configuration.parent / "keys"
    if not (keys / "proxy.key").exists():
        pytest.skip("a cluster whose keys are not here")
    port = int(await kubectl("get", "apiservice", NAMES[0], "-o", "jsonpath={.spec.service.port}"))
    path = f"{OURS}/schedulers/muster/decisions"

    def ask(certificate: str, **headers: str) -> int:
        context = ssl._create_unverified_context()
        if certificate:
            context.load_cert_chain(keys / f"{certificate}.crt", keys / f"{certificate}.key")
        with contextlib.closing(http.client.HTTPSConnection("127.0.0.1", port, context=context)) as connection:
            connection.request("GET", path, headers=headers)
            return connection.getresponse().status

    boss = {"X-Remote-User": "boss", "X-Remote-Group": "system:masters"}
    assert await asyncio.to_thread(ask, "", **boss) == 401
    assert await asyncio.to_thread(ask, "proxy") == 401
    assert await asyncio.to_thread(ask, "proxy", **{"X-Remote-User": "nobody"}) == 403
    assert await asyncio.to_thread(ask, "proxy", **boss) == 200
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await asyncio.to_thread(ask, "admin", **boss)


async def test_discovery_tells_of_them_after_kueues_own_kinds(leader: None, kubectl: Kubectl, namespace: str) -> None:
    assert await registered(kubectl) == NAMES
    versions = (await kubectl("api-versions")).split()
    for version in (
        "visibility.kueue.x-k8s.io/v1beta1",
        "visibility.kueue.x-k8s.io/v1beta2",
        "visibility.muster.dev/v1",
    ):
        assert version in versions
    told = await kubectl.run("api-resources")
    assert (told.code, told.err) == (0, "")
    parts = {each["name"] for each in json.loads(await kubectl("get", "--raw", OURS))["resources"]}
    assert {"workloads/explanation", "schedulers/decisions"} <= parts
    # Words that both groups know mean what is stored.
    assert (await kubectl.run("get", "clusterqueues,workloads", "-n", namespace)).code == 0


async def test_nothing_is_left_in_the_way_when_the_leader_stops(cluster: Cluster, kubectl: Kubectl) -> None:
    await define(kubectl)
    async with controlling(cluster, webhooks=True):
        await until_registered(kubectl, *NAMES)
    assert await registered(kubectl) == []
    await namespaces_can_go(kubectl)


async def namespaces_can_go(kubectl: Kubectl) -> None:
    name = f"gone-{secrets.token_hex(3)}"
    await kubectl("create", "namespace", name)
    await kubectl("delete", "namespace", name, "--timeout=25s")
    told = await kubectl.run("api-resources")
    assert (told.code, told.err) == (0, "")


async def test_another_takes_over_from_one_that_was_killed(machines: Machines, kubectl: Kubectl) -> None:
    await define(kubectl)
    controller = await machines.controller(is_mortal=True)
    await until(lambda: is_passed_on(kubectl))
    machines.kill(controller)
    assert await registered(kubectl) == NAMES, "nobody was left to take them away"
    await kubectl("get", "pods,clusterqueues")
    await machines.start(controller)
    await until(lambda: is_passed_on(kubectl))
    await namespaces_can_go(kubectl)


async def test_what_was_registered_goes_with_the_rights_of_the_installation(
    machines: Machines, kubectl: Kubectl
) -> None:
    """As `helm uninstall` leaves a cluster whose controllers could not do it any more."""
    await define(kubectl)
    await kubectl("create", "clusterrole", names.CONTROLLER, "--verb=get", "--resource=pods")
    try:
        await kubectl("label", "clusterrole", names.CONTROLLER, f"{names.PART_OF}=muster")
        controller = await machines.controller(is_mortal=True)
        await until_registered(kubectl, *NAMES)
        machines.kill(controller)
    finally:
        await kubectl("delete", "clusterrole", names.CONTROLLER)
    await until_registered(kubectl)
    left = await kubectl("get", "validatingwebhookconfigurations,mutatingwebhookconfigurations", "-o", "name")
    assert left == ""
    await namespaces_can_go(kubectl)


async def test_kueues_own_is_left_alone(cluster: Cluster, kubectl: Kubectl) -> None:
    await define(kubectl)
    name = "v1beta2.visibility.kueue.x-k8s.io"
    spec = {
        "group": "visibility.kueue.x-k8s.io",
        "version": "v1beta2",
        "groupPriorityMinimum": 100,
        "versionPriority": 100,
        "insecureSkipTLSVerify": True,
        "service": {"namespace": "kueue-system", "name": "kueue-visibility-server"},
    }
    theirs = {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": name}, "spec": spec}
    await kubectl("create", "-f", "-", stdin=json.dumps(theirs))
    try:
        async with controlling(cluster, webhooks=True):
            await until(lambda: is_passed_on(kubectl))
            await until_registered(kubectl, *NAMES)
        found = json.loads(await kubectl("get", "apiservice", name, "-o", "json"))
        assert found["spec"]["service"]["namespace"] == "kueue-system"
        assert await registered(kubectl) == [name]
    finally:
        await kubectl("delete", "apiservice", name)
