"""The named failures of a request to a model, from sending it to using its reply."""

from __future__ import annotations

from enum import StrEnum

from myria.errors import ModelFailed


class Kind(StrEnum):
    """Names of failures, as they stand in `degraded_reason`, in the audit and in metrics."""

    # The model's reply cannot be used.
    LENGTH = "length"
    REFUSAL = "refusal"
    CONTENT_FILTER = "content_filter"
    EMPTY_CHOICES = "empty_choices"
    EMPTY_REPLY = "empty_reply"
    MALFORMED_ARGUMENTS = "malformed_arguments"
    UNKNOWN_TOOL = "unknown_tool"
    UNKNOWN_ID = "unknown_id"
    SCHEMA = "schema"
    INVALID_PLAN = "invalid_plan"
    # The provider failed.
    MALFORMED_JSON = "malformed_json"
    MALFORMED_REPLY = "malformed_reply"
    TOO_LARGE = "too_large"
    TIMEOUT = "timeout"
    CONNECTION = "connection"
    RATE_LIMITED = "rate_limited"
    HTTP_3XX = "http_3xx"
    HTTP_4XX = "http_4xx"
    HTTP_5XX = "http_5xx"
    # No request was sent.
    RESTING = "provider_resting"
    BUSY = "busy"
    NOT_CONFIGURED = "not_configured"
    BUDGET_ROUNDS = "budget_rounds"
    BUDGET_CALLS = "budget_calls"
    BUDGET_TOKENS = "budget_tokens"
    BUDGET_BYTES = "budget_bytes"
    BUDGET_TIME = "budget_time"
    BUDGET_COST = "budget_cost"
    BUDGET_TENANT = "budget_tenant"
    INTERNAL = "internal"


REPAIRABLE = frozenset(
    {
        Kind.LENGTH,
        Kind.EMPTY_CHOICES,
        Kind.EMPTY_REPLY,
        Kind.MALFORMED_ARGUMENTS,
        Kind.UNKNOWN_TOOL,
        Kind.UNKNOWN_ID,
        Kind.SCHEMA,
        Kind.INVALID_PLAN,
    }
)
"""Failures that the model may mend in another turn, once it is told what was wrong."""

TRANSIENT = frozenset({Kind.TIMEOUT, Kind.CONNECTION, Kind.RATE_LIMITED, Kind.HTTP_5XX})
"""Failures after which the very same request may succeed."""

PROVIDERS = TRANSIENT | {Kind.MALFORMED_JSON, Kind.MALFORMED_REPLY, Kind.TOO_LARGE, Kind.HTTP_3XX, Kind.HTTP_4XX}
"""Failures that count against the provider: after several in a row, requests to it stop for a while."""


TOLD = TRANSIENT | {Kind.HTTP_3XX, Kind.HTTP_4XX, Kind.RESTING}
"""Failures whose message quotes the provider only, and nothing of the request: it may be shown."""


def advice(reason: str) -> str:
    """Return a sentence for the reader: the model gave no usable answer, what was done instead, and what to do.

    Args:
        reason: the name of a failure, as it stands in `degraded_reason`.
    """
    kind = Kind(reason)
    if kind is Kind.NOT_CONFIGURED:
        todo = "set llm.template, or ask with mode deterministic"
    elif kind in {Kind.HTTP_3XX, Kind.HTTP_4XX}:
        todo = "check the key, the model and llm.base_url; `myria audit --failed` has the provider's words"
    elif kind in TRANSIENT or kind in {Kind.RESTING, Kind.BUSY}:
        todo = "ask again in a minute"
    elif kind is Kind.BUDGET_TENANT:
        todo = "ask again tomorrow (UTC), or raise the tenant's tokens of a day with `myria tenant set`"
    elif kind.startswith("budget_"):
        todo = "ask for less, or raise the llm.walk_... limit of the same name"
    elif kind is Kind.INTERNAL:
        todo = "the server's log has the error"
    else:
        todo = "ask again; if it stays so, use another model"
    return (
        f"The model gave no answer of use ({kind}), so this is what words and structure found, "
        f"with what the model had added until then: {todo}."
    )


def failed(kind: Kind, message: str) -> ModelFailed:
    """Return the error of a named failure; whoever shows `message` must redact it."""
    return ModelFailed(f"{kind}: {message}", kind=kind.value)


def kind_of(error: ModelFailed) -> Kind:
    """Return the name of a failure."""
    return Kind(error.details["kind"])


def of_status(status: int) -> Kind:
    """Return the kind of failure that an HTTP status means."""
    if status == 429:
        return Kind.RATE_LIMITED
    if status == 408:
        return Kind.TIMEOUT
    if status >= 500:
        return Kind.HTTP_5XX
    return Kind.HTTP_3XX if 300 <= status < 400 else Kind.HTTP_4XX
