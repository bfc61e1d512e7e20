"""Whose a pod is: a job takes in pods that its selector matches and nobody controls, and lets go of those that it no
longer matches."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from muster.api import batch, selectors
from muster.api.objects import Object


@dataclass(frozen=True, slots=True)
class Claims:
    kept: Sequence[Object]
    adopted: Sequence[Object]
    disowned: Sequence[Object]


def claims(job: batch.Job, owned: Iterable[Object], lone: Iterable[Object]) -> Claims:
    """`owned`: pods that the job controls; `lone`: those of its namespace that nobody does."""
    if job.spec.selector is None:
        return Claims(list(owned), (), ())
    selector = selectors.from_view(job.spec.selector)
    wanted = (job.spec.selector.match_labels or {}).items()
    is_plain = not job.spec.selector.match_expressions  # then comparing the labels is enough, and much faster
    kept: list[Object] = []
    disowned: list[Object] = []
    for pod in owned:
        labels = pod.meta.labels or {}
        is_match = wanted <= labels.items() if is_plain else selector.matches(labels)
        (kept if is_match else disowned).append(pod)
    if job.metadata.deletion_timestamp is not None:
        return Claims(kept, (), disowned)
    adopted = [pod for pod in lone if not pod.is_terminating and selector.matches(pod.meta.labels or {})]
    return Claims(kept, adopted, disowned)
