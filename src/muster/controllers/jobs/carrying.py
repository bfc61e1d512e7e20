"""Carries out what was decided about a Volcano Job, in the order that keeps it right whenever it is interrupted."""

from collections.abc import Iterator, Sequence

from muster.api import core, errors, volcano
from muster.api.kueue.names import ADMITTED_REPLICAS_ANNOTATION
from muster.api.meta import ObjectMeta
from muster.api.objects import Key, Object
from muster.api.raw import Document
from muster.api.volcano.waiting import CLAIM_MISSING, PLUGIN_ERROR
from muster.controllers.jobs.currency import Currency
from muster.controllers.jobs.ssh_keys import MakeKey
from muster.controllers.refusals import check
from muster.jobs.volcano import Plan, Seen, Told, make_pods, names
from muster.jobs.volcano.members import Member
from muster.jobs.volcano.plugins import KeyPair, Loaded, Made, Plugin
from muster.runtime.recording import EventRecorder
from muster.store.protocol import (
    Create,
    Delete,
    Options,
    Patch,
    Refused,
    Result,
    Revision,
    Store,
    Write,
)

OPTIONS = Options(manager="vc-controller-manager")
_CREATED_AT_A_TIME = 1024
_NO_KEY = KeyPair("", "")
_PROBLEMS = {volcano.POD_GROUP: "PodGroupError", core.PERSISTENT_VOLUME_CLAIM: CLAIM_MISSING}
"""What it is called when one of these is refused; all else is a plugin's."""


class Carrier:
    """Remembers what it has said and shown of each job, so as not to do it again."""

    def __init__(self, store: Store, current: Currency, events: EventRecorder, make_key: MakeKey) -> None:
        self._store = store
        self._current = current
        self._events = events
        self._make_key = make_key
        self._published: dict[str, tuple[int, str]] = {}
        """By a job's uid: the edition of it that the objects of its plugins show."""
        self._said: dict[str, Told] = {}

    def forget(self, uid: str) -> None:
        self._published.pop(uid, None)
        self._said.pop(uid, None)

    async def carry_out(self, job: Object, seen: Seen, loaded: Loaded, decided: Plan) -> None:
        """Raises the first refusal that leaves something to be done."""
        for told in decided.told:
            self._tell(job, told)
        status = [_status(job, decided.status)] if decided.status is not None else []
        if decided.is_status_first:
            check(await self._current.write(job.key, status))
            await self._end(job, seen, loaded, decided)
        else:
            await self._begin(job, seen, loaded, decided)
            await self._make(job, seen, loaded, decided)
            check(await self._current.write(job.key, status))
        if decided.is_expired:
            # In the foreground: its pods go first, so that nothing of it is left when it is gone.
            expired = Delete(volcano.JOB, job.key, "Foreground", uid=job.uid, options=OPTIONS)
            check(await self._current.write(job.key, [expired]))

    def _tell(self, job: Object, told: Told) -> None:
        """A warning that stands is not repeated with every look."""
        if told.type == "Warning":
            if self._said.get(job.uid) == told:
                return
            self._said[job.uid] = told
        self._events.record(job, told.type, told.reason, told.message)

    # Pods that are missing, and what they need around them

    async def _begin(self, job: Object, seen: Seen, loaded: Loaded, decided: Plan) -> None:
        writes: list[Write] = []
        for plugin in loaded.plugins:
            if plugin.name in decided.plugins_begun:
                key = await self._make_key() if plugin.needs_key else None
                writes += (Create(made.kind, made.document, OPTIONS) for made in plugin.objects(seen.job, key))
        if decided.plugins_begun:
            for problem in loaded.problems:
                self._events.record(job, "Warning", PLUGIN_ERROR, problem)
        elif self._published.get(job.uid) != _edition(job):
            writes += _republished(seen.job, loaded.plugins)
        writes += (Create(core.PERSISTENT_VOLUME_CLAIM, claim, OPTIONS) for claim in decided.claims_created)
        if decided.group_created is not None:
            writes.append(Create(volcano.POD_GROUP, decided.group_created, OPTIONS))
        if decided.group_changed is not None and seen.group is not None:
            writes.append(Patch(volcano.POD_GROUP, _key(seen.group.metadata), decided.group_changed, options=OPTIONS))
        results = await self._current.write(job.key, writes)
        for write, result in zip(writes, results, strict=True):
            if isinstance(result, Refused) and not isinstance(result.error, errors.AlreadyExists | errors.NotFound):
                self._events.record(job, "Warning", _PROBLEMS.get(write.kind, PLUGIN_ERROR), result.error.message)
        check(results, allowed=(errors.AlreadyExists,))
        self._published[job.uid] = _edition(job)

    async def _make(self, job: Object, seen: Seen, loaded: Loaded, decided: Plan) -> None:
        document = job.document() if decided.created else {}
        for start in range(0, len(decided.created), _CREATED_AT_A_TIME):
            wanted = decided.created[start : start + _CREATED_AT_A_TIME]
            pods = make_pods(seen.job, document, wanted, loaded.plugins, is_forwarded=seen.is_forwarded)
            results = await self._current.write(job.key, [Create(core.POD, pod, OPTIONS) for pod in pods])
            self._report(job, results, "FailedCreatePods", "creating")
            check(results)
        await self._delete(job, decided)

    # Pods that end, and what was around them

    async def _end(self, job: Object, seen: Seen, loaded: Loaded, decided: Plan) -> None:
        if decided.is_group_deleted and seen.group is not None:
            meta = seen.group.metadata
            # Before the pods: whoever is interrupted here must not make new ones under the old admission.
            gone = Delete(volcano.POD_GROUP, _key(meta), uid=meta.uid, options=OPTIONS)
            check(await self._current.write(job.key, [gone]))
        await self._delete(job, decided)
        for plugin in loaded.plugins:
            if plugin.name in decided.plugins_ended:
                for made in plugin.objects(seen.job, _NO_KEY):
                    await self._remove(job, made)
        if decided.status_after is not None:
            self._published.pop(job.uid, None)
            check(await self._current.write(job.key, [_status(job, decided.status_after, is_based=False)]))

    async def _delete(self, job: Object, decided: Plan) -> None:
        results = await self._current.write(job.key, list(_deleting(decided.ended, is_marked=decided.is_marked)))
        self._report(job, results, "FailedDeletePods", "deleting")
        check(results)

    async def _remove(self, job: Object, made: Made) -> None:
        """Not what somebody else has put there under the same name."""
        key = Key(job.key.namespace, made.document["metadata"]["name"])
        try:
            found = await self._store.get(made.kind, key)
        except errors.NotFound:
            return
        if any(owner.uid == job.uid for owner in found.meta.owner_references):
            check(await self._store.write([Delete(made.kind, key, uid=found.uid, options=OPTIONS)]))

    def _report(self, job: Object, results: Sequence[Result], reason: str, doing: str) -> None:
        refused = [
            result.error
            for result in results
            if isinstance(result, Refused) and not isinstance(result.error, errors.NotFound)
        ]
        if refused:
            self._events.record(job, "Warning", reason, f"Error {doing} pods: {refused[0].message}")


def _edition(job: Object) -> tuple[int, str]:
    """What the objects of plugins follow: the job's spec, and how many pods it may have."""
    return job.meta.generation or 0, (job.meta.annotations or {}).get(ADMITTED_REPLICAS_ANNOTATION, "")


def _republished(job: volcano.Job, plugins: Sequence[Plugin]) -> Iterator[Write]:
    """The objects that follow the job's edits, as they should be by now: of plugins that have made theirs."""
    begun = [plugin for plugin in plugins if f"plugin-{plugin.name}" in (job.status.controlled_resources or {})]
    for plugin in begun:
        for made in plugin.objects(job, _NO_KEY):
            if made.is_updated:
                body = {name: value for name, value in made.document.items() if name != "metadata"}
                yield Patch(
                    made.kind, Key(job.metadata.namespace, made.document["metadata"]["name"]), body, options=OPTIONS
                )


def _deleting(ended: Sequence[Member], *, is_marked: bool) -> Iterator[Write]:
    for member in ended:
        meta = member.pod.metadata
        if is_marked:
            # The uid in it is a precondition: another pod of that name is left alone.
            body: Document = {"metadata": {"uid": meta.uid, "annotations": {names.OUT_OF_SYNC: "true"}}}
            yield Patch(core.POD, _key(meta), body, options=OPTIONS)
        yield Delete(core.POD, _key(meta), uid=meta.uid, options=OPTIONS)


def _status(job: Object, status: Document, *, is_based: bool = True) -> Patch:
    """`is_based`: not if the job has changed since it was looked at."""
    body = {"status": status}
    based_on = Revision(job.revision) if is_based else None
    return Patch(volcano.JOB, job.key, body, subresource="status", based_on=based_on, options=OPTIONS)


def _key(meta: ObjectMeta) -> Key:
    return Key(meta.namespace, meta.name)
