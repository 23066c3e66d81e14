"""The words that a description may use: whole words of any script, without those that only hold sentences together.

English has its stop words in `myria.analysis`. Other languages written with spaces are known by their own function
words, of which the fixed lists here hold the most frequent; those of scripts without spaces by
`myria.planning.unspaced`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from typing import Final

from myria.analysis import TextWords, Token, is_stopword, terms
from myria.analysis.function_words import FUNCTION_WORDS
from myria.analysis.languages import function_terms
from myria.analysis.tokens import stop_terms
from myria.planning.lines import lowered
from myria.values import value

_CONJUNCTIONS = {
    "english": "and",
    "german": "und",
    "french": "et",
    "spanish": "y",
    "portuguese": "e",
    "italian": "e",
    "dutch": "en",
    "swedish": "och",
    "polish": "i",
    "turkish": "ve",
    "russian": "и",
    "greek": "και",
    "ukrainian": "і",
    "hindi": "और",
    "vietnamese": "và",
    "indonesian": "dan",
}

_OPENERS = {
    "english": """
        a an the my your our his her their its this these those some any no each every another both of with
        for in at from about on by into over without through during between against whose""",
    "french": """
        le la les l un une des du de d au aux mon ma mes ton ta tes son sa ses notre votre nos vos leur leurs
        ce cet cette ces en à avec sans pour par chez dans sur sous vers quel quelle petit petite petits
        petites grand grande grands bon bonne nouveau nouvelle beau belle vieux vieille autre autres même
        premier première dernier dernière""",
    "spanish": """
        el la los las un una unos unas del de al mi mis tu tus su sus nuestro nuestra este esta estos estas
        ese esa con sin en para por sobre entre hasta desde gran grande nuevo nueva nuevos nuevas buen buena
        mal otro otra otros otras mismo misma primer primera último última pequeño pequeña""",
    "portuguese": """
        o a os as um uma uns umas do da dos das de meu minha meus minhas seu sua seus suas nosso nossa este
        esta esse essa no na nos nas em ao aos à às com sem para por pelo pela sobre entre até grande novo
        nova novos novas bom boa outro outra outros mesmo mesma primeiro primeira último última pequeno
        pequena""",
    "italian": """
        il lo la i gli le l un uno una di del dello della dell dei degli delle al allo alla all ai agli alle
        mio mia tuo tua suo sua nostro questo questa quello quella in nel nella nell nei da dal dalla dall su
        sul sulla sull con senza per tra fra d grande nuovo nuova nuovi buon buona bello bella altro altra
        stesso stessa primo prima ultimo ultima piccolo piccola""",
    "dutch": """
        de het een mijn jouw zijn haar ons onze hun jullie dit dat deze die van in op aan uit bij voor over
        onder met naar geen""",
    "swedish": "en ett den det min din sin vår av med till i på från för om under över ingen",
    "greek": "ο η το οι τα του της των τον την τους τις στο στη στην στον στα στους στις με για από σε",
}
"""Words before a noun, by language: articles, possessives, prepositions, adjectives that precede it.

Other languages have none that tell.
"""

_CLOSERS = {"hindi": "का की के को में से पर ने"}
"""Words that stand after a noun."""

_SUBJECTS = {
    "english": """
        i you he she it we they who i'm you're he's she's it's we're they're i've you've we've they've i'd you'd we'd
        they'd i'll you'll he'll she'll it'll we'll they'll to don't didn't doesn't can can't could couldn't will won't
        would wouldn't should shouldn't may might must let's let not never been be being is are was were am isn't
        aren't wasn't weren't got get gets getting so very really too quite just also still always""",
}
"""Words after which comes a verb or an adjective, no noun: pronouns that act, modal verbs, "to", "is", "so"."""

_VERBS = {
    "spanish": "(?:[^g]ar|[^ljr]er|ir|arse|erse|irse|ando|iendo|amos|emos|imos|aron|ieron|aban|ó)$",
    "portuguese": "(?:ar|er|ir|ando|endo|indo|amos|emos|imos|aram|eram|iram|avam|ou|eu)$",
    "italian": "(?:are|ere|ire|ando|endo|iamo|arono|irono|ava|avano)$",
    "french": "(?:[^iy]er|oir|endre|ons|ez|aient|ait)$",
    "russian": "(?:[аеиуыя](?:ть|ться|л|ла|ло|ли|лся|лась|лись)|[аяеуюи](?:ют|ем|ешь|ете)|ют|ишь|ите)$",
    "ukrainian": "(?:[аеиіуя](?:ти|тися|в|ла|ло|ли|вся|лася|лися)|ють|ться|ємо|имо)$",
    "polish": "(?:[aeiy](?:ć|ł|ła|ło|li|ły|łem|łam|łeś|łaś)|ują|emy|imy|amy|esz|isz|asz|ować)$",
    "turkish": (
        "(?:[dt][ıiuü](?:m|n|k|lar|ler|n[ıiuü]z)?|yor\\w*|[ae]ca[kğ]\\w*|[ae]ce[kğ]\\w*"
        "|m[ae]k|m[ae]m[ıi]z|[ıiuü]r[ıiuü]m)$"
    ),
}
"""How verbs end, by language, in words of at least five letters; a few nouns end so too and are lost to labels."""

_NOT_VERBS = """
    lugar hogar mujer taller hospital par bar lunar alquiler militar ayer dólar collar azúcar celular radar
    dîner loyer hiver danger foyer rocher boulanger étranger verger berger fer mer
    материал канал журнал персонал потенциал терминал филиал сериал правила модели недели школа сила память печать
    кровать площадь сеть часть жизнь проблемы билет акция отдел стул угол футбол алкоголь
    yardım kendi şimdi hindi kedi adım
    amore cuore fiore mare dottore odore signore colore errore motore favore valore
"""

_ADJECTIVES = re.compile(
    "(?:al|ales|ais|ale|aux|ar|ares|ic[oa]s?|iv[oa]s?|os[oa]s?|ari[oa]s?|an[oa]s?|ense|esa|entes?|antes?|ior|[aie]bles?"
    "|iques?|ifs?|ives?|eux|euses?|aires?|ien|ienne|aise|elle?|ées?|és?|[aiu]d[oa]s?|[aiu]t[oiae]|in[oa]s?|ern[oa]s?)$"
)
"""How adjectives end that follow their noun in Romance languages."""

_ROMANCE = frozenset({"french", "spanish", "portuguese", "italian"})
_ELISION = re.compile(
    "(l|d|j|m|t|s|c|n|qu|jusqu|lorsqu|puisqu|dell|all|nell|sull|dall|un|quest)['’](?=[^\\W\\d_])", re.IGNORECASE
)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SPEAKING: Final = 20
_STOPWORDS: Final = (1 << _SPEAKING) - 1
"""How words are counted twice by one number: function words of languages from this bit on, stop words below it. No text
that is stored has a million words."""

_DOUBT = 2
"""Function words by which another language than the likely one must lead in a single text."""

_SHORTEST_VERB = 5
_LEAST_SHARE = 8
"""One word in so many is a function word where a text is English."""


@value
class Language:
    """What a description must know of a language.

    `openers` and `closers` are the words before and after a noun; where a language has neither, any word may be one.
    `subjects` are words that a verb or an adjective follows, `verb` how a verb ends, `adjective` what may follow a noun
    within a phrase, and `article` how a noun begins. English builds compounds: the last word of a phrase is the noun.
    """

    name: str
    function_terms: frozenset[str] = frozenset()
    conjunction: str = "and"
    openers: frozenset[str] = frozenset()
    closers: frozenset[str] = frozenset()
    subjects: frozenset[str] = frozenset()
    article: str = ""
    verb: re.Pattern[str] | None = None
    adjective: re.Pattern[str] | None = None
    capitalises_nouns: bool = field(init=False)
    """Whether a noun is known by its capital."""
    is_english: bool = field(init=False)
    """Whether compounds, and the endings of English words, tell nouns."""
    marks_nouns: bool = field(init=False)
    """Whether words around a noun tell that it is one."""
    any_may_be_noun: bool = field(init=False)
    """Whether nothing tells which words are nouns."""
    tells_of_neighbours: bool = field(init=False)
    """Whether any word tells what stands beside it."""

    def __post_init__(self) -> None:
        """Note what is asked of each word."""
        object.__setattr__(self, "capitalises_nouns", self.name == "german")
        object.__setattr__(self, "is_english", self.name == "english")
        object.__setattr__(self, "marks_nouns", bool(self.openers or self.closers))
        object.__setattr__(self, "any_may_be_noun", not self.marks_nouns and not self.article)
        object.__setattr__(self, "tells_of_neighbours", self.is_english or self.marks_nouns or bool(self.subjects))

    def is_verb(self, surface: str) -> bool:
        """Tell whether a word has the ending of a verb."""
        if self.verb is None or len(surface) < _SHORTEST_VERB:
            return False
        small = lowered(surface)
        return small not in _NOUNS_AFTER_ALL and self.verb.search(small) is not None


@dataclass(slots=True)
class Votes:
    """What the words of a text tell of its language.

    How many there are, numbers left out; how many are English stop words, and how many function words of any known
    language. Of which ones they are is only counted where these may be more than the stop words: seldom.
    """

    words: int = 0
    stopwords: int = 0
    speaking: int = 0
    of_languages: dict[int, int] | None = None
    """How many are function words of each language, by its position among the known ones."""
    uncounted: tuple[Sequence[str], ...] = ()
    """Terms that are still to be counted there."""

    @staticmethod
    def counts(term: str) -> bool:
        """Tell whether a term is a stop word, or a function word of a language; others are only counted."""
        return term in _telling_terms()

    def add(self, term: str, times: int) -> None:
        """Add a term that stands so many times in the text."""
        self.words += times
        if is_stopword(term):
            self.stopwords += times
        if (positions := _speaking().get(term)) is not None:
            self.speaking += times
            counts = self.of_languages = self._counts()
            for position in positions:
                counts[position] = counts.get(position, 0) + times

    @classmethod
    def of(cls, words: TextWords, *, has_numbers: bool = True) -> Votes:
        """Return the votes of the words of a text; `has_numbers` is false where none is a number for certain."""
        read: Sequence[str] = words.terms
        if has_numbers and any(map(str.isdigit, words.surfaces)):
            read = [term for surface, term in zip(words.surfaces, read, strict=True) if not surface.isdigit()]
        if _telling_terms().isdisjoint(read):
            return cls(len(read))
        telling = sum(filter(None, map(_telling().get, read)))
        return cls(len(read), telling & _STOPWORDS, telling >> _SPEAKING, None, (read,))

    @classmethod
    def sum(cls, parts: Iterable[Votes]) -> Votes:
        """Return the votes of several texts together."""
        words = stopwords = speaking = 0
        counts: Counter[int] = Counter()
        uncounted: list[Sequence[str]] = []
        for votes in parts:
            words += votes.words
            if votes.stopwords or votes.speaking:
                stopwords += votes.stopwords
                speaking += votes.speaking
                uncounted += votes.uncounted
                if votes.of_languages is not None:
                    counts.update(votes.of_languages)
        return cls(words, stopwords, speaking, counts, tuple(uncounted))

    def language(self, likely: Language | None = None) -> Language:
        """Return the language that most of the function words belong to; `UNKNOWN` where there are few.

        A short text is in the `likely` language unless another one shows itself clearly.
        """
        if likely is None:
            best = ENGLISH if self.stopwords * _LEAST_SHARE >= self.words else UNKNOWN
            return self._elected(best, self.stopwords)
        most = self.stopwords
        if likely is not ENGLISH and self.speaking > most + _DOUBT:
            most = max(most, self._counts().get(_position_of(likely), 0))
        return self._elected(likely, most + _DOUBT)

    def _elected(self, best: Language, most: int) -> Language:
        """Return the language that has more votes than any, or else the one that has `most` before they are counted."""
        most = max(1, most)
        if self.speaking > most:
            counts = self._counts()
            for position in sorted(counts):
                if counts[position] > most:
                    best, most = _language_at(position), counts[position]
        return best

    def _counts(self) -> dict[int, int]:
        counts = self.of_languages
        if counts is None:
            counts = self.of_languages = {}
        if self.uncounted:
            speaking = filter(None, map(_speaking().get, chain.from_iterable(self.uncounted)))
            for position, count in Counter(chain.from_iterable(speaking)).items():
                counts[position] = counts.get(position, 0) + count
            self.uncounted = ()
        return counts


def language_of(words: TextWords) -> Language:
    """Return the language that most of the function words of a text belong to; `UNKNOWN` where there are few."""
    return Votes.of(words).language()


def is_function_word(term: str) -> bool:
    """Tell whether a term is a function word of some language."""
    return term in _speaking()


def conjunction_of(name: str) -> str:
    """Return the word for "and" in a language by its name."""
    return _CONJUNCTIONS.get(name, "and")


def words_of(text: str, words: TextWords, language: Language) -> TextWords:
    """Return the words of a text in order, those of scripts without spaces as a reader would mark them.

    What is elided before a word ("l'appartement") is a word of its own.
    """
    if language.adjective is not None and ("'" in text or "’" in text):
        words = TextWords.of(part for token in words.tokens() for part in _parted(token))
    if text.isascii() or not any(map(_may_be_unspaced, set(text))):
        return words
    from myria.planning import unspaced  # noqa: PLC0415 - its expressions take 10 ms to compile

    if not unspaced.is_in(text):
        return words
    tokens = [token for token in words.tokens() if not unspaced.is_in(token.surface)]
    limit = words.ends[-1] if words.ends else 0
    for surface, start in unspaced.words(text[:limit]):
        tokens.append(Token(surface, surface, start, start + len(surface)))
    tokens.sort(key=lambda token: token.start)
    return TextWords.of(tokens)


def _may_be_unspaced(character: str) -> bool:
    """Tell whether a character may be one of `myria.planning.unspaced`: no accent, quotation mark or emoji is."""
    return (
        "\u0e00" <= character < "\u2000"
        or "\u3005" <= character < "\ufe00"
        or "\uff66" <= character < "\uffa0"
        or ("\U00020000" <= character < "\U00040000")
    )


def _parted(token: Token) -> Iterable[Token]:
    elision = _ELISION.match(token.surface)
    if elision is None:
        return (token,)
    article, rest = elision.group(1), token.surface[elision.end() :]
    term = "".join(terms(rest)[:1])
    if not term:
        return (token,)
    middle = token.start + elision.end()
    return (
        Token(article, lowered(article), token.start, token.start + len(article)),
        Token(rest, term, middle, token.end),
    )


def _language(name: str) -> Language:
    return Language(
        name=name,
        function_terms=function_terms(name),
        conjunction=conjunction_of(name),
        openers=_words(_OPENERS.get(name, "")),
        closers=_words(_CLOSERS.get(name, "")),
        subjects=_words(_SUBJECTS.get(name, "")),
        article="ال" if name == "arabic" else "",
        verb=re.compile(_VERBS[name]) if name in _VERBS else None,
        adjective=_ADJECTIVES if name in _ROMANCE else None,
    )


_NOUNS_AFTER_ALL = _words(_NOT_VERBS)
ENGLISH = _language("english")
UNKNOWN = Language(name="unknown")


_KNOWN: Final = tuple(FUNCTION_WORDS)
"""The names of the known languages."""


@cache
def _language_at(position: int) -> Language:
    return _language(_KNOWN[position])


@cache
def _telling() -> dict[str, int]:
    """Return what each term that tells of a language counts as: a stop word, a function word, or both."""
    telling = dict.fromkeys(_speaking(), 1 << _SPEAKING)
    for term in stop_terms():
        telling[term] = telling.get(term, 0) + 1
    return telling


@cache
def _telling_terms() -> frozenset[str]:
    return frozenset(_telling())


@cache
def _positions() -> dict[str, int]:
    """Return the positions of the known languages by name."""
    return {name: position for position, name in enumerate(_KNOWN)}


def _position_of(language: Language) -> int:
    """Return the position of a language among the known ones, -1 where it is none of them."""
    return _positions().get(language.name, -1)


@cache
def _speaking() -> dict[str, tuple[int, ...]]:
    """Return the positions of the languages that a term is a function word of."""
    speaking: dict[str, tuple[int, ...]] = {}
    for position, name in enumerate(_KNOWN):
        for term in function_terms(name):
            speaking[term] = (*speaking.get(term, ()), position)
    return speaking
