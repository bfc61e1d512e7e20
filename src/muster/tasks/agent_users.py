"""Under whom a task runs on its node: whom its workspace names, else whom its user is linked with, else the agent."""

from muster.accounts.callers import UserId, WorkspaceId
from muster.accounts.services import AccountServices
from muster.accounts.users import AgentUserGroup
from muster.api.raw import Document


async def find(accounts: AccountServices, user: UserId, workspace: WorkspaceId) -> AgentUserGroup | None:
    """Raises NotFound."""
    linked = (await accounts.accounts.user(user)).agent
    return chosen((await accounts.workspaces.get(workspace)).agent, linked)


def chosen(workspace: AgentUserGroup | None, user: AgentUserGroup | None) -> AgentUserGroup | None:
    """User and group each for themselves: a workspace may share a group among users who stay who they are."""
    first, second = workspace or AgentUserGroup(), user or AgentUserGroup()
    who = first if first.uid is not None else second
    group = first if first.gid is not None else second
    if who.uid is None and group.gid is None:
        return None
    return AgentUserGroup(who.uid, group.gid, who.user, group.group)


def security(agent: AgentUserGroup | None) -> Document:
    """For a pod. Its volumes are the group's, so that whoever runs there can write to them."""
    if agent is None:
        return {}
    asked = {"runAsUser": agent.uid, "runAsGroup": agent.gid, "fsGroup": agent.gid}
    return {name: number for name, number in asked.items() if number is not None}


def document(agent: AgentUserGroup | None) -> Document:
    """As it is kept with a task."""
    if agent is None:
        return {}
    return {"uid": agent.uid, "gid": agent.gid, "user": agent.user, "group": agent.group}


def read(kept: Document) -> AgentUserGroup | None:
    return AgentUserGroup(kept["uid"], kept["gid"], kept["user"], kept["group"]) if kept else None
