"""The kinds of jobs that a platform runs, each with the word that people type for it. Pure.

`job` means any of them: which one is meant is asked only where two have one name.
"""

from dataclasses import dataclass

from muster.api import errors, raw
from muster.api.raw import Document
from muster.sdk import reading, resources
from muster.sdk.resources import Resource

ANY = ("job", "jobs")
"""Words for a job of whatever kind."""


@dataclass(frozen=True, slots=True)
class Dialect:
    word: str
    """What tables show and what goes before the slash: `volcano/train`."""
    resource: Resource
    words: tuple[str, ...] = ()
    """Further words for it, short names of the kind among them."""
    pod_label: str = ""
    """By which its pods name it; empty where pods are found otherwise, or its jobs have them."""
    task_label: str = ""
    """The label by which a pod names its task."""

    def answers_to(self, word: str) -> bool:
        plural, singular = self.resource.plural, self.resource.kind.lower()
        group = self.resource.group
        full = (plural, singular) if self.word not in ("batch", "volcano") else ()  # both are called Job
        return word.lower() in (self.word, *self.words, *full, f"{plural}.{group}", f"{singular}.{group}")


BATCH = Dialect("batch", resources.BATCH_JOBS, pod_label="batch.kubernetes.io/job-name")
VOLCANO = Dialect(
    "volcano", resources.VOLCANO_JOBS, ("vcjob", "vj", "vcjobs"), "volcano.sh/job-name", "volcano.sh/task-spec"
)
PYTORCH = Dialect(
    "pytorch", resources.PYTORCH_JOBS, (), "training.kubeflow.org/job-name", "training.kubeflow.org/replica-type"
)
CRON = Dialect("cron", resources.CRON_JOBS, ("cronvcjob", "cronvj"))
FLOW = Dialect("flow", resources.JOB_FLOWS, ("jf",))
GANG = Dialect("gang", resources.POD_GROUPS, ("pg",))
POD = Dialect("pod", resources.PODS, ("po",))

DIALECTS = (BATCH, VOLCANO, PYTORCH, CRON, FLOW, GANG, POD)
MAKERS = (CRON, FLOW)
"""Those that make jobs of Volcano's rather than pods."""


@dataclass(frozen=True, slots=True)
class Job:
    """A job of any dialect, as it was read."""

    dialect: Dialect
    document: Document

    @property
    def name(self) -> str:
        return reading.text(self.document, "metadata", "name")

    @property
    def namespace(self) -> str:
        return reading.text(self.document, "metadata", "namespace")

    @property
    def uid(self) -> str:
        return reading.text(self.document, "metadata", "uid")

    @property
    def shown(self) -> str:
        """What to type where the name alone is not enough."""
        return f"{self.dialect.word}/{self.name}"


def of_word(word: str) -> Dialect:
    """Raises BadRequest that lists the words."""
    for dialect in DIALECTS:
        if dialect.answers_to(word):
            return dialect
    listed = ", ".join(dialect.word for dialect in DIALECTS)
    raise errors.BadRequest(f"{word!r} is no kind of job; write one of {listed}, or the name alone")


def of_document(document: Document) -> Dialect | None:
    """None for what is no job: a queue, a template, a ConfigMap."""
    found = (document.get("apiVersion"), document.get("kind"))
    return next((entry for entry in DIALECTS if (entry.resource.api_version, entry.resource.kind) == found), None)


def controller(document: Document) -> Document:
    """The reference to what made the object and looks after it; empty where a user made it."""
    for owner in reading.objects(document, "metadata", "ownerReferences"):
        if raw.dig(owner, "controller") is True:
            return owner
    return {}


def is_own(dialect: Dialect, document: Document) -> bool:
    """Whether it is a job by itself: pods and pod groups mostly belong to one."""
    return dialect not in (GANG, POD) or not controller(document)
