"""Preempt: extenders have a say in which pods are evicted.

Finding victims is one plain function that knows nothing of waiting. So it is run with what extenders have said so far;
where it comes to one that has not been asked, it is left, the extender is asked, and it is run again. It is
deterministic: it comes to the same place, and goes on from there.
"""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from muster.api.raw import Document
from muster.cluster.pods import PodInfo
from muster.cluster.state import ClusterState
from muster.placement.extending import answers
from muster.placement.extending.messages import Ask, Documents, ExtenderConfig, Failed, FromColumns, Reply, Verb
from muster.placement.preempting import Candidate, ExtenderFailed, PreemptionExtender
from muster.placement.preempting.victims import alone

T = TypeVar("T")


def preempt_request(
    extender: ExtenderConfig, pod: PodInfo, candidates: Mapping[str, Candidate], documents: Documents
) -> Ask:
    document: Document = {"Pod": documents.pod(pod), "NodeNameToVictims": None, "NodeNameToMetaVictims": None}
    if extender.is_node_cache_capable:
        document["NodeNameToMetaVictims"] = {
            node: _victims([{"UID": victim.uid} for victim in candidate.victims], candidate)
            for node, candidate in candidates.items()
        }
    else:
        document["NodeNameToVictims"] = {
            node: _victims([documents.pod(victim) for victim in candidate.victims], candidate)
            for node, candidate in candidates.items()
        }
    return Ask(extender, Verb.PREEMPT, document)


def _victims(pods: list[Document], candidate: Candidate) -> Document:
    return {"Pods": pods, "NumPDBViolations": candidate.violations}


def apply_preempt_answer(
    extender: ExtenderConfig, candidates: Mapping[str, Candidate], cluster: ClusterState, reply: Reply
) -> Mapping[str, Candidate] | Failed:
    """The candidates that the extender agrees to. It may choose other pods of the same node as victims."""
    if isinstance(reply, Failed):
        return reply
    try:
        victims = answers.field(answers.entry(reply.document), "NodeNameToMetaVictims")
        agreed = {} if victims is None else answers.entry(victims)
        answers.check_asked("agreed to", agreed, candidates)
        return {node: _candidate(candidates[node], answers.entry(chosen), cluster) for node, chosen in agreed.items()}
    except answers.Nonsense as nonsense:
        return Failed(f"extender {extender.name}: {nonsense}")


def _candidate(asked: Candidate, chosen: Document, cluster: ClusterState) -> Candidate:
    slot = cluster.slots.get(asked.node)
    known = {victim.uid: victim for victim in asked.victims}
    if slot is not None:
        known |= cluster.pods_on[slot]
    victims: dict[str, PodInfo] = {}
    for item in answers.items(answers.field(chosen, "Pods"), "Pods"):
        uid = answers.text(answers.entry(item), "UID")
        if uid not in known:
            raise answers.Nonsense(f"wants to evict pod {uid[:64]!r} from node {asked.node!r}, which is not there")
        victims[uid] = known[uid]
    violations = answers.number(chosen, "NumPDBViolations")
    if violations < 0:
        raise answers.Nonsense(f"NumPDBViolations of node {asked.node!r} is {violations}")
    return Candidate(asked.node, _most_important_first(victims.values()), violations)


def _most_important_first(pods: Iterable[PodInfo]) -> tuple[PodInfo, ...]:
    return tuple(sorted(pods, key=lambda pod: alone(pod, pod.priority).importance))


class _Unanswered(BaseException):
    """Finding victims has come to an extender whose answer is not there yet. No error: whoever guards the call of a
    plugin against exceptions must let it pass."""

    def __init__(self, consultant: "Consultant", ask: Ask) -> None:
        super().__init__(ask.extender.name)
        self.consultant = consultant
        self.ask = ask


class Consultant:
    """An extender as preemption meets it. Has something to say only inside `consulting`."""

    def __init__(self, extender: ExtenderConfig) -> None:
        self.extender = extender
        self._context: tuple[ClusterState, Documents] | None = None
        self._said: list[tuple[Document, Reply]] = []

    @property
    def name(self) -> str:
        return self.extender.name

    @property
    def is_ignorable(self) -> bool:
        return self.extender.is_ignorable

    def is_interested(self, pod: PodInfo) -> bool:
        return self.extender.is_interested(pod)

    def begin(self, cluster: ClusterState, documents: Documents) -> None:
        self._context, self._said = (cluster, documents), []

    def hear(self, ask: Ask, reply: Reply) -> None:
        self._said.append((ask.document, reply))

    def end(self) -> None:
        self._context, self._said = None, []

    def process_preemption(self, pod: PodInfo, candidates: Mapping[str, Candidate]) -> Mapping[str, Candidate]:
        if self._context is None:
            raise ExtenderFailed(f"extender {self.name} cannot be asked here")
        cluster, documents = self._context
        ask = preempt_request(self.extender, pod, candidates, documents)
        # More than one: a gang is asked about once for each kind of member, and again after each objection.
        reply = next((reply for document, reply in self._said if document == ask.document), None)
        if reply is None:
            raise _Unanswered(self, ask)
        outcome = apply_preempt_answer(self.extender, candidates, cluster, reply)
        if isinstance(outcome, Failed):
            raise ExtenderFailed(outcome.reason)
        return outcome


@dataclass(frozen=True, slots=True)
class Extending:
    """All extenders of a scheduler."""

    extenders: Sequence[ExtenderConfig] = ()
    """In the order in which they are asked."""
    consultants: Sequence[Consultant] = ()
    """Those of them that have a say in preemption, as its plugin knows them."""


_: PreemptionExtender = Consultant(ExtenderConfig("http://localhost", {}))


def consulting(
    consultants: Sequence[Consultant],
    attempt: Callable[[], T],
    cluster: ClusterState,
    documents: Documents | None = None,
) -> Generator[Ask, Reply, T]:
    """What `attempt` returns when all `consultants` it comes to have answered. It must find the same each time."""
    shown = documents or FromColumns(cluster)
    for consultant in consultants:
        consultant.begin(cluster, shown)
    try:
        while True:
            try:
                return attempt()
            except _Unanswered as question:
                asker, ask = question.consultant, question.ask
            asker.hear(ask, (yield ask))
    finally:
        for consultant in consultants:
            consultant.end()
