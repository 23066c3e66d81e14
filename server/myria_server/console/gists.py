"""How pages show the summary of a topic: what was said last, by whom and when, and apart from it what that replaced."""

from __future__ import annotations

from dataclasses import dataclass

from myria.topics.quoting import BEFORE, LATEST, Quoted, taken_apart

_LONGEST = 300
"""Characters of a summary that quotes nothing: a model may write long ones."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Gist:
    """A summary in parts: `now` and `before` are quotes, `about` says in the summary's own words who talked and when.

    Of `now`, the first is the latest state where `is_state`.
    """

    about: str
    now: tuple[Quoted, ...]
    before: tuple[Quoted, ...]
    is_state: bool


def gist_of(summary: str) -> Gist:
    """Return the parts of a summary; no quote is cut."""
    quotes, rest = taken_apart(summary)
    if not quotes:
        about = summary if len(summary) <= _LONGEST else summary[:_LONGEST].rpartition(" ")[0] + " …"
        return Gist(about=about, now=(), before=(), is_state=False)
    latest, before = LATEST.strip(), BEFORE.strip()
    leads = [quote.lead.removesuffix(before).strip() for quote in quotes]
    return Gist(
        about=" ".join(text for text in (*leads, rest) if text and text != latest),
        now=tuple(quote for quote in quotes if not quote.lead.endswith(before)),
        before=tuple(quote for quote in quotes if quote.lead.endswith(before)),
        is_state=leads[0] == latest,
    )
