"""The kinds of networking.k8s.io as the platform stores and serves them. Nodes of our own do not enforce them."""

from muster.api.documents import drop_nulls, fill, made_child, objects
from muster.api.kinds import Kind
from muster.api.networking import validation, views
from muster.api.raw import Document


def _default_policy(document: Document) -> None:
    drop_nulls(document)
    spec = made_child(document, "spec")
    fill(spec, "policyTypes", ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"])
    for rules in ("ingress", "egress"):
        for rule in objects(spec, rules):
            for port in objects(rule, "ports"):
                fill(port, "protocol", "TCP")


NETWORK_POLICY = Kind(
    group="networking.k8s.io",
    version="v1",
    name="NetworkPolicy",
    plural="networkpolicies",
    view=views.NetworkPolicy,
    short_names=("netpol",),
    subresources=frozenset(),
    built_in=True,
    default=_default_policy,
    validate=validation.validate_policy,
)

KINDS = (NETWORK_POLICY,)
