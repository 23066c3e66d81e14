"""The query of recall."""

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
"""Memories of a page where the caller gives no size: more than a usual budget holds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RecallQuery:
    """What to recall, and what the asker may see (`masks`).

    `text`, `keywords` and `topic` are searched for; without any of them the most recent memories come first. `topic`,
    `kind` and `min_importance` also filter, so with them only notes are found. `since`, `until` and `as_of` are in
    microseconds since 1970 UTC, as is `now`, by which ages are computed; `utc_offset` is that of `as_of`, in minutes
    east of UTC. Notes that end with a session are recalled only where `session_id` names it.

    `kinds` filters by several kinds at once, `affects` by several moods, and `without` leaves out notes by their ids.
    `context` is what the asker is busy with: memories with its words rank higher, and it is searched for where nothing
    else is given.

    `anchor` and `details` filter notes, too; a filter by workspace keeps raw events and notes of no workspace.
    `whole_details` also shows the circumstances in which notes were kept.

    `threshold` is the least cosine, from 0 to 1, at which a memory without a word searched for is found by its vector.

    `as_of` asks for the state of knowledge at that moment, by the events' own times: what had happened by then, notes
    as they were then, including what was superseded only later. What was forgotten or has expired since stays left out.
    `include_superseded` also finds superseded memories, and marks them. `cursor` continues a page of the same query;
    its pages may differ in size. `goes_on` says whether the answer needs a cursor for a next page.
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
        """The words to search texts for; None where only keywords or a topic are given, or nothing is."""
        if self.text is not None:
            return " ".join((self.text, *self.keywords))
        return None if self.hints else self.context

    @property
    def hints(self) -> tuple[str, ...]:
        """The names to search for in topics and keywords of notes, and in texts."""
        return (*self.keywords, *(name for name in (self.topic, self.details.case_id) if name is not None))

    @property
    def sought(self) -> frozenset[str]:
        """The roots of all words searched for, by which passages are chosen."""
        return sought_in(" ".join(filter(None, (self.words, *self.hints))))

    @property
    def is_ranked(self) -> bool:
        """Whether the query searches for anything; else the most recent memories come first."""
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
            # `is not` first: this runs for each hit, and nearly always the query has no details.
            or (self.details is not NO_DETAILS and replace(self.details, workspace=None) != NO_DETAILS)
        )

    def digest(self, tenant: str) -> str:
        """Return a digest that binds a cursor to this query: all fields but its moment and page size."""
        identifying = {
            name: getattr(self, name)
            for name in ("text", "topic", "kind", "since", "until", "as_of", "include_superseded", "session_id")
        }
        identifying |= {"keywords": list(self.keywords), "masks": self.masks.to_json()}
        identifying["min_importance"] = None if self.min_importance is None else round(self.min_importance * 10**6)
        # Later fields count only where they are set, so that cursors made before there were such fields stay valid.
        if self.anchor is not None:
            identifying["anchor"] = self.anchor
        if self.details != NO_DETAILS:
            identifying["details"] = self.details.to_json()
        for name in ("kinds", "affects", "context", "utc_offset"):
            if value := getattr(self, name):
                identifying[name] = value
        if self.threshold is not None:
            identifying["threshold"] = round(self.threshold * 1000)
        return query_digest(tenant, "recall", identifying)

    def question(self, batch: int) -> EventNodesQuery:
        """Return the query for the masked retrieval, without the filters that only notes have."""
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
