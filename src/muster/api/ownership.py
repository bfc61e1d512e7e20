"""Whose an object is, where several systems may look after the same kinds: the label `muster.dev/class`.

On a cluster where Kueue or Volcano run beside Muster, both would admit, start and delete the same objects. The label
says who does: `muster`, or the name of the other. It is written as a selector that a server can apply by itself: an
object which changes hands comes and goes in a watch like any other. Selectors have no "or", which is why the others
must be known by name: what has a class that is none of these is refused at admission (`problems`).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from muster.api import batch, core, fields
from muster.api.documents import child, text
from muster.api.errors import FieldError
from muster.api.kinds import Kind
from muster.api.kueue import names
from muster.api.raw import Document
from muster.api.selectors import LabelSelector, Operator, Requirement

CLASS_LABEL: Final = "muster.dev/class"
OURS: Final = "muster"
THEIRS: Final = ("kubeflow", "kueue", "none", "volcano")
"""The values that give an object to somebody else, or to nobody."""
_SHARED_GROUPS: Final = ("kueue.x-k8s.io", "kubeflow.org")
_SHARED_SUFFIX: Final = ".volcano.sh"
_IN_A_QUEUE: Final = Requirement(names.QUEUE_LABEL, Operator.EXISTS)


class Unlabelled(StrEnum):
    """To whom an object without the label belongs."""

    OURS = "ours"
    THEIRS = "theirs"


@dataclass(frozen=True, slots=True)
class Ownership:
    """Which objects of the kinds that others know as well are looked after here."""

    unlabelled: Unlabelled = Unlabelled.OURS

    def narrow(self, kind: Kind, labels: LabelSelector) -> LabelSelector:
        """The selector, for what is ours of that."""
        if not is_shared(kind) and not _are_managed_pods(kind, labels):
            return labels
        return LabelSelector((*labels.requirements, *self._requirements(kind)), labels.nothing)

    def owns(self, kind: Kind, labels: Mapping[str, str]) -> bool:
        return not is_shared(kind) or all(requirement.matches(labels) for requirement in self._requirements(kind))

    def claims(self, labels: Mapping[str, str]) -> bool:
        """Whether an object of any kind is ours by its class."""
        return self.by_class.matches(labels)

    def label(self, kind: Kind, document: Document) -> Document:
        """The new object with our label, where it needs one and says nothing itself."""
        if not is_shared(kind) or CLASS_LABEL in child(document, "metadata", "labels"):
            return document
        metadata = child(document, "metadata")
        labels = {**child(metadata, "labels"), CLASS_LABEL: OURS}
        return {**document, "metadata": {**metadata, "labels": labels}}

    def _requirements(self, kind: Kind) -> tuple[Requirement, ...]:
        # A cluster has jobs of its own, which nobody meant to queue.
        return (_IN_A_QUEUE, self.by_class) if kind is batch.JOB else (self.by_class,)

    @property
    def by_class(self) -> Requirement:
        """The part of a selector that keeps what is ours by its class."""
        if self.unlabelled is Unlabelled.THEIRS:
            return Requirement(CLASS_LABEL, Operator.IN, frozenset({OURS}))
        return Requirement(CLASS_LABEL, Operator.NOT_IN, frozenset(THEIRS))


EVERYTHING: Final = Ownership()
"""All but what is labelled as somebody else's."""


def is_shared(kind: Kind) -> bool:
    """Whether others look after objects of that kind as well. Jobs of Kubernetes are among them, where they name a
    queue: quota suspends and resumes them. Pods are not: who schedules them says `spec.schedulerName`, and all of them
    take room."""
    return kind is batch.JOB or kind.group in _SHARED_GROUPS or kind.group.endswith(_SHARED_SUFFIX)


def _are_managed_pods(kind: Kind, labels: LabelSelector) -> bool:
    """Those that queue: another quota system marks its own in the same way."""
    return kind is core.POD and any(requirement.key == names.MANAGED for requirement in labels.requirements)


def problems(document: Document) -> Iterator[FieldError]:
    """What is wrong with the label."""
    labels = child(document, "metadata", "labels")
    if CLASS_LABEL in labels and text(labels, CLASS_LABEL) not in (OURS, *THEIRS):
        yield fields.unsupported(f"metadata.labels[{CLASS_LABEL}]", text(labels, CLASS_LABEL), (OURS, *THEIRS))
