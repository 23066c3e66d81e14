"""Recalling over a real database: what is found at once, what never is, in which order, and within which bound."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, TypeVar

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from myria.errors import CursorInvalid
from myria.log.event import NewEvent
from myria.log.masks import Mask, Masks
from myria.memory import Memory
from myria.notes.commands import Notes
from myria.notes.drafting import Draft
from myria.notes.fragments import Fragment, json_within, text_by_subject
from myria.notes.model import Changes
from myria.notes.questions import RecallQuery
from myria.notes.recalling import Recalled
from myria.settings import Settings
from myria.text.model_tokens import token_counter
from tests.support.builds import build
from tests.support.counts import examples
from tests.support.postgres import Database

T = TypeVar("T")

TENANT = "default"
US = ("ana", "bot")
DAY = 86_400 * 10**6
NOW = 1_772_000_000_000_000


def may_see(who: Any) -> bool:
    return set(US) <= set(who)


class Recaller:
    """Keeps and recalls over one memory."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.notes = Notes(memory.log, content_characters=4_000)
        self.recall = memory.recall

    async def keep(self, content: str, who: tuple[str, ...] = US, *, days_ago: int = 0, **more: Any) -> str:
        kept = await self.notes.remember(
            TENANT, who, Draft(content=content, **more), contract="memento", speaker="bot", now=NOW - days_ago * DAY
        )
        return kept.note_id

    async def say(self, text: str, who: tuple[str, ...] = US) -> None:
        payload = orjson.dumps({"speaker": "Inês", "text": text})
        said = NewEvent(timestamp=NOW - DAY, channel="chat", participants=who, payload_json=payload)
        await self.memory.log.append_events(TENANT, [said])

    async def find(self, masks: Masks | None = None, **more: Any) -> tuple[Fragment, ...]:
        query = RecallQuery(masks=masks or Masks.containing(US), now=NOW, **more)
        return await self.recall.find(TENANT, query)

    async def page(self, masks: Masks | None = None, **more: Any) -> Recalled:
        query = RecallQuery(masks=masks or Masks.containing(US), **({"now": NOW} | more))
        return await self.recall.page(TENANT, query)

    async def texts(self, masks: Masks | None = None, **more: Any) -> list[str]:
        return [fragment.text for fragment in await self.find(masks, **more)]


@pytest.fixture
async def recaller(database: Database) -> AsyncIterator[Recaller]:
    async with Memory(database.server_dsn, Settings()) as memory:
        yield Recaller(memory)


async def test_notes_and_events_are_one_ranking(recaller: Recaller) -> None:
    """Both are found at once, by who may see them; a filter of notes leaves notes alone."""
    note_id = await recaller.keep("We decided that the kiln opens on Friday", topic="kiln")
    await recaller.say("The kiln was repaired by Ben")
    await recaller.keep("The kiln of others", ("zoe", "bot"))
    fragments = await recaller.find(text="kiln")
    assert {fragment.text for fragment in fragments} == {
        "We decided that the kiln opens on Friday",
        "The kiln was repaired by Ben",
    }
    note = next(fragment for fragment in fragments if fragment.note_id is not None)
    assert (note.note_id, note.kind, note.topic, note.tier) == (note_id, "decision", "kiln", "permanent")
    for only in ({"kind": "decision"}, {"topic": "Kiln"}, {"min_importance": 0.5}):
        assert await recaller.texts(**only) == ["We decided that the kiln opens on Friday"]
    assert await recaller.texts(kind="error") == []


async def test_masks_are_the_readers(recaller: Recaller) -> None:
    """A pool and an agent's own memory are one question under two masks."""
    await recaller.keep("pool kiln")
    await recaller.keep("planner kiln", ("ana", "bot", "planner"))
    await recaller.keep("critic kiln", ("ana", "bot", "critic"))
    pool = Mask(US, exact=True)
    assert await recaller.texts(Masks.of([pool]), text="kiln") == ["pool kiln"]
    both = Masks.of([pool, Mask((*US, "planner"))])
    assert sorted(await recaller.texts(both, text="kiln")) == ["planner kiln", "pool kiln"]


async def test_what_is_recalled_often_gains_a_little(recaller: Recaller) -> None:
    """Softly, and not where pages follow each other: what the first one showed would move the next."""
    used, other = [await recaller.keep(f"The kiln opens on {day}") for day in ("Friday", "Monday")]
    for _ in range(20):
        recaller.memory.usage.count(TENANT, [used], NOW)
    await recaller.memory.usage.write()

    async def scores(*, goes_on: bool) -> dict[str | None, int]:
        page = await recaller.page(text="kiln", goes_on=goes_on)
        return {fragment.note_id: fragment.score for fragment in page.fragments}

    before, after = await scores(goes_on=True), await scores(goes_on=False)
    assert before[used] < after[used] < 1.05 * before[used]
    assert before[other] == after[other]


@pytest.mark.parametrize("is_built", [False, True])
async def test_only_current_versions_of_kept_notes_come_back(
    recaller: Recaller, database: Database, is_built: bool
) -> None:
    """What was amended comes in its new form, what was forgotten not at all, also where a snapshot has it."""
    amended = await recaller.keep("The kiln opens on Friday")
    forgotten = await recaller.keep("The kiln is haunted")
    if is_built:
        await build(database)
    changes = Changes(content="The kiln opens on Monday")
    await recaller.notes.amend(TENANT, amended, changes, may_see=may_see, contract="memento", now=NOW)
    await recaller.notes.forget(TENANT, forgotten, may_see=may_see)
    (fragment,) = await recaller.find(text="kiln")
    assert (fragment.note_id, fragment.text) == (amended, "The kiln opens on Monday")
    await recaller.notes.restore(TENANT, forgotten, may_see=may_see)
    assert len(await recaller.find(text="kiln")) == 2


async def test_the_handle_of_a_note_is_stable(recaller: Recaller) -> None:
    """An amendment keeps id and handle."""
    note_id = await recaller.keep("The kiln opens on Friday")
    (before,) = await recaller.find(text="kiln")
    changes = Changes(content="The kiln opens on Monday")
    await recaller.notes.amend(TENANT, note_id, changes, may_see=may_see, contract="memento", now=NOW)
    (after,) = await recaller.find(text="kiln")
    assert (after.note_id, after.handle) == (before.note_id, before.handle)


async def test_a_note_is_found_by_its_keywords_and_its_topic(recaller: Recaller) -> None:
    """Also where its text holds neither; those come first that have the keyword, and texts that hold it come too."""
    await recaller.keep("It opens on Friday", topic="Ceramics", keywords=("kiln",))
    await recaller.say("The kiln was repaired by Ben")
    await recaller.keep("Nothing of that", topic="garden", keywords=("roses",))
    page = await recaller.page(keywords=("Kiln",))
    assert [fragment.text for fragment in page.fragments] == ["It opens on Friday", "The kiln was repaired by Ben"]
    assert page.search_path == "keywords:1 → words:1 → vectors:off"
    assert await recaller.texts(topic="ceramics") == ["It opens on Friday"]


@pytest.mark.parametrize("is_built", [False, True])
@pytest.mark.parametrize(
    "asked",
    [{}, {"text": "kiln"}, {"keywords": ("kiln",)}, {"kind": "fact"}, {"kind": "fact", "text": "kiln firing"}],
)
async def test_pages_are_disjoint_and_complete(
    recaller: Recaller, database: Database, is_built: bool, asked: dict[str, Any]
) -> None:
    """Whatever is kept, amended or forgotten between them: later pages gain nothing, and lose what was withdrawn.

    Within a page notes that newer ones may say anew stand below those.
    """
    for i in range(70):
        await recaller.keep(f"kiln firing {i}", kind=("fact", "error")[i % 2], importance=0.8 + i % 10 / 50, days_ago=i)
    await recaller.say("The kiln was repaired by Ben")
    if is_built:
        await build(database)
    whole = await recaller.texts(**asked, page_size=200)
    pages: list[list[str]] = []
    cursor = None
    while cursor is not None or not pages:
        page = await recaller.page(**asked, page_size=9 + len(pages), cursor=cursor, now=NOW + len(pages))
        pages.append([fragment.text for fragment in page.fragments])
        cursor = page.cursor
        if len(pages) == 2:
            left = [f for f in await recaller.find(**asked, page_size=200) if f.text not in [*pages[0], *pages[1]]]
            note_id, forgotten = next((f.note_id, f.text) for f in left[-3:] if f.note_id is not None)
            await recaller.notes.forget(TENANT, note_id, may_see=may_see, force=True)
            await recaller.keep("kiln firing, a new one", kind="fact")
    assert sorted(text for page in pages for text in page) == sorted(text for text in whole if text != forgotten)
    assert [len(page) for page in pages[:-1]] == [9 + i for i in range(len(pages) - 1)]


async def test_a_cursor_is_for_its_query_alone(recaller: Recaller) -> None:
    """Neither another question, nor another tenant's or other masks' go on with it."""
    for i in range(4):
        await recaller.keep(f"kiln {i}")
    cursor = (await recaller.page(text="kiln", page_size=2)).cursor
    assert cursor is not None
    for more in ({"text": "oven"}, {"text": "kiln", "masks": Masks.containing(("ana",))}, {"text": "kiln", "as_of": 1}):
        with pytest.raises(CursorInvalid):
            await recaller.page(page_size=2, cursor=cursor, **more)
    with pytest.raises(CursorInvalid):
        await recaller.page(text="kiln", cursor=cursor[:-4] + "AAAA")


@pytest.mark.parametrize("is_built", [False, True])
async def test_as_of_gives_what_was_known_then(recaller: Recaller, database: Database, is_built: bool) -> None:
    """Notes as they were, nothing that came later, and what was superseded since; but nothing that was forgotten."""
    amended = await recaller.keep("The kiln opens on Friday", kind="fact", days_ago=10)
    forgotten = await recaller.keep("The kiln is haunted", days_ago=10)
    changes = Changes(content="The kiln opens on Monday", importance=1.0)
    await recaller.notes.amend(TENANT, amended, changes, may_see=may_see, contract="memento", now=NOW - 5 * DAY)
    await recaller.keep("The kiln burns gas", days_ago=2)
    await recaller.notes.forget(TENANT, forgotten, may_see=may_see)
    if is_built:
        await build(database)
    assert await recaller.texts(text="kiln", as_of=NOW - 20 * DAY) == []
    (then,) = await recaller.find(text="kiln", as_of=NOW - 6 * DAY)
    assert (then.note_id, then.text, then.superseded) == (amended, "The kiln opens on Friday", False)
    assert then.importance is not None
    assert then.importance < 0.6
    assert await recaller.texts(text="kiln", as_of=NOW - 4 * DAY) == ["The kiln opens on Monday"]
    assert set(await recaller.texts(text="kiln")) == {"The kiln opens on Monday", "The kiln burns gas"}


async def test_what_was_superseded_comes_where_it_is_asked_for(recaller: Recaller) -> None:
    """It says so, and names what replaced it by a handle; what was forgotten does not come."""
    old = await recaller.keep("The kiln burns gas")
    await recaller.notes.remember(
        TENANT, US, Draft(content="The kiln burns wood"), contract="memento", supersedes=[old], may_see=may_see, now=NOW
    )
    gone = await recaller.keep("The kiln burns oil")
    changes = Changes(content="The kiln burns coal")
    await recaller.notes.amend(TENANT, gone, changes, may_see=may_see, contract="memento", now=NOW)
    await recaller.notes.forget(TENANT, gone, may_see=may_see)
    assert await recaller.texts(text="kiln") == ["The kiln burns wood"]
    found = {fragment.text: fragment for fragment in await recaller.find(text="kiln", include_superseded=True)}
    assert set(found) == {"The kiln burns wood", "The kiln burns gas"}
    replaced = found["The kiln burns gas"]
    assert replaced.superseded
    assert f"(superseded by {replaced.superseded_by})" in replaced.written()
    named = await recaller.memory.event_ids(TENANT, [str(replaced.superseded_by)])
    assert named == (found["The kiln burns wood"].event_id,)


async def test_what_is_old_says_so(recaller: Recaller) -> None:
    """By its kind's days, or the setting's; an anchor is never old."""
    await recaller.keep("The kiln burns gas", kind="fact", importance=0.9, days_ago=70)
    await recaller.keep("The kiln is red", kind="error", importance=0.9, days_ago=70, anchor=True)
    await recaller.keep("The kiln is green", kind="decision", importance=0.9, days_ago=70)
    page = await recaller.page(text="kiln")
    assert {fragment.text: fragment.stale_days for fragment in page.fragments} == {
        "The kiln burns gas": 70,
        "The kiln is red": None,
        "The kiln is green": None,
    }
    assert "(old: 70 days)" in text_by_subject(page.fragments, (), token_counter(), 800).text
    assert page.hints == ()
    (hint,) = (await recaller.page(text="gas", kind="fact")).hints
    assert hint["signal"] == "stale_results"
    assert [hint["signal"] for hint in (await recaller.page(text="dragon")).hints] == ["no_results"]


async def test_an_error_that_was_resolved_counts_less_and_says_so(recaller: Recaller) -> None:
    """A link of its own people between it and what resolves it is enough, while that is kept; as of then it is open."""
    error = await recaller.keep("The kiln tripped the fuse", kind="error")
    fix = await recaller.keep("A stronger cable was laid", kind="procedure")
    elsewhere = await recaller.notes.remember(
        TENANT, ("ana", "eve"), Draft(content="Buy a new house"), contract="memento", now=NOW
    )

    def anybody(_: Any) -> bool:
        return True

    async def found(**more: Any) -> Fragment:
        return next(one for one in await recaller.find(text="fuse", **more) if one.note_id == error)

    await recaller.memory.links.link(TENANT, error, [elsewhere.note_id], "resolved_by", may_see=anybody)
    open_ = await found()
    assert (open_.resolved, open_.importance) == (False, 0.9)
    await recaller.memory.links.link(TENANT, fix, [error], "resolved_by", may_see=anybody)
    resolved = await found()
    assert (resolved.resolved, resolved.importance) == (True, 0.5)
    assert resolved.score < open_.score
    assert resolved.to_json()["resolved"]
    assert "(resolved)" in resolved.written()
    assert not (await found(as_of=NOW)).resolved
    await recaller.notes.forget(TENANT, fix, may_see=may_see)
    assert not (await found()).resolved


async def test_what_is_contradicted_says_so(recaller: Recaller) -> None:
    """Both sides of a link name each other, to those who may see the other and while it is kept."""
    gas = await recaller.keep("The kiln burns gas")
    wood = await recaller.keep("The oven burns wood")
    hidden = await recaller.keep("The kiln burns oil", (*US, "zoe"))
    for other in (wood, hidden):
        await recaller.memory.links.link(TENANT, gas, [other], "contradicts", may_see=may_see)
    pool = Masks.exactly(US)
    found = {fragment.note_id: fragment for fragment in await recaller.find(pool)}
    assert found[gas].contradicted_by == (found[wood].handle,)
    assert found[wood].contradicted_by == (found[gas].handle,)
    assert f"(contradicted by {found[wood].handle})" in found[gas].written()
    assert len(next(f for f in await recaller.find() if f.note_id == gas).contradicted_by) == 2
    await recaller.notes.forget(TENANT, wood, may_see=may_see)
    (left,) = await recaller.find(pool)
    assert left.contradicted_by == ()


async def test_topics_are_found_beside_their_events(recaller: Recaller, database: Database) -> None:
    """Where their label says what was asked, behind their best event; not once something of them is withdrawn."""
    for i in range(6):
        await recaller.say(f"The kiln glaze number {i} cracked again near the flue")
    assert "topics" not in (await recaller.page(text="kiln glaze")).search_path
    await build(database)
    found = await recaller.find(text="kiln glaze")
    (topic,) = [fragment for fragment in found if fragment.topic_id is not None]
    assert found[0] != topic
    assert topic.to_json()["type"] == "topic"
    assert await recaller.find(Masks.containing(("zoe",)), text="kiln glaze") == ()
    for more in ({"kind": "fact"}, {"as_of": NOW}, {"until": NOW}):
        assert "topics" not in (await recaller.page(text="kiln glaze", **more)).search_path
    first = next(fragment.event_id for fragment in found if fragment.event_id is not None)
    await recaller.memory.withdrawals.withdraw(TENANT, [first], reason="forgotten", may_see=may_see)
    assert "topics" not in (await recaller.page(text="kiln glaze")).search_path


async def test_notes_of_a_session_stay_in_it(recaller: Recaller) -> None:
    """They are recalled where their session is named, and nowhere else."""
    await recaller.keep("The kiln is warming up", lifetime="session", session_id="s1")
    assert await recaller.texts(text="kiln") == []
    assert await recaller.texts(text="kiln", session_id="s2") == []
    assert await recaller.texts(text="kiln", session_id="s1") == ["The kiln is warming up"]


async def test_importance_and_recency_move_equals(recaller: Recaller) -> None:
    """Of notes with the same words the important come first, then the recent; time alone never filters."""
    await recaller.keep("kiln one", kind="fact", importance=0.2, days_ago=50)
    await recaller.keep("kiln two", kind="fact", importance=0.2, days_ago=1)
    await recaller.keep("kiln six", kind="fact", importance=1.0, days_ago=1)
    assert await recaller.texts(text="kiln") == ["kiln six", "kiln two", "kiln one"]
    assert (await recaller.texts())[-1] == "kiln one"


@settings(max_examples=examples(60), deadline=None)
@given(
    texts=st.lists(
        st.one_of(
            st.text(st.characters(codec="utf-8"), max_size=200),
            st.sampled_from(
                ["窯は金曜日に焚く。" * 9, "👩🏽‍🚀🔥🏺" * 12, "for x in range(10):\n    print(f'{x:>3}')", "w " * 300]
            ),
        ),
        max_size=12,
    ),
    budget=st.integers(0, 900),
)
def test_text_and_json_never_exceed_a_budget(texts: list[str], budget: int) -> None:
    """Counted as they are sent, for every script; and another memory would not have fitted into the JSON."""
    fragments = [
        Fragment(
            note_id=None,
            event_id=f"evt_{at}",
            handle=f"e:{at:09}",
            text=text,
            speaker="Inês 窯",
            at=NOW,
            score=1,
            key=(0, 0, at, 0),
            lane="words",
            contradicted_by=("n:000000001",) * (at % 2),
        )
        for at, text in enumerate(texts)
    ]
    count = token_counter().count
    assert count(text_by_subject(fragments, (), token_counter(), budget).text) <= budget
    shown, tokens = json_within(fragments, token_counter(), budget)
    assert not shown or count(orjson.dumps(shown).decode()) == tokens <= budget
    if len(shown) < len(fragments):
        more = [fragment.to_json() for fragment in fragments[: len(shown) + 1]]
        assert count(orjson.dumps(more).decode()) > budget


async def test_a_long_memory_is_shortened_in_both_forms(recaller: Recaller) -> None:
    """It does not keep an answer empty."""
    await recaller.keep("The kiln " + "cracked again, and " * 180)
    fragments = await recaller.find(text="kiln")
    (shown,), _ = json_within(fragments, token_counter(), 200)
    assert shown["truncated"]
    assert shown["content"].startswith("The kiln cracked again")
    assert 150 < token_counter().count(orjson.dumps([shown]).decode()) <= 200
    assert text_by_subject(fragments, (), token_counter(), 200).shown == 1


async def test_a_small_budget_holds_bare_words_rather_than_nothing(recaller: Recaller) -> None:
    """What else is known of a memory gives way to its words."""
    await recaller.keep(
        f"The kiln cracked again, and nobody has ordered {', '.join(['bricks', 'mortar', 'clay'] * 6)}."
    )
    fragments = await recaller.find(text="kiln")
    (whole,), most = json_within(fragments, token_counter(), 800)
    (lean,), tokens = json_within(fragments, token_counter(), most - 1)
    assert "keywords" in whole
    assert lean == {name: whole[name] for name in ("id", "content", "created_at", "type")}
    assert tokens < most - 1
    (cut,), less = json_within(fragments, token_counter(), tokens - 1)
    assert cut["truncated"]
    assert less < tokens


async def test_text_and_json_are_each_within_the_budget(recaller: Recaller) -> None:
    """Whatever the script; and most of the text is memories."""
    for i in range(30):
        await recaller.keep(f"窯の記録{i}: 金曜日に青磁の釉薬をかけて、千二百度で焼いた。")
        await recaller.keep(
            f"Firing {i}: the kiln reached {1_000 + i} degrees 🔥 after nine hours, and Inês wants the next one "
            f"slower, since two of the tall vases cracked near the flue; `kiln.fire(step={i})`"
        )
    fragments = await recaller.find(text="kiln 窯")
    counter = token_counter()
    for budget in (10, 100, 800):
        text = text_by_subject(fragments, (), token_counter(), budget)
        shown, tokens = json_within(fragments, token_counter(), budget)
        assert text.tokens == (counter.count(text.text) if text.text else 0) <= budget
        assert not shown or counter.count(orjson.dumps(shown).decode()) == tokens <= budget
        if budget == 800:
            assert text.shown >= len(shown) > 0
            said = sum(counter.count(fragment.text) for fragment in fragments[: text.shown - 1])
            assert said >= 0.6 * text.tokens
