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
"""Characters of a text that is compared: a longer one says too much to be only said again."""

_LEAST_IN_ANY_ORDER: Final = 4
"""Words from which on their order does not matter; of fewer it does: "the dog bit the man"."""

_ARTICLES: Final = {
    "english": "a an the",
    "german": "der die das den dem des ein eine einen einem einer eines",
    "french": "le la les l un une des",
    "spanish": "el la los las un una unos unas",
    "portuguese": "o a os as um uma",
    "italian": "il lo la i gli le un uno una",
    "dutch": "de het een",
}
_HOLDING: Final = {
    "english": "of it its this that there is are be been being has have",
    "german": "ist sind es wird werden",
    "french": "de du d est sont il y a",
    "spanish": "de del es son ser se",
    "portuguese": "de do da dos das é são ser",
    "italian": "di del dello della dei è sono essere",
    "dutch": "van is zijn worden wordt",
}
_ACTOR: Final = {
    "english": "by",
    "german": "von vom",
    "french": "par",
    "spanish": "por",
    "portuguese": "por pelo pela",
    "italian": "da dal dalla",
    "dutch": "door",
}
"""Words that only hold a sentence together, by language, and those that say who acts where that is not said first."""

_MUST: Final = re.compile(
    r"\b(?:must|shall|needs?|needed|requires?|required|ha(?:s|ve) to|muss|müssen|benötigt|benötigen|braucht|brauchen"
    r"|doit|doivent|il faut|nécessitent?|debe|deben|tienen? que|necesitan?|deve|devem|devono|precisam?|moet|moeten)\b"
)
"""One of several ways to say that something must be."""

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
"""What people put before a statement to say that it is none of news, or behind it."""

_AROUND: Final = ".,;:!?…\"'()[]{}“”‘’«»„*`。、，！？；：「」『』（）"
_JOINING: Final = dict.fromkeys(map(ord, "'\u2019-"))
_SENTENCE_ENDS: Final = (".", "!", "?", ":", "。", "！", "？")


@dataclass(frozen=True, kw_only=True, slots=True)
class Wording:
    """A text as it is compared: its words in order, those that tell something, and what must be the same as written.

    `names_actor` says that it names who acts behind the verb ("by Petra"), `must` that something must be. `written` are
    its words as they are written, `exact` those of them that are names, numbers, identifiers or signs.
    """

    words: tuple[str, ...]
    telling: tuple[str, ...]
    names_actor: bool
    must: bool
    written: tuple[str, ...]
    exact: frozenset[str]

    @classmethod
    def of(cls, text: str) -> Wording:
        """Return a text as it is compared."""
        said = _without_frames(" ".join(text[: _COMPARED + 1].split()))
        without_must, must = _MUST.subn(" ", said.casefold())
        found = words_in(without_must)
        languages = languages_of(said, found.terms)[:1]
        language = languages[0] if languages else "english"
        articles, holding, actor = (words_by.get(language, "").split() for words_by in (_ARTICLES, _HOLDING, _ACTOR))
        words: list[str] = []
        telling: list[str] = []
        for surface, term in zip(found.surfaces, found.terms, strict=True):
            word = (stem_of(surface, language) if languages else ()) or (term,)
            if surface not in articles:
                words += word
                telling += () if surface in holding or surface in actor else word
        written, exact = _as_written(said, has_small_nouns="german" not in languages)
        return cls(
            words=tuple(words),
            telling=tuple(telling),
            names_actor=not set(actor).isdisjoint(found.surfaces),
            must=bool(must),
            written=written,
            exact=exact,
        )

    @property
    def key(self) -> Any:
        """What texts have in common that say the same."""
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
        # The very same words in another order may be about others: "from the office to the station".
        return Counter(self.words) != Counter(other.words)


def told_once(
    items: Sequence[T], *, said: Callable[[T], tuple[Hashable, str]], age: Callable[[T], Any]
) -> list[tuple[T, int]]:
    """Return items without those that only say again what another one says, and how many of them each stands for.

    Of several the newest stays, at the place of the first.

    Args:
        said: who says an item, and its text: what two people say are two things.
        age: what newer items have more of.
    """
    groups = alike([said(item) for item in items])
    return [(max((items[at] for at in places), key=age), len(places) - 1) for places in groups]


def alike(said: Sequence[tuple[Hashable, str]]) -> list[list[int]]:
    """Return the places of texts that say the same, each with who says it, in the order of the first of them."""
    groups: list[list[int]] = []
    wordings: list[list[Wording]] = []
    by_key: dict[Any, list[int]] = {}
    for at, (speaker, text) in enumerate(said):
        wording = Wording.of(text)
        is_long = len(text) > _COMPARED or not wording.telling
        key = (speaker, text if is_long else wording.key)
        same = (group for group in by_key.get(key, ()) if is_long or all(map(wording.says_again, wordings[group])))
        group = next(same, None)
        if group is None:
            by_key.setdefault(key, []).append(len(groups))
            groups.append([at])
            wordings.append([wording])
        else:
            groups[group].append(at)
            wordings[group].append(wording)
    return groups


def _without_frames(text: str) -> str:
    shorter = _FRAME_WITHIN.sub("", _FRAME.sub("", text))
    return shorter if any(map(str.isalnum, shorter)) else text


def _as_written(text: str, *, has_small_nouns: bool) -> tuple[tuple[str, ...], frozenset[str]]:
    """Return the words of a text between spaces as they are written, and those of them that are names, numbers,
    identifiers or signs."""
    written: list[str] = []
    exact: set[str] = set()
    begins = True
    for chunk in text.split():
        word = chunk.strip(_AROUND).removesuffix("'s").removesuffix("\u2019s") or chunk
        written.append(word)
        is_plain = word.isalpha() or (word[0] != "-" and word.translate(_JOINING).isalpha())
        is_name = word[:1].isupper() and not begins and has_small_nouns
        if not is_plain or is_name or word[1:] != word[1:].lower():
            exact.add(word)
        begins = chunk.endswith(_SENTENCE_ENDS)
    return tuple(dict.fromkeys(written)), frozenset(exact)
