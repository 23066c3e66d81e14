"""The passage of a text that has most of what is looked for: what an answer shows where the whole is too long.

One rule for every answer that cuts texts. Words count whatever their endings (`root`), each once, and those that are
rare in the text a little more. Scripts without spaces are cut between characters.
"""

from __future__ import annotations

from collections import Counter
from unicodedata import category

from myria.text.languages import languages_of
from myria.text.model_tokens import ELLIPSIS, TokenCounter
from myria.text.requests import is_common_part, is_function_word, is_request_term, without_requests
from myria.text.words import is_stopword, root, terms, words_in

_LEAD = 60
"""Characters before the first word that is looked for, at most: mostly the sentence begins there."""

_BEHIND = 4
"""One in so many characters of a passage is left for what follows the last such word: often that is the answer."""

_QUESTION = 8_192
"""Characters of a question whose words are looked for."""

_WORD_END = 40
"""Characters within which a passage begins or ends between two words, where the script has spaces."""

_SENTENCE_ENDS = (". ", "! ", "? ", "\n", "。", "！", "？", "। ")
_JOINER = "\u200d"
_BEFORE = f"{ELLIPSIS} "
_WORTH = 1_000


def sought_in(question: str | None) -> frozenset[str]:
    """Return the roots of the words that a question looks for; of one that only asks, all of its words."""
    asked = without_requests((question or "")[:_QUESTION])
    words = terms(asked)
    languages = languages_of(asked, words)
    telling = [
        word
        for word in words
        if not (
            is_stopword(word)
            or is_request_term(word, languages)
            or is_function_word(word, languages)
            or is_common_part(word)
        )
    ]
    return frozenset(map(root, telling or words))


def best_span(text: str, sought: frozenset[str], characters: int) -> tuple[int, int]:
    """Return where the passage of so many characters begins and ends that has most of what is sought.

    Of several that is the first; without any such word, the text's beginning.
    """
    if len(text) <= characters:
        return 0, len(text)
    start = min(_start(text, sought, characters), len(text) - characters)
    if start:
        space = text.find(" ", start - 1, start + _WORD_END) if not _is_start(text, start) else -1
        start = space + 1 if space >= 0 else _apart(text, start)
    end = min(len(text), start + characters)
    if end < len(text):
        space = text.rfind(" ", end - _WORD_END, end + 1)
        end = space if space > start else _apart(text, end)
    return start, end


def passage(text: str, sought: frozenset[str], characters: int) -> str:
    """Return at most so many characters of a text on one line, those that have most of what is sought.

    Where something is left out before or behind, an ellipsis says so.
    """
    if len(text) <= characters:
        return " ".join(text.split())
    start, end = best_span(text, sought, max(1, characters - len(_BEFORE) - len(ELLIPSIS)))
    shown = " ".join(text[start:end].split())
    return f"{_BEFORE if start else ''}{shown}{ELLIPSIS if end < len(text) else ''}"


def passage_within(text: str, sought: frozenset[str], counter: TokenCounter, limit: int) -> str:
    """Return what `passage` does, of at most so many tokens; empty where not even an ellipsis fits."""
    beginning = counter.shortened(text, limit)
    if beginning == text or not beginning:
        return beginning
    start = _start(text, sought, len(beginning))
    return counter.shortened(f"{_BEFORE}{text[start:]}", limit) if start else beginning


def _start(text: str, sought: frozenset[str], characters: int) -> int:
    """Return where a passage begins: with its sentence, or some words before the first one that is sought."""
    first = _first_word(text, sought, characters - characters // _BEHIND)
    lead = min(_LEAD, characters // _BEHIND)
    if first <= lead:
        return 0
    before = text[first - lead : first]
    begun = max(before.rfind(end) + len(end) if end in before else 0 for end in _SENTENCE_ENDS)
    return first - lead + (begun or before.find(" ") + 1)


def _first_word(text: str, sought: frozenset[str], characters: int) -> int:
    """Return where the first word starts of so many characters that have most of what is sought; 0 where none is."""
    words = words_in(text)
    found = sorted(
        (start, end, known)
        for start, end, term in zip(words.starts, words.ends, words.terms, strict=True)
        if (known := root(term)) in sought
    )
    often = Counter(known for _, _, known in found)
    inside: Counter[str] = Counter()
    best = best_start = worth = behind = 0
    for at, (start, _, known) in enumerate(found):
        while behind < len(found) and (behind == at or found[behind][1] - start <= characters):
            added = found[behind][2]
            worth += 0 if inside[added] else _WORTH + _WORTH // often[added]
            inside[added] += 1
            behind += 1
        if worth > best:
            best, best_start = worth, start
        inside[known] -= 1
        worth -= 0 if inside[known] else _WORTH + _WORTH // often[known]
    return best_start


def _is_start(text: str, at: int) -> bool:
    """Tell whether a word or a sentence starts at a place."""
    return text[at - 1].isspace() or text[at - 1] in "。！？"


def _apart(text: str, at: int) -> int:
    """Return the next place before one at which no character is cut from its marks."""
    while at and (category(text[at])[0] == "M" or _JOINER in (text[at], text[at - 1])):
        at -= 1
    return at
