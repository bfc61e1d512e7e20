"""What holds for every configuration of an experiment, and for every key in one."""

from collections.abc import Iterator
from pathlib import Path as FilePath
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.experiments.experiment_configs import ANYTHING, LEAST, STORAGE, layers, refused

from muster.api import errors, raw
from muster.experiments.config import keys, keys_page
from muster.experiments.config.keys import NO_EFFECT, REFUSED, Path, Section
from muster.experiments.config.parsing import Layers, parse
from muster.tasks.container_defaults import ContainerDefaults

PAGE = FilePath(__file__).parents[3] / "docs" / "reference" / "experiment-config.md"
FOREIGN = "zzqqxxjj"
VALUES: dict[str, Any] = {
    "name": "n", "description": "d", "labels": ["l"], "data": {"x": [1]}, "workspace": "w", "project": "p",
    "entrypoint": ["python3", "x.py"], "environment": {"image": {"cpu": "i"}}, "resources": {"slots_per_trial": 3},
    "bind_mounts": [{"host_path": "/h", "container_path": "/c", "read_only": True, "propagation": "shared"}],
    "hyperparameters": {"lr": {"type": "const", "val": 1}}, "searcher": {"name": "single", "metric": "other"},
    "checkpoint_storage": {"type": "gcs", "bucket": "b"}, "checkpoint_policy": "all",
    "min_validation_period": {"epochs": 2}, "min_checkpoint_period": {"records": 3},
    "log_policies": [{"name": "n", "pattern": "p", "action": "exclude_node"}],
    "retention_policy": {"log_retention_days": -1}, "profiling": {"enabled": True},
    "optimizations": {"aggregation_frequency": 2}, "reproducibility": {"experiment_seed": 1},
    "integrations": {"webhooks": {"exclude": True}}, "slurm": {"gpu_type": "g"}, "pbs": {"slots_per_node": 2},
    "data_layer": {"type": "x"}, "internal": {"native": ["x"]}, "security": {"kerberos": {}},
    "tensorboard_storage": {"type": "x"},
    "environment.image": {"cpu": "x"}, "environment.environment_variables": {"cpu": ["A=1"]},
    "environment.environment_variables.cpu": ["A=1"], "environment.environment_variables.cuda": ["A=1"],
    "environment.environment_variables.rocm": ["A=1"],
    "environment.proxy_ports": [{"proxy_port": 1, "proxy_tcp": True, "unauthenticated": True}],
    "environment.ports": {"x": 5}, "environment.add_capabilities": ["X"], "environment.drop_capabilities": ["Y"],
    "environment.pod_spec": {"spec": {"nodeSelector": {"a": "b"}}}, "environment.registry_auth": {"username": "u"},
    "environment.proxy_ports.0.default_service_id": True,
    "resources.max_slots": 8, "resources.weight": 2.5, "resources.shm_size": 123, "resources.budget_gpu_hours": 0.5,
    "resources.slots": 2, "resources.devices": [{"host_path": "/dev/x"}], "resources.native_parallel": True,
    "bind_mounts.0.host_path": "/h", "bind_mounts.0.propagation": "shared",
    "checkpoint_storage.host_path": "/h", "checkpoint_storage.propagation": "shared",
    "checkpoint_storage.container_path": "/c", "checkpoint_storage.endpoint_url": "https://x",
    "log_policies.0.action": "exclude_node", "log_policies.0.actions": ["exclude_node"],
    "retention_policy.log_retention_days": 9, "profiling.end_after_batch": 9, "optimizations.mixed_precision": "O1",
    "integrations.webhooks": {"webhook_id": [1]}, "integrations.pachyderm": {"pachd": {"host": "h", "port": 1}},
    "integrations.webhooks.webhook_id": [1], "integrations.webhooks.webhook_name": ["n"],
    "integrations.pachyderm.pachd.port": 5, "integrations.pachyderm.proxy.port": 5,
    "slurm.slots_per_node": 2, "slurm.sbatch_args": ["-x"], "pbs.slots_per_node": 2, "pbs.pbsbatch_args": ["-x"],
}  # fmt: skip
"""Another than the default, by path; of keys that are not here, by the kind of the default."""


def another(path: str, default: Any) -> Any:
    if path in VALUES:
        return VALUES[path]
    if isinstance(default, bool):
        return not default
    return default + 1 if isinstance(default, int) else "x"


def with_value(document: dict[str, Any], path: Path, value: Any) -> dict[str, Any]:
    found = raw.as_object(raw.copy(document))
    level: Any = found
    for step in path[:-1]:
        level = level.setdefault(step, {}) if isinstance(step, str) else level[step]
    level[path[-1]] = value
    return found


def changed(section: Section, name: str, value: Any) -> dict[str, Any]:
    """The least in which the key can have the value."""
    found = with_value(keys_page.example(section), (*section.path, name), value)
    if name in ("workspace", "project"):
        found = {"workspace": "w", "project": "p", **found}
    if name in ("account_url", "credential"):
        found["checkpoint_storage"] = {"type": "azure", "container": "c", "account_url": "u", name: value}
    return found


def every_key() -> Iterator[Any]:
    for section in keys.SECTIONS:
        for name in section.keys:
            yield pytest.param(section, name, id=f"{section.title} {name}")


@pytest.mark.parametrize(("section", "name"), [*every_key()])
def test_every_key_is_honoured_or_refused_as_the_page_says(section: Section, name: str) -> None:
    path = (*section.path, name)
    dotted = ".".join(map(str, path))
    default = raw.dig(parse(layers(keys_page.example(section)), ANYTHING).document(), *path)
    value = default if name == "type" else another(dotted, default)
    layered = layers(changed(section, name, value))
    if section.keys[name].startswith(REFUSED):
        assert f"{dotted.replace('.0.', '[0].')}: " in refused(layered)
        return
    config = parse(layered, ANYTHING)
    if not section.keys[name].startswith(NO_EFFECT):
        assert is_within(value, raw.dig(config.document(), *path))
    elif section.title in ("The whole", "resources"):
        assert any(warning.startswith(f"{dotted}: ") for warning in config.warnings)


def is_within(given: Any, found: Any) -> bool:
    """All that was given is in what was found, which may have defaults beside it."""
    if isinstance(given, dict):
        return all(is_within(value, found[name]) for name, value in given.items())
    if isinstance(given, list) and isinstance(given[0], dict):
        return is_within(given[0], found[0])
    return bool(found == given)


@pytest.mark.parametrize("section", keys.SECTIONS, ids=lambda section: section.title)
def test_a_foreign_key_is_refused_anywhere_and_the_page_has_all_that_are_not(section: Section) -> None:
    told = refused(layers(changed(section, FOREIGN, 1)))
    dotted = ".".join(map(str, (*section.path, FOREIGN))).replace(".0.", "[0].")
    _, is_there, rest = told.partition(f"{dotted}: unknown key; known are ")
    assert is_there
    assert set(rest.split(", ")) == set(section.keys)


def test_the_page_is_what_the_code_says() -> None:
    assert PAGE.read_text() == keys_page.render(), (
        "stale: run `python -m muster.experiments.config.keys_page > docs/reference/experiment-config.md`"
    )


def test_every_key_of_the_document_is_on_the_page() -> None:
    for section in keys.SECTIONS:
        document = parse(layers(keys_page.example(section)), ANYTHING).document()
        assert set(raw.dig(document, *section.path)) <= set(section.keys)


# Laws

NAMES = st.text("abcxyz", min_size=1, max_size=3)
HYPERPARAMETERS = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-5, 5), st.floats(allow_nan=False, allow_infinity=False), NAMES,
        st.lists(st.integers(-5, 5), max_size=2), st.just({"type": "const", "val": {"a": 1}}), st.just({}),
        st.just({"type": "int", "minval": 1, "maxval": 4, "count": 2}),
        st.just({"type": "log", "minval": -4.0, "maxval": 1, "count": 3}),
        st.just({"type": "categorical", "vals": [1, "a", None]}),
    ),
    lambda inner: st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=5,
)  # fmt: skip
SEARCHERS = st.sampled_from(
    [
        {"name": "single", "metric": "loss", "max_length": 5},
        {"name": "random", "metric": "loss", "max_trials": 3, "max_length": {"epochs": 2}, "source_trial_id": 4},
        {"name": "grid", "metric": "loss", "max_concurrent_trials": 0},
        {"name": "async_halving", "metric": "a", "max_trials": 3, "num_rungs": 2, "max_time": 9, "divisor": 3},
        {"name": "adaptive_asha", "metric": "a", "max_trials": 3, "max_length": {"batches": 9}, "bracket_rungs": [2]},
        {"name": "adaptive_asha", "metric": "a", "max_trials": 3, "max_time": 9, "time_metric": "t", "stop_once": True},
    ]
)
ENVIRONMENTS = st.sampled_from(
    [None, {}, {"image": "i", "environment_variables": ["A=1", "B"]}, {"image": {"gpu": "g"}}]
)
POLICIES = st.sampled_from([None, [], [{"name": "CUDA OOM"}, {"pattern": "x", "action": {"type": "exclude_node"}}]])
TOP = sorted(set(keys.SECTIONS[0].keys) & set(VALUES))


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    chosen = draw(st.sets(st.sampled_from(TOP)))
    found = {**LEAST, **{name: VALUES[name] for name in chosen}, "searcher": draw(SEARCHERS)}
    if found.keys() & {"workspace", "project"}:
        found |= {"workspace": "w", "project": "p"}
    found["hyperparameters"] = draw(st.dictionaries(NAMES, HYPERPARAMETERS, max_size=3))
    return {**found, "environment": draw(ENVIRONMENTS), "log_policies": draw(POLICIES)}


@settings(max_examples=60, deadline=None)
@given(user=documents(), template=documents())
def test_a_configuration_read_again_is_the_same(user: dict[str, Any], template: dict[str, Any]) -> None:
    others: dict[str, Any] = {
        "cluster_storage": STORAGE,
        "container_defaults": ContainerDefaults(
            config={"environment": {"image": "c", "environment_variables": ["A=2"]}},
            log_policies=[{"name": "n", "pattern": "q"}],
        ),
    }
    config = parse(Layers("n", 3, user=user, template=template, **others), ANYTHING)
    document = raw.copy(config.document())
    assert parse(Layers("other", 9, user=document, **others), ANYTHING) == config
    again = parse(Layers("other", 9, user=document), ANYTHING)
    assert again == config
    assert again.document() == document


ANY_NAME = st.sampled_from(sorted({name for section in keys.SECTIONS for name in section.keys}))
ANY_VALUE = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.text(max_size=3)),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(ANY_NAME, inner, max_size=3)),
    max_leaves=8,
)


@settings(max_examples=50, deadline=None)
@given(user=st.dictionaries(st.sampled_from(sorted(keys.SECTIONS[0].keys)), ANY_VALUE, max_size=6))
def test_whatever_is_given_is_read_or_refused(user: dict[str, Any]) -> None:
    try:
        config = parse(layers(user), ANYTHING)
    except errors.BadRequest:
        return
    assert parse(Layers("", 0, user=raw.copy(config.document())), ANYTHING) == config
