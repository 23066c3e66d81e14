"""The event log as its writers see it: every event enters through here.

Events of all writers (tools, notes, turns, imports, upkeep) are checked, redacted, counted against the tenant's quotas
and appended here. Secrets are redacted from texts, but not from names, by which events are found and told apart: two
names with different secrets would become one. An event whose name holds a secret is refused.
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
from myria.db.queries import sql
from myria.errors import InputError, InvalidArgument, PayloadTooLarge
from myria.log.acknowledgement import AppendResult
from myria.log.event import NewEvent
from myria.log.fields import RESERVED_TYPES
from myria.log.group_commit import GroupCommit
from myria.log.limits import MAX_HINT
from myria.log.payloads import TopicHint, dedupe_key
from myria.log.projections import Projection
from myria.log.quotas import TenantQuotas, TenantUse
from myria.log.redaction.redactor import PayloadRedactor
from myria.log.transaction import AppendTransaction
from myria.settings import Settings
from myria.settings.database import Kind

T = TypeVar("T")
Counts = Mapping[Kind, int]
"""How many items of each kind were redacted."""

_TYPES_NAMING_NOTHING_NEW = frozenset({"myria.withdrawal", "myria.link", "myria.evaluation"})
"""Types of Myria's own events that take their participants from stored events. An import may have stored a name that an
append refuses; such an event must still be withdrawn, erased and consolidated."""

BIG_BYTES = 64 * 1024
"""JSON of this many bytes or more is redacted in a thread, as that may take milliseconds."""


class EventLog:
    """The log of every tenant, for the writers of one process.

    Args:
        projections: what is folded from events in the transaction that appends them.
        quotas: the tenants' quotas; None for upkeep, which no quota may stop, since it withdraws events from answers.
        zone: gives its offset to events whose time has none.
        on_redacted: called with each kind that was redacted, and how often.
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
        """Redact events and append them as one atomic group; return their results in input order, after the commit.

        Raises:
            QuotaExceeded, StorageQuotaExceeded: the tenant has used up its quota; see `TenantQuotas.append`.
            PayloadTooLarge, InvalidArgument: see `check`.
            as `GroupCommit.append`.
        """
        if self._is_upkeep:
            return await self._append(tenant, events, await self._quotas.of(tenant))
        size = sum(len(event.payload_json) for event in events)
        async with self._quotas.append(tenant, len(events), size) as use:
            return await self._append(tenant, events, use)

    async def import_events(self, tenant: str, events: Sequence[NewEvent]) -> list[AppendResult]:
        """Append events unchanged, with their event_id if they have one: an import restores what an export wrote.

        The caller must pass events that no Myria has stored before through `clean_event` first.

        Raises:
            EventIdConflict: an event_id, or a source key, exists already with other content.
        """
        return await self._commits.append(tenant, events, importing=True)

    async def clean(self, tenant: str, value: T, *, also: Collection[Kind] = ()) -> tuple[T, Counts]:
        """Redact a text or any other JSON value as an append would; return it, and the counts by kind.

        For writers that must know beforehand what will be stored. Cleaning twice changes nothing.

        Args:
            also: kinds to redact besides those of the tenant.

        Raises:
            DatabaseUnavailable: the tenant's kinds cannot be read now.
        """
        redactor = self._redactor(await self._quotas.of(tenant), also)
        cleaned, counts = await _in_thread_if_large(len(orjson.dumps(value)), lambda: redactor.value(value))
        self._count(counts)
        return cleaned, counts

    async def clean_event(self, tenant: str, event: NewEvent) -> tuple[NewEvent, Counts]:
        """Redact an event; return it, and the counts by kind.

        Raises:
            PayloadTooLarge, InvalidArgument: see `check`.
        """
        (cleaned,), counts = await self._redact_all([event], await self._quotas.of(tenant))
        return cleaned, counts.get(0, {})

    async def check(self, tenant: str, events: Sequence[NewEvent]) -> None:
        """Check that an append of these events would not be refused for their content; nothing is appended.

        Raises:
            PayloadTooLarge: a payload is too large, or would be once placeholders replace what is redacted.
            InvalidArgument: a name holds a key or token.
            The detail `index` says which of several events it is.
        """
        await self._redact_all(events, await self._quotas.of(tenant))

    def check_size(self, event: NewEvent, when: str = "") -> None:
        """Check the size of an event's payload; `when` is added to the message of the refusal.

        Raises:
            PayloadTooLarge: the payload is too large.
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
        """Check that no name holds a key or token; `names` maps fields to names.

        Raises:
            InvalidArgument: a name does.
        """
        redactor = self._redactor(await self._quotas.of(tenant))
        for field, name in names.items():
            if name and redactor.names_secret(name):
                raise InvalidArgument(
                    f"{field} holds an API key or token; it is stored as it is given, so use another", field=field
                )

    async def stored_keys(self, tenant: str, channel: str, source_keys: Sequence[str]) -> set[str]:
        """Return those of a channel's source keys with which an event is stored."""
        if not source_keys:
            return set()
        key_of_dedupe = {dedupe_key(channel, key): key for key in source_keys}
        async with self.database.read(tenant) as connection:
            rows = await connection.fetch(sql("events.stored_keys"), tenant, list(key_of_dedupe))
        return {key_of_dedupe[row["dedupe_key"]] for row in rows}

    async def close(self) -> None:
        """Wait for the commits under way."""
        await self._commits.close()

    async def _append(self, tenant: str, events: Sequence[NewEvent], use: TenantUse) -> list[AppendResult]:
        """Redact, date and commit events; add to each result how much was redacted."""
        events, counts_by_position = await self._redact_all(events, use)
        if self._zone is not None:
            events = [_in_zone(event, self._zone) for event in events]
        results = await self._commits.append(tenant, events)
        for position, counts in counts_by_position.items():
            results[position] = results[position]._replace(redacted=counts)
            self._count(counts)
        return results

    async def _redact_all(
        self, events: Sequence[NewEvent], use: TenantUse
    ) -> tuple[Sequence[NewEvent], dict[int, Counts]]:
        """Redact events; return them, and the counts by kind for each position that was redacted; see `check`."""
        redactor = self._redactor(use)
        size = sum(len(event.payload_json) for event in events)
        return await _in_thread_if_large(size, lambda: self._clean_each(events, redactor))

    def _clean_each(
        self, events: Sequence[NewEvent], redactor: PayloadRedactor
    ) -> tuple[Sequence[NewEvent], dict[int, Counts]]:
        cleaned, counts_by_position = list(events), dict[int, Counts]()
        position = 0  # for the error, also if there are no events
        try:
            for position, event in enumerate(events):
                names = (event.context_id, event.source_event_key, event.type, event.channel, *event.participants)
                if event.type not in _TYPES_NAMING_NOTHING_NEW and redactor.names_secret(*names):
                    raise _secret_name(event, redactor)
                if _is_our_own(event):
                    continue
                self.check_size(event)
                # Nearly all events pass this quick test, and are not redacted at all.
                if redactor.suspects(_texts(event)):
                    cleaned[position], counts = _redacted(event, redactor)
                    if counts:
                        counts_by_position[position] = counts
                        self.check_size(cleaned[position], " once secrets are taken out")
        except InputError as error:
            raise error if len(events) == 1 else error.at_index(position) from error
        return cleaned, counts_by_position

    def _redactor(self, use: TenantUse, also: Collection[Kind] = ()) -> PayloadRedactor:
        """Return the redactor for a tenant's kinds and those in `also`; each is made once, since that is slow."""
        kinds = self._settings.redaction.kinds if use.redacted is None else use.redacted
        all_kinds = frozenset((*kinds, *also))
        if all_kinds not in self._redactors:
            self._redactors[all_kinds] = PayloadRedactor(all_kinds, self._settings.redaction.phone_regions)
        return self._redactors[all_kinds]

    def _count(self, counts: Counts) -> None:
        for kind, count in counts.items():
            self._on_redacted(kind, count)


async def _in_thread_if_large(size: int, work: Callable[[], T]) -> T:
    """Run `work`, in a thread if its `size` is large, so that the event loop is not blocked; return its result."""
    return work() if size < BIG_BYTES else await asyncio.to_thread(work)


def _is_our_own(event: NewEvent) -> bool:
    """Tell whether Myria itself made an event: such events hold ids, whose digits must not pass for card numbers."""
    return event.internal and event.type is not None and event.type.startswith(RESERVED_TYPES)


def _texts(event: NewEvent) -> bytes:
    """Return the payload of an event, then its names and hints, each on a line of its own."""
    names = (event.context_id, event.source_event_key, event.type, event.channel, *event.participants)
    hints = [hint.hint for hint in event.topic_hints]
    return event.payload_json + "\n".join(("", *filter(None, names), *hints)).encode("utf-8", "surrogatepass")


def _in_zone(event: NewEvent, zone: ZoneInfo) -> NewEvent:
    """Return an event with the offset of a zone if it has none; Myria's internal events belong to no zone."""
    if event.internal or event.utc_offset is not None:
        return event
    return event._replace(utc_offset=offset_in(zone, event.timestamp))


def _secret_name(event: NewEvent, redactor: PayloadRedactor) -> InvalidArgument:
    """Return the refusal of an event, for the first of its names that holds a key or token."""
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
    """Return an event with redacted payload and hints, and the counts by kind."""
    payload_json, payload_counts = redactor.payload(event.payload_json)
    hints, hint_counts = redactor.value([hint.hint for hint in event.topic_hints])
    pairs = zip(hints, event.topic_hints, strict=True)
    topic_hints = tuple(TopicHint(text[:MAX_HINT], hint.confidence) for text, hint in pairs)
    counts = dict(Counter(payload_counts) + Counter(hint_counts))
    return event._replace(payload_json=payload_json, topic_hints=topic_hints), counts
