"""What users of the platform may do in the Kubernetes API.

Who administrates the cluster may do everything. Others see what is there to be shared (nodes, queues, priorities), and
work in the namespaces that are bound to their workspaces. Workspaces without a namespace share one, in which only
administrators may meddle: there everybody's tasks are, with the tokens that they were given.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeAlias

from muster.accounts.authorizing import Authorizer, Rights
from muster.accounts.callers import Caller, WorkspaceId
from muster.accounts.permissions import Permission
from muster.server import access
from muster.server.access import Identity, Rule, sent_token

Lookup: TypeAlias = Callable[[str], Awaitable[Caller | None]]
Namespaces: TypeAlias = Callable[[], Awaitable[Mapping[WorkspaceId, str]]]
"""Of the workspaces that are bound to one."""

_READ: Final = ("get", "list", "watch")
_ALL: Final = (*_READ, "create", "update", "patch", "delete", "deletecollection")
_KUEUE: Final = "kueue.x-k8s.io"
_SHARED: Final = (
    Rule(_READ, ("",), ("nodes", "namespaces")),
    Rule(_READ, ("scheduling.k8s.io",), ("priorityclasses",)),
    Rule(
        _READ,
        (_KUEUE,),
        ("clusterqueues", "localqueues", "cohorts", "resourceflavors", "topologies", "workloadpriorityclasses"),
    ),
    Rule(_READ, ("scheduling.volcano.sh",), ("queues",)),
)
"""Nothing of anybody's jobs."""
_JOBS: Final = (
    (("batch",), ("jobs", "cronjobs")),
    (("batch.volcano.sh",), ("jobs", "cronjobs")),
    (("flow.volcano.sh",), ("jobflows", "jobtemplates")),
    (("kubeflow.org",), ("pytorchjobs",)),
)


class Identities:
    def __init__(self, lookup: Lookup, authorizer: Authorizer, namespaces: Namespaces) -> None:
        self._lookup = lookup
        self._authorizer = authorizer
        self._namespaces = namespaces

    async def identify(self, headers: Mapping[str, str]) -> Identity | None:
        """None for nobody we know, and for tasks: what they may is said by other means."""
        token = sent_token(headers.get("authorization", "")).decode("latin-1")
        caller = await self._lookup(token) if token else None
        if caller is None or caller.allocation:
            return None
        if await self._authorizer.allows(caller, Permission.ADMINISTRATE_CLUSTER):
            return access.administrator(caller.username)
        rights = await self._authorizer.rights(caller.user)
        return Identity(
            caller.username,
            None,
            ("muster:users", "system:authenticated"),
            rules=rules(rights, await self._namespaces() if rights.workspaces or rights.cluster else {}),
        )


def rules(rights: Rights, namespaces: Mapping[WorkspaceId, str]) -> tuple[Rule, ...]:
    found = list(_SHARED) if Permission.VIEW_CLUSTER in rights.cluster else []
    for workspace, namespace in namespaces.items():
        if rights.allow(Permission.EDIT_TASKS, workspace) and rights.allow(Permission.CREATE_TASKS, workspace):
            found += _editing(namespace)
        elif rights.allow(Permission.VIEW_TASKS, workspace):
            found += _viewing(namespace)
    return tuple(found)


def _viewing(namespace: str) -> list[Rule]:
    """Not the pods themselves, nor allocations: in what they are started with are tokens of those who run them."""
    return [
        *(Rule(_READ, groups, resources, namespace) for groups, resources in _JOBS),
        Rule(_READ, (_KUEUE,), ("workloads", "localqueues"), namespace),
        Rule(_READ, ("scheduling.volcano.sh",), ("podgroups",), namespace),
        Rule(_READ, ("", "events.k8s.io"), ("events",), namespace),
        Rule(("get",), ("",), ("pods/log",), namespace),
    ]


def _editing(namespace: str) -> list[Rule]:
    """Who may change the tasks of others can do in them what they can do here."""
    return [
        *_viewing(namespace),
        *(Rule(_ALL, groups, resources, namespace) for groups, resources in _JOBS),
        Rule(_ALL, ("",), ("pods", "configmaps", "services"), namespace),
        Rule(("create",), ("",), ("pods/eviction",), namespace),
        Rule(_ALL, ("scheduling.volcano.sh",), ("podgroups",), namespace),
        Rule(_ALL, ("bus.volcano.sh",), ("commands",), namespace),
    ]
