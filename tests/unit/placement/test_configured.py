"""Engines made from a configuration: whose pods are whose, and what else of it counts."""

from typing import Any

import pytest

from muster.api import core, raw
from muster.api.objects import Object
from muster.placement.configured import configured_engine
from muster.placement.engine import Engine
from muster.placement.queueing.entities import Place
from muster.placement.scheduling import Decision


def engine_of(**fields: Any) -> Engine:
    document = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration", **fields}
    found = configured_engine(document, lambda _: None)
    assert isinstance(found, tuple), found
    return found[0]


def node(name: str) -> Object:
    status = {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "10"}}
    return Object(core.NODE, raw.encode({"metadata": {"name": name, "uid": name}, "status": status}))


def pod(name: str, scheduler: str, **spec: Any) -> Object:
    document = {
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"schedulerName": scheduler, "containers": [{"name": "main", "image": "host"}], **spec},
    }
    return Object(core.POD, raw.encode(document))


@pytest.mark.parametrize("scheduler", ["packed", "default-scheduler", "volcano"])
def test_every_pod_has_a_profile_though_none_is_the_default_one(scheduler: str) -> None:
    engine = engine_of(profiles=[{"schedulerName": "packed"}])
    engine.take(None, node("n"), 0.0)
    engine.take(None, pod("p", scheduler), 0.0)
    outcome = engine.step(0.0)
    assert isinstance(outcome, Decision)
    assert [one.node for one in outcome.assigned] == ["n"]


@pytest.mark.parametrize("scheduler", ["packed", "volcano"])
def test_gates_hold_pods_of_unknown_schedulers_too(scheduler: str) -> None:
    engine = engine_of(profiles=[{"schedulerName": "packed"}])
    engine.take(None, node("n"), 0.0)
    engine.take(None, pod("p", scheduler, schedulingGates=[{"name": "later"}]), 0.0)
    assert engine.step(0.0) is None
    standing = engine.queue.standing("p")
    assert standing is not None
    assert standing.place is Place.GATED


@pytest.mark.parametrize("scheduler", ["default-scheduler", "volcano"])
def test_only_what_helps_wakes_pods_of_unknown_schedulers(scheduler: str) -> None:
    """Which plugins listen to what is asked of the profile that judged the pod."""
    engine = engine_of()
    engine.take(None, node("n"), 0.0)
    selects = {"nodeSelector": {"disk": "ssd"}}
    engine.take(None, pod("p", scheduler, **selects), 0.0)
    engine.step(0.0)
    engine.take(None, pod("other", scheduler, nodeName="n"), 100.0)
    assert engine.step(100.0) is None
    labelled = raw.encode(
        {
            "metadata": {"name": "n", "uid": "n", "labels": {"disk": "ssd"}},
            "status": {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "10"}},
        }
    )
    engine.take(node("n"), Object(core.NODE, labelled), 100.0)
    assert isinstance(engine.step(100.0), Decision)


def test_backoff_is_as_configured() -> None:
    engine = engine_of(podInitialBackoffSeconds=7, podMaxBackoffSeconds=9)
    engine.take(None, pod("p", "default-scheduler"), 0.0)
    attempt = engine.queue.pop(0.0)
    assert attempt is not None
    engine.queue.failed(attempt, 0.0)
    assert engine.queue.pop(6.9) is None
    assert engine.queue.pop(8.1) is not None


def test_mistakes_are_told() -> None:
    found = configured_engine({"kind": "KubeSchedulerConfiguration"}, lambda _: None)
    assert isinstance(found, list)
    assert [error.path for error in found] == ["apiVersion"]
