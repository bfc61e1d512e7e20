"""Checks of network topology: what jobs and pod groups ask for, and the tree of hypernodes that answers it."""

import re
from collections.abc import Iterator

from muster.api import fields
from muster.api.errors import FieldError
from muster.api.metadata import validate_label_selector
from muster.api.volcano.views import HyperNode, MemberSelector, MemberSpec, NetworkTopologySpec

MODES = ("hard", "soft")
MEMBER_TYPES = ("Node", "HyperNode")
# Volcano reads patterns as RE2 does, which has neither of these; a pattern must mean the same there and here.
_NOT_IN_RE2 = re.compile(r"\(\?(?:=|!|<=|<!|>|\()|\(\?P=|(?<!\\)(?:\\\\)*\\[1-9]|[*+?}]\+")


def validate_network_topology(path: str, topology: NetworkTopologySpec | None) -> Iterator[FieldError]:
    if topology is None:
        return
    yield from fields.one_of(f"{path}.mode", topology.mode, MODES)
    yield from fields.non_negative(f"{path}.highestTierAllowed", topology.highest_tier_allowed)
    if topology.highest_tier_allowed is not None and topology.highest_tier_name:
        yield fields.invalid(
            path,
            topology.highest_tier_name,
            "must not specify 'highestTierAllowed' and 'highestTierName' in networkTopology simultaneously",
        )


def validate_hyper_node(node: HyperNode) -> list[FieldError]:
    return list(_hyper_node(node))


def _hyper_node(node: HyperNode) -> Iterator[FieldError]:
    yield from fields.non_negative("spec.tier", node.spec.tier)
    if not node.spec.members:
        yield fields.required("spec.members", "Required value: member must have at least one member")
    for index, member in enumerate(node.spec.members):
        yield from _member(f"spec.members[{index}]", member, node.metadata.name)


def _member(path: str, member: MemberSpec, owner: str) -> Iterator[FieldError]:
    if not member.type:
        yield fields.required(f"{path}.type")
    else:
        yield from fields.one_of(f"{path}.type", member.type, MEMBER_TYPES)
    selector = member.selector
    yield from _selector(f"{path}.selector", selector)
    if member.type == "HyperNode" and selector.label_match is not None:
        yield fields.forbidden(f"{path}.selector.labelMatch", "only members of type Node can be selected by labels")
    if member.type == "HyperNode" and selector.exact_match is not None and selector.exact_match.name == owner:
        yield fields.invalid(f"{path}.selector.exactMatch.name", owner, "a hypernode cannot be its own member")


def _selector(path: str, selector: MemberSelector) -> Iterator[FieldError]:
    ways = (selector.exact_match, selector.regex_match, selector.label_match)
    if sum(way is not None for way in ways) != 1:
        yield fields.invalid(path, "selector", "exactly one of exactMatch, regexMatch and labelMatch must be set")
    if selector.exact_match is not None:
        yield from fields.dns_subdomain(f"{path}.exactMatch.name", selector.exact_match.name)
    if selector.regex_match is not None:
        yield from _pattern(f"{path}.regexMatch.pattern", selector.regex_match.pattern)
    yield from validate_label_selector(f"{path}.labelMatch", selector.label_match)


def _pattern(path: str, pattern: str) -> Iterator[FieldError]:
    if not pattern:
        yield fields.required(path)
        return
    if _NOT_IN_RE2.search(pattern):
        yield fields.invalid(path, pattern, "lookaround, backreferences and possessive repeats are not supported")
        return
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        yield fields.invalid(path, pattern, f"is not a regular expression: {error}")
