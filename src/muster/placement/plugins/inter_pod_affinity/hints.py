"""Which changes may make a pod schedulable that InterPodAffinity rejected."""

from collections.abc import Sequence

from muster.api import core
from muster.api.meta import Resource
from muster.cluster.affinity_terms import AffinityTerm, PodTerms, parse, selection, terms_of
from muster.cluster.pods import NO_LABELS, PodInfo
from muster.cluster.state import ClusterState
from muster.placement.framework import Hint
from muster.placement.plugins import changes

NO_TERMS = PodTerms()


def after_own_label_change(_pod: PodInfo, _old: Resource | None, _new: Resource | None, _cluster: ClusterState) -> Hint:
    """Other pods may have had anti-affinity to the old labels and none to the new ones."""
    return Hint.QUEUE


def after_pod_change(pod: PodInfo, old: Resource | None, new: Resource | None, cluster: ClusterState) -> Hint:
    before, now = changes.both(core.Pod, old, new)
    if before is not None and now is not None and now.metadata.uid == pod.uid:
        return after_own_label_change(pod, before, now, cluster)
    if not all(_has_place(other) for other in (before, now) if other is not None):
        return Hint.SKIP
    terms = terms_of(pod)
    if terms.error is not None:
        raise TypeError(f"parsing pod: {terms.error}")
    if now is not None:
        return _after_arrival(terms, before, now, cluster)
    if before is None:
        return Hint.SKIP
    return Hint.QUEUE if _is_relief(pod, terms, before, cluster) else Hint.SKIP


def _after_arrival(terms: PodTerms, before: core.Pod | None, now: core.Pod, cluster: ClusterState) -> Hint:
    """A pod was added or has other labels: all affinity terms select it now, or no anti-affinity term any more."""
    was_near = before is not None and _all_select(terms.affinity, before, cluster)
    if not was_near and _all_select(terms.affinity, now, cluster):
        return Hint.QUEUE
    was_hated = before is not None and _any_selects(terms.anti_affinity, before, cluster)
    return Hint.QUEUE if was_hated and not _any_selects(terms.anti_affinity, now, cluster) else Hint.SKIP


def _is_relief(pod: PodInfo, terms: PodTerms, gone: core.Pod, cluster: ClusterState) -> bool:
    """Whether one of the two pods had anti-affinity to the other."""
    if _any_selects(terms.anti_affinity, gone, cluster):
        return True
    theirs = parse(gone.spec.affinity, gone.metadata.namespace) if gone.spec.affinity else NO_TERMS
    labels = cluster.namespaces.labels_of(pod.namespace)
    return any(term.selects(pod.namespace, pod.labels, labels) for term in theirs.anti_affinity)


def after_node_change(pod: PodInfo, old: Resource | None, new: Resource | None, _cluster: ClusterState) -> Hint:
    before, now = changes.after(core.Node, old, new)
    terms = terms_of(pod)
    if terms.error is not None:
        raise TypeError(f"parsing pod: {terms.error}")
    if before is None and terms.anti_affinity:  # it may be in a domain of its own, or in none
        return Hint.QUEUE
    earlier = (before.metadata.labels if before is not None else None) or NO_LABELS
    labels = now.metadata.labels or NO_LABELS
    for term in terms.affinity:  # the node has come to another domain
        if term.topology_key in labels and labels[term.topology_key] != earlier.get(term.topology_key):
            return Hint.QUEUE
    for term in terms.anti_affinity:  # the node has left its domain
        if term.topology_key in earlier and earlier[term.topology_key] != labels.get(term.topology_key):
            return Hint.QUEUE
    return Hint.SKIP


def _has_place(pod: core.Pod) -> bool:
    return bool(pod.spec.node_name or pod.status.nominated_node_name)


def _all_select(terms: Sequence[AffinityTerm], other: core.Pod, cluster: ClusterState) -> bool:
    chosen = selection(terms, cluster.namespaces)
    return bool(terms) and chosen(other.metadata.namespace, other.metadata.labels or NO_LABELS)


def _any_selects(terms: Sequence[AffinityTerm], other: core.Pod, cluster: ClusterState) -> bool:
    return any(_all_select((term,), other, cluster) for term in terms)
