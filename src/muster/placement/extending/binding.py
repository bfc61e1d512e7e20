"""Bind: an extender may bind the pods it manages in our stead."""

from collections.abc import Sequence

from muster.cluster.pods import PodInfo
from muster.placement.extending import answers
from muster.placement.extending.messages import Ask, ExtenderConfig, Failed, Reply, Verb


def binder_of(extenders: Sequence[ExtenderConfig], pod: PodInfo) -> ExtenderConfig | None:
    """The extender that binds the pod in our stead."""
    return next((one for one in extenders if Verb.BIND in one.verbs and one.is_interested(pod)), None)


def bind_request(extender: ExtenderConfig, pod: PodInfo, node: str) -> Ask:
    document = {"PodName": pod.key.name, "PodNamespace": pod.key.namespace, "PodUID": pod.uid, "Node": node}
    return Ask(extender, Verb.BIND, document)


def apply_bind_answer(extender: ExtenderConfig, reply: Reply) -> Failed | None:
    """None where the pod is bound."""
    if isinstance(reply, Failed):
        return reply
    try:
        answers.check_error(answers.entry(reply.document))
    except answers.Nonsense as nonsense:
        return Failed(f"extender {extender.name}: {nonsense}")
    return None
