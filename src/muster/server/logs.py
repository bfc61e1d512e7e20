"""`pods/log`: which container is meant, and a stream of what the pod's node has kept of it."""

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Protocol

from muster.agent.logs import LogOptions, parse_query
from muster.api import core, errors
from muster.api.objects import Object
from muster.server.context import Call, Context
from muster.server.exchange import Stream, closing

DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"


class NodeLogs(Protocol):
    def open(self, pod: Object, container: str, options: LogOptions) -> AsyncIterator[bytes]:
        """What the container has written, and with `follow` what it will. May raise an ApiError at the first step."""
        ...


async def read(context: Context, node_logs: NodeLogs, call: Call) -> Stream:
    pod = await context.store.get(call.target.kind, call.target.key)
    container = container_of(pod, call.request.query.text("container"))
    options = parse_query(call.request.query.values, context.clock.now())
    if not pod.read(core.Pod).spec.node_name:
        raise errors.BadRequest(
            f'container "{container}" in pod "{pod.key.name}" is waiting to start: the pod has no node yet'
        )
    return Stream(_chunks(node_logs.open(pod, container, options)), "text/plain", waits=True)


async def _chunks(source: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    async with closing(source):
        async for chunk in source:
            yield chunk


def container_of(pod: Object, asked: str) -> str:
    """The container that a request means. Raises BadRequest that lists the choice."""
    spec = pod.read(core.Pod).spec
    regular = [container.name for container in spec.containers]
    initial = [container.name for container in spec.init_containers]
    if asked:
        if asked not in (*regular, *initial):
            raise errors.BadRequest(
                f"container {asked} is not valid for pod {pod.key.name}; {_choice(regular, initial)}"
            )
        return asked
    preferred = (pod.meta.annotations or {}).get(DEFAULT_CONTAINER, "")
    if preferred in regular:
        return preferred
    if len(regular) == 1:
        return regular[0]
    raise errors.BadRequest(f"a container name must be specified for pod {pod.key.name}, {_choice(regular, initial)}")


def _choice(regular: list[str], initial: list[str]) -> str:
    choice = f"choose one of: [{' '.join(regular)}]"
    return f"{choice} or one of the init containers: [{' '.join(initial)}]" if initial else choice
