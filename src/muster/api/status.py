"""The `Status` document: how an error crosses the wire and comes back as the same class."""

from collections.abc import Mapping

from muster.api import errors
from muster.api.errors import ApiError, FieldError
from muster.api.raw import Document

_TREE: tuple[type[ApiError], ...] = (
    errors.BadRequest, errors.Unauthorized, errors.Forbidden, errors.NotFound, errors.MethodNotAllowed,
    errors.NotAcceptable, errors.AlreadyExists, errors.Conflict, errors.Expired, errors.TooLarge,
    errors.UnsupportedMediaType, errors.Invalid, errors.TooManyRequests, errors.InternalError, errors.Unavailable,
    errors.Timeout,
)  # fmt: skip
_BY_REASON: Mapping[str, type[ApiError]] = {cls.reason: cls for cls in _TREE}
_BY_CODE: Mapping[int, type[ApiError]] = {cls.http_status: cls for cls in reversed(_TREE)}


def from_error(error: ApiError) -> Document:
    """The `Status` document that Kubernetes clients expect."""
    details: Document = {}
    if error.name:
        details["name"] = error.name
    if error.group:
        details["group"] = error.group
    if error.kind:
        details["kind"] = error.kind
    if error.causes:
        details["causes"] = [{"reason": c.reason, "message": c.message, "field": c.path} for c in error.causes]
    if error.retry_after is not None:
        details["retryAfterSeconds"] = error.retry_after
    status: Document = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": error.message,
        "reason": error.reason,
        "code": error.http_status,
    }
    if details:
        status["details"] = details
    return status


def to_error(status: Document, code: int = 500) -> ApiError:
    """The error that a `Status` document stands for; `code` is the HTTP status where the document has none."""
    cls = _BY_REASON.get(str(status.get("reason", ""))) or _BY_CODE.get(
        int(status.get("code", code)), errors.InternalError
    )
    details = status.get("details") or {}
    causes = [
        FieldError(str(c.get("field", "")), str(c.get("reason", "")), str(c.get("message", "")))
        for c in details.get("causes") or ()
    ]
    error = cls(
        str(status.get("message", "")) or f"the server answered {code}",
        kind=str(details.get("kind", "")),
        name=str(details.get("name", "")),
        group=str(details.get("group", "")),
        causes=causes,
    )
    error.retry_after = details.get("retryAfterSeconds")
    return error
