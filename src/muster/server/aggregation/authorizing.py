"""Whether a caller may: the cluster's own rules are asked, by a SubjectAccessReview."""

from muster.api.raw import Document
from muster.deploying import kinds
from muster.server import access
from muster.server.access import Attributes
from muster.server.aggregation.front_proxy import Caller
from muster.store.protocol import Create, Store, write_one


class Reviews:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def check(self, caller: Caller, asked: Attributes) -> None:
        """Raises Forbidden."""
        made = await write_one(self._store, Create(kinds.SUBJECT_REVIEW, _review(caller, asked)))
        if made.document()["status"].get("allowed") is not True:
            raise access.refusal(caller.name, asked)


def _review(caller: Caller, asked: Attributes) -> Document:
    resource, _, part = asked.resource.partition("/")
    attributes = {
        "verb": asked.verb,
        "group": asked.group,
        "resource": resource,
        "subresource": part,
        "namespace": asked.namespace,
        "name": asked.name,
    }
    spec: Document = {"user": caller.name, "groups": list(caller.groups), "resourceAttributes": attributes}
    if caller.uid:
        spec["uid"] = caller.uid
    if caller.extra:
        spec["extra"] = {name: list(values) for name, values in caller.extra.items()}
    return {"metadata": {}, "spec": spec}
