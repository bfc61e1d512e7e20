"""Logs of pods from the API server of a Kubernetes cluster, which asks the kubelets for them."""

from collections.abc import AsyncGenerator
from urllib.parse import urlencode

from muster.agent.logs import LogOptions
from muster.api import core, errors
from muster.api.objects import Object
from muster.server.logs import NodeLogs
from muster.server.node_logs import query_of
from muster.store import wire
from muster.store.connection import Connection


class ClusterLogs:
    """`connection`: open for as long as logs are read."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def open(self, pod: Object, container: str, options: LogOptions) -> AsyncGenerator[bytes, None]:
        """Raises Unavailable where the kubelet does not answer, or has another error than the server knows."""
        path = wire.path_of(core.POD, pod.key, "log")
        query = urlencode({"container": container, **query_of(options)})
        async with self._connection.follow(path, query) as stream:
            if stream.status >= 400:
                raise _error(await stream.body(), stream.status)
            async for chunk in stream.chunks():
                yield chunk


def _error(body: bytes, code: int) -> errors.ApiError:
    found = wire.error(core.POD, body, code)
    return errors.Unavailable(found.message) if isinstance(found, errors.InternalError) else found


_conforms: type[NodeLogs] = ClusterLogs
