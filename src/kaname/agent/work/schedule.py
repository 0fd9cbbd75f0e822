"""Schedules: the times at which a run is due, by a cron expression, an interval, or one time. Each of these times is a tick."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timezone, tzinfo
from itertools import takewhile
from typing import Any, Literal

from ...core.durations import is_number, is_whole, seconds
from ...core.errors import ConfigError
from ...core.notices import notice
from ...core.record import field, record
from ...kernel.stores import PAUSED
from ...run.request import check_ids

Missed = Literal["skip", "one", "all"]
MISSED = ("skip", "one", "all")
_NAME = re.compile(r"[\w-]{1,80}")  # letters of any language
_HIGHEST = 2**31 - 1  # priority
_LAST = datetime.max.replace(tzinfo=UTC).timestamp()  # that a run can wait for
_LATE = 60.0  # seconds; a tick that is older counts as missed
_MOST = 100  # missed ticks of a schedule that are made up for
_DAY = 86_400.0  # seconds; clocks change less often
_DAYS = (1, 32, 400)  # how far to look back for them, until there are enough


@record
class Schedule:
    """A run of an agent that is due again and again. `how`: options of `Agent.submit`."""

    agent: str
    name: str
    user_input: Any
    cron: str = ""
    tz: str = "UTC"
    every: float = 0.0
    at: float = 0.0
    missed: Missed = "one"
    how: Mapping[str, Any] = field(factory=dict)

    @property
    def timing(self) -> str:
        """Return the timing of the schedule as a text that is the same in all processes with the same definition."""
        at = datetime.fromtimestamp(self.at, UTC).isoformat()
        return f"{self.cron} {self.tz}" if self.cron else f"every {self.every:g}s" if self.every else f"at {at}"

    @property
    def key(self) -> str:
        """Return the beginning of its marks and of the ids of its runs.

        It contains the agent's name, because a schedule of another agent can have the same name.
        """
        return f"{self.name}@{self.agent}"

    @property
    def mark(self) -> str:
        """Return the name of the mark up to which its ticks were handled."""
        return f"{self.key}: {self.timing}"

    @property
    def paused_mark(self) -> str:
        return f"{self.key}{PAUSED}"

    def run_id(self, tick: float) -> str:
        """Return the id of the run of a tick: the same in every process, so that the tick is executed once."""
        return f"{self.key}@{datetime.fromtimestamp(tick, UTC):%Y%m%dT%H%M%SZ}"

    def ticks_after(self, moment: float) -> Iterator[float]:
        """Yield the ticks after a moment, in seconds since 1970.

        By a change of the clocks (daylight saving time) a tick is neither lost nor doubled: a time that does not exist becomes
        the moment of the change, and one that exists twice is due the first time. `*` counts time that has really passed.
        """
        if self.cron:
            yield from _cron_ticks(self.cron, _zone(self.tz), moment)
        elif self.every:
            number = int(moment // self.every)
            while True:
                number += 1
                yield number * self.every
        elif self.at > moment:
            yield self.at

    def next_tick(self, moment: float) -> float | None:
        return next(self.ticks_after(moment), None)

    def due(self, since: float, now: float) -> list[float]:
        """Return the ticks after `since` that are due now, except for missed ones that are not to be made up for."""
        found: list[float] = []
        for days in _DAYS:
            start = max(since, now - days * _DAY)
            found = list(takewhile(lambda tick: tick <= now, self.ticks_after(start)))
            if len(found) >= _MOST or start == since:
                break
        late = [tick for tick in found if tick <= now - _LATE][-_MOST:]
        current = [tick for tick in found if tick > now - _LATE]
        if self.missed == "all":
            return [*late, *current]
        return current or late[-1:] if self.missed == "one" else current


def _cron_ticks(cron: str, zone: tzinfo, moment: float) -> Iterator[float]:
    """Yield the ticks of a cron expression.

    With `*` in the minute or the hour, it is read by the offset that holds, and from each change of the clocks on by the next
    one: CronSim alone loses ticks where clocks change by half an hour, or at midnight.
    """
    from cronsim import CronSim

    changing = zone is not UTC and any(part.startswith("*") for part in cron.split()[:2])
    start = at = moment  # ticks after `start`, by the offset that holds at `at`
    while True:
        offset = datetime.fromtimestamp(at, zone).utcoffset()
        used = timezone(offset) if changing and offset is not None else zone
        for found in CronSim(cron, datetime.fromtimestamp(start, used)):
            tick = found.timestamp()
            if changing and (change := _next_change(zone, at, tick)) is not None:
                start, at = change - 1.0, change  # the moment of the change can be a tick
                break
            if tick > moment:
                yield tick
                moment = at = tick
        else:
            return


def _next_change(zone: tzinfo, start: float, end: float) -> float | None:
    """Return the first whole second after `start`, up to `end`, at which the offset of the zone changes; None without one."""

    def differs(moment: float) -> bool:
        return datetime.fromtimestamp(moment, zone).utcoffset() != before

    before = datetime.fromtimestamp(start, zone).utcoffset()
    while start < end:
        stop = min(start + _DAY, end)
        if differs(stop):
            while stop - start > 1e-3:
                middle = (start + stop) / 2
                start, stop = (start, middle) if differs(middle) else (middle, stop)
            return float(round(stop))
        start = stop
    return None


def check_order(priority: Any = 0, at: Any = 0.0, key: Any = "", queue: Any = "", **_: Any) -> None:
    """Raise `ConfigError` for what no worker could read: one such run would keep all others from being taken."""
    numbered = is_number(at, most=_LAST) and is_whole(priority, -_HIGHEST, _HIGHEST)
    if not numbered or not isinstance(key, str) or not isinstance(queue, str):
        raise ConfigError.of(
            "queue.options",
            "priority must be a whole number, at a time in seconds since 1970 before the year 10000, and key and queue texts",
        )
    check_ids(key=key, queue=queue)


def make_schedule(
    agent: str, name: str, user_input: Any, cron: str, tz: str, every: float | str | None, at: Any, missed: Missed, **how: Any
) -> Schedule:
    """Return a schedule (see `Agent.schedule`). Raises `ConfigError` if something is wrong with it."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ConfigError.of(
            "schedule.name", "the name of a schedule can have letters, digits, - and _ only, not {name!r}", name=name
        )
    if sum([bool(cron), every is not None, at is not None]) != 1:
        raise ConfigError.of("schedule.when", "schedule {name}: set exactly one of cron, every and at", name=name)
    if missed not in MISSED:
        raise ConfigError.of(
            "schedule.missed", "schedule {name}: missed must be skip, one or all, not {given!r}", name=name, given=missed
        )
    zone, interval = _zone(tz), 0.0 if every is None else seconds(every)
    if every is not None and (not 1 <= interval <= _DAYS[-1] * _DAY or interval % 1):
        raise ConfigError.of(
            "schedule.every", "schedule {name}: every must be a number of whole seconds, from 1s to 400d", name=name
        )
    check_order(**how)
    check_ids(session_id=how.get("session_id"), user_id=how.get("user_id"))
    made = Schedule(agent, name, user_input, cron, tz, interval, 0.0 if at is None else _moment(at, zone), missed, how)
    if cron:
        _check_cron(made)
    return made


def _check_cron(made: Schedule) -> None:
    from cronsim import CronSimError

    try:
        found = len(made.cron.split()) == 5 and made.next_tick(time.time())
    except (CronSimError, AttributeError):  # it is not even a text
        found = None
    if not found:
        message = notice(
            "schedule.cron", 'schedule {name}: {cron!r} is not a cron expression with five fields, such as "0 9 * * 1-5"',
            name=made.name, cron=made.cron,
        )  # fmt: skip
        raise ConfigError(message)


def _zone(name: str) -> tzinfo:
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        return UTC if name == "UTC" else ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, TypeError, OSError) as problem:
        raise ConfigError.of(
            "schedule.zone", '{name!r} is not a known time zone; write one such as "Asia/Tokyo"', name=name
        ) from problem


def _moment(given: Any, zone: tzinfo) -> float:
    """Return a time in seconds since 1970. Without an offset it is in the time zone of the schedule."""
    try:
        found = datetime.fromisoformat(given) if isinstance(given, str) else given
        if isinstance(found, datetime):
            found = (found if found.tzinfo else found.replace(tzinfo=zone)).timestamp()
        datetime.fromtimestamp(float(found), UTC).astimezone(zone)  # it can be shown
        return float(found)
    except (ValueError, TypeError, OverflowError, OSError) as problem:
        raise ConfigError.of(
            "schedule.at", '{given!r} is not a time; write one such as "2026-12-01T09:00"', given=given
        ) from problem
