"""Policies for the configuration of experiments and tasks."""

from collections.abc import Mapping, Sequence

from muster.accounts import policies as rules
from muster.accounts.callers import WorkspaceId
from muster.accounts.permissions import Permission
from muster.accounts.policies import Policy
from muster.accounts.policy_records import Policies
from muster.api.raw import JSON
from muster.server.determined import acting
from muster.server.determined.paging import Id
from muster.server.determined.routing import Call, Message, Nothing, Route, Rule, known, route


class PoliciesAsked(Message, frozen=True):
    """Without a workspace: those of the whole cluster."""

    workspace_id: Id = 0
    workload_type: str = ""


class PutPolicies(Message, frozen=True):
    """`config_policies`: YAML or JSON, as text."""

    workspace_id: Id = 0
    workload_type: str = ""
    config_policies: str = ""


class PoliciesReply(Message, frozen=True):
    config_policies: Mapping[str, JSON]


class _Policies:
    def __init__(self, policies: Policies) -> None:
        self._policies = policies

    async def get(self, call: Call, asked: PoliciesAsked) -> PoliciesReply:
        return _told(await self._policies.get(rules.workload(asked.workload_type), _place(asked.workspace_id)))

    async def put(self, call: Call, asked: PutPolicies) -> PoliciesReply:
        kind = rules.workload(asked.workload_type)
        policy = rules.read(asked.config_policies, kind)
        await self._policies.put(acting.by(call), kind, _place(asked.workspace_id), policy)
        return _told(policy)

    async def delete(self, call: Call, asked: PoliciesAsked) -> Nothing:
        kind = rules.workload(asked.workload_type)
        await self._policies.delete(acting.by(call), kind, _place(asked.workspace_id))
        return Nothing()


def _told(policy: Policy | None) -> PoliciesReply:
    return PoliciesReply(config_policies={} if policy is None else policy.document())


def _place(workspace: int) -> WorkspaceId | None:
    return WorkspaceId(workspace) if workspace else None


async def _of(call: Call, asked: PoliciesAsked | PutPolicies) -> WorkspaceId:
    return WorkspaceId(asked.workspace_id)


def routes(policies: Policies) -> Sequence[Route]:
    handlers = _Policies(policies)
    everywhere = "/api/v1/config-policies/global/{workloadType}"
    here = "/api/v1/config-policies/workspaces/{workspaceId}/{workloadType}"
    admin = Permission.ADMINISTRATE_CLUSTER
    view: Rule[PoliciesAsked] = Rule(Permission.VIEW_WORKSPACE, _of)
    edit: Rule[PutPolicies] = Rule(Permission.EDIT_WORKSPACE, _of)
    delete: Rule[PoliciesAsked] = Rule(Permission.EDIT_WORKSPACE, _of)
    return (
        # Whoever submits anything is bound by them, and may know them.
        route("GET", everywhere, PoliciesAsked, PoliciesReply, known(), handlers.get),
        route("PUT", everywhere, PutPolicies, PoliciesReply, Rule(admin), handlers.put),
        route("DELETE", everywhere, PoliciesAsked, Nothing, Rule(admin), handlers.delete),
        route("GET", here, PoliciesAsked, PoliciesReply, view, handlers.get),
        route("PUT", here, PutPolicies, PoliciesReply, edit, handlers.put),
        route("DELETE", here, PoliciesAsked, Nothing, delete, handlers.delete),
    )
