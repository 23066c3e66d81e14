"""The page on which a visitor asks the memory: best matches, the tree of topics, or the text that a model would get."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Literal

from starlette.requests import Request

from myria.errors import InvalidArgument, ParticipantsNotAllowed
from myria.log.payloads import whole_text
from myria.log.scopes import canonical_participants
from myria.search.later import LaterState
from myria.search.reasons import SIGNALS, what_became
from myria.text.model_tokens import token_counter
from myria_server.console.desk import Desk, Json
from myria_server.console.events import acts_told
from myria_server.console.fields import moment_of, number_of, whole_number_of
from myria_server.console.forms import Fields, Form, Page, Values
from myria_server.console.names import NAMES, names_offered
from myria_server.console.notes import open_notes
from myria_server.console.rendering import note_id_of
from myria_server.console.routes import PageRoute, Routes
from myria_server.console.topics import events_in, in_reading_order

_EVENTS = 20
_NODES = 60
_TOKENS = 2_000

_EARLIER = "It was shown on an earlier page."

_GONE: Mapping[str, str] = {
    "forgotten": "It was forgotten, so no answer holds it.",
    "expired": "It ended by itself, so no answer holds it.",
    "held": "It waits for a review: nobody finds it before it is approved.",
    "refused": "A reviewer refused it: nobody finds it until that is taken back.",
}
"""What is said of an event or a note that is gone, to those for whom its page says more."""

VIEWS = {"best": "Best matches", "topics": "By topic", "text": "As a model reads it"}
"""The ways to look at an answer, by their parameter in the address."""


_KEPT = (
    *("q", "since", "until", "channel", "context", "types", "order"),
    *("superseded", "internal", "tokens", "why", "expected"),
)
"""Fields of the form that every link on the page keeps."""

FIELDS: Fields = {
    **NAMES,
    "query": ("q", "Question"),
    "since": ("since", "From"),
    "until": ("until", "Until"),
    "channel": ("channel", "Channel"),
    "context_id": ("context", "Conversation"),
    "types": ("types", "Types"),
    "order": ("order", "Order"),
    "max_tokens": ("tokens", "Tokens for a model"),
    "expected": ("expected", "Event or note that you miss"),
}
"""What a refusal of a question says of the form's fields (see `Fields`)."""


async def form(_desk: Desk, request: Request) -> Page:
    """Show the form with what the address holds, and no answer."""
    return "ask.html", {**_asked(request.query_params), "answer": None}


async def view(desk: Desk, request: Request) -> Page:
    """Answer the question that the address holds; without one, show what is newest."""
    asked = _asked(request.query_params)
    question = {
        "query": asked["question"],
        **asked["selection"],
        "cursor": request.query_params.get("cursor", ""),
        "explain": asked["is_explained"],
        "expected": asked["expected"],
    }
    if asked["view"] == "best":
        answer, shown = await _best_matches(desk, question)
    elif asked["view"] == "topics":
        answer, shown = await _by_topic(desk, question)
    else:
        answer, shown = await _as_text(desk, question, asked["budget"])
    others: Sequence[str] = ()
    visible = 0
    if not answer["root"]["children"] and not question["cursor"]:
        others = [name for name in await names_offered(desk) if name not in desk.names]
        visible = await desk.memory.retrieval.overview(desk.tenant, desk.masks, lambda overview: overview.events)
    before = whole_number_of(request.query_params.get("seen"))
    is_part = request.headers.get("hx-target") == "answer"
    return "ask_answer.html" if is_part else "ask.html", {
        **asked,
        "names_the_page": is_part,
        **shown,
        "placed": await _placed(desk, question, answer, before=before),
        "seen": before + answer.get("counts", {}).get("events", 0),
        "answer": answer,
        "outside": _outside_snapshot(answer["root"]),
        "open_notes": await open_notes(desk, {note_id_of(event) for event in events_in(answer["root"])}),
        "asked_as": desk.participants,
        "others": others,
        "visible": visible,
        "respelled": _respelled(desk.names, answer.get("other_spellings", {})),
        "made": await desk.memory.registry.freshness(desk.tenant, answer.get("snapshot_id")),
        "is_continued": bool(question["cursor"]),
        "why": {"signals": SIGNALS, "best": _best_score(shown.get("ranked") or events_in(answer["root"]))}
        if asked["is_explained"]
        else None,
    }


async def _best_matches(desk: Desk, question: Json) -> tuple[Json, Values]:
    """Return an answer that lists events, and what was said later of the subjects of its matches."""
    answer = await desk.ask("query_event_nodes", limit=_EVENTS, **question)
    return answer, {"later": await _later(desk, answer["root"]["children"]) if question["query"] else {}}


async def _by_topic(desk: Desk, question: Json) -> tuple[Json, Values]:
    """Return an answer as a tree of topics, in the order in which a person reads it."""
    answer = await desk.ask("query_references", max_nodes=_NODES, **question)
    answer["root"]["children"] = in_reading_order(answer["root"]["children"])
    return answer, {"later": {}}


async def _as_text(desk: Desk, question: Json, budget: int | str) -> tuple[Json, Values]:
    """Return an answer with what a model reads of its events, and the text that a model would get instead.

    `ranked` are the events, best first, where the answer is explained: their shares add up to their scores.
    """
    answer, text = await desk.call_with_text(
        "query_references", participants=list(desk.names), format="text", max_tokens=budget, **question
    )
    ranked = [
        {**event, "score": sum(event["signals"].values())}
        for event in events_in(answer["root"])
        if event.get("signals")
    ]
    ranked.sort(key=lambda event: -event["score"])
    return answer, {"text": text, "ranked": ranked, "tokens": 0 if text is None else token_counter().count(text)}


async def _later(desk: Desk, matches: Sequence[Json]) -> Mapping[int, Sequence[LaterState]]:
    """Return what was said later of the subjects that a match names, by its event_seq; each thing once."""
    texts = {
        match["event_seq"]: whole_text(match["payload"]) if "payload" in match else match["snippet"]
        for match in matches
    }
    found = await desk.memory.retrieval.later_states(desk.tenant, texts, desk.masks)
    quoted: set[str] = set()
    later: dict[int, Sequence[LaterState]] = {}
    for event_seq in texts:
        later[event_seq] = [state for state in found.get(event_seq, ()) if state.quoted.words not in quoted]
        quoted.update(state.quoted.words for state in later[event_seq])
    return later


async def _placed(desk: Desk, question: Json, answer: Json, *, before: int) -> Json | None:
    """Return what became of the event that is missed, None where none is.

    Only a first page says that, so for a later one the first is asked again.

    Args:
        before: how many matches the pages before have shown.
    """
    if not question["expected"]:
        return None
    placed: Json = answer.get("expected") or {}
    if question["cursor"]:
        first = await desk.ask("query_event_nodes", limit=1, **{**question, "cursor": ""})
        placed = first["expected"]
        if any(event["event_id"] == placed["event_id"] for event in events_in(answer["root"])):
            placed["stage"] = "shown"
        elif placed["place"] and placed["place"] <= before:
            placed["stage"] = "earlier"
        elif placed["stage"] == "shown":
            placed["stage"] = "no_room"
    said = _EARLIER if placed["stage"] == "earlier" else what_became(placed)
    gone = await _gone(desk, question["expected"]) if placed["stage"] == "not_visible" else None
    return {**placed, "said": said, "lead": None, **(gone or {})}


async def _gone(desk: Desk, named: str) -> Json | None:
    """Return what is said of an event or a note that is gone, and its page (`lead`), to those for whom that opens.

    Args:
        named: an id or a handle.
    """
    what: Literal["event", "note"] = "event"
    thing_id = await desk.memory.note_id(desk.tenant, named)
    if thing_id.startswith("note_"):
        what = "note"
    else:
        (thing_id,) = await desk.memory.event_ids(desk.tenant, [thing_id])
    if what == "note" and "agent" not in desk.principal.faces:
        return None
    with suppress(InvalidArgument, ParticipantsNotAllowed):  # notes may not be read as this name
        gone = (await acts_told(desk, what, thing_id))["gone"]
        if what == "note" and (note := await desk.memory.review.withheld(desk.tenant, thing_id)) is not None:
            gone = note["state"] if desk.note_masks.sees(note["participants"]) else None
        if gone:
            return {"said": _GONE[gone], "lead": f"/{what}s/{thing_id}"}
    return None


def _asked(parameters: Mapping[str, str]) -> Json:
    """Return what the form holds; `kept` is what every link on the page keeps of it."""
    view = parameters.get("view", "")
    kept = {field: parameters.get(field, "").strip() for field in _KEPT}
    return {
        "view": view if view in VIEWS else "best",
        "views": VIEWS,
        "question": kept["q"],
        "selection": {
            "since": moment_of(kept["since"]),
            "until": moment_of(kept["until"]),
            "channel": kept["channel"],
            "context_id": kept["context"],
            "types": [kind for part in kept["types"].split(",") if (kind := part.strip())],
            "order": kept["order"],
            "include_superseded": kept["superseded"] == "on",
            "include_internal": kept["internal"] == "on",
        },
        "budget": number_of(kept["tokens"], default=_TOKENS),
        "is_explained": kept["why"] == "on" or bool(kept["expected"]),
        "expected": kept["expected"],
        "kept": kept,
    }


def _respelled(names: Sequence[str], spellings: Mapping[str, Sequence[str]]) -> list[tuple[str, Sequence[str]]]:
    """Return other spellings of names under which something is visible, each with the names as whom to ask then."""
    return [
        (other, [other if canonical_participants([asked])[0] == name else asked for asked in names])
        for name, others in spellings.items()
        for other in others
    ]


def _outside_snapshot(root: Json) -> Json:
    """Return how many events of an answer its snapshot lacks: `newer` for now, `never` as replaced or internal ones."""
    lacked = [event for event in events_in(root) if not event.get("indexed", True)]
    never = sum(bool(event.get("superseded") or event["internal"]) for event in lacked)
    return {"newer": len(lacked) - never, "never": never}


def _best_score(events: Sequence[Json]) -> int:
    """Return the best score of some events; 0 of none, and of those that a model reads where nothing is asked."""
    return max((event.get("score", 0) for event in events), default=0)


ROUTES: Routes = (PageRoute("/ask", view, form=Form(form, FIELDS), is_as_somebody=True),)
