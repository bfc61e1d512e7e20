"""What a node asks an API server of Kubernetes beyond its objects: tokens for its pods, and what callers may do."""

from typing import Final

from muster.agent.kubelet import Caller
from muster.agent.sourcing import Token
from muster.api import core, documents, raw, timestamps
from muster.api.raw import Document
from muster.store import wire
from muster.store.connection import Connection

_AUTHENTICATION: Final = "authentication.k8s.io/v1"
_AUTHORIZATION: Final = "authorization.k8s.io/v1"
_REVIEWS: Final = f"/apis/{_AUTHORIZATION}/subjectaccessreviews"
_DEFAULT_SECONDS: Final = 3600


class ClusterQuestions:
    """`node`: the name of the node that asks."""

    def __init__(self, connection: Connection, node: str) -> None:
        self._connection = connection
        self._node = node

    async def issue(self, pod: core.Pod, wanted: core.ServiceAccountTokenProjection) -> Token:
        """See `sourcing.Issuer`."""
        meta = pod.metadata
        spec: Document = {
            "audiences": [wanted.audience] if wanted.audience else [],
            "expirationSeconds": wanted.expiration_seconds or _DEFAULT_SECONDS,
            "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": meta.name, "uid": meta.uid},
        }
        account = pod.spec.service_account_name or "default"
        path = f"/api/v1/namespaces/{meta.namespace}/serviceaccounts/{account}/token"
        answer = await self._post(path, {"apiVersion": _AUTHENTICATION, "kind": "TokenRequest", "spec": spec})
        issued = documents.child(answer, "status")
        return Token(documents.text(issued, "token"), timestamps.parse(documents.text(issued, "expirationTimestamp")))

    async def permits(self, caller: Caller) -> bool:
        """Whether the cluster lets the caller read what is on this node. Raises ApiError."""
        what = {"verb": "get", "version": "v1", "resource": "nodes", "subresource": "proxy", "name": self._node}
        spec: Document = {"user": caller.name, "groups": list(caller.groups), "resourceAttributes": what}
        answer = await self._post(_REVIEWS, {"apiVersion": _AUTHORIZATION, "kind": "SubjectAccessReview", "spec": spec})
        return documents.child(answer, "status").get("allowed") is True

    async def _post(self, path: str, document: Document) -> Document:
        response = await self._connection.ask(wire.Request("POST", path, raw.encode(document)))
        if response.status >= 400:
            raise wire.error(core.NODE, response.body, response.status)
        return raw.decode_object(response.body)
