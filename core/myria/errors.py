"""The whole error tree.

    MyriaError
    ├── InputError                    the caller must change the request
    │   ├── InvalidArgument           invalid_argument
    │   ├── UnknownField              unknown_field
    │   ├── UnknownTool               unknown_tool
    │   ├── InvalidParticipants       invalid_participants
    │   ├── InvalidTimestamp          invalid_timestamp
    │   ├── InvalidText               invalid_text
    │   ├── InvalidPayload            invalid_payload
    │   ├── ReservedType              reserved_type
    │   ├── PayloadTooLarge           payload_too_large
    │   ├── PayloadTooDeep            payload_too_deep
    │   ├── BatchTooLarge             batch_too_large
    │   ├── BodyTooLarge              body_too_large
    │   ├── AnswerTooLarge            answer_too_large
    │   ├── MalformedJson             malformed_json
    │   ├── CursorInvalid             cursor_invalid
    │   ├── CursorExpired             cursor_expired
    │   └── MethodNotAllowed          method_not_allowed
    ├── NotFoundError                 absent and forbidden look alike
    │   ├── EventNotFound             event_not_found
    │   ├── NoteNotFound              note_not_found
    │   ├── AgentNotFound             agent_not_found
    │   ├── SessionNotFound           session_not_found
    │   ├── TopicNotFound             topic_not_found
    │   ├── SnapshotNotFound          snapshot_not_found
    │   ├── BuildNotFound             build_not_found
    │   ├── TenantNotFound            tenant_not_found
    │   ├── KeyNotFound               key_not_found
    │   ├── GrantNotFound             grant_not_found
    │   ├── SecretNotFound            secret_not_found
    │   ├── ErasureNotFound           erasure_not_found
    │   └── PathNotFound              path_not_found
    ├── ConflictError                 the state of the memory forbids it
    │   ├── StaleParent               stale_parent
    │   ├── SnapshotNotHeld           snapshot_not_held
    │   ├── SnapshotNotRestorable     snapshot_not_restorable
    │   ├── NoPreviousSnapshot        no_previous_snapshot
    │   ├── EventIdConflict           event_id_conflict
    │   ├── SourceEventKeyTaken       source_event_key_taken
    │   ├── EventErased               event_erased
    │   ├── ErasureChanged            erasure_changed
    │   ├── ErasureTooLarge           erasure_too_large
    │   ├── AlreadySuperseded         already_superseded
    │   ├── NoteExists                note_exists
    │   ├── DuplicateMemory           duplicate_memory
    │   ├── AgentExists               agent_exists
    │   ├── IdempotencyKeyReused      idempotency_key_reused
    │   ├── SessionMoved              session_moved
    │   ├── ManualTriggerDisabled     manual_trigger_disabled
    │   ├── TenantExists              tenant_exists
    │   ├── TenantDeleting            tenant_deleting
    │   ├── StorageQuotaExceeded      storage_quota_exceeded
    │   └── ToolNotEnabled            tool_not_enabled
    ├── AccessError                   who calls may not do this
    │   ├── CredentialMissing         credential_missing
    │   ├── CredentialInvalid         credential_invalid
    │   ├── RoleRequired              role_required
    │   ├── FaceNotAllowed            face_not_allowed
    │   ├── ParticipantsNotAllowed    participants_not_allowed
    │   ├── ChannelNotAllowed         channel_not_allowed
    │   ├── TenantSuspended           tenant_suspended
    │   ├── HostNotAllowed            host_not_allowed
    │   ├── OriginNotAllowed          origin_not_allowed
    │   └── RateLimited               rate_limited
    ├── UnavailableError              nothing was changed for certain; retry helps
    │   ├── DatabaseUnavailable       database_unavailable
    │   ├── DeadlineExceeded          deadline_exceeded
    │   ├── IssuerUnavailable         issuer_unavailable
    │   ├── Overloaded                overloaded
    │   ├── TurnBusy                  turn_busy
    │   ├── QuotaExceeded             quota_exceeded
    │   ├── ClusterUnavailable        cluster_unavailable
    │   ├── ModelFailed               model_failed
    │   └── DiskFull                  disk_full
    ├── OperationalError              a person must act before the process can work
    │   ├── ConfigurationError        configuration_error
    │   ├── SchemaOutdated            schema_outdated
    │   ├── DataCorrupted             data_corrupted
    │   ├── SchemaTooNew              schema_too_new
    │   ├── DataDirInUse              data_dir_in_use
    │   ├── DataDirUnusable           data_dir_unusable
    │   ├── PortInUse                 port_in_use
    │   ├── ClusterRefused            cluster_refused
    │   └── EmbeddedPostgresFailed    embedded_postgres_failed
    ├── BuildError
    │   ├── BuildInvalid              build_invalid
    │   ├── BuildSuperseded           build_superseded
    │   ├── BuildInterrupted          build_interrupted
    │   ├── BuildTimedOut             build_timed_out
    │   ├── LogBusy                   log_busy
    │   └── LeaseLost                 lease_lost
    └── InternalError                 internal_error

Every leaf has a stable `code`, says whether a retry of the same request can help, and maps to one process exit
status. `details` is JSON and never holds another participant's text.
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
    """The request itself is wrong; the same request will be refused again."""

    exit_status = 2
    http_status = 400


class InvalidArgument(InputError):
    """An argument has a wrong type or value."""

    code = "invalid_argument"


class UnknownField(InputError):
    """A field is not part of the contract; the message names the nearest known one."""

    code = "unknown_field"


class UnknownTool(InputError):
    """No tool of this endpoint has this name; the message names the nearest one and its endpoint."""

    code = "unknown_tool"


class InvalidParticipants(InputError):
    """Participants must be 1..64 unique names of 1..200 characters, without control or invisible characters."""

    code = "invalid_participants"


class InvalidTimestamp(InputError):
    """A timestamp must be RFC 3339 with a zone, in the years 0001-9999."""

    code = "invalid_timestamp"


class InvalidText(InputError):
    """Text is too long or holds what cannot be stored (NUL, lone surrogate), or a name holds an invisible character."""

    code = "invalid_text"


class InvalidPayload(InputError):
    """A payload must be a JSON object of finite numbers and storable text."""

    code = "invalid_payload"


class ReservedType(InputError):
    """Event types that begin with `myria.` are Myria's own; use another."""

    code = "reserved_type"


class PayloadTooLarge(InputError):
    """A payload is larger than the limit; store the blob elsewhere and keep a reference."""

    code = "payload_too_large"


class PayloadTooDeep(InputError):
    """A payload is nested deeper than the limit."""

    code = "payload_too_deep"


class BatchTooLarge(InputError):
    """A batch holds more events than the limit; split it."""

    code = "batch_too_large"


class BodyTooLarge(InputError):
    """A request body is larger than the limit; split it."""

    code = "body_too_large"
    http_status = 413


class AnswerTooLarge(InputError):
    """The answer exceeds the limit (retrieval.answer_bytes); ask for less at once."""

    code = "answer_too_large"


class MalformedJson(InputError):
    """Text is not JSON, or holds duplicate keys or non-finite numbers."""

    code = "malformed_json"


class CursorInvalid(InputError):
    """A cursor was not made here, or belongs to another query."""

    code = "cursor_invalid"


class CursorExpired(InputError):
    """A cursor is older than its lifetime; ask again without it."""

    code = "cursor_expired"


class MethodNotAllowed(InputError):
    """The endpoint does not take this HTTP method; see the header Allow."""

    code = "method_not_allowed"
    http_status = 405


class NotFoundError(MyriaError):
    """What was asked for does not exist, or not for these participants: the two look alike."""

    exit_status = 3
    http_status = 404


class EventNotFound(NotFoundError):
    """No such event is visible to these participants."""

    code = "event_not_found"


class ErasureNotFound(NotFoundError):
    """There is no such erasure, or it has no receipt yet."""

    code = "erasure_not_found"


class NoteNotFound(NotFoundError):
    """No such note, or none that you may see, or it was withdrawn."""

    code = "note_not_found"


class AgentNotFound(NotFoundError):
    """No agent with this id or name is registered where you can see it."""

    code = "agent_not_found"


class SessionNotFound(NotFoundError):
    """No session with this id was opened where you can see it."""

    code = "session_not_found"


class TopicNotFound(NotFoundError):
    """No such topic or node is visible to these participants in this snapshot."""

    code = "topic_not_found"


class SnapshotNotFound(NotFoundError):
    """No such snapshot is kept for this tenant."""

    code = "snapshot_not_found"


class BuildNotFound(NotFoundError):
    """No such build is known for this tenant."""

    code = "build_not_found"


class TenantNotFound(NotFoundError):
    """No such tenant is in this database."""

    code = "tenant_not_found"


class KeyNotFound(NotFoundError):
    """No such key is in this database."""

    code = "key_not_found"


class GrantNotFound(NotFoundError):
    """No such grant is in this database; those that ended long ago are forgotten."""

    code = "grant_not_found"


class SecretNotFound(NotFoundError):
    """The tenant has no secret of this name."""

    code = "secret_not_found"


class PathNotFound(NotFoundError):
    """Nothing is served at this path."""

    code = "path_not_found"


class ConflictError(MyriaError):
    """The present state of the memory forbids the operation."""

    exit_status = 4
    http_status = 409


class StaleParent(ConflictError):
    """The snapshot's parent is no longer the active one; rebuild instead of publishing it."""

    code = "stale_parent"


class SnapshotNotHeld(ConflictError):
    """Only a held snapshot can be published or given up."""

    code = "snapshot_not_held"


class SnapshotNotRestorable(ConflictError):
    """Only a kept snapshot that was active once can be rolled back to."""

    code = "snapshot_not_restorable"


class NoPreviousSnapshot(ConflictError):
    """The active snapshot has no parent to roll back to."""

    code = "no_previous_snapshot"


class EventIdConflict(ConflictError):
    """An imported event_id exists already with other content."""

    code = "event_id_conflict"


class EventErased(ConflictError):
    """An event with this channel and source_event_key was erased, and stays so; nothing was stored."""

    code = "event_erased"


class ErasureChanged(ConflictError):
    """The number of events to erase differs from the caller's; look at a dry run again."""

    code = "erasure_changed"


class ErasureTooLarge(ConflictError):
    """The erasure exceeds what a tool may erase, or too many of the tenant are unfinished."""

    code = "erasure_too_large"


class SourceEventKeyTaken(ConflictError):
    """An event that these participants may not see has this channel and key; nothing was stored."""

    code = "source_event_key_taken"


class AlreadySuperseded(ConflictError):
    """Another event has replaced that event already; nothing was stored. Read it again."""

    code = "already_superseded"


class NoteExists(ConflictError):
    """The same people keep a note with this text and kind; nothing was stored."""

    code = "note_exists"


class DuplicateMemory(ConflictError):
    """The same memory was kept within the window of deduplication; nothing was stored."""

    code = "duplicate_memory"


class AgentExists(ConflictError):
    """An agent with this name is registered already; nothing was stored."""

    code = "agent_exists"


class IdempotencyKeyReused(ConflictError):
    """The key was used for something else; nothing was stored."""

    code = "idempotency_key_reused"


class SessionMoved(ConflictError):
    """The session or a turn of it changed meanwhile; nothing was stored. Try again."""

    code = "session_moved"
    retryable = True


class ManualTriggerDisabled(ConflictError):
    """Manual rebuilds are switched off by builder.allow_manual_trigger."""

    code = "manual_trigger_disabled"


class ToolNotEnabled(ConflictError):
    """The tool belongs to a profile that this server does not offer."""

    code = "tool_not_enabled"
    http_status = 403


class TenantExists(ConflictError):
    """A tenant of this name exists already."""

    code = "tenant_exists"


class TenantDeleting(ConflictError):
    """The tenant is being deleted; nothing is written for it any more."""

    code = "tenant_deleting"


class StorageQuotaExceeded(ConflictError):
    """The tenant's storage is full; an administrator raises the quota or removes something."""

    code = "storage_quota_exceeded"


class AccessError(MyriaError):
    """Who calls may not do this; what exists is not told by it."""

    exit_status = 4
    http_status = 403


class CredentialMissing(AccessError):
    """No credential came with the request."""

    code = "credential_missing"
    http_status = 401


class CredentialInvalid(AccessError):
    """The credential is malformed, unknown, expired or revoked."""

    code = "credential_invalid"
    http_status = 401


class RoleRequired(AccessError):
    """The credential lacks the role that this tool needs."""

    code = "role_required"


class FaceNotAllowed(AccessError):
    """The credential may not use this endpoint."""

    code = "face_not_allowed"


class ParticipantsNotAllowed(AccessError):
    """The credential may not ask or append as these participants."""

    code = "participants_not_allowed"


class ChannelNotAllowed(AccessError):
    """The credential may not append to this channel."""

    code = "channel_not_allowed"


class TenantSuspended(AccessError):
    """The credential's tenant is suspended."""

    code = "tenant_suspended"


class HostNotAllowed(AccessError):
    """The server does not answer under the name in Host; mcp.allowed_hosts adds names."""

    code = "host_not_allowed"
    http_status = 421


class OriginNotAllowed(AccessError):
    """A page of this origin may not call the server; mcp.cors_origins adds origins."""

    code = "origin_not_allowed"


class RateLimited(AccessError):
    """The credential or address asks too often or too much at once."""

    code = "rate_limited"
    retryable = True
    exit_status = 5
    http_status = 429


class UnavailableError(MyriaError):
    """The service cannot answer now; the same request may succeed later."""

    retryable = True
    exit_status = 5
    http_status = 503


class DatabaseUnavailable(UnavailableError):
    """PostgreSQL cannot be reached or is restarting."""

    code = "database_unavailable"


class DeadlineExceeded(UnavailableError):
    """The request did not finish within its deadline."""

    code = "deadline_exceeded"


class IssuerUnavailable(UnavailableError):
    """The keys of a token's authorization server cannot be fetched, so it cannot be checked."""

    code = "issuer_unavailable"


class Overloaded(UnavailableError):
    """Too many requests wait; slow down and retry."""

    code = "overloaded"


class TurnBusy(UnavailableError):
    """Another request stores the turn, or too many turns of its session wait."""

    code = "turn_busy"
    http_status = 409


class QuotaExceeded(UnavailableError):
    """The tenant uses as much as it may; later there is room again."""

    code = "quota_exceeded"
    http_status = 429


class ClusterUnavailable(UnavailableError):
    """The Kubernetes API server cannot be reached, is overloaded, or failed."""

    code = "cluster_unavailable"


class ModelFailed(UnavailableError):
    """A language model gave no usable answer; the deterministic one is taken."""

    code = "model_failed"


class DiskFull(UnavailableError):
    """The database has no room left; nothing was written."""

    code = "disk_full"


class OperationalError(MyriaError):
    """The process cannot work until a person changes something."""

    exit_status = 6


class ConfigurationError(OperationalError):
    """A setting is unknown, malformed or contradicts another."""

    code = "configuration_error"


class DataCorrupted(OperationalError):
    """PostgreSQL cannot read something it stored; the rest is served. `myria verify` says what; restore a backup."""

    code = "data_corrupted"


class SchemaOutdated(OperationalError):
    """The database schema is older than this program; run `myria migrate`."""

    code = "schema_outdated"


class SchemaTooNew(OperationalError):
    """The database schema is newer than this program; upgrade the program."""

    code = "schema_too_new"


class DataDirInUse(OperationalError):
    """Another `myria up` uses this data directory."""

    code = "data_dir_in_use"


class DataDirUnusable(OperationalError):
    """The data directory cannot be written or has no room."""

    code = "data_dir_unusable"


class PortInUse(OperationalError):
    """Another program listens on the port."""

    code = "port_in_use"


class ClusterRefused(OperationalError):
    """The Kubernetes API server refused a request; the details have its status and reason."""

    code = "cluster_refused"


class EmbeddedPostgresFailed(OperationalError):
    """The embedded PostgreSQL did not start; the message quotes its log."""

    code = "embedded_postgres_failed"


class BuildError(MyriaError):
    """A build could not reach a published snapshot."""

    exit_status = 7


class BuildInvalid(BuildError):
    """A staged snapshot broke a validation rule; the details list rule and message."""

    code = "build_invalid"


class BuildSuperseded(BuildError):
    """The active snapshot moved while the build ran."""

    code = "build_superseded"


class BuildInterrupted(BuildError):
    """The build was cut off (Job gone, database away); the details have the reason.

    `details.transient` is true where nothing suggests that the events are to blame, so that an automatic build tries
    the same events again, later each time.
    """

    code = "build_interrupted"


class BuildTimedOut(BuildError):
    """The build exceeded its time; raise the limit if it was not hanging."""

    code = "build_timed_out"


class LogBusy(BuildError):
    """A transaction kept the append lock, so a build could not read its cutoff; the details name it."""

    code = "log_busy"
    retryable = True


class LeaseLost(BuildError):
    """Another worker took the task over; this one's work is discarded."""

    code = "lease_lost"


class InternalError(MyriaError):
    """A bug in Myria; the log holds the trace."""

    code = "internal_error"
