"""CustomResourceDefinitions: how a Kubernetes API server learns of the kinds that it does not have itself.

Made from the registry and the typed views, for our own kinds and for those of Kueue, Volcano and Kubeflow that our
controllers work on. A definition that another project has installed is never replaced by ours: the label tells which
are which.
"""

from collections.abc import Iterator, Mapping

from muster.api import kubeflow, raw
from muster.api.everything import REGISTRY
from muster.api.kinds import Kind
from muster.api.raw import Document
from muster.api.schema import structural
from muster.deploying import columns
from muster.deploying.names import LABELS

# Where the `scale` subresource finds its numbers, as in the project's own definition.
_SCALES: Mapping[Kind, Document] = {
    kubeflow.PYTORCH_JOB: {
        "specReplicasPath": ".spec.pytorchReplicaSpecs.Worker.replicas",
        "statusReplicasPath": ".status.replicaStatuses.Worker.active",
        "labelSelectorPath": ".status.replicaStatuses.Worker.selector",
    }
}


def kinds() -> Iterator[Kind]:
    """Those that need a definition, in the registry's order."""
    return (kind for kind in REGISTRY if not kind.built_in)


def name_of(kind: Kind) -> str:
    return f"{kind.plural}.{kind.group}"


def definition(kind: Kind) -> Document:
    made: Document = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": name_of(kind), "labels": dict(LABELS)},
        "spec": {
            "group": kind.group,
            "names": _names(kind),
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "versions": [_version(kind)],
        },
    }
    return raw.as_object(raw.copy(made))  # YAML would show parts that are shared as such


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
