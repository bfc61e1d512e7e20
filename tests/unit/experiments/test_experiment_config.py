"""How the configuration of an experiment comes about."""

from typing import Any

import pytest
from tests.unit.experiments.experiment_configs import ANYTHING, STORAGE, layers, read, refusal, refused

from muster.accounts.policies import Constraints, Policy
from muster.api import errors
from muster.experiments.config.log_policies import LogAction, LogPolicy
from muster.experiments.config.parsing import Layers, parse, placed
from muster.experiments.config.sections import Length, Unit
from muster.experiments.config.showing import shown
from muster.experiments.config.storage import S3, Azure, CheckpointStorage, Gcs, SharedFs
from muster.search.config import AdaptiveAsha, Optuna, Single
from muster.tasks import container_defaults
from muster.tasks.config_sections import Allowed

# Who has a say


def test_the_user_goes_before_the_template_and_that_before_the_workspace_the_cluster_and_the_defaults() -> None:
    given = container_defaults.read(
        {
            "image": "cluster",
            "environment_variables": ["A=cluster", "C=cluster"],
            "preemption_timeout": 60,
            "work_dir": "/elsewhere",
            "shm_size_bytes": 5,
            "log_policies": [{"name": "CUDA OOM", "pattern": "oom", "action": {"type": "cancel_retries"}}],
        }
    )
    config = parse(
        layers(
            {
                "resources": {"slots_per_trial": 2},
                "environment": {"environment_variables": ["A=user"]},
                "labels": ["u"],
            },
            template={"resources": {"slots_per_trial": 4, "priority": 3}, "max_restarts": 1, "labels": ["t", "u"]},
            workspace_storage={"type": "gcs", "bucket": "workspace", "save_trial_best": 3},
            cluster_storage={**STORAGE, "save_trial_latest": 5, "save_trial_best": 9},
            container_defaults=given,
        ),
        Allowed(),
    )
    assert config.resources.slots_per_trial == 2
    assert config.resources.priority == 3
    assert config.resources.shm_bytes == 5
    assert config.max_restarts == 1
    assert config.labels == ("u", "t")
    assert config.checkpoint_storage == CheckpointStorage(Gcs("workspace"), 0, 3, 5)
    assert config.environment.image["cpu"] == "cluster"
    assert config.environment.variables_of("cuda") == {"A": "user", "C": "cluster"}
    assert config.preemption_seconds == 60
    assert config.log_policies == (
        LogPolicy("CUDA OOM", "oom", LogAction.CANCEL_RETRIES),
        LogPolicy("ECC Error", ".*uncorrectable ECC error encountered.*"),
    )


def test_what_nobody_says_is_as_determined_has_it_and_name_and_seed_are_given() -> None:
    config = read()
    assert (config.name, config.seed) == ("made up", 7)
    assert config.resources.document() == {
        "slots_per_trial": 1, "max_slots": None, "weight": 1.0, "priority": 42, "resource_pool": "",
        "is_single_node": False, "shm_size": None, "budget_gpu_hours": None, "devices": [], "native_parallel": False,
    }  # fmt: skip
    assert config.checkpoint_storage == CheckpointStorage(SharedFs("/cluster"), 0, 1, 1)
    assert config.min_validation_period == Length(0, Unit.BATCHES)
    assert (config.max_restarts, config.scheduling_unit, config.preemption_seconds) == (5, 100, 3600)
    assert config.log_retention_days is None
    assert [policy.name for policy in config.log_policies] == ["CUDA OOM", "ECC Error"]
    assert all(policy.action is None for policy in config.log_policies)


def test_what_policies_fix_goes_before_all_and_the_clusters_before_the_workspaces() -> None:
    workspace = Policy({"max_restarts": 2, "resources": {"priority": 60, "weight": 3}}, Constraints())
    cluster = Policy(
        {"resources": {"priority": 70}, "checkpoint_storage": {"type": "s3", "bucket": "b"}}, Constraints()
    )
    user = {"max_restarts": 9, "resources": {"priority": 1, "slots_per_trial": 8}}
    config = parse(layers(user, policies=[workspace, cluster]), Allowed())
    assert config.max_restarts == 2
    assert (config.resources.priority, config.resources.weight, config.resources.slots_per_trial) == (70, 3, 8)
    assert config.checkpoint_storage.place == S3("b")


@pytest.mark.parametrize(
    ("resources", "says"),
    [
        ({"slots_per_trial": 9}, "resources.slots_per_trial: the policy allows 8 slots at most, found 9"),
        ({"max_slots": 9}, "resources.max_slots: the policy allows 8"),
        ({"priority": 5}, "resources.priority: the policy allows no number below 50, found 5"),
    ],
)
def test_what_policies_forbid_is_refused(resources: dict[str, int], says: str) -> None:
    policy = Policy({}, Constraints(max_slots=8, priority_limit=50))
    assert says in refused(layers({"resources": resources}, policies=[policy]))


def test_limits_of_policies_hold_where_the_configuration_says_nothing() -> None:
    config = parse(layers({}, policies=[Policy({}, Constraints(max_slots=8, priority_limit=50))]), ANYTHING)
    assert config.resources.max_slots == 8
    assert config.resources.priority == 50


def test_of_a_weaker_layer_of_another_kind_only_what_all_kinds_share_is_taken() -> None:
    template = {
        "searcher": {"name": "random", "metric": "error", "smaller_is_better": False, "max_trials": 5},
        "checkpoint_storage": {"type": "azure", "container": "c", "account_url": "u", "credential": "k"},
        "hyperparameters": {"lr": {"type": "double", "minval": 1, "maxval": 2}, "deep": {"a": 1, "b": 2}},
        "min_validation_period": {"epochs": 1},
        "bind_mounts": [
            {"host_path": "/t", "container_path": "/data"},
            {"host_path": "/t2", "container_path": "/more"},
        ],
    }
    user = {
        "searcher": {"name": "single", "metric": "loss"},
        "checkpoint_storage": {"connection_string": "s"},
        "hyperparameters": {"lr": {"type": "const", "val": 0.1}, "deep": {"b": 3}},
        "min_validation_period": {"batches": 10},
        "bind_mounts": [{"host_path": "/u", "container_path": "/data"}],
    }
    config = parse(layers(user, template=template), ANYTHING)
    assert config.searcher == Single(metric="loss", smaller_is_better=False)
    assert config.checkpoint_storage.place == Azure("c", "s")
    assert config.hyperparameters == {
        "lr": {"type": "const", "val": 0.1},
        "deep": {"a": {"type": "const", "val": 1}, "b": {"type": "const", "val": 3}},
    }
    assert config.min_validation_period == Length(10, Unit.BATCHES)
    assert [mount.host_path for mount in config.bind_mounts] == ["/u", "/t2"]


def test_lists_in_what_is_the_users_own_do_not_grow() -> None:
    config = parse(
        layers({"data": {"labels": [1]}}, template={"data": {"labels": [2], "more": {"cpu": [3]}}}), ANYTHING
    )
    assert config.data == {"labels": [1], "more": {"cpu": [3]}}


# What is wrong


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"entrypont": "x"}, "entrypont: unknown key; did you mean entrypoint?"),
        ({"resources": {"slots_per_trail": 1}}, "slots_per_trail: unknown key; did you mean slots_per_trial?"),
        ({"searcher": {"name": "single", "metrc": "x"}}, "searcher.metrc"),
        ({"searcher": {"name": "sinlge", "metric": "x"}}, "searcher.name"),
        ({"searcher": {"name": "custom", "metric": "x"}}, "searcher.name"),
        ({"searcher": None}, "searcher: must be given"),
        ({"hyperparameters": {"lr": {"type": "int", "minval": 3, "maxval": 1}}}, "hyperparameters.lr.minval"),
        ({"hyperparameters": []}, "hyperparameters: must be an object"),
        ({"searcher": {"name": "single", "metric": "x", "source_trial_id": 1, "source_checkpoint_uuid": "u"}},
         "at most one of source_trial_id and source_checkpoint_uuid"),
        ({"entrypoint": None}, "entrypoint: must name what to run"),
        ({"entrypoint": ["a", 1]}, "entrypoint: must be a list of texts"),
        ({"entrypoint": "python3 -m determined.launch.horovod -- python3 train.py"},
         "determined.launch.horovod is not supported: use determined.launch.torch_distributed"),
        ({"entrypoint": ["python3", "-m", "determined.launch.deepspeed", "train.py"]},
         "determined.launch.deepspeed is not supported: use determined.launch.torch_distributed"),
        ({"resources": {"slots_per_trial": -1}}, "resources.slots_per_trial: must be a whole number"),
        ({"resources": {"slots_per_trial": 4, "max_slots": 2}}, "resources.slots_per_trial: no trial could run"),
        ({"resources": {"budget_gpu_hours": 0}}, "resources.budget_gpu_hours: must be a number above 0, found 0"),
        ({"resources": {"weight": "much"}}, "resources.weight: must be a number above 0"),
        ({"resources": {"devices": ["/dev/x:/dev/x"]}}, "resources.devices: a trial sees the devices of its slots"),
        ({"resources": {"native_parallel": True}}, "resources.native_parallel: use determined.launch"),
        ({"environment": {"registry_auth": {"username": "x"}}}, "environment.registry_auth: use imagePullSecrets"),
        ({"workspace": "w"}, "project: is missing"),
        ({"project": "p"}, "workspace: is missing"),
        ({"name": "x" * 255}, "name: must have at most 254"),
        ({"labels": "x"}, "labels: must be a list of texts"),
        ({"min_validation_period": {"batches": 1, "epochs": 1}}, "min_validation_period: must have one of batches"),
        ({"min_validation_period": {"weeks": 1}}, "min_validation_period.weeks: unknown key"),
        ({"min_checkpoint_period": 100}, "min_checkpoint_period: must be an object"),
        ({"checkpoint_policy": "some"}, "checkpoint_policy: must be one of best, all, none"),
        ({"profiling": {"begin_on_batch": 5, "end_after_batch": 4}}, "profiling.end_after_batch: must not be below"),
        ({"retention_policy": {"log_retention_days": -2}}, "log_retention_days: must be a whole number"),
        ({"reproducibility": {"experiment_seed": 2**32}}, "reproducibility.experiment_seed: must be a whole"),
        ({"integrations": {"webhooks": {"webhook_id": ["a"]}}}, "webhook_id: must be a list of whole numbers"),
        ({"integrations": {"pachyderm": {"pached": {}}}}, "pachyderm.pached: unknown key; did you mean pachd?"),
        ({"slurm": {"sbatch_arg": []}}, "slurm.sbatch_arg: unknown key; did you mean sbatch_args?"),
        ({"optimizations": {"mixed_precision": "O9"}}, "optimizations.mixed_precision: must be one of O0"),
    ],
)  # fmt: skip
def test_what_will_not_do_is_named_with_what_to_use_instead(config: dict[str, Any], says: str) -> None:
    assert says in refusal(**config)


def test_all_that_is_wrong_is_told_at_once() -> None:
    told = refusal(resources={"slots_per_trial": -1}, hyperparameters={"lr": {"type": "flaot"}}, nonsense=1)
    assert all(path in told for path in ("resources.slots_per_trial", "hyperparameters.lr.type", "nonsense"))


def test_a_trial_class_of_old_is_kept_as_it_is() -> None:
    assert read(entrypoint="model_def:Trial").document()["entrypoint"] == "model_def:Trial"
    assert read(entrypoint=["python3", "train.py"]).document()["entrypoint"] == ["python3", "train.py"]


# Old shapes, and what has no effect


def test_old_and_short_ways_of_saying_things_are_taken() -> None:
    config = read(
        labels={"a": True, "b": False},
        hyperparameters={"lr": 0.1, "net": {"layers": [1, 2], "name": None}},
        searcher={"name": "adaptive_asha", "metric": "loss", "max_length": {"batches": 100}, "max_trials": 4},
        environment={"image": "i", "environment_variables": {"gpu": ["A=1"]}},
        checkpoint_storage={"type": "shared_fs", "host_path": "/x", "checkpoint_path": "c", "container_path": "/y"},
        min_validation_period={"epochs": 2, "batches": None},
        log_policies=[{"pattern": "x", "action": {"type": "exclude_node"}}],
        integrations=None,
    )
    assert config.labels == ("a",)
    assert config.hyperparameters == {
        "lr": {"type": "const", "val": 0.1},
        "net": {"layers": {"type": "const", "val": [1, 2]}, "name": {"type": "const", "val": None}},
    }
    assert isinstance(config.searcher, AdaptiveAsha)
    assert (config.searcher.max_time, config.searcher.time_metric) == (100, "batches")
    assert config.environment.image == {"cpu": "i", "cuda": "i", "rocm": "i"}
    assert config.environment.variables_of("cuda") == {"A": "1"}
    assert config.checkpoint_storage.place == SharedFs("/x", "c")
    assert config.min_validation_period == Length(2, Unit.EPOCHS)
    assert LogPolicy("", "x", LogAction.EXCLUDE_NODE) in config.log_policies


def test_what_has_no_effect_is_accepted_and_said() -> None:
    config = read(
        resources={"slots": 4, "agent_label": "x"},
        slurm={"sbatch_args": ["--exclusive"], "gpu_type": "h200"},
        pbs={},
        data_layer={"type": "shared_fs"},
        security={"kerberos": {}},
        internal=None,
    )
    assert [warning.partition(":")[0] for warning in config.warnings] == [
        "resources.slots", "resources.agent_label", "slurm", "data_layer", "security",
    ]  # fmt: skip
    assert config.document()["slurm"] == {"gpu_type": "h200", "sbatch_args": ["--exclusive"]}
    assert read().warnings == ()


def test_our_own_additions() -> None:
    searcher = {"name": "optuna", "metric": "loss", "max_trials": 4, "sampler": "tpe"}
    config = read(resources={"budget_gpu_hours": 1.5}, searcher=searcher)
    assert config.resources.budget_gpu_hours == 1.5
    assert isinstance(config.searcher, Optuna)


# Where it runs


def test_an_unmanaged_experiment_needs_nothing_of_the_cluster() -> None:
    user = {
        "entrypoint": None,
        "data": None,
        "searcher": {"name": "custom", "metric": "loss", "smaller_is_better": False},
        "checkpoint_storage": {"type": "shared_fs", "host_path": "/mine"},
    }
    config = parse(layers(user, is_unmanaged=True), Allowed())
    assert config.document()["searcher"] == {"name": "custom", "metric": "loss", "smaller_is_better": False}
    assert parse(Layers("", 0, user=config.document(), is_unmanaged=True), Allowed()) == config
    assert "searcher.max_trials: unknown key" in refused(
        layers({"searcher": {"name": "custom", "metric": "loss", "max_trials": 1}}, is_unmanaged=True)
    )


def test_a_pool_must_be_one_of_the_workspaces() -> None:
    assert placed(read(), "aux", ["aux"]).resources.pool == "aux"
    with pytest.raises(errors.BadRequest, match=r"resources\.resource_pool: this workspace has no pool 'gold'"):
        placed(read(resources={"resource_pool": "gold"}), "aux", ["aux"])


# Log policies


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        ({"pattern": "(", "action": "exclude_node"}, "log_policies[0].pattern: not a regular expression"),
        ({"pattern": "(?=x)", "name": "x"}, "log_policies[0].pattern: not a regular expression"),
        ({"action": "exclude_node"}, "log_policies[0].pattern: must be given"),
        ({"pattern": "x"}, "log_policies[0].action: must be one of cancel_retries, exclude_node where"),
        ({"pattern": "x", "action": "sleep"}, "log_policies[0].action: must be one of cancel_retries"),
        ({"pattern": "x", "action": {"type": "x", "y": 1}}, "log_policies[0].action: must be a text"),
        ({"pattern": "x", "name": "x", "signal": "y"}, "log_policies[0].signal: give the label as name"),
        ("x", "log_policies[0]: must be an object"),
    ],
)  # fmt: skip
def test_a_log_policy_that_is_none_is_refused(policy: object, says: str) -> None:
    assert says in refusal(log_policies=[policy])


def test_a_policy_of_the_cluster_can_be_changed_and_switched_off_by_its_name() -> None:
    config = read(log_policies=[{"name": "CUDA OOM", "pattern": None}, {"name": "ECC Error", "pattern": "ecc"}])
    assert config.log_policies == (LogPolicy("CUDA OOM"), LogPolicy("ECC Error", "ecc"))
    assert parse(Layers("", 0, user=config.document()), ANYTHING).log_policies == config.log_policies


# What people see


def test_secrets_are_not_shown() -> None:
    document = read(
        data={"secrets": {"token": "t"}, "path": "p"},
        checkpoint_storage={"type": "s3", "bucket": "b", "access_key": "a", "secret_key": "s"},
        integrations={"pachyderm": {"dataset": {"repo": "r", "token": "t"}}},
    ).document()
    seen = shown(document)
    assert seen["data"] == {"secrets": {"token": "********"}, "path": "p"}
    assert seen["checkpoint_storage"]["access_key"] == seen["checkpoint_storage"]["secret_key"] == "********"
    assert seen["integrations"]["pachyderm"]["dataset"] == {
        "project": "", "repo": "r", "commit": "", "branch": "", "token": "********",
    }  # fmt: skip
    assert document["data"]["secrets"] == {"token": "t"}
    assert shown({"name": "x"}) == {"name": "x"}
