"""link and graph_explore."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from myria.access.principal import Principal
from myria.notes.answertext import ShownAnswer
from myria.notes.lines import MemoryLine, memory_text
from myria.notes.links import EXPLAINS, LinkedNote
from myria.text.model_tokens import token_counter
from myria_server.api.core import inputs
from myria_server.api.memento.answering import AgentTools, Handler, Json
from myria_server.api.memento.link_schemas import GraphExploreInput, LinkInput

_BUDGET = 2_000
"""Tokens of the text of an answer here."""


class LinkTools(AgentTools):
    """The tools of links."""

    def handlers(self) -> Mapping[str, Handler]:
        """Return the handlers by the names of their tools."""
        return {"link": self.link, "graph_explore": self.graph_explore}

    async def link(self, principal: Principal, arguments: Any) -> ShownAnswer:
        """Link two notes."""
        request = inputs.read(LinkInput, arguments)
        who = self.writing(principal, request)
        ids = {name: await self.note_id(principal, name) for name in (request.fromId, request.toId)}
        with self.as_named(ids):
            await self.memory.links.link(
                principal.tenant,
                ids[request.fromId],
                [ids[request.toId]],
                request.relationType,
                may_see=who.masks.sees,
                weight=1.0 if request.weight is None else request.weight,
                replaces=request.replaces,
                dry_run=request.dryRun,
            )
        content: Json = {"success": True, "linked": not request.dryRun, "relationType": request.relationType}
        if request.dryRun:
            content["dryRun"] = True
        said = "Would link" if request.dryRun else "Linked"
        return self.answered(principal, request, content, f"{said}: {request.relationType}.")

    async def graph_explore(self, principal: Principal, arguments: Any) -> ShownAnswer:
        """Follow the links that explain a note, one hop in both directions."""
        request = inputs.read(GraphExploreInput, arguments)
        who = self.acting(principal, request)
        note_id = await self.note_id(principal, request.startId)
        with self.as_named({request.startId: note_id}):
            around = await self.memory.links.around(
                principal.tenant, note_id, may_see=who.masks.sees, relations=EXPLAINS
            )
        relation_of = {end: link.relation for link in around.links for end in (link.from_id, link.to_id)}
        nodes = [_node(around.start, None)] + [_node(note, relation_of[note.note_id]) for note in around.neighbours]
        edges = [
            {"from": link.from_id, "to": link.to_id, "relation_type": link.relation, "weight": link.weight}
            for link in around.links
        ]
        content: Json = {
            "success": True,
            "startId": note_id,
            "nodes": nodes,
            "edges": edges,
            "count": len(nodes),
        }
        lines = [_line(node["relation_type"] or node["type"], node["content"], node["id"]) for node in nodes]
        return self.answered(principal, request, content, memory_text(lines, token_counter(), _BUDGET).text)


def _node(note: LinkedNote, relation: str | None) -> Json:
    return {
        "id": note.note_id,
        "content": note.text,
        "type": note.kind,
        "topic": note.topic,
        "importance": note.importance,
        "relation_type": relation,
        "depth": 0 if relation is None else 1,
    }


def _line(begin: str, text: str, name: str) -> MemoryLine:
    return MemoryLine(date=begin, speaker=None, text=text, handle=name)
