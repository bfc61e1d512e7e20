"""Examines a cluster: what is there for Muster, what of Muster is there, and whether it works.

One look at each thing; what cannot be looked at is a finding, and the rest goes on.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Final

from muster.access.kubeconfig import Cluster
from muster.api import coordination, core, errors, kueue, selectors
from muster.api.errors import ApiError
from muster.api.kinds import Kind
from muster.api.objects import Key, Object
from muster.api.ownership import CLASS_LABEL
from muster.api.raw import Document
from muster.deploying import judging, kinds, manifests, names, reaching, surroundings
from muster.deploying.findings import Finding, fail, ok, warn
from muster.runtime.clock import Clock
from muster.store.protocol import Create, Options, Refused, Selection, Store, write_one

_MOST_PODS: Final = 500
_SCHEDULER: Final = "muster"

_RIGHTS: Final = {
    "define kinds": ("patch", kinds.CUSTOM_RESOURCE_DEFINITION),
    "make namespaces": ("create", core.NAMESPACE),
    "grant rights": ("patch", kinds.CLUSTER_ROLE),
    "bind rights": ("patch", kinds.CLUSTER_ROLE_BINDING),
    "start deployments": ("patch", kinds.DEPLOYMENT),
    "register webhooks": ("patch", kinds.MUTATING_WEBHOOKS),
}
"""What `muster install` does, in words."""


class Examination:
    """`namespace`: where the installation is, or would be."""

    def __init__(self, store: Store, clock: Clock, namespace: str) -> None:
        self._store = store
        self._clock = clock
        self._namespace = namespace

    async def findings(self) -> AsyncIterator[Finding]:
        """In the order in which things depend on each other."""
        checks: dict[str, Callable[[], Awaitable[Iterable[Finding]]]] = {
            "your rights": self._rights,
            "kinds": self._kinds,
            "controllers": self._controllers,
            "other controllers": self._neighbours,
            "leader": self._leader,
            "webhooks": self._webhooks,
            "visibility": self._visibility,
            "nodes": self._nodes,
            "waiting pods": self._waiting_pods,
        }
        for about, check in checks.items():
            try:
                for finding in await check():
                    yield finding
            except errors.Forbidden as error:
                yield warn(about, f"cannot be seen: {error.message}", "use a kubeconfig that may read it")
            except ApiError as error:
                yield fail(about, error.message, "")

    async def _rights(self) -> Iterable[Finding]:
        asked = [
            Create(kinds.ACCESS_REVIEW, {"metadata": {}, "spec": {"resourceAttributes": self._attributes(verb, kind)}})
            for verb, kind in _RIGHTS.values()
        ]
        allowed: dict[str, bool] = {}
        for what, result in zip(_RIGHTS, await self._store.write(asked), strict=True):
            if isinstance(result, Refused):
                raise result.error
            allowed[what] = bool(result.object.document()["status"]["allowed"])
        return [judging.rights(allowed)]

    def _attributes(self, verb: str, kind: Kind) -> Document:
        inside = {"namespace": self._namespace} if kind.namespaced else {}
        return {"verb": verb, "group": kind.group, "resource": kind.plural, **inside}

    async def _kinds(self) -> Iterable[Finding]:
        return judging.kinds(await surroundings.known_definitions(self._store))

    async def _deployment(self) -> Document | None:
        found = await self._find(kinds.DEPLOYMENT, Key(self._namespace, names.CONTROLLER))
        return None if found is None else found.document()

    async def _controllers(self) -> Iterable[Finding]:
        labels = selectors.parse_labels(
            ",".join(f"{key}={value}" for key, value in manifests.CONTROLLER.selector.items())
        )
        pods = await self._store.list(Selection(core.POD, self._namespace, labels))
        deployment = await self._deployment()
        found = list(judging.controllers(deployment, [pod.document() for pod in pods.items]))
        if deployment is not None:
            role = await self._find(kinds.CLUSTER_ROLE, Key("", names.CONTROLLER))
            found.append(judging.role(None if role is None else role.document()))
        return found

    async def _neighbours(self) -> Iterable[Finding]:
        deployment = await self._deployment()
        unlabelled = None if deployment is None else judging.unlabelled_of(deployment)
        return [judging.neighbours(await surroundings.neighbours(self._store), unlabelled)]

    async def _leader(self) -> Iterable[Finding]:
        lease = await self._find(coordination.LEASE, Key(self._namespace, names.CONTROLLER))
        if lease is None and await self._deployment() is None:
            return []
        return [judging.leader(None if lease is None else lease.document(), self._clock.now())]

    async def _webhooks(self) -> Iterable[Finding]:
        """Asks for an object that the webhooks refuse, without making it: no other sign tells that they are asked."""
        registered = await self._find(kinds.VALIDATING_WEBHOOKS, Key("", names.WEBHOOK))
        if registered is None:
            if await self._deployment() is None:
                return []
            return [fail("webhooks", "not registered", "the leader does that: see what the controllers log")]
        metadata = {"name": "muster-doctor", "namespace": "default", "labels": {CLASS_LABEL: "nobody-has-this-class"}}
        document: Document = {"metadata": metadata, "spec": {"clusterQueue": "muster-doctor"}}
        try:
            await write_one(self._store, Create(kueue.LOCAL_QUEUE, document, Options(dry_run=True)))
        except errors.Invalid:
            return [ok("webhooks", "registered, and they answer")]
        except errors.NotFound as error:
            return [warn("webhooks", f"registered, and could not be tried: {error.message}", "")]
        except errors.Unavailable as error:
            return [fail("webhooks", error.message, "can the API server reach the pods of the controllers?")]
        return [fail("webhooks", "registered, but nobody answered", "can the API server reach the controllers' pods?")]

    async def _visibility(self) -> Iterable[Finding]:
        found = [await self._find(kinds.API_SERVICE, Key("", name)) for name in names.API_SERVICES]
        is_expected = await self._deployment() is not None
        return judging.visibility([each for each in found if each is not None], is_expected=is_expected)

    async def _nodes(self) -> Iterable[Finding]:
        return judging.nodes((await self._store.list(Selection(core.NODE))).items)

    async def _waiting_pods(self) -> Iterable[Finding]:
        fields = selectors.parse_fields(
            f"spec.schedulerName={_SCHEDULER},spec.nodeName=,status.phase=Pending", core.POD
        )
        page = await self._store.list(Selection(core.POD, fields=fields), limit=_MOST_PODS)
        return [judging.waiting_pods(page.items, self._clock.now())]

    async def _find(self, kind: Kind, key: Key) -> Object | None:
        try:
            return await self._store.get(kind, key)
        except errors.NotFound:
            return None


async def examine(cluster: Cluster, clock: Clock, namespace: str) -> AsyncIterator[Finding]:
    """Ends early where nobody answers."""
    started = clock.monotonic()
    try:
        version = await reaching.version(cluster)
    except ApiError as error:
        yield fail("API server", error.message, f"is {cluster.url} right, and up? It is from {cluster.source}")
        return
    for finding in judging.server(version, clock.now(), clock.monotonic() - started):
        yield finding
    async with reaching.store(cluster) as store:
        async for finding in Examination(store, clock, namespace).findings():
            yield finding
