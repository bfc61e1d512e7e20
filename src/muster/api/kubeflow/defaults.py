"""What the training operator fills in for a PyTorchJob."""

from muster.api.documents import child, drop_nulls, fill, made_child, objects
from muster.api.raw import Document

CONTAINER = "pytorch"
PORT_NAME = "pytorchjob-port"
PORT = 23_456
MASTER = "Master"
WORKER = "Worker"


def default_pytorch_job(document: Document) -> None:
    drop_nulls(document)
    spec = made_child(document, "spec")
    policy = made_child(spec, "runPolicy")
    fill(policy, "cleanPodPolicy", "None")
    fill(policy, "suspend", False)
    roles = child(spec, "pytorchReplicaSpecs")
    _spell_roles(roles)
    for role in roles.values():
        if isinstance(role, dict):
            fill(role, "replicas", 1)
            fill(role, "restartPolicy", "OnFailure")
            _open_port(role)
    elastic = child(spec, "elasticPolicy")
    if elastic:
        _default_elastic(elastic, child(roles, WORKER))
    if elastic.get("nProcPerNode") is None:
        fill(spec, "nprocPerNode", "auto")


def _spell_roles(roles: Document) -> None:
    """The operator takes `worker` and `WORKER` for `Worker`. Where both are there the properly spelled one stays."""
    for proper in (MASTER, WORKER):
        for name in [name for name in roles if str(name).lower() == proper.lower()]:
            if name != proper and proper not in roles:
                roles[proper] = roles.pop(name)


def _open_port(role: Document) -> None:
    """Ranks meet at this port of the container that trains: the one named pytorch, else the first."""
    containers = list(objects(role, "template", "spec", "containers"))
    for container in [c for c in containers if c.get("name") == CONTAINER] or containers[:1]:
        ports = container.get("ports", [])
        if isinstance(ports, list) and not any(port.get("name") == PORT_NAME for port in objects(container, "ports")):
            container["ports"] = [*ports, {"name": PORT_NAME, "containerPort": PORT, "protocol": "TCP"}]


def _default_elastic(elastic: Document, worker: Document) -> None:
    if isinstance(worker.get("replicas"), int):
        fill(elastic, "minReplicas", worker["replicas"])
        fill(elastic, "maxReplicas", worker["replicas"])
    fill(elastic, "rdzvBackend", "c10d")
