"""Appends: what an event may hold, how it is normalised, and how each refusal reads."""

from __future__ import annotations

import math
import re
import sys
import time
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import jsonschema
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from myria.access.principal import Principal, local_principal
from myria.errors import InvalidArgument, InvalidText, InvalidTimestamp, MyriaError
from myria.log.event import NewEvent, parse_event, parse_events
from myria.log.fields import MAX_TIMESTAMP, MIN_TIMESTAMP, parse_timestamp
from myria.log.ids import new_id, new_ids
from myria.log.limits import Limits, limits_of
from myria.log.payloads import TopicHint
from myria.settings import Settings
from myria_server.api.coercion import coerced
from myria_server.api.core.inputs import EventInput
from myria_server.api.schemas import published_schema

LIMITS = Limits()


def event(**changes: Any) -> dict[str, Any]:
    """Arguments of a good event, with some changed."""
    return {
        "timestamp": "2026-03-19T20:00:00Z",
        "channel": "telegram",
        "participants": ["user_42", "agent_1"],
        "payload": {"text": "Let's design the memory system"},
    } | changes


def refusal(arguments: Any, limits: Limits = LIMITS) -> MyriaError:
    """Return how an event is refused."""
    with pytest.raises(MyriaError) as caught:
        parse_event(arguments, limits)
    return caught.value


def test_a_full_event_is_normalised() -> None:
    """§5.1's example becomes microseconds, sorted participants and canonical JSON."""
    new = parse_event(
        event(
            timestamp="2026-03-19T22:00:00.1234567+02:00",
            participants=[" user_42 ", "agent_1", "user_42"],
            payload={"b": 1, "a": "é"},
            source_event_key="telegram:chat_7:msg_99102",
            context_id="ctx_group_7",
            type="message",
            topic_hints=[{"hint": "memory_system", "confidence": 0.92}, {"hint": "design", "confidence": 1}],
            internal=True,
        ),
        LIMITS,
    )
    assert new == NewEvent(
        timestamp=1_773_950_400_123_456,
        channel="telegram",
        participants=("agent_1", "user_42"),
        payload_json='{"a":"é","b":1}'.encode(),
        source_event_key="telegram:chat_7:msg_99102",
        context_id="ctx_group_7",
        type="message",
        topic_hints=(TopicHint(hint="memory_system", confidence=0.92), TopicHint(hint="design", confidence=1.0)),
        internal=True,
        utc_offset=120,
    )


def test_an_event_that_waits_does_not_hold_what_the_caller_sent() -> None:
    """Of a payload only the bytes that are stored stay in memory, not the decoded objects too."""
    payload = {"text": "hello", "parts": [1, 2, 3]}
    holders = sys.getrefcount(payload)
    new = parse_event(event(payload=payload), LIMITS)
    assert orjson.loads(new.payload_json) == payload
    assert sys.getrefcount(payload) == holders


def test_null_is_as_good_as_absent() -> None:
    """Optional fields may be null."""
    optional = ("source_event_key", "context_id", "type", "topic_hints", "internal")
    assert parse_event(event(**dict.fromkeys(optional)), LIMITS) == parse_event(event(), LIMITS)


def test_the_key_order_of_a_payload_does_not_change_what_is_stored() -> None:
    """Two spellings of one payload have the same canonical bytes."""
    one = parse_event(event(payload={"a": 1, "b": {"d": [], "c": None}}), LIMITS)
    other = parse_event(event(payload={"b": {"c": None, "d": []}, "a": 1}), LIMITS)
    assert one.payload_json == other.payload_json


@pytest.mark.parametrize(
    ("changes", "code", "field"),
    [
        ({"timestamp": "2026-03-19T20:00:00"}, "invalid_timestamp", "timestamp"),
        ({"timestamp": 1773950400}, "invalid_timestamp", "timestamp"),
        ({"timestamp": None}, "invalid_argument", "timestamp"),
        ({"channel": ""}, "invalid_text", "channel"),
        ({"channel": "x" * 201}, "invalid_text", "channel"),
        ({"channel": 7}, "invalid_argument", "channel"),
        ({"channel": "a\x00b"}, "invalid_text", "channel"),
        ({"channel": "a\ud800b"}, "invalid_text", "channel"),
        ({"participants": []}, "invalid_participants", "participants"),
        ({"participants": "user_42"}, "invalid_participants", "participants"),
        ({"participants": ["a", " "]}, "invalid_participants", "participants[1]"),
        ({"participants": ["a", "b\n"[:1] + "\x07"]}, "invalid_participants", "participants[1]"),
        ({"participants": ["x" * 201]}, "invalid_participants", "participants[0]"),
        ({"participants": [f"p{i}" for i in range(65)]}, "invalid_participants", "participants"),
        ({"participants": ["a", None]}, "invalid_participants", "participants[1]"),
        ({"payload": []}, "invalid_payload", "payload"),
        ({"payload": "text"}, "invalid_payload", "payload"),
        ({"payload": {"a": math.nan}}, "invalid_payload", "payload"),
        ({"payload": {"a": [math.inf]}}, "invalid_payload", "payload"),
        ({"payload": {"a": 2**64}}, "invalid_payload", "payload"),
        ({"payload": {"a": {"b": "\x00"}}}, "invalid_text", "payload.a.b"),
        ({"payload": {"a": ["", "\udfff"]}}, "invalid_text", "payload.a[1]"),
        ({"payload": {"k\x00": 1}}, "invalid_text", "payload.k\x00"),
        ({"payload": {"a": "x" * 262_144}}, "payload_too_large", "payload"),
        ({"source_event_key": ""}, "invalid_text", "source_event_key"),
        ({"source_event_key": "x" * 513}, "invalid_text", "source_event_key"),
        ({"context_id": "x" * 201}, "invalid_text", "context_id"),
        ({"type": 5}, "invalid_argument", "type"),
        ({"topic_hints": "memory"}, "invalid_argument", "topic_hints"),
        ({"topic_hints": ["memory"]}, "invalid_argument", "topic_hints[0]"),
        ({"topic_hints": [{"hint": "a"}]}, "invalid_argument", "topic_hints[0].confidence"),
        ({"topic_hints": [{"hint": "a", "confidence": 1.01}]}, "invalid_argument", "topic_hints[0].confidence"),
        ({"topic_hints": [{"hint": "a", "confidence": True}]}, "invalid_argument", "topic_hints[0].confidence"),
        ({"topic_hints": [{"hint": "a", "confidence": math.nan}]}, "invalid_argument", "topic_hints[0].confidence"),
        ({"topic_hints": [{"hint": "", "confidence": 1}]}, "invalid_text", "topic_hints[0].hint"),
        ({"topic_hints": [{"hint": "a", "confidence": 1, "weight": 2}]}, "unknown_field", "topic_hints[0].weight"),
        ({"topic_hints": [{"hint": "a", "confidence": 1}] * 33}, "invalid_argument", "topic_hints"),
        ({"internal": "yes"}, "invalid_argument", "internal"),
        ({"internal": 1}, "invalid_argument", "internal"),
        ({"event_id": "evt_1"}, "unknown_field", "event_id"),
        ({"chanel": "x"}, "unknown_field", "chanel"),
    ],
)
def test_bad_fields_are_refused_by_name(changes: dict[str, Any], code: str, field: str) -> None:
    """Every refusal has a stable code and the path of the field."""
    error = refusal(event(**changes))
    assert (error.code, error.details["field"]) == (code, field)


@pytest.mark.parametrize("name", ["timestamp", "channel", "participants", "payload"])
def test_required_fields_are_required(name: str) -> None:
    """Each of the four trusted facts must be there."""
    error = refusal({key: value for key, value in event().items() if key != name})
    assert (error.code, error.details["field"], error.message) == ("invalid_argument", name, f"{name} is required")


def test_an_unknown_field_names_the_nearest_known_one() -> None:
    """A typo is answered with what was probably meant."""
    assert refusal(event(particpants=["a"])).details["nearest"] == "participants"
    assert refusal(event(topicHints=[])).details["nearest"] == "topic_hints"
    assert refusal(event(idempotency_key="x")).details["nearest"] == "source_event_key"


@pytest.mark.parametrize(("depth", "refused"), [(32, False), (33, True), (5_000, True)])
@pytest.mark.parametrize("kind", ["object", "array"])
def test_payloads_have_a_depth(depth: int, refused: bool, kind: str) -> None:
    """32 levels are stored, 33 are not, 5,000 do no harm."""
    inner: Any = {} if kind == "object" else []
    for _ in range(depth - 2):
        inner = {"a": inner} if kind == "object" else [inner]
    if refused:
        assert refusal(event(payload={"a": inner})).code == "payload_too_deep"
    else:
        parse_event(event(payload={"a": inner}), LIMITS)


def test_a_wide_payload_is_not_deep() -> None:
    """Many siblings are no depth."""
    parse_event(event(payload={"a": [[] for _ in range(100)], "b": {str(i): {} for i in range(100)}}), LIMITS)


def test_the_size_of_a_payload_is_that_of_its_canonical_json() -> None:
    """White space and escapes of the request do not count; exactly the limit is stored."""
    parse_event(event(payload={"a": "x" * (262_144 - 8)}), LIMITS)
    assert refusal(event(payload={"a": "x" * (262_144 - 7)})).code == "payload_too_large"


def test_policy_makes_types_internal() -> None:
    """A type listed in the settings is internal whatever the flag says."""
    limits = Limits(internal_types=frozenset({"heartbeat"}))
    assert parse_event(event(type="heartbeat", internal=False), limits).internal
    assert not parse_event(event(type="message"), limits).internal


def test_timestamps_lie_at_most_a_day_ahead_of_the_clock() -> None:
    """By default 2099 is refused, and the refusal names the setting; a later time zone's now is not."""
    limits = limits_of(Settings())
    refused = refusal(event(timestamp="2099-01-01T00:00:00Z"), limits)
    assert refused.code == "invalid_timestamp"
    assert refused.details == {"field": "timestamp", "limit": 86_400, "setting": "ingest.future_limit_s"}
    assert "ingest.future_limit_s" in refused.message
    soon = datetime.fromtimestamp(time.time() + 14 * 3600, UTC).isoformat()
    parse_event(event(timestamp=soon), limits)


@pytest.mark.parametrize("off", ["0", ""])
def test_the_limit_of_the_future_can_be_switched_off(off: str) -> None:
    """With 0, or unset, any timestamp is fine; an import may ask for that itself."""
    settings = Settings.load(environ={"MYRIA_INGEST_FUTURE_LIMIT_S": off})
    for limits in (limits_of(settings), limits_of(Settings(), any_time=True)):
        parse_event(event(timestamp="9999-12-31T23:59:59Z"), limits)


def test_only_an_import_may_name_event_ids() -> None:
    """The line of an export brings its event_id back."""
    exported = "evt_" + "0123456789abcdef" * 2
    assert parse_event(event(event_id=exported), LIMITS, importing=True).event_id == exported
    assert re.fullmatch(r"evt_[0-9a-f]{32}", new_id("evt"))


@pytest.mark.parametrize(
    "event_id",
    ["evt_1", "1" * 36, "evt_" + "A" * 32, "evt_" + "0" * 33, "evt_" + "0" * 31 + "\u200b", " evt_" + "0" * 32, "", 7],
)
def test_an_imported_event_id_looks_like_ours(event_id: Any) -> None:
    """Ids sort by time and have one shape, wherever they come from: evt_ and 32 hexadecimal digits."""
    with pytest.raises(InvalidArgument) as caught:
        parse_event(event(event_id=event_id), LIMITS, importing=True)
    assert caught.value.details["field"] == "event_id"


UNSEEN = {
    "ZERO WIDTH SPACE": "\u200b",
    "ZERO WIDTH NON-JOINER": "\u200c",
    "ZERO WIDTH JOINER": "\u200d",
    "RIGHT-TO-LEFT OVERRIDE": "\u202e",
    "LEFT-TO-RIGHT MARK": "\u200e",
    "POP DIRECTIONAL ISOLATE": "\u2069",
    "WORD JOINER": "\u2060",
    "ZERO WIDTH NO-BREAK SPACE": "\ufeff",
    "SOFT HYPHEN": "\u00ad",
    "LINE SEPARATOR": "\u2028",
    "COMBINING GRAPHEME JOINER": "\u034f",
    "HANGUL FILLER": "\u3164",
    "VARIATION SELECTOR-16": "\ufe0f",
    "TAG LATIN SMALL LETTER A": "\U000e0061",
}


@pytest.mark.parametrize("named", UNSEEN)
@pytest.mark.parametrize("field", ["participants", "channel", "source_event_key", "context_id", "type"])
def test_names_hold_no_character_that_nobody_sees(field: str, named: str) -> None:
    """Names that look alike are alike: the refusal tells the character, its code point and its place."""
    character = UNSEEN[named]
    for position, name in ((2, f"an{character}na"), (0, f"{character}anna"), (4, f"anna{character}")):
        refused = refusal(event(**{field: [name] if field == "participants" else name}))
        assert refused.code == ("invalid_participants" if field == "participants" else "invalid_text")
        assert refused.details == {
            "field": "participants[0]" if field == "participants" else field,
            "code_point": f"U+{ord(character):04X}",
            "position": position,
        }
        assert named in refused.message


def test_names_of_every_script_are_taken() -> None:
    """Only what cannot be seen is refused, and texts of payloads keep everything."""
    names = ["Zoë", "安娜", "아나", "Анна", "آنا", "अनीता", "அனிதா", "Ana María", "😀", "e\u0301ric", "Ωmega-7"]
    parsed = parse_event(event(participants=names, channel="दिल्ली", payload={"text": "a\u200bb \u202e"}), LIMITS)
    assert len(parsed.participants) == len(names)
    assert orjson.loads(parsed.payload_json)["text"] == "a\u200bb \u202e"


def test_spellings_of_a_participant_are_one_and_of_other_names_are_not() -> None:
    """Participants are compared in NFC; a channel or a key is what its bytes are."""
    composed, decomposed = "Zo\u00eb", "Zoe\u0308"
    assert parse_event(event(participants=[composed, decomposed]), LIMITS).participants == (composed,)
    assert parse_event(event(channel=decomposed), LIMITS).channel == decomposed


def test_a_batch_names_the_index_of_what_it_refuses() -> None:
    """append_events is all or nothing, and says which event was wrong."""
    with pytest.raises(MyriaError) as caught:
        parse_events({"events": [event(), event(channel="")]}, LIMITS)
    assert caught.value.details["index"] == 1
    assert caught.value.message.startswith("events[1]: ")
    assert len(parse_events({"events": [event(), event()]}, LIMITS)) == 2


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({}, "invalid_argument"),
        ({"events": []}, "invalid_argument"),
        ({"events": {}}, "invalid_argument"),
        ({"events": [event()] * 501}, "batch_too_large"),
        ({"events": [event()], "atomic": True}, "unknown_field"),
        ({"events": [5]}, "invalid_argument"),
    ],
)
def test_bad_batches_are_refused(arguments: dict[str, Any], code: str) -> None:
    """A batch holds 1..500 events and nothing else."""
    with pytest.raises(MyriaError) as caught:
        parse_events(arguments, LIMITS)
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("text", "micros"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01t00:00:00z", 0),
        ("1970-01-01 00:00:00+00:00", 0),
        ("1970-01-01T00:00:00-00:00", 0),
        ("1969-12-31T23:59:59.999999Z", -1),
        ("1970-01-01T05:30:00+05:30", 0),
        ("1970-01-01T00:00:00.1Z", 100_000),
        ("1970-01-01T00:00:00.123456789Z", 123_456),
        ("0001-01-01T00:00:00Z", MIN_TIMESTAMP),
        ("9999-12-31T23:59:59.999999Z", MAX_TIMESTAMP),
        ("2024-02-29T12:00:00Z", 1_709_208_000_000_000),
    ],
)
def test_good_timestamps(text: str, micros: int) -> None:
    """RFC 3339 in all its spellings; digits beyond microseconds are cut off."""
    assert parse_timestamp(text) == micros


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("2026-03-19T20:00:00", "no zone"),
        ("2026-03-19", "RFC 3339"),
        ("2026-03-19T20:00Z", "RFC 3339"),
        ("20260319T200000Z", "RFC 3339"),
        ("2026-W12-4T20:00:00Z", "RFC 3339"),
        ("2026-03-19T20:00:00,5Z", "RFC 3339"),
        ("2026-03-19T20:00:00.Z", "RFC 3339"),
        ("2026-03-19T20:00:00.0123456789Z", "RFC 3339"),
        ("2026-03-19T20:00:00+0200", "RFC 3339"),
        ("2026-03-19T20:00:00 Z", "RFC 3339"),
        ("２０２６-03-19T20:00:00Z", "RFC 3339"),
        ("2026-03-19T20:00:00Z\n", "RFC 3339"),
        ("-001-03-19T20:00:00Z", "RFC 3339"),
        ("10000-01-01T00:00:00Z", "RFC 3339"),
        ("", "RFC 3339"),
        ("0000-01-01T00:00:00Z", "real date"),
        ("2026-02-30T00:00:00Z", "real date"),
        ("2025-02-29T00:00:00Z", "real date"),
        ("2026-13-01T00:00:00Z", "real date"),
        ("2026-03-19T24:00:00Z", "real date"),
        ("2026-03-19T20:60:00Z", "real date"),
        ("2026-03-19T20:00:00+24:00", "real date"),
        ("2016-12-31T23:59:60Z", "leap second"),
        ("0001-01-01T00:00:00+00:01", "0001-9999"),
        ("9999-12-31T23:59:59.999999-00:01", "0001-9999"),
    ],
)
def test_bad_timestamps(text: str, said: str) -> None:
    """What is not an instant of the years 0001-9999 is refused with a reason."""
    with pytest.raises(InvalidTimestamp, match=said):
        parse_timestamp(text)


@given(
    st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)),  # noqa: DTZ001 - the zone is drawn beside it
    st.integers(-23 * 60, 23 * 60),
)
def test_timestamps_are_exact(moment: datetime, offset: int) -> None:
    """Any instant with any offset becomes its exact number of microseconds."""
    aware = moment.replace(tzinfo=timezone(timedelta(minutes=offset)))
    expected = (aware - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    assert parse_timestamp(aware.isoformat()) == expected


GOOD_OR_BAD = st.sampled_from(
    [None, "", "x", "x" * 200, "x" * 201, "x" * 513, "a\x00", "é", 5, 5.0, True, [], {}, ["a"], {"a": 1}]
)
HINTS = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "hint": st.sampled_from(["a", "", "x" * 201, 5, None]),
            "confidence": st.sampled_from([0, 1, 0.5, -0.1, 1.1, True, "1", None]),
            "weight": st.just(1),
        },
    ),
    max_size=3,
)


CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "timestamp": st.sampled_from(["2026-03-19T20:00:00Z", "2026-03-19", "", 5, None]),
        "channel": GOOD_OR_BAD,
        "participants": st.sampled_from([["a"], ["b", "a"], [], [""], [5], "a", None, ["x" * 201]]),
        "payload": st.sampled_from([{}, {"text": "x"}, [], "x", None]),
        "source_event_key": GOOD_OR_BAD,
        "context_id": GOOD_OR_BAD,
        "type": GOOD_OR_BAD,
        "topic_hints": HINTS | GOOD_OR_BAD,
        "internal": st.sampled_from([True, False, None, 1, "true"]),
        "extra": st.just(1),
    },
)


@given(CHANGES)
def test_the_published_schema_takes_what_appends_take(changes: dict[str, Any]) -> None:
    """But for null, which is taken in place of what may be left out, and need not be offered."""
    arguments = coerced(EventInput, event(**changes))
    try:
        parse_event(arguments, LIMITS, principal=local_principal("default"))
    except MyriaError:
        return
    offered = {name: value for name, value in arguments.items() if value is not None}
    jsonschema.validate(offered, published_schema(EventInput))


GOOD = st.fixed_dictionaries(
    {
        "timestamp": st.sampled_from(["2026-03-19T20:00:00Z", "2026-03-19t20:00:00.5+02:00", "0001-01-01T00:00:00Z"]),
        "channel": st.sampled_from(["a", "ab"]),
        "participants": st.sampled_from([["a"], ["a", "bot"], ["bot", "a"], ["a "], ["ab", "a"]]),
        "payload": st.sampled_from([{}, {"text": "x"}, {"a": [None]}, {"a": "\\\\ null {["}, {"b": 1, "a": True}]),
    },
    optional={
        "source_event_key": st.sampled_from(["k", None]),
        "context_id": st.sampled_from(["a", "b", None]),
        "type": st.sampled_from(["message", "note", None]),
        "topic_hints": st.sampled_from(
            [[], None, [{"hint": "a", "confidence": 1}], [{"hint": "a", "confidence": 0.5}]]
        ),
        "internal": st.sampled_from([True, False, None]),
    },
)
BAD: tuple[dict[str, Any], ...] = (
    {"timestamp": "9999-01-01T00:00:00Z"},
    {"timestamp": "2026-02-29T00:00:00Z"},
    {"channel": "b"},
    {"channel": "a\u200b"},
    {"channel": True},
    {"participants": [1]},
    {"participants": []},
    {"participants": ["b"]},
    {"payload": {"a": "\x00"}},
    {"payload": {"a": math.nan}},
    {"payload": [1]},
    {"source_event_key": ""},
    {"context_id": 1},
    {"type": "myria.note"},
    {"topic_hints": [{"hint": "a", "confidence": True}]},
    {"internal": 1},
    {"unknown": 1},
)
PRINCIPALS = (
    local_principal("default"),
    Principal(
        tenant="default",
        actor="bot",
        roles=frozenset({"append"}),
        faces=frozenset({"core"}),
        own=("bot",),
        may_ask=("a*",),
        channels=("a*",),
    ),
)


@pytest.mark.parametrize("bad", [None, *BAD])
@given(items=st.lists(GOOD, min_size=2, max_size=5), principal=st.sampled_from(PRINCIPALS))
def test_events_that_share_fields_are_read_as_if_each_stood_alone(
    items: list[dict[str, Any]], bad: dict[str, Any] | None, principal: Principal
) -> None:
    """A batch gives the events that its items give one by one; it is refused as its first bad item is."""
    limits = limits_of(Settings())
    if bad is not None:
        items = [*items[:-1], items[-1] | bad]
    alone: list[NewEvent] = []
    refused: MyriaError | None = None
    for item in items:
        try:
            alone.append(parse_event(item, limits, principal=principal))
        except MyriaError as error:
            refused = error
            break
    if refused is None:
        assert parse_events({"events": items}, limits, principal=principal) == alone
        return
    with pytest.raises(type(refused)) as caught:
        parse_events({"events": items}, limits, principal=principal)
    assert caught.value.to_json() == refused.at_index(len(alone)).to_json()


@given(st.dictionaries(st.text(max_size=5), st.text(max_size=5) | st.integers(-(2**63), 2**64 - 1), max_size=5))
def test_any_storable_payload_is_kept_exactly(payload: dict[str, Any]) -> None:
    """What is accepted is what the canonical bytes say; what is refused holds NUL or a surrogate."""
    try:
        new = parse_event(event(payload=payload), LIMITS)
    except InvalidText:
        return
    assert orjson.loads(new.payload_json) == payload
    assert b"\\u0000" not in new.payload_json


def test_ids_of_a_batch_are_as_others_and_in_their_order() -> None:
    """Each is another one, whatever their number."""
    made = new_ids("evt", 500)
    assert len(set(made)) == 500
    assert made == sorted(made)
    assert all(re.fullmatch(r"evt_[0-9a-f]{32}", one) for one in made)
    assert new_ids("evt", 0) == []
