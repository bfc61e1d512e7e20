"""ConversionReview in, ConversionReview out: objects in a version that is served but not stored. Pure."""

from typing import Final

from muster.api import errors, raw
from muster.api.documents import child
from muster.api.errors import ApiError
from muster.api.everything import REGISTRY
from muster.api.kinds import Conversion, Kind
from muster.api.raw import JSON, Document

API_VERSION: Final = "apiextensions.k8s.io/v1"


def answer(review: Document) -> Document:
    """All objects or none, as the API server wants it. Raises BadRequest where it is no review."""
    if review.get("apiVersion") != API_VERSION or review.get("kind") != "ConversionReview":
        raise errors.BadRequest(f"expected a ConversionReview of {API_VERSION}, found kind {review.get('kind')!r}")
    request = child(review, "request")
    wanted, found = str(request.get("desiredAPIVersion") or ""), request.get("objects")
    try:
        made = [converted(raw.as_object(each), wanted) for each in found] if isinstance(found, list) else []
    except ApiError as error:
        return _review(request, {"result": {"status": "Failure", "message": error.message}})
    return _review(request, {"result": {"status": "Success"}, "convertedObjects": made})


def converted(document: Document, wanted: str) -> Document:
    """Raises NotFound for a version that is not served. Nothing of the metadata but its apiVersion changes."""
    given = str(document.get("apiVersion") or "")
    if given == wanted:
        return document
    name = str(document.get("kind") or "")
    arriving = _conversion(REGISTRY.by_document(given, name), given)
    leaving = _conversion(REGISTRY.by_document(wanted, name), wanted)
    made = arriving.to_stored(document) if arriving else document
    return {**(leaving.from_stored(made) if leaving else made), "apiVersion": wanted}


def _conversion(kind: Kind, api_version: str) -> Conversion | None:
    """None for the version that is stored."""
    version = api_version.rpartition("/")[2]
    return next((each for each in kind.conversions if each.version == version), None)


def _review(request: Document, response: JSON) -> Document:
    return {
        "apiVersion": API_VERSION,
        "kind": "ConversionReview",
        "response": {"uid": str(request.get("uid") or ""), **response},
    }
