"""Who may do what: one small table of rules, which the server enforces and the review APIs show.

An administrator may do everything. A node may read what it runs, report on itself
and on its own pods, and nothing else. A user may what the rules say that came with the identity.
"""

import base64
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from hmac import compare_digest
from typing import Protocol

from muster.api import core, errors, raw
from muster.api.objects import Object
from muster.api.raw import Document

ADMINISTRATORS = "system:masters"
NODES = "system:nodes"
_NODE_PREFIX = "system:node:"


class Role(StrEnum):
    ADMIN = "admin"
    NODE = "node"


@dataclass(frozen=True, slots=True)
class Identity:
    """Who is asking. `node` is the one that an agent speaks for; empty for a token that lets any node join. `rules`:
    what is allowed beyond the role."""

    name: str
    role: Role | None
    groups: tuple[str, ...] = ("system:authenticated",)
    node: str = ""
    rules: "tuple[Rule, ...]" = ()


def administrator(name: str = "admin") -> Identity:
    return Identity(name, Role.ADMIN, (ADMINISTRATORS, "system:authenticated"))


def a_node(name: str = "") -> Identity:
    return Identity(
        f"{_NODE_PREFIX}{name}" if name else "system:bootstrap", Role.NODE, (NODES, "system:authenticated"), name
    )


class Authenticator(Protocol):
    def authenticate(self, headers: Mapping[str, str]) -> Identity | None:
        """Who sent these headers (names in lower case); None for nobody we know."""
        ...


class TokenAuthenticator:
    """Tokens, compared in constant time. They come as Bearer, or as the password of Basic: kubectl sends no token over
    plain HTTP, but it does send what stands in the server's URL (`http://admin:<token>@127.0.0.1:7077/k8s`).
    `node_of`: which node's own a token is; None for nobody's."""

    def __init__(self, tokens: Mapping[str, Identity], node_of: Callable[[str], str | None] | None = None) -> None:
        self._tokens = [(token.encode(), identity) for token, identity in tokens.items() if token]
        self._node_of = node_of

    def authenticate(self, headers: Mapping[str, str]) -> Identity | None:
        sent = sent_token(headers.get("authorization", ""))
        if not sent:
            return None
        found: Identity | None = None
        for known, identity in self._tokens:  # all of them, always: the time taken tells nothing
            if compare_digest(known, sent):
                found = identity
        if found is None and self._node_of is not None:
            node = self._node_of(sent.decode("latin-1"))
            return None if node is None else a_node(node)
        return found


def sent_token(header: str) -> bytes:
    """As Bearer, or as the password of Basic. Empty for anything else."""
    scheme, _, credentials = header.partition(" ")
    encoded = credentials.strip().encode("latin-1", "replace")
    match scheme.lower():
        case "bearer":
            return encoded
        case "basic":
            try:
                return base64.b64decode(encoded, validate=True).partition(b":")[2]
            except ValueError:
                return b""
    return b""


@dataclass(frozen=True, slots=True)
class Attributes:
    """What is asked for. `resource` includes the subresource: `pods/log`. `name` is empty where none is known yet."""

    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Rule:
    verbs: tuple[str, ...]
    groups: tuple[str, ...]
    resources: tuple[str, ...]
    namespace: str = ""
    """Only there; empty for anywhere."""
    only_own: bool = False
    """Only the object that bears the node's own name."""

    def allows(self, identity: Identity, asked: Attributes) -> bool:
        return (
            _covers(self.verbs, asked.verb)
            and _covers(self.groups, asked.group)
            and _covers(self.resources, asked.resource)
            and self.namespace in ("", asked.namespace)
            and not (self.only_own and identity.node and asked.name and asked.name != identity.node)
        )


def _covers(listed: tuple[str, ...], asked: str) -> bool:
    return "*" in listed or asked in listed


_READ = ("get", "list", "watch")
_SELF_REVIEWS = (
    Rule(("create",), ("authorization.k8s.io",), ("selfsubjectaccessreviews", "selfsubjectrulesreviews")),
    Rule(("create",), ("authentication.k8s.io",), ("selfsubjectreviews",)),
)
RULES: Mapping[Role | None, tuple[Rule, ...]] = {
    Role.ADMIN: (Rule(("*",), ("*",), ("*",)),),
    Role.NODE: (
        Rule(_READ, ("",), ("nodes", "pods", "services", "configmaps", "secrets", "namespaces")),
        Rule(_READ, ("scheduling.k8s.io",), ("priorityclasses",)),
        Rule(("create", "update", "patch", "delete"), ("",), ("nodes", "nodes/status"), only_own=True),
        # Whether a pod is the node's own is in the pod, not in its name: see `check_pod`.
        Rule(("delete",), ("",), ("pods",)),
        Rule(("update", "patch"), ("",), ("pods/status",)),
        Rule(
            (*_READ, "create", "update", "patch", "delete"), ("coordination.k8s.io",), ("leases",),
            namespace="kube-node-lease", only_own=True,
        ),
        Rule(("get", "create", "update", "patch"), ("", "events.k8s.io"), ("events",)),
        *_SELF_REVIEWS,
    ),
    None: _SELF_REVIEWS,
}  # fmt: skip


def rules_of(identity: Identity) -> tuple[Rule, ...]:
    return RULES[identity.role] + identity.rules


def allows(identity: Identity, asked: Attributes) -> bool:
    return any(rule.allows(identity, asked) for rule in rules_of(identity))


def check(identity: Identity, asked: Attributes) -> None:
    """Raises Forbidden."""
    if not allows(identity, asked):
        raise refusal(identity.name, asked)


def refusal(user: str, asked: Attributes) -> errors.Forbidden:
    """Worded as Kubernetes words it."""
    where = f'in the namespace "{asked.namespace}"' if asked.namespace else "at the cluster scope"
    subject = f'{asked.resource} "{asked.name}" is forbidden' if asked.name else f"{asked.resource} is forbidden"
    return errors.Forbidden(
        f'{subject}: User "{user}" cannot {asked.verb} resource "{asked.resource}" in API group '
        f'"{asked.group}" {where}',
        kind=asked.resource, name=asked.name, group=asked.group,
    )  # fmt: skip


def check_pod(identity: Identity, pod: Object, verb: str) -> None:
    """A node may only touch pods that are bound to it. Raises Forbidden."""
    if identity.role is not Role.NODE or not identity.node:
        return
    bound = pod.read(core.Pod).spec.node_name or ""
    if bound != identity.node:
        where = f"bound to node {bound}" if bound else "not bound to a node"
        raise errors.Forbidden(
            f'pods "{pod.key.name}" is forbidden: node "{identity.node}" can only {verb} pods that are bound to it; '
            f"this one is {where}",
            kind="pods", name=pod.key.name,
        )  # fmt: skip


# The review APIs

REVIEWS: Mapping[tuple[str, str], str] = {
    ("authorization.k8s.io", "selfsubjectaccessreviews"): "SelfSubjectAccessReview",
    ("authorization.k8s.io", "selfsubjectrulesreviews"): "SelfSubjectRulesReview",
    ("authorization.k8s.io", "subjectaccessreviews"): "SubjectAccessReview",
    ("authorization.k8s.io", "localsubjectaccessreviews"): "LocalSubjectAccessReview",
    ("authentication.k8s.io", "selfsubjectreviews"): "SelfSubjectReview",
}
"""Served as create-only resources of version v1: (group, plural) -> kind."""


def review(kind: str, sent: Document, identity: Identity) -> Document:
    """The review with its status filled in."""
    spec = sent.get("spec")
    if spec is None:
        spec = {}
    if not isinstance(spec, dict):
        raise errors.BadRequest(f"spec: expected an object, found {raw.type_name(spec)}")
    match kind:
        case "SelfSubjectReview":
            status: Document = {"userInfo": {"username": identity.name, "groups": list(identity.groups)}}
        case "SelfSubjectRulesReview":
            status = {
                "resourceRules": list(_shown_rules(identity)),
                "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["*"]}],
                "incomplete": False,
            }
        case "SelfSubjectAccessReview":
            status = _verdict(identity, spec)
        case _:
            status = _verdict(_subject(spec), spec)
    return {**sent, "status": status}


def _shown_rules(identity: Identity) -> Iterator[Document]:
    for rule in rules_of(identity):
        shown: Document = {
            "verbs": list(rule.verbs), "apiGroups": list(rule.groups), "resources": list(rule.resources),
        }  # fmt: skip
        if rule.only_own and identity.node:
            shown["resourceNames"] = [identity.node]
        yield shown


def _subject(spec: Document) -> Identity:
    """The identity that a review names, told by its groups as a token's identity would be."""
    name, groups = str(spec.get("user") or ""), tuple(map(str, spec.get("groups") or ()))
    if ADMINISTRATORS in groups or name == "admin":
        return Identity(name, Role.ADMIN, groups)
    if NODES in groups or name.startswith(_NODE_PREFIX):
        return Identity(
            name, Role.NODE, groups, name.removeprefix(_NODE_PREFIX) if name.startswith(_NODE_PREFIX) else ""
        )
    return Identity(name, None, groups)


def _verdict(identity: Identity, spec: Document) -> Document:
    asked = spec.get("resourceAttributes")
    if not isinstance(asked, dict):
        path = spec.get("nonResourceAttributes")
        if not isinstance(path, dict):
            raise errors.invalid(
                "SelfSubjectAccessReview", "",
                [errors.FieldError("spec.resourceAttributes", "FieldValueRequired", "Required value: exactly one of "
                                   "nonResourceAttributes or resourceAttributes must be specified")],
                group="authorization.k8s.io",
            )  # fmt: skip
        return {"allowed": identity.role is Role.ADMIN or path.get("verb") == "get"}

    def part(name: str) -> str:
        return str(asked.get(name) or "")

    resource = f"{part('resource')}/{part('subresource')}" if part("subresource") else part("resource")
    attributes = Attributes(part("verb"), part("group"), resource, part("namespace"), part("name"))
    if allows(identity, attributes):
        return {"allowed": True, "reason": f'role "{identity.role}" allows it'}
    return {"allowed": False, "reason": f'role "{identity.role or "none"}" does not allow it'}
