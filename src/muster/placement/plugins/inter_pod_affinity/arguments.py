"""What a profile may say of InterPodAffinity."""

from dataclasses import dataclass
from typing import Self

from muster.api import fields
from muster.api.errors import FieldError
from muster.api.raw import Document

_KNOWN = ("hardPodAffinityWeight", "ignorePreferredTermsOfExistingPods")
_GREATEST_WEIGHT = 100


@dataclass(frozen=True, slots=True)
class InterPodAffinityArgs:
    hard_pod_affinity_weight: int = 1
    """What a required affinity term of an existing pod counts for the nodes near that pod. 0: nothing."""
    ignore_preferred_terms_of_existing_pods: bool = False
    """Pods without preferences of their own are not scored: cheaper where pods have many."""

    @classmethod
    def from_document(cls, document: Document) -> Self | list[FieldError]:
        known = ", ".join(_KNOWN)
        errors = [
            FieldError(name, "FieldValueForbidden", f"unknown field; InterPodAffinity has {known}")
            for name in document
            if name not in ("apiVersion", "kind", *_KNOWN)
        ]
        weight = document.get("hardPodAffinityWeight")
        ignores = document.get("ignorePreferredTermsOfExistingPods")
        if weight is None:
            weight = 1
        if isinstance(weight, bool) or not isinstance(weight, int):
            errors.append(FieldError("hardPodAffinityWeight", "FieldValueTypeInvalid", "must be a whole number"))
        elif not 0 <= weight <= _GREATEST_WEIGHT:
            message = f"not in valid range [0, {_GREATEST_WEIGHT}]"
            errors.append(fields.invalid("hardPodAffinityWeight", weight, message))
        if ignores is not None and not isinstance(ignores, bool):
            path = "ignorePreferredTermsOfExistingPods"
            errors.append(FieldError(path, "FieldValueTypeInvalid", "must be true or false"))
        return errors or cls(weight, bool(ignores))
