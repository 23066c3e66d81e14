"""Events of memories: those of notes with what REST adds to them."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from myria.notes.drafting import NoteText
from myria.notes.kinds import policy_of
from myria.notes.memories.model import MemoryDraft, note_of_memory

_TEXTS = st.one_of(
    st.sampled_from(["", "bot", "p/s", "1", "a" * 129, "nul\x00", "\ud800", "ä", "decision_made", "x y", "general"]),
    st.text(max_size=5),
)


@given(
    st.builds(
        MemoryDraft,
        agent_id=st.sampled_from(["bot", "a" * 300, '"id":""', ',"dedup_key":"", "text":""}']),
        content=st.text(min_size=1, max_size=9) | st.sampled_from(['"text":""}', "\\", "\x1f"]),
        session_id=st.sampled_from([None, "s"]),
        memory_type=st.sampled_from(["episodic", "session", "decision", "entity"]),
        event_type=st.sampled_from(["general", "decision_made"]),
        metadata=st.sampled_from([None, {"a": 1}]),
        dedup_key=st.none(),
        importance=st.sampled_from([None, 0.25]),
        parent_id=st.none(),
        tags=st.sampled_from([(), ("B.c", "b.c", "d")]),
    ),
    st.sampled_from([None, "key", '"dedup_key":""', "\\"]),
)
def test_a_memory_is_a_note(draft: MemoryDraft, dedup: str | None) -> None:
    """The event that keeps a memory is the one that keeps the same as a note of any face."""
    made = note_of_memory(draft, dedup_key=dedup, shared_with="org", within_s=60)
    about: dict[str, Any] = {"agent_id": draft.agent_id, "event_type": draft.event_type, "tags": list(draft.tags)}
    about |= {} if dedup is None else {"dedup_key": dedup, "dedup_within_s": 60, "shared_with": "org"}
    about |= {} if draft.metadata is None else {"metadata": draft.metadata}
    about |= {} if draft.importance is None else {"importance": draft.importance}
    assert made == NoteText(
        content=draft.content,
        kind=draft.memory_type,
        topic=draft.agent_id if draft.event_type == "general" else draft.event_type,
        keywords=tuple(dict.fromkeys(tag.lower() for tag in draft.tags)),
        importance=policy_of(draft.memory_type, "memtrace").importance
        if draft.importance is None
        else draft.importance,
        source=None,
        lifetime="permanent",
        anchor=False,
        session_id=draft.session_id,
        memory=about,
    )
