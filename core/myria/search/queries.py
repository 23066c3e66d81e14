"""What can be asked, as values of the domain."""

from __future__ import annotations

from dataclasses import InitVar, dataclass
from typing import Literal

from myria.errors import InvalidParticipants
from myria.log.limits import DEFAULT_LIMIT, DEFAULT_NODES
from myria.log.masks import NOBODY, Masks
from myria.log.payloads import TopicHint

Order = Literal["relevance", "newest", "oldest"]
Mode = Literal["auto", "llm", "deterministic"]
View = Literal["lean", "full"]
Format = Literal["json", "text"]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Selection:
    """What both queries share.

    `masks` say which scopes it sees; `participants` (canonical) in their place stand for the one mask that contains all
    of these. `topic_hints` boost and never filter; `context_id`, `channel`, `types`,
    `since` and `until` filter (`since <= timestamp < until`, microseconds since 1970 UTC). `now` is what relative
    dates in `query` count from, `utc_offset` (minutes east of UTC) that of its place; None for the newest visible event
    that is not ahead of the database's clock. `present` (None for the same) is when what was announced must hold to be
    so at present. An empty `query` asks for the most recent. `include_superseded` finds what was superseded
    too, each marked with what replaced it.
    `least_nearness` (permille of a cosine; None: the ranking's own) is how near in meaning a text must be that holds no
    word of `query`, where vectors are compared.
    `explain` tells what each signal gave to the score of each hit, and of the event `expected` (by id) the stage that
    left it out; neither changes which events are found.
    `max_tokens` bounds the answer as JSON, estimated as characters / 4, in the view that is asked for; as text
    (`format`) it also bounds the text's tokens.
    """

    participants: InitVar[tuple[str, ...] | None] = None
    masks: Masks = NOBODY
    query: str | None = None
    topic_hints: tuple[TopicHint, ...] = ()
    context_id: str | None = None
    channel: str | None = None
    types: tuple[str, ...] = ()
    since: int | None = None
    until: int | None = None
    include_internal: bool = False
    include_superseded: bool = False
    max_tokens: int | None = None
    order: Order = "relevance"
    now: int | None = None
    utc_offset: int = 0
    present: int | None = None
    least_nearness: int | None = None
    cursor: str | None = None
    explain: bool = False
    expected: str | None = None
    view: View = "full"
    format: Format = "json"

    def __post_init__(self, participants: tuple[str, ...] | None) -> None:
        if (participants is None) == (self.masks == NOBODY):
            raise InvalidParticipants("a query names who asks: by participants or by masks, one of them")
        if participants is not None:
            object.__setattr__(self, "masks", Masks.containing(participants))


@dataclass(frozen=True, kw_only=True, slots=True)
class EventNodesQuery(_Selection):
    """Arguments of query_event_nodes; `limit` counts event nodes."""

    limit: int = DEFAULT_LIMIT


@dataclass(frozen=True, kw_only=True, slots=True)
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
