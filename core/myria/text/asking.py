"""Recognises texts that end in a question, which tell less than the texts around them.

A question is known by its mark. People who type quickly leave it out ("where r u going"), so a last sentence without
any mark counts by its first words, in English alone.
"""

from __future__ import annotations

import re
from typing import Final

_MARKS: Final = frozenset("?\uff1f\u061f")
_ENDS: Final = frozenset(".!\u2026\u3002\uff01")
_LAST_CHARACTERS: Final = 300
_SENTENCE_ENDS: Final = re.compile(
    r"[.!?;:\n\u2026]+\s+|\s+-\s+|,\s+(?=(?:(?:and|so|but)\s+)?(?:what|how|where|when|why|who|which)\b)"
)
_MAY_END: Final = re.compile("[.!?;:\n\u2026,-]")
"""A character that every end of a sentence has: without one, the text is a single sentence."""

_BEFORE: Final = r"(?:(?:and|so+|but|oh+|wow+|hey+|btw|ok|okay|yeah|wait|hmm|well|lol|haha|omg|also|then|or)[\s,]+)*"
_WHAT: Final = (
    r"(?:what|where|when|why|how|who|whose|whom|which|wh(?:at|ere|en|o)'?s|how'?s|wdym)\b(?!\s+(?:an?|ever)\b)"
)
_DOES: Final = (
    r"(?:do|does|did|is|are|was|were|can|could|will|would|have|has|should|shall|don'?t|didn'?t|isn'?t|aren'?t|wasn'?t"
    r"|won'?t)\s+(?:i|u|ya|you|he|she|it|they|we|this|that|there|these|those|your|ur|his|her|their|the|my|our|any"
    r"|anyone|everyone|someone)\b"
)
_ARE_YOU: Final = (
    r"(?:u|you)\s+(?:ok|there|free|up|coming|sure|serious|home|awake|mean)\b|[hw]bu\b"
    r"|any\s+(?:news|plans|ideas|luck|updates|tips|advice)\b"
)
_BEGINS: Final = re.compile(rf"\s*{_BEFORE}(?:{_WHAT}|{_DOES}|{_ARE_YOU})", re.IGNORECASE)


def asks(text: str) -> bool:
    """Tell whether a text ends in a question; any string, linear time."""
    end = text[-_LAST_CHARACTERS:]
    ends_as_statement = False
    for character in reversed(end):
        if character in _MARKS:
            return True
        if character.isalnum() or character == "_":
            break
        ends_as_statement = ends_as_statement or character in _ENDS
    if ends_as_statement:
        return False
    sentence = end if _MAY_END.search(end) is None else _SENTENCE_ENDS.split(end)[-1]
    return _BEGINS.match(sentence) is not None
