"""What job plugins do to pods, and the objects that they keep."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.jobs.volcano_worlds import a_task, as_job, job_document

from muster.api.raw import Document
from muster.jobs.volcano import NewPod, make_pods
from muster.jobs.volcano.plugins import IN_TREE, KeyPair, PluginError, UnknownPlugin, load
from muster.jobs.volcano.plugins.contract import parse

KEY = KeyPair("private", "public")


def pod_of(plugins: dict[str, list[str]], *tasks: Document, task: int = 0, number: int = 0) -> Document:
    document = job_document(*tasks, plugins=plugins)
    job = as_job(document)
    (pod,) = make_pods(job, document, [NewPod(task, number)], load(job).plugins)
    return pod


def variables(pod: Document) -> dict[str, str]:
    listed = pod["spec"]["containers"][0].get("env") or []
    return {variable["name"]: variable["value"] for variable in listed if "value" in variable}


MASTER, WORKERS = a_task("master"), a_task("worker", 2)


def test_env():
    with_init = a_task("w", 3)
    with_init["template"]["spec"]["initContainers"] = [{"name": "i", "env": [{"name": "VC_TASK_INDEX", "value": "x"}]}]
    pod = pod_of({"env": []}, with_init, number=2)
    assert variables(pod) == {"VK_TASK_INDEX": "2", "VC_TASK_INDEX": "2"}
    assert len(pod["spec"]["initContainers"][0]["env"]) == 2, "what the template says of the same name is replaced"


def test_svc():
    pod = pod_of({"svc": []}, MASTER, WORKERS, task=1, number=1)
    spec = pod["spec"]
    assert (spec["hostname"], spec["subdomain"]) == ("j-worker-1", "j")
    names = [variable["name"] for variable in spec["containers"][0]["env"]]
    assert names == ["VC_MASTER_HOSTS", "VC_MASTER_NUM", "VC_WORKER_HOSTS", "VC_WORKER_NUM"]
    assert spec["volumes"] == [{"name": "j-svc", "configMap": {"name": "j-svc"}}]

    job = as_job(job_document(MASTER, WORKERS, plugins={"svc": ["--publish-not-ready-addresses"]}))
    service, hosts, policy = load(job).plugins[0].objects(job, None)
    assert service.document["spec"]["clusterIP"] == "None"
    assert service.document["spec"]["publishNotReadyAddresses"] is True
    assert hosts.is_updated
    assert hosts.document["data"] == {
        "master.host": "j-master-0.j", "VC_MASTER_HOSTS": "j-master-0.j", "VC_MASTER_NUM": "1",
        "worker.host": "j-worker-0.j\nj-worker-1.j", "VC_WORKER_HOSTS": "j-worker-0.j,j-worker-1.j",
        "VC_WORKER_NUM": "2",
    }  # fmt: skip
    members = {"matchLabels": {"volcano.sh/job-name": "j", "volcano.sh/job-namespace": "default"}}
    assert policy.document["metadata"]["name"] == "j"
    assert policy.document["spec"] == {
        "podSelector": members, "ingress": [{"from": [{"podSelector": members}]}], "policyTypes": ["Ingress"],
    }  # fmt: skip
    open_job = as_job(job_document(MASTER, plugins={"svc": ["--disable-network-policy=true"]}))
    assert [made.kind.name for made in load(open_job).plugins[0].objects(open_job, None)] == ["Service", "ConfigMap"]


def test_svc_without_variables_and_with_a_name_of_ones_own():
    task = a_task("my-task", 3)
    task["template"]["spec"] |= {"hostname": "me", "subdomain": "here"}
    pod = pod_of({"svc": ["--inject-hosts-env=false"]}, task)
    assert (pod["spec"]["hostname"], pod["spec"]["subdomain"], variables(pod)) == ("me", "here", {})
    job = as_job(job_document(task, plugins={"svc": []}))
    data = load(job).plugins[0].objects(job, None)[1].document["data"]
    assert (data["VC_MY_TASK_HOSTS"], data["VC_MY_TASK_NUM"]) == ("me.here", "1")


def test_ssh():
    pod = pod_of({"ssh": ["--ssh-key-file-path=/home/me/.ssh"]}, MASTER)
    (volume,) = pod["spec"]["volumes"]
    assert (volume["secret"]["secretName"], volume["secret"]["defaultMode"]) == ("j-ssh", 0o644)
    assert pod["spec"]["containers"][0]["volumeMounts"] == [{"name": "j-ssh", "mountPath": "/home/me/.ssh"}]
    job = as_job(job_document(MASTER, WORKERS, plugins={"ssh": ["--ssh-port", "2222"]}))
    plugin = load(job).plugins[0]
    assert plugin.needs_key
    with pytest.raises(PluginError, match="no key"):
        plugin.objects(job, None)
    (secret,) = plugin.objects(job, KEY)
    data = {name: base64.b64decode(value).decode() for name, value in secret.document["data"].items()}
    assert (data["id_rsa"], data["id_rsa.pub"], data["authorized_keys"]) == ("private", "public", "public")
    assert "Host j-worker-1\n  HostName j-worker-1.j\n  Port 2222\n" in data["config"]


def test_ssh_with_keys_of_ones_own():
    arguments = ["--ssh-private-key=mine", "--ssh-public-key=yours"]
    job = as_job(job_document(MASTER, plugins={"ssh": arguments}))
    plugin = load(job).plugins[0]
    assert not plugin.needs_key
    data = plugin.objects(job, KEY)[0].document["data"]
    assert base64.b64decode(data["id_rsa"]) == b"mine"


@pytest.mark.parametrize(("task", "number", "rank"), [(0, 0, "0"), (1, 0, "1"), (1, 1, "2")])
def test_pytorch(task, number, rank):
    pod = pod_of({"pytorch": ["--port=99"]}, MASTER, WORKERS, task=task, number=number)
    assert {name: value for name, value in variables(pod).items() if name in ("MASTER_ADDR", "MASTER_PORT")} == {
        "MASTER_ADDR": "j-master-0.j", "MASTER_PORT": "99",
    }  # fmt: skip
    assert (variables(pod)["WORLD_SIZE"], variables(pod)["RANK"]) == ("3", rank)
    assert pod["spec"]["containers"][0]["ports"] == [{"name": "pytorchjob-port", "containerPort": 99}]
    assert "initContainers" not in pod["spec"]


def test_an_elastic_pytorch_job_tells_torchrun_where_to_meet_and_how_many_may_come():
    told = [
        variables(pod_of({"pytorch": ["--min-nodes=2", "--max-nodes=4"]}, MASTER, WORKERS, task=task))
        for task in (0, 1)
    ]
    assert {name: value for name, value in told[0].items() if name.startswith(("PET", "MUSTER"))} == {
        "PET_NNODES": "2:4",
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_ENDPOINT": "j-master-0.j:23456",
        "PET_RDZV_CONF": "is_host=1",
        "MUSTER_MIN_REPLICAS": "2",
        "MUSTER_MAX_REPLICAS": "4",
    }
    assert told[1]["PET_RDZV_CONF"] == "is_host=0"
    own = a_task("master")
    own["template"]["spec"]["containers"][0]["env"] = [{"name": "PET_RDZV_CONF", "value": "last_call_timeout=1"}]
    told_more = variables(pod_of({"pytorch": ["--min-nodes=2"]}, own, WORKERS))
    assert told_more["PET_RDZV_CONF"] == "last_call_timeout=1,is_host=1"
    by_default = variables(pod_of({"pytorch": ["--max-nodes=1"]}, MASTER, WORKERS))
    assert by_default["PET_NNODES"] == "3:3", "never fewer at most than at least, which is minAvailable"


def test_hosts_are_those_that_quota_lets_a_job_have():
    document = job_document(MASTER, WORKERS, plugins={"svc": []})
    document["metadata"]["annotations"] = {"muster.dev/admitted-replicas": '{"worker":1}'}
    job = as_job(document)
    data = load(job).plugins[0].objects(job, None)[1].document["data"]
    assert (data["worker.host"], data["VC_WORKER_NUM"], data["VC_MASTER_NUM"]) == ("j-worker-0.j", "1", "1")


def test_pytorch_workers_may_wait_for_the_master():
    arguments = {"pytorch": ["--wait-master-enabled", "--wait-master-timeout=7"]}
    (waiting,) = pod_of(arguments, MASTER, WORKERS, task=1)["spec"]["initContainers"]
    assert (waiting["name"], "left=7" in waiting["command"][2]) == ("wait-for-master", True)
    assert "initContainers" not in pod_of(arguments, MASTER, WORKERS)["spec"]


def test_pytorch_without_a_master_changes_nothing():
    assert "MASTER_ADDR" not in variables(pod_of({"pytorch": []}, WORKERS))


def test_mpi():
    assert variables(pod_of({"mpi": []}, MASTER, WORKERS))["MPI_HOST"] == "j-worker-0.j,j-worker-1.j"
    worker = pod_of({"mpi": []}, MASTER, WORKERS, task=1)
    assert "MPI_HOST" not in variables(worker)
    assert {"name": "mpijob-port", "containerPort": 22} in worker["spec"]["containers"][0]["ports"]


def test_tensorflow():
    tasks = [a_task("ps"), a_task("worker", 2), a_task("other")]
    found = json.loads(variables(pod_of({"tensorflow": ["--port=5"]}, *tasks, task=1, number=1))["TF_CONFIG"])
    assert found == {
        "cluster": {"ps": ["j-ps-0.j:5"], "worker": ["j-worker-0.j:5", "j-worker-1.j:5"]},
        "task": {"type": "worker", "index": 1},
    }
    assert "TF_CONFIG" not in variables(pod_of({"tensorflow": []}, *tasks, task=2))
    assert "TF_CONFIG" not in variables(pod_of({"tensorflow": []}, a_task("worker")))


def test_ray():
    head, worker = a_task("head"), a_task("worker", 2)
    for task in (head, worker):
        task["template"]["spec"]["containers"][0]["name"] = task["name"]
    container = pod_of({"ray": []}, head, worker)["spec"]["containers"][0]
    assert container["command"][2].startswith("ray start --head --block")
    assert [port["containerPort"] for port in container["ports"]] == [6379, 8265, 10001]
    joined = pod_of({"ray": ["--port=7"]}, head, worker, task=1)["spec"]["containers"][0]
    assert joined["command"] == ["sh", "-c", "ray start --block --address=j-head-0.j:7"]
    worker["template"]["spec"]["containers"][0]["command"] = ["mine"]
    assert pod_of({"ray": []}, head, worker, task=1)["spec"]["containers"][0]["command"] == ["mine"]


@pytest.mark.parametrize(("task", "number", "process"), [(0, 0, "0"), (1, 0, "1"), (1, 1, "2")])
def test_jax(task, number, process):
    found = variables(pod_of({"jax": []}, MASTER, WORKERS, task=task, number=number))
    assert (found["JAX_COORDINATOR_ADDRESS"], found["JAX_NUM_PROCESSES"]) == ("j-master-0.j:8476", "3")
    assert (found["JAX_PROCESS_ID"], found["PROCESS_ID"]) == (process, process)


def test_jax_without_a_master_is_led_by_the_first_worker():
    found = variables(pod_of({"jax": []}, WORKERS, a_task("other"), number=1))
    assert (found["JAX_COORDINATOR_ADDRESS"], found["JAX_PROCESS_ID"]) == ("j-worker-0.j:8476", "1")
    assert not variables(pod_of({"jax": []}, WORKERS, a_task("other"), task=1))


def test_hccl_ranks():
    masters = a_task("master", 2)
    assert (
        pod_of({"hcclrank": []}, masters, WORKERS, task=1, number=1)["metadata"]["annotations"]["hccl/rankIndex"] == "3"
    )
    assert pod_of({"hcclrank": []}, masters, WORKERS, number=1)["metadata"]["annotations"]["hccl/rankIndex"] == "1"


# Names and arguments


def test_a_plugin_that_there_is_not():
    with pytest.raises(UnknownPlugin, match="failed to get plugin new"):
        load(as_job(job_document(plugins={"new": []})))


PROBLEMS = {
    "not known": (["--ssl"], "--ssl is not known; known are master, port, worker"),
    "not a number": (["--port=many"], "--port: 'many' is not a whole number"),
    "no value": (["--port"], "--port needs a value"),
    "not an argument": (["port"], "'port' is not an argument such as --name=value"),
}


@pytest.mark.parametrize(("listed", "problem"), PROBLEMS.values(), ids=PROBLEMS.keys())
def test_arguments_that_do_not_parse_are_named_and_left_out(listed, problem):
    loaded = load(as_job(job_document(MASTER, plugins={"mpi": ["--master=m", *listed]})))
    assert list(loaded.problems) == [f"plugin mpi: {problem}"]
    assert loaded.plugins[0].master == "m"  # type: ignore[attr-defined]


@pytest.mark.parametrize("words", [["--port=5"], ["-port=5"], ["--port", "5"]])
def test_ways_to_write_an_argument(words):
    assert parse(words, {"port": int}).number("port", 1) == 5


@given(st.sampled_from(sorted(IN_TREE)), st.lists(st.text(max_size=8), max_size=4))
def test_no_arguments_break_a_plugin(name, listed):
    document = job_document(MASTER, WORKERS, plugins={name: listed})
    job = as_job(document)
    for plugin in load(job).plugins:
        plugin.objects(job, KEY)
    assert len(list(make_pods(job, document, [NewPod(0, 0), NewPod(1, 1)], load(job).plugins))) == 2
