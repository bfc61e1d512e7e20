"""Workloads and the places where they stand, for the tests of their lives."""

from typing import Final

import msgspec

from muster.api import kueue, timestamps
from muster.api.meta import Instant
from muster.api.raw import JSON, Document
from muster.quota import lifecycle
from muster.quota.lifecycle import Place, Plan
from muster.quota.settings import PodsReady, Settings

START: Final = timestamps.parse("2026-11-01T00:00:00Z")
NOW: Final = Instant(START + 100)
PLAIN: Final = Settings()
PATIENT: Final = Settings(pods_ready=PodsReady(timeout=300, recovery_timeout=50, backoff_base=10, backoff_limit=2))


def text(seconds: float) -> str:
    return timestamps.to_text(Instant(START + seconds))


def is_(type: str, reason: str = "R", *, at: float = 0, message: str = "said before") -> Document:
    return a_condition(type, "True", reason, at, message)


def is_not(type: str, reason: str = "R", *, at: float = 0, message: str = "said before") -> Document:
    return a_condition(type, "False", reason, at, message)


def a_condition(type: str, status: str, reason: str, at: float, message: str) -> Document:
    return {"type": type, "status": status, "reason": reason, "message": message, "lastTransitionTime": text(at)}


RESERVED: Final = is_("QuotaReserved", "QuotaReserved")
ADMITTED: Final = is_("Admitted", "Admitted")
UNCHECKED: Final = is_not("Admitted", "UnsatisfiedAdmissionChecks")
ADMISSION: Final = {"clusterQueue": "cq", "podSetAssignments": [{"name": "main", "flavors": {"cpu": "f"}, "count": 1}]}


def a_workload(*listed: Document, spec: Document | None = None, **status: JSON) -> Document:
    if RESERVED in listed:
        status.setdefault("admission", ADMISSION)
    return {
        "metadata": {"name": "w", "namespace": "ns", "generation": 1, "annotations": status.pop("annotations", {})},
        "spec": {"queueName": "lq", "active": True, "podSets": [{"name": "main", "count": 1}], **(spec or {})},
        "status": {"conditions": list(listed), **status},
    }


def a_check(name: str, state: str, **more: JSON) -> Document:
    return {"name": name, "state": state, "lastTransitionTime": text(90), "message": "because", **more}


def a_place(
    *, stop: str = "None", local_stop: str = "None", is_active: bool = True, checks: tuple[Document, ...] = (),
    **missing: bool,
) -> Place:  # fmt: skip
    """`missing`: local_queue, queue, or terminating."""
    flavors = [{"name": name, "resources": [{"name": "cpu", "nominalQuota": "1"}]} for name in ("f", "g")]
    queue: Document = {
        "metadata": {"name": "cq"},
        "spec": {
            "resourceGroups": [{"coveredResources": ["cpu"], "flavors": flavors}],
            "stopPolicy": stop,
            "admissionChecksStrategy": {"admissionChecks": list(checks)},
        },
        "status": {"conditions": [] if is_active else [is_not("Active", "FlavorNotFound")]},
    }
    if missing.get("terminating"):
        queue["metadata"]["deletionTimestamp"] = text(50)
    local = {"metadata": {"name": "lq", "namespace": "ns"}, "spec": {"clusterQueue": "cq", "stopPolicy": local_stop}}
    has_local = not missing.get("local_queue")
    standing = None if missing.get("queue") else lifecycle.standing(msgspec.convert(queue, kueue.ClusterQueue))
    return Place(msgspec.convert(local, kueue.LocalQueue) if has_local else None, "cq" if has_local else "", standing)


def plan(document: Document, place: Place, settings: Settings = PLAIN, now: Instant = NOW) -> Plan:
    return lifecycle.plan(msgspec.convert(document, kueue.Workload), place, settings, now)


EVERY: Final[Document] = {"name": "all"}
ON_F: Final[Document] = {"name": "on-f", "onFlavors": ["f"]}
ON_G: Final[Document] = {"name": "on-g", "onFlavors": ["g"]}
