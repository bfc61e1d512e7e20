"""How a task's configuration comes about."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.accounts.policies import Constraints, Policy
from muster.api import errors
from muster.tasks import config_fields, container_defaults
from muster.tasks.config_sections import Allowed
from muster.tasks.configuring import Layers, configure, placed, with_user
from muster.tasks.pod_specs import CONTAINER
from muster.tasks.task_config import IdleType, TaskConfig, TaskType

COMMAND = TaskType.COMMAND
NOTHING = Allowed()


def read(kind: TaskType = COMMAND, allowed: Allowed = NOTHING, **user: Any) -> TaskConfig:
    if kind in (COMMAND, TaskType.GENERIC):
        user = {"entrypoint": ["true"], **user}
    return configure(kind, Layers(user=user), allowed)


def refusal(kind: TaskType = COMMAND, **user: Any) -> str:
    with pytest.raises(errors.BadRequest) as caught:
        read(kind, **user)
    return caught.value.message


def test_the_user_goes_before_the_template_and_that_before_the_defaults() -> None:
    layers = Layers(
        defaults={
            "environment": {"image": "default", "environment_variables": ["A=default", "D=default"]},
            "work_dir": "/default",
        },
        template={
            "environment": {"image": {"cpu": "template"}, "environment_variables": {"cpu": ["A=template", "T=t"]}},
            "resources": {"slots": 2, "priority": 10},
            "bind_mounts": [],
        },
        user={"entrypoint": "true", "resources": {"slots": 3, "shm_size": None}, "description": None},
    )
    config = configure(COMMAND, layers, NOTHING)
    assert config.resources.slots == 3
    assert config.resources.priority == 10
    assert config.work_dir == "/default"
    assert config.environment.image == {"cpu": "template", "cuda": "default", "rocm": "default"}
    assert config.environment.variables_of("cpu") == {"A": "template", "T": "t", "D": "default"}
    assert config.environment.variables_of("cuda") == {"A": "default", "D": "default"}


def test_what_policies_fix_goes_before_all_and_the_clusters_before_the_workspaces() -> None:
    workspace = Policy({"work_dir": "/w", "environment": {"environment_variables": ["A=w", "B=w"]}}, Constraints())
    cluster = Policy({"environment": {"environment_variables": ["A=c"]}}, Constraints())
    layers = Layers(
        user={"entrypoint": "true", "work_dir": "/mine", "environment": {"environment_variables": ["A=u", "C=u"]}},
        policies=[workspace, cluster],
    )
    config = configure(COMMAND, layers, NOTHING)
    assert config.work_dir == "/w"
    assert config.environment.variables_of("cpu") == {"A": "c", "B": "w", "C": "u"}


@pytest.mark.parametrize(
    ("resources", "says"),
    [({"slots": 9}, "8 slots at most, found 9"), ({"priority": 5}, "no number below 20, found 5")],
)
def test_what_policies_forbid_is_refused(resources: dict[str, int], says: str) -> None:
    layers = Layers(
        user={"entrypoint": "true", "resources": resources},
        policies=[Policy({}, Constraints(max_slots=8, priority_limit=20))],
    )
    with pytest.raises(errors.BadRequest, match=says):
        configure(COMMAND, layers, NOTHING)


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"resources": {"slots": -1}}, "resources.slots: must be a whole number from 0"),
        ({"resources": {"priority": 100}}, "resources.priority: must be a whole number from 1 to 99"),
        ({"resources": {"slot": 1}}, "resources.slot: unknown key; did you mean slots?"),
        ({"resources": {"slots_per_trial": 1}}, "resources.slots_per_trial: is for experiments; use resources.slots"),
        ({"resources": {"agent_label": "x"}}, "resources.agent_label: use resources.resource_pool"),
        ({"resources": {"devices": [{"host_path": "/dev/x"}]}}, "resources.devices: a task has the GPUs of"),
        ({"resources": {"shm_size": "many"}}, "resources.shm_size: must be a size"),
        ({"resources": []}, "resources: must be an object"),
        ({"searcher": {"name": "grid"}}, "searcher: is for experiments only"),
        ({"slurm": {"sbatch_args": ["x"]}}, "slurm: tasks run as pods here"),
        ({"environment": {"registry_auth": {"username": "x"}}}, "environment.registry_auth: use imagePullSecrets"),
        ({"environment": {"environment_variables": ["1A=x"]}}, "environment_variables.cpu: must be like NAME=value"),
        ({"environment": {"image": {"tpu": "x"}}}, "environment.image.tpu: unknown key"),
        ({"environment": {"proxy_ports": [{"proxy_port": 70000}]}}, "proxy_ports[0].proxy_port: must be a whole"),
        ({"idle_timeout": "soon"}, "idle_timeout: must be a time"),
        ({"notebook_idle_type": "often"}, "notebook_idle_type: must be one of kernels_or_terminals"),
        ({"work_dir": "here"}, "work_dir: must be an absolute path"),
        ({"entrypoint": [1]}, "entrypoint: must be a list of texts"),
        ({"entrypoint": []}, "entrypoint: must name what to run"),
        ({"entrypoint": "a\0b"}, "entrypoint"),
        ({"bind_mounts": [{"host_path": "x", "container_path": "y"}]}, "bind_mounts[0].host_path: must be an absolute"),
        ({"bind_mounts": [{"host_path": "/x/../y", "container_path": "y"}]}, 'without ".."'),
        ({"bind_mounts": [{"host_path": "/x", "container_path": "../y"}]}, "bind_mounts[0].container_path"),
        ({"nonsense": 1}, "nonsense: unknown key"),
    ],
)  # fmt: skip
def test_what_will_not_do_is_named_with_what_to_use_instead(config: dict[str, Any], says: str) -> None:
    assert says in refusal(**config)


def test_all_that_is_wrong_is_told_at_once() -> None:
    told = refusal(resources={"slots": -1}, work_dir="here")
    assert "resources.slots" in told
    assert "work_dir" in told


@pytest.mark.parametrize("kind", [TaskType.NOTEBOOK, TaskType.SHELL, TaskType.TENSORBOARD])
def test_a_service_has_an_entrypoint_of_its_own(kind: TaskType) -> None:
    assert "has its own" in refusal(kind, entrypoint="mine")


def test_what_each_kind_asks_for_where_nobody_says() -> None:
    assert read().resources.slots == 1
    assert read(TaskType.NOTEBOOK).resources.slots == 1
    assert read(TaskType.TENSORBOARD).resources.slots == 0
    assert read(TaskType.NOTEBOOK).notebook_idle_type is IdleType.KERNELS_OR_TERMINALS
    assert read(TaskType.GENERIC, preemption_timeout=5).preemption_seconds == 5
    assert "use a generic task" in refusal(preemption_timeout=5)


MOUNT = {"host_path": "/data/sets", "container_path": "/sets", "read_only": True}


def test_bind_mounts_need_to_be_allowed() -> None:
    assert "/data/sets may not be mounted; allowed is nowhere" in refusal(bind_mounts=[MOUNT])
    config = read(allowed=Allowed(["/data"]), bind_mounts=[MOUNT])
    assert [mount.document() for mount in config.bind_mounts] == [{**MOUNT, "propagation": "rprivate"}]
    with pytest.raises(errors.BadRequest, match="/database may not"):
        read(allowed=Allowed(["/data"]), bind_mounts=[{"host_path": "/database", "container_path": "x"}])


def test_what_administrators_mount_themselves_is_allowed() -> None:
    layers = Layers(defaults={"bind_mounts": [MOUNT]}, user={"entrypoint": "true"})
    assert [mount.host_path for mount in configure(COMMAND, layers, NOTHING).bind_mounts] == ["/data/sets"]


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"hostNetwork": True}, "spec.hostNetwork: is not taken"),
        ({"volumes": [{"name": "x", "hostPath": {"path": "/etc"}}]}, "volumes[0].hostPath: may not be mounted"),
        ({"volumes": [{"name": "x", "hostPath": {"path": "/data/../etc"}}]}, "volumes[0].hostPath: may not be mounted"),
        ({"containers": [{"name": "other"}]}, "containers[0].name: must be"),
        ({"containers": [{"name": CONTAINER, "securityContext": {"privileged": True}}]}, "securityContext"),
        ({"containers": [{"name": CONTAINER, "resources": {"limits": {"nvidia.com/gpu": 8}}}]}, "by resources.slots"),
    ],
)  # fmt: skip
def test_a_pod_spec_does_not_lead_out_of_bounds(spec: dict[str, Any], says: str) -> None:
    with pytest.raises(errors.BadRequest) as caught:
        read(allowed=Allowed(["/data"]), environment={"pod_spec": {"spec": spec}})
    assert says in caught.value.message


def test_the_document_says_the_same_when_it_is_read_again() -> None:
    config = read(
        TaskType.NOTEBOOK,
        Allowed(["/"]),
        bind_mounts=[MOUNT],
        idle_timeout="1h30m",
        resources={"slots": 2, "shm_size": "4Gi", "priority": 3},
        environment={"image": "x", "environment_variables": {"cuda": ["A=1"]}, "proxy_ports": [{"proxy_port": 8}]},
        work_dir="/home/$DET_USER/$AGENT_USER",
        debug=True,
    )
    assert config.idle_seconds == 5400
    assert config.resources.shm_bytes == 4 << 30
    assert configure(TaskType.NOTEBOOK, Layers(user=config.document()), Allowed(["/"])) == config
    assert with_user(config, "ann", "").work_dir == "/home/ann/root"


def test_a_pool_must_be_one_of_the_workspaces() -> None:
    assert placed(read(), "", []).resources.pool == ""
    assert placed(read(), "aux", ["aux"]).resources.pool == "aux"
    assert placed(read(resources={"resource_pool": "gold"}), "aux", ["gold"]).resources.pool == "gold"
    with pytest.raises(errors.BadRequest, match="no pool 'gold'; it has aux"):
        placed(read(resources={"resource_pool": "gold"}), "aux", ["aux"])


def test_container_defaults_are_read_under_determineds_names() -> None:
    found = container_defaults.read(
        {
            "image": "i",
            "environment_variables": ["A=1"],
            "shm_size_bytes": 5,
            "bind_mounts": [MOUNT],
            "startup_hook": "echo hi",
            "preemption_timeout": 60,
            "network_mode": "host",
        }
    )
    config = configure(COMMAND, Layers(defaults=found.config, user={"entrypoint": "true"}), NOTHING)
    assert config.environment.image["cuda"] == "i"
    assert config.resources.shm_bytes == 5
    assert (found.startup_hook, found.preemption_seconds) == ("echo hi", 60)


def test_container_defaults_that_nobody_knows_are_refused() -> None:
    with pytest.raises(errors.BadRequest, match=r"task_container_defaults\.shm: unknown key"):
        container_defaults.read({"shm": 1})


@given(st.integers(0, 10**6), st.integers(0, 59), st.integers(0, 59))
def test_durations_are_sums(hours: int, minutes: int, seconds: int) -> None:
    assert config_fields.duration(f"{hours}h{minutes}m{seconds}s") == hours * 3600 + minutes * 60 + seconds


@given(st.text(max_size=12))
def test_a_text_is_a_duration_or_none(text: str) -> None:
    found = config_fields.duration(text)
    assert found is None or found >= 0


JSONS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)
KEYS = st.sampled_from(
    ["environment", "resources", "bind_mounts", "entrypoint", "idle_timeout", "work_dir", "slurm", "debug", "x"]
)


@given(st.dictionaries(KEYS, JSONS, max_size=4))
def test_whatever_is_given_is_understood_or_refused(user: dict[str, Any]) -> None:
    with contextlib.suppress(errors.BadRequest):
        assert isinstance(configure(COMMAND, Layers(user=user), NOTHING), TaskConfig)
