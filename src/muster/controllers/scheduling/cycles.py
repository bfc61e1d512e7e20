"""The plugins of the binding cycle: Reserve, Permit, PreBind, Bind and PostBind, each called where it may fail; and
extenders, which may bind in our stead.

A plugin that refuses or raises is named in the outcome; nothing here raises: it harms its own pods only.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from muster.cluster.pods import PodInfo
from muster.controllers.scheduling.extended import Extenders
from muster.controllers.scheduling.volumes import NAME as VOLUME_BINDING
from muster.controllers.scheduling.volumes import VolumeBinder
from muster.placement.extending import EXTENDER
from muster.placement.framework import BindPlugin, Code, Status
from muster.placement.profiles import DEFAULT_BINDER, Profile, name_of
from muster.placement.queueing.entities import Queued
from muster.placement.scheduling import Assigned

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Binding:
    """A pod on its way to its node."""

    assigned: Assigned
    attempt: Queued
    is_reserved: bool = field(default=False)
    tries: int = 0
    """Binds that were refused for now."""
    is_off: bool = False
    """It is not to be bound any more, wherever it turns up."""
    is_unasked: bool = False
    """Extenders are yet to be asked about its node."""

    @property
    def pod(self) -> PodInfo:
        return self.assigned.pod

    @property
    def node(self) -> str:
        return self.assigned.node


@dataclass(frozen=True, slots=True)
class Trouble:
    """A plugin has refused, or raised."""

    plugin: str
    why: str

    @property
    def message(self) -> str:
        return f'running plugin "{self.plugin}": {self.why}'


@dataclass(frozen=True, slots=True)
class Bound:
    """A plugin says that it has bound the pod."""

    plugin: str


@dataclass(frozen=True, slots=True)
class Wait:
    """A Permit plugin lets the pod wait, for so long at most."""

    seconds: float


ProfileOf: TypeAlias = Callable[[PodInfo], Profile]


class Cycles:
    """`volumes`: binds claims to a cluster's own storage; None where that is done after pods are bound."""

    def __init__(
        self, profile_of: ProfileOf, extenders: Extenders | None = None, volumes: VolumeBinder | None = None
    ) -> None:
        self._profile_of = profile_of
        self._extenders = extenders
        self._volumes = volumes

    def needs_time(self, binding: Binding) -> bool:
        """Whether a plugin or an extender must be awaited before the pod is bound."""
        if self._extenders is not None and (binding.is_unasked or self._extenders.binds(binding.pod)):
            return True
        if self._volumes is not None and self._volumes.has_work(binding.pod):
            return True
        profile = self._profile_of(binding.pod)
        return bool(profile.pre_bind) or any(name_of(plugin) != DEFAULT_BINDER for plugin in profile.bind)

    def admit(self, binding: Binding) -> Trouble | Wait | None:
        """Reserve, once, and Permit. None: it may go on."""
        profile, pod, node = self._profile_of(binding.pod), binding.pod, binding.node
        calling: object = None
        waits: list[float] = []
        try:
            if not binding.is_reserved:
                binding.is_reserved = True
                for reserving in profile.reserve:
                    calling = reserving
                    status = reserving.reserve(pod, node)
                    if not status.is_success:
                        return _trouble(calling, status, "refused to reserve")
            for permitting in profile.permit:
                calling = permitting
                status, seconds = permitting.permit(pod, node)
                if status.code is Code.WAIT:
                    waits.append(seconds)
                elif not status.is_success:
                    return _trouble(calling, status, "refused to permit")
        except Exception as error:
            return _raised(calling, error)
        return Wait(min(waits)) if waits else None

    async def prepare(self, binding: Binding) -> Trouble | None:
        """PreBind. None: it may be bound."""
        if self._extenders is not None and binding.is_unasked:
            objection = await self._extenders.objection(binding.pod, binding.node)
            if objection is not None:
                return Trouble(EXTENDER, objection)
            binding.is_unasked = False
        why = await self._volumes.objection(binding.pod, binding.node) if self._volumes is not None else ""
        if why:
            return Trouble(VOLUME_BINDING, why)
        calling: object = None
        try:
            for preparing in self._profile_of(binding.pod).pre_bind:
                calling = preparing
                status = await preparing.pre_bind(binding.pod, binding.node)
                if not status.is_success:
                    return _trouble(calling, status, "refused before binding")
        except Exception as error:
            return _raised(calling, error)
        return None

    async def bind(self, binding: Binding) -> Trouble | Bound | None:
        """What a plugin or an extender says that it has done; None where binding is left to the platform."""
        if self._extenders is not None and self._extenders.binds(binding.pod):
            outcome = await self._extenders.bind(binding.pod, binding.node)
            if outcome is not None:
                return Trouble(EXTENDER, outcome) if outcome else Bound(EXTENDER)
        calling: object = None
        try:
            for plugin in self._profile_of(binding.pod).bind:
                calling = plugin
                if name_of(plugin) == DEFAULT_BINDER or not isinstance(plugin, BindPlugin):
                    return None
                status = await plugin.bind(binding.pod, binding.node)
                if status.code is Code.SKIP:
                    continue
                return Bound(name_of(plugin)) if status.is_success else _trouble(calling, status, "refused to bind")
        except Exception as error:
            return _raised(calling, error)
        return None

    def bound(self, binding: Binding) -> None:
        """PostBind: for information only."""
        for plugin in self._profile_of(binding.pod).post_bind:
            try:
                plugin.post_bind(binding.pod, binding.node)
            except Exception:
                _log.exception("plugin %s failed after %s was bound", name_of(plugin), binding.pod.key)

    def undo(self, binding: Binding) -> None:
        """Unreserve, in reverse: a plugin may rely on what those before it hold."""
        if not binding.is_reserved:
            return
        binding.is_reserved = False
        for plugin in reversed(self._profile_of(binding.pod).reserve):
            try:
                plugin.unreserve(binding.pod, binding.node)
            except Exception:
                _log.exception("plugin %s failed to give up %s", name_of(plugin), binding.pod.key)


def _trouble(plugin: object, status: Status, otherwise: str) -> Trouble:
    return Trouble(name_of(plugin), ", ".join(status.reasons) or otherwise)


def _raised(plugin: object, error: Exception) -> Trouble:
    return Trouble(name_of(plugin), f"{type(error).__name__}: {error}")
