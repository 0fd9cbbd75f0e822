"""Dates and times of day in a person's words, English and Japanese, for comparison with the values of a call."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from typing import NamedTuple

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_KANJI_DAYS = "月火水木金土日"
_MONTH = r"(?P<month>jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?"
_TH = r"(?:st|nd|rd|th)?"
_FULL = re.compile(r"(?<!\d)(?P<y>\d{4})(?:[-/.]|年)(?P<m>\d{1,2})(?:[-/.]|月)(?P<d>\d{1,2})(?!\d)日?")
_SHORT = re.compile(r"(?<![\d/])(?P<m>\d{1,2})(?:/(?P<d>\d{1,2})(?![\d/])|月(?P<d2>\d{1,2})日)")
_NAMED = re.compile(rf"\b{_MONTH}\s+(?P<d>\d{{1,2}}){_TH}\b(?:,?\s+(?P<y>\d{{4}}))?", re.IGNORECASE)
_NAMED_AFTER = re.compile(rf"\b(?P<d>\d{{1,2}}){_TH}\s+(?:of\s+)?{_MONTH}\b(?:,?\s+(?P<y>\d{{4}}))?", re.IGNORECASE)
_DAY = re.compile(r"\b(?P<d>\d{1,2})(?:st|nd|rd|th)\b|(?<![\d月])(?P<d2>\d{1,2})日(?!間)", re.IGNORECASE)
_WEEKDAY = re.compile(
    r"\b(?P<next>next\s+)?(?P<en>mon|tues?|wed(?:nes)?|thu(?:rs)?|fri|sat(?:ur)?|sun)(?:day)?\b"
    rf"|(?P<next2>来週の?)?(?P<ja>[{_KANJI_DAYS}])曜",
    re.IGNORECASE,
)
_RELATIVE = (
    (re.compile(r"\bday after tomorrow\b|明後日|あさって", re.IGNORECASE), 2),
    (re.compile(r"(?<!after )\btomorrow\b|明日|あした|翌日", re.IGNORECASE), 1),
    (re.compile(r"\b(?:today|tonight|this (?:morning|afternoon|evening))\b|今日|本日|今夜|今晩", re.IGNORECASE), 0),
    (re.compile(r"\byesterday\b|昨日|きのう", re.IGNORECASE), -1),
)
_CLOCK = re.compile(r"(?<![\d:.])(?P<h>\d{1,2}):(?P<min>\d{2})(?::\d{2})?(?![\d:])(?:\s*(?P<half>[ap])\.?m\b)?", re.IGNORECASE)
_HOUR = re.compile(r"\b(?P<h>\d{1,2})\s*(?P<half>[ap])\.?m\b", re.IGNORECASE)
_BARE = re.compile(r"\b(?:at|from|until|till)\s+(?P<h>\d{1,2})(?!\s*[ap:.\d]|\s*%)\b", re.IGNORECASE)
_JAPANESE = re.compile(r"(?P<half>午前|午後|朝|夜|夕方)?(?P<h>\d{1,2})時(?!間)(?:(?P<min>\d{1,2})分|(?P<thirty>半))?")
_NAMED_TIMES = ((re.compile(r"\bnoon\b|正午", re.IGNORECASE), time(12)), (re.compile(r"\bmidnight\b", re.IGNORECASE), time(0)))
_VALUE = re.compile(
    r"(?P<y>\d{4})[-/](?P<m>\d{1,2})[-/](?P<d>\d{1,2})"
    r"(?:[T ](?P<h>\d{1,2}):(?P<min>\d{2})(?::\d{2}(?:\.\d+)?)?(?P<zone>Z|[+-]\d{2}:?\d{2})?)?"
)
_TIME_VALUE = re.compile(r"(?P<h>\d{1,2}):(?P<min>\d{2})(?::\d{2})?")


def is_moment(value: str) -> bool:
    """Return True if a value is a date or a time and nothing else."""
    return bool(_VALUE.fullmatch(value) or _TIME_VALUE.fullmatch(value))


class Moments(NamedTuple):
    """The dates and times that a text names, and the text without them."""

    dates: set[date]
    times: set[time]
    rest: str

    def has(self, value: str) -> bool | None:
        """Return whether the text names this date and time; None if the value is neither."""
        if match := _TIME_VALUE.fullmatch(value):
            return _time(match["h"], match["min"]) in self.times
        if (match := _VALUE.fullmatch(value)) is None:
            return None
        day = _date(match["y"], match["m"], match["d"])
        if day is None or day not in self.dates:
            return False
        if match["zone"] and not _is_local(day, match["zone"]):
            return False
        at = None if match["h"] is None else _time(match["h"], match["min"])
        return match["h"] is None or at in self.times or (at == time(0) and not self.times)


def moments_in(text: str, now: float) -> Moments:
    """Return the dates and times that a text in NFKC names, as seen from a moment (seconds since 1970)."""
    today = datetime.fromtimestamp(now, UTC).astimezone().date()
    taken: list[tuple[int, int]] = []

    def matches(*patterns: re.Pattern[str]) -> Iterator[re.Match[str]]:
        for found in [one for pattern in patterns for one in pattern.finditer(text)]:
            if not any(start < found.end() and found.start() < end for start, end in taken):
                taken.append(found.span())
                yield found

    dates = {day for found in matches(_FULL, _NAMED, _NAMED_AFTER, _SHORT, _DAY) for day in _dates(found, today)}
    dates |= {day for found in matches(_WEEKDAY) for day in _weekdays(found, today)}
    dates |= {today + timedelta(shift) for pattern, shift in _RELATIVE for _ in matches(pattern)}
    times = {at for found in matches(_CLOCK, _HOUR, _JAPANESE, _BARE) for at in _times(found)}
    times |= {at for pattern, at in _NAMED_TIMES for _ in matches(pattern)}
    return Moments(dates, times, _without(text, taken))


def _dates(found: re.Match[str], today: date) -> set[date]:
    """Return the next date with these numbers; without a month, the next day with this number."""
    parts = found.groupdict()
    day, year = int(parts.get("d") or parts["d2"]), parts.get("y")
    month = _MONTHS.index(parts["month"].lower()) + 1 if parts.get("month") else parts.get("m")
    if month is None:
        return {one for one in _days(today, 31) if one.day == day}
    made = [_date(one, month, day) for one in ([year] if year else [today.year, today.year + 1])]
    return set([one for one in made if one is not None and (year or today <= one)][:1])


def _weekdays(found: re.Match[str], today: date) -> set[date]:
    place = _KANJI_DAYS.index(found["ja"]) if found["ja"] else _WEEKDAYS.index(found["en"][:3].lower())
    later = bool(found["next"] or found["next2"])
    return {day for day in _days(today, 14 if later else 7) if day.weekday() == place}


def _is_local(day: date, zone: str) -> bool:
    """Return True if a zone is that of this machine on a day: elsewhere the same hour is another time."""
    given = datetime.strptime(zone, "%z").utcoffset()
    return datetime.combine(day, time(12)).astimezone().utcoffset() == given


def _days(today: date, count: int) -> list[date]:
    return [today + timedelta(ahead) for ahead in range(count + 1)]


def _times(found: re.Match[str]) -> set[time]:
    groups = found.groupdict()
    minute = "30" if groups.get("thirty") else groups.get("min") or "0"
    half, hour = (groups.get("half") or "").lower(), int(found["h"])
    late = half in ("p", "午後", "夜", "夕方")
    if half:
        made = [_time(hour % 12 + 12 if late and hour <= 12 else hour % 12 if hour == 12 else hour, minute)]
    elif found.re in (_BARE, _JAPANESE) and hour < 12:
        made = [_time(hour, minute), _time(hour + 12, minute)]
    else:
        made = [_time(hour, minute)]
    return {one for one in made if one is not None}


def _date(year: str | int, month: str | int, day: str | int) -> date | None:
    try:
        return date(int(year), int(month), int(day))
    except ValueError:
        return None


def _time(hour: str | int, minute: str | int) -> time | None:
    try:
        return time(int(hour), int(minute))
    except ValueError:
        return None


def _without(text: str, spans: list[tuple[int, int]]) -> str:
    pieces, at = list[str](), 0
    for start, end in sorted(spans):
        pieces, at = [*pieces, text[at:start]], end
    return " ".join([*pieces, text[at:]])
