"""The store of a Muster server, for components that run away from it: its Kubernetes API, and what that has beyond.

A patch names the version that it was based on in a header, and every write is answered with the object.
"""

import ssl
from dataclasses import replace

from muster.access.credentials import Credential, FileCredentials
from muster.store import wire
from muster.store.connection import Connection, Response
from muster.store.protocol import Patch, Selection, Write, Written
from muster.store.remote import RemoteStore


class HttpStore(RemoteStore):
    """`url` is the server's root, without `/k8s`. `tls`: whom to believe; None for all that this system trusts."""

    def __init__(self, url: str, token: str, *, tls: ssl.SSLContext | None = None) -> None:
        credential = Credential((("Authorization", f"Bearer {token}"),), tls)
        root, asked = f"{url.rstrip('/')}/k8s", {"X-Muster-Return": "object"}
        super().__init__(Connection(root, FileCredentials(lambda: credential), headers=asked))

    async def _from_now_on(self, selection: Selection) -> dict[str, str]:
        del selection
        return {"sendInitialEvents": "false", "resourceVersionMatch": "NotOlderThan"}

    def _request(self, write: Write) -> wire.Request:
        request = wire.request(write)
        if isinstance(write, Patch) and write.based_on is not None:
            return replace(request, headers={"X-Muster-Based-On": str(write.based_on)})
        return request

    def _written(self, write: Write, response: Response, *, is_new: bool) -> Written:
        return Written(
            wire.object_of(write.kind, response.body),
            is_gone=response.headers.get("X-Muster-Gone") == "true",
            is_new=is_new,
            warnings=wire.warnings(response.headers.getall("Warning", ())),
        )
