"""Agents and their slots: the nodes of the cluster, as Determined's clients know them."""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from muster.accounts.authorizing import Authorizer
from muster.accounts.callers import Caller
from muster.accounts.permissions import Permission
from muster.server.determined import acting, paging
from muster.server.determined.ordering import OrderBy
from muster.server.determined.paging import Paged, Pagination
from muster.server.determined.routing import Call, Message, Route, Rule, known, route
from muster.tasks import agent_views
from muster.tasks.agent_control import AgentControl, slot_of
from muster.tasks.agent_views import AgentView, ContainerView, SlotView
from muster.tasks.cluster_views import ClusterViews

_HIDDEN: Final = "********"


class DeviceType(StrEnum):
    UNSPECIFIED = "TYPE_UNSPECIFIED"
    CPU = "TYPE_CPU"
    CUDA = "TYPE_CUDA"
    ROCM = "TYPE_ROCM"


class ContainerState(StrEnum):
    UNSPECIFIED = "STATE_UNSPECIFIED"
    ASSIGNED = "STATE_ASSIGNED"
    PULLING = "STATE_PULLING"
    STARTING = "STATE_STARTING"
    RUNNING = "STATE_RUNNING"
    TERMINATED = "STATE_TERMINATED"


class SortBy(StrEnum):
    UNSPECIFIED = "SORT_BY_UNSPECIFIED"
    ID = "SORT_BY_ID"
    TIME = "SORT_BY_TIME"


class Device(Message, frozen=True):
    id: int
    brand: str
    uuid: str
    type: DeviceType


class Container(Message, frozen=True):
    """`permission_denied`: it is there, and whose it is the caller may not know."""

    id: str
    parent: str
    state: ContainerState
    devices: Sequence[Device]
    permission_denied: bool


class Slot(Message, frozen=True):
    id: str
    device: Device
    enabled: bool
    draining: bool
    container: Container | None


class DeviceStats(Message, frozen=True):
    states: Mapping[str, int]
    draining: int
    total: int
    disabled: int


class SlotStats(Message, frozen=True):
    type_stats: Mapping[str, DeviceStats]
    brand_stats: Mapping[str, DeviceStats]


class Agent(Message, frozen=True):
    id: str
    registered_time: str | None
    slots: Mapping[str, Slot]
    containers: Mapping[str, Container]
    addresses: Sequence[str]
    enabled: bool
    draining: bool
    version: str
    resource_pools: Sequence[str]
    slot_stats: SlotStats


class GetAgents(Paged, frozen=True):
    sort_by: SortBy = SortBy.UNSPECIFIED
    order_by: OrderBy = OrderBy.UNSPECIFIED
    exclude_slots: bool = False
    exclude_containers: bool = False


class GetAgentsReply(Message, frozen=True):
    agents: Sequence[Agent]
    pagination: Pagination


class AgentAsked(Message, frozen=True):
    agent_id: str = ""


class AgentReply(Message, frozen=True):
    agent: Agent


class DisableAgent(Message, frozen=True):
    agent_id: str = ""
    drain: bool = False


class SlotAsked(Message, frozen=True):
    agent_id: str = ""
    slot_id: str = ""


class DisableSlot(Message, frozen=True):
    agent_id: str = ""
    slot_id: str = ""
    drain: bool = False


class SlotReply(Message, frozen=True):
    slot: Slot


class SlotsReply(Message, frozen=True):
    slots: Sequence[Slot]


class _Sight:
    """What one caller may see: everything but whose containers those are of workspaces that are not theirs."""

    def __init__(self, tasks: frozenset[str] | None, *, sees_others: bool, sees_addresses: bool) -> None:
        """`tasks`: that may be seen; None for all."""
        self._tasks = tasks
        self._sees_others = sees_others
        self._sees_addresses = sees_addresses

    def agent(self, view: AgentView) -> Agent:
        slots = [self.slot(view, slot) for slot in view.slots]
        containers = [self._container(view, container) for container in view.containers]
        return Agent(
            id=view.id,
            registered_time=view.registered,
            slots={slot.id: slot for slot in slots},
            containers={f"{container.id}#{place}" if container.permission_denied else container.id: container
                        for place, container in enumerate(containers)},
            addresses=view.addresses if self._sees_addresses else (),
            enabled=view.is_enabled,
            draining=view.is_draining,
            version=view.version,
            resource_pools=view.pools,
            slot_stats=SlotStats(
                type_stats=_stats((slot.device.type.value, slot) for slot in slots),
                brand_stats=_stats((slot.device.brand, slot) for slot in slots),
            ),
        )  # fmt: skip

    def slot(self, agent: AgentView, view: SlotView) -> Slot:
        return Slot(
            id=str(view.device.id),
            device=_device(view.device),
            enabled=view.is_enabled,
            draining=view.is_draining,
            container=None if view.container is None else self._container(agent, view.container),
        )

    def _container(self, agent: AgentView, view: ContainerView) -> Container:
        is_seen = (self._tasks is None or view.task in self._tasks) if view.task else self._sees_others
        devices = {slot.device.id: slot.device for slot in agent.slots}
        return Container(
            id=view.id if is_seen else _HIDDEN,
            parent=view.allocation if is_seen else "",
            state=ContainerState[view.state.value],
            devices=[_device(devices[number]) for number in view.slots],
            permission_denied=not is_seen,
        )


class _Agents:
    def __init__(self, views: ClusterViews, control: AgentControl, authorizer: Authorizer) -> None:
        self._views = views
        self._control = control
        self._authorizer = authorizer

    async def list(self, call: Call, asked: GetAgents) -> GetAgentsReply:
        found = await self._views.agents()
        if asked.sort_by is SortBy.TIME:
            found.sort(key=lambda agent: agent.registered or "")
        if asked.order_by is OrderBy.DESC:
            found.reverse()
        sight = await self._sight(call.caller)
        page = paging.cut(found, asked)
        told = [_without(sight.agent(agent), asked) for agent in page.items]
        return GetAgentsReply(agents=told, pagination=paging.told(page, asked))

    async def get(self, call: Call, asked: AgentAsked) -> AgentReply:
        return await self._agent(call, asked.agent_id)

    async def enable(self, call: Call, asked: AgentAsked) -> AgentReply:
        await self._control.enable(acting.by(call), asked.agent_id)
        return await self._agent(call, asked.agent_id)

    async def disable(self, call: Call, asked: DisableAgent) -> AgentReply:
        await self._control.disable(acting.by(call), asked.agent_id, drain=asked.drain)
        return await self._agent(call, asked.agent_id)

    async def slots(self, call: Call, asked: AgentAsked) -> SlotsReply:
        agent, sight = await self._views.agent(asked.agent_id), await self._sight(call.caller)
        return SlotsReply(slots=[sight.slot(agent, slot) for slot in agent.slots])

    async def slot(self, call: Call, asked: SlotAsked) -> SlotReply:
        return await self._slot(call, asked.agent_id, asked.slot_id)

    async def enable_slot(self, call: Call, asked: SlotAsked) -> SlotReply:
        await self._control.enable_slot(acting.by(call), asked.agent_id, asked.slot_id)
        return await self._slot(call, asked.agent_id, asked.slot_id)

    async def disable_slot(self, call: Call, asked: DisableSlot) -> SlotReply:
        await self._control.disable_slot(acting.by(call), asked.agent_id, asked.slot_id, drain=asked.drain)
        return await self._slot(call, asked.agent_id, asked.slot_id)

    async def _agent(self, call: Call, name: str) -> AgentReply:
        sight = await self._sight(call.caller)
        return AgentReply(agent=sight.agent(await self._views.agent(name)))

    async def _slot(self, call: Call, name: str, slot: str) -> SlotReply:
        agent, sight = await self._views.agent(name), await self._sight(call.caller)
        return SlotReply(slot=sight.slot(agent, slot_of(agent, slot)))

    async def _sight(self, caller: Caller) -> _Sight:
        visible = await self._authorizer.workspaces(caller, Permission.VIEW_TASKS)
        sees_cluster = await self._authorizer.allows(caller, Permission.VIEW_CLUSTER)
        if visible is None:
            return _Sight(None, sees_others=sees_cluster, sees_addresses=sees_cluster)
        holders = await self._views.holders()
        tasks = frozenset(task for task, holder in holders.items() if holder.workspace in visible)
        return _Sight(tasks, sees_others=sees_cluster, sees_addresses=sees_cluster)


def _without(agent: Agent, asked: GetAgents) -> Agent:
    """How many there are, and what containers have, is told all the same."""
    slots = {} if asked.exclude_slots else agent.slots
    containers = {} if asked.exclude_containers else agent.containers
    return msgspec.structs.replace(agent, slots=slots, containers=containers)


def _device(device: agent_views.Device) -> Device:
    return Device(id=device.id, brand=device.brand, uuid=device.uuid, type=DeviceType[device.type.value])


def _stats(slots: Iterable[tuple[str, Slot]]) -> Mapping[str, DeviceStats]:
    by_name: dict[str, list[Slot]] = {}
    for name, slot in slots:
        by_name.setdefault(name, []).append(slot)
    return {
        name: DeviceStats(
            states=_states(found),
            draining=sum(slot.draining for slot in found),
            total=len(found),
            disabled=sum(not slot.enabled for slot in found),
        )
        for name, found in by_name.items()
    }


def _states(slots: Iterable[Slot]) -> Mapping[str, int]:
    found: dict[str, int] = {}
    for slot in slots:
        if slot.container is not None:
            state = slot.container.state.value
            found[state] = found.get(state, 0) + 1
    return found


def routes(views: ClusterViews, control: AgentControl, authorizer: Authorizer) -> Sequence[Route]:
    handlers = _Agents(views, control, authorizer)
    each = "/api/v1/agents/{agentId}"
    slots, slot = f"{each}/slots", f"{each}/slots/{{slotId}}"
    admin = Permission.ADMINISTRATE_CLUSTER
    agent_rule: Rule[AgentAsked] = Rule(admin)
    slot_rule: Rule[SlotAsked] = Rule(admin)
    disable_agent: Rule[DisableAgent] = Rule(admin)
    disable_slot: Rule[DisableSlot] = Rule(admin)
    return (
        route("GET", "/api/v1/agents", GetAgents, GetAgentsReply, known(), handlers.list),
        route("GET", each, AgentAsked, AgentReply, known(), handlers.get),
        route("POST", f"{each}/enable", AgentAsked, AgentReply, agent_rule, handlers.enable),
        route("POST", f"{each}/disable", DisableAgent, AgentReply, disable_agent, handlers.disable),
        route("GET", slots, AgentAsked, SlotsReply, known(), handlers.slots),
        route("GET", slot, SlotAsked, SlotReply, known(), handlers.slot),
        route("POST", f"{slot}/enable", SlotAsked, SlotReply, slot_rule, handlers.enable_slot),
        route("POST", f"{slot}/disable", DisableSlot, SlotReply, disable_slot, handlers.disable_slot),
    )
