"""The objects of `muster serve` in a cluster: tasks and experiments, as `det` and browsers ask for them.

One process: it keeps sessions and answers for what it has started. Its records are in PostgreSQL, or in a file beside
contexts and logs on its volume.
"""

from collections.abc import Sequence
from typing import Final

from muster.api.raw import Document
from muster.deploying import names, permissions, pieces
from muster.deploying.pieces import Program
from muster.deploying.slots import Slots

SERVER: Final = Program(names.SERVER, "server")
_VOLUME: Final = "/var/lib/muster"
# The volume's own directory is root's, and cannot be closed to others.
_DATA: Final = f"{_VOLUME}/data"
_PORT: Final = 7077
_SETTINGS: Final = "server.settings"
_FOLDER: Final = "/etc/muster-server"


def documents(slots: Slots) -> Sequence[Document]:
    return (
        SERVER.service_account(slots),
        *SERVER.rights(slots, permissions.SERVER),
        _settings(slots),
        _claim(slots),
        _deployment(slots),
        SERVER.service(slots, names.SERVER, _PORT, "http"),
    )


def _settings(slots: Slots) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": SERVER.metadata(slots),
        "data": {"settings.yaml": slots.encoded(_SETTINGS)},
    }


def _claim(slots: Slots) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": SERVER.metadata(slots),
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": slots.text("server.storage")}},
        },
    }


def _deployment(slots: Slots) -> Document:
    # One after the other: both would write to the same volume.
    spec: Document = {"replicas": 1, "strategy": {"type": "Recreate"}}
    data = {"name": "data", "persistentVolumeClaim": {"claimName": names.SERVER}}
    settings = {"name": "settings", "configMap": {"name": names.SERVER}}
    pod: Document = {"containers": [_container(slots)], "volumes": [*pieces.volumes(), settings, data]}
    return SERVER.deployment(slots, spec, pod, (*pieces.CONFIGURATIONS, _SETTINGS))


def _container(slots: Slots) -> Document:
    address = {"name": slots.text("database.secret"), "key": slots.text("database.key"), "optional": True}
    arguments = [
        "serve",
        "--in-cluster",
        "--host=0.0.0.0",
        f"--port={_PORT}",
        f"--data={_DATA}",
        f"--unlabelled={slots.text('unlabelled')}",
        f"--config={_FOLDER}/settings.yaml",
        *slots.when("server.url", f"--set=url={slots.text('server.url')}"),
        *pieces.configuration_arguments(slots),
    ]
    return {
        **SERVER.container(slots, arguments, {"settings": _FOLDER, "data": _VOLUME}),
        "env": [{"name": "MUSTER_DATABASE", "valueFrom": {"secretKeyRef": address}}],
        "ports": [{"name": "http", "containerPort": _PORT, "protocol": "TCP"}],
        "livenessProbe": pieces.probe("/healthz", "http", period=10, failures=6),
        "readinessProbe": pieces.probe("/readyz", "http", period=5, failures=2),
        "resources": slots.value("server.resources"),
    }
