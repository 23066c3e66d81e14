"""What can be asked, as values of the domain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from myria.contract.limits import DEFAULT_LIMIT, DEFAULT_NODES
from myria.events import TopicHint

Order = Literal["relevance", "newest", "oldest"]
Mode = Literal["auto", "llm", "deterministic"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Selection:
    """What both queries share.

    `participants` are canonical: who asks. `topic_hints` boost and never filter; `context_id`, `channel`, `types`,
    `since` and `until` filter (`since <= timestamp < until`, microseconds since 1970 UTC). `now` is what relative
    dates in `query` count from; None for the newest visible event that is not ahead
    of the database's clock. An empty `query` asks for the most recent.
    `max_tokens` bounds the answer, estimated as characters / 4.
    """

    participants: tuple[str, ...]
    query: str | None = None
    topic_hints: tuple[TopicHint, ...] = ()
    context_id: str | None = None
    channel: str | None = None
    types: tuple[str, ...] = ()
    since: int | None = None
    until: int | None = None
    include_internal: bool = False
    max_tokens: int | None = None
    order: Order = "relevance"
    now: int | None = None
    cursor: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EventNodesQuery(_Selection):
    """Arguments of query_event_nodes; `limit` counts event nodes."""

    limit: int = DEFAULT_LIMIT


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferencesQuery(_Selection):
    """Arguments of query_references.

    `max_nodes` counts all nodes of the answer, its root included; `max_depth` counts levels below the root (None: no
    bound of its own); `root` is the topic_id or node_id whose subtree is asked for. `mode` says whether a language
    model may add to the answer, within a further quarter of `max_nodes`.
    """

    max_nodes: int = DEFAULT_NODES
    max_depth: int | None = None
    root: str | None = None
    include_payload: bool = False
    mode: Mode = "auto"
