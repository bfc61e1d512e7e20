"""CustomResourceDefinitions: how a Kubernetes API server learns of the kinds that it does not have itself.

Made from the registry and the typed views, for our own kinds and for those of Kueue, Volcano and Kubeflow that our
controllers work on. A definition that another project has installed is never replaced by ours: the label tells which
are which.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from muster.api import kubeflow, raw
from muster.api.everything import REGISTRY
from muster.api.kinds import Kind
from muster.api.raw import Document
from muster.api.schema import structural
from muster.deploying import columns, names

# Where the `scale` subresource finds its numbers, as in the project's own definition.
_SCALES: Mapping[Kind, Document] = {
    kubeflow.PYTORCH_JOB: {
        "specReplicasPath": ".spec.pytorchReplicaSpecs.Worker.replicas",
        "statusReplicasPath": ".status.replicaStatuses.Worker.active",
        "labelSelectorPath": ".status.replicaStatuses.Worker.selector",
    }
}

CONVERT: Final = "/convert"
"""Where the controllers answer for it. They put the address right where it is another one, and say whom to believe."""
_SERVICE: Final[Document] = {"namespace": names.NAMESPACE, "name": names.WEBHOOK, "path": CONVERT, "port": 443}


def kinds() -> Iterator[Kind]:
    """Those that need a definition, in the registry's order."""
    return (kind for kind in REGISTRY if not kind.built_in)


def definition(kind: Kind) -> Document:
    made: Document = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": kind.resource, "labels": dict(names.LABELS)},
        "spec": {
            "group": kind.group,
            "names": _names(kind),
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "versions": [_version(kind), *(_older(kind, each.version) for each in kind.conversions)],
        },
    }
    if kind.conversions:
        made["spec"]["conversion"] = conversion({"service": _SERVICE})
    return raw.as_object(raw.copy(made))  # YAML would show parts that are shared as such


def conversion(client: Document) -> Document:
    """How the API server gets at versions that are not stored. `client`: whom to ask."""
    return {"strategy": "Webhook", "webhook": {"clientConfig": client, "conversionReviewVersions": ["v1"]}}


def _names(kind: Kind) -> Document:
    names: Document = {
        "kind": kind.name,
        "listKind": f"{kind.name}List",
        "plural": kind.plural,
        "singular": kind.name.lower(),
    }
    if kind.short_names:
        names["shortNames"] = list(kind.short_names)
    if kind.categories:
        names["categories"] = list(kind.categories)
    return names


def _version(kind: Kind) -> Document:
    subresources: Document = {"status": {}} if kind.has_status else {}
    if kind in _SCALES:
        subresources["scale"] = _SCALES[kind]
    found: Document = {
        "name": kind.version,
        "served": True,
        "storage": True,
        "additionalPrinterColumns": columns.of(kind),
        "schema": {"openAPIV3Schema": structural.schema(kind.view)},
    }
    return {**found, "subresources": subresources} if subresources else found


def _older(kind: Kind, version: str) -> Document:
    """Only the version that is stored is described by a view."""
    subresources: Document = {"subresources": {"status": {}}} if kind.has_status else {}
    schema = {"openAPIV3Schema": structural.opaque(kind.view)}
    return {"name": version, "served": True, "storage": False, "deprecated": True, "schema": schema, **subresources}
