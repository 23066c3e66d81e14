"""recall: what is remembered, as memories or as cases, within a budget of tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from myria.access.agents import Acting
from myria.access.principal import Principal
from myria.db.clock import offset_in
from myria.errors import InvalidArgument
from myria.notes.answertext import NOTHING, ShownAnswer
from myria.notes.cases import CASES, cases_of, cases_within
from myria.notes.details import Details
from myria.notes.fragments import Fragment, Shape, linked_fragment
from myria.notes.kinds import policies
from myria.notes.lines import memory_text
from myria.notes.nearby import nearby
from myria.notes.questions import PAGE, RecallQuery
from myria.notes.recalling import Recalled
from myria.search.handles import NOTE_PREFIX
from myria.text.model_tokens import token_counter
from myria.text.passages import passage
from myria_server.api.core import inputs
from myria_server.api.memento.answering import AgentTools, Handler, Json
from myria_server.api.memento.note_schemas import RecallInput
from myria_server.api.memento.schemas import KINDS

_LINKED = ("resolved_by", "caused_by", "related")
"""Relations by which recall follows links where none is named (Memento's contract, 4.5)."""

_PREVIEW = 60
"""Characters of a note to which a link leads."""

_KINDS_OF_DEPTH = {"high-level": ("decision", "episode"), "tool-level": ("procedure", "error", "fact")}

_NO_TYPE = f"No memory has this type. Types are {', '.join(KINDS)}."
_NO_TYPE_TOKENS = 40
_TOO_LITTLE = "tokenBudget is too small to show anything."
_NOTHING_ELSE = (
    "Nothing else is remembered of that: context showed the rest to this session (excludeSeen: false shows it)."
)


class RecallTools(AgentTools):
    """The tool that finds."""

    def handlers(self) -> Mapping[str, Handler]:
        """Return the handlers by the names of their tools."""
        return {"recall": self.recall}

    async def recall(self, principal: Principal, arguments: Any) -> ShownAnswer:
        """Find notes and events, within a budget of tokens."""
        request = inputs.read(RecallInput, arguments, self.memory.settings.service.zone)
        who = self.acting(principal, request)
        is_paged = request.pageSize is not None or request.cursor is not None
        now = await self.memory.database.now()
        utc_offset = offset_in(self.memory.settings.service.zone, now)
        query = _query(request, who, now=now, utc_offset=utc_offset, goes_on=is_paged)
        if request.sessionId is not None and request.excludeSeen:
            seen = await self.memory.shown.of(principal.tenant, who.participants, request.sessionId)
            query = replace(query, without=seen)
        recall = self.memory.recall
        page = await recall.page(principal.tenant, query)
        if request.caseMode:
            return await self._cases(principal, request, query, page)
        page = page.told_once()
        about = _about(page, query.digest(principal.tenant))
        fragments = await self._with_links(principal, who, request, query, page)
        content = self._within(fragments, request, page, about, query.sought)
        # What the budget left out is on the next page: a page ends with what it shows, and its order is its own.
        while is_paged and (shown := _shown(content)) < len(page.fragments):
            if not shown:
                raise InvalidArgument(
                    "tokenBudget holds not even the beginning of the next memory: ask with a larger one",
                    field="tokenBudget",
                )
            page = (await recall.page(principal.tenant, replace(query, page_size=shown))).told_once()
            linked = await self._with_links(principal, who, request, query, page)
            fragments = [fragment for fragment in linked if fragment.relation is None]
            content = self._within(fragments, request, page, about, query.sought)
        found = {fragment.note_id for fragment in fragments}
        self.memory.usage.count(
            principal.tenant, [item["id"] for item in content["fragments"] if item["id"] in found], query.now
        )
        text = recall.as_text(fragments, request.tokenBudget, page.subjects, query.sought).text
        text = text or _nothing(request, query, found=bool(fragments))
        return self.answered(principal, request, content, text)

    async def _with_links(
        self, principal: Principal, who: Acting, request: RecallInput, query: RecallQuery, page: Recalled
    ) -> list[Fragment]:
        """Return what was found, each note with what links lead to from it and what was kept beside it, and behind all
        of it what links lead to, one hop."""
        fragments = list(page.fragments)
        found = [fragment.note_id for fragment in fragments if fragment.note_id is not None]
        if not found or request.asOf is not None:
            return fragments
        relations = _LINKED if request.linkRelationType is None else (request.linkRelationType,)
        linked = await self.memory.links.beside(
            principal.tenant,
            found,
            may_see=who.masks.sees,
            relations=relations if request.includeLinks else (),
            session_id=request.sessionId,
            limit=self.settings.recall.linked_limit,
        )
        near: Mapping[str, tuple[Json, ...]] = {}
        if request.includeContext:
            near = await nearby(
                self.memory.database, principal.tenant, found, session_id=request.sessionId, now=query.now
            )
        for place, fragment in enumerate(fragments):
            note_id = fragment.note_id or ""
            if note_id in linked.leading or note_id in near:
                leading = tuple(
                    {
                        "id": note.note_id,
                        "relation_type": relation,
                        "preview": passage(note.text, query.sought, _PREVIEW),
                    }
                    for note, relation in linked.leading.get(note_id, ())
                )
                fragments[place] = replace(fragment, linked=leading, nearby=near.get(note_id, ()))
        if linked.beside:
            handles = await self.memory.retrieval.handles(principal.tenant)
            fragments += [
                linked_fragment(note, relation, NOTE_PREFIX + handles.of(note.first_seq), now=query.now)
                for note, relation in linked.beside
                if not (query.kinds and note.kind not in query.kinds) and note.note_id not in query.without
            ]
        return fragments

    def _within(
        self,
        fragments: Sequence[Fragment],
        request: RecallInput,
        page: Recalled,
        about: Json,
        sought: frozenset[str],
    ) -> Json:
        """Return the answer of recall with as many fragments as a budget holds, all of it counted as it is sent."""

        def answer(shown: list[Json], tokens: int) -> Json:
            counted: Json = {"count": len(shown), "totalTokens": tokens, "searchPath": page.search_path}
            if page.cursor is not None:
                counted["nextCursor"] = page.cursor
            return {"success": True, "fragments": shown, **counted, "_meta": about}

        shown, tokens = self.memory.recall.as_json(
            fragments,
            request.tokenBudget,
            lambda shown: answer(shown, request.tokenBudget),
            Shape(keywords=request.includeKeywords, fields=request.fields or (), sought=sought),
        )
        return answer(shown, tokens)

    async def _cases(
        self, principal: Principal, request: RecallInput, query: RecallQuery, page: Recalled
    ) -> ShownAnswer:
        """Return the cases of what was found."""
        cases = await cases_of(
            self.memory.recall, principal.tenant, query, page.fragments, most=request.maxCases or CASES
        )
        about = _about(page, query.digest(principal.tenant))

        def answer(shown: list[Json], tokens: int) -> Json:
            counted: Json = {"caseCount": len(shown), "totalTokens": tokens, "searchPath": page.search_path}
            return {"success": True, "caseMode": True, "cases": shown, **counted, "_meta": about}

        counter = token_counter()
        shown, tokens = cases_within(
            cases, counter, request.tokenBudget, lambda shown: answer(shown, request.tokenBudget)
        )
        text = memory_text([case.line for case in cases], counter, request.tokenBudget).text
        return self.answered(principal, request, answer(shown, tokens), text or "No case is remembered of that.")


def _query(request: RecallInput, who: Acting, *, now: int, utc_offset: int, goes_on: bool) -> RecallQuery:
    """Return what a call asks.

    Args:
        utc_offset: of the days that it means where it names no moment, in minutes east of UTC.

    Raises:
        InvalidArgument: its span of time is empty.
    """
    span = request.timeRange
    as_of, utc_offset = request.asOf or (None, utc_offset)
    affects = request.affect or ()
    query = RecallQuery(
        masks=who.masks,
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


def _shown(content: Json) -> int:
    """Return how many memories of a page an answer shows, without those that links lead to."""
    return sum(1 for fragment in content["fragments"] if "relation_type" not in fragment)


def _nothing(request: RecallInput, query: RecallQuery, *, found: bool) -> str:
    if found:
        return _TOO_LITTLE
    if request.type is not None and request.type not in policies() and request.tokenBudget >= _NO_TYPE_TOKENS:
        return _NO_TYPE
    return _NOTHING_ELSE if query.without else NOTHING


def _about(page: Recalled, digest: str) -> Json:
    """Return what an answer says of itself: hints, and a number that the same question has again, for tool_feedback."""
    return {"searchEventId": int(digest[:8], 16), "hints": [dict(hint) for hint in page.hints]}
