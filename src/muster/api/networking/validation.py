"""Checks of NetworkPolicy."""

import ipaddress
from collections.abc import Iterable, Iterator

from muster.api import fields
from muster.api.core.validation.containers import PROTOCOLS, validate_port
from muster.api.errors import FieldError
from muster.api.metadata import validate_label_selector
from muster.api.networking.views import IPBlock, NetworkPolicy, NetworkPolicyPeer, NetworkPolicyPort

_TYPES = frozenset({"Ingress", "Egress"})


def validate_policy(policy: NetworkPolicy) -> list[FieldError]:
    return list(_policy(policy))


def _policy(policy: NetworkPolicy) -> Iterator[FieldError]:
    spec = policy.spec
    yield from validate_label_selector("spec.podSelector", spec.pod_selector)
    for index, name in enumerate(spec.policy_types):
        yield from fields.one_of(f"spec.policyTypes[{index}]", name, _TYPES)
    for index, ingress in enumerate(spec.ingress):
        yield from _ports(f"spec.ingress[{index}].ports", ingress.ports)
        yield from _peers(f"spec.ingress[{index}].from", ingress.from_)
    for index, egress in enumerate(spec.egress):
        yield from _ports(f"spec.egress[{index}].ports", egress.ports)
        yield from _peers(f"spec.egress[{index}].to", egress.to)


def _ports(path: str, ports: Iterable[NetworkPolicyPort]) -> Iterator[FieldError]:
    for index, port in enumerate(ports):
        yield from fields.one_of(f"{path}[{index}].protocol", port.protocol, PROTOCOLS)
        if port.port is not None:
            yield from validate_port(f"{path}[{index}].port", port.port)


def _peers(path: str, peers: Iterable[NetworkPolicyPeer]) -> Iterator[FieldError]:
    for index, peer in enumerate(peers):
        at = f"{path}[{index}]"
        is_selecting = peer.pod_selector is not None or peer.namespace_selector is not None
        if peer.ip_block is None and not is_selecting:
            yield fields.required(at, "Required value: must specify a peer")
        if peer.ip_block is not None:
            if is_selecting:
                yield fields.forbidden(at, "may not specify both ipBlock and another peer")
            yield from _block(f"{at}.ipBlock", peer.ip_block)
        yield from validate_label_selector(f"{at}.podSelector", peer.pod_selector)
        yield from validate_label_selector(f"{at}.namespaceSelector", peer.namespace_selector)


def _block(path: str, block: IPBlock) -> Iterator[FieldError]:
    for at, cidr in ((f"{path}.cidr", block.cidr), *((f"{path}.except[{i}]", c) for i, c in enumerate(block.except_))):
        try:
            ipaddress.ip_network(cidr, strict=False)
        except ValueError:
            yield fields.invalid(at, cidr, "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)")
