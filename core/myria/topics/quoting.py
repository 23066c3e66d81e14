"""Summaries quote what was said: how a quote is written, and how it is read back.

A quote is `Ana: “The kiln is cold.”`, with `On 8 May 2023: ` before it where the talk lasted for several days.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from myria.topics.calendar import date_text
from myria.topics.lines import clip

_SINGLE_MARKS = str.maketrans("“”", "‘’")
"""Quotation marks within a quote, as English sets them: the marks around it stay the only ones of their kind."""

_QUOTE = re.compile(
    r"(?:(?<=[.!?…”:,] )(?:(?P<day>(?:On|on|From) \d+ [A-Z][a-z]+ \d+): )?"
    r"(?:(?P<speaker>(?:[^“”:.!?]|[:.!?](?! )){1,40}): )?)?"
    "“(?P<words>[^“”]+)”"
)
_LEADS_END = (".", "…", ":", ",", "”")
"""How what stands before a quote ends, where code wrote the summary."""

LATEST, BEFORE, SPOKEN_OF = "Latest, ", " Before: ", " Last spoken of "
"""What stands before a subject's latest state and before the one that it replaced, and what may stand behind these."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Quoted:
    """A quote of a summary: its day with its preposition and its speaker, "" where it names none, and its words.

    `lead` is what the summary says before it, after the quote before; `said` is speaker and words as they stand there.
    """

    lead: str
    day: str
    speaker: str
    words: str

    @property
    def said(self) -> str:
        """The quote without its day."""
        return f"{self.speaker}: “{self.words}”" if self.speaker else f"“{self.words}”"

    @property
    def dated(self) -> str:
        """The quote with its day."""
        return f"{self.day}: {self.said}" if self.day else self.said


def quoted(speaker: str, sentence: str, *, most: int, at: int | None = None) -> str:
    """Return a sentence as a summary quotes it.

    Args:
        speaker: who said it, "" where that is unknown.
        sentence: what was said; it is cut at `most` characters.
        at: when it was said, in microseconds since 1970 UTC, where the quote names its day.
    """
    text = f"“{clip(sentence, most).translate(_SINGLE_MARKS)}”"
    said = f"{speaker}: {text}" if speaker else text
    return said if at is None else f"On {date_text(at)}: {said}"


def clip_quote(text: str, limit: int) -> str:
    """Return text of at most `limit` characters as `clip` does; a quote that is cut ends with its mark all the same."""
    if len(text) <= limit:
        return text
    cut = clip(text, limit - 1)
    return f"{cut}”" if cut.count("“") > cut.count("”") else cut


def quotes_of(summary: str) -> list[Quoted]:
    """Return what a summary quotes, in its order."""
    quotes: list[Quoted] = []
    end = 0
    for match in _QUOTE.finditer(summary):
        quotes.append(
            Quoted(
                lead=summary[end : match.start()].strip(),
                day=match["day"] or "",
                speaker=match["speaker"] or "",
                words=match["words"],
            )
        )
        end = match.end()
    return quotes


def taken_apart(summary: str) -> tuple[list[Quoted], str]:
    """Return the quotes of which a summary consists, and what it says after the last of them.

    A summary that a model wrote as sentences of its own has no quotes: all of it comes after them.
    """
    quotes = quotes_of(summary)
    rest = summary.rpartition("”")[2] if quotes else summary
    is_ours = not rest or rest.startswith(SPOKEN_OF)
    if is_ours and all(quote.lead.endswith(_LEADS_END) for quote in quotes if quote.lead):
        return quotes, rest.strip()
    return [], summary
