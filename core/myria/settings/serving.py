"""Settings of what is served: the APIs, who may call them, logs and metrics."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from myria.errors import ConfigurationError
from myria.settings.database import Kind
from myria.settings.sections import BASE_URL, Section, section

if TYPE_CHECKING:
    from pydantic import Field

_DAY_S = 86_400.0
Profile = Literal["core", "observe", "admin"]
NameStyle = Literal["dotted", "plain"]
AuthMode = Literal["none", "keys"]
AppendOthers = Literal["patterns", "anyone"]
_PUBLIC_URL = re.compile(
    r"(?:https://(?:[A-Za-z0-9.-]+|\[[0-9a-f:.]+\])|http://(?:localhost|127\.0\.0\.1|\[::1\]))(?::[0-9]{1,5})?"
)


@section
class ServiceSettings(Section):
    """What the process calls itself, and how it logs."""

    name: str = "myria"
    """Name in logs, metrics and MCP."""
    time_zone: str = "UTC"
    """Zone for days that name none, such as `Europe/Lisbon`: in questions, notes and turns."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severe level to log. `debug` adds a line per request and per build task, without content."""
    log_format: Literal["auto", "json", "text"] = "auto"
    """`json`: one object per line. `text`: for people. `auto`: text on a terminal, else json."""

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
    """A log file in addition to standard error, for a machine that does not collect it. Containers need none."""

    file: str | None = None
    """File to which every process of this machine also logs, as JSON lines."""
    file_bytes: Annotated[int, Field(ge=1024, le=1 << 40)] = 10 * 1024 * 1024
    """Size at which Myria renames the file to `FILE.1` and begins a new one."""
    file_count: Annotated[int, Field(ge=1, le=1000)] = 5
    """Renamed files to keep."""


@section
class McpSettings(Section):
    """Where the server listens, and what one request may cost."""

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8321
    """TCP port. 0: the system chooses one, and Myria prints it."""
    tls_certificate: str | None = None
    """PEM file with the certificate and its chain. The server then speaks only HTTPS."""
    tls_key: str | None = None
    """PEM file with the certificate's private key, without a passphrase."""
    tool_names: NameStyle = "plain"
    """Names of tools: `myria_append_event`, which every host accepts, or `myria.append_event`. Calls may use both."""
    profiles: tuple[Profile, ...] = ("core", "observe", "admin")
    """Groups of tools to offer: `core` (append, query), `observe` (snapshots, status), `admin` (build, publish, roll
    back)."""
    allowed_hosts: tuple[str, ...] = ()
    """Host headers to accept besides loopback: `name` (any port), `name:port`, `*.domain`, `*`. Needed behind a Service
    or Ingress."""
    cors_origins: tuple[str, ...] = ()
    """Origins whose pages may call from a browser, such as `https://app.example.com`, or `*`. Empty: none."""
    body_bytes: Annotated[int, Field(ge=1024, le=1024 * 1024 * 1024)] = 4 * 1024 * 1024
    """Largest request body."""
    body_values: Annotated[int, Field(ge=1000, le=10_000_000)] = 100_000
    """Most members and elements in the JSON of one request."""
    compress_bytes: Annotated[int, Field(ge=0, le=1024 * 1024 * 1024)] = 16 * 1024
    """Smallest answer to compress (gzip) for clients that accept it. 0: none."""
    legacy_sse: bool = False
    """Whether clients of HTTP+SSE (2024-11-05) may use the agent API."""
    request_deadline_s: Annotated[float, Field(ge=0.1, le=3600)] = 30.0
    """Longest read; then `deadline_exceeded`."""
    append_deadline_s: Annotated[float, Field(ge=0.1, le=3600)] = 10.0
    """Longest append; then `deadline_exceeded`. Retry with the same source_event_key."""
    max_in_flight: Annotated[int, Field(ge=1, le=100_000)] = 256
    """Requests at once; the next gets `overloaded` (retryable)."""
    linger_s: Annotated[float, Field(ge=0, le=3600)] = 5.0
    """Time for which `myria serve` serves on after SIGTERM, while /readyz fails. Ctrl-C or a second signal skip it."""
    ready_grace_s: Annotated[float, Field(ge=0, le=3600)] = 10.0
    """Time for which /readyz succeeds without the database."""
    stdio_builds: bool = True
    """Whether `myria serve --stdio` on a data folder also builds while no other process does."""
    drain_s: Annotated[float, Field(ge=0, le=3600)] = 10.0
    """Time for open requests to finish at shutdown. Whatever is open then ends."""

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

    mode: AuthMode = "none"
    """`none`: no credentials; listen on loopback or behind something that authenticates. `keys`: every request needs a
    key (`myria key create`)."""
    local_participants: tuple[str, ...] = ("agent", "me")
    """Participants of a call that names none, in mode `none`."""
    append_others: AppendOthers = "patterns"
    """Whom an append may name besides the key's own participants: those that match its patterns, or `anyone`."""
    requests_per_s: Annotated[float | None, Field(gt=0, le=1_000_000)] = None
    """Requests per second of a credential without its own `--rate`, per process."""
    concurrency: Annotated[int | None, Field(ge=1, le=100_000)] = 128
    """Requests at once of a credential without its own `--concurrency`, per process."""
    tenant_events_per_s: Annotated[float | None, Field(gt=0, le=10_000_000)] = None
    """Events per second of a tenant without its own number (`myria tenant set`), per process; then `quota_exceeded`.
   """
    tenant_bytes_stored: Annotated[int | None, Field(ge=1, le=1 << 60)] = None
    """Payload bytes of a tenant without its own number; then `storage_quota_exceeded`."""
    failures_per_minute: Annotated[float | None, Field(gt=0, le=1_000_000)] = 60.0
    """Refused credentials per minute of one address or key id; then 429."""
    proxies: tuple[str, ...] = ()
    """Networks of proxies (`10.0.0.0/8`) whose X-Forwarded-For names the client's address."""
    public_url: str | None = None
    """Where clients reach this server, without a path, such as `https://memory.example.com`."""
    issuers_file: str | None = None
    """File of authorization servers whose tokens Myria accepts in addition to keys; see docs/oauth.md."""

    server: bool = False
    """Whether Myria is an authorization server too; see docs/oauth.md."""

    registrations_per_minute: Annotated[float | None, Field(gt=0, le=1_000_000)] = 20.0
    """Programs that one network may register per minute and process (`auth.server`)."""
    sign_ins_per_minute: Annotated[float | None, Field(gt=0, le=1_000_000)] = 20.0
    """Times that one key or subject may sign in to the console, and that a key may allow programs something, per minute
    and process."""
    grants_per_key: Annotated[int | None, Field(ge=1, le=1_000_000)] = 100
    """Most grants of one key at once."""
    grants_per_tenant: Annotated[int | None, Field(ge=1, le=10_000_000)] = 1000
    """Most grants of all keys of a tenant at once."""

    def rules(self) -> None:
        """The public URL is an origin, over HTTPS or on this machine."""
        if self.public_url is not None and not _PUBLIC_URL.fullmatch(self.public_url):
            raise ConfigurationError(
                "auth.public_url must be https://host[:port] without a path, or http:// on a loopback host.",
                field="auth.public_url",
            )

    def require_servable(self) -> None:
        """Refuse to serve with issuers or our own authorization server if the settings that these need are missing.

        Only servers check this. Other programs read the same file, but may lack overrides: `myria up --auth` sets the
        mode, `myria status` does not know it.

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
class ConsoleSettings(Section):
    """The pages at `/console` on which a person looks at a memory ([console.md](console.md))."""

    enabled: bool | None = None
    """Whether the console is served. Left out, only `myria up` and `myria demo` serve it, on loopback."""
    session_s: Annotated[float, Field(ge=60.0, le=30 * _DAY_S)] = 43_200.0
    """Seconds for which a browser stays signed in. A session also ends with its key."""
    sessions_per_key: Annotated[int, Field(ge=1, le=100_000)] = 50
    """Browsers that are signed in with one key, or as one subject of an issuer, at once; one more signs the oldest out.
    """
    grafana_url: str | None = None
    """Where the dashboards are, for a link on the page Operations."""
    runbooks_url: str | None = None
    """Where docs/runbooks is served, for links from what is wrong to what to do."""

    def rules(self) -> None:
        """The addresses are of the web: any other would be a link that runs or opens something else."""
        for name in ("grafana_url", "runbooks_url"):
            address = getattr(self, name)
            if address is not None and not BASE_URL.fullmatch(address):
                raise ConfigurationError(
                    f"console.{name} must be http(s)://host[:port][/path], without credentials or a query.",
                    field=f"console.{name}",
                )


@section
class AgentSettings(Section):
    """The agent API, /mcp/agent ([agents.md](agents.md))."""

    enabled: bool = True
    """Whether `/mcp/agent` is served. A key needs the API `agent`."""
    text: Literal["lines", "json"] = "lines"
    """Text of an answer: `lines` for a model, or `json`. A call chooses by `format`. Clients without structured content
    get `json`."""
    pool: bool = True
    """Whether all agents of a caller share the notes without an agentId. False: each call names its agent, and reads
    only that agent's notes."""
    redaction_kinds: tuple[Kind, ...] = ("email", "phone")
    """What to redact from notes besides redaction.kinds or the tenant's own."""


TurnsMode = Literal["on", "shadow", "off"]
"""Whether turns are served to a tenant: with `shadow` they are compared with what its hosts compute themselves."""


@section
class TurnsSettings(Section):
    """Memory that a host calls before and after each turn, /mcp/turns ([turns.md](turns.md))."""

    enabled: bool = False
    """Whether `/mcp/turns`, `/v1/turns:before` and `/v1/turns:after` are served. A key needs the API `turns`."""
    recent_context_items: Annotated[int, Field(ge=0, le=1_000)] = 30
    """Most items of earlier turns put before a new one."""
    recall_facts_limit: Annotated[int, Field(ge=0, le=1_000)] = 20
    """Most facts recalled before a turn."""
    search_limit: Annotated[int, Field(ge=0, le=100)] = 5
    """Most pieces of earlier turns recalled before a turn because they match it."""
    compact_threshold: Annotated[float, Field(gt=0, le=1)] = 0.8
    """Share of `max_input_tok` from which a summary replaces earlier items."""
    session_lock_timeout_ms: Annotated[int, Field(ge=10, le=60_000)] = 5_000
    """Longest wait of a turn for others of its session; then RESOURCE_BUSY."""
    request_bytes: Annotated[int, Field(ge=1024, le=1024 * 1024 * 1024)] = 2 * 1024 * 1024
    """Largest request body of this API, at most mcp.body_bytes."""
    max_items: Annotated[int, Field(ge=1, le=10_000)] = 1_000
    """Most items of each list of a request."""
    part_bytes: Annotated[int, Field(ge=256, le=16 * 1024 * 1024)] = 64 * 1024
    """Longest text of a content part or a tool's output."""
    shadow: bool = False
    """Whether Myria compares its answers with hosts' results (`client_result`), for tenants without `myria turns
    mode`."""
    shadow_keep_s: Annotated[float, Field(ge=0, le=86_400 * 3650)] = 30 * _DAY_S
    """Age at which a comparison is removed."""
    l1_retention_days: Annotated[int, Field(ge=1, le=3_650)] = 1
    """UTC days for which a new fact of tier L1 holds, counted from the day it was said."""
    l2_retention_days: Annotated[int, Field(ge=1, le=3_650)] = 7
    """The same for tier L2."""
    heuristic_enabled: bool = False
    """Whether a model also looks for facts in users' words; see docs/turns.md."""
    heuristic_model: str = "openai/gpt-oss-120b"
    """Name of that model."""
    heuristic_base_url: str = ""
    """URL of the Responses API, without credentials. Myria appends `/v1/responses`. Needed with heuristic_enabled."""
    heuristic_timeout_ms: Annotated[int, Field(ge=50, le=3_600_000)] = 12_000
    """Time for one request to it."""
    heuristic_max_output_tokens: Annotated[int, Field(ge=16, le=1_000_000)] = 800
    """Most tokens of one reply."""
    heuristic_template: str | None = None
    """JSON file with more of a request, as llm.template. The section `llm` bounds these requests too."""
    heuristic_s: Annotated[float, Field(gt=0, le=86_400 * 30)] = 10.0
    """How often the control plane looks for turns that wait for the model."""
    heuristic_turns: Annotated[int, Field(ge=1, le=1_000)] = 24
    """Most turns of a tenant in one run."""
    maintenance_s: Annotated[float, Field(ge=0, le=86_400 * 30)] = 3_600.0
    """How often the control plane withdraws expired facts. 0: never."""
    compaction_min_age_hours: Annotated[int, Field(ge=0)] = 24
    """No effect. Accepted for settings of memory-tools."""
    summary_refresh_interval_minutes: Annotated[int, Field(ge=0)] = 60
    """No effect."""
    max_processed_turns: Annotated[int, Field(ge=0)] = 1_024
    """No effect."""

    def rules(self) -> None:
        """A model needs an address, which is absolute and carries no credentials."""
        if self.heuristic_enabled and not self.heuristic_base_url:
            raise ConfigurationError(
                "turns.heuristic_enabled needs turns.heuristic_base_url, such as https://api.openai.com.",
                field="turns.heuristic_base_url",
            )
        if self.heuristic_base_url and not BASE_URL.fullmatch(self.heuristic_base_url):
            # The value is not shown: what is wrong with it may be a password.
            raise ConfigurationError(
                "turns.heuristic_base_url must be http(s)://host[:port][/path], without user, password, query or "
                "fragment; a host alone will not do.",
                field="turns.heuristic_base_url",
            )


@section
class RestSettings(Section):
    """Memory over REST, `/api/v1` and `/mcp/memtrace` ([rest.md](rest.md))."""

    enabled: bool = True
    """Whether `/api/v1` and `/mcp/memtrace` are served. A key needs the API `rest`."""
    shared_participant: Annotated[str, Field(min_length=1, max_length=200)] = "org"
    """Participant with whom all memories of this API are shared. After a change, older memories stay with the older
    name."""
    dedup_window_s: Annotated[int, Field(ge=0, le=86_400 * 365)] = 86_400
    """Time within which a memory with the same key is a duplicate. 0 keeps all."""
    scanned_memories: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000
    """Most memories whose text a search by `content_contains` reads. The answer says when there are more."""


@section
class MetricsSettings(Section):
    """What is exported to Prometheus ([metrics.md](metrics.md))."""

    tenant_label: bool = False
    """Whether each tenant gets series of its own (label `tenant`). Leave it off with many tenants."""
