"""Whose the objects are that a leader makes outside all namespaces: with an installation they go, however it goes."""

from collections.abc import Sequence

from muster.api import errors
from muster.api.objects import Key
from muster.api.raw import Document
from muster.deploying import kinds, names, surroundings
from muster.store.protocol import Store


async def owners(store: Store) -> Sequence[Document]:
    """The role by which we may write them: whoever takes it away, Helm for one, takes them away with it. Nobody where
    there is no installation."""
    try:
        found = await store.get(kinds.CLUSTER_ROLE, Key("", names.CONTROLLER))
    except (errors.NotFound, errors.Forbidden):
        return ()
    if not surroundings.is_ours(found):
        return ()
    kind = found.kind
    return [{"apiVersion": kind.api_version, "kind": kind.name, "name": found.key.name, "uid": found.uid}]
