"""What new objects get from other objects: the mutations of Volcano's webhooks that defaults cannot make."""

from collections.abc import Callable

from muster.api import core
from muster.api.documents import child, text
from muster.api.kinds import Kind
from muster.api.objects import Key, Object
from muster.api.raw import Document
from muster.api.volcano.defaults import DEFAULT_QUEUE
from muster.api.volcano.kinds import POD_GROUP
from muster.api.volcano.resource_groups import ResourceGroup, steer

QUEUE_ANNOTATION = "scheduling.volcano.sh/queue-name"


def take_in(
    kind: Kind,
    document: Document,
    find: Callable[[Kind, Key], Object | None],
    groups: tuple[ResourceGroup, ...] = (),
) -> None:
    """Changes the new object in place, after its defaults. `find` looks up other objects."""
    if kind is POD_GROUP:
        _name_queue(document, find)
    elif kind is core.POD and groups:
        steer(document, groups)


def _name_queue(document: Document, find: Callable[[Kind, Key], Object | None]) -> None:
    """A namespace may say into which queue what names none goes."""
    spec = child(document, "spec")
    if text(spec, "queue") not in ("", DEFAULT_QUEUE):
        return
    namespace = find(core.NAMESPACE, Key("", text(child(document, "metadata"), "namespace")))
    queue = (namespace.meta.annotations or {}).get(QUEUE_ANNOTATION) if namespace is not None else None
    if queue:
        spec["queue"] = queue
