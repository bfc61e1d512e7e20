"""Filter and prioritize: which of the nodes that are left an extender lets pass, and how good it finds each."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass

import numpy as np

from muster.api.raw import Document
from muster.cluster.columns import NodeMask
from muster.cluster.pods import PodInfo
from muster.cluster.state import ClusterState
from muster.placement.extending import answers
from muster.placement.extending.messages import (
    Ask,
    Documents,
    ExtenderConfig,
    Failed,
    FromColumns,
    Reply,
    Verb,
)
from muster.placement.framework import MAX_SCORE, NodeScores, Rejection

MAX_PRIORITY = 10
_FILTER_FIELDS = ("Nodes", "NodeNames", "FailedNodes", "FailedAndUnresolvableNodes", "Error")
_MOST_REASONS = 100
_LONGEST_REASON = 256


@dataclass(frozen=True, slots=True, eq=False)
class Filtered:
    nodes: NodeMask
    """Those that are left."""
    rejections: Sequence[Rejection] = ()
    ignored: Sequence[Failed] = ()
    """Failures that count for nothing: somebody may want to log them."""


@dataclass(frozen=True, slots=True, eq=False)
class Prioritized:
    scores: NodeScores
    """To be added to the sum of all plugins' weighted scores."""
    ignored: Sequence[Failed] = ()


def filter_request(
    extender: ExtenderConfig, pod: PodInfo, nodes: NodeMask, cluster: ClusterState, documents: Documents
) -> Ask:
    return _about_nodes(Verb.FILTER, extender, pod, nodes, cluster, documents)


def prioritize_request(
    extender: ExtenderConfig, pod: PodInfo, nodes: NodeMask, cluster: ClusterState, documents: Documents
) -> Ask:
    return _about_nodes(Verb.PRIORITIZE, extender, pod, nodes, cluster, documents)


def _about_nodes(
    verb: Verb, extender: ExtenderConfig, pod: PodInfo, nodes: NodeMask, cluster: ClusterState, documents: Documents
) -> Ask:
    slots = np.flatnonzero(nodes).tolist()
    document: Document = {"Pod": documents.pod(pod), "Nodes": None, "NodeNames": None}
    if extender.is_node_cache_capable:
        document["NodeNames"] = [cluster.names[slot] for slot in slots]
    else:
        items = [documents.node(slot) for slot in slots]
        document["Nodes"] = {"apiVersion": "v1", "kind": "NodeList", "metadata": {}, "items": items}
    return Ask(extender, verb, document)


def apply_filter_answer(
    extender: ExtenderConfig, nodes: NodeMask, cluster: ClusterState, reply: Reply
) -> Filtered | Failed:
    """`nodes`: those that it was asked about."""
    if isinstance(reply, Failed):
        return reply
    asked = {cluster.names[slot]: slot for slot in np.flatnonzero(nodes).tolist()}
    try:
        answer = answers.entry(reply.document)
        answers.check_known(answer, _FILTER_FIELDS)
        answers.check_error(answer)
        passed = answers.passed(answer, extender.is_node_cache_capable)
        failed = answers.reasons(answer, "FailedNodes")
        hopeless = answers.reasons(answer, "FailedAndUnresolvableNodes")
        for what, named in (("passed", passed), ("failed", failed), ("failed for good", hopeless)):
            answers.check_asked(what, named, asked)
    except answers.Nonsense as nonsense:
        return Failed(f"extender {extender.name}: {nonsense}")
    left = np.zeros_like(nodes)
    left[[asked[name] for name in passed]] = True
    rejected = _Rejected(cluster, f"node(s) were rejected by extender {extender.name}")
    for name, slot in asked.items():
        if not left[slot]:
            rejected.note(slot, hopeless.get(name, failed.get(name, "")), name in hopeless)
    return Filtered(left, rejected.rejections())


def apply_prioritize_answer(
    extender: ExtenderConfig, nodes: NodeMask, cluster: ClusterState, reply: Reply
) -> NodeScores | Failed:
    """What is to be added to the nodes' scores. A node that the answer leaves out gets nothing."""
    if isinstance(reply, Failed):
        return reply
    asked = {cluster.names[slot]: slot for slot in np.flatnonzero(nodes).tolist()}
    scores: NodeScores = np.zeros(cluster.width, dtype=np.int64)
    try:
        for item in answers.items(reply.document, "the answer"):
            entry = answers.entry(item)
            host, score = answers.text(entry, "Host"), answers.number(entry, "Score")
            answers.check_asked("scored", (host,), asked)
            if not 0 <= score <= MAX_PRIORITY:
                raise answers.Nonsense(f"scored node {host!r} with {score}, which is not in 0..{MAX_PRIORITY}")
            scores[asked[host]] = score * extender.weight * (MAX_SCORE // MAX_PRIORITY)
    except answers.Nonsense as nonsense:
        return Failed(f"extender {extender.name}: {nonsense}")
    return scores


def filtering(
    extenders: Sequence[ExtenderConfig],
    pod: PodInfo,
    nodes: NodeMask,
    cluster: ClusterState,
    documents: Documents | None = None,
) -> Generator[Ask, Reply, Filtered | Failed]:
    """Asks one extender after the other which of the nodes are left. `nodes`: those that all filters let pass."""
    shown = documents or FromColumns(cluster)
    left, rejections, ignored = nodes, list[Rejection](), list[Failed]()
    for extender in extenders:
        if not left.any():
            break
        if Verb.FILTER not in extender.verbs or not extender.is_interested(pod):
            continue
        reply = yield filter_request(extender, pod, left, cluster, shown)
        outcome = apply_filter_answer(extender, left, cluster, reply)
        if isinstance(outcome, Filtered):
            left = outcome.nodes
            rejections += outcome.rejections
        elif extender.is_ignorable:
            ignored.append(outcome)
        else:
            return outcome
    return Filtered(left, rejections, ignored)


def prioritizing(
    extenders: Sequence[ExtenderConfig],
    pod: PodInfo,
    nodes: NodeMask,
    cluster: ClusterState,
    documents: Documents | None = None,
) -> Generator[Ask, Reply, Prioritized]:
    """The extenders' share of the nodes' scores. One that fails has no say: a pod does not wait for an opinion."""
    shown = documents or FromColumns(cluster)
    scores: NodeScores = np.zeros(cluster.width, dtype=np.int64)
    ignored: list[Failed] = []
    for extender in extenders:
        if Verb.PRIORITIZE not in extender.verbs or not extender.is_interested(pod):
            continue
        reply = yield prioritize_request(extender, pod, nodes, cluster, shown)
        outcome = apply_prioritize_answer(extender, nodes, cluster, reply)
        if isinstance(outcome, Failed):
            ignored.append(outcome)
        else:
            scores += outcome
    return Prioritized(scores, ignored)


class _Rejected:
    """Nodes by what was said of them. An extender may say something else of every node, at any length: that would be a
    mask a node, so it is heard only up to a point."""

    def __init__(self, cluster: ClusterState, unsaid: str) -> None:
        self._cluster, self._unsaid = cluster, unsaid
        self._masks: dict[tuple[str, bool], NodeMask] = {}

    def note(self, slot: int, reason: str, is_hopeless: bool) -> None:
        key = (reason[:_LONGEST_REASON] or self._unsaid, is_hopeless)
        if key not in self._masks and len(self._masks) >= _MOST_REASONS:
            key = (self._unsaid, is_hopeless)
        mask = self._masks.get(key)
        if mask is None:
            mask = self._masks[key] = self._cluster.mask()
        mask[slot] = True

    def rejections(self) -> Sequence[Rejection]:
        return [Rejection(reason, mask, is_hopeless) for (reason, is_hopeless), mask in self._masks.items()]
