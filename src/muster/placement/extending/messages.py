"""Whom to ask, what is said and what comes back; and objects as extenders are shown them."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeAlias

import msgspec

from muster.api.raw import JSON, Document
from muster.cluster.pods import PodInfo
from muster.cluster.state import ClusterState

EXTENDER = "Extender"
"""Stands for all extenders among the names of those who rejected a pod. It declares no events: any may help."""


class Verb(StrEnum):
    FILTER = "filter"
    PRIORITIZE = "prioritize"
    PREEMPT = "preempt"
    BIND = "bind"


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """As in Kubernetes; data goes before files."""

    insecure: bool = False
    server_name: str = ""
    cert_file: str = ""
    key_file: str = ""
    ca_file: str = ""
    cert_data: bytes = b""
    key_data: bytes = b""
    ca_data: bytes = b""


@dataclass(frozen=True, slots=True)
class ManagedResource:
    name: str
    is_ignored_by_scheduler: bool = False


@dataclass(frozen=True, slots=True)
class ExtenderConfig:
    url_prefix: str
    verbs: Mapping[Verb, str]
    """What each is called in the extender's URLs. It is not asked for what is not here."""
    weight: int = 1
    """What its priorities are multiplied by."""
    enable_https: bool = False
    tls: TlsConfig | None = None
    timeout_seconds: float = 5.0
    is_node_cache_capable: bool = False
    """It knows the nodes: names are enough."""
    managed_resources: tuple[ManagedResource, ...] = ()
    is_ignorable: bool = False
    path: str = ""
    """Where in the configuration it stands."""

    @property
    def name(self) -> str:
        return self.url_prefix

    def url(self, verb: Verb) -> str:
        return f"{self.url_prefix.rstrip('/')}/{self.verbs[verb]}"

    def is_interested(self, pod: PodInfo) -> bool:
        """Whether the pod asks for anything that the extender manages; all pods, where it names nothing."""
        managed = {resource.name for resource in self.managed_resources}
        if not managed:
            return True
        for container in (*pod.spec.containers, *pod.spec.init_containers):
            resources = container.resources
            if resources and not managed.isdisjoint({*(resources.requests or ()), *(resources.limits or ())}):
                return True
        return False


@dataclass(frozen=True, slots=True, eq=False)
class Ask:
    extender: ExtenderConfig
    verb: Verb
    document: Document


@dataclass(frozen=True, slots=True)
class Answered:
    document: JSON


@dataclass(frozen=True, slots=True)
class Failed:
    """No answer, or none that makes sense."""

    reason: str


Reply: TypeAlias = Answered | Failed


class Documents(Protocol):
    """Objects as extenders are shown them."""

    def pod(self, pod: PodInfo) -> Document: ...

    def node(self, slot: int) -> Document: ...


class FromColumns:
    """What the columns know of objects: enough for most extenders, but without fields that no view has. A shell that
    keeps whole documents shows those instead."""

    def __init__(self, cluster: ClusterState) -> None:
        self._cluster = cluster

    def pod(self, pod: PodInfo) -> Document:
        spec = msgspec.to_builtins(pod.spec)
        node = self._cluster.node_of(pod.uid)
        if node is not None:
            spec["nodeName"] = node
        metadata = {"name": pod.key.name, "namespace": pod.key.namespace, "uid": pod.uid, "labels": dict(pod.labels)}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {}}

    def node(self, slot: int) -> Document:
        node = self._cluster.nodes[slot]
        assert node is not None, "a slot that exists has a node"
        return {"apiVersion": "v1", "kind": "Node", **msgspec.to_builtins(node)}


_: Documents = FromColumns(ClusterState())
