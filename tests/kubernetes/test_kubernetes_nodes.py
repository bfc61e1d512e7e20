"""An agent of ours as a node of a real cluster, as kubectl sees it."""

import asyncio
import json
from pathlib import Path

import pytest
from tests.e2e.kubectl_runner import Kubectl
from tests.kubernetes import node_identities
from tests.kubernetes.machines import Machines, a_name


def a_pod(name: str, node: str, script: str, **spec: object) -> str:
    container = {"name": "main", "image": "host", "command": ["sh", "-c", script]}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {"nodeName": node, "restartPolicy": "Never", "containers": [container], **spec},
        }
    )


async def until(kubectl: Kubectl, namespace: str, condition: str, *what: str) -> None:
    await kubectl("wait", "-n", namespace, f"--for={condition}", "--timeout=30s", *what)


async def test_a_pod_runs_and_kubectl_reads_its_log(kubectl: Kubectl, namespace: str, machines: Machines) -> None:
    node = await machines.node()
    await kubectl("apply", "-n", namespace, "-f", "-", stdin=a_pod("hello", node, "echo hi from $HOSTNAME; exit 3"))
    await until(kubectl, namespace, "jsonpath={.status.phase}=Failed", "pod/hello")
    assert await kubectl("logs", "-n", namespace, "hello") == "hi from hello\n"
    found = json.loads(await kubectl("get", "-n", namespace, "pod", "hello", "-o", "json"))["status"]
    assert found["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3
    assert {each["type"]: each["status"] for each in found["conditions"]}["Ready"] == "False"


async def test_logs_are_followed_to_the_end(kubectl: Kubectl, namespace: str, machines: Machines) -> None:
    node = await machines.node()
    await kubectl(
        "apply", "-n", namespace, "-f", "-", stdin=a_pod("count", node, "for i in 1 2 3; do echo $i; sleep 0.3; done")
    )
    await until(kubectl, namespace, "condition=Ready", "pod/count")
    assert await kubectl("logs", "-n", namespace, "--follow", "count") == "1\n2\n3\n"


async def test_a_pod_speaks_to_the_api_server_as_its_service_account(
    kubectl: Kubectl, namespace: str, machines: Machines
) -> None:
    script = (
        "cd /var/run/secrets/kubernetes.io/serviceaccount && cat namespace && echo && "
        'curl -s --cacert ca.crt -H "Authorization: Bearer $(cat token)" '
        "https://$KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT/api/v1/namespaces"
    )
    node = await machines.node()
    await kubectl("apply", "-n", namespace, "-f", "-", stdin=a_pod("curious", node, script))
    await until(kubectl, namespace, "jsonpath={.status.phase}=Succeeded", "pod/curious")
    told = await kubectl("logs", "-n", namespace, "curious")
    assert told.startswith(f"{namespace}\n")
    assert f'User \\"system:serviceaccount:{namespace}:default\\" cannot list resource' in told


async def says(kubectl: Kubectl, namespace: str, pod: str, words: str) -> None:
    async with asyncio.timeout(20):
        while words not in await kubectl("logs", "-n", namespace, pod):
            await asyncio.sleep(0.1)


async def test_deletion_waits_for_the_pod_and_kills_it_when_its_time_is_up(
    kubectl: Kubectl, namespace: str, machines: Machines
) -> None:
    node = await machines.node()
    stubborn = a_pod(
        "stubborn", node, "trap 'echo asked' TERM; echo deaf; while :; do sleep 0.1; done",
        terminationGracePeriodSeconds=5,
    )  # fmt: skip
    await kubectl("apply", "-n", namespace, "-f", "-", stdin=stubborn)
    await until(kubectl, namespace, "condition=Ready", "pod/stubborn")
    await says(kubectl, namespace, "stubborn", "deaf\n")
    await kubectl("delete", "-n", namespace, "--wait=false", "pod", "stubborn")
    await says(kubectl, namespace, "stubborn", "asked\n")
    await until(kubectl, namespace, "delete", "pod/stubborn")


async def test_pods_run_on_while_their_agent_is_away(kubectl: Kubectl, namespace: str, machines: Machines) -> None:
    node = await machines.node()
    await kubectl("apply", "-n", namespace, "-f", "-", stdin=a_pod("steady", node, "sleep 3; echo done"))
    await until(kubectl, namespace, "condition=Ready", "pod/steady")
    machines.kill(node)
    await asyncio.sleep(3.5)
    await machines.start(node)
    await until(kubectl, namespace, "jsonpath={.status.phase}=Succeeded", "pod/steady")
    assert await kubectl("logs", "-n", namespace, "steady") == "done\n"


async def test_a_kubelets_own_rights_are_enough(
    kubectl: Kubectl, namespace: str, machines: Machines, tmp_path: Path
) -> None:
    node = a_name()
    configuration = await node_identities.configuration_of(node, kubectl, tmp_path)
    authority = await node_identities.client_authority(kubectl, tmp_path)
    await machines.join(node, "--client-ca", str(authority), configuration=configuration)
    await kubectl("create", "-n", namespace, "configmap", "settings", "--from-literal=word=hello")
    reading = [{"name": "WORD", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "word"}}}]
    container = {"name": "main", "image": "host", "command": ["sh", "-c", "echo $WORD"], "env": reading}
    await kubectl("apply", "-n", namespace, "-f", "-", stdin=a_pod("modest", node, "", containers=[container]))
    await until(kubectl, namespace, "jsonpath={.status.phase}=Succeeded", "pod/modest")
    assert await kubectl("logs", "-n", namespace, "modest") == "hello\n"
    broken = {"name": "main", "image": "host", "command": ["/nowhere"]}
    await kubectl("apply", "-n", namespace, "-f", "-", stdin=a_pod("broken", node, "", containers=[broken]))
    await until(kubectl, namespace, "jsonpath={.status.phase}=Failed", "pod/broken")
    await kubectl("wait", "-n", namespace, "--for=create", "--timeout=20s", "events", "--field-selector=reason=Failed")
    await kubectl("delete", "-n", namespace, "--timeout=30s", "pods", "modest", "broken")
    assert "forbidden" not in machines.said().lower()


@pytest.mark.parametrize("controller", ["deployment", "job"])
async def test_what_kubernetes_own_controllers_make_is_placed_by_its_own_scheduler_and_runs_here(
    kubectl: Kubectl, namespace: str, machines: Machines, controller: str
) -> None:
    await machines.node()
    command = ["--", "sleep", "300"] if controller == "deployment" else ["--", "true"]
    await kubectl("create", "-n", namespace, controller, "plain", "--image=host", *command)
    wanted = "condition=Available" if controller == "deployment" else "condition=Complete"
    await until(kubectl, namespace, wanted, f"{controller}/plain")
