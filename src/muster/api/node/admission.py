"""What a pod's RuntimeClass gives it when it is created: overhead, and the nodes that can run it."""

from collections.abc import Callable

from muster.api import quantity, raw
from muster.api.documents import child, objects
from muster.api.kinds import Kind
from muster.api.node.kinds import RUNTIME_CLASS
from muster.api.node.views import RuntimeClass
from muster.api.objects import Key, Object
from muster.api.raw import JSON, Document
from muster.api.scalars import ResourceList


def fill_in(pod: Document, find: Callable[[Kind, Key], Object | None]) -> str:
    """Changes the pod in place, after its defaults. Answers with what is wrong; empty where nothing is."""
    spec = raw.section(pod, "spec")
    name = spec.get("runtimeClassName")
    if not isinstance(name, str) or not name:
        return _without_class(spec)
    found = find(RUNTIME_CLASS, Key("", name))
    if found is None:
        return f'RuntimeClass "{name}" not found: create it, or leave spec.runtimeClassName empty'
    view = found.read(RuntimeClass)
    return _set_overhead(spec, view) or _set_places(spec, view, found.document())


def _without_class(spec: Document) -> str:
    if spec.get("overhead"):
        return "spec.overhead is set, and no RuntimeClass says so: it comes from spec.runtimeClassName only"
    return ""


def _set_overhead(spec: Document, found: RuntimeClass) -> str:
    given = spec.get("overhead") or {}
    overhead = found.overhead.pod_fixed if found.overhead is not None else None
    if not overhead:
        return f'spec.overhead is set, and RuntimeClass "{found.metadata.name}" has none' if given else ""
    if given and not _are_equal(given, overhead):
        return f'spec.overhead differs from that of RuntimeClass "{found.metadata.name}": leave it out'
    spec["overhead"] = dict(overhead)
    return ""


def _are_equal(left: JSON, right: ResourceList) -> bool:
    if not isinstance(left, dict) or left.keys() != right.keys():
        return False
    try:
        return all(quantity.parse(left[name]) == quantity.parse(value) for name, value in right.items())
    except (quantity.BadQuantity, TypeError):
        return True  # validation has better words for an amount that is none


def _set_places(spec: Document, found: RuntimeClass, document: Document) -> str:
    scheduling = child(document, "scheduling")
    selector = child(scheduling, "nodeSelector")
    given = child(spec, "nodeSelector")
    for label, value in selector.items():
        if label in given and given[label] != value:
            wanted = f'"{value}", as RuntimeClass "{found.metadata.name}" wants it'
            return f'spec.nodeSelector[{label}] is "{given[label]}" and cannot be {wanted}'
    if selector:
        spec["nodeSelector"] = {**given, **selector}
    tolerations = list(objects(spec, "tolerations"))
    more = [raw.copy(toleration) for toleration in objects(scheduling, "tolerations") if toleration not in tolerations]
    if more:
        spec["tolerations"] = [*tolerations, *more]
    return ""
