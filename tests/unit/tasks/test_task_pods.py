"""The pod of a task, its ports, and names that are made up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.agent.environment import expand
from muster.api import errors
from muster.tasks import glue_files, kinds, naming, task_pods
from muster.tasks.kinds import EventFiles, Means
from muster.tasks.ports import ServicePorts
from muster.tasks.task_config import BindMount, ConfigPort, Environment, Resources, TaskConfig, TaskType
from muster.tasks.task_pods import Cluster, TaskFacts

CLUSTER = Cluster("c", "https://muster.example:8443", glue_files.read(certificate="PEM"))
FACTS = TaskFacts(TaskType.COMMAND, "ann", "cpu", ["echo", "$HOME"])


def variables(config: TaskConfig, facts: TaskFacts = FACTS) -> dict[str, str]:
    (container,) = task_pods.template(config, facts, CLUSTER)["spec"]["containers"]
    return {each["name"]: each.get("value", "") for each in container["env"]}


def test_the_pod_has_its_run_directory_to_itself() -> None:
    found = task_pods.template(TaskConfig(), FACTS, CLUSTER)
    (container,) = found["spec"]["containers"]
    assert [mount["mountPath"] for mount in container["volumeMounts"]] == ["/run/determined", "/run/determined/glue"]
    assert container["args"] == ["COMMAND", "echo", "$$HOME"]
    assert found["spec"]["restartPolicy"] == "Never"


def test_how_tasks_reach_the_server() -> None:
    env = variables(TaskConfig())
    assert (env["DET_MASTER_HOST"], env["DET_MASTER_PORT"], env["DET_USE_TLS"]) == ("muster.example", "8443", "true")
    assert env["DET_MASTER_CERT"] == "master.crt"


def test_what_the_configuration_says_is_in_the_pod() -> None:
    config = TaskConfig(
        environment=Environment(
            image={"cpu": "mine", "cuda": "other"},
            variables={"cpu": ["A=1", "A=2"], "cuda": ["A=3"]},
            is_pulled_always=True,
            add_capabilities=["SYS_PTRACE"],
            pod_spec={
                "metadata": {"labels": {"team": "a"}, "annotations": {"cost": "low"}},
                "spec": {
                    "nodeSelector": {"disk": "ssd"},
                    "volumes": [{"name": "v", "emptyDir": {}}],
                    "containers": [
                        {
                            "name": "determined-container",
                            "volumeMounts": [{"name": "v", "mountPath": "/v"}],
                            "env": [{"name": "A", "value": "pod"}, {"name": "B", "value": "pod"}],
                        }
                    ],
                },
            },
        ),
        resources=Resources(shm_bytes=1 << 20),
        bind_mounts=[
            BindMount("/data", "/data"),
            BindMount("/sets", "sets", is_read_only=True, propagation="rslave"),
        ],
        work_dir="/home/ann",
        is_debug=True,
    )
    found = task_pods.template(config, FACTS, CLUSTER, {"spec": {"nodeSelector": {"zone": "x"}, "tolerations": [1]}})
    (container,) = found["spec"]["containers"]
    env = {each["name"]: each.get("value") for each in container["env"]}
    assert (env["A"], env["B"], env["DET_WORKDIR"], env["DET_DEBUG"], env["DET_NEEDS_MOUNTS"]) == (
        "1", "pod", "/home/ann", "1", "1",
    )  # fmt: skip
    assert (container["image"], container["imagePullPolicy"]) == ("mine", "Always")
    assert container["securityContext"] == {"capabilities": {"add": ["SYS_PTRACE"]}}
    mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
    assert mounts["/run/determined/workdir/sets"]["mountPropagation"] == "HostToContainer"
    assert {"/data", "/dev/shm", "/v"} <= mounts.keys()
    assert found["metadata"]["annotations"] == {"cost": "low"}
    assert found["metadata"]["labels"] == {"team": "a"}
    assert found["spec"]["nodeSelector"] == {"disk": "ssd"}
    assert found["spec"]["tolerations"] == [1]
    assert "DET_NEEDS_MOUNTS" not in variables(TaskConfig(bind_mounts=[BindMount("/data", "/data/")]))


@given(st.text())
def test_what_kubernetes_would_fill_in_comes_out_as_it_was_written(text: str) -> None:
    assert expand(task_pods.escaped(text), {"A": "filled in"}) == text


def test_ports_are_of_their_kind_and_of_nobody_else() -> None:
    taken: set[int] = set()
    ports = ServicePorts(lambda: taken, lambda below: below - 1)
    assert [ports.pick(TaskType.NOTEBOOK), ports.pick(TaskType.NOTEBOOK)] == [3199, 2900]
    ports.let_go(3199)
    assert ports.pick(TaskType.NOTEBOOK) == 3199
    taken.update(range(3200, 3500))
    assert ports.pick(TaskType.SHELL) >= 13_000
    taken.update(range(13_000, 29_000))
    with pytest.raises(errors.TooManyRequests):
        ports.pick(TaskType.SHELL)


def test_a_shell_is_told_its_public_key_and_the_private_one_is_kept() -> None:
    keys = naming.key_pair()
    found = kinds.special(TaskType.SHELL, TaskConfig(), Means(port=3200, keys=keys))
    assert keys.private not in found.variables.values()
    assert found.snapshot["private_key"] == keys.private
    assert found.proxies[0].is_tcp
    assert found.proxies[0].is_unauthenticated
    assert "PRIVATE KEY" not in repr(found)
    assert "PRIVATE KEY" not in repr(keys)


def test_secrets_of_a_storage_are_in_no_record() -> None:
    events = EventFiles({"type": "s3", "secret_key": "hush"}, ["a", "b"])
    found = kinds.special(TaskType.TENSORBOARD, TaskConfig(tensorboard_args=["--x"]), Means(port=2600, events=events))
    assert "hush" in found.secrets["DET_TENSORBOARD_STORAGE"]
    assert "hush" not in repr(found)
    assert (found.words, found.variables["DET_TENSORBOARD_PATHS"]) == (["--x"], "a,b")


def test_further_ports_are_reached_by_their_number() -> None:
    config = TaskConfig(environment=Environment(proxy_ports=[ConfigPort(8080, is_tcp=True)]))
    found = kinds.special(TaskType.NOTEBOOK, config, Means(port=2900, token="t"))
    assert [(port.port, port.is_default) for port in found.proxies] == [(2900, True), (8080, False)]
    with pytest.raises(errors.BadRequest, match="8080 is taken already"):
        kinds.check_ports(config, 8080)


def test_names_are_made_up_of_words() -> None:
    assert naming.description(TaskType.TENSORBOARD, lambda below: below - 1) == "TensorBoard (widely-wise-zebra)"
