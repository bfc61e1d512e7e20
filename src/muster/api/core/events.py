"""Event as `events.k8s.io/v1` names its fields: the same objects, stored once, as v1."""

from muster.api.kinds import Conversion
from muster.api.raw import Document

_NEWER_NAME = {
    "message": "note",
    "involvedObject": "regarding",
    "reportingComponent": "reportingController",
    "count": "deprecatedCount",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "source": "deprecatedSource",
}
_OLDER_NAME = {newer: older for older, newer in _NEWER_NAME.items()}


def _to_stored(document: Document) -> Document:
    return {**_renamed(document, _OLDER_NAME), "apiVersion": "v1"}


def _from_stored(document: Document) -> Document:
    return {**_renamed(document, _NEWER_NAME), "apiVersion": "events.k8s.io/v1"}


def _renamed(document: Document, names: dict[str, str]) -> Document:
    return {names.get(key, key): value for key, value in document.items()}


EVENTS_V1 = Conversion(version="v1", to_stored=_to_stored, from_stored=_from_stored, group="events.k8s.io")
