"""The event log as its writers see it: the one way in.

Whoever writes, a tool, a note, a turn, an import or the upkeep, its events are checked, redacted, counted against the
tenant's quotas and appended here. Texts lose what must not be kept. Names, by which events are found and told apart,
cannot: two that hold different keys would become one. An event with such a name is refused.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar
from zoneinfo import ZoneInfo

import orjson

from myria.db.clock import offset_in
from myria.db.database import Database
from myria.errors import InputError, InvalidArgument, PayloadTooLarge
from myria.log.acknowledgement import AppendResult
from myria.log.event import NewEvent
from myria.log.fields import RESERVED_TYPES
from myria.log.group_commit import GroupCommit
from myria.log.limits import MAX_HINT
from myria.log.payloads import TopicHint
from myria.log.projections import Projection
from myria.log.quotas import TenantQuotas, TenantUse
from myria.log.redaction.redactor import PayloadRedactor
from myria.log.transaction import AppendTransaction
from myria.settings import Settings
from myria.settings.redaction_kinds import Kind

T = TypeVar("T")
Counts = Mapping[Kind, int]
"""How much of each kind was taken out."""

BIG_BYTES = 64 * 1024
"""Bytes of JSON from which on they are redacted in a thread: it may take milliseconds."""


class EventLog:
    """The log of every tenant, for the writers of one process.

    Args:
        projections: what is folded from events in the transaction that appends them.
        quotas: to which tenants are held; None for upkeep, which none may stop: it takes events out of answers.
        zone: whose offset the times of events get that bring none.
        on_redacted: called with each kind of which something was taken out, and how often.
        on_commit: called with the tenant and the number of events of each commit.
        bounds: as `GroupCommit` takes them.
    """

    def __init__(
        self,
        database: Database,
        settings: Settings,
        projections: Sequence[Projection],
        *,
        quotas: TenantQuotas | None = None,
        zone: ZoneInfo | None = None,
        on_redacted: Callable[[str, int], None] | None = None,
        on_commit: Callable[[str, int], None] | None = None,
        **bounds: Any,
    ) -> None:
        self.database = database
        self._settings = settings
        self._is_upkeep = quotas is None
        self._quotas = quotas or TenantQuotas(database)
        self._zone = zone
        self._on_redacted = on_redacted or (lambda _kind, _count: None)
        self._redactors: dict[frozenset[Kind], PayloadRedactor] = {}
        self._commits = GroupCommit(AppendTransaction(database, projections, on_commit=on_commit), **bounds)

    async def append_events(self, tenant: str, events: Sequence[NewEvent]) -> list[AppendResult]:
        """Append events as one atomic group, redacted; return their results in input order, after the commit.

        Raises:
            QuotaExceeded, StorageQuotaExceeded: the tenant appended as much as it may; see `TenantQuotas.append`.
            PayloadTooLarge, InvalidArgument: see `check`.
            as `GroupCommit.append`.
        """
        if self._is_upkeep:
            return await self._append(tenant, events, await self._quotas.of(tenant))
        size = sum(len(event.payload_json) for event in events)
        async with self._quotas.append(tenant, len(events), size) as use:
            return await self._append(tenant, events, use)

    async def import_events(self, tenant: str, events: Sequence[NewEvent]) -> list[AppendResult]:
        """Append events that may bring their event_id, as they are: an import gives back what an export took.

        What no Myria has stored before must have gone through `clean_event`.

        Raises:
            EventIdConflict: an event_id, or a source key, exists already with other content.
        """
        return await self._commits.append(tenant, events, importing=True)

    async def clean(self, tenant: str, value: T, *, also: Collection[Kind] = ()) -> tuple[T, Counts]:
        """Return a text, or any other JSON value, without what must not be kept, and how much was taken out.

        For writers that must know beforehand what will stand. Cleaning what is clean changes nothing.

        Args:
            also: kinds to take out beside those of the tenant.

        Raises:
            DatabaseUnavailable: nobody can tell now what is taken out.
        """
        redactor = self._redactor(await self._quotas.of(tenant), also)
        kept, counts = await _perhaps_in_thread(len(orjson.dumps(value)), lambda: redactor.value(value))
        self._count(counts)
        return kept, counts

    async def clean_event(self, tenant: str, event: NewEvent) -> tuple[NewEvent, Counts]:
        """Return an event without what must not be kept, and how much was taken out.

        Raises:
            PayloadTooLarge, InvalidArgument: see `check`.
        """
        (kept,), counts = await self._cleaned([event], await self._quotas.of(tenant))
        return kept, counts.get(0, {})

    async def check(self, tenant: str, events: Sequence[NewEvent]) -> None:
        """Return when none of some events would be refused for what it holds.

        Raises:
            PayloadTooLarge: a payload is too large, or becomes it by what stands in place of what is taken out.
            InvalidArgument: a name holds a key or token.
            Of several events, the detail `index` says which.
        """
        await self._cleaned(events, await self._quotas.of(tenant))

    def check_size(self, event: NewEvent, when: str = "") -> None:
        """Return when an event may be stored, as far as its size goes.

        Raises:
            PayloadTooLarge: its payload is too large.
        """
        most = self._settings.ingest.payload_bytes
        if len(event.payload_json) > most:
            raise PayloadTooLarge(
                f"payload is {len(event.payload_json)} bytes of JSON{when}; at most {most} are stored: keep the blob "
                "elsewhere",
                field="payload",
                limit=most,
            )

    async def check_names(self, tenant: str, names: Mapping[str, str | None]) -> None:
        """Return when none of some names, given by their fields, holds a key or token.

        Raises:
            InvalidArgument: one does.
        """
        redactor = self._redactor(await self._quotas.of(tenant))
        for field, name in names.items():
            if name and redactor.names_secret(name):
                raise InvalidArgument(
                    f"{field} holds an API key or token; it is stored as it is given, so use another", field=field
                )

    async def close(self) -> None:
        """Wait for the commits under way."""
        await self._commits.close()

    async def _append(self, tenant: str, events: Sequence[NewEvent], use: TenantUse) -> list[AppendResult]:
        events, taken = await self._cleaned(events, use)
        if self._zone is not None:
            events = [_in_zone(event, self._zone) for event in events]
        results = await self._commits.append(tenant, events)
        for position, counts in taken.items():
            results[position] = results[position]._replace(redacted=counts)
            self._count(counts)
        return results

    async def _cleaned(
        self, events: Sequence[NewEvent], use: TenantUse
    ) -> tuple[Sequence[NewEvent], dict[int, Counts]]:
        """Return events without what must not be kept, and by position what was taken out; see `check`."""
        redactor = self._redactor(use)
        size = sum(len(event.payload_json) for event in events)
        return await _perhaps_in_thread(size, lambda: self._clean_each(events, redactor))

    def _clean_each(
        self, events: Sequence[NewEvent], redactor: PayloadRedactor
    ) -> tuple[Sequence[NewEvent], dict[int, Counts]]:
        kept, taken = list(events), dict[int, Counts]()
        position = 0
        try:
            for position, event in enumerate(events):
                names = (event.context_id, event.source_event_key, event.type, event.channel, *event.participants)
                if redactor.names_secret(*names):
                    raise _secret_name(event, redactor)
                if _is_our_own(event):
                    continue
                self.check_size(event)
                # One look at an event is nearly always all that happens to it.
                if redactor.suspects(_texts(event)):
                    kept[position], counts = _redacted(event, redactor)
                    if counts:
                        taken[position] = counts
                        self.check_size(kept[position], " once secrets are taken out")
        except InputError as error:
            raise error if len(events) == 1 else error.at_index(position) from error
        return kept, taken

    def _redactor(self, use: TenantUse, also: Collection[Kind] = ()) -> PayloadRedactor:
        """Return what takes out the kinds of a tenant and some more; few are made, as each takes a moment."""
        kinds = self._settings.redaction.kinds if use.redacted is None else use.redacted
        chosen = frozenset((*kinds, *also))
        if chosen not in self._redactors:
            self._redactors[chosen] = PayloadRedactor(chosen, self._settings.redaction.phone_regions)
        return self._redactors[chosen]

    def _count(self, counts: Counts) -> None:
        for kind, count in counts.items():
            self._on_redacted(kind, count)


async def _perhaps_in_thread(size: int, work: Callable[[], T]) -> T:
    """Return what some work returns: of more than a few milliseconds in a thread, so that others are answered."""
    return work() if size < BIG_BYTES else await asyncio.to_thread(work)


def _is_our_own(event: NewEvent) -> bool:
    """Tell whether an event is Myria's own: it names others by ids, whose digits must not be taken for a card's."""
    return event.internal and event.type is not None and event.type.startswith(RESERVED_TYPES)


def _texts(event: NewEvent) -> bytes:
    """Return all that an event says, its names too, each text on a line."""
    names = (event.context_id, event.source_event_key, event.type, event.channel, *event.participants)
    hints = [hint.hint for hint in event.topic_hints]
    return event.payload_json + "\n".join(("", *filter(None, names), *hints)).encode("utf-8", "surrogatepass")


def _in_zone(event: NewEvent, zone: ZoneInfo) -> NewEvent:
    """Return an event with the offset of a zone where nobody gave one; Myria's own are of no place."""
    if event.internal or event.utc_offset is not None:
        return event
    return event._replace(utc_offset=offset_in(zone, event.timestamp))


def _secret_name(event: NewEvent, redactor: PayloadRedactor) -> InvalidArgument:
    """Return the refusal of the first of an event's names that holds a key or token."""
    names = [
        ("context_id", "the name of the context or session", event.context_id),
        ("source_event_key", "the source key", event.source_event_key),
        ("type", "the type", event.type),
        ("channel", "the channel", event.channel),
        *(("participants", "the name of a participant, agent or user", name) for name in event.participants),
    ]
    field, what = next((field, what) for field, what, name in names if redactor.names_secret(name))
    return InvalidArgument(
        f"{what} ({field}) holds an API key or token; names are stored as they are given, so use another", field=field
    )


def _redacted(event: NewEvent, redactor: PayloadRedactor) -> tuple[NewEvent, Counts]:
    payload_json, of_payload = redactor.payload(event.payload_json)
    hints, of_hints = redactor.value([hint.hint for hint in event.topic_hints])
    kept = zip(hints, event.topic_hints, strict=True)
    topic_hints = tuple(TopicHint(text[:MAX_HINT], hint.confidence) for text, hint in kept)
    taken = dict(Counter(of_payload) + Counter(of_hints))
    return event._replace(payload_json=payload_json, topic_hints=topic_hints), taken
