"""The agent's tools that link notes and follow links (Memento's contract, 6.5 and 6.12)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from myria_server.api.answers import Answer, all_open
from myria_server.api.memento.schemas import AgentAnswer, AgentInput, Id, No, Share, choice

Relation = Literal["related", "caused_by", "resolved_by", "part_of", "contradicts"]


class LinkInput(AgentInput):
    """Arguments of link."""

    fromId: Id
    toId: Id
    relationType: Annotated[Relation, choice("related")] = "related"
    weight: Share = None
    replaces: No = Field(default=False, description="in place of the pair's other types, which else stay")
    dryRun: No = False


class GraphExploreInput(AgentInput):
    """Arguments of graph_explore."""

    startId: Id = Field(description="best an error")


@all_open
class LinkAnswer(AgentAnswer):
    """link."""

    linked: bool
    relationType: Relation
    dryRun: bool = False


class GraphNode(Answer):
    """A note in a graph; `depth` 0 is where it starts."""

    id: str
    content: str
    type: str
    topic: str
    importance: float
    relation_type: str | None
    depth: int


class GraphEdge(Answer):
    """A link in a graph."""

    from_: str = Field(alias="from")
    to: str
    relation_type: str
    weight: float


class GraphExploreAnswer(AgentAnswer):
    """graph_explore."""

    startId: str
    nodes: list[GraphNode]
    edges: list[GraphEdge]
    count: int
