"""What is in a cluster already that an installation must get along with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from muster.api import raw, selectors
from muster.api.documents import child, objects
from muster.api.kinds import Kind
from muster.api.objects import Object
from muster.api.raw import Document
from muster.deploying import definitions, kinds, names
from muster.store.protocol import Selection, Store

_PAGE: Final = 50  # definitions are large

KUEUE: Final = "Kueue"
_NEIGHBOURS: Final[Mapping[str, str]] = {
    KUEUE: "app.kubernetes.io/name=kueue",
    "Volcano": "app in (volcano-controller,volcano-scheduler)",
    "Kubeflow's training operator": "control-plane=kubeflow-training-operator",
}
"""How to tell the controllers of projects whose kinds we look after too, by the labels that they are installed with."""


@dataclass(frozen=True, slots=True)
class Definition:
    """A kind as the API server knows it. `conversion`: how other versions are had. `trouble`: why it is not served."""

    kind: Kind
    is_ours: bool
    is_established: bool
    served: frozenset[str]
    trouble: str = ""
    conversion: Document = field(default_factory=dict)

    @property
    def is_usable(self) -> bool:
        return self.is_established and self.kind.version in self.served


@dataclass(frozen=True, slots=True)
class Neighbour:
    """A controller of somebody else that runs here."""

    project: str
    deployment: str


def is_ours(found: Object) -> bool:
    return (found.meta.labels or {}).get(names.PART_OF) == names.LABELS[names.PART_OF]


async def known_definitions(store: Store) -> Mapping[Kind, Definition]:
    """Those of the kinds that we need, whoever has made them."""
    wanted = {kind.resource: kind for kind in definitions.kinds()}
    found: dict[Kind, Definition] = {}
    token = ""
    while True:
        page = await store.list(Selection(kinds.CUSTOM_RESOURCE_DEFINITION), limit=_PAGE, token=token)
        for item in page.items:
            kind = wanted.get(item.key.name)
            if kind is not None:
                found[kind] = definition(kind, item)
        token = page.token
        if not token:
            return found


def definition(kind: Kind, found: Object) -> Definition:
    document = found.document()
    conditions = list(objects(document, "status", "conditions"))
    refused = [str(each.get("message")) for each in conditions if _is(each, "NamesAccepted", "False")]
    return Definition(
        kind,
        is_ours(found),
        any(_is(each, "Established", "True") for each in conditions),
        frozenset(str(each.get("name")) for each in objects(document, "spec", "versions") if each.get("served")),
        "; ".join(refused),
        child(document, "spec", "conversion"),
    )


async def neighbours(store: Store) -> Sequence[Neighbour]:
    found = []
    for project, labels in _NEIGHBOURS.items():
        listed = await store.list(Selection(kinds.DEPLOYMENT, labels=selectors.parse_labels(labels)))
        found += [
            Neighbour(project, str(item.key))
            for item in listed.items
            if raw.dig(item.document(), "spec", "replicas") != 0 and not is_ours(item)
        ]
    return found


def _is(condition: Document, type_: str, status: str) -> bool:
    return condition.get("type") == type_ and condition.get("status") == status
