"""When a schedule comes next, by the clocks of its time zone.

A time that the clocks skip in spring does not come that day; one that they show twice in autumn comes twice. So does
the library that Kubernetes and Volcano use, and people know it from there.
"""

import re
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

from muster.api.meta import Instant
from muster.api.volcano import cron
from muster.api.volcano.cron import BadSchedule, BadTimeZone, Schedule

_ZONED = re.compile(r"(?:CRON_)?TZ=(\S+)\s+(.*)")
_UTC = ZoneInfo("UTC")
_YEARS = 5
"""A schedule that does not come in so many years (31 February) never does."""


@dataclass(frozen=True, slots=True)
class Timing:
    schedule: Schedule
    zone: ZoneInfo

    def next_after(self, instant: Instant) -> Instant | None:
        """The first time after the instant; None where there is none."""
        if self.schedule.every_seconds is not None:
            return Instant(float(int(instant)) + self.schedule.every_seconds)
        second = int(instant // 60) * 60 + 60
        last_year = self._local(second).year + _YEARS
        while True:
            local = self._local(second)
            if local.year > last_year:
                return None
            step = self._step(local)
            if step is None:
                return Instant(float(second))
            second = max(second + 60, step)

    def _step(self, local: datetime) -> int | None:
        """The next second that may match, as far as can be told; None where this one does."""
        found = self.schedule
        if local.month not in found.months:
            following = date(local.year + local.month // 12, local.month % 12 + 1, 1)
            return self._midnight(following)
        if not _is_day(found, local):
            return self._midnight(local.date() + timedelta(days=1))
        here = int(local.timestamp())
        if local.hour not in found.hours:
            return here + (60 - local.minute) * 60
        minute = next((minute for minute in sorted(found.minutes) if minute >= local.minute), 60)
        return None if minute == local.minute else here + (minute - local.minute) * 60

    def _local(self, second: int) -> datetime:
        return datetime.fromtimestamp(second, self.zone)

    def _midnight(self, day: date) -> int:
        return int(datetime(day.year, day.month, day.day, tzinfo=self.zone).timestamp())


def _is_day(schedule: Schedule, local: datetime) -> bool:
    in_month = local.day in schedule.days_of_month
    in_week = local.isoweekday() % 7 in schedule.days_of_week
    if schedule.is_any_day_of_month or schedule.is_any_day_of_week:
        return in_month and in_week
    return in_month or in_week


def read(text: str, time_zone: str | None) -> Timing:
    """Raises BadSchedule or BadTimeZone. A zone within the schedule, as old ones have it, comes before the other."""
    match = _ZONED.fullmatch(text)
    name, plain = (match[1], match[2]) if match else (time_zone, text)
    if name:
        cron.check_time_zone(name)
    return Timing(cron.parse(plain), ZoneInfo(name) if name else _UTC)


def names_zone(text: str) -> bool:
    """Whether the schedule itself says in which zone it is meant."""
    return "TZ" in text


__all__ = ["BadSchedule", "BadTimeZone", "Timing", "names_zone", "read"]
