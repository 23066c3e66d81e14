"""Texts that only say again what another says, so that an answer shows a fact once and has room for others.

"Petra must approve the deploy", "As said, the deploy must be approved by Petra": the same words, whatever their order,
their endings, and what frames them. What differs in a number, a name, a negation or the case of an identifier says
something else, and so does what has one word more. In doubt texts are two: a fact that is shown twice costs some room,
and one that is hidden behind another is lost.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from myria.text.languages import languages_of, stem_of
from myria.text.words import words_in

T = TypeVar("T")

_COMPARED: Final = 240
"""Most characters of a text that is compared by its words: a longer one says too much to be a mere repetition."""

_LEAST_IN_ANY_ORDER: Final = 4
"""Fewest words whose order does not matter; with fewer it does: "the dog bit the man"."""

_ARTICLES: Final = {
    "english": "a an the",
    "german": "der die das den dem des ein eine einen einem einer eines",
    "french": "le la les l un une des",
    "spanish": "el la los las un una unos unas",
    "portuguese": "o a os as um uma",
    "italian": "il lo la i gli le un uno una",
    "dutch": "de het een",
}
_LINKING: Final = {
    "english": "of it its this that there is are be been being has have",
    "german": "ist sind es wird werden",
    "french": "de du d est sont il y a",
    "spanish": "de del es son ser se",
    "portuguese": "de do da dos das é são ser",
    "italian": "di del dello della dei è sono essere",
    "dutch": "van is zijn worden wordt",
}
_BEFORE_ACTOR: Final = {
    "english": "by",
    "german": "von vom",
    "french": "par",
    "spanish": "por",
    "portuguese": "por pelo pela",
    "italian": "da dal dalla",
    "dutch": "door",
}
"""By language: words that only hold a sentence together (`_LINKING`), and those before the one who acts in a passive
sentence (`_BEFORE_ACTOR`)."""

_MUST: Final = re.compile(
    r"\b(?:must|shall|needs?|needed|requires?|required|ha(?:s|ve) to|muss|müssen|benötigt|benötigen|braucht|brauchen"
    r"|doit|doivent|il faut|nécessitent?|debe|deben|tienen? que|necesitan?|deve|devem|devono|precisam?|moet|moeten)\b"
)
"""Expressions of necessity, which all count as the same."""

_FRAMES: Final = """
as (?:i |we )?(?:already )?(?:said|mentioned|noted|agreed|discussed|stated)(?: before| earlier| already)?
like i said|as before|(?:just )?(?:as )?(?:a )?(?:quick |friendly )?reminder|(?:please )?(?:remember|note|keep in mind)
(?:please )?(?:do not|don't) forget|(?:just )?to (?:confirm|repeat|recap|reiterate|remind you|be clear)
i repeat|again|once (?:more|again)|fyi|by the way|btw|for the record|in (?:short|other words)
wie (?:schon |bereits |oben )?(?:gesagt|erwähnt|besprochen|vereinbart)|(?:nur )?(?:noch ?mal )?zur (?:erinnerung|info)
erinnerung|noch ?mals?|noch einmal|übrigens|hinweis|bitte beachten|nicht vergessen|denkt? daran
comme (?:je l'ai )?(?:déjà )?(?:dit|convenu|prévu)|(?:pour )?rappel|je rappelle|encore une fois|au fait|à noter
n'oubliez? pas|como (?:ya )?(?:dije|dijimos|acordamos)|recordatorio|recuerdan?|repito|otra vez|por cierto|ojo|nota
como (?:já )?(?:disse|dissemos|combinado)|lembrete|lembra(?:-te)?|outra vez|a propósito
come (?:già )?detto|promemoria|ricorda|ripeto|di nuovo|zoals (?:al )?gezegd|herinnering|nogmaals|let op
как (?:я )?(?:уже )?(?:говорил|говорила|сказано)|напоминаю|напоминание|ещё раз|кстати
""".strip().replace("\n", "|")
_FRAME: Final = re.compile(
    rf"^(?:{_FRAMES})(?:\s*[,:;.!–—-]+\s*|,? (?:that|que|che|dass|dat|что)\s+)|\s*[,;–—-]+\s*(?:{_FRAMES})[.!]*$",
    re.IGNORECASE,
)
_FRAME_WITHIN: Final = re.compile(
    "^(?:念のため|リマインド|再掲|前にも言った(?:ように|通り)|提醒(?:一下)?|再说一遍|如前所述|다시 말하지만|참고로)"
    "[、，,:：\\s]*"
)
"""Phrases before or behind a statement by which people say that it is no news."""

_PUNCTUATION: Final = ".,;:!?…\"'()[]{}“”‘’«»„*`。、，！？；：「」『』（）"
_JOINERS: Final = dict.fromkeys(map(ord, "'\u2019-"))
_SENTENCE_ENDS: Final = (".", "!", "?", ":", "。", "！", "？")


@dataclass(frozen=True, kw_only=True, slots=True)
class Wording:
    """The form in which a text is compared with others.

    `words` are its stems in order without articles, `telling` those of them with a content of their own. `names_actor`
    tells that it names who acts behind the verb ("by Petra"), `must` that it says that something must be. `written` are
    the words as written, `exact` those of them that are names, numbers, identifiers or signs: they must be equal.
    """

    words: tuple[str, ...]
    telling: tuple[str, ...]
    names_actor: bool
    must: bool
    written: tuple[str, ...]
    exact: frozenset[str]

    @classmethod
    def of(cls, text: str) -> Wording:
        """Return the form in which a text is compared."""
        unframed = _without_frames(" ".join(text[: _COMPARED + 1].split()))
        without_must, must = _MUST.subn(" ", unframed.casefold())
        text_words = words_in(without_must)
        languages = languages_of(unframed, text_words.terms)[:1]
        language = languages[0] if languages else "english"
        articles, linking_words, actor_words = (
            words_by.get(language, "").split() for words_by in (_ARTICLES, _LINKING, _BEFORE_ACTOR)
        )
        words: list[str] = []
        telling: list[str] = []
        for surface, term in zip(text_words.surfaces, text_words.terms, strict=True):
            word = (stem_of(surface, language) if languages else ()) or (term,)
            if surface not in articles:
                words += word
                telling += () if surface in linking_words or surface in actor_words else word
        written, exact = _words_as_written(unframed, has_small_nouns="german" not in languages)
        return cls(
            words=tuple(words),
            telling=tuple(telling),
            names_actor=not set(actor_words).isdisjoint(text_words.surfaces),
            must=bool(must),
            written=written,
            exact=exact,
        )

    @property
    def key(self) -> Any:
        """A key that is equal for all texts that say the same; texts with equal keys may still differ."""
        return frozenset(self.telling), self.must

    def says_again(self, other: Wording) -> bool:
        """Tell whether two texts with the same key say the same."""
        exact = self.exact | other.exact
        if [word for word in self.written if word in exact] != [word for word in other.written if word in exact]:
            return False
        if self.words == other.words:
            return True
        if len(exact) > 1 or len(set(self.telling)) < _LEAST_IN_ANY_ORDER:
            return False
        if self.telling == other.telling:
            return self.names_actor == other.names_actor
        # The very same words in another order may mean something else ("from the office to the station"). Other
        # words around the same telling ones show that the sentence was turned around, as in the passive.
        return Counter(self.words) != Counter(other.words)


def told_once(
    items: Sequence[T], *, said: Callable[[T], tuple[Hashable, str]], age: Callable[[T], Any]
) -> list[tuple[T, int]]:
    """Return items without repetitions, each with the number of items that it stands for besides itself.

    Of several items that say the same, the newest stays, at the place of the first.

    Args:
        said: returns an item's speaker and text; the same text of two speakers is no repetition.
        age: returns a value that is greater for newer items.
    """
    groups = alike([said(item) for item in items])
    return [(max((items[index] for index in indexes), key=age), len(indexes) - 1) for indexes in groups]


def alike(said: Sequence[tuple[Hashable, str]]) -> list[list[int]]:
    """Return groups of indexes of texts of one speaker that say the same, in the order of their first texts.

    `said` are (speaker, text). A long text, or one without telling words, only belongs with its equals.
    """
    groups: list[list[int]] = []
    wordings: list[list[Wording]] = []
    by_key: dict[Any, list[int]] = {}
    for index, (speaker, text) in enumerate(said):
        wording = Wording.of(text)
        is_long = len(text) > _COMPARED or not wording.telling
        key = (speaker, text if is_long else wording.key)
        matching_groups = (
            group for group in by_key.get(key, ()) if is_long or all(map(wording.says_again, wordings[group]))
        )
        group = next(matching_groups, None)
        if group is None:
            by_key.setdefault(key, []).append(len(groups))
            groups.append([index])
            wordings.append([wording])
        else:
            groups[group].append(index)
            wordings[group].append(wording)
    return groups


def _without_frames(text: str) -> str:
    """Return a text without phrases such as "as I said", unless nothing else is left."""
    shorter = _FRAME_WITHIN.sub("", _FRAME.sub("", text))
    return shorter if any(map(str.isalnum, shorter)) else text


def _words_as_written(text: str, *, has_small_nouns: bool) -> tuple[tuple[str, ...], frozenset[str]]:
    """Return a text's words as written, each once, and those of them that are names, numbers, identifiers or signs.

    Without `has_small_nouns`, as in German, a capital is no sign of a name.
    """
    written: list[str] = []
    exact: set[str] = set()
    begins_sentence = True
    for chunk in text.split():
        word = chunk.strip(_PUNCTUATION).removesuffix("'s").removesuffix("\u2019s") or chunk
        written.append(word)
        is_plain = word.isalpha() or (word[0] != "-" and word.translate(_JOINERS).isalpha())
        is_name = word[:1].isupper() and not begins_sentence and has_small_nouns
        if not is_plain or is_name or word[1:] != word[1:].lower():
            exact.add(word)
        begins_sentence = chunk.endswith(_SENTENCE_ENDS)
    return tuple(dict.fromkeys(written)), frozenset(exact)
