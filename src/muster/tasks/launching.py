"""What a run of a task finds in its environment, beyond what its kind puts there."""

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from muster.api import raw
from muster.api.documents import made_child, objects
from muster.api.raw import Document
from muster.engines.protocol import Request
from muster.tasks.contract import ProxyPort

TOKEN: Final = "DET_SESSION_TOKEN"  # noqa: S105 - the name of a variable
_TYPE: Final = "DET_RESOURCES_TYPE"
_RENDEZVOUS: Final = "docker-container"
"""Of the kinds that the client knows, the one whose parts ask the server where the others are."""


def prepared(request: Request, ports: Mapping[str, int], proxies: Sequence[ProxyPort] = ()) -> Request:
    """`ports`: that it was promised, by the variables that tell it. `proxies`: through which it is reached."""
    fixed = {
        "DET_TASK_ID": request.task,
        "DET_ALLOCATION_ID": request.allocation,
        "DET_TASK_TYPE": request.task_type,
        **{name: str(port) for name, port in ports.items()},
    }
    template: Document = raw.copy(request.template)
    spec = made_child(template, "spec")
    for container in (*objects(spec, "initContainers"), *objects(spec, "containers")):
        present = [variable for variable in objects(container, "env") if variable.get("name") not in fixed]
        added = [{"name": name, "value": value} for name, value in fixed.items()]
        if all(variable.get("name") != _TYPE for variable in present):
            added.append({"name": _TYPE, "value": _RENDEZVOUS})
        container["env"] = [*added, *present]
    return replace(request, template=template, services=tuple(sorted({each.port for each in proxies})))
