"""`environment.pod_spec`: what users may say about the pod of a task, and how it goes into the pod's template. Pure.

Only keys that say where a pod runs and what it sees are taken; others would let it out of its bounds.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from muster.api import raw
from muster.api.documents import made_child, objects
from muster.api.raw import JSON, Document
from muster.engines.sizing import GPU

CONTAINER: Final = "determined-container"
"""As Determined names the container of a task."""
_TOP: Final = frozenset({"apiVersion", "kind", "metadata", "spec"})
_METADATA: Final = frozenset({"labels", "annotations"})
_SPEC: Final = frozenset(
    {
        "nodeSelector", "tolerations", "affinity", "volumes", "imagePullSecrets", "containers", "serviceAccountName",
        "terminationGracePeriodSeconds", "topologySpreadConstraints", "runtimeClassName",
    }
)  # fmt: skip
_CONTAINER: Final = frozenset({"name", "volumeMounts", "env", "resources", "image", "imagePullPolicy"})
_OURS: Final = ("muster.dev/", "kueue.x-k8s.io/", "scheduling.volcano.sh/", "volcano.sh/")


def check_pod_spec(document: Document, may_mount: Callable[[str], bool]) -> Iterator[str]:
    """What of it will not do. `may_mount`: whether a path of the node may be shown to tasks."""
    path = "environment.pod_spec"
    yield from _unknown(document, _TOP, path)
    yield from _unknown(raw.dig(document, "metadata", default={}), _METADATA, f"{path}.metadata")
    for part in _METADATA:
        for name in _object(raw.dig(document, "metadata", part)):
            if str(name).startswith(_OURS):
                yield f"{path}.metadata.{part}.{name}: is for the platform to set"
    spec = raw.dig(document, "spec", default={})
    yield from _unknown(spec, _SPEC, f"{path}.spec")
    for number, container in enumerate(_list(raw.dig(spec, "containers"))):
        at = f"{path}.spec.containers[{number}]"
        if raw.dig(container, "name") != CONTAINER:
            yield f'{at}.name: must be "{CONTAINER}", which is the task; there are no others'
        yield from _unknown(container, _CONTAINER, at)
        for part in ("requests", "limits"):
            if GPU in _object(raw.dig(container, "resources", part)):
                yield f"{at}.resources.{part}.{GPU}: ask for it by resources.slots"
    for number, volume in enumerate(_list(raw.dig(spec, "volumes"))):
        host_path = raw.dig(volume, "hostPath", "path")
        if raw.dig(volume, "hostPath") is not None and not (isinstance(host_path, str) and may_mount(host_path)):
            at = f"{path}.spec.volumes[{number}].hostPath"
            yield f"{at}: may not be mounted (an administrator sets tasks.bind_mounts)"


def merge_pod_spec(template: Document, document: Document) -> None:
    """Into a template that has a task's container. What the platform has set stays."""
    metadata = made_child(template, "metadata")
    for part in _METADATA:
        given = _object(raw.dig(document, "metadata", part))
        if given:
            metadata[part] = {**given, **_object(metadata.get(part))}
    spec, given = made_child(template, "spec"), _object(document.get("spec"))
    for name, value in given.items():
        if name == "containers":
            continue
        if isinstance(value, list):
            spec[name] = [*_list(spec.get(name)), *value]
        else:
            spec.setdefault(name, value)
    for container in _list(given.get("containers")):
        for ours in objects(spec, "containers"):
            _merge_container(ours, container)


def _merge_container(ours: Document, given: Mapping[str, JSON]) -> None:
    for name in ("volumeMounts", "env"):
        listed = _list(given.get(name))
        if listed:
            taken = {raw.dig(each, "name") for each in _list(ours.get(name))} if name == "env" else set()
            new = [each for each in listed if raw.dig(each, "name") not in taken]
            ours[name] = [*_list(ours.get(name)), *new]
    for name in ("resources", "image", "imagePullPolicy"):
        if given.get(name):
            ours[name] = given[name]


def _unknown(document: JSON, known: Iterable[str], path: str) -> Iterator[str]:
    if not isinstance(document, Mapping):
        yield f"{path}: must be an object, found {raw.type_name(document)}"
        return
    for name in document:
        if name not in known:
            yield f"{path}.{name}: is not taken; known are {', '.join(sorted(known))}"


def _object(value: JSON) -> Document:
    return value if isinstance(value, dict) else {}


def _list(value: JSON) -> list[JSON]:
    return value if isinstance(value, list) else []
