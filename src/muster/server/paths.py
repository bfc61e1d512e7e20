"""The paths of the Kubernetes API, read by one parser for all kinds: no route per kind.

    /api/v1 | /apis/<group>/<version>  [/namespaces/<namespace>]  /<plural> [/<name> [/<subresource>]]

Segments are split before they are percent-decoded, so an encoded slash never becomes a separator.
"""

from dataclasses import dataclass
from urllib.parse import unquote

from muster.api import errors
from muster.api.kinds import Kind
from muster.api.objects import Key
from muster.api.registry import Registry

MISSING = "the server could not find the requested resource"


@dataclass(frozen=True, slots=True)
class Target:
    """What a path names: a collection (`name` is empty), an object, or a subresource of one. `group` and `version`
    are those the client spoke, not always those in which the kind is stored."""

    kind: Kind
    group: str
    version: str
    namespace: str | None
    name: str = ""
    subresource: str = ""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def is_stored_version(self) -> bool:
        return self.version == self.kind.version and self.group == self.kind.group

    @property
    def key(self) -> Key:
        return Key(self.namespace or "", self.name)


def segments(path: str) -> tuple[str, ...]:
    """The decoded segments of a path. Raises NotFound for empty ones, BadRequest for those that could climb out."""
    parts = path.strip("/").split("/")
    if parts == [""]:
        return ()
    decoded = []
    for part in parts:
        if not part:
            raise errors.NotFound(MISSING)
        try:
            segment = unquote(part, errors="strict")
        except UnicodeDecodeError as error:
            raise errors.BadRequest(f"the path segment {part!r} is not percent-encoded UTF-8") from error
        if segment in (".", "..") or "/" in segment or "%" in segment or not segment.isprintable():
            raise errors.BadRequest(
                f"the path segment {part!r} is not allowed: a name may not be '.' or '..' and may not contain '/', '%' "
                "or control characters"
            )
        decoded.append(segment)
    return tuple(decoded)


def version_of(parts: tuple[str, ...]) -> tuple[str, str, tuple[str, ...]] | None:
    """Group, version and what follows; None where the path is not below a version."""
    if len(parts) >= 2 and parts[0] == "api":
        return "", parts[1], parts[2:]
    if len(parts) >= 3 and parts[0] == "apis":
        return parts[1], parts[2], parts[3:]
    return None


def parse(registry: Registry, group: str, version: str, parts: tuple[str, ...]) -> Target:
    """What `parts`, the segments below a version, name. Raises NotFound where nothing is served."""
    namespace: str | None = None
    # `namespaces/x` and its own subresources are the Namespace; anything longer is inside of it.
    if len(parts) >= 3 and parts[0] == "namespaces" and registry.by_resource(group, version, parts[2]) is not None:
        namespace, parts = parts[1], parts[2:]
    if not 1 <= len(parts) <= 3:
        raise errors.NotFound(MISSING)
    kind = registry.by_resource(group, version, parts[0])
    if kind is None:
        raise errors.NotFound(MISSING)
    name, subresource = (*parts[1:], "", "")[:2]
    if kind.namespaced:
        if name and namespace is None:
            raise errors.NotFound(MISSING)
    elif namespace is not None:
        raise errors.NotFound(MISSING)
    return Target(kind, group, version, namespace, name, subresource)
