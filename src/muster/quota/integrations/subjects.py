"""A job as admission sees it, whatever it is made of: one object of some kind, or a group of pods."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from muster.api import raw
from muster.api.documents import child, objects, text
from muster.api.kinds import Kind
from muster.api.kueue import names
from muster.api.raw import Document
from muster.quota.integrations import injecting
from muster.quota.integrations.contract import (
    Elastic,
    JobIntegration,
    NamesPriorityClass,
    NamesQueue,
    Outcome,
    Pausable,
)


@dataclass(frozen=True, slots=True)
class Abilities:
    """What an integration can say beyond what every one can."""

    classes: NamesPriorityClass | None = None
    queues: NamesQueue | None = None
    pauses: Pausable | None = None
    elastic: Elastic | None = None


def abilities(integration: JobIntegration) -> Abilities:
    """To be asked once: a check against a protocol is slow."""
    return Abilities(
        integration if isinstance(integration, NamesPriorityClass) else None,
        integration if isinstance(integration, NamesQueue) else None,
        integration if isinstance(integration, Pausable) else None,
        integration if isinstance(integration, Elastic) else None,
    )


@dataclass(frozen=True, slots=True)
class Span:
    """The size of an elastic job, by pod set."""

    parts: Mapping[str, int]
    """Pods that it wants beyond those that it needs."""
    sizes: Mapping[str, int] | None
    """Pods that it was allowed to have; None: all that it wants."""
    live: Mapping[str, int]
    """Pods that may hold resources now."""
    left: Mapping[str, int] = field(default_factory=dict)
    """Pods that run or are yet to run, once its workload is known."""
    base: Mapping[str, int] = field(default_factory=dict)
    """Pods that it may have without any part, once its workload is known."""
    is_short: bool = False
    """Pods are to run again whose quota was given back, and it needs them."""


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
    own_queue: str = ""
    """The queue that its kind gives it."""
    is_put_aside: bool = False
    """By its user, in a way of its own kind."""
    span: Span | None = None
    """Of an elastic job that is told how many pods it may have."""

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def queue(self) -> str:
        return self.own_queue or self.labels.get(names.QUEUE_LABEL, "")

    @property
    def is_free(self) -> bool:
        """It names no queue: the default one lets everything in, and its user may pause it."""
        return not self.queue and not self.is_pods

    @property
    def is_paused(self) -> bool:
        """By its user: quota has nothing to do with it until it is resumed."""
        is_suspended = self.is_free and self.is_suspended and names.QUEUED_ANNOTATION not in self.annotations
        return is_suspended or self.is_put_aside

    @property
    def is_elastic(self) -> bool:
        return self.span is not None or self.annotations.get(names.ELASTIC_ANNOTATION) == "true"

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

    def sized(self, counts: Mapping[str, int], given_back: Mapping[str, int]) -> "Subject":
        """An elastic job as its workload stands for it: with so many pods of each set, less those whose quota was given
        back. What it wants beyond them are parts; what is done is given back from those first."""
        assert self.span is not None
        span, is_short = self.span, False
        counts = {**self.counts, **counts}
        left: dict[str, int] = {}
        held: dict[str, int] = {}
        for name, least in self.counts.items():
            done, back = self.reclaimable.get(name, 0), given_back.get(name, 0)
            left[name] = max(0, least + span.parts.get(name, 0) - done)
            held[name] = max(0, counts[name] - back)
            is_short |= back > 0 and min(least, counts[name]) - done > held[name]
        return replace(
            self,
            pod_sets=[{**pods, "count": counts[pods["name"]]} for pods in self.pod_sets],
            reclaimable={name: max(0, counts[name] - left[name]) for name in left if self._is_unused(name, left[name])},
            span=replace(
                span,
                parts={name: max(0, left[name] - held[name]) for name in left},
                left=left,
                base={name: min(left[name], held[name]) for name in left},
                is_short=is_short,
            ),
        )

    def _is_unused(self, name: str, left: int) -> bool:
        """Whether it has heard that it may have no more pods of the set than are left to run: else it could make
        others in the place of those that are done."""
        assert self.span is not None
        if self.is_suspended and not self.is_active:
            return True
        sizes = self.span.sizes
        return sizes is not None and sizes.get(name, left + 1) <= left and self.span.live.get(name, 0) <= left

    @property
    def counts(self) -> dict[str, int]:
        """Pods by set."""
        return {pods["name"]: pods.get("count") or 0 for pods in self.pod_sets}

    @property
    def prebuilt(self) -> str:
        return self.annotations.get(names.PREBUILT) or self.labels.get(names.PREBUILT, "")


NO_ABILITIES: Final = Abilities()


def of_job(integration: JobIntegration, job: Document, able: Abilities = NO_ABILITIES) -> Subject:
    """`able`: what the integration is able to say."""
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
        own_class=able.classes.priority_class(job) if able.classes is not None else "",
        is_deleting=metadata.get("deletionTimestamp") is not None,
        own_queue=able.queues.queue(job) if able.queues is not None else "",
        is_put_aside=able.pauses is not None and able.pauses.is_paused(job),
        span=_span(able.elastic, job) if able.elastic is not None else None,
    )


def _span(elastic: Elastic, job: Document) -> Span | None:
    parts = elastic.parts(job)
    return Span(parts, elastic.sizes(job), elastic.live(job)) if parts else None


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
