"""Job plugins: what they do to pods, and the objects that they keep."""

import json
from collections.abc import Callable
from typing import Any

from muster.api import volcano
from muster.jobs.volcano.plugins import IN_TREE, KeyPair, PluginError, changing
from muster.jobs.volcano.plugins.contract import Plugin, parse
from muster.jobs.volcano.plugins.hcclrank import ANNOTATION
from muster.jobs.volcano.plugins.mpi import PORT_NAME as MPI_PORT_NAME
from muster.jobs.volcano.plugins.mpi import VARIABLE as MPI_HOST
from muster.jobs.volcano.plugins.pytorch import PORT_NAME as PYTORCH_PORT_NAME
from muster.jobs.volcano.plugins.pytorch import WAITING_CONTAINER, PyTorch
from muster.jobs.volcano.plugins.ssh import Ssh
from tests.conformance.adapters.kube.building import without_nulls
from tests.conformance.adapters.volcano.job_building import a_job
from tests.conformance.cases import Adapters, Case, Failed, Outcome, Passed, compare

Container = dict[str, Any]


def _plugin(name: str, arguments: Any = None) -> Plugin:
    parsed = parse(arguments or (), IN_TREE[name].arguments)
    assert not parsed.problem, parsed.problem
    return IN_TREE[name].make(parsed)


def _arguments(row: dict[str, Any], name: str) -> Any:
    return row.get("PluginArgs") or (((row["Job"] or {}).get("spec") or {}).get("plugins") or {}).get(name)


def _changed(plugin: Plugin, row: dict[str, Any]) -> tuple[dict[str, Any], volcano.Job]:
    job = a_job(row.get("Job") or row.get("job"))
    pod = without_nulls(row.get("Pod") or row.get("pod"))
    pod.setdefault("spec", {}).setdefault("containers", [])
    plugin.change_pod(pod, job)
    return pod, job


def _task(job: volcano.Job, name: str) -> volcano.TaskSpec:
    found = changing.find_task(job, name)
    assert found is not None
    return found


def _variables(container: Container) -> dict[str, str]:
    return {variable["name"]: variable.get("value", "") for variable in container.get("env") or ()}


def _ports(container: Container) -> dict[str, int]:
    return {port["name"]: port["containerPort"] for port in container.get("ports") or ()}


def _ssh(case: Case) -> Outcome:
    row = case["row"]
    plugin = _plugin("ssh", row["params"])
    assert isinstance(plugin, Ssh)
    found = (plugin.is_not_root, plugin.path, plugin.private_key, plugin.public_key, plugin.port)
    wanted = tuple(row[name] for name in ("noRoot", "sshKeyFilePath", "sshPrivateKey", "sshPublicKey", "sshPort"))
    return compare("settings", found, wanted) or Passed()


def _variable(case: Case) -> Outcome:
    row = case["row"]
    return compare("value", changing.variable_value(row["pod"], row["envName"]), row["expected"]) or Passed()


def _hccl_rank(case: Case) -> Outcome:
    row, names = case["row"], case["fixtures"]["plugin"]
    plugin = _plugin("hcclrank", [f"--master={names['masterName']}", f"--worker={names['workerName']}"])
    try:
        pod, _ = _changed(plugin, row)
    except PluginError:
        return compare("refused", True, row["expectError"]) or Passed()
    found = pod["metadata"]["annotations"].get(ANNOTATION, "")
    return (
        compare("refused", False, row["expectError"])
        or compare("rank", found, row.get("expectedRank", found))
        or Passed()
    )


def _mpi(case: Case) -> Outcome:
    row = case["row"]
    pod, _ = _changed(_plugin("mpi", _arguments(row, "mpi")), row)
    container = pod["spec"]["containers"][0]
    if "port" in row:
        return compare("port", _ports(container).get(MPI_PORT_NAME), row["port"]) or Passed()
    wanted = row["ExpectedEnvVar"] or {}
    found = _variables(container)
    if not wanted.get("name") or not wanted.get("value"):
        return compare("hosts", found.get(MPI_HOST, ""), "") or Passed()
    return compare("hosts", found.get(wanted["name"]), wanted["value"]) or Passed()


def _pytorch(case: Case) -> Outcome:
    row = case["row"]
    pod, _ = _changed(_plugin("pytorch", _arguments(row, "pytorch")), row)
    container = pod["spec"]["containers"][0]
    return (
        compare("port", _ports(container).get(PYTORCH_PORT_NAME), row["port"])
        or compare("variables", container["env"], row["envs"])
        or Passed()
    )


def _pytorch_waiting(case: Case) -> Outcome:
    """Which containers there are, and whom ours waits for: what it runs to find out is not Volcano's script, and the
    port and the time in the rows are those of a plugin without arguments."""
    row = case["row"]
    plugin = _plugin("pytorch", _arguments(row, "pytorch"))
    assert isinstance(plugin, PyTorch)
    before = [container["name"] for container in row["Pod"]["spec"].get("initContainers") or ()]
    pod, job = _changed(plugin, row)
    found, wanted = pod["spec"].get("initContainers") or [], row["expectInitContainers"] or []
    heads = [[(one["name"], one["image"], one["command"][:2]) for one in listed] for listed in (found, wanted)]
    wrong = compare("init containers", *heads)
    if wrong is not None or not found or WAITING_CONTAINER in before:
        return wrong or compare("init containers", found, wanted) or Passed()
    host, script = changing.host_of(job, _task(job, plugin.master), 0), found[-1]["command"][2]
    is_right = f"nc -z {host} {plugin.port}" in script and f"left={plugin.waiting_seconds}\n" in script
    is_meant = f"nc -z {host} " in wanted[-1]["command"][2]
    return Passed() if is_right and is_meant else Failed(f"waits for another: {script}")


def _ray(case: Case) -> Outcome:
    row = case["row"]
    plugin = _plugin("ray", _arguments(row, "ray"))
    pod, job = _changed(plugin, row)
    numbers = [row["port"], row["dashboardPort"], row["clientPort"]]
    (made,) = plugin.objects(job, KeyPair("", ""))
    container = pod["spec"]["containers"][0]
    role = changing.task_of(pod)
    wrong = compare("service", made.document["metadata"]["name"], f"{job.metadata.name}-head-svc") or compare(
        "its ports", [port["port"] for port in made.document["spec"]["ports"]], numbers
    )
    if wrong is not None:
        return wrong
    command = " ".join(container.get("command") or ())
    if role == row["headName"]:
        opened = sorted(_ports(container).values())
        return compare("ports", opened, sorted(numbers)) or compare("head", "--head" in command, True) or Passed()
    if role == row["workerName"]:
        address = f"{changing.host_of(job, _task(job, row['headName']), 0)}:{row['port']}"
        return compare("joins", f"--address={address}" in command, True) or Passed()
    return Passed()


def _tensorflow(case: Case) -> Outcome:
    """The rows state inputs only: TF_CONFIG must name every pod of every role once, and the pod's own place."""
    row = case["row"]
    pod, job = _changed(_plugin("tensorflow", _arguments(row, "tensorflow")), row)
    if sum(task.replicas or 0 for task in job.spec.tasks) <= 1:
        return compare("variables", "TF_CONFIG" in _variables(pod["spec"]["containers"][0]), False) or Passed()
    found = json.loads(_variables(pod["spec"]["containers"][0])["TF_CONFIG"])
    cluster = {
        task.name: [
            f"{job.metadata.name}-{task.name}-{index}.{job.metadata.name}:2222" for index in range(task.replicas or 0)
        ]
        for task in job.spec.tasks
    }
    own = {"type": changing.task_of(pod), "index": changing.index_of(pod)}
    return compare("cluster", found["cluster"], cluster) or compare("task", found["task"], own) or Passed()


_TESTS: dict[str, Callable[[Case], Outcome]] = {
    "TestSSHPlugin": _ssh,
    "TestGetEnv": _variable,
    "TestHcclrankPlugin_OnPodCreate": _hccl_rank,
    "TestHcclrankPlugin_OnPodCreate_EdgeCases": _hccl_rank,
    "TestMpi": _mpi,
    "TestMpiWithEmptyWorker": _mpi,
    "TestPytorchPodEnvAndPort": _pytorch,
    "TestPytorchInitContainer": _pytorch_waiting,
    "TestRayPlugin": _ray,
    "TestTensorflow": _tensorflow,
}


def _job_plugins(case: Case) -> Outcome:
    test = case["test"]
    return _TESTS[test](case) if test in _TESTS else Failed(f"no adapter for {test}")


ADAPTERS: Adapters = {"job_plugins": _job_plugins}
