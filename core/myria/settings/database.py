"""Settings of the database: connections, what enters the log, how long it is kept, and how it is erased."""

from __future__ import annotations

import re
from dataclasses import field
from typing import TYPE_CHECKING, Annotated, Literal, get_args

from myria.errors import ConfigurationError
from myria.settings.sections import Section, section

if TYPE_CHECKING:
    from pydantic import Field

Kind = Literal["secret", "password", "card", "email", "phone"]
"""What can be taken out of payloads."""

KINDS: tuple[Kind, ...] = get_args(Kind)

_DAY_S = 86_400.0


@section
class PostgresSettings(Section):
    """How to reach PostgreSQL (15 or newer)."""

    dsn: str | None = field(default=None, repr=False)
    """Connection string, `postgresql://user:password@host:port/database`; never logged. Unset: the embedded server of
    the data folder."""
    pool_size: Annotated[int, Field(ge=1, le=1000)] = 10
    """Connections per process for everything but appends. More than two per database core rarely helps."""
    append_pool_size: Annotated[int, Field(ge=1, le=1000)] = 4
    """Further connections per serving process for appends."""
    connect_timeout_s: Annotated[float, Field(ge=0.1, le=300)] = 5.0
    """Wait for a connection before the database counts as unavailable."""
    statement_timeout_s: Annotated[float, Field(ge=0.1, le=86_400)] = 30.0
    """Time after which PostgreSQL cancels a serving statement."""
    idle_timeout_s: Annotated[float, Field(ge=0.1, le=3600)] = 10.0
    """Time after which PostgreSQL ends a transaction whose client stands still. Builders use builder.task_lease_s."""
    lock_timeout_s: Annotated[float, Field(ge=0.1, le=3600)] = 20.0
    """Longest wait for a lock. Keep it above idle_timeout_s."""
    migrate_on_start: bool | None = None
    """Whether a program migrates before it starts. Unset: only `myria up`. True: `myria serve` too, as the schema's
    owner. False: neither. The embedded server is always migrated."""
    pgbouncer: bool = False
    """Set it behind PgBouncer in transaction mode."""


@section
class MigrateSettings(Section):
    """What a program does at its start while the database's schema is not its own."""

    wait_s: Annotated[float, Field(ge=0, le=86_400)] = 0.0
    """How long `myria serve`, `myria operate` and `myria build` wait for another process to migrate. 0: operator and
    build end at once."""


@section
class IngestSettings(Section):
    """What an event may hold, and how appends share commits."""

    payload_bytes: Annotated[int, Field(ge=2, le=64 * 1024 * 1024)] = 256 * 1024
    """Largest payload as JSON. Keep blobs elsewhere and a reference here."""
    payload_depth: Annotated[int, Field(ge=1, le=256)] = 32
    """Deepest nesting of a payload."""
    batch_events: Annotated[int, Field(ge=1, le=500)] = 500
    """Most events in one `append_events`. Its request must fit into mcp.body_bytes."""
    future_limit_s: Annotated[float | None, Field(ge=0)] = _DAY_S
    """How far an event's timestamp may be ahead of the server's clock. Put planned dates into the payload. 0 or unset:
    any."""
    internal_types: tuple[str, ...] = ()
    """Event types that are always internal (kept, but never in topics)."""
    group_commit_events: Annotated[int, Field(ge=1, le=10_000)] = 128
    """Most concurrent events that share one commit."""
    group_commit_writers: Annotated[int, Field(ge=1, le=64)] = 2
    """Commits of a tenant in flight per process."""


@section
class RedactionSettings(Section):
    """What is replaced by `[REDACTED_...]` in payloads before they are stored. It cannot be restored."""

    kinds: tuple[Kind, ...] = ("secret", "password", "card")
    """`secret` (API keys, tokens, private keys), `password` (values with such a name), `card`, `email`, `phone`. Per
    tenant: `myria tenant redact`."""
    phone_regions: tuple[str, ...] = ("KR", "US")
    """Countries whose telephone numbers are recognised without a country code."""

    def rules(self) -> None:
        """A region is two capital letters."""
        for region in self.phone_regions:
            if not re.fullmatch("[A-Z]{2}", region):
                raise ConfigurationError(
                    f"redaction.phone_regions: {region!r} is no country of two capital letters, such as KR.",
                    field="redaction.phone_regions",
                )


@section
class RetentionSettings(Section):
    """Which snapshots are kept. The event log is never trimmed."""

    keep_snapshots: Annotated[int, Field(ge=1, le=1_000_000)] = 20
    """Archived snapshots to keep for rollback, besides the active one."""
    min_archived_s: Annotated[float, Field(ge=0, le=86_400 * 3650)] = 3600.0
    """Time for which a snapshot stays after it was active."""
    keep_failed: Annotated[int, Field(ge=0, le=1_000_000)] = 20
    """Failed builds to keep, with their reasons."""
    llm_calls_s: Annotated[float, Field(ge=0, le=86_400 * 3650)] = 30 * _DAY_S
    """Age at which the audit of a model's call is removed."""


@section
class AuditSettings(Section):
    """What is recorded about callers, besides administrative acts and refusals (always recorded)."""

    calls: Annotated[float | None, Field(ge=0, le=1)] = None
    """Share of tool calls to record, without content (`myria audit --calls`). Unset: all calls with credentials, none
    in mode `none`."""
    calls_per_s: Annotated[float, Field(gt=0, le=100_000)] = 50.0
    """Most such records per second and process. Others are only counted."""
    keep_calls_s: Annotated[float, Field(ge=0, le=86_400 * 3650)] = 7 * _DAY_S
    """Age at which the record of a call is removed."""
    keep_access_s: Annotated[float, Field(ge=0, le=86_400 * 3650)] = 365 * _DAY_S
    """Age at which the record of an act or a refusal is removed."""


@section
class ErasureSettings(Section):
    """What the tool `erase` may take, and who carries it out."""

    max_events: Annotated[int, Field(ge=1, le=100_000_000)] = 100_000
    """Most events of one call of the tool `erase`. `myria erase` has no such limit."""
    max_open: Annotated[int, Field(ge=1, le=10_000)] = 20
    """Most unfinished erasures of a tenant; the tool refuses more."""
    carry_on: bool = True
    """Whether the control plane carries out what the tool began. False: somebody runs `myria erase --resume`."""
    lease_s: Annotated[float, Field(ge=1, le=3600)] = 20.0
    """Time after which another process may continue the erasure of a killed one."""


@section
class SecretsSettings(Section):
    """Secrets that must be sent as they are, such as providers' keys, sealed at rest; see docs/security.md."""

    file: str | None = None
    """File of sealed secrets, written by `myria secret set`. Templates name them as `${secret:NAME}`."""
    master_key_file: str | None = None
    """File of the master key: 32 bytes in base64. Further lines hold older keys. Unset: the variable MYRIA_MASTER_KEY,
    with commas between keys."""
