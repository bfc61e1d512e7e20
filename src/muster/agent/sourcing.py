"""What pods refer to, read for them: ConfigMaps and Secrets, and tokens of their service accounts."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from muster.agent import environment, volumes
from muster.agent.environment import ConfigMissing, Sources
from muster.api import core
from muster.api.kinds import Kind
from muster.api.meta import Instant
from muster.api.objects import Key, Object
from muster.runtime.clock import Clock

_WORN: Final = 0.8
"""The part of its life after which a token is replaced."""
_OLDEST_SECONDS: Final = 86_400.0
"""A token is replaced after that in any case, however long it would be good."""


@dataclass(frozen=True, slots=True)
class Token:
    text: str
    expires_at: Instant


class Issuer(Protocol):
    """Where nodes get tokens for the pods that they run."""

    async def issue(self, pod: core.Pod, wanted: core.ServiceAccountTokenProjection) -> Token:
        """For the pod's service account, good while the pod is there. Raises ApiError."""
        ...


@dataclass(frozen=True, slots=True)
class _Held:
    token: Token
    renew_at: Instant


class SourceReader:
    """`get` reads an object, or None where it is not there. `issuer`: None where pods have no accounts."""

    def __init__(
        self, get: Callable[[Kind, Key], Awaitable[Object | None]], clock: Clock, issuer: Issuer | None
    ) -> None:
        self._get = get
        self._clock = clock
        self._issuer = issuer
        self._held: dict[str, dict[core.ServiceAccountTokenProjection, _Held]] = {}
        """Tokens by the pod's uid."""

    async def fetch(self, pod: core.Pod) -> Sources:
        """What the pod refers to, as far as it exists. Raises ApiError, and ConfigMissing for a token where there are
        none."""
        from_env, from_volumes = environment.references(pod.spec), volumes.references(pod.spec)
        namespace = pod.metadata.namespace
        maps: dict[str, Mapping[str, bytes]] = {}
        secrets: dict[str, Mapping[str, bytes]] = {}
        for name in from_env[0] | from_volumes[0]:
            found = await self._get(core.CONFIG_MAP, Key(namespace, name))
            if found is not None:
                maps[name] = volumes.config_map_data(found.read(core.ConfigMap))
        for name in from_env[1] | from_volumes[1]:
            found = await self._get(core.SECRET, Key(namespace, name))
            if found is not None:
                secrets[name] = volumes.secret_data(found.read(core.Secret))
        return Sources(maps, secrets, {wanted: await self._token(pod, wanted) for wanted in _tokens(pod.spec)})

    def forget(self, uid: str) -> None:
        """The pod is gone."""
        self._held.pop(uid, None)

    async def _token(self, pod: core.Pod, wanted: core.ServiceAccountTokenProjection) -> bytes:
        if self._issuer is None:
            raise ConfigMissing("projected volume: pods of this platform have no service account to give a token of")
        now = self._clock.now()
        held = self._held.setdefault(pod.metadata.uid, {})
        known = held.get(wanted)
        if known is None or now >= known.renew_at:
            token = await self._issuer.issue(pod, wanted)
            life = min((token.expires_at - now) * _WORN, _OLDEST_SECONDS)
            known = held[wanted] = _Held(token, Instant(now + life))
        return known.token.text.encode()


def _tokens(spec: core.PodSpec) -> Iterator[core.ServiceAccountTokenProjection]:
    for volume in spec.volumes:
        for source in volume.projected.sources if volume.projected is not None else ():
            if source.service_account_token is not None:
                yield source.service_account_token
