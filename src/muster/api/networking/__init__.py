"""networking.k8s.io: who may talk to whom."""

from muster.api.networking.kinds import KINDS, NETWORK_POLICY
from muster.api.networking.views import (
    IPBlock,
    NetworkPolicy,
    NetworkPolicyEgressRule,
    NetworkPolicyIngressRule,
    NetworkPolicyPeer,
    NetworkPolicyPort,
    NetworkPolicySpec,
)

__all__ = [
    "KINDS",
    "NETWORK_POLICY",
    "IPBlock",
    "NetworkPolicy",
    "NetworkPolicyEgressRule",
    "NetworkPolicyIngressRule",
    "NetworkPolicyPeer",
    "NetworkPolicyPort",
    "NetworkPolicySpec",
]
