"""Every error that can cross the wire, as one tree.

    ApiError
    ├── BadRequest             400  the request cannot be understood
    ├── Unauthorized           401  no or wrong credentials
    ├── Forbidden              403  known, but not allowed
    ├── NotFound               404
    ├── MethodNotAllowed       405
    ├── NotAcceptable          406  none of the accepted media types can be served
    ├── AlreadyExists          409  create of a name that is taken
    ├── Conflict               409  the write was based on a version that is no longer current
    ├── Expired                410  a watch or page starts before what the store still remembers: list again
    ├── TooLarge               413  an object above raw.MAX_OBJECT_BYTES
    ├── UnsupportedMediaType   415
    ├── Invalid                422  field errors, all of them
    ├── TooManyRequests        429  retry later (also: an eviction that a disruption budget forbids)
    ├── InternalError          500
    ├── Unavailable            503  not ready, or shutting down
    └── Timeout                504

Server, SDK and CLI share the tree: an error survives the wire as the same class (see `api.status`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class FieldError:
    """One thing wrong with one field. `path` is spelled as in the document: `spec.containers[0].name`."""

    path: str
    reason: str  # FieldValueRequired, FieldValueInvalid, FieldValueNotSupported, FieldValueForbidden, ...
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


class ApiError(Exception):
    reason: ClassVar[str] = "InternalError"
    http_status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False

    def __init__(
        self, message: str, *, kind: str = "", name: str = "", group: str = "", causes: Sequence[FieldError] = ()
    ) -> None:
        super().__init__(message)
        self.message = message
        self.kind = kind
        self.name = name
        self.group = group
        self.causes = tuple(causes)
        self.retry_after: int | None = None


class BadRequest(ApiError):
    reason, http_status = "BadRequest", 400


class Unauthorized(ApiError):
    reason, http_status = "Unauthorized", 401


class Forbidden(ApiError):
    reason, http_status = "Forbidden", 403


class NotFound(ApiError):
    reason, http_status = "NotFound", 404


class MethodNotAllowed(ApiError):
    reason, http_status = "MethodNotAllowed", 405


class NotAcceptable(ApiError):
    reason, http_status = "NotAcceptable", 406


class AlreadyExists(ApiError):
    reason, http_status = "AlreadyExists", 409


class Conflict(ApiError):
    reason, http_status, retryable = "Conflict", 409, True


class Expired(ApiError):
    reason, http_status = "Expired", 410


class TooLarge(ApiError):
    reason, http_status = "RequestEntityTooLarge", 413


class UnsupportedMediaType(ApiError):
    reason, http_status = "UnsupportedMediaType", 415


class Invalid(ApiError):
    reason, http_status = "Invalid", 422


class TooManyRequests(ApiError):
    reason, http_status, retryable = "TooManyRequests", 429, True


class InternalError(ApiError):
    reason, http_status = "InternalError", 500


class Unavailable(ApiError):
    reason, http_status, retryable = "ServiceUnavailable", 503, True


class Timeout(ApiError):
    reason, http_status, retryable = "Timeout", 504, True


def invalid(kind: str, name: str, causes: Sequence[FieldError], *, group: str = "") -> Invalid:
    """The 422 that lists all field errors, worded as Kubernetes words it."""
    listed = str(causes[0]) if len(causes) == 1 else f"[{', '.join(map(str, causes))}]"
    full = f"{kind}.{group}" if group else kind
    return Invalid(f'{full} "{name}" is invalid: {listed}', kind=kind, name=name, group=group, causes=causes)
