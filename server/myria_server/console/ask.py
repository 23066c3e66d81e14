"""The page on which a visitor asks the memory: best matches, the tree of topics, or the text that a model would get."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from starlette.requests import Request

from myria.memory import Memory
from myria.search.later import LaterState
from myria.search.reasons import SIGNALS, STAGES
from myria.text.model_tokens import token_counter
from myria_server.console.desk import Desk, Json
from myria_server.console.fields import moment_of, number_of
from myria_server.console.topics import events_in, in_reading_order

_EVENTS = 20
_NODES = 60
_TOKENS = 2_000

VIEWS = {"best": "Best matches", "topics": "By topic", "text": "As a model reads it"}
"""The ways to look at an answer, by their parameter in the address."""


class AskPages:
    """The page of questions; how old a snapshot is, is more than tools answer."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    async def view(self, desk: Desk, request: Request) -> tuple[str, Mapping[str, Any]]:
        """Answer the question that the address holds; without one, show what is newest."""
        parameters = request.query_params
        chosen_view = parameters.get("view", "")
        chosen_view = chosen_view if chosen_view in VIEWS else "best"
        question = parameters.get("q", "").strip()
        selection: dict[str, Any] = {
            "since": moment_of(parameters.get("since")),
            "until": moment_of(parameters.get("until")),
            "channel": parameters.get("channel", "").strip(),
            "context_id": parameters.get("context", "").strip(),
            "types": [kind for part in parameters.get("types", "").split(",") if (kind := part.strip())],
            "order": parameters.get("order", ""),
            "include_superseded": parameters.get("superseded") == "on",
            "include_internal": parameters.get("internal") == "on",
        }
        expected = parameters.get("expected", "").strip()
        is_explained = parameters.get("why") == "on" or bool(expected)
        asked = {
            "query": question,
            **selection,
            "cursor": parameters.get("cursor", ""),
            "explain": is_explained,
            "expected": expected,
        }
        budget = number_of(parameters.get("tokens"), default=_TOKENS)
        text: str | None = None
        if chosen_view == "best":
            answer = await desk.ask("query_event_nodes", limit=_EVENTS, **asked)
        elif chosen_view == "topics":
            answer = await desk.ask("query_references", max_nodes=_NODES, **asked)
            answer["root"]["children"] = in_reading_order(answer["root"]["children"])
        else:
            answer, text = await desk.call_with_text(
                "query_references", participants=list(desk.names), format="text", max_tokens=budget, **asked
            )
        later: Mapping[int, LaterState] = {}
        if chosen_view == "best" and question:
            later = await self._later(desk, answer["root"]["children"])
        values: dict[str, Any] = {
            "question": question,
            "selection": selection,
            "budget": budget,
            "view": chosen_view,
            "views": VIEWS,
            "answer": answer,
            "later": later,
            "made": await self._memory.registry.freshness(desk.principal.tenant, answer.get("snapshot_id")),
            "is_continued": bool(parameters.get("cursor")),
            "text": text,
            "is_explained": is_explained,
            "expected": expected,
            "why": {"signals": SIGNALS, "best": _best_score(answer["root"])} if is_explained else None,
            "stages": STAGES,
            "tokens": 0 if text is None else token_counter().count(text),
            # What every link on the page keeps of the question.
            "kept": {
                "q": question,
                "since": selection["since"],
                "until": selection["until"],
                "channel": selection["channel"],
                "context": selection["context_id"],
                "types": ", ".join(selection["types"]),
                "order": selection["order"],
                "superseded": "on" if selection["include_superseded"] else "",
                "internal": "on" if selection["include_internal"] else "",
                "tokens": parameters.get("tokens", ""),
                "why": "on" if is_explained else "",
                "expected": expected,
            },
        }
        return ("ask_answer.html" if request.headers.get("hx-target") == "answer" else "ask.html"), values

    async def _later(self, desk: Desk, matches: Sequence[Json]) -> Mapping[int, LaterState]:
        """Return what was said later of the subject of a match, by its event_seq; of each subject once."""
        found = await self._memory.retrieval.later_states(
            desk.principal.tenant, [match["event_seq"] for match in matches], desk.principal.asking(desk.named)
        )
        best_of: dict[str, int] = {}
        for match in matches:
            for state in found.get(match["event_seq"], ())[:1]:
                best_of.setdefault(state.topic_id, match["event_seq"])
        return {event_seq: found[event_seq][0] for event_seq in best_of.values()}


def _best_score(node: Json) -> int:
    """Return the best score of the events below a node of an answer, at least 1."""
    return max((event["score"] for event in events_in(node)), default=1) or 1
