"""What new objects get from other objects: the mutations of Volcano's webhooks that defaults cannot make."""

from collections.abc import Callable

from muster.api import core
from muster.api.documents import child, fill, made_child, objects, text
from muster.api.kinds import Kind
from muster.api.objects import Key, Object
from muster.api.raw import Document
from muster.api.volcano.defaults import DEFAULT_QUEUE, SCHEDULER
from muster.api.volcano.grouping import GROUP_ANNOTATION, group_of
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
    elif kind is core.POD:
        if groups:
            steer(document, groups)
        _name_group(document)


def _name_group(pod: Document) -> None:
    """At once, so that no pod is placed before its group is known: the group itself is made by a controller."""
    if text(child(pod, "spec"), "schedulerName") != SCHEDULER:
        return
    metadata = child(pod, "metadata")
    owner = next((owner for owner in objects(metadata, "ownerReferences") if owner.get("controller") is True), metadata)
    if text(owner, "uid"):
        annotations = made_child(metadata, "annotations")
        fill(annotations, GROUP_ANNOTATION, group_of(text(owner, "uid")))


def _name_queue(document: Document, find: Callable[[Kind, Key], Object | None]) -> None:
    """A namespace may say into which queue what names none goes."""
    spec = child(document, "spec")
    if text(spec, "queue") not in ("", DEFAULT_QUEUE):
        return
    namespace = find(core.NAMESPACE, Key("", text(child(document, "metadata"), "namespace")))
    queue = (namespace.meta.annotations or {}).get(QUEUE_ANNOTATION) if namespace is not None else None
    if queue:
        spec["queue"] = queue
