"""Turns what tools answer into HTML: templates, and the filters that they use."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from importlib import resources
from itertools import accumulate
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.responses import HTMLResponse, Response

from myria.builds.change_log import ChangedTopic
from myria.builds.queue import WAITS_FOR
from myria.builds.snapshots import MOST_NEWER
from myria.log.fields import RESERVED_TYPES
from myria.log.payloads import speaker_of, whole_text
from myria.notes.model import NOTE_TYPE
from myria.topics.calendar import end_of_day
from myria.topics.lines import clean, clip
from myria_server.console.fields import browser_moment, moment_of
from myria_server.console.forms import marked_field, refusal_of, ticked, typed
from myria_server.console.gists import gist_of
from myria_server.console.tool_calls import tool_uses
from myria_server.paths import CONSOLE_PREFIX as PREFIX

STATIC = {
    "console.css": "text/css",
    "console.js": "text/javascript",
    "htmx.min.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}
"""The files that pages load, with their media types."""

POLICY = "; ".join(
    (
        "default-src 'none'",
        "style-src 'self'",
        "script-src 'self'",
        "connect-src 'self'",
        "img-src 'self'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
    )
)
"""The content security policy of every page: nothing inline, nothing of another host, in no frame."""

PROTECTION: Mapping[str, str] = {
    "content-security-policy": POLICY,
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
}
"""Headers of every answer of the console, be it a page, a file, a redirect or a stream."""

STATES: Mapping[str, str] = {"aborted": "given up", "archived": "previous", "staging": "being built"}
"""What a person reads for a status, where that is another word."""

CAUSES: Mapping[str, str] = {
    "manual": "asked for",
    "inactivity": "started after a quiet period",
    "tail_threshold": "started because many events were waiting",
}
"""What a person reads for the trigger of a build."""

_ALIKE = 2
"""From so many topics of one label on, something else must tell them apart."""

_LONGEST_SHOWN = 20_000
"""Characters of one text that a page shows; the rest is named by its length."""

_LONGEST_IN_LIST = 1_000
"""The same of a text that stands in a list beside others, and has a page of its own."""

_LONGEST_IN_HEADING = 80
_LONGEST_IN_TITLE = 60
_LONGEST_IN_FILE_NAME = 60

_IS_A_NOTE = re.compile(r"Note, \d{1,2} [A-Z][a-z]+ \d+, \d\d:\d\d")
"""The label of a topic of which nothing but the type of its events is known."""

_FIRST_WORDS = 80
"""Characters that stand for such a topic."""

_IN_UTC = Markup('<span class="utc"> UTC</span>')
"""Behind a day that the core has named, which is UTC's: shown where the reader's times are not."""

_HANDLE_AT_END = re.compile(r"(?<=\[)(?:e:[0-9]+|top_[0-9a-f]+)(?=\]$)", re.MULTILINE)
"""The handle of an event, or the id of a topic, at the end of a line, where nothing stands that others wrote."""

_MOST_BYTES_OF_ONE = 5
"""Bytes of HTML that one character takes at most: as `&#39;`."""


KIND_NAMES: Mapping[str, str] = {
    "episodic": "memory of what happened",
    "session": "memory of a session",
    "entity": "memory of a person or thing",
    "fact_l0": "fact from a conversation, until it changes",
    "fact_l1": "fact from a conversation, for its day",
    "fact_l2": "fact from a conversation, for some days",
}
"""What a person reads for a kind of note; other kinds are words themselves."""


def page(name: str, values: Mapping[str, Any], *, status: int = 200) -> Response:
    """Return the page, or the part of a page, that a template makes of some values."""
    return HTMLResponse(render(name, values), status_code=status)


def render(name: str, values: Mapping[str, Any]) -> str:
    """Return the HTML that a template makes of some values."""
    return _environment().get_template(name).render(values)


def static_file(name: str) -> bytes:
    """Return a file that pages load."""
    return (resources.files("myria_server.console") / "static" / name).read_bytes()


@lru_cache
def static_address(name: str) -> str:
    """Return the address of a file that pages load; it changes with the file's content, so browsers may keep it."""
    return f"{PREFIX}/static/{name}?v={hashlib.sha256(static_file(name)).hexdigest()[:12]}"


@lru_cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("myria_server.console"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(prefix=PREFIX, static=static_address, most_newer=MOST_NEWER, in_utc=_IN_UTC)
    environment.globals.update(marked_field=marked_field, refusal_of=refusal_of, typed=typed, ticked=ticked)
    environment.filters.update(moment=_moment, pretty=_pretty, shown=_shown, brief=_brief, query=query, number=_number)
    environment.filters.update(
        until=_until,
        label=_label,
        plain_moment=plain_moment,
        state_word=_state_word,
        first_words=first_words,
        type_name=lambda name: name.removeprefix(RESERVED_TYPES),
        linked_lines=_linked_lines,
        speaker=_speaker,
        note_id=note_id_of,
        heading=_heading,
        titled=_titled,
        state=_state,
        cause=CAUSES.__getitem__,
        waits=lambda wait: _marked(WAITS_FOR[wait]),
        told_apart=told_apart,
        marked=_marked,
        listed=_listed,
        counted=counted,
        in_percent=in_percent,
        in_megabytes=_in_megabytes,
        signed=_signed,
        gist=gist_of,
        tool_uses=tool_uses,
        whole_text=whole_text,
        browser_moment=browser_moment,
        moment_typed=moment_of,
        kind_name=lambda kind: KIND_NAMES.get(kind, kind),
    )
    return environment


def _state(status: str) -> Markup:
    """Return the status of a build or a snapshot as people read it, in the colour that it has everywhere."""
    return Markup('<span class="state {}">{}</span>').format(status, _state_word(status))


def _state_word(status: str) -> str:
    return STATES.get(status, status.replace("_", " "))


def _moment(text: str | None, *, is_day: bool = False) -> Markup:
    """Return a moment (RFC 3339) as an element that names it in UTC, or its day alone.

    A script shows it in the reader's zone.
    """
    if not text:
        return Markup('<span class="none">never</span>')
    moment = datetime.fromisoformat(text).astimezone(UTC)
    said = _day(moment) if is_day else plain_moment(text)
    shows = "day" if is_day else "time"
    return Markup('<time datetime="{}" title="{} UTC" data-shows="{}">{}</time>').format(
        f"{moment:%Y-%m-%dT%H:%M:%SZ}", f"{moment:%Y-%m-%d %H:%M:%S}", shows, said
    )


def _until(first: str, last: str) -> Markup:
    """Return a stretch of time by its first and last moment (RFC 3339), or one moment where both read alike."""
    if plain_moment(first) == plain_moment(last):
        return _moment(first)
    return Markup("{} to {}").format(_moment(first), _moment(last))


def plain_moment(text: str) -> str:
    """Return a moment (RFC 3339) in UTC, for where no element can stand."""
    moment = datetime.fromisoformat(text).astimezone(UTC)
    return f"{_day(moment)}, {moment:%H:%M} UTC"


def _day(moment: datetime) -> str:
    """Return a day as the labels of topics write it, but with a short month: 13 Mar 2026."""
    return f"{moment.day} {moment:%b} {moment.year}"


def _shown(value: Any, longest: int = _LONGEST_SHOWN) -> Markup:
    """Return a text of somebody else's: cut where it is very long, and without any sway over the text around it.

    `<bdi>` keeps marks of direction in it from turning what follows.
    """
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return _begun(text, _room(text, longest))


def _begun(text: str, room: int) -> Markup:
    """Return so many characters of a text, and how many more it has."""
    cut = Markup("")
    if len(text) > room:
        cut = Markup('<span class="cut"> … {} more characters</span>').format(_number(len(text) - room))
    return Markup("<bdi>{}</bdi>{}").format(text[:room], cut)


def _room(text: str, longest: int) -> int:
    """Return how many characters of a text are shown: `longest`, or fewer that take twice as many bytes of HTML."""
    if len(text) * _MOST_BYTES_OF_ONE <= 2 * longest:
        return len(text)
    sizes = accumulate(len(escape(character).encode()) for character in text[:longest])
    return sum(size <= 2 * longest for size in sizes)


def _brief(value: Any) -> Markup:
    """Return a text of somebody else's as `_shown` does, short enough for a list of many."""
    return _shown(value, _LONGEST_IN_LIST)


def _label(text: str) -> Markup:
    """Return the label of a topic as `_shown` does, with the zone of a day that it names."""
    end = end_of_day(text)
    return _shown(text) if not end else _shown(text[:end]) + _IN_UTC + (_shown(text[end:]) if text[end:] else "")


def first_words(topic: ChangedTopic) -> Markup:
    """Return what stands behind the label of a topic that a type names: the first words that its summary quotes."""
    quotes = gist_of(topic.summary).now if _IS_A_NOTE.fullmatch(topic.label) else ()
    return Markup(": ") + _shown(clip(quotes[0].said, _FIRST_WORDS)) if quotes else Markup("")


def _heading(text: str) -> Markup:
    """Return a text of somebody else's as `_shown` does, short enough for a heading."""
    return _shown(text, _LONGEST_IN_HEADING)


def _titled(text: str) -> str:
    """Return the first words of a text of somebody else's, for the title of a page, which has no markup."""
    return clip(clean(text[: 2 * _LONGEST_IN_TITLE]), _LONGEST_IN_TITLE)


def _listed(names: Iterable[str], between: str = ", ", most: int | None = None) -> Markup:
    """Return names of others as `_shown` does, each by itself: one written from right to left turns no other.

    Of more than `most` names the first, and how many more there are.
    """
    everybody = list(names)
    listed = escape(between).join(map(_shown, everybody[:most]))
    left = 0 if most is None else len(everybody) - most
    return listed if left <= 0 else listed + f" and {_number(left)} more"


def counted(number: int, one: str, many: str | None = None) -> str:
    """Return a number with what is counted: 1 event, 2 events."""
    return f"{_number(number)} {one if number == 1 else many or one + 's'}"


def _marked(text: str) -> Markup:
    """Return a description of our own with what stands in backticks as code."""
    pieces = text.split("`")
    return Markup("").join(
        Markup("<code>{}</code>").format(piece) if place % 2 and place < len(pieces) - 1 else escape(piece)
        for place, piece in enumerate(pieces)
    )


def _pretty(value: Any) -> Markup:
    """Return a JSON value, readable, as text: cut as `_shown` does, where a line ends if one ends in the later half."""
    text = json.dumps(value, ensure_ascii=False, indent=2)
    room = _room(text, _LONGEST_SHOWN)
    if len(text) > room and (line_end := text.rfind("\n", room // 2, room)) > 0:
        room = line_end
    return _begun(text, room)


def _speaker(node: Mapping[str, Any]) -> str | None:
    """Return who said what an event of an answer holds; None where it does not say."""
    return node.get("speaker") or speaker_of(node.get("payload") or {})


def note_id_of(node: Mapping[str, Any]) -> str | None:
    """Return the id of the note of which an event of an answer is a version; None where it is none, or does not say."""
    note = (node.get("payload") or {}).get("note")
    return str(note["id"]) if node.get("type") == NOTE_TYPE and isinstance(note, dict) and "id" in note else None


def _linked_lines(text: str, names: Sequence[str]) -> Markup:
    """Return a text for a model, in which the handle that ends a line leads to its event or topic."""
    linked, end = Markup(""), 0
    for handle in _HANDLE_AT_END.finditer(text):
        place = f"/topics/{handle[0]}" if handle[0].startswith("top_") else f"/events/{handle[0]}"
        linked += text[end : handle.start()] + Markup('<a href="{}">{}</a>').format(query(place, names), handle[0])
        end = handle.end()
    return Markup("<bdi>{}</bdi>").format(linked + text[end:])


def told_apart(nodes: Sequence[Mapping[str, Any]], above: str = "") -> list[Markup]:
    """Return what to write behind the label of each topic: its day where others here, or the one above, have its label.

    Of topics with one label and day it is the time of day, too; of events it is empty.
    """
    labels = Counter(node["label"] for node in nodes if "label" in node)
    labels[above] += 1
    days = Counter((node["label"], node["first_at"][:10]) for node in nodes if "label" in node)
    written = []
    for node in nodes:
        if "label" not in node or labels[node["label"]] < _ALIKE:
            written.append(Markup(""))
            continue
        is_day = days[node["label"], node["first_at"][:10]] < _ALIKE
        written.append(Markup(", ") + _moment(node["first_at"], is_day=is_day))
    return written


def in_percent(points: Mapping[str, int]) -> list[tuple[str, int, int]]:
    """Return parts of a sum as (name, points, whole percent), the largest first; the percents add up to 100.

    Each is rounded down, and those that lose most by it get one more (largest remainders). Of a sum that is not
    positive there are no parts: all percents are 0.
    """
    whole = sum(points.values())
    if whole <= 0:
        return [(name, part, 0) for name, part in sorted(points.items(), key=lambda pair: -pair[1])]
    down = {name: 100 * part // whole for name, part in points.items()}
    lost = sorted(points, key=lambda name: -(100 * points[name] % whole))
    for name in lost[: 100 - sum(down.values())]:
        down[name] += 1
    return [(name, points[name], down[name]) for name in sorted(points, key=lambda name: -points[name])]


def _signed(value: int) -> str:
    """Return a number that raises or lowers something, with its sign."""
    return ("+" if value > 0 else "\u2212" if value < 0 else "") + _number(abs(value))


def _number(value: float) -> str:
    """Return a number with thin spaces between thousands."""
    return f"{value:,}".replace(",", "\u202f")


def _in_megabytes(size: int) -> str:
    """Return a number of bytes in megabytes (10⁶ bytes), with one digit after the point where they are few."""
    megabytes = size / 1_000_000
    return f"{_number(round(megabytes) if megabytes >= 10 else round(megabytes, 1))} MB"


def query(path: str, names: Sequence[str] = (), /, **parameters: Any) -> str:
    """Return an address of the console, with those as whom the visitor asks and the parameters that have a value."""
    pairs = [("as", name) for name in names]
    pairs += [(name, str(value)) for name, value in parameters.items() if value not in (None, "", False)]
    address = PREFIX + quote(path, safe="/:@!$&'()*+,;=~")
    return f"{address}?{urlencode(pairs)}" if pairs else address


def saved_as(kind: str, extension: str, about: str = "") -> dict[str, str]:
    """Return the header by which a browser saves an answer: under what it is, about whom, and the day (UTC).

    Args:
        about: a name of somebody else's; only its letters and digits stay, so that it leads to no other folder.
    """
    kept = re.sub(r"[\W_]+", "_", about)[:_LONGEST_IN_FILE_NAME].strip("_")
    name = "-".join(part for part in (kind, kept, f"{datetime.now(UTC):%Y-%m-%d}") if part) + f".{extension}"
    plain = re.sub(r"[^\x21-\x7e]+", "_", name)
    return {"content-disposition": f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe='')}"}
