"""`Client`: everything that can be asked of a platform's Kubernetes API, one method a verb.

Documents go in and come out as plain dictionaries. Errors are the classes of `muster.api.errors`.
A client may be used from many threads.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from muster.api import errors, raw, status, visibility
from muster.api.raw import JSON, Document
from muster.sdk import config, reading, resources, trusting, watching
from muster.sdk.resources import EVERYTHING, Catalog, Resource, Selection
from muster.sdk.transport import Reply, Request, Stream, Transport, lines
from muster.sdk.watching import Change, Watching

MANAGER = "muster"

Named: TypeAlias = Resource | str
"""A resource, or a word for it (`pods`, `po`), which costs one look at the server's discovery."""

PatchKind: TypeAlias = Literal["merge", "json", "strategic"]

_PATCH_TYPES: Mapping[PatchKind, str] = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
}
_EXPLAINED = Resource(visibility.GROUP, visibility.VERSION, "workloads", "Workload")
_SCHEDULERS = Resource(visibility.GROUP, visibility.VERSION, "schedulers", "Scheduler", namespaced=False)
_DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


@dataclass(frozen=True, slots=True)
class LogOptions:
    container: str = ""
    follow: bool = False
    tail: int | None = None
    since_seconds: int | None = None
    since_time: str = ""
    timestamps: bool = False
    previous: bool = False

    def query(self) -> dict[str, str]:
        asked = {
            "container": self.container,
            "follow": "true" if self.follow else "",
            "tailLines": "" if self.tail is None else str(self.tail),
            "sinceSeconds": "" if self.since_seconds is None else str(self.since_seconds),
            "sinceTime": self.since_time,
            "timestamps": "true" if self.timestamps else "",
            "previous": "true" if self.previous else "",
        }
        return {key: value for key, value in asked.items() if value}


class Client:
    """Without arguments: the platform that this user runs (see `muster.sdk.config`)."""

    def __init__(
        self, connection: config.Connection | None = None, transport: Transport | None = None, *, manager: str = MANAGER
    ) -> None:
        self.connection = connection or config.connection()
        self.manager = manager
        self._transport = transport or trusting.transport(self.connection)
        self._catalog: Catalog | None = None

    @property
    def namespace(self) -> str:
        """Where namespaced objects go when nothing else is said."""
        return self.connection.namespace

    def close(self) -> None:
        self._transport.close()

    # What there is

    def catalog(self) -> Catalog:
        if self._catalog is None:
            core = self._read(Request("GET", "/api", headers={"Accept": _DISCOVERY}))
            groups = self._read(Request("GET", "/apis", headers={"Accept": _DISCOVERY}))
            self._catalog = resources.from_discovery(core, groups)
        return self._catalog

    def server_version(self) -> str:
        return str(self._read(Request("GET", "/version")).get("gitVersion", ""))

    def resource(self, named: Named) -> Resource:
        return self.catalog().find(named) if isinstance(named, str) else named

    # Reading

    def get(self, named: Named, name: str, namespace: str | None = None) -> Document:
        """Raises NotFound."""
        return self._read(Request("GET", self._path(named, namespace, name)))

    def page(self, resource: Resource, selection: Selection) -> tuple[Sequence[Document], str]:
        """All that match, and the version from which a watch goes on."""
        path, token = resource.path(selection.namespace), ""
        items: list[Document] = []
        while True:
            query = {**selection.query(), "limit": "500", **({"continue": token} if token else {})}
            page = self._read(Request("GET", path, query))
            for item in page.get("items") or ():
                items.append({"apiVersion": resource.api_version, "kind": resource.kind, **item})
            token = reading.text(page, "metadata", "continue")
            if not token:
                return items, reading.text(page, "metadata", "resourceVersion")

    def list(self, named: Named, selection: Selection = EVERYTHING) -> Sequence[Document]:
        """All that match, fetched in pages; each item carries its apiVersion and kind."""
        return self.page(self.resource(named), selection)[0]

    def table(self, named: Named, selection: Selection = EVERYTHING, name: str = "") -> Document:
        """The server's own `Table` of a kind or of one object: the columns that `get` prints."""
        path = self.resource(named).path(selection.namespace, name)
        return self._read(Request("GET", path, selection.query(), headers={"Accept": _TABLE}))

    def watch_table(self, named: Named, selection: Selection, since: str) -> Iterator[Change]:
        """One-row tables, as objects change after version `since`, for as long as the server is there."""
        resource = self.resource(named)
        while True:
            stream = self.open_watch(resource, selection, since, watching.PERIOD_SECONDS, _TABLE)
            try:
                for change in watching.changes(stream):
                    since = watching.table_version(change.object) or since
                    yield change
            except errors.Expired:
                since = ""  # shows what there is again, rather than miss what has changed
            finally:
                stream.close()

    # Writing

    def create(
        self, document: Document, named: Named | None = None, *, dry_run: bool = False, strict: bool = True
    ) -> Document:
        """Raises BadRequest that names the fields which the server does not know, unless `strict` is false."""
        resource = self._of(document, named)
        path = resource.path(self._home(document))
        return self._write(Request("POST", path, self._options(dry_run, strict), raw.encode(document)))

    def apply(self, document: Document, *, force: bool = False, dry_run: bool = False, strict: bool = True) -> Document:
        """Server-side apply: the fields in `document` become this manager's. Raises Conflict that names the fields
        another manager holds, unless `force`; and BadRequest as `create` does."""
        name = raw.dig(document, "metadata", "name")
        if not isinstance(name, str) or not name:
            raise errors.BadRequest("metadata.name: apply needs a name; use create for generateName")
        query = {**self._options(dry_run, strict), **({"force": "true"} if force else {})}
        path = self._of(document).path(self._home(document), name)
        headers = {"Content-Type": "application/apply-patch+yaml"}
        return self._write(Request("PATCH", path, query, raw.encode(document), headers))

    def patch(
        self, named: Named, name: str, body: JSON, namespace: str | None = None, *, type: PatchKind = "merge"
    ) -> Document:
        headers = {"Content-Type": _PATCH_TYPES[type]}
        path = self._path(named, namespace, name)
        return self._write(Request("PATCH", path, {"fieldManager": self.manager}, raw.encode(body), headers))

    def delete(
        self,
        named: Named,
        name: str,
        namespace: str | None = None,
        *,
        grace_seconds: int | None = None,
        propagation: Literal["Background", "Foreground", "Orphan"] = "Background",
    ) -> Document:
        """The object as it was last, or a Status. What still runs ends first: see `wait_gone`. Raises NotFound."""
        options: Document = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": propagation}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        return self._write(Request("DELETE", self._path(named, namespace, name), body=raw.encode(options)))

    # Watching

    def watch(
        self, named: Named, selection: Selection = EVERYTHING, *, since: str = "", timeout: float | None = None
    ) -> Iterator[Change]:
        """Every change, in order, until `timeout`; reconnects and resumes by itself.

        Without `since`, what exists already comes first, as ADDED. Where the server has forgotten `since`, what
        happened meanwhile is made up for from a fresh list.
        """
        yield from Watching(self, self.resource(named), selection, since=since, timeout=timeout).changes()

    def wait(
        self,
        named: Named,
        name: str,
        until: Callable[[Document | None], bool],
        namespace: str | None = None,
        *,
        timeout: float = 60.0,
    ) -> Document | None:
        """Until `until(object)` holds; it is called with None when the object is not there. Raises Timeout."""
        resource = self.resource(named)
        selection = Selection(self._inside(resource, namespace), fields=f"metadata.name={name}")
        found, version = self.page(resource, selection)
        current = found[0] if found else None
        if until(current):
            return current
        watch = Watching(self, resource, selection, since=version, known=found, timeout=timeout)
        for change in watch.changes():
            current = None if change.type == "DELETED" else change.object
            if until(current):
                return current
        raise errors.Timeout(f"{resource.label}/{name} did not get there within {timeout:g} s")

    def wait_gone(self, named: Named, name: str, namespace: str | None = None, *, timeout: float = 60.0) -> None:
        self.wait(named, name, lambda found: found is None, namespace, timeout=timeout)

    # Logs

    def logs(self, pod: str, namespace: str | None = None, options: LogOptions | None = None) -> Iterator[str]:
        """Whole lines without their end. With `follow` until the container has finished."""
        stream = self.open_log(pod, namespace, options)
        try:
            for line in lines(stream):
                yield line.decode("utf-8", "replace")
        finally:
            stream.close()

    def decisions(self) -> bytes:
        """The scheduler's log of decisions: an entry a line."""
        path = _SCHEDULERS.path(None, visibility.SCHEDULER, "decisions")
        return self._exchange(Request("GET", path)).body

    def explain(self, workload: str, namespace: str | None = None) -> Document:
        """Why a Workload waits: what is missing where, who holds it, what was tried, how many are ahead. Raises
        NotFound."""
        path = _EXPLAINED.path(namespace or self.namespace, workload, "explanation")
        return self._read(Request("GET", path))

    def open_log(self, pod: str, namespace: str | None = None, options: LogOptions | None = None) -> Stream:
        """The log as a stream that another thread can close."""
        path = resources.PODS.path(namespace or self.namespace, pod, "log")
        return self._open(
            Request("GET", path, (options or LogOptions()).query(), headers={"Accept": "text/plain, */*"})
        )

    # Below

    def _options(self, dry_run: bool, strict: bool) -> dict[str, str]:
        # A misspelled field would be dropped without a word, and the job run with a default in its place.
        validation = "Strict" if strict else "Ignore"
        return {"fieldManager": self.manager, "fieldValidation": validation, **({"dryRun": "All"} if dry_run else {})}

    def _of(self, document: Document, named: Named | None = None) -> Resource:
        return self.catalog().of_document(document) if named is None else self.resource(named)

    def _home(self, document: Document) -> str:
        return reading.text(document, "metadata", "namespace") or self.namespace

    def _inside(self, resource: Resource, namespace: str | None) -> str | None:
        return (namespace or self.namespace) if resource.namespaced else None

    def _path(self, named: Named, namespace: str | None, name: str) -> str:
        if not name:
            raise errors.BadRequest("a name is required")
        resource = self.resource(named)
        return resource.path(self._inside(resource, namespace), name)

    def _read(self, request: Request) -> Document:
        return raw.decode_object(self._exchange(request).body)

    def _exchange(self, request: Request) -> Reply:
        reply = self._transport.exchange(request)
        if reply.status >= 400:
            raise self._refusal(request, reply)
        return reply

    def _write(self, request: Request) -> Document:
        headers = {"Content-Type": "application/json", **request.headers}
        return self._read(Request(request.method, request.path, request.query, request.body, headers))

    def _open(self, request: Request) -> Stream:
        stream = self._transport.open(request)
        if stream.status >= 400:
            raise self._refusal(request, Reply(stream.status, b"".join(stream.chunks())))
        return stream

    def _refusal(self, request: Request, reply: Reply) -> errors.ApiError:
        found, cluster = _status(reply), self.connection.cluster
        if found is None and reply.status == 404 and cluster is not None:
            advice = "`muster install` defines the kinds that Muster needs there"
            return errors.NotFound(f"{cluster.url} does not serve {request.path}: {advice}")
        error = status.to_error(found or _said(reply), reply.status)
        if not isinstance(error, errors.Unauthorized):
            return error
        if cluster is not None:
            return errors.Unauthorized(f"{error.message}: {cluster.url} knows nobody by what is in {cluster.source}")
        return errors.Unauthorized(f"{error.message}; set MUSTER_TOKEN to the token in the server's data directory")

    def open_watch(self, resource: Resource, selection: Selection, since: str, seconds: int, accept: str) -> Stream:
        query = {
            **selection.query(),
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": since,
            "timeoutSeconds": str(seconds),
        }
        # Longer silence than the time after which the server ends a watch means that nobody is there.
        path = resource.path(selection.namespace)
        return self._open(Request("GET", path, query, headers={"Accept": accept}, idle_seconds=seconds + 15.0))


def _status(reply: Reply) -> Document | None:
    """What the server says of its refusal; None for one that does not come from the API, but from what serves it."""
    try:
        found = raw.decode(reply.body)
    except errors.BadRequest:
        return None
    return found if isinstance(found, dict) and found.get("kind") == "Status" else None


def _said(reply: Reply) -> Document:
    return {"message": reply.body[:200].decode("utf-8", "replace").strip(), "code": reply.status}
