"""The passage of a text that has most of what is looked for: what an answer shows where the whole is too long.

One rule for every answer that cuts texts. Words count whatever their endings (`root`), each once, and those that are
rare in the text a little more. Scripts without spaces are cut between characters.
"""

from __future__ import annotations

from collections import Counter
from unicodedata import category

from myria.text.languages import function_terms, languages_of
from myria.text.model_tokens import ELLIPSIS, TokenCounter
from myria.text.requests import is_common_part, is_request_term, without_requests
from myria.text.words import is_stopword, root, terms, words_in

_LEAD = 60
"""Most characters before the first word that is looked for: mostly its sentence begins there."""

_PARTS_BEHIND = 4
"""One in so many characters of a passage is kept for the text behind the last such word: often the answer."""

_QUESTION_CHARACTERS = 8_192
"""Characters of a question that are read for its words."""

_WORD_END = 40
"""Characters within which an end of a passage is moved to a space, if there is one."""

_SENTENCE_ENDS = (". ", "! ", "? ", "\n", "。", "！", "？", "। ")
_JOINER = "\u200d"
_CUT_BEFORE = f"{ELLIPSIS} "
_ROOT_WORTH = 1_000


def sought_in(question: str | None) -> frozenset[str]:
    """Return the roots of the words that a question looks for; if it has none but asking words, the roots of all."""
    shortened = without_requests((question or "")[:_QUESTION_CHARACTERS])
    words = terms(shortened)
    languages = languages_of(shortened, words)
    telling_words = [
        word
        for word in words
        if not (
            is_stopword(word)
            or is_request_term(word, languages)
            or any(word in function_terms(language) for language in languages)
            or is_common_part(word)
        )
    ]
    return frozenset(map(root, telling_words or words))


def best_span(text: str, sought: frozenset[str], characters: int) -> tuple[int, int]:
    """Return the start and end of the passage of at most so many characters with the most of the sought roots.

    Of equal passages it is the first; if no root is found, the beginning of the text. It begins and ends at a
    word where one is near, and never within a character.
    """
    if len(text) <= characters:
        return 0, len(text)
    start = min(_passage_start(text, sought, characters), len(text) - characters)
    if start:
        space = text.find(" ", start - 1, start + _WORD_END) if not _is_start(text, start) else -1
        start = space + 1 if space >= 0 else _character_boundary(text, start)
    end = min(len(text), start + characters)
    if end < len(text):
        space = text.rfind(" ", end - _WORD_END, end + 1)
        end = space if space > start else _character_boundary(text, end)
    return start, end


def passage(text: str, sought: frozenset[str], characters: int) -> str:
    """Return, on one line, the passage of at most so many characters with the most of the sought roots.

    An ellipsis stands where text is left out before or behind it.
    """
    if len(text) <= characters:
        return " ".join(text.split())
    start, end = best_span(text, sought, max(1, characters - len(_CUT_BEFORE) - len(ELLIPSIS)))
    excerpt = " ".join(text[start:end].split())
    return f"{_CUT_BEFORE if start else ''}{excerpt}{ELLIPSIS if end < len(text) else ''}"


def passage_within(text: str, sought: frozenset[str], counter: TokenCounter, limit: int) -> str:
    """Return what `passage` does, but within `limit` tokens; empty if not even an ellipsis fits."""
    beginning = counter.shortened(text, limit)
    if beginning == text or not beginning:
        return beginning
    start = _passage_start(text, sought, len(beginning))
    return counter.shortened(f"{_CUT_BEFORE}{text[start:]}", limit) if start else beginning


def _passage_start(text: str, sought: frozenset[str], characters: int) -> int:
    """Return where a passage begins: at the start of a sentence, else a few words before its first sought word."""
    first = _best_word_start(text, sought, characters - characters // _PARTS_BEHIND)
    lead = min(_LEAD, characters // _PARTS_BEHIND)
    if first <= lead:
        return 0
    before = text[first - lead : first]
    sentence_start = max(before.rfind(end) + len(end) if end in before else 0 for end in _SENTENCE_ENDS)
    return first - lead + (sentence_start or before.find(" ") + 1)


def _best_word_start(text: str, sought: frozenset[str], characters: int) -> int:
    """Return the start of the first sought word in the best stretch of so many characters; 0 if no word is sought.

    Each root counts once in a stretch, and one that is rare in the text a little more.
    """
    words = words_in(text)
    hits = sorted(
        (start, end, word_root)
        for start, end, term in zip(words.starts, words.ends, words.terms, strict=True)
        if (word_root := root(term)) in sought
    )
    counts = Counter(word_root for _, _, word_root in hits)
    inside_counts: Counter[str] = Counter()
    # A window slides over the hits: `index` is its first hit, `next_hit` the one behind its last.
    best = best_start = worth = next_hit = 0
    for index, (start, _, word_root) in enumerate(hits):
        while next_hit < len(hits) and (next_hit == index or hits[next_hit][1] - start <= characters):
            added_root = hits[next_hit][2]
            worth += 0 if inside_counts[added_root] else _ROOT_WORTH + _ROOT_WORTH // counts[added_root]
            inside_counts[added_root] += 1
            next_hit += 1
        if worth > best:
            best, best_start = worth, start
        inside_counts[word_root] -= 1
        worth -= 0 if inside_counts[word_root] else _ROOT_WORTH + _ROOT_WORTH // counts[word_root]
    return best_start


def _is_start(text: str, position: int) -> bool:
    """Tell whether a word or a sentence starts at a place."""
    return text[position - 1].isspace() or text[position - 1] in "。！？"


def _character_boundary(text: str, position: int) -> int:
    """Return the nearest position, at or before one, that does not cut a character from its marks."""
    while position and (category(text[position])[0] == "M" or _JOINER in (text[position], text[position - 1])):
        position -= 1
    return position
