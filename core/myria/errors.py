"""The whole error tree. docs/errors.md is generated from it.

    MyriaError
    ├── InputError                    the caller must change the request
    ├── NotFoundError                 absent and forbidden look alike
    ├── ConflictError                 the state of the memory forbids it
    ├── AccessError                   who calls may not do this
    ├── UnavailableError              nothing was changed for certain; retry helps
    ├── OperationalError              a person must act before the process can work
    ├── BuildError                    no snapshot was published
    └── InternalError                 a bug

A family says how its errors end: HTTP status, exit status, whether a retry of the same request can help. A leaf has a
stable `code`, and says only what differs from its family. `details` is JSON and never holds another participant's text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

JsonValue = Any


class MyriaError(Exception):
    """Base of everything Myria raises on purpose.

    Args:
        message: one sentence that says what is wrong and what to do.
        details: JSON that a program can act on (field, index, limit, ...).
    """

    code: ClassVar[str] = "internal_error"
    retryable: ClassVar[bool] = False
    exit_status: ClassVar[int] = 1
    http_status: ClassVar[int] = 500

    def __init__(self, message: str, **details: JsonValue) -> None:
        super().__init__(message)
        self.message = message
        self.details: Mapping[str, JsonValue] = details

    def __init_subclass__(
        cls, *, code: str = "", retryable: bool = False, exit_status: int = 0, http_status: int = 0
    ) -> None:
        """Take what a leaf says in the line of its name; the rest stays as its family has it."""
        super().__init_subclass__()
        cls.code = code or cls.code
        cls.retryable = retryable or cls.retryable
        cls.exit_status = exit_status or cls.exit_status
        cls.http_status = http_status or cls.http_status

    def to_json(self) -> dict[str, JsonValue]:
        """Return the wire form `{code, message, retryable, details}`."""
        return {
            "code": self.code,
            "message": self.message,
            "retryable": self.retryable,
            "details": dict(self.details),
        }

    def at_index(self, index: int) -> MyriaError:
        """Return the same error naming the position of the refused item in its batch."""
        return type(self)(f"events[{index}]: {self.message}", **{**self.details, "index": index})


class InputError(MyriaError):
    """The request itself is wrong."""

    exit_status = 2
    http_status = 400


class InvalidArgument(InputError, code="invalid_argument"):
    """An argument has a wrong type or value."""


class UnknownField(InputError, code="unknown_field"):
    """A field is unknown; the message names the nearest known one."""


class UnknownTool(InputError, code="unknown_tool"):
    """This endpoint has no such tool; the message names the nearest one and its endpoint."""


class InvalidParticipants(InputError, code="invalid_participants"):
    """Participants must be 1 to 64 unique names of 1 to 200 characters, without control or invisible characters."""


class InvalidTimestamp(InputError, code="invalid_timestamp"):
    """A timestamp must be RFC 3339 with a zone, in the years 0001 to 9999."""


class InvalidText(InputError, code="invalid_text"):
    """A text is too long or cannot be stored (NUL, lone surrogate), or a name holds an invisible character."""


class InvalidPayload(InputError, code="invalid_payload"):
    """A payload must be a JSON object of finite numbers and storable text."""


class ReservedType(InputError, code="reserved_type"):
    """Event types that begin with `myria.` are Myria's own."""


class PayloadTooLarge(InputError, code="payload_too_large"):
    """A payload exceeds the limit. Store the blob elsewhere and keep a reference."""


class PayloadTooDeep(InputError, code="payload_too_deep"):
    """A payload is nested deeper than the limit."""


class BatchTooLarge(InputError, code="batch_too_large"):
    """A batch holds more events than the limit. Split it."""


class BodyTooLarge(InputError, code="body_too_large", http_status=413):
    """A request body exceeds the limit. Split it."""


class AnswerTooLarge(InputError, code="answer_too_large"):
    """The answer exceeds retrieval.answer_bytes. Ask for less at once."""


class MalformedJson(InputError, code="malformed_json"):
    """The text is not JSON, or holds duplicate keys or non-finite numbers."""


class CursorInvalid(InputError, code="cursor_invalid"):
    """The cursor was not made here, or belongs to another query."""


class CursorExpired(InputError, code="cursor_expired"):
    """The cursor is too old. Ask again without it."""


class MethodNotAllowed(InputError, code="method_not_allowed", http_status=405):
    """The endpoint does not take this HTTP method; see the header Allow."""


class NotFoundError(MyriaError):
    """What you ask for does not exist, or you may not see it: the two look alike."""

    exit_status = 3
    http_status = 404


class EventNotFound(NotFoundError, code="event_not_found"):
    """These participants see no such event."""


class ErasureNotFound(NotFoundError, code="erasure_not_found"):
    """No such erasure, or it has no receipt yet."""


class NoteNotFound(NotFoundError, code="note_not_found"):
    """No such note, or you may not see it, or it was withdrawn."""


class AgentNotFound(NotFoundError, code="agent_not_found"):
    """You see no agent with this id or name."""


class SessionNotFound(NotFoundError, code="session_not_found"):
    """You see no session with this id."""


class TopicNotFound(NotFoundError, code="topic_not_found"):
    """These participants see no such topic or node in this snapshot."""


class SnapshotNotFound(NotFoundError, code="snapshot_not_found"):
    """The tenant keeps no such snapshot."""


class BuildNotFound(NotFoundError, code="build_not_found"):
    """The tenant has no such build."""


class TenantNotFound(NotFoundError, code="tenant_not_found"):
    """No such tenant."""


class KeyNotFound(NotFoundError, code="key_not_found"):
    """No such key."""


class GrantNotFound(NotFoundError, code="grant_not_found"):
    """No such grant; those that ended long ago are forgotten."""


class SecretNotFound(NotFoundError, code="secret_not_found"):
    """The tenant has no secret of this name."""


class PathNotFound(NotFoundError, code="path_not_found"):
    """Nothing is served at this path."""


class ConflictError(MyriaError):
    """The present state of the memory forbids the operation; nothing was stored."""

    exit_status = 4
    http_status = 409


class StaleParent(ConflictError, code="stale_parent"):
    """Another snapshot became active since this one was built. Rebuild instead of publishing it."""


class SnapshotNotHeld(ConflictError, code="snapshot_not_held"):
    """Only a held snapshot can be published or discarded."""


class BuildEnded(ConflictError, code="build_ended"):
    """The build has ended. Only one that is queued, running or held can be given up."""


class SnapshotNotRestorable(ConflictError, code="snapshot_not_restorable"):
    """You can roll back only to a kept snapshot that was active once."""


class NoPreviousSnapshot(ConflictError, code="no_previous_snapshot"):
    """The active snapshot has no parent to roll back to."""


class EventIdConflict(ConflictError, code="event_id_conflict"):
    """The event_id exists already with other content."""


class EventErased(ConflictError, code="event_erased"):
    """An event with this channel and source_event_key was erased, and stays so."""


class ErasureChanged(ConflictError, code="erasure_changed"):
    """The number of events to erase is not the one you named. Look at a dry run again."""


class ErasureTooLarge(ConflictError, code="erasure_too_large"):
    """The erasure exceeds what a tool may erase, or too many of the tenant's are unfinished."""


class SourceEventKeyTaken(ConflictError, code="source_event_key_taken"):
    """An event that these participants may not see has this channel and key."""


class AlreadySuperseded(ConflictError, code="already_superseded"):
    """Another event has replaced that event already. Read it again."""


class NoteExists(ConflictError, code="note_exists"):
    """The same people keep a note with this text and kind already."""


class NoteHeld(ConflictError, code="note_held"):
    """The note waits for a review, or was refused in one. Only a reviewer decides about it (`myria review`)."""


class NoteDecided(ConflictError, code="note_decided"):
    """The note is not in the state that the decision is about: another reviewer was first, or it changed since."""


class DuplicateMemory(ConflictError, code="duplicate_memory"):
    """The same memory was kept a short time ago (rest.dedup_window_s)."""


class AgentExists(ConflictError, code="agent_exists"):
    """An agent with this name is registered already."""


class KeyNameTaken(ConflictError, code="key_name_taken"):
    """A key of this tenant that has not ended has this name. Take another name, or rotate or revoke that key."""


class IdempotencyKeyReused(ConflictError, code="idempotency_key_reused"):
    """The key was used for another request."""


class SessionMoved(ConflictError, code="session_moved", retryable=True):
    """The session or a turn of it changed meanwhile. Try again."""


class ManualTriggerDisabled(ConflictError, code="manual_trigger_disabled"):
    """builder.allow_manual_trigger forbids manual rebuilds."""


class ToolNotEnabled(ConflictError, code="tool_not_enabled", http_status=403):
    """This server does not offer the profile of the tool (mcp.profiles)."""


class TenantExists(ConflictError, code="tenant_exists"):
    """A tenant of this name exists already."""


class TenantDeleting(ConflictError, code="tenant_deleting"):
    """Somebody deletes the tenant; it takes nothing new."""


class StorageQuotaExceeded(ConflictError, code="storage_quota_exceeded"):
    """The tenant's storage is full. An administrator raises the quota or removes something."""


class AccessError(MyriaError):
    """The caller may not do this; the error does not tell whether the thing exists."""

    exit_status = 4
    http_status = 403


class CredentialMissing(AccessError, code="credential_missing", http_status=401):
    """The request has no credential."""


class CredentialInvalid(AccessError, code="credential_invalid", http_status=401):
    """The credential is malformed, unknown, expired, replaced or revoked."""


class RoleRequired(AccessError, code="role_required"):
    """The credential lacks the role that this tool needs."""


class FaceNotAllowed(AccessError, code="face_not_allowed"):
    """The credential may not use this endpoint."""


class ParticipantsNotAllowed(AccessError, code="participants_not_allowed"):
    """The credential may not ask or append as these participants."""


class ChannelNotAllowed(AccessError, code="channel_not_allowed"):
    """The credential may not append to this channel."""


class TenantSuspended(AccessError, code="tenant_suspended"):
    """The credential's tenant is suspended."""


class HostNotAllowed(AccessError, code="host_not_allowed", http_status=421):
    """The server does not answer under the name in Host. Add it to mcp.allowed_hosts."""


class OriginNotAllowed(AccessError, code="origin_not_allowed"):
    """A page of this origin may not call the server. Add it to mcp.cors_origins."""


class RateLimited(AccessError, code="rate_limited", retryable=True, exit_status=5, http_status=429):
    """The credential or address asks too often, or too much at once."""


class UnavailableError(MyriaError):
    """The service cannot answer now; the same request may succeed later."""

    retryable = True
    exit_status = 5
    http_status = 503


class DatabaseUnavailable(UnavailableError, code="database_unavailable"):
    """PostgreSQL cannot be reached or is restarting."""


class DeadlineExceeded(UnavailableError, code="deadline_exceeded"):
    """The request did not finish within its deadline."""


class IssuerUnavailable(UnavailableError, code="issuer_unavailable"):
    """Myria cannot fetch the keys of the token's authorization server, so it cannot check the token."""


class Overloaded(UnavailableError, code="overloaded"):
    """Too many requests wait. Slow down."""


class TurnBusy(UnavailableError, code="turn_busy", http_status=409):
    """Another request stores the turn, or too many turns of its session wait."""


class QuotaExceeded(UnavailableError, code="quota_exceeded", http_status=429):
    """The tenant uses as much as it may at this time."""


class ClusterUnavailable(UnavailableError, code="cluster_unavailable"):
    """The Kubernetes API server cannot be reached, is overloaded, or failed."""


class ModelFailed(UnavailableError, code="model_failed"):
    """A language model gave no usable answer; the deterministic one stands."""


class DiskFull(UnavailableError, code="disk_full"):
    """The database has no room left; nothing was written."""


class OperationalError(MyriaError):
    """The process cannot work until a person changes something."""

    exit_status = 6


class ConfigurationError(OperationalError, code="configuration_error"):
    """A setting is unknown, malformed or contradicts another."""


class DataCorrupted(OperationalError, code="data_corrupted"):
    """PostgreSQL cannot read something that it stored; the rest is served. `myria verify` says what. Restore a
    backup."""


class SchemaOutdated(OperationalError, code="schema_outdated"):
    """The schema is older than this program. Run `myria migrate`."""


class SchemaTooNew(OperationalError, code="schema_too_new"):
    """The schema is newer than this program. Upgrade the program."""


class DataDirInUse(OperationalError, code="data_dir_in_use"):
    """Another `myria up` uses this data directory."""


class DataDirUnusable(OperationalError, code="data_dir_unusable"):
    """The data directory cannot be written or has no room."""


class PortInUse(OperationalError, code="port_in_use"):
    """Another program listens on the port."""


class ClusterRefused(OperationalError, code="cluster_refused"):
    """The Kubernetes API server refused a request. The details have its status and reason."""


class EmbeddedPostgresFailed(OperationalError, code="embedded_postgres_failed"):
    """The embedded PostgreSQL did not start. The message quotes its log."""


class BuildError(MyriaError):
    """A build could not reach a published snapshot."""

    exit_status = 7


class BuildInvalid(BuildError, code="build_invalid"):
    """A staged snapshot broke a rule. The details list rule and message."""


class BuildSuperseded(BuildError, code="build_superseded"):
    """Another snapshot became active while the build ran."""


class BuildAborted(BuildError, code="build_aborted", http_status=409):
    """The build was given up. The details say by whom, and why."""


class BuildInterrupted(BuildError, code="build_interrupted"):
    """The build was cut off (Job gone, database away). The details have the reason.

    `details.transient` is true where nothing suggests that the events are to blame, so that an automatic build tries
    the same events again, later each time.
    """


class BuildTimedOut(BuildError, code="build_timed_out"):
    """The build exceeded its time. Raise the limit unless it hung."""


class LogBusy(BuildError, code="log_busy", retryable=True):
    """A transaction held the append lock, so the build could not begin. The details name it."""


class LeaseLost(BuildError, code="lease_lost"):
    """Another worker took the task over. This worker's result is discarded."""


class InternalError(MyriaError, code="internal_error"):
    """A bug in Myria. The log holds the trace."""
