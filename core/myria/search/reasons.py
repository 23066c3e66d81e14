"""Why an answer is as it is: the names of signals and stages, and what a person reads for each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

Signal = Literal[
    "words",
    "meaning",
    "neighbours",
    "passage",
    "conversation",
    "speaker",
    "time",
    "says_when",
    "names",
    "wish",
    "wording",
    "not_yet",
    "participants",
    "hints",
    "not_about",
    "replaces",
    "later_state",
    "second_look",
]
"""What may raise or lower a score, by name; docs/retrieval.md says what each is."""

Stage = Literal[
    "shown",
    "said_again",
    "no_room",
    "too_large",
    "not_matched",
    "filtered",
    "nothing_fits",
    "replaced",
    "internal",
    "not_visible",
]
"""What became of an expected event. `not_visible` to who asks, absent or withdrawn, which look alike."""

Filter = Literal["channel", "types", "context_id", "since", "until", "topic"]
"""What a question may ask for beside words. `topic` is the one below which it asks."""

SIGNALS: Final[Mapping[str, str]] = {
    "words": "words of the question",
    "meaning": "meaning",
    "neighbours": "what was said around it",
    "passage": "the passage that it is in",
    "conversation": "the conversation that it is in",
    "speaker": "the named speaker",
    "time": "the time asked for",
    "says_when": "says when something is",
    "names": "names somebody",
    "wish": "a standing wish",
    "wording": "a question itself, or very short",
    "not_yet": "does not hold yet",
    "participants": "the people asked about",
    "hints": "topic hints",
    "not_about": "a note about something else",
    "replaces": "replaces what matched",
    "later_state": "the later state of the best match",
    "second_look": "second look by a model",
}
"""What a person reads for each signal."""

STAGES: Final[Mapping[str, str]] = {
    "shown": "It is shown.",
    "said_again": "A match that says the same stands for it.",
    "no_room": "It is on a later page: what stands before it fills this one.",
    "too_large": "It alone is larger than the answer may be: allow more tokens, or open it by its id.",
    "not_matched": "Neither its words nor its meaning match the question.",
    "filtered": "A filter excludes it.",
    "nothing_fits": "No event answers the question well enough, so none is shown.",
    "replaced": "A newer event replaced it. Ask also for what was replaced to see it.",
    "internal": "It is internal: only programs that ask for such events get it.",
    "not_visible": "Nothing of that id is visible to those who ask.",
}
"""What a person reads for each stage."""

_FILTERS: Final[Mapping[Filter, str]] = {
    "channel": "channel",
    "types": "types",
    "context_id": "conversation",
    "since": "from",
    "until": "until",
    "topic": "topic",
}


def what_became(expected: Mapping[str, Any]) -> str:
    """Return what a person reads of an expected event, as answers tell it."""
    excluded_by = ", ".join(_FILTERS[name] for name in expected.get("excluded_by", ()))
    return f"A filter excludes it: {excluded_by}." if excluded_by else STAGES[expected["stage"]]
