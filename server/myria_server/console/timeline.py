"""The timeline: how many events there were when, from centuries down to minutes, and then the events themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial

from starlette.requests import Request

from myria.db.clock import to_datetime, to_microseconds
from myria.errors import InvalidArgument
from myria.search.overview import Beside, Overview
from myria_server.console.desk import Desk, Json
from myria_server.console.fields import time_of
from myria_server.console.forms import Page

MOST_MARKS = 200
_LISTED = 50
"""Events up to which a time lists them; a minute lists all its events, in pages."""

_WIDTH, _HEIGHT, _LEAST_MARK = 1_000, 80, 3
"""Of the drawn line of time, and of its lowest mark, in units of its own."""

_MONTHS_OF_YEAR = 12


@dataclass(frozen=True, kw_only=True, slots=True)
class CalendarUnit:
    """A calendar unit, in UTC: so many months, or else so many seconds; `label` is for strftime."""

    name: str
    label: str
    months: int = 0
    seconds: int = 0

    def floor(self, moment: datetime) -> datetime:
        """Return when the unit that holds a moment begins."""
        if self.months:
            month = moment.year * _MONTHS_OF_YEAR + moment.month - 1
            return _first_of_month(month - month % self.months)
        day = moment.replace(hour=0, minute=0, second=0, microsecond=0)
        return day + timedelta(seconds=(moment - day).seconds // self.seconds * self.seconds)

    def after(self, moment: datetime) -> datetime:
        """Return when the unit ends that begins at a moment; at most the last moment that there is."""
        if self.months:
            return _first_of_month(moment.year * _MONTHS_OF_YEAR + moment.month - 1 + self.months)
        return min(moment, _LATEST - timedelta(seconds=self.seconds)) + timedelta(seconds=self.seconds)

    def written(self, moment: datetime) -> str:
        """Return the name of the unit that begins at a moment."""
        if self.months > _MONTHS_OF_YEAR:
            return f"{moment.year:04} to {min(moment.year + self.months // _MONTHS_OF_YEAR - 1, _LATEST.year):04}"
        # Not every platform's strftime writes the first thousand years with four digits.
        return f"{moment.year:04}" + moment.strftime(self.label)


_EARLIEST, _LATEST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)

STEPS: Sequence[CalendarUnit] = (
    CalendarUnit(name="century", label="", months=1200),
    CalendarUnit(name="decade", label="", months=120),
    CalendarUnit(name="year", label="", months=12),
    CalendarUnit(name="month", label="-%m", months=1),
    CalendarUnit(name="day", label="-%m-%d", seconds=86_400),
    CalendarUnit(name="hour", label="-%m-%d %H:%M", seconds=3_600),
    CalendarUnit(name="minute", label="-%m-%d %H:%M", seconds=60),
)
"""The units of a timeline, from the largest."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _CountedTime:
    """What is counted of a time: its bounds, its unit, the beginning of each unit, and the events in it and beside."""

    start: datetime
    end: datetime
    step: CalendarUnit
    edges: Sequence[datetime]
    counts: Sequence[int]
    beside: Beside


async def view(desk: Desk, request: Request, views: Mapping[str, str]) -> Page:
    """Show how many events there were when, of the time that the address names, or of all; few are listed below.

    Args:
        views: the ways to look at topics, of which this is one.
    """
    desk.principal.need_api("core")
    start, end = (time_of(request.query_params.get(name), name) for name in ("from", "to"))
    if start is not None and end is not None and start >= end:
        raise InvalidArgument("The end of a time must come after its beginning.", field="to")
    counted = await desk.memory.retrieval.overview(desk.tenant, desk.masks, partial(_count, start=start, end=end))
    asked_as = desk.participants
    values: Json = {"view": "timeline", "views": views, "counted": counted, "asked_as": asked_as}
    if counted is None:
        return "timeline.html", {**values, "events": 0, "marks": [], "ways": [], "around": [], "answer": None}
    events = sum(counted.counts)
    is_listed = 0 < events <= _LISTED or (len(counted.edges) == 1 + 1 and counted.step.name == "minute")
    answer = None
    if is_listed and events:
        answer = await desk.ask(
            "query_event_nodes",
            since=_text(counted.start),
            until=_text(counted.end),
            order="oldest",
            limit=_LISTED,
            cursor=request.query_params.get("cursor"),
        )
    return "timeline.html", {
        **values,
        "events": events,
        "marks": _marks(counted),
        "period": _period(counted),
        "first": _text(counted.start),
        "last": _text(counted.end),
        "is_all": start is None and end is None,
        "ways": _ways(counted),
        "around": _around(counted),
        "answer": answer,
    }


def _count(overview: Overview, *, start: datetime | None, end: datetime | None) -> _CountedTime | None:
    """Count the events of a time, of all time where it has no bounds; None where there is no event at all."""
    span = overview.span()
    if span is None:
        return None
    first, last = map(to_datetime, span)
    begin = start or min(first, end or first)
    if end is None:
        end = max(last, begin) + timedelta(microseconds=1)
    step = next((step for step in reversed(STEPS) if len(_edges(begin, end, step)) <= MOST_MARKS + 1), STEPS[0])
    if start is None:
        begin = step.floor(begin)
    edges = _edges(begin, end, step)
    if last < end and edges[-1] > end:
        end = edges[-1]  # the whole unit of the last event
    bounds = [to_microseconds(edge) for edge in (begin, *edges[1:-1], end)]
    return _CountedTime(
        start=begin,
        end=end,
        step=step,
        edges=edges,
        counts=overview.counts(bounds),
        beside=overview.beside(bounds[0], bounds[-1]),
    )


def _edges(start: datetime, end: datetime, step: CalendarUnit) -> list[datetime]:
    """Return where the units of a time begin, and where the last one ends; no more than one past the most marks."""
    edges = [step.floor(start)]
    while edges[-1] < end and len(edges) <= MOST_MARKS + 1:
        edges.append(max(step.after(edges[-1]), edges[-1] + timedelta(microseconds=1)))
        if edges[-1] >= _LATEST:
            break
    return edges


def _marks(counted: _CountedTime) -> list[Json]:
    """Return the units that hold events: when they are, how many, and where each is drawn, none over another."""
    began, whole = counted.edges[0], (counted.edges[-1] - counted.edges[0]).total_seconds()
    most = max(counted.counts, default=0)
    marks = []
    for begin, end, events in zip(counted.edges, counted.edges[1:], counted.counts, strict=False):
        if not events:
            continue
        left, right = ((edge - began).total_seconds() / whole * _WIDTH for edge in (begin, end))
        height = max(_LEAST_MARK, round(events / most * _HEIGHT))
        marks.append(
            {
                "label": counted.step.written(begin),
                "events": events,
                "from": _text(begin),
                "to": _text(end),
                "x": round(left, 2),
                "width": round(max(right - left - 1, (right - left) * 0.8), 2),
                "y": _HEIGHT - height,
                "height": height,
            }
        )
    return marks


def _period(counted: _CountedTime) -> str:
    """Return a time as the units that it begins and ends with; empty where it begins or ends within one."""
    if len(counted.edges) == 1 or (counted.start, counted.end) != (counted.edges[0], counted.edges[-1]):
        return ""
    first, last = (counted.step.written(edge) for edge in (counted.edges[0], counted.edges[-2]))
    return f"in {first}" if first == last else f"from {first} to {last}"


def _ways(counted: _CountedTime) -> list[Json]:
    """Return the larger units that hold all of a time, the largest first: the way out of it."""
    ways = []
    for step in STEPS[2:-1]:
        begin = step.floor(counted.start)
        end = step.after(begin)
        if end >= counted.end and (begin, end) != (counted.start, counted.end):
            ways.append({"label": step.written(begin), "from": _text(begin), "to": _text(end)})
    return ways


def _around(counted: _CountedTime) -> list[Json]:
    """Return the ways to the nearest events before and after a time, in a unit as long as that time."""
    longest = next((step for step in STEPS if step.after(step.floor(counted.start)) <= counted.end), STEPS[-1])
    beside = counted.beside
    around = []
    for name, events, nearest in (
        ("Earlier", beside.earlier, beside.last_before),
        ("Later", beside.later, beside.first_after),
    ):
        if nearest is not None:
            begin = longest.floor(to_datetime(nearest))
            around.append({"name": name, "events": events, "from": _text(begin), "to": _text(longest.after(begin))})
    return around


def _text(moment: datetime) -> str:
    """Return a moment as addresses hold it."""
    return moment.isoformat().replace("+00:00", "Z")


def _first_of_month(month: int) -> datetime:
    """Return when a month begins, counted from the year 0; never before or after all moments that there are."""
    year, place = divmod(month, _MONTHS_OF_YEAR)
    if year < 1:
        return _EARLIEST
    if year > _LATEST.year:
        return _LATEST
    return datetime(year, place + 1, 1, tzinfo=UTC)
