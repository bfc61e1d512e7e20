"""kubeflow.org PyTorchJob: a pod set for each role, `master` and `worker`. Of an elastic one the workers that it cannot
do without; the rest are parts."""

from collections.abc import Iterator, Mapping, Sequence

from muster.api import conditions, kubeflow
from muster.api.documents import child, text
from muster.api.kinds import Kind
from muster.api.kubeflow.defaults import MASTER, WORKER
from muster.api.kueue import names, sizing
from muster.api.raw import Document
from muster.quota.integrations import injecting, topology
from muster.quota.integrations.contract import Elastic, JobIntegration, NamesPriorityClass, Outcome, PodSetInfo
from muster.quota.integrations.subjects import copied_template

REPLICA_INDEX = "training.kubeflow.org/replica-index"


class PyTorchJobs:
    @property
    def kind(self) -> Kind:
        return kubeflow.PYTORCH_JOB

    def is_suspended(self, job: Document) -> bool:
        return child(job, "spec", "runPolicy").get("suspend") is True

    def pod_sets(self, job: Document) -> list[Document]:
        found = []
        for name, role in _roles(job):
            template = copied_template(child(role, "template"))
            pods: Document = {"name": name.lower(), "template": template, "count": _needed(job, name, role)}
            asked = topology.request(template, index_label=REPLICA_INDEX)
            if asked is not None:
                pods["topologyRequest"] = asked
            found.append(pods)
        return found

    def outcome(self, job: Document) -> Outcome | None:
        for type, succeeded in (("Succeeded", True), ("Failed", False)):
            found = conditions.find_in(job, type)
            if found is not None and found.get("status") == conditions.TRUE:
                return Outcome(succeeded, str(found.get("message") or ""))
        return None

    def is_active(self, job: Document) -> bool:
        status = child(job, "status")
        # Until the job's controller has seen that the job is suspended it may still make pods.
        may_make_more = (
            self.is_suspended(job)
            and status.get("startTime") is not None
            and self.outcome(job) is None
            and not conditions.is_true_in(job, "Suspended")
        )
        return may_make_more or any(_count(job, name, "active") for name, _ in _roles(job))

    def pods_ready(self, job: Document) -> bool:
        return all(
            _count(job, name, "active") + _count(job, name, "succeeded") >= _needed(job, name, role)
            for name, role in _roles(job)
        )

    def reclaimable(self, _job: Document) -> Mapping[str, int]:
        """None: once suspended, all of its pods run again."""
        return {}

    def start(self, job: Document, infos: Sequence[PodSetInfo]) -> Document:
        given = {info.name: info for info in infos}
        templates = {
            name: injecting.inject(child(role, "template"), given[name.lower()])
            for name, role in _roles(job)
            if name.lower() in given
        }
        return _changed(job, templates, is_suspended=False)

    def stop(self, job: Document, originals: Sequence[Document]) -> Document:
        given = {text(original, "name"): child(original, "template") for original in originals}
        templates = {
            name: injecting.restore(child(role, "template"), given[name.lower()])
            for name, role in _roles(job)
            if name.lower() in given
        }
        stopped = _changed(job, templates, is_suspended=True)
        annotations = child(job, "metadata", "annotations")
        if names.ADMITTED_REPLICAS_ANNOTATION not in annotations:
            return stopped
        kept = {name: value for name, value in annotations.items() if name != names.ADMITTED_REPLICAS_ANNOTATION}
        return {**stopped, "metadata": {**child(job, "metadata"), "annotations": kept}}

    def priority_class(self, job: Document) -> str:
        return text(child(job, "spec", "runPolicy", "schedulingPolicy"), "priorityClass")

    # Its size

    def parts(self, job: Document) -> Mapping[str, int]:
        if not _is_elastic(job):
            return {}
        return {name.lower(): _replicas(role) - _needed(job, name, role) for name, role in _roles(job)}

    def sizes(self, job: Document) -> Mapping[str, int] | None:
        return sizing.read_sizes(child(job, "metadata", "annotations"))

    def live(self, job: Document) -> Mapping[str, int]:
        """As its status shows them: a pod that does not run yet is not among them."""
        return {name.lower(): _count(job, name, "active") for name, _ in _roles(job)}

    def resize(self, job: Document, counts: Mapping[str, int]) -> Document:
        metadata = child(job, "metadata")
        told = {names.ADMITTED_REPLICAS_ANNOTATION: sizing.sizes_text(counts)}
        return {**job, "metadata": {**metadata, "annotations": {**child(metadata, "annotations"), **told}}}


def _roles(job: Document) -> Iterator[tuple[str, Document]]:
    """Always in this order."""
    specs = child(job, "spec", "pytorchReplicaSpecs")
    for name in (MASTER, WORKER):
        if name in specs:
            yield name, child(specs, name)


def _replicas(role: Document) -> int:
    found = role.get("replicas")
    return found if isinstance(found, int) else 1


def _is_elastic(job: Document) -> bool:
    """Not where a place in a topology is asked for, since that is found for all at once."""
    if not isinstance(child(job, "spec").get("elasticPolicy"), dict):
        return False
    return not any(topology.is_placed_together(child(role, "template")) for _, role in _roles(job))


def _needed(job: Document, name: str, role: Document) -> int:
    """How few of this role will do."""
    least = child(job, "spec", "elasticPolicy").get("minReplicas")
    if name != WORKER or not isinstance(least, int) or not _is_elastic(job):
        return _replicas(role)
    return min(least, _replicas(role))


def _count(job: Document, role: str, field: str) -> int:
    return child(job, "status", "replicaStatuses", role).get(field) or 0


def _changed(job: Document, templates: Mapping[str, Document], *, is_suspended: bool) -> Document:
    spec = child(job, "spec")
    roles = {
        name: {**role, "template": templates[name]} if name in templates else role
        for name, role in child(spec, "pytorchReplicaSpecs").items()
    }
    policy = {**child(spec, "runPolicy"), "suspend": is_suspended}
    return {**job, "spec": {**spec, "runPolicy": policy, "pytorchReplicaSpecs": roles}}


_conforms: JobIntegration = PyTorchJobs()
_names_class: NamesPriorityClass = PyTorchJobs()
_is_elastic_too: Elastic = PyTorchJobs()
