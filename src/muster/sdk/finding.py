"""Finding jobs of any dialect on a platform, and what belongs to them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from muster.api import errors
from muster.api.raw import Document
from muster.sdk import dialects, jobs, reading, resources, summaries
from muster.sdk.client import Client
from muster.sdk.dialects import DIALECTS, Dialect, Job
from muster.sdk.resources import Resource, Selection
from muster.sdk.summaries import Summary, Surroundings

JOB_UID_LABEL = "kueue.x-k8s.io/job-uid"
_LISTED = (dialects.BATCH, dialects.VOLCANO, dialects.PYTORCH, dialects.CRON, dialects.FLOW)


class Ambiguous(errors.BadRequest):
    """Jobs of several kinds have the name. `found` has them."""

    def __init__(self, name: str, found: Sequence[Job]) -> None:
        listed = " or ".join(job.shown for job in found)
        super().__init__(f"{len(found)} jobs are called {name!r}; say which one: {listed}")
        self.found = tuple(found)


def find(client: Client, what: str, namespace: str | None = None) -> Job:
    """A job by its name, or by `KIND/NAME` (`volcano/train`, `vcjob/train`, `job/train`: any). Raises NotFound,
    Ambiguous, BadRequest."""
    kind, slash, name = what.rpartition("/")
    if slash and (not kind or not name or "/" in kind):
        raise errors.BadRequest(f"{what!r} does not name a job; write NAME or KIND/NAME, for example volcano/train")
    is_any = not slash or kind.lower() in dialects.ANY
    wanted = DIALECTS if is_any else (dialects.of_word(kind),)
    inside = namespace or client.namespace
    found = list(_named(client, wanted, name, inside))
    if len(found) > 1 and found[-1].dialect is dialects.POD:
        found.pop()  # a pod that is called like a job is meant by `pod/NAME` only
    if len(found) > 1:
        raise Ambiguous(name, found)
    if not found:
        word = "job" if is_any else f"{wanted[0].word} job"
        raise errors.NotFound(f"no {word} named {name!r} in namespace {inside}; `muster ps` lists what there is")
    return found[0]


def _named(client: Client, wanted: Sequence[Dialect], name: str, namespace: str) -> Iterator[Job]:
    for dialect in wanted:
        try:
            document = client.get(dialect.resource, name, namespace)
        except errors.NotFound:
            continue
        if len(wanted) == 1 or dialects.is_own(dialect, document):
            yield _as_job(dialect, document)


def _as_job(dialect: Dialect, document: Document) -> Job:
    resource = dialect.resource
    return Job(dialect, {"apiVersion": resource.api_version, "kind": resource.kind, **document})


def refresh(client: Client, job: Job) -> Job:
    """As it is now. Raises NotFound."""
    return _as_job(job.dialect, client.get(job.dialect.resource, job.name, job.namespace))


# What belongs to one job


def pods_of(client: Client, job: Job) -> Sequence[Document]:
    """Its pods; those of its jobs, where it makes jobs."""
    if job.dialect is dialects.POD:
        return [job.document]
    if job.dialect is dialects.GANG:
        found = jobs.members(client, job.name, job.namespace)
        return [
            pod for pod in found if jobs.group_of(pod) == job.name or dialects.controller(pod).get("uid") == job.uid
        ]
    if job.dialect in dialects.MAKERS:
        return [pod for child in children(client, job) for pod in pods_of(client, child)]
    selection = Selection(job.namespace, labels=f"{job.dialect.pod_label}={job.name}")
    return [pod for pod in client.list(resources.PODS, selection) if dialects.controller(pod).get("uid") == job.uid]


def children(client: Client, job: Job) -> Sequence[Job]:
    """The jobs that a flow or a cron job has made, the oldest first."""
    if job.dialect not in dialects.MAKERS:
        return []
    found = client.list(resources.VOLCANO_JOBS, Selection(job.namespace))
    own = [_as_job(dialects.VOLCANO, entry) for entry in found if dialects.controller(entry).get("uid") == job.uid]
    return sorted(own, key=lambda entry: (reading.text(entry.document, "metadata", "creationTimestamp"), entry.name))


def workload_of(client: Client, job: Job) -> Document:
    """What stands for the job in the quota engine; empty where nothing does."""
    try:
        found = client.list(resources.WORKLOADS, Selection(job.namespace, labels=f"{JOB_UID_LABEL}={job.uid}"))
    except errors.NotFound:
        return {}
    return newest(found)


def newest(found: Iterable[Document]) -> Document:
    """Of several (parts or slices of an elastic job), the base; of several bases, the last."""
    base = [entry for entry in found if not is_part(entry)]
    return max(base, key=lambda entry: reading.text(entry, "metadata", "creationTimestamp"), default={})


def is_part(workload: Document) -> bool:
    """It stands for one pod more than the job needs."""
    return bool(reading.text(workload, "metadata", "annotations", "muster.dev/part-of"))


def has_quota(workload: Document) -> bool:
    return any(
        reading.text(condition, "type") == "QuotaReserved" and reading.text(condition, "status") == "True"
        for condition in reading.objects(workload, "status", "conditions")
    )


def group_of(client: Client, job: Job) -> Document:
    if job.dialect is dialects.GANG:
        return job.document
    if job.dialect not in (dialects.VOLCANO, dialects.PYTORCH):
        return {}
    for group in client.list(resources.POD_GROUPS, Selection(job.namespace)):
        if dialects.controller(group).get("uid") == job.uid:
            return group
    return {}


def summary(client: Client, job: Job) -> Summary:
    beside = Surroundings(pods_of(client, job), workload_of(client, job), group_of(client, job))
    return summaries.observe(job, beside)


# All jobs at once


@dataclass(slots=True)
class _Belongings:
    """Of one job, while they are gathered."""

    pods: list[Document] = field(default_factory=list)
    workloads: list[Document] = field(default_factory=list)
    group: Document = field(default_factory=dict)

    def surroundings(self) -> Surroundings:
        return Surroundings(self.pods, newest(self.workloads), self.group)


def summarise(client: Client, namespace: str | None) -> list[Summary]:
    """Every job of the namespace, or of all where it is None; the oldest first."""
    where = Selection(namespace)
    found = [Job(dialect, entry) for dialect in _LISTED for entry in _list(client, dialect.resource, where)]
    groups, pods = _list(client, resources.POD_GROUPS, where), client.list(resources.PODS, where)
    return collect(found, groups, pods, _list(client, resources.WORKLOADS, where))


def _list(client: Client, resource: Resource, where: Selection) -> Sequence[Document]:
    try:
        return client.list(resource, where)
    except errors.NotFound:
        return []  # a server without this kind


def collect(
    found: Sequence[Job], groups: Iterable[Document], pods: Iterable[Document], workloads: Iterable[Document]
) -> list[Summary]:
    """Pure. Pods and pod groups that belong to none of the jobs are gangs, or bare pods."""
    belongings = {job.uid: _Belongings() for job in found}
    loose_groups = [group for group in groups if not _give_group(group, belongings) and not _is_left(group)]
    loose_pods = [pod for pod in pods if not _give_pod(pod, belongings)]
    for workload in workloads:
        for owner in reading.objects(workload, "metadata", "ownerReferences"):
            if reading.text(owner, "uid") in belongings:
                belongings[reading.text(owner, "uid")].workloads.append(workload)
    listed = [summaries.observe(job, belongings[job.uid].surroundings()) for job in found]
    listed += _gangs(loose_groups, loose_pods)
    return sorted(listed, key=lambda entry: (entry.created, entry.namespace, entry.name))


def _give_group(group: Document, belongings: dict[str, _Belongings]) -> bool:
    owner = reading.text(dialects.controller(group), "uid")
    if owner in belongings:
        belongings[owner].group = group
    return owner in belongings


def _is_left(group: Document) -> bool:
    """Its job is gone, and it will be collected: on a cluster that takes a moment."""
    return dialects.of_document(dialects.controller(group)) in _LISTED


def _give_pod(pod: Document, belongings: dict[str, _Belongings]) -> bool:
    owner = reading.text(dialects.controller(pod), "uid")
    if owner in belongings:
        belongings[owner].pods.append(pod)
    return owner in belongings


def _gangs(groups: Sequence[Document], pods: Sequence[Document]) -> Iterator[Summary]:
    gathered: dict[tuple[str, str], list[Document]] = {}
    for pod in pods:
        name = jobs.group_of(pod)
        if name:
            gathered.setdefault((reading.text(pod, "metadata", "namespace"), name), []).append(pod)
        else:
            yield summaries.observe(Job(dialects.POD, pod), Surroundings([pod]))
    for group in groups:
        key = reading.text(group, "metadata", "namespace"), reading.text(group, "metadata", "name")
        yield summaries.observe(Job(dialects.GANG, group), Surroundings(gathered.pop(key, []), {}, group))
    for (namespace, name), members in gathered.items():  # their PodGroup is gone
        created = reading.text(members[0], "metadata", "creationTimestamp")
        left = {"metadata": {"name": name, "namespace": namespace, "creationTimestamp": created}}
        yield summaries.observe(Job(dialects.GANG, left), Surroundings(members))
