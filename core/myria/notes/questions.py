"""What is asked of recall, and by whom."""

from __future__ import annotations

from dataclasses import dataclass, replace

from myria.log.masks import Masks
from myria.log.payloads import TopicHint
from myria.notes.details import NO_DETAILS, Details
from myria.notes.model import NOTE_TYPE
from myria.search.cursors import query_digest
from myria.search.queries import EventNodesQuery
from myria.text.passages import sought_in

PAGE = 32
"""Memories of a page whose size nobody names: more than a usual budget holds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RecallQuery:
    """What is to be recalled, and by whom (`masks`).

    `text`, `keywords` and `topic` are looked for; without any of them the most recent comes first. `topic`, `kind` and
    `min_importance` also filter, so they leave notes alone. `since`, `until` and `as_of` are microseconds since 1970
    UTC, as is `now`, by which notes are old; `utc_offset` is that of `as_of`, in minutes east of UTC.
    Notes of a session are recalled where `session_id` names it.

    `kinds` filters by several kinds at once, `affects` by several moods, and `without` leaves out notes by their ids.
    `context` is what the asker is busy with: it moves up what has its words, and is what is looked for where nothing
    else is.

    `anchor` and `details` filter notes, too; by a workspace, raw events and notes of none stay. `whole_details` shows
    the circumstances in which notes were kept, too.

    `threshold` is the least cosine, from 0 to 1, by which something is found that holds no word of what is looked for,
    where vectors are compared.

    `as_of` gives the state of knowledge at that moment, by the events' own times: what had happened by then, notes as
    they were then, and nothing hidden that was superseded later. What was forgotten or has expired since stays away.
    `include_superseded` finds what was superseded too, and says so. `cursor` continues a page of the same query; pages
    of all sizes may follow each other. `goes_on` asks for one at all.
    """

    masks: Masks
    now: int
    text: str | None = None
    keywords: tuple[str, ...] = ()
    topic: str | None = None
    kind: str | None = None
    min_importance: float | None = None
    since: int | None = None
    until: int | None = None
    as_of: int | None = None
    utc_offset: int = 0
    include_superseded: bool = False
    session_id: str | None = None
    anchor: bool | None = None
    details: Details = NO_DETAILS
    kinds: tuple[str, ...] = ()
    affects: tuple[str, ...] = ()
    without: frozenset[str] = frozenset()
    context: str | None = None
    threshold: float | None = None
    whole_details: bool = False
    page_size: int = PAGE
    cursor: str | None = None
    goes_on: bool = True

    @property
    def words(self) -> str | None:
        """What is looked for in texts; None where only keywords or a topic are looked for, or nothing is."""
        if self.text is not None:
            return " ".join((self.text, *self.keywords))
        return None if self.hints else self.context

    @property
    def hints(self) -> tuple[str, ...]:
        """What is looked for in topics and keywords of notes, and in texts."""
        return (*self.keywords, *(name for name in (self.topic, self.details.case_id) if name is not None))

    @property
    def sought(self) -> frozenset[str]:
        """What a passage is chosen by: the roots of the words that are looked for, wherever."""
        return sought_in(" ".join(filter(None, (self.words, *self.hints))))

    @property
    def is_ranked(self) -> bool:
        """Whether anything is looked for; else the most recent comes first."""
        return self.words is not None or bool(self.hints)

    @property
    def wants_notes(self) -> bool:
        """Whether only notes can match."""
        return (
            self.kind is not None
            or self.topic is not None
            or self.min_importance is not None
            or self.anchor is not None
            or bool(self.kinds or self.affects)
            # It is asked of each hit, and nearly always there are none.
            or (self.details is not NO_DETAILS and replace(self.details, workspace=None) != NO_DETAILS)
        )

    def digest(self, tenant: str) -> str:
        """Return what binds a cursor to this query: all of it but when it is asked and how much of it at once."""
        asked = {
            name: getattr(self, name)
            for name in ("text", "topic", "kind", "since", "until", "as_of", "include_superseded", "session_id")
        }
        asked |= {"keywords": list(self.keywords), "masks": self.masks.to_json()}
        asked["min_importance"] = None if self.min_importance is None else round(self.min_importance * 10**6)
        # cursors that were made before there were these stay valid
        if self.anchor is not None:
            asked["anchor"] = self.anchor
        if self.details != NO_DETAILS:
            asked["details"] = self.details.to_json()
        for name in ("kinds", "affects", "context", "utc_offset"):
            if given := getattr(self, name):
                asked[name] = given
        if self.threshold is not None:
            asked["threshold"] = round(self.threshold * 1000)
        return query_digest(tenant, "recall", asked)

    def question(self, batch: int) -> EventNodesQuery:
        """Return it as it is asked of the masked retrieval, without what only notes have."""
        until = self.until
        if self.as_of is not None:
            until = self.as_of + 1 if until is None else min(until, self.as_of + 1)
        return EventNodesQuery(
            masks=self.masks,
            query=self.words,
            topic_hints=tuple(TopicHint(hint=hint, confidence=1.0) for hint in self.hints),
            types=(NOTE_TYPE,) if self.wants_notes else (),
            since=self.since,
            until=until,
            include_superseded=self.include_superseded or self.as_of is not None,
            least_nearness=None if self.threshold is None else round(self.threshold * 1000),
            order="relevance" if self.is_ranked else "newest",
            limit=batch,
            now=self.as_of,
            utc_offset=self.utc_offset,
            present=self.now if self.as_of is None else self.as_of,
        )
