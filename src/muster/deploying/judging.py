"""What is well and what is not, from what was read of a cluster. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from muster.api import core, quantity, raw, timestamps
from muster.api.documents import child, objects, text
from muster.api.kinds import Kind
from muster.api.meta import Instant
from muster.api.objects import Object
from muster.api.ownership import CLASS_LABEL, Unlabelled
from muster.api.raw import Document
from muster.deploying import aggregation, definitions, permissions
from muster.deploying.findings import Finding, fail, ok, warn
from muster.deploying.reaching import ServerVersion
from muster.deploying.surroundings import Definition, Neighbour
from muster.version import VERSION

OLDEST_MINOR: Final = 30  # pods' scheduling gates are final from there on
_MOST_SKEW_SECONDS: Final = 5.0  # leases and start times still make sense
_PATIENCE_SECONDS: Final = 60.0
_GPU: Final = "nvidia.com/gpu"
_INSTALL: Final = "run `muster install`"


def server(found: ServerVersion, now: Instant, took_seconds: float) -> Iterator[Finding]:
    told = f"{found.text}, answered in {took_seconds * 1000:.0f} ms"
    if found.minor < OLDEST_MINOR:
        yield warn("API server", told, f"Muster is tested with Kubernetes 1.{OLDEST_MINOR} and newer")
    else:
        yield ok("API server", told)
    if found.at is not None:
        # Its date has no fractions, and the answer took its time.
        skew = abs(now - found.at) - 1.0 - took_seconds
        if skew > _MOST_SKEW_SECONDS:
            yield warn("clocks", f"this machine and the API server are {skew:.0f} s apart", "run NTP on both")
        else:
            yield ok("clocks", "this machine and the API server agree")


def rights(allowed: Mapping[str, bool]) -> Finding:
    """`allowed`: by what may be done, in words."""
    missing = [what for what, is_allowed in allowed.items() if not is_allowed]
    if missing:
        advice = "`muster install` needs that: use the kubeconfig of an administrator"
        return warn("your rights", f"you may not {', '.join(missing)}", advice)
    return ok("your rights", "enough to install")


def kinds(known: Mapping[Kind, Definition]) -> Iterator[Finding]:
    """A line for each project whose kinds they are."""
    projects: dict[str, list[Kind]] = {}
    for kind in definitions.kinds():
        projects.setdefault(_project(kind), []).append(kind)
    for project, wanted in projects.items():
        yield _kinds(f"kinds of {project}", wanted, known)


def _kinds(about: str, wanted: Sequence[Kind], known: Mapping[Kind, Definition]) -> Finding:
    missing = [kind for kind in wanted if kind not in known]
    if missing:
        which = f"none of {len(wanted)} defined" if len(missing) == len(wanted) else f"not defined: {_list(missing)}"
        return warn(about, which, _INSTALL)
    broken = [known[kind] for kind in wanted if not known[kind].is_established]
    if broken:
        trouble = "; ".join(each.trouble for each in broken if each.trouble) or "look at the status of the definitions"
        return fail(about, f"not served: {_list([each.kind for each in broken])}", trouble)
    old = [known[kind] for kind in wanted if not known[kind].is_usable]
    if old:
        found = f"{_list([each.kind for each in old])} not in version {old[0].kind.version}"
        return warn(about, found, "upgrade whoever has installed them; Muster leaves these objects alone until then")
    theirs = sum(not known[kind].is_ours for kind in wanted)
    return ok(
        about, f"{len(wanted)} defined" + (f", {theirs} of them by others and used as they are" if theirs else "")
    )


def _project(kind: Kind) -> str:
    first = {"kueue.x-k8s.io": "Kueue", "kubeflow.org": "Kubeflow", "muster.dev": "Muster"}
    return first.get(kind.group, "Volcano")


def _list(found: Sequence[Kind]) -> str:
    return ", ".join(kind.resource for kind in found)


def neighbours(found: Sequence[Neighbour], unlabelled: Unlabelled | None) -> Finding:
    """`unlabelled`: as the controllers were started with; None where there are none."""
    if not found:
        return ok("other controllers", "neither Kueue, Volcano nor Kubeflow's operator run here")
    there = ", ".join(f"{each.project} ({each.deployment})" for each in found)
    if unlabelled is Unlabelled.OURS:
        advice = f"both act on objects without the label {CLASS_LABEL}: run `muster install --set unlabelled=theirs`"
        return fail("other controllers", there, advice)
    return ok("other controllers", f"{there}; what is labelled {CLASS_LABEL}=muster is Muster's, the rest is theirs")


def controllers(deployment: Document | None, pods: Iterable[Document]) -> Iterator[Finding]:
    if deployment is None:
        yield warn("controllers", "not installed", _INSTALL)
        return
    wanted = raw.dig(deployment, "spec", "replicas", default=1)
    ready = raw.dig(deployment, "status", "readyReplicas", default=0)
    told = f"{ready} of {wanted} ready"
    if not ready:
        yield fail("controllers", told, "; ".join(_troubles(pods)) or "look at their pods: kubectl describe pods")
    elif ready < wanted:
        yield warn("controllers", told, "; ".join(_troubles(pods)) or "they may still be starting")
    else:
        yield ok("controllers", told)
    image = str(raw.dig(deployment, "spec", "template", "spec", "containers", 0, "image", default=""))
    if not image.endswith(f":{VERSION}"):
        yield warn("version", f"the controllers run {image}, this program is {VERSION}", _INSTALL + " to bring them up")


def role(found: Document | None) -> Finding:
    """The rights of the controllers."""
    wanted = permissions.rules(permissions.CLUSTER)
    if found is None or found.get("rules") != wanted:
        told = "missing" if found is None else "not those of this version"
        return warn("rights of the controllers", told, _INSTALL)
    return ok("rights of the controllers", f"{len(wanted)} rules")


def unlabelled_of(deployment: Document) -> Unlabelled:
    for argument in raw.dig(deployment, "spec", "template", "spec", "containers", 0, "args", default=()):
        if argument == f"--unlabelled={Unlabelled.THEIRS}":
            return Unlabelled.THEIRS
    return Unlabelled.OURS


def _troubles(pods: Iterable[Document]) -> Iterator[str]:
    """Each kind of trouble once."""
    found: dict[str, None] = {}
    for pod in pods:
        for status in objects(pod, "status", "containerStatuses"):
            for state in (child(status, "state", "waiting"), child(status, "lastState", "terminated")):
                found[f"{text(state, 'reason')} {text(state, 'message')}".strip()] = None
        for condition in objects(pod, "status", "conditions"):
            if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
                found[text(condition, "message")] = None
    yield from filter(None, found)


def leader(lease: Document | None, now: Instant) -> Finding:
    holder = text(child(lease or {}, "spec"), "holderIdentity")
    if not holder:
        return fail("leader", "nobody leads: nothing is admitted or placed", "see what the controllers log")
    spec = child(lease or {}, "spec")
    try:
        silent = now - timestamps.parse(text(spec, "renewTime"))
    except timestamps.BadTimestamp:
        return fail("leader", f"{holder} has left no time", "delete the lease: another one will take over")
    if silent > float(spec.get("leaseDurationSeconds") or 0) + _MOST_SKEW_SECONDS:
        return fail("leader", f"{holder} has not been heard of for {silent:.0f} s", "see what the controllers log")
    return ok("leader", f"{holder}, heard of {max(silent, 0):.0f} s ago")


def visibility(found: Sequence[Object], *, is_expected: bool) -> Iterator[Finding]:
    """Of what the API server should pass on to us. `is_expected`: whether somebody is there who should say so."""
    ours = [each for each in found if aggregation.is_ours(each)]
    broken = {each.key.name: aggregation.trouble(each) for each in ours if aggregation.trouble(each)}
    if broken:
        listed = " ".join(broken)
        advice = (
            f"no namespace can be deleted meanwhile; if no controller comes back: kubectl delete apiservice {listed}"
        )
        yield fail("visibility", "; ".join(sorted(set(broken.values()))), advice)
    elif ours:
        theirs = len(found) - len(ours)
        told = f"APIs about queues and decisions: {len(ours)} answered by Muster"
        yield ok("visibility", told + (f", {theirs} by Kueue" if theirs else ""))
    elif is_expected:
        yield warn("visibility", "nobody answers what is asked about queues", "see what the leader logs about it")


def nodes(found: Sequence[Object]) -> Iterator[Finding]:
    views = [each.read(core.Node) for each in found]
    ready = [view for view in views if any(c.type == "Ready" and c.status == "True" for c in view.status.conditions)]
    lost = sorted(view.metadata.name for view in views if view not in ready)
    gpus = sum(quantity.parse((view.status.allocatable or {}).get(_GPU, 0)).nano for view in ready) // quantity.NANO
    told = f"{len(ready)} of {len(views)} ready, {gpus} GPUs on them"
    if not ready:
        yield fail("nodes", told, "nothing can run: see why with `kubectl describe nodes`")
    elif lost:
        yield warn("nodes", told, f"not ready: {', '.join(lost[:5])}{' and others' if len(lost) > 5 else ''}")
    else:
        yield ok("nodes", told)
    closed = sum(bool(view.spec.unschedulable) for view in ready)
    if closed:
        yield warn(
            "cordoned nodes", f"{closed} of those that are ready", "`kubectl uncordon` lets pods onto them again"
        )


def waiting_pods(found: Sequence[Object], now: Instant) -> Finding:
    """Of those that name our scheduler and have no node yet."""
    views = [each.read(core.Pod) for each in found]
    reasons = Counter(
        next((c.reason or "" for c in view.status.conditions if c.type == "PodScheduled"), "") for view in views
    )
    unseen = [
        view
        for view in views
        if not any(c.type == "PodScheduled" for c in view.status.conditions)
        and now - _made_at(view, now) > _PATIENCE_SECONDS
    ]
    told = ", ".join(f"{count} {_in_words(reason)}" for reason, count in sorted(reasons.items())) or "none"
    if unseen:
        some = ", ".join(f"{view.metadata.namespace}/{view.metadata.name}" for view in unseen[:3])
        return fail("waiting pods", told, f"nobody has looked at {some} for a minute: is a leader there?")
    if reasons["Unschedulable"]:
        return warn("waiting pods", told, "`muster why` or `kubectl describe pod` tells what each is short of")
    return ok("waiting pods", told)


def _in_words(reason: str) -> str:
    return {"": "not looked at yet", "SchedulingGated": "wait for quota", "Unschedulable": "fit nowhere"}.get(
        reason, reason
    )


def _made_at(view: core.Pod, now: Instant) -> Instant:
    try:
        return timestamps.parse(view.metadata.creation_timestamp or "")
    except timestamps.BadTimestamp:
        return now
