"""Reports of who has used how much, as JSON, and as tables for spreadsheets beside the API."""

import csv
import io
import re
from collections.abc import Iterable, Sequence
from datetime import date
from enum import StrEnum
from typing import Final

from muster.accounts.authorizing import Authorizer
from muster.accounts.permissions import Permission
from muster.api import errors, timestamps
from muster.api.errors import ApiError
from muster.api.meta import Instant
from muster.api.timestamps import BadTimestamp
from muster.server.determined import acting, wire
from muster.server.determined.router import Authenticate
from muster.server.determined.routing import Call, Message, Route, Rule, route
from muster.server.exchange import Query, Request, Response
from muster.tasks import usage
from muster.tasks.usage import Held, Period, Total, Usage

_CSV: Final = "text/csv; charset=utf-8"
_PATH: Final = re.compile(r"/resources/allocation/(raw|aggregated|allocations-csv)/?")
_RAW: Final = ("experiment_id", "kind", "username", "labels", "slots", "start_time", "end_time", "seconds")
_ALLOCATIONS: Final = (
    "allocation_id", "task_type", "username", "workspace_name", "experiment_id", "slots", "start_time", "end_time",
    "imagepulling_time",
)  # fmt: skip
_AGGREGATED: Final = ("aggregation_type", "aggregation_key", "date", "seconds")


class AggregationPeriod(StrEnum):
    UNSPECIFIED = "RESOURCE_ALLOCATION_AGGREGATION_PERIOD_UNSPECIFIED"
    DAILY = "RESOURCE_ALLOCATION_AGGREGATION_PERIOD_DAILY"
    MONTHLY = "RESOURCE_ALLOCATION_AGGREGATION_PERIOD_MONTHLY"


class GetRaw(Message, frozen=True):
    timestamp_after: str = ""
    timestamp_before: str = ""


class RawEntry(Message, frozen=True):
    """`seconds`: of what lies between the times that were asked for. `end_time`: null while it runs."""

    kind: str
    start_time: str | None
    end_time: str | None
    experiment_id: int
    username: str
    user_id: int
    labels: Sequence[str]
    seconds: float
    slots: int


class RawReply(Message, frozen=True):
    resource_entries: Sequence[RawEntry]


class GetAggregated(Message, frozen=True):
    start_date: str = ""
    end_date: str = ""
    period: AggregationPeriod = AggregationPeriod.UNSPECIFIED


class AggregatedEntry(Message, frozen=True):
    """`seconds`: of all slots together."""

    period_start: str
    period: AggregationPeriod
    seconds: float
    by_username: dict[str, float]
    by_experiment_label: dict[str, float]
    by_resource_pool: dict[str, float]


class AggregatedReply(Message, frozen=True):
    resource_entries: Sequence[AggregatedEntry]


class _Usage:
    def __init__(self, books: Usage) -> None:
        self._books = books

    async def raw(self, call: Call, asked: GetRaw) -> RawReply:
        found = await held(self._books, asked.timestamp_after, asked.timestamp_before)
        return RawReply(resource_entries=[_raw(each) for each in found])

    async def aggregated(self, call: Call, asked: GetAggregated) -> AggregatedReply:
        period, found = await totals(self._books, asked.start_date, asked.end_date, asked.period)
        return AggregatedReply(
            resource_entries=[
                AggregatedEntry(
                    period_start=usage.text(period, total.start),
                    period=AggregationPeriod[period.value],
                    seconds=total.seconds,
                    by_username=total.by_user,
                    by_experiment_label=total.by_label,
                    by_resource_pool=total.by_pool,
                )
                for total in found
            ]
        )


async def held(books: Usage, after: str, before: str) -> Sequence[Held]:
    return await books.between(_instant("timestampAfter", after), _instant("timestampBefore", before))


async def totals(books: Usage, first: str, last: str, asked: AggregationPeriod) -> tuple[Period, Sequence[Total]]:
    if asked is AggregationPeriod.UNSPECIFIED:
        raise errors.BadRequest(f"period: must be {AggregationPeriod.DAILY} or {AggregationPeriod.MONTHLY}")
    period = Period[asked.name]
    start, end = usage.parse_day(period, "startDate", first), usage.parse_day(period, "endDate", last)
    if period is Period.MONTHLY:
        end = date(end.year, end.month, 28)  # a day that each month has: only its month counts
    usage.checked(period, start, end)
    return period, await books.totals(period, start, end)


def _instant(field: str, text: str) -> Instant:
    try:
        return timestamps.parse(text)
    except BadTimestamp as error:
        raise errors.BadRequest(f"{field}: {error}") from error


def _raw(each: Held) -> RawEntry:
    use = each.use
    return RawEntry(
        kind=usage.kind(use.task_type),
        start_time=acting.time(use.started),
        end_time=acting.time(use.ended),
        experiment_id=0,
        username=use.username,
        user_id=use.user,
        labels=use.labels,
        seconds=each.seconds,
        slots=use.slots,
    )


class UsagePages:
    """The same as tables, where Determined's clients look for them: `det resources`."""

    def __init__(self, books: Usage, authenticate: Authenticate, authorizer: Authorizer) -> None:
        self._books = books
        self._authenticate = authenticate
        self._authorizer = authorizer

    def serves(self, path: str) -> bool:
        return _PATH.fullmatch(path) is not None

    async def answer(self, request: Request) -> Response:
        try:
            return await self._answer(request)
        except ApiError as error:
            return Response(*wire.error_body(error))

    async def _answer(self, request: Request) -> Response:
        matched = _PATH.fullmatch(request.path)
        assert matched is not None
        if request.method != "GET":
            raise errors.MethodNotAllowed(f"{request.method} is not served at {request.path}, but GET")
        caller = await self._authenticate(request.headers)
        if caller is None:
            raise errors.Unauthorized("log in first: no known session or token came with the request")
        await self._authorizer.check(caller, Permission.VIEW_CLUSTER)
        match matched.group(1):
            case "aggregated":
                return await self._aggregated(request.query)
            case "raw":
                return _table(_RAW, map(_raw_row, await self._held(request.query)))
            case _:
                return _table(_ALLOCATIONS, map(_allocation_row, await self._held(request.query)))

    async def _held(self, query: Query) -> Sequence[Held]:
        return await held(self._books, _either(query, "timestamp_after"), _either(query, "timestamp_before"))

    async def _aggregated(self, query: Query) -> Response:
        try:
            asked = AggregationPeriod(query.text("period"))
        except ValueError:
            asked = AggregationPeriod.UNSPECIFIED
        period, found = await totals(self._books, _either(query, "start_date"), _either(query, "end_date"), asked)
        rows = [
            (kind, key, usage.text(period, total.start), f"{seconds:f}")
            for total in found
            for kind, books in (
                ("experiment_label", total.by_label),
                ("username", total.by_user),
                ("resource_pool", total.by_pool),
                ("total", {"total": total.seconds}),
            )
            for key, seconds in sorted(books.items())
        ]
        return _table(_AGGREGATED, rows)


def _either(query: Query, name: str) -> str:
    """By both names, as in the rest of the API."""
    first, *others = name.split("_")
    return query.text(name) or query.text(first + "".join(word.capitalize() for word in others))


def _raw_row(each: Held) -> Sequence[object]:
    told = _raw(each)
    labels = ",".join(label.replace("\\", "\\\\").replace(",", "\\,") for label in told.labels)
    times = (told.start_time or "", told.end_time or "")
    return (told.experiment_id, told.kind, told.username, labels, told.slots, *times, f"{told.seconds:f}")


def _allocation_row(each: Held) -> Sequence[object]:
    use = each.use
    times = (acting.time(use.started) or "", acting.time(use.ended) or "")
    # Nothing is pulled where tasks are processes of the node.
    return (use.allocation, use.task_type, use.username, use.workspace_name, 0, use.slots, *times, "0.0")


def _table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> Response:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return Response(200, text.getvalue().encode(), _CSV)


def routes(books: Usage) -> Sequence[Route]:
    handlers, here = _Usage(books), "/api/v1/resources/allocation"
    raw: Rule[GetRaw] = Rule(Permission.VIEW_CLUSTER)
    aggregated: Rule[GetAggregated] = Rule(Permission.VIEW_CLUSTER)
    return (
        route("GET", f"{here}/raw", GetRaw, RawReply, raw, handlers.raw),
        route("GET", f"{here}/aggregated", GetAggregated, AggregatedReply, aggregated, handlers.aggregated),
    )
