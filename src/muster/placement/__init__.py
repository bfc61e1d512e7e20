"""Place: pods to nodes. Pure: a snapshot in, decisions with reasons out."""

from muster.placement.placing import place
from muster.placement.requests import Gang, PodRequest, PodShape
from muster.placement.verdicts import Obstacle, Placed, Reason, Refusal, Unplaceable, Verdict

__all__ = [
    "Gang",
    "Obstacle",
    "Placed",
    "PodRequest",
    "PodShape",
    "Reason",
    "Refusal",
    "Unplaceable",
    "Verdict",
    "place",
]
