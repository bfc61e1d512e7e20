"""An installation from its beginning to its end, as a cluster has it: the image in containers, two replicas, webhooks
and a server behind their Services.

The tests go on from each other's, in their order.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import urllib3
from tests.installation.site import Site, prepared
from tests.kubernetes.containers import IMAGE

from muster.deploying import names
from muster.version import VERSION

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

HOME = ("-n", names.NAMESPACE)
TEAM = "team"
PASSWORD = "In-a-container-1"
USER = 65532
PORT = 8000
READY_SECONDS = 150


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    async with prepared(tmp_path_factory.mktemp("site")) as made:
        yield made


async def rolled_out(site: Site, deployment: str) -> None:
    async def missing() -> str:
        status = (await site.get(*HOME, "deployment", deployment))["status"]
        counts = [status.get(name) for name in ("replicas", "readyReplicas", "updatedReplicas")]
        return "" if counts[0] is not None and len(set(counts)) == 1 else str(status)

    await eventually(site, missing, READY_SECONDS)


async def eventually(site: Site, missing: Callable[[], Awaitable[str]], seconds: float) -> None:
    """Until nothing is. Else the test fails with what is, and with what pods say."""
    deadline = time.monotonic() + seconds
    while found := await missing():
        assert time.monotonic() < deadline, f"{found}\n{await told(site)}"
        await asyncio.sleep(0.5)


async def told(site: Site) -> str:
    """By all pods, and about them."""
    found = [await site.kubectl("describe", "pods", "-A")]
    for pod in (await site.get("pods", "-A"))["items"]:
        place = ("-n", pod["metadata"]["namespace"], pod["metadata"]["name"])
        for which in ("--previous=true", "--previous=false"):
            found.append((await site.kubectl.run("logs", *place, which)).out)
    return "\n".join(found)


async def leader(site: Site) -> str:
    """The pod that leads; empty where there is none."""
    found = (await site.get(*HOME, "leases", names.CONTROLLER))["spec"].get("holderIdentity", "")
    return str(found).partition("_")[0]


async def controllers(site: Site) -> list[dict[str, Any]]:
    pods = await site.get(*HOME, "pods", "-l", "app.kubernetes.io/component=controller")
    return [pod for pod in pods["items"] if "deletionTimestamp" not in pod["metadata"]]


def job(name: str) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": IMAGE,
        "command": ["sh", "-c", "echo it ran in $(hostname)"],
        "resources": {"requests": {"cpu": "100m"}},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": TEAM, "labels": {"kueue.x-k8s.io/queue-name": "lane"}},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
    }


async def ran(site: Site, name: str) -> None:
    """Through the queue, from its making to the end of its container."""
    made = await site.kubectl("create", "-f", "-", "-o", "json", stdin=json.dumps(job(name)))
    assert json.loads(made)["spec"]["suspend"] is True, "a webhook has filled that in"
    await site.kubectl("wait", "-n", TEAM, "--for=condition=Complete", "--timeout=50s", f"job/{name}")
    assert (await site.kubectl("logs", "-n", TEAM, f"job/{name}")).startswith(f"it ran in {name}")
    (workload,) = [
        each
        for each in (await site.get("-n", TEAM, "workloads"))["items"]
        if each["metadata"]["ownerReferences"][0]["name"] == name
    ]
    assert {"QuotaReserved", "Admitted", "Finished"} <= {each["type"] for each in workload["status"]["conditions"]}


async def test_both_replicas_are_ready_and_one_leads(site: Site) -> None:
    await site.muster("install")
    await rolled_out(site, names.CONTROLLER)
    pods = await controllers(site)
    assert len(pods) == 2
    assert {pod["status"]["containerStatuses"][0]["restartCount"] for pod in pods} == {0}
    assert await leader(site) in {pod["metadata"]["name"] for pod in pods}


async def test_the_program_in_the_image_is_this_one_and_not_root(site: Site) -> None:
    (pod, _) = await controllers(site)
    inside = ("exec", *HOME, pod["metadata"]["name"], "--")
    assert VERSION in await site.kubectl(*inside, "muster", "version")
    answer = await site.kubectl(*inside, "python", "-c", "import os; print(os.getuid(), os.access('/opt', os.W_OK))")
    assert answer.split() == [str(USER), "False"]


async def test_a_job_waits_in_a_queue_because_a_webhook_behind_a_service_says_so(site: Site) -> None:
    (webhook, *_) = (await site.get("mutatingwebhookconfigurations", names.WEBHOOK))["webhooks"]
    assert "url" not in webhook["clientConfig"]
    assert webhook["clientConfig"]["service"]["name"] == names.WEBHOOK
    await site.kubectl("create", "namespace", TEAM)
    queue = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue"}
    place = {"metadata": {"name": "lane", "namespace": TEAM}, "spec": {"clusterQueue": "default"}}
    await site.apply({**queue, **place})
    await ran(site, "first")


async def test_objects_are_converted_behind_the_same_service(site: Site) -> None:
    old = await site.get("-n", TEAM, "localqueues.v1beta1.kueue.x-k8s.io", "lane")
    assert old["apiVersion"] == "kueue.x-k8s.io/v1beta1"


async def test_a_doctor_finds_nothing(site: Site) -> None:
    found = json.loads(await site.muster("doctor", "-o", "json"))
    assert [each for each in found if each["verdict"] != "ok"] == []
    assert {"controllers", "leader", "webhooks", "nodes"} <= {each["about"] for each in found}


async def test_when_the_leader_is_killed_another_takes_over(site: Site) -> None:
    dead = await leader(site)
    await site.kubectl("delete", "pod", *HOME, dead, "--grace-period=0", "--force")

    async def missing() -> str:
        return "" if await leader(site) not in ("", dead) else "nobody else leads"

    await eventually(site, missing, 30)
    await ran(site, "second")
    await rolled_out(site, names.CONTROLLER)


# The server.


def values() -> dict[str, Any]:
    settings = {"security": {"initial_user_password": PASSWORD}, "proxy": {"by_service": True}}
    return {"server": {"enabled": True, "storage": "1Gi", "settings": settings}}


async def make_volume(site: Site) -> None:
    """On a disk of the node, which belongs to root until the kubelet gives it to the pod's group."""
    disk = site.home / "disk"
    disk.mkdir()
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [site.node]}
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"],
        "local": {"path": str(disk)},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
    }
    await site.apply({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "disk"}, "spec": spec})


async def service_url(site: Site) -> str:
    spec = (await site.get(*HOME, "service", names.SERVER))["spec"]
    return f"http://{spec['clusterIP']}:{spec['ports'][0]['port']}"


async def asked(method: str, url: str, token: str = "", body: Any = None) -> urllib3.BaseHTTPResponse:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return await asyncio.to_thread(urllib3.request, method, url, json=body, headers=headers, timeout=20, retries=False)


async def test_a_server_answers_behind_its_service_and_keeps_its_records_on_a_volume(
    site: Site, tmp_path: Path
) -> None:
    await make_volume(site)
    path = tmp_path / "values.yaml"
    path.write_text(json.dumps(values()))
    done = await site.muster("install", "-f", str(path))
    assert f"deployment/{names.CONTROLLER} unchanged" in done
    await rolled_out(site, names.SERVER)
    answer = await asked("GET", f"{await service_url(site)}/api/v1/master")
    assert answer.status == 200, await told(site)
    assert answer.json()["version"]
    assert any(each.suffix == ".db" for each in (site.home / "disk").rglob("*"))


async def test_a_task_is_reached_by_its_service(site: Site) -> None:
    server = await service_url(site)
    login = {"username": "admin", "password": PASSWORD}
    token = (await asked("POST", f"{server}/api/v1/auth/login", body=login)).json()["token"]
    # What it is asked for has the prefix under which it is seen.
    page = f'"/tmp/www/proxy/$DET_TASK_ID:{PORT}"'
    script = (
        f"mkdir -p {page} && echo it serves > {page}/index.html && cd /tmp/www && exec python3 -m http.server {PORT}"
    )
    config = {
        "entrypoint": ["sh", "-c", script],
        "resources": {"slots": 0},
        "environment": {
            "image": f"muster:{VERSION}",
            "proxy_ports": [{"proxy_port": PORT, "proxy_tcp": False, "unauthenticated": False}],
        },
    }
    launched = await asked("POST", f"{server}/api/v1/commands", token, {"config": config})
    assert launched.status == 200, launched.data
    task = launched.json()["command"]["id"]
    url = f"{server}/proxy/{task}:{PORT}/"

    async def missing() -> str:
        answer = await asked("GET", url, token)
        return "" if answer.data == b"it serves\n" else f"{answer.status}: {answer.data!r}"

    await eventually(site, missing, 60)
    (service,) = [
        each["metadata"]["name"]
        for each in (await site.get("services"))["items"]
        if each["metadata"]["name"].startswith("task-")
    ]
    await site.kubectl("delete", "service", service)

    async def still_there() -> str:
        answer = await asked("GET", url, token)
        return "" if answer.status >= 500 else f"{answer.status}: {answer.data!r}"

    await eventually(site, still_there, 20)
    assert (await asked("POST", f"{server}/api/v1/commands/{task}/kill", token)).status == 200
    await site.kubectl("wait", "--for=delete", "pods", "--all", "--timeout=50s")


async def test_nothing_is_left_after_it_was_removed(site: Site) -> None:
    await site.kubectl("delete", "namespace", TEAM, "--timeout=50s")
    await site.muster("uninstall", "--all", "--yes")
    assert "Nothing of Muster is installed" in await site.muster("uninstall")
    kinds = (await site.kubectl("api-resources", "--verbs=list", "-o", "name")).split()
    listed = await site.kubectl("get", ",".join(kinds), "-A", "-l", f"{names.PART_OF}=muster", "-o", "name")
    assert listed == ""
    everywhere = "crd,clusterroles,clusterrolebindings,priorityclasses,namespaces,apiservices"
    for kind in (everywhere, "mutatingwebhookconfigurations,validatingwebhookconfigurations"):
        assert "muster" not in await site.kubectl("get", kind, "-o", "name")
