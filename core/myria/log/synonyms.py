"""Which known name an unknown one stands for: by its spelling, or by what other memories' tools call the same."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection
from functools import cache

_SURE, _LIKELY = 0.8, 0.6
"""How alike two spellings are (0 to 1) before, and after, it is asked what a name means."""

_LEAST_ENDING = 5
"""Letters of an unknown name that may be the end of a known one."""

_MEANINGS = (
    "query text content_contains question q search search_query search_text search_term prompt information_to_get",
    "content text payload decision summary current_input_text current_input fact note memory message body data value "
    "statement information observation document episode_body thing_to_remember input path",
    "items events memories input_items conversation_items notes entries records documents observations entities batch "
    "contents messages facts fragments history",
    "output_items response answer completion output reply",
    "limit pageSize max_nodes k n top top_k top_n n_results num_results results count size max_results max_items "
    "max_facts page_size per_page first take",
    "tokenBudget max_tokens max_input_tok token_limit tokens token_count budget max_length max_chars",
    "since timeRange from start begin after start_date start_time date_from after_date from_date created_after "
    "timeframe period",
    "until to timeRange end before end_date end_time date_to before_date to_date created_before",
    "timestamp time date datetime created_at occurred_at happened_at when ts event_time",
    "asOf now reference_time valid_at point_in_time current_time at",
    "participants agentId agent_id user_id of_participants as user users people person owner agent agent_name bot "
    "assistant_id members username audience visible_to author actor",
    "sessionId session_id context_id context_ids context project conversation conversation_id thread thread_id chat "
    "chat_id run_id group_id group_ids room_id workspace namespace project_id",
    "id event_id event_ids memory_id note_id note_ids topic_id snapshot_id startId erasure_id to uuid identifier ids "
    "memory_ids fragment_id fact_id node_id record_id name names",
    "fromId source source_id from subject head",
    "toId target target_id to object tail",
    "relationType linkRelationType relation relation_type link_type predicate type",
    "type types memory_type memory_types event_type event_types include_types kind kinds category categories fact_type",
    "keywords tags topic_hints tag labels label keyword container_tags topics hints",
    "topic subject theme title folder",
    "importance minImportance min_importance priority salience significance weight",
    "threshold minImportance min_importance min_score score_threshold similarity_threshold similarity relevance cutoff "
    "score",
    "supersedes replaces replace old_id overwrites",
    "linkedTo parent_id links related related_to relations references",
    "idempotencyKey source_event_key dedup_key turn_id key request_id message_id external_id uid content_hash",
    "metadata payload config contextSummary meta attributes properties extra custom",
    "cursor offset next_cursor page page_token next_page next continuation skip",
    "channel source origin platform app app_id",
    "scope lifetime ttl visibility",
    "isAnchor pinned pin anchor permanent",
    "includeSuperseded include_superseded include_history include_expired include_old",
    "order sort sort_by order_by direction",
    "depth max_depth hops max_hops levels",
    "format output output_format response_format",
    "reason reasoning why because rationale justification comment",
)
"""Names of one meaning, ours first: the first of them that is known is meant."""


def nearest(name: str, known: Collection[str]) -> str | None:
    """Return the known name that an unknown one most likely means; None if none is near.

    Tries, in this order: a sure misspelling, a synonym, a synonym of its last word, an ending, a likely misspelling.
    """
    words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)
    return (
        _by_spelling(name, known, _SURE)
        or _by_meaning(name, known)
        or (_by_meaning(words[-1], known) if words else None)
        or _by_ending(name, known)
        or _by_spelling(name, known, _LIKELY)
    )


def _folded(name: str) -> str:
    return re.sub(r"[^a-z]", "", name.lower())


def _by_ending(name: str, known: Collection[str]) -> str | None:
    """Return the only known name that ends in the unknown one: `open_questions` for `questions`; else None."""
    ending = _folded(name)
    matches = [field for field in known if len(ending) >= _LEAST_ENDING and _folded(field).endswith(ending)]
    return matches[0] if len(matches) == 1 else None


def _by_spelling(name: str, known: Collection[str], likeness: float) -> str | None:
    # Slips seldom touch the first letter: "fragmentId" is alike "agentId", and another thing.
    folded = {_folded(field): field for field in sorted(known) if _folded(field)[:1] == _folded(name)[:1]}
    close = difflib.get_close_matches(_folded(name), list(folded), n=1, cutoff=likeness)
    return folded[close[0]] if close else None


@cache
def _meanings() -> tuple[tuple[frozenset[str], tuple[str, ...]], ...]:
    """Return the names of each meaning, folded and as they are."""
    groups = [tuple(names.split()) for names in _MEANINGS]
    return tuple((frozenset(map(_folded, names)), names) for names in groups)


def _by_meaning(name: str, known: Collection[str]) -> str | None:
    for folded, names in _meanings():
        if _folded(name) in folded and (meant := next((other for other in names if other in known), None)):
            return meant
    return None
