"""What is indexed of one event: its words, its names, and what its text says of time and change."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from myria.log.payloads import described, searchable_text, speaker_of
from myria.text import TextWords, terms, words_in
from myria.text.asking import asks
from myria.text.changes import changed
from myria.text.dates import MAX_DAYS, Meant, holds_from, local_day, meant
from myria.text.languages import languages_of, stems
from myria.text.naming import names_something
from myria.text.written import written_terms

_LONGEST_DAYS: Final = 7
"""Longest span of days whose days are indexed one by one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Doc:
    """One event as the index sees it.

    `terms` are those of its searchable text (`myria.text.terms`), `stems` the stems of its words in languages
    other than English and the terms of what is written with signs (`stems_of`), which do not count for its length;
    `described` are those of what describes its pictures (`myria.log.payloads.described`), with its stems;
    `hints` are (hint, confidence in permille); `asks` tells that the text ends in a question, `names` that it names
    something, and `changed` are the terms of what it says has changed (`myria.text.changes`); `utc_offset` is
    that of the clock where it was told, in minutes east of UTC, `days` what it means by the days that it names, and
    `begins` the first from which what it tells holds, in days since 1970 (`myria.text.dates`); `leaf` is the
    position of its leaf in the block's nodes, -1 for none; `xid` the transaction that wrote it and `scope_id` its
    scope (beside trees only, 0 otherwise); `timestamp` microseconds since 1970 UTC.
    """

    event_seq: int
    timestamp: int
    terms: Sequence[str]
    channel: str
    stems: Sequence[str] = ()
    speaker: str | None = None
    type: str | None = None
    context_id: str | None = None
    described: Sequence[str] = ()
    hints: Sequence[tuple[str, int]] = ()
    asks: bool = False
    names: bool = False
    changed: Sequence[str] = ()
    utc_offset: int = 0
    days: Sequence[int] = ()
    begins: int | None = None
    leaf: int = -1
    xid: int = 0
    scope_id: int = 0

    @classmethod
    def of_payload(
        cls,
        payload: Mapping[str, Any],
        *,
        event_seq: int,
        timestamp: int,
        channel: str,
        type: str | None = None,  # noqa: A002
        context_id: str | None = None,
        hints: Sequence[tuple[str, int]] = (),
        utc_offset: int = 0,
        leaf: int = -1,
        xid: int = 0,
        scope_id: int = 0,
    ) -> Doc:
        """Build an event's document: read text and speaker out of its payload and analyse the text."""
        text = searchable_text(dict(payload))
        text_terms = terms(text)
        when = meant(text, local_day(timestamp, utc_offset))
        return cls(
            event_seq=event_seq,
            timestamp=timestamp,
            terms=text_terms,
            channel=channel,
            stems=stems_of(text, text_terms),
            speaker=speaker_of(dict(payload)),
            type=type,
            context_id=context_id,
            described=found_by(described(dict(payload))),
            hints=hints,
            asks=asks(text),
            names=names_something(text),
            changed=changed(text),
            utc_offset=utc_offset,
            days=days_of(when),
            begins=holds_from(when),
            leaf=leaf,
            xid=xid,
            scope_id=scope_id,
        )


def stems_of(text: str, text_terms: Sequence[str], text_words: TextWords | None = None) -> Sequence[str]:
    """Return the stems of a text's words in the languages that it may be in, English excepted, and what is written
    with signs in it (`myria.text.written`).

    Args:
        text: the text.
        text_terms: its terms.
        text_words: its words, where they are known already.
    """
    languages = languages_of(text, text_terms)
    stemmed = stems(words_in(text) if text_words is None else text_words, languages) if languages else []
    return [*stemmed, *written_terms(text)]


def found_by(text: str) -> Sequence[str]:
    """Return the terms and stems under which a text is indexed; none for an empty text."""
    if not text:
        return ()
    text_terms = terms(text)
    return [*text_terms, *stems_of(text, text_terms)]


def days_of(when: Iterable[Meant]) -> Sequence[int]:
    """Return the days that a text is about, in days since 1970, at most `MAX_DAYS` of them.

    Spans of more than `_LONGEST_DAYS` days are left out: such a text is not about each single day.
    """
    days = dict.fromkeys(day for span in when if len(span.days) <= _LONGEST_DAYS for day in span.days)
    return tuple(days)[:MAX_DAYS]
