"""What the API server is told of the webhooks: about which objects to ask, whom, and what to do when nobody answers.

Two rules. What only Muster looks after is refused while nobody answers: made unchecked, or outside of quota, it would
have to be found and stopped later. What a cluster does without Muster never waits for it: pods and jobs without a queue
go through when nobody answers, those of controllers are not asked about at all.
"""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from muster.api import batch, core, kubeflow, kueue, muster, volcano
from muster.api.core.defaults import NAMESPACE_LABEL
from muster.api.kinds import Kind
from muster.api.kueue import names
from muster.api.ownership import CLASS_LABEL, OURS, THEIRS, Ownership
from muster.api.raw import Document
from muster.api.selectors import Operator, Requirement
from muster.api.volcano.defaults import SCHEDULER
from muster.server.admission.answering import MUTATE, VALIDATE
from muster.server.admission.reviewing import Operation

_OURS: Final = (*kueue.KINDS, *volcano.KINDS, kubeflow.PYTORCH_JOB, muster.ALLOCATION)
_SECONDS: Final = 10
_QUEUED: Final = Requirement(names.QUEUE_LABEL, Operator.EXISTS)
_NOT_QUEUED: Final = Requirement(names.QUEUE_LABEL, Operator.DOES_NOT_EXIST)
_IS_BARE: Final = "!object.metadata.?ownerReferences.orValue([]).exists(o, o.?controller.orValue(false))"
_IS_FOR_VOLCANO: Final = f"object.spec.?schedulerName.orValue('') == '{SCHEDULER}'"
_IS_STAYING: Final = "!has(object.metadata.deletionTimestamp)"
"""What is on its way out must be able to go, finalizer by finalizer, whoever is away and whatever is wrong with it."""
_HAS_BAD_CLASS: Final = f"!(object.metadata.labels['{CLASS_LABEL}'] in {sorted((OURS, *THEIRS))})"
_CHANGES_LABELS: Final = "object.metadata.?labels != oldObject.metadata.?labels"


@dataclass(frozen=True, slots=True)
class Address:
    """Where the API server finds the webhooks. `url`: instead of the Service, for a controller outside the cluster."""

    authority: bytes
    namespace: str
    service: str
    url: str = ""

    def client(self, path: str) -> Document:
        bundle = base64.b64encode(self.authority).decode()
        if self.url:
            return {"url": f"{self.url.rstrip('/')}{path}", "caBundle": bundle}
        service = {"namespace": self.namespace, "name": self.service, "path": path, "port": 443}
        return {"service": service, "caBundle": bundle}


@dataclass(frozen=True, slots=True)
class _Hook:
    """`must_answer`: whether the object is refused while nobody answers. `conditions`: expressions that all hold."""

    name: str
    kinds: Sequence[Kind]
    operations: Sequence[Operation]
    must_answer: bool
    labels: Sequence[Requirement] = ()
    conditions: Sequence[str] = ()

    def document(self, address: Address, path: str) -> Document:
        policy: Literal["Fail", "Ignore"] = "Fail" if self.must_answer else "Ignore"
        made: Document = {
            "name": f"{self.name}.muster.dev",
            "clientConfig": address.client(path),
            "rules": [_rule(kind, self.operations) for kind in self.kinds],
            "failurePolicy": policy,
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "timeoutSeconds": _SECONDS,
            "matchPolicy": "Equivalent",
            "namespaceSelector": _selector([_not_in("kube-system", address.namespace)]),
            "objectSelector": _selector(self.labels),
        }
        if self.conditions:
            made["matchConditions"] = [
                {"name": f"condition-{number}", "expression": expression}
                for number, expression in enumerate(self.conditions, 1)
            ]
        return made


def mutating(address: Address, ownership: Ownership, *, steers_pods: bool = False) -> list[Document]:
    """The `webhooks` of the MutatingWebhookConfiguration. `steers_pods`: whether Volcano's resource groups are
    configured, which any pod may fall under."""
    ours = (ownership.by_class,)
    by_default = [_IS_BARE, f"!({_IS_FOR_VOLCANO})"]
    hooks = (
        _Hook("objects", _OURS, ("CREATE", "UPDATE"), True, ours, (_IS_STAYING,)),
        _Hook("queued-jobs", (batch.JOB,), ("CREATE",), True, (_QUEUED, *ours)),
        _Hook("queued-pods", (core.POD,), ("CREATE",), True, (_QUEUED, *ours)),
        _Hook("volcano-pods", (core.POD,), ("CREATE",), True, (_NOT_QUEUED, *ours), (_IS_FOR_VOLCANO,)),
        _Hook("other-jobs", (batch.JOB,), ("CREATE",), False, (_NOT_QUEUED, *ours), (_IS_BARE,)),
        _Hook("other-pods", (core.POD,), ("CREATE",), False, (_NOT_QUEUED, *ours), () if steers_pods else by_default),
    )
    return [hook.document(address, MUTATE) for hook in hooks]


def validating(address: Address, ownership: Ownership) -> list[Document]:
    """The `webhooks` of the ValidatingWebhookConfiguration."""
    ours = (ownership.by_class,)
    classed = Requirement(CLASS_LABEL, Operator.EXISTS)
    hooks = (
        _Hook("objects", _OURS, ("CREATE", "UPDATE"), True, ours, (_IS_STAYING,)),
        _Hook("queues", (volcano.QUEUE,), ("DELETE",), False, ours),
        _Hook("classes", (*_OURS, batch.JOB, core.POD), ("CREATE", "UPDATE"), False, (classed,), (_HAS_BAD_CLASS,)),
        _Hook("queued-pods", (core.POD, batch.JOB), ("UPDATE",), False, (_QUEUED, *ours), (_CHANGES_LABELS,)),
    )
    return [hook.document(address, VALIDATE) for hook in hooks]


def _rule(kind: Kind, operations: Sequence[Operation]) -> Document:
    return {
        "apiGroups": [kind.group],
        "apiVersions": [kind.version],
        "resources": [kind.plural],
        "operations": list(operations),
        "scope": "Namespaced" if kind.namespaced else "Cluster",
    }


def _not_in(*namespaces: str) -> Requirement:
    return Requirement(NAMESPACE_LABEL, Operator.NOT_IN, frozenset(namespaces))


def _selector(requirements: Sequence[Requirement]) -> Document:
    return {"matchExpressions": list(map(_expression, requirements))} if requirements else {}


def _expression(requirement: Requirement) -> Document:
    made: Document = {"key": requirement.key, "operator": requirement.operator.value}
    return {**made, "values": sorted(requirement.values)} if requirement.values else made
