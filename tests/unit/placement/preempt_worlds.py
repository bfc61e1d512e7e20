"""Small clusters for tests of preemption."""

from collections.abc import Mapping
from typing import Any

import msgspec

from muster.api import core
from muster.cluster.groups import PodGroups
from muster.cluster.pods import GROUP_ANNOTATION, PodInfo
from muster.cluster.state import ClusterState
from muster.placement.judging import Judgement
from muster.placement.plugins.inter_pod_affinity import InterPodAffinity
from muster.placement.plugins.node_unschedulable import NodeUnschedulable
from muster.placement.plugins.resources_fit import NodeResourcesFit
from muster.placement.plugins.taint_toleration import TaintToleration
from muster.placement.profiles import Profile

PROFILE = Profile.of([NodeUnschedulable(), TaintToleration(), NodeResourcesFit(), InterPodAffinity()])


def node(
    name: str,
    *,
    cpu: int = 4,
    memory: int = 64,
    pods: int = 10,
    cordoned: bool = False,
    labels: Mapping[str, str] | None = None,
) -> core.Node:
    return msgspec.convert(
        {
            "metadata": {"name": name, "labels": dict(labels or {})},
            "spec": {"unschedulable": cordoned},
            "status": {"allocatable": {"cpu": str(cpu), "memory": str(memory), "pods": str(pods)}},
        },
        core.Node,
    )


def pod(
    name: str,
    *,
    cpu: int = 1,
    memory: int = 0,
    priority: int = 0,
    started: int | None = None,
    labels: Mapping[str, str] | None = None,
    group: str = "",
    **spec: Any,
) -> core.Pod:
    requests = {"cpu": str(cpu)} | ({"memory": str(memory)} if memory else {})
    start = {} if started is None else {"startTime": f"2026-01-01T00:00:{started:02}Z"}
    return msgspec.convert(
        {
            "metadata": {
                "name": name,
                "namespace": "here",
                "uid": f"uid of {name}",
                "labels": dict(labels or {}),
                "annotations": {GROUP_ANNOTATION: group} if group else {},
            },
            "spec": {
                "priority": priority,
                "containers": [{"name": "c", "resources": {"requests": requests}}],
                **spec,
            },
            "status": start,
        },
        core.Pod,
    )


class World:
    """A cluster, its groups, and judgements by the profile above."""

    def __init__(self, *nodes: core.Node) -> None:
        self.cluster = ClusterState.of(nodes)
        self.groups = PodGroups()

    def info(self, view: core.Pod) -> PodInfo:
        return self.cluster.shapes.info(view)

    def put(self, where: str, view: core.Pod) -> PodInfo:
        info = self.info(view)
        self.cluster.assign(info, where)
        self.groups.bound(info, where)
        return info

    def remove(self, info: PodInfo) -> None:
        self.cluster.release(info.uid)
        self.groups.remove(info.uid)

    def judge(self, info: PodInfo) -> Judgement:
        return Judgement(PROFILE, info, self.cluster)


def names(victims: tuple[PodInfo, ...]) -> list[str]:
    return [victim.key.name for victim in victims]
