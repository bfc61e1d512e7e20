"""How an API server learns what it is to pass on to the controllers: an APIService for each version of each group, and
the Service by which it gets there. Pure.

The Service leads to the pod that leads, since only that one's memory has the answers. A controller outside the cluster
is named in it by its address instead.
"""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from muster.api.objects import Object
from muster.api.raw import Document
from muster.deploying import kinds, manifests, names, surroundings
from muster.deploying.slots import Chosen
from muster.deploying.values import Values

_PRIORITY: Final = 100
"""Below that of custom resources: who says `clusterqueues` or `workloads` means those of Kueue."""


@dataclass(frozen=True, slots=True)
class Way:
    """How the API server gets to the controllers. `host` and `port`: of one outside the cluster; else the Service finds
    the pod that leads."""

    namespace: str
    host: str = ""
    port: int = 443

    def service(self) -> Document:
        made = manifests.visibility(Chosen(Values(), self.namespace))
        if self.host:
            made["spec"] = {"type": "ExternalName", "externalName": self.host}
        return made

    def api_services(
        self, versions: Sequence[tuple[str, str]], authorities: bytes, owners: Sequence[Document]
    ) -> list[Document]:
        """Of these groups and versions, the preferred one of a group first. `authorities`: PEM of those who sign our
        certificate."""
        bundle = base64.b64encode(authorities).decode()
        target = {"namespace": self.namespace, "name": names.VISIBILITY, "port": self.port}
        return [
            {
                "apiVersion": kinds.API_SERVICE.api_version,
                "kind": kinds.API_SERVICE.name,
                "metadata": {"name": f"{version}.{group}", "labels": dict(names.LABELS), "ownerReferences": [*owners]},
                "spec": {
                    "group": group,
                    "version": version,
                    "groupPriorityMinimum": _PRIORITY,
                    "versionPriority": _PRIORITY - place,
                    "service": target,
                    "caBundle": bundle,
                },
            }
            for place, (group, version) in enumerate(versions)
        ]


def is_ours(found: Object) -> bool:
    """Whether an APIService leads to controllers of ours. Kueue's own may stand under the same name, or come to."""
    service = found.document()["spec"].get("service") or {}
    return surroundings.is_ours(found) and service.get("name") == names.VISIBILITY


def trouble(found: Object) -> str:
    """Why the API server does not pass anything on; empty where it does."""
    for condition in found.document().get("status", {}).get("conditions", ()):
        if condition.get("type") == "Available":
            said = f"{condition.get('reason', '')}: {condition.get('message', '')}"
            return "" if condition.get("status") == "True" else said
    return "not looked at yet"
