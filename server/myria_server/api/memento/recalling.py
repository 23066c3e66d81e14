"""recall: what is remembered, as memories or as cases, within a budget of tokens."""

from __future__ import annotations

from dataclasses import replace

from myria.db.clock import offset_in
from myria.errors import InvalidArgument
from myria.notes.answertext import NOTHING
from myria.notes.cases import CASES, cases_of, cases_within
from myria.notes.details import Details
from myria.notes.fragments import Fragment, Shape, json_within, text_by_subject
from myria.notes.kinds import policies
from myria.notes.lines import memory_text
from myria.notes.questions import PAGE, RecallQuery
from myria.notes.recalling import Recalled
from myria.text.model_tokens import token_counter
from myria_server.api.api_call import Json
from myria_server.api.memento.calls import AgentCall, Answered
from myria_server.api.memento.input_schemas import KINDS, RecallInput

_FOLLOWED_RELATIONS = ("resolved_by", "caused_by", "related")
"""Relations by which recall follows links where none is named (Memento's contract, 4.5)."""

_KINDS_OF_DEPTH = {"high-level": ("decision", "episode"), "tool-level": ("procedure", "error", "fact")}

_NO_TYPE = f"No memory has this type. Types are {', '.join(KINDS)}."
_NO_TYPE_TOKENS = 40
_BUDGET_TOO_SMALL = "tokenBudget is too small to show anything."
_ALL_SEEN = "Nothing else is remembered of that: context showed the rest to this session (excludeSeen: false shows it)."


async def recall(call: AgentCall, request: RecallInput) -> Answered:
    """Find what is remembered, before you answer. Lines end in ids. topic, type and minImportance leave only notes."""
    memory = call.memory
    is_paged = request.pageSize is not None or request.cursor is not None
    query = await _query_of(call, request, goes_on=is_paged)
    page = await memory.recall.page(call.tenant, query)
    meta = {
        # The same question has the same number again, which tool_feedback can refer to.
        "searchEventId": int(query.digest(call.tenant)[:8], 16),
        "hints": [dict(hint) for hint in page.hints],
    }
    if request.caseMode:
        return await _answer_cases(call, request, query, page, meta)
    page = page.told_once()
    fragments = await _add_linked(call, request, query, page)
    shape = Shape(keywords=request.includeKeywords, fields=request.fields or (), sought=query.sought)
    content = _fit_answer(fragments, request.tokenBudget, page, meta=meta, shape=shape)
    # Fragments that did not fit must begin the next page, so ask again for a page of the size that fits. Its order may
    # be another, so check again.
    while is_paged and (shown_count := _count_found(content)) < len(page.fragments):
        if not shown_count:
            raise InvalidArgument(
                "tokenBudget holds not even the beginning of the next memory: ask with a larger one",
                field="tokenBudget",
            )
        page = (await memory.recall.page(call.tenant, replace(query, page_size=shown_count))).told_once()
        with_linked = await _add_linked(call, request, query, page)
        fragments = [fragment for fragment in with_linked if fragment.relation is None]
        content = _fit_answer(fragments, request.tokenBudget, page, meta=meta, shape=shape)
    found_ids = {fragment.note_id for fragment in fragments}
    used_ids = [item["id"] for item in content["fragments"] if item["id"] in found_ids]
    if call.is_use:
        memory.usage.count(call.tenant, used_ids, query.now)
    first = "best" if query.is_ranked else "newest"
    counter, budget = token_counter(), request.tokenBudget
    text = text_by_subject(fragments, page.subjects, counter, budget, query.sought, first=first).text
    return content, text or _empty_text(request, query, has_fragments=bool(fragments))


async def _add_linked(call: AgentCall, request: RecallInput, query: RecallQuery, page: Recalled) -> list[Fragment]:
    """Return the page's fragments with those that their links lead to, and with their neighbours if asked for."""
    if query.as_of is not None:
        return list(page.fragments)
    relations = _FOLLOWED_RELATIONS if request.linkRelationType is None else (request.linkRelationType,)
    return await call.memory.surroundings.of(
        call.tenant,
        query,
        page.fragments,
        may_see=call.who.masks.sees,
        relations=relations if request.includeLinks else (),
        nearby=request.includeContext,
    )


def _fit_answer(fragments: list[Fragment], budget: int, page: Recalled, *, meta: Json, shape: Shape) -> Json:
    """Return recall's answer with as many fragments as fit the budget of tokens, which counts all that is sent."""

    def answer(fragments_json: list[Json], tokens: int) -> Json:
        counts: Json = {"count": len(fragments_json), "totalTokens": tokens, "searchPath": page.search_path}
        if page.cursor is not None:
            counts["nextCursor"] = page.cursor
        return {"success": True, "fragments": fragments_json, **counts, "_meta": meta}

    return answer(
        *json_within(fragments, token_counter(), budget, lambda fragments_json: answer(fragments_json, budget), shape)
    )


async def _answer_cases(
    call: AgentCall, request: RecallInput, query: RecallQuery, page: Recalled, meta: Json
) -> Answered:
    """Answer with the cases to which the found notes belong."""
    cases = await cases_of(call.memory.recall, call.tenant, query, page.fragments, most=request.maxCases or CASES)
    budget, counter = request.tokenBudget, token_counter()

    def answer(cases_json: list[Json], tokens: int) -> Json:
        counts: Json = {"caseCount": len(cases_json), "totalTokens": tokens, "searchPath": page.search_path}
        return {"success": True, "caseMode": True, "cases": cases_json, **counts, "_meta": meta}

    content = answer(*cases_within(cases, counter, budget, lambda cases_json: answer(cases_json, budget)))
    text = memory_text([case.line for case in cases], counter, budget).text
    return content, text or "No case is remembered of that."


async def _query_of(call: AgentCall, request: RecallInput, *, goes_on: bool) -> RecallQuery:
    """Return a call's arguments as the domain's query.

    Raises:
        InvalidArgument: the time range is empty.
    """
    memory = call.memory
    now = await memory.database.now()
    span = request.timeRange
    as_of, utc_offset = request.asOf or (None, offset_in(memory.settings.service.zone, now))
    affects = request.affect or ()
    seen: frozenset[str] = frozenset()
    if request.sessionId is not None and request.excludeSeen:
        seen = await memory.shown.of(call.tenant, call.who.participants, request.sessionId)
    query = RecallQuery(
        masks=call.who.masks,
        now=now,
        text=request.text,
        keywords=request.keywords or (),
        topic=request.topic,
        kind=request.type,
        kinds=() if request.type is not None else _KINDS_OF_DEPTH.get(request.depth or "", ()),
        min_importance=request.minImportance,
        since=None if span is None else span.since,
        until=None if span is None else span.to,
        as_of=as_of,
        utc_offset=utc_offset,
        include_superseded=request.includeSuperseded,
        session_id=request.sessionId,
        anchor=request.isAnchor,
        details=Details(
            workspace=request.workspace,
            case_id=request.caseId,
            phase=request.phase,
            resolution_status=request.resolutionStatus,
            affect=affects[0] if len(affects) == 1 else None,
        ),
        affects=affects if len(affects) > 1 else (),
        without=seen,
        whole_details=request.includeContext,
        context=request.contextText,
        threshold=request.threshold,
        page_size=request.pageSize or PAGE,
        cursor=request.cursor,
        goes_on=goes_on,
    )
    if query.since is not None and query.until is not None and query.since >= query.until:
        raise InvalidArgument("timeRange.from must be earlier than timeRange.to", field="timeRange.from")
    return query


def _count_found(content: Json) -> int:
    """Return how many of an answer's fragments are from its page; those that links lead to are not counted."""
    return sum(1 for fragment in content["fragments"] if "relation_type" not in fragment)


def _empty_text(request: RecallInput, query: RecallQuery, *, has_fragments: bool) -> str:
    """Return the text of an answer that shows nothing: why it is empty."""
    if has_fragments:
        return _BUDGET_TOO_SMALL
    if request.type is not None and request.type not in policies() and request.tokenBudget >= _NO_TYPE_TOKENS:
        return _NO_TYPE
    return _ALL_SEEN if query.without else NOTHING
