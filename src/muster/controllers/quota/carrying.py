"""Carries out what was planned about a job's workloads. Every change is based on what the plan saw: where somebody was
faster it is refused, and planned anew."""

from collections.abc import Sequence

from muster.api import errors, kueue, patching
from muster.api.kueue import names
from muster.api.objects import Object
from muster.api.raw import Document
from muster.controllers.quota.writer import status_patch
from muster.quota.integrations.steps import ChangeStatus, ChangeWorkload, LetGo, MakeWorkload, RemoveWorkload
from muster.store.protocol import Create, Delete, Options, Patch, Refused, Result, Revision, Store, Write

OPTIONS = Options(manager="muster-quota-jobs")
WorkloadStep = MakeWorkload | ChangeWorkload | ChangeStatus | LetGo | RemoveWorkload


def writes(step: WorkloadStep) -> list[Write]:
    match step:
        case MakeWorkload(document):
            return [Create(kueue.WORKLOAD, document, OPTIONS)]
        case ChangeWorkload(found, made):
            return object_patch(found, made)
        case ChangeStatus(found, made):
            return [status_patch(found, made)]
        case LetGo(found):
            return [_let_go(found)]
        case RemoveWorkload(found):
            return [_let_go(found), Delete(kueue.WORKLOAD, found.key, uid=found.uid, options=OPTIONS)]


def object_patch(found: Object, made: Document) -> list[Write]:
    """What makes the stored object, but for its status, the one in `made`; nothing where it is."""
    before = {part: value for part, value in found.document().items() if part != "status"}
    after = {part: value for part, value in made.items() if part != "status"}
    body = patching.difference(before, after)
    if not body:
        return []
    return [Patch(found.kind, found.key, body, based_on=Revision(found.revision), options=OPTIONS)]


def _let_go(found: Object) -> Patch:
    kept = [name for name in found.meta.finalizers if name != names.IN_USE_FINALIZER]
    body = {"metadata": {"uid": found.uid, "finalizers": kept}}
    return Patch(found.kind, found.key, body, based_on=Revision(found.revision), options=OPTIONS)


async def write_all(store: Store, listed: Sequence[Write]) -> list[Object]:
    """What they led to. Raises the first refusal that leaves something to be done."""
    if not listed:
        return []
    results = await store.write(listed)
    check(results)
    return [result.object for result in results if not isinstance(result, Refused)]


def check(results: Sequence[Result]) -> None:
    for result in results:
        if isinstance(result, Refused) and not isinstance(result.error, errors.NotFound):
            raise result.error
