"""A job as admission sees it, whatever it is made of: one object of some kind, or a group of pods."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from muster.api import raw
from muster.api.documents import child, objects, text
from muster.api.kinds import Kind
from muster.api.kueue import names
from muster.api.raw import Document
from muster.quota.integrations import injecting
from muster.quota.integrations.contract import JobIntegration, NamesPriorityClass, Outcome


@dataclass(frozen=True, slots=True, eq=False)
class Subject:
    kind: Kind
    namespace: str
    name: str
    uid: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    owners: Sequence[Document]
    """`metadata.ownerReferences` of its workload."""
    pod_sets: Sequence[Document]
    is_suspended: bool
    is_active: bool
    are_pods_ready: bool = False
    outcome: Outcome | None = None
    reclaimable: Mapping[str, int] = field(default_factory=dict)
    generation: int = 0
    own_class: str = ""
    """The class of pods that the job names itself."""
    is_deleting: bool = False
    is_pods: bool = False
    """Made of pods that nothing makes anew: what is stopped is gone."""
    workload_name: str = ""
    """Where it is not made up from the job's name."""
    workload_annotations: Mapping[str, str] = field(default_factory=dict)
    waits_for_pods: bool | None = None
    """Of a group: pods that have gone must come back before it can be admitted. None: no such question."""
    has_held: bool = False
    """Of a group: some pods are held back, whatever the others do."""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def queue(self) -> str:
        return self.labels.get(names.QUEUE_LABEL, "")

    @property
    def is_free(self) -> bool:
        """It names no queue: the default one lets everything in, and its user may pause it."""
        return not self.queue and not self.is_pods

    @property
    def is_paused(self) -> bool:
        """By its user: quota has nothing to do with it until it is resumed."""
        return self.is_free and self.is_suspended and names.QUEUED_ANNOTATION not in self.annotations

    @property
    def is_elastic(self) -> bool:
        return self.annotations.get(names.ELASTIC_ANNOTATION) == "true"

    @property
    def is_injected(self) -> bool:
        """Its pod templates have what an earlier admission gave them."""
        return any(injecting.is_injected(pods["template"]) for pods in self.pod_sets)

    def restored(self, originals: Sequence[Document]) -> "Subject":
        """With its pod templates as they were before an admission gave them anything."""
        known = {pods.get("name"): child(pods, "template") for pods in originals}
        pod_sets = [
            {**pods, "template": injecting.restore(pods["template"], known[pods["name"]])}
            if pods["name"] in known
            else pods
            for pods in self.pod_sets
        ]
        return replace(self, pod_sets=pod_sets)

    @property
    def prebuilt(self) -> str:
        return self.annotations.get(names.PREBUILT) or self.labels.get(names.PREBUILT, "")


def of_job(integration: JobIntegration, job: Document, classes: NamesPriorityClass | None = None) -> Subject:
    """`classes`: the integration itself, where it can say which class its jobs are of."""
    metadata = child(job, "metadata")
    return Subject(
        kind=integration.kind,
        namespace=text(metadata, "namespace"),
        name=text(metadata, "name"),
        uid=text(metadata, "uid"),
        labels=child(metadata, "labels"),
        annotations=child(metadata, "annotations"),
        owners=(owner_reference(integration.kind, metadata),),
        pod_sets=[_without_repeated_variables(pods) for pods in integration.pod_sets(job)],
        is_suspended=integration.is_suspended(job),
        is_active=integration.is_active(job),
        are_pods_ready=integration.pods_ready(job),
        outcome=integration.outcome(job),
        reclaimable=integration.reclaimable(job),
        generation=metadata.get("generation") or 0,
        own_class=classes.priority_class(job) if classes is not None else "",
        is_deleting=metadata.get("deletionTimestamp") is not None,
    )


def owner_reference(kind: Kind, metadata: Document, *, is_controller: bool = True) -> Document:
    reference: Document = {
        "apiVersion": kind.api_version,
        "kind": kind.name,
        "name": text(metadata, "name"),
        "uid": text(metadata, "uid"),
    }
    if is_controller:
        reference |= {"controller": True, "blockOwnerDeletion": True}
    return reference


def _without_repeated_variables(pods: Document) -> Document:
    """The last of each name counts, as for the processes; a Workload may not hold two."""
    for part in ("initContainers", "containers"):
        for container in objects(pods, "template", "spec", part):
            listed = list(objects(container, "env"))
            last = {variable.get("name"): variable for variable in listed}
            if len(last) < len(listed):
                container["env"] = list(last.values())
    return pods


def copied_template(template: Document) -> Document:
    """What of a pod template a Workload keeps."""
    metadata = child(template, "metadata")
    kept: Document = {part: metadata[part] for part in ("labels", "annotations") if metadata.get(part)}
    made: Document = raw.copy({"metadata": kept, "spec": child(template, "spec")})
    return made
