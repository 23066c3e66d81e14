"""Scopes of events for the planner's tests."""

from __future__ import annotations

from hashlib import sha256
from typing import ClassVar

from hypothesis import strategies as st

from myria.settings.planner import PlannerSettings
from myria.topics.model import PlanEvent


class _Dense(PlannerSettings):
    hash_cut: ClassVar[int] = 3


SETTINGS = PlannerSettings()
DENSE = _Dense()
MINUTE = 60_000_000
SCOPE = ("ana", "bo")
YEAR_1 = -62_135_596_800_000_000
YEAR_9999_END = 253_402_300_799_999_999

GAPS = (1, 20_000_000, MINUTE, 29 * MINUTE, 30 * MINUTE, 31 * MINUTE, 3000 * MINUTE, 10**15)
TEXTS = (
    "",
    "I went to the pottery class on Friday. It was great!",
    "Which glaze did you use?",
    "The kiln broke, so we ordered a new kiln from Leeds.",
    "ok",
    "会議は来週の火曜日です。",
    "Zwölf Boxkämpfer jagen Viktor",
    "🙂 \u202e \x00 a\u200bb",
)


def key_of(event_id: str) -> bytes:
    """The content key of an event that is told apart by its id alone."""
    return sha256(event_id.encode()).digest()


@st.composite
def scopes(draw: st.DrawFn, most: int = 60, *, gaps: tuple[int, ...] = (0, *GAPS)) -> list[PlanEvent]:
    """A scope in order: silences on both sides of the gap, markers, tasks, contexts, any event ids."""
    steps = draw(
        st.lists(
            st.tuples(
                st.sampled_from(gaps),
                st.sampled_from(["message", "message", "message", "topic_marker", None]),
                st.sampled_from([None, "a", "b"]),
                st.sampled_from([None, "c", "d"]),
                st.integers(0, 10**6),
                st.sampled_from(TEXTS),
                st.sampled_from(["Ana", "Bo", None]),
                st.sampled_from([(), (("pottery", 900),), (("kiln_repair", 600), ("pottery", 200))]),
            ),
            max_size=most,
        )
    )
    at, events = draw(st.integers(-(10**15), 10**15)), []
    for seq, (gap, kind, task, context, salt, text, speaker, hints) in enumerate(steps):
        at += gap
        events.append(
            PlanEvent(
                event_seq=seq * 10,
                event_id=f"evt_{salt}_{seq}",
                key=key_of(f"evt_{salt}_{seq}"),
                timestamp=at,
                type=kind,
                task=task,
                context_id=context,
                text=text,
                speaker=speaker,
                hints=hints,
            )
        )
    return events
