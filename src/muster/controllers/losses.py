"""What the loss of a node means, as pure functions: its condition, its taints, and what becomes of its pods."""

from collections.abc import Sequence
from dataclasses import dataclass

from muster.api import conditions, core, timestamps
from muster.api.core.pod_defaults import TOLERATION_SECONDS
from muster.api.meta import Instant
from muster.api.objects import Object
from muster.api.raw import Document
from muster.placement.plugins.taint_toleration import tolerates
from muster.store.protocol import Delete, Options, Patch, Revision, Write

UNREACHABLE = "node.kubernetes.io/unreachable"
NOT_READY = "node.kubernetes.io/not-ready"
_EFFECTS = ("NoSchedule", "NoExecute")
_FINISHED = ("Succeeded", "Failed")
_LOST_EXIT_CODE = 137  # as after SIGKILL: nobody saw the real one

OPTIONS = Options(manager="muster-nodes")


def silenced(node: Object, now: Instant) -> Patch | None:
    """The node's word that it is ready no longer counts. None where that has been said already."""
    document = node.document()
    changed = conditions.set_condition(
        document,
        "Ready",
        conditions.UNKNOWN,
        "NodeStatusUnknown",
        "the node's agent has stopped renewing its lease",
        timestamps.to_text(now),
    )
    if not changed:
        return None
    body: Document = {"status": {"conditions": document["status"]["conditions"]}}
    return Patch(core.NODE, node.key, body, subresource="status", based_on=Revision(node.revision), options=OPTIONS)


def tainted(node: Object, now: Instant) -> Patch | None:
    """The taints that follow from what the node's Ready condition says. None where they are as they should be."""
    view = node.read(core.Node)
    ready = conditions.find(view.status.conditions, "Ready")
    if ready is None:
        return None
    wanted = {conditions.UNKNOWN: UNREACHABLE, conditions.FALSE: NOT_READY}.get(ready.status)
    present = {(taint.key, taint.effect) for taint in view.spec.taints if taint.key in (UNREACHABLE, NOT_READY)}
    needed = {(wanted, effect) for effect in _EFFECTS} if wanted else set()
    if present == needed:
        return None
    kept = [
        taint
        for taint in node.document().get("spec", {}).get("taints", [])
        if taint.get("key") not in (UNREACHABLE, NOT_READY) or (taint.get("key"), taint.get("effect")) in needed
    ]
    added: list[Document] = [
        {"key": wanted, "effect": effect, "timeAdded": timestamps.to_text(now)}
        for effect in _EFFECTS
        if wanted and (wanted, effect) not in present
    ]
    body: Document = {"spec": {"taints": [*kept, *added] or None}}
    return Patch(core.NODE, node.key, body, based_on=Revision(node.revision), options=OPTIONS)


@dataclass(frozen=True, slots=True)
class Reckoning:
    """Writes that are due now, and the seconds until more may be. None: nothing more to come."""

    writes: Sequence[Write]
    again_after: float | None = None


def reckon(node: Object, pods: Sequence[Object], now: Instant, eviction_seconds: float) -> Reckoning:
    """What becomes of the pods of a node that is tainted as lost: each is kept for as long as it tolerates that."""
    taint = next(
        (
            taint
            for taint in node.read(core.Node).spec.taints
            if taint.key in (UNREACHABLE, NOT_READY) and taint.effect == "NoExecute"
        ),
        None,
    )
    if taint is None:
        return Reckoning(())
    since = timestamps.parse(taint.time_added) if taint.time_added else now
    writes: list[Write] = []
    left: list[float] = []
    for pod in pods:
        patience = _patience(pod.read(core.Pod), taint, eviction_seconds)
        if patience is None:
            continue
        remaining = since + patience - now
        if remaining > 0:
            left.append(remaining)
        else:
            writes += lose(pod, f'node "{node.key.name}" has not been heard of since {taint.time_added}', now)
    return Reckoning(writes, min(left, default=None))


def lose(pod: Object, why: str, now: Instant) -> list[Write]:
    """Give up a pod whose node is gone: it has failed; or, where it was being deleted, it is gone as well."""
    if pod.is_terminating:
        return [Delete(core.POD, pod.key, grace_seconds=0, uid=pod.uid, options=OPTIONS)]
    if pod.read(core.Pod).status.phase in _FINISHED:
        return []
    document = pod.document()
    now_text = timestamps.to_text(now)
    for type in ("Ready", "ContainersReady"):
        if conditions.find_in(document, type) is not None:
            conditions.set_condition(document, type, conditions.FALSE, "NodeLost", why, now_text)
    conditions.set_condition(document, "DisruptionTarget", conditions.TRUE, "NodeLost", why, now_text)
    status = document["status"]
    for listed in ("initContainerStatuses", "containerStatuses"):
        for container in status.get(listed) or ():
            _end(container, why, now_text)
    body = {"status": {**status, "phase": "Failed", "reason": "NodeLost", "message": why}}
    return [Patch(core.POD, pod.key, body, subresource="status", based_on=Revision(pod.revision), options=OPTIONS)]


def _end(container: Document, why: str, now_text: str) -> None:
    state = container.get("state") or {}
    container["ready"] = container["started"] = False
    if "terminated" in state:
        return
    ended: Document = {"exitCode": _LOST_EXIT_CODE, "reason": "NodeLost", "message": why, "finishedAt": now_text}
    started = (state.get("running") or {}).get("startedAt")
    if started:
        ended["startedAt"] = started
    container["state"] = {"terminated": ended}


def _patience(pod: core.Pod, taint: core.Taint, eviction_seconds: float) -> float | None:
    """How long the pod stays on a lost node; None: for as long as it takes."""
    matching = [toleration for toleration in pod.spec.tolerations if tolerates(toleration, taint)]
    if not matching:
        return eviction_seconds
    limits = [toleration.toleration_seconds for toleration in matching if toleration.toleration_seconds is not None]
    if not limits:
        return None
    # Every pod that does not say otherwise gets this toleration: it is the platform's setting, not the user's.
    return float(eviction_seconds if min(limits) == TOLERATION_SECONDS else max(0, min(limits)))
