"""View of NetworkPolicy."""

from typing import Annotated

import msgspec

from muster.api.meta import ATOMIC, LabelSelector, Resource, View
from muster.api.scalars import Int32, IntOrString


class IPBlock(View, frozen=True):
    """A range of addresses, less some."""

    cidr: str = ""
    except_: Annotated[tuple[str, ...], ATOMIC] = msgspec.field(default=(), name="except")


class NetworkPolicyPeer(View, frozen=True):
    """Whom a rule allows."""

    ip_block: IPBlock | None = None
    namespace_selector: LabelSelector | None = None
    pod_selector: LabelSelector | None = None


class NetworkPolicyPort(View, frozen=True):
    """On which port."""

    end_port: Int32 | None = None
    port: IntOrString | None = None
    protocol: str | None = None


class NetworkPolicyIngressRule(View, frozen=True):
    """Who may come in; without anybody named, all."""

    from_: Annotated[tuple[NetworkPolicyPeer, ...], ATOMIC] = msgspec.field(default=(), name="from")
    ports: Annotated[tuple[NetworkPolicyPort, ...], ATOMIC] = ()


class NetworkPolicyEgressRule(View, frozen=True):
    """Where the pods may go; without anything named, everywhere."""

    ports: Annotated[tuple[NetworkPolicyPort, ...], ATOMIC] = ()
    to: Annotated[tuple[NetworkPolicyPeer, ...], ATOMIC] = ()


class NetworkPolicySpec(View, frozen=True):
    """The pods that it concerns, and what they may do."""

    egress: Annotated[tuple[NetworkPolicyEgressRule, ...], ATOMIC] = ()
    ingress: Annotated[tuple[NetworkPolicyIngressRule, ...], ATOMIC] = ()
    pod_selector: LabelSelector | None = None
    policy_types: Annotated[tuple[str, ...], ATOMIC] = ()


class NetworkPolicy(Resource, frozen=True):
    """Says who may talk to a set of pods, and to whom they may."""

    spec: NetworkPolicySpec = NetworkPolicySpec()
