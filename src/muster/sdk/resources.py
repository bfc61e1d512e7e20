"""Which kinds a server has, and where: learnt from its discovery documents, as kubectl does.

Not from `api.everything`: a server may have kinds that this client has never heard of, and
importing every view costs more than the one request.
"""

import difflib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from muster.api import errors, raw
from muster.sdk import reading


@dataclass(frozen=True, slots=True)
class Resource:
    """Where objects of one kind live on the server."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    singular: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def label(self) -> str:
        """How messages name it: `pod`, `podgroup.scheduling.volcano.sh`."""
        word = self.singular or self.kind.lower()
        return f"{word}.{self.group}" if self.group else word

    def path(self, namespace: str | None = None, name: str = "", subresource: str = "") -> str:
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        inside = f"/namespaces/{_segment(namespace)}" if self.namespaced and namespace else ""
        tail = "".join(f"/{_segment(part)}" for part in (name, subresource) if part)
        return f"{root}{inside}/{self.plural}{tail}"


def _segment(text: str) -> str:
    """A name in a path. Names hold no slash; one that does must not reach another path."""
    if "/" in text or text in (".", "..") or not text.isprintable() or "?" in text or "#" in text or "%" in text:
        raise errors.BadRequest(f"{text!r} is not a name: names hold letters, digits, '-' and '.'")
    return text.replace(" ", "%20")


PODS = Resource("", "v1", "pods", "Pod", short_names=("po",))
NODES = Resource("", "v1", "nodes", "Node", namespaced=False, short_names=("no",))
EVENTS = Resource("", "v1", "events", "Event", short_names=("ev",))
CLUSTER_QUEUES = Resource(
    "kueue.x-k8s.io", "v1beta2", "clusterqueues", "ClusterQueue", namespaced=False, short_names=("cq",)
)
LOCAL_QUEUES = Resource("kueue.x-k8s.io", "v1beta2", "localqueues", "LocalQueue", short_names=("lq",))
WORKLOADS = Resource("kueue.x-k8s.io", "v1beta2", "workloads", "Workload", short_names=("wl",))
POD_GROUPS = Resource("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup", short_names=("pg",))
QUEUES = Resource("scheduling.volcano.sh", "v1beta1", "queues", "Queue", namespaced=False, short_names=("q",))
COMMANDS = Resource("bus.volcano.sh", "v1alpha1", "commands", "Command")
BATCH_JOBS = Resource("batch", "v1", "jobs", "Job")
VOLCANO_JOBS = Resource("batch.volcano.sh", "v1alpha1", "jobs", "Job", short_names=("vcjob", "vj"))
CRON_JOBS = Resource("batch.volcano.sh", "v1alpha1", "cronjobs", "CronJob", short_names=("cronvcjob", "cronvj"))
JOB_FLOWS = Resource("flow.volcano.sh", "v1alpha1", "jobflows", "JobFlow", short_names=("jf",))
PYTORCH_JOBS = Resource("kubeflow.org", "v1", "pytorchjobs", "PyTorchJob")


@dataclass(frozen=True, slots=True)
class Selection:
    """Which objects of a kind. `namespace` None: all of them; `labels` and `fields` as kubectl writes selectors."""

    namespace: str | None = None
    labels: str = ""
    fields: str = ""

    def query(self) -> dict[str, str]:
        asked = {"labelSelector": self.labels, "fieldSelector": self.fields}
        return {key: value for key, value in asked.items() if value}


EVERYTHING = Selection()


class Catalog:
    """The kinds of one server, found by what a person types or a document claims."""

    def __init__(self, resources: Iterable[Resource]) -> None:
        self.resources = tuple(resources)

    def find(self, word: str) -> Resource:
        """`pods`, `pod`, `po`, `Pod`, `jobs.batch`, `job.v1alpha1.batch.volcano.sh`. Full names come before short ones
        (`queues` is a short name of another kind), then the first match wins.

        Raises NotFound that lists what there is.
        """
        plain, _, rest = word.lower().partition(".")
        for names_of in (_full_names, _short_names):
            for found in self.resources:
                groups = ("", found.group, f"{found.version}.{found.group}", found.version)
                if plain in names_of(found) and rest in groups:
                    return found
        names = sorted({found.plural for found in self.resources})
        near = difflib.get_close_matches(plain, names, 3)
        hint = f"did you mean {' or '.join(near)}?" if near else f"it has {', '.join(names)}"
        raise errors.NotFound(f"the server has no kind {word!r}; {hint}")

    def has(self, word: str) -> bool:
        """Whether the word means a kind."""
        try:
            self.find(word)
        except errors.NotFound:
            return bool(self.category(word))
        return True

    def category(self, word: str) -> tuple[Resource, ...]:
        """The kinds that belong to a category such as `all`; empty where there is no such category."""
        return tuple(found for found in self.resources if word in found.categories)

    def of_document(self, document: raw.Document) -> Resource:
        """Raises BadRequest for a document that does not say what it is, NotFound for a kind that is not there."""
        api_version, kind = document.get("apiVersion"), document.get("kind")
        if not isinstance(api_version, str) or not isinstance(kind, str) or not kind:
            raise errors.BadRequest("apiVersion and kind are required, for example `apiVersion: v1` and `kind: Pod`")
        for found in self.resources:
            if found.kind == kind and found.api_version == api_version:
                return found
        others = sorted({found.api_version for found in self.resources if found.kind == kind})
        hint = f"; the server has it in {', '.join(others)}" if others else ""
        raise errors.NotFound(f"the server has no kind {kind!r} in version {api_version!r}{hint}")


def _full_names(found: Resource) -> tuple[str, ...]:
    return found.plural, found.singular or found.kind.lower(), found.kind.lower()


def _short_names(found: Resource) -> tuple[str, ...]:
    return found.short_names


def from_discovery(core: raw.Document, groups: raw.Document) -> Catalog:
    """From the aggregated discovery documents of `/api` and `/apis`."""
    return Catalog([*_discovered(core), *_discovered(groups)])


def _discovered(document: raw.Document) -> Iterator[Resource]:
    for group in document.get("items") or ():
        for version in group.get("versions") or ():
            for found in version.get("resources") or ():
                yield Resource(
                    group=reading.text(group, "metadata", "name"),
                    version=str(version["version"]),
                    plural=str(found["resource"]),
                    kind=reading.text(found, "responseKind", "kind"),
                    namespaced=found.get("scope") != "Cluster",
                    singular=str(found.get("singularResource", "")),
                    short_names=tuple(found.get("shortNames") or ()),
                    categories=tuple(found.get("categories") or ()),
                )
