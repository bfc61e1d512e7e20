"""Takes nodes and single slots out of use, and back. All of it is on the Node, where everybody can see it.

A node that is disabled takes nothing new; unless it is drained, what runs there is ended too, by a taint: also what was
on its way. A disabled slot is not counted any more as something to give, and the node's agent gives it to nobody.
"""

from collections.abc import Callable
from typing import Final

from muster.accounts.audit import By, Deed, note
from muster.api import core, errors
from muster.api.muster.node_slots import (
    DISABLED_SLOTS,
    DISABLED_TAINT,
    DRAINING,
    format_disabled,
    left,
    parse_disabled,
)
from muster.api.objects import Key, Object
from muster.api.raw import Document
from muster.records import Database
from muster.runtime.clock import Clock
from muster.store.protocol import Delete, Options, Patch, PatchType, Refused, Revision, Store, Subresource, write_one
from muster.tasks.agent_views import AgentView, SlotView
from muster.tasks.cluster_views import ClusterViews, no_agent

_OPTIONS: Final = Options(manager="muster-agents")
_OURS: Final = "muster-"
"""How the version of our own agent begins."""
_ATTEMPTS: Final = 5


class AgentControl:
    def __init__(self, store: Store, database: Database, clock: Clock, views: ClusterViews) -> None:
        self._store = store
        self._database = database
        self._clock = clock
        self._views = views

    async def enable(self, by: By, name: str) -> None:
        """Raises NotFound."""
        await self._change(name, _enabled)
        await self._note(by, "agent.enable", name)

    async def disable(self, by: By, name: str, *, drain: bool) -> None:
        """`drain`: what runs there may end by itself. Raises NotFound."""
        await self._change(name, _drained if drain else _emptied)
        await self._note(by, "agent.disable", name, "drain" if drain else "")

    async def enable_slot(self, by: By, name: str, slot: str) -> None:
        """Raises NotFound, BadRequest."""
        number = _number(await self._slot(name, slot))
        await self._set_slots(name, lambda disabled: disabled.pop(number, None))
        await self._note(by, "slot.enable", f"{name}/{slot}")

    async def disable_slot(self, by: By, name: str, slot: str, *, drain: bool) -> None:
        """`drain`: what runs there may end by itself; else it is ended. Raises NotFound, BadRequest."""
        found = await self._slot(name, slot)
        number = _number(found)
        await self._set_slots(name, lambda disabled: disabled.update({number: drain}))
        if found.container is not None and not drain:
            pod = found.container.id.rpartition("/")[2]
            await self._end(Key(found.container.namespace, pod))
        await self._note(by, "slot.disable", f"{name}/{slot}", "drain" if drain else "")

    async def _slot(self, name: str, slot: str) -> SlotView:
        """Raises NotFound; BadRequest where the node is not one whose slots we can keep from being used."""
        agent = await self._views.agent(name)
        if not agent.version.startswith(_OURS):
            raise errors.BadRequest(f"slots of {name} are given out by its kubelet; disable the whole agent instead")
        return slot_of(agent, slot)

    async def _set_slots(self, name: str, change: Callable[[dict[int, bool]], object]) -> None:
        """The node's agent says what is left of the node when it next looks; until then nobody should count on what is
        not to be used. Never more is said to be there than can be given out."""

        def disabled(node: core.Node) -> dict[int, bool]:
            found = parse_disabled((node.metadata.annotations or {}).get(DISABLED_SLOTS))
            change(found)
            return found

        def patch(node: core.Node) -> Document:
            return {"metadata": {"annotations": {DISABLED_SLOTS: format_disabled(disabled(node)) or None}}}

        def status(node: core.Node) -> Document:
            return {"status": {"allocatable": left(node.status.capacity or {}, disabled(node))}}

        found = (await self._node(name)).read(core.Node)
        was = parse_disabled((found.metadata.annotations or {}).get(DISABLED_SLOTS))
        if len(disabled(found)) > len(was):
            await self._change(name, status, subresource="status")
            await self._change(name, patch)
        else:
            await self._change(name, patch)
            await self._change(name, status, subresource="status")

    async def _end(self, pod: Key) -> None:
        (result,) = await self._store.write([Delete(core.POD, pod, options=_OPTIONS)])
        if isinstance(result, Refused) and not isinstance(result.error, errors.NotFound):
            raise result.error

    async def _change(
        self, name: str, patch: Callable[[core.Node], Document], *, subresource: Subresource = ""
    ) -> None:
        """Raises NotFound, Conflict."""
        for attempt in range(_ATTEMPTS):
            node = await self._node(name)
            body, based_on = patch(node.read(core.Node)), Revision(node.revision)
            try:
                written = await write_one(
                    self._store, Patch(core.NODE, node.key, body, PatchType.MERGE, subresource, based_on, _OPTIONS)
                )
            except errors.Conflict:
                if attempt == _ATTEMPTS - 1:
                    raise
            else:
                await self._views.watch.shows(written)
                return

    async def _node(self, name: str) -> Object:
        """Raises NotFound."""
        try:
            return await self._store.get(core.NODE, Key("", name))
        except errors.NotFound as error:
            raise no_agent(name) from error

    async def _note(self, by: By, action: str, target: str, detail: str = "") -> None:
        deed = Deed(action, target, detail)
        await self._database.write(lambda connection: note(connection, self._clock.now(), by, deed))


def slot_of(agent: AgentView, slot: str) -> SlotView:
    """Raises NotFound."""
    found = next((each for each in agent.slots if str(each.device.id) == slot), None)
    if found is None:
        raise errors.NotFound(f"agent {agent.id!r} has no slot {slot[:20]!r}; it has {len(agent.slots)}, from 0")
    return found


def _number(slot: SlotView) -> int:
    return slot.device.id


def _enabled(node: core.Node) -> Document:
    return _patch(node, is_unschedulable=False, is_tainted=False, is_draining=False)


def _drained(node: core.Node) -> Document:
    return _patch(node, is_unschedulable=True, is_tainted=False, is_draining=True)


def _emptied(node: core.Node) -> Document:
    return _patch(node, is_unschedulable=True, is_tainted=True, is_draining=False)


def _patch(node: core.Node, *, is_unschedulable: bool, is_tainted: bool, is_draining: bool) -> Document:
    others: list[Document] = [
        {key: value for key, value in _taint(taint).items() if value is not None}
        for taint in node.spec.taints
        if taint.key != DISABLED_TAINT
    ]
    taints = [*others, {"key": DISABLED_TAINT, "effect": "NoExecute"}] if is_tainted else others
    return {
        "metadata": {"annotations": {DRAINING: "true" if is_draining else None}},
        "spec": {"unschedulable": is_unschedulable or None, "taints": taints or None},
    }


def _taint(taint: core.Taint) -> Document:
    return {"key": taint.key, "effect": taint.effect, "value": taint.value, "timeAdded": taint.time_added}
