"""A transport that answers from a script: the seam below `Client`, without a socket."""

import queue
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from muster.api import errors, raw, status
from muster.sdk.client import Client
from muster.sdk.config import Connection
from muster.sdk.transport import Reply, Request

Answer = Any
"""A document, an ApiError, a (status, document) pair, or for a stream the chunks or a Tap."""
_PLATFORM = Connection("http://scripted/k8s")


class Tap:
    """A stream that stays open: the test pours, the client drinks."""

    def __init__(self) -> None:
        self.poured: queue.SimpleQueue[bytes | errors.ApiError | None] = queue.SimpleQueue()

    def pour(self, event: str, document: raw.Document) -> None:
        self.poured.put(raw.encode({"type": event, "object": document}) + b"\n")

    def end(self, error: errors.ApiError | None = None) -> None:
        self.poured.put(error)


class ScriptedStream:
    def __init__(self, status: int, source: Sequence[bytes] | Tap) -> None:
        self.status = status
        self._source = source

    def chunks(self) -> Iterator[bytes]:
        if not isinstance(self._source, Tap):
            yield from self._source
            return
        while (item := self._source.poured.get()) is not None:
            if isinstance(item, errors.ApiError):
                raise item
            yield item

    def close(self) -> None:
        if isinstance(self._source, Tap):
            self._source.poured.put(None)


class ScriptedTransport:
    """`answer(request)` is called for each request, which is kept in `requests`."""

    def __init__(self, answer: Callable[[Request], Answer]) -> None:
        self._answer = answer
        self.requests: list[Request] = []

    def exchange(self, request: Request) -> Reply:
        code, body = self._next(request)
        return Reply(code, body if isinstance(body, bytes) else raw.encode(body))

    def open(self, request: Request) -> ScriptedStream:
        code, body = self._next(request)
        if isinstance(body, Tap):
            return ScriptedStream(code, body)
        return ScriptedStream(code, body if isinstance(body, list) else [raw.encode(body)])

    def close(self) -> None:
        pass

    def _next(self, request: Request) -> tuple[int, Answer]:
        self.requests.append(request)
        answer = self._answer(request)
        if isinstance(answer, errors.Unavailable) and not answer.causes and answer.name == "connection":
            raise answer
        if isinstance(answer, errors.ApiError):
            return answer.http_status, status.from_error(answer)
        if isinstance(answer, tuple):
            return answer
        return 200, answer


def refused() -> errors.Unavailable:
    """Not an answer: the connection itself fails."""
    return errors.Unavailable("no platform answers", name="connection")


def a_client(
    answer: Callable[[Request], Answer], connection: Connection = _PLATFORM
) -> tuple[Client, ScriptedTransport]:
    transport = ScriptedTransport(answer)
    return Client(connection, transport), transport


def discovery(request: Request) -> raw.Document | None:
    """What `/api` and `/apis` answer; None for any other request."""
    if request.path == "/api":
        return {
            "items": [_group("", "v1", [("pods", "Pod", ["po"]), ("nodes", "Node", ["no"]), ("events", "Event", [])])]
        }
    if request.path == "/apis":
        return {
            "items": [
                _group("batch", "v1", [("jobs", "Job", [])]),
                _group("batch.volcano.sh", "v1alpha1", [("jobs", "Job", ["vcjob"])]),
                _group("scheduling.volcano.sh", "v1beta1", [("podgroups", "PodGroup", ["pg"])]),
            ]
        }
    return None


def _group(name: str, version: str, kinds: list[tuple[str, str, list[str]]]) -> raw.Document:
    resources = [
        {
            "resource": plural,
            "responseKind": {"group": name, "version": version, "kind": kind},
            "scope": "Cluster" if kind == "Node" else "Namespaced",
            "singularResource": kind.lower(),
            "shortNames": short,
            "categories": ["all"] if plural in ("pods", "jobs") else [],
        }
        for plural, kind, short in kinds
    ]
    return {"metadata": {"name": name}, "versions": [{"version": version, "resources": resources}]}
