"""What is indexed of one event: its words, its names, and what its text says of time and change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from myria.log.payloads import described, searchable_text, speaker_of
from myria.text import TextWords, words_in
from myria.text.asking import asks
from myria.text.changes import changed
from myria.text.dates import MAX_DAYS, holds_from, local_day, meant
from myria.text.languages import languages_of, stems
from myria.text.naming import names_something
from myria.text.written import written_terms

_LONGEST_DAYS: Final = 7
"""Longest span of days whose days are indexed one by one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Doc:
    """One event as the index sees it.

    `terms` are those of its searchable text (`myria.text.terms`), `stems` the stems of its words in languages
    other than English and the terms of what is written with signs, which do not count for its length;
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
    def of_payload(cls, payload: Mapping[str, Any], **facts: Any) -> Doc:
        """Build an event's document: read text and speaker out of its payload and analyse the text.

        Args:
            facts: further fields, as of `of_text`.
        """
        body = dict(payload)
        return cls.of_text(searchable_text(body), speaker=speaker_of(body), picture_text=described(body), **facts)

    @classmethod
    def of_text(
        cls,
        text: str,
        *,
        timestamp: int,
        picture_text: str = "",
        utc_offset: int = 0,
        words: TextWords | None = None,
        **facts: Any,
    ) -> Doc:
        """Build an event's document of its searchable text.

        Args:
            picture_text: what describes its pictures.
            words: the text's words, where they are known already.
            facts: fields that do not follow from the texts.
        """
        words = words_in(text) if words is None else words
        when = meant(text, local_day(timestamp, utc_offset))
        # A text that means a longer span of days is not about each single one.
        days = dict.fromkeys(day for span in when if len(span.days) <= _LONGEST_DAYS for day in span.days)
        pictured = words_in(picture_text)
        return cls(
            timestamp=timestamp,
            terms=words.terms,
            stems=_stems(text, words),
            described=[*pictured.terms, *_stems(picture_text, pictured)],
            asks=asks(text),
            names=names_something(text),
            changed=changed(text),
            utc_offset=utc_offset,
            days=tuple(days)[:MAX_DAYS],
            begins=holds_from(when),
            **facts,
        )


def _stems(text: str, words: TextWords) -> Sequence[str]:
    """Return the stems of a text's words in the languages that it may be in, English excepted, and what is written
    with signs in it (`myria.text.written`)."""
    languages = languages_of(text, words.terms)
    return [*(stems(words, languages) if languages else ()), *written_terms(text)]
