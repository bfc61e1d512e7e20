"""What `muster describe job` says: how a job is doing, what it consists of, its quota, and what happened when."""

from collections.abc import Iterator, Mapping, Sequence

from muster.api import raw, timestamps
from muster.api.raw import Document
from muster.cli import cron_times, durations, object_lines, ps, why
from muster.cli.object_lines import indent, table
from muster.sdk import details, dialects, gangs, reading
from muster.sdk.details import Details, Pod

_MOST_PODS = 24
_MOST_EVENTS = 12
_PHASES = ("Pending", "Running", "Succeeded", "Failed")


def describe(found: Details, now: float) -> str:
    sections = [
        ("Steps" if found.job.dialect is dialects.FLOW else "Tasks", _tasks(found)),
        ("Jobs", _children(found, now)),
        ("Pods", _pods(found, now)),
        ("Quota", list(_quota(found))),
        ("Timeline", _timeline(found)),
        ("Conditions", _conditions(found, now)),
        ("Events", _events(found, now)),
    ]
    lines = list(_head(found, now))
    for title, body in sections:
        if body:
            lines += ["", f"{title}:", *indent(body)]
    if not found.events:
        lines += ["", "Events: none"]
    return "\n".join(lines) + "\n"


def _head(found: Details, now: float) -> Iterator[str]:
    job, summary = found.job, found.summary
    yield f"Name:         {summary.name}"
    yield f"Namespace:    {summary.namespace}"
    yield f"Kind:         {summary.kind} ({job.document.get('kind')} of {job.document.get('apiVersion')})"
    own = f" (phase {summary.phase})" if summary.phase not in ("", str(summary.state)) else ""
    yield f"State:        {summary.state}{own}{_progress(found)}"
    if summary.why:
        yield f"Why:          {summary.why}"
    if summary.exit_code:
        yield f"Exit code:    {summary.exit_code}"
    yield f"Queue:        {summary.queue or 'none'}"
    yield f"Created:      {summary.created} ({durations.age(summary.created, now)} ago)"
    if summary.schedule:
        zone = f" {summary.time_zone}" if summary.time_zone else ""
        yield f"Schedule:     {summary.schedule}{zone} ({cron_times.words(summary, now)})"
    yield from _volcano_head(job.document) if job.dialect is dialects.VOLCANO else ()
    owner = dialects.controller(job.document)
    if owner:
        yield f"Made by:      {reading.text(owner, 'kind')}/{reading.text(owner, 'name')}"


def _progress(found: Details) -> str:
    summary = found.summary
    if not summary.wanted:
        return ""
    what = "jobs" if found.job.dialect in dialects.MAKERS else "pods"
    done = f", {summary.done} of them done" if summary.done and summary.done < summary.wanted else ""
    return f", {summary.ready} of {summary.wanted} {what}{done}"


def _volcano_head(document: Document) -> Iterator[str]:
    spec, status = reading.section(document, "spec"), reading.section(document, "status")
    yield f"Starts with:  {reading.text(spec, 'minAvailable') or 'all'} pods at the least"
    retries = reading.text(status, "retryCount")
    if retries:
        yield f"Retries:      {retries} of {reading.text(spec, 'maxRetry')}"


# What it consists of


def _tasks(found: Details) -> list[str]:
    if len(found.tasks) < 2 and not any(task.name for task in found.tasks):
        return []
    if found.job.dialect is dialects.FLOW:
        return table(["Step", "State"], [[task.name, next(iter(task.counts))] for task in found.tasks])
    seen = [phase for phase in _PHASES if any(task.counts.get(phase) for task in found.tasks)]
    rows = [
        [task.name, str(task.wanted), str(task.least), *(str(task.counts.get(phase, 0)) for phase in seen)]
        for task in found.tasks
    ]
    return table(["Task", "Wanted", "Least", *seen], rows)


def _children(found: Details, now: float) -> list[str]:
    rows = [
        [
            job.name,
            str(job.state),
            f"{job.ready}/{job.wanted}",
            durations.age(job.created, now),
            job.why or "-",
        ]
        for job in found.children
    ]
    return table(["Job", "State", "Pods", "Age", "Why"], rows) if rows else []


def _pods(found: Details, now: float) -> list[str]:
    shown = [_pod_cells(pod, now) for pod in found.pods[:_MOST_PODS]]
    if not shown or found.job.dialect in dialects.MAKERS:  # the jobs that it made have them
        return []
    used = [column for column in shown[0] if column != "Exit" or any(row["Exit"] != "-" for row in shown)]
    left = len(found.pods) - len(shown)
    return [
        *table(used, [[row[column] for column in used] for row in shown]),
        *([f"and {left} more: muster get pods"] if left else []),
    ]


def _pod_cells(pod: Pod, now: float) -> Mapping[str, str]:
    member = pod.member
    return {
        "Pod": member.pod,
        "State": str(member.phase),
        "Node": member.node or "-",
        "Exit": "-" if member.exit_code is None else str(member.exit_code),
        "Age": durations.age(pod.created, now),
        "Why": member.reason or "-",
    }


# Its quota


def _quota(found: Details) -> Iterator[str]:
    name = reading.text(found.workload, "metadata", "name")
    if not name:
        return
    subject = why.Subject(found.job.dialect.resource, found.job.document)
    yield from why.quota_lines(subject, name, found.explanation)
    for assignment in reading.objects(found.workload, "status", "admission", "podSetAssignments"):
        flavors = reading.section(assignment, "flavors")
        usage = reading.section(assignment, "resourceUsage")
        parts = [f"{usage.get(resource, '?')} {resource} on {flavor}" for resource, flavor in flavors.items()]
        count = reading.text(assignment, "count")
        yield f"  {reading.text(assignment, 'name')}: {count} pods, {', '.join(parts) or 'no resources asked for'}"


# What happened when


def _timeline(found: Details) -> list[str]:
    start = _seconds(found.summary.created)
    rows = [
        [moment.at, f"+{durations.show_whole(_seconds(moment.at) - start)}", moment.what, moment.said or "-"]
        for moment in found.timeline
    ]
    return table(["At", "After", "What", "Said"], rows) if len(rows) > 1 else []


def _seconds(text: str) -> float:
    try:
        return timestamps.parse(text)
    except timestamps.BadTimestamp:
        return 0.0


def _conditions(found: Details, now: float) -> list[str]:
    """Volcano's are its phases, which the timeline has."""
    listed = reading.objects(found.job.document, "status", "conditions")
    typed = [entry for entry in listed if entry.get("type")]
    return object_lines.conditions(typed, now) if typed else []


def _events(found: Details, now: float) -> list[str]:
    """What was said of many pods in the same words is one line."""
    together: dict[tuple[str, str, str], list[Document]] = {}
    for event in found.events:
        key = reading.text(event, "type"), reading.text(event, "reason"), reading.text(event, "message").strip()
        together.setdefault(key, []).append(event)
    said = sorted(together.items(), key=lambda item: details.when(item[1][-1]))
    left = len(said) - _MOST_EVENTS
    rows = [
        [durations.age(details.when(listed[-1]), now) + _times(listed), type or "Normal", reason or "-", message]
        for (type, reason, message), listed in said[-_MOST_EVENTS:]
    ]
    earlier = [f"{left} earlier ones: muster get events"] if left > 0 else []
    return [*earlier, *(table(["Age", "Type", "Reason", "Message"], rows) if rows else [])]


def _times(listed: Sequence[Document]) -> str:
    counts = [raw.dig(event, "count") or raw.dig(event, "series", "count") or 1 for event in listed]
    total = sum(count for count in counts if isinstance(count, int))
    return f" (x{total})" if total > 1 else ""


# For programs


def plain(found: Details) -> raw.Document:
    return {
        **ps.plain(found.summary),
        "tasks": [
            {"name": task.name, "wanted": task.wanted, "least": task.least, "counts": dict(task.counts)}
            for task in found.tasks
        ],
        "pods": [_plain_pod(pod.member, pod.task) for pod in found.pods],
        "jobs": [dict(ps.plain(job)) for job in found.children],
        "workload": reading.text(found.workload, "metadata", "name"),
        "quota": found.explanation,
        "timeline": [{"at": moment.at, "what": moment.what, "said": moment.said} for moment in found.timeline],
        "object": found.job.document,
    }


def _plain_pod(member: gangs.Member, task: str) -> raw.Document:
    return {
        "name": member.pod,
        "task": task,
        "state": str(member.phase),
        "node": member.node,
        "exitCode": member.exit_code,
        "reason": member.reason,
        "started": member.started_at,
        "finished": member.finished_at,
    }
