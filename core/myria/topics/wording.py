"""The planner's knowledge of languages: which one a text is in, and which of its words may be nouns.

English has its stop words in `myria.text`. Other languages written with spaces are known by their function words;
the words of scripts without spaces are found by `myria.topics.unspaced`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Final

from myria.text import TextWords, Token, is_stopword, terms
from myria.text.function_words import AUXILIARIES, FUNCTION_WORDS
from myria.text.languages import function_terms
from myria.text.words import stop_terms
from myria.topics.lines import lowered

_OPENERS = {
    "english": """
        a an the my your our his her their its this that these those some any no each every another both of with for
        in at from about on by into over without through during between against whose new first more most many""",
    "french": """
        le la les l un une des du de d au aux mon ma mes ton ta tes son sa ses notre votre nos vos leur leurs ce cet
        cette ces en à avec sans pour par chez dans sur sous vers quel quelle petit petite grand grande nouveau
        nouvelle autre premier première""",
    "spanish": """
        el la los las un una unos unas del de al mi mis tu tus su sus nuestro nuestra este esta ese esa con sin en
        para por sobre entre hasta desde gran nuevo nueva otro otra primer primera""",
    "portuguese": """
        o a os as um uma uns umas do da dos das de meu minha seu sua nosso nossa este esta esse essa no na nos nas em
        ao aos à às com sem para por pelo pela sobre entre até novo nova outro outra primeiro primeira""",
    "italian": """
        il lo la i gli le l un uno una di del dello della dell dei degli delle al allo alla all ai agli alle mio mia
        tuo tua suo sua nostro questo questa in nel nella nell da dal dalla dall su sul sulla con senza per tra fra
        nuovo nuova altro altra primo prima""",
    "german": """
        der die das den dem des ein eine einen einem einer eines kein keine mein meine meinen meinem meiner dein deine
        sein seine ihr ihre unser unsere im am zum zur vom beim ins mit für von ohne bei""",
    "dutch": "de het een mijn jouw zijn haar ons onze hun dit dat deze die van in op aan uit bij voor over met naar",
    "swedish": "en ett den det min din sin vår av med till i på från för om under över ingen",
    "greek": "ο η το οι τα του της των τον την τους τις στο στη στην στον στα στους στις με για από σε",
}
"""Words before a noun, by language: articles, possessives, prepositions. Other languages have none that are a sign."""

_ACTORS = """
    i you he she it we they who i'm you're he's she's it's we're they're i've you've we've they've i'd you'd he'd she'd
    we'd they'd i'll you'll he'll she'll it'll we'll they'll to don't didn't doesn't can can't could couldn't will won't
    would wouldn't should shouldn't may might must let's not never be been being is are was were am isn't aren't wasn't
    weren't so very really too quite just also still always please did does do
"""
"""English words after which comes a verb or an adjective, no noun."""

_VERBS = {
    "spanish": "(?:[^g]ar|[^ljr]er|ir|arse|erse|irse|ando|iendo|amos|emos|imos|aron|ieron|aban|ó)$",
    "portuguese": "(?:ar|er|ir|ando|endo|indo|amos|emos|imos|aram|eram|iram|avam|ou|eu)$",
    "italian": "(?:are|ere|ire|ando|endo|iamo|arono|irono|ava|avano)$",
    "french": "(?:[^iy]er|oir|endre|ons|ez|aient|ait)$",
    "russian": "(?:[аеиуыя](?:ть|ться|л|ла|ло|ли|лся|лась|лись)|[аяеуюи](?:ют|ем|ешь|ете)|тся|ют|ишь|ите)$",
    "ukrainian": "(?:[аеиіуя](?:ти|тися|в|ла|ло|ли|вся|лася|лися)|ють|ться|ємо|имо)$",
    "polish": "(?:[aeiy](?:ć|ł|ła|ło|li|ły|łem|łam|łeś|łaś)|ują|emy|imy|amy|esz|isz|asz|ować)$",
    "turkish": (
        "(?:[dt][ıiuü](?:m|n|k|lar|ler|n[ıiuü]z)?|yor\\w*|[ae]ca[kğ]\\w*|[ae]ce[kğ]\\w*"
        "|m[ae]k|m[ae]m[ıi]z|[ıiuü]r[ıiuü]m)$"
    ),
}
"""How verbs end, by language, in words of at least five letters; a few nouns end so too and are lost to labels."""

_ADJECTIVES = re.compile(
    "(?:al|ales|ais|ale|aux|ar|ares|ic[oa]s?|iv[oa]s?|os[oa]s?|ari[oa]s?|an[oa]s?|ense|esa|entes?|antes?|ior|[aie]bles?"
    "|iques?|ifs?|ives?|eux|euses?|aires?|ien|ienne|aise|elle?|ées?|és?|[aiu]d[oa]s?|[aiu]t[oiae]|in[oa]s?|ern[oa]s?)$"
)
"""How adjectives end that follow their noun in Romance languages."""

_GREETINGS = """
    hi hello hey hiya dear good morning afternoon evening night thanks thank thx bye goodbye cheers regards welcome yeah
    yep yup nope okay ok lol haha hahaha hmm wow whoa yay aww oops congrats congratulations sir madam mr mrs bro dude
    guten gute guter tag abend nacht hallo moin servus liebe lieber geehrte geehrter danke dank bitte tschüss tschüs
    grüße grüßen gruß wochenende glückwunsch prima genau okay lg vg mfg gerne
    bonjour bonsoir salut coucou merci cher chère bonne journée soirée nuit bientôt cordialement accord bravo bises
    hola buenos buenas días tardes noches gracias adiós saludos saludo abrazo abrazos besos querida querido estimada
    estimado genial jaja jajaja claro perfecto
    olá oi bom boa dia tarde noite obrigado obrigada abraço abraços tchau adeus beijos cumprimentos parabéns
    ciao buongiorno buonasera buona buon giorno sera notte grazie prego saluti auguri arrivederci
    hoi goedemorgen goedemiddag goedenavond bedankt groetjes groeten hej tack takk hälsningar
    cześć dzień dobry dziękuję dzięki proszę pozdrawiam merhaba selam günaydın teşekkürler teşekkür ederim lütfen
    görüşürüz hoşça kal tamam
    привет здравствуйте здравствуй доброе утро добрый день вечер доброй спокойной ночи спасибо большое пожалуйста
    свидания хорошо ладно привіт дякую добридень
    السلام عليكم وعليكم مرحبا أهلا صباح مساء الخير النور شكرا جزيلا عفوا شاء الله مع السلامة حسنا تمام
    नमस्ते नमस्कार धन्यवाद शुक्रिया शुभ रात्रि प्रभात ठीक שלום תודה בוקר ערב γεια καλημέρα καλησπέρα ευχαριστώ
    tal дела كيف حالك neuf stai vai come nasılsın
    xin chào cảm ơn selamat pagi siang malam terima kasih سلام ممنون
"""
"""Greetings, thanks and the times of day in them: no subject of any talk."""

_ELISION = re.compile(
    "(l|d|j|m|t|s|c|n|qu|jusqu|lorsqu|puisqu|dell|all|nell|sull|dall|un|quest)['’](?=[^\\W\\d_])", re.IGNORECASE
)
_ROMANCE = frozenset({"french", "spanish", "portuguese", "italian"})
_SHORTEST_VERB = 5
_WORDS_PER_STOPWORD = 8
"""A text is taken for English if at least one in so many of its words is an English stop word."""

_LEAD_TO_DIFFER = 2
"""Votes by which another language must exceed the likely one, to be taken for that of a single text."""


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


GREETINGS: Final = _words(_GREETINGS)


@dataclass(frozen=True, kw_only=True, slots=True)
class Language:
    """What the planner must know of a language to describe topics.

    `openers` are words before a noun, `actors` words before a verb. `verb` matches the endings of verbs, `adjective`
    those of adjectives that may follow their noun; with `article` a noun may begin.
    """

    name: str
    openers: frozenset[str] = frozenset()
    actors: frozenset[str] = frozenset()
    article: str = ""
    verb: re.Pattern[str] | None = None
    adjective: re.Pattern[str] | None = None
    function_terms: frozenset[str] = field(default=frozenset(), repr=False)

    @property
    def is_english(self) -> bool:
        """Whether the rules for English apply, such as its endings of nouns."""
        return self.name == "english"

    @property
    def capitalises_nouns(self) -> bool:
        """Whether every noun is written with a capital."""
        return self.name == "german"

    def is_verb(self, surface: str) -> bool:
        """Tell whether a word has the ending of a verb."""
        if self.verb is None or len(surface) < _SHORTEST_VERB:
            return False
        return self.verb.search(lowered(surface)) is not None


@dataclass(slots=True)
class Votes:
    """The votes of a text's words for its language: the number of words, of English stop words among them, and of
    function words of each other language."""

    words: int = 0
    stopwords: int = 0
    by_language: Counter[str] = field(default_factory=Counter)

    def add(self, term: str, times: int) -> None:
        """Add a term that occurs so many times in the text."""
        self.words += times
        self.stopwords += times * is_stopword(term)
        for name in _languages_by_function_word().get(term, ()):
            self.by_language[name] += times

    def extend(self, read_terms: Iterable[str]) -> None:
        """Add the terms of a text; numbers do not count as words."""
        all_terms = list(read_terms)
        counts = Counter(filter(_counted_terms().__contains__, all_terms))
        self.words += len(all_terms) - sum(map(str.isdigit, all_terms)) - counts.total()
        for term, times in counts.items():
            self.add(term, times)

    def language(self, likely: Language | None = None) -> Language:
        """Return the language with the most votes; `UNKNOWN` if there are few.

        Given a `likely` language, that of the talk, a single text is in this one unless another leads clearly.
        """
        if likely is None:
            best, most_votes = (
                (ENGLISH if self.stopwords * _WORDS_PER_STOPWORD >= self.words else UNKNOWN),
                self.stopwords,
            )
        else:
            best, most_votes = likely, max(self.stopwords, self.by_language.get(likely.name, 0)) + _LEAD_TO_DIFFER
        most_votes = max(1, most_votes)
        for name in FUNCTION_WORDS:
            if self.by_language.get(name, 0) > most_votes:
                best, most_votes = language_named(name), self.by_language[name]
        return best


def language_of(words: TextWords) -> Language:
    """Return the language of most function words of a text; `UNKNOWN` if it has few."""
    votes = Votes()
    votes.extend(words.terms)
    return votes.language()


def is_function_word(term: str) -> bool:
    """Tell whether a term is a function word of some language."""
    return term in _languages_by_function_word()


def words_of(text: str, words: TextWords, language: Language) -> TextWords:
    """Return the words of a text in order; those of scripts without spaces are found by `myria.topics.unspaced`.

    An elided article or preposition ("l'appartement") is a separate word.
    """
    if language.adjective is not None and ("'" in text or "’" in text):
        words = TextWords.of(part for token in words.tokens() for part in _split_elision(token))
    if text.isascii() or max(text) < "\u0e00":
        return words
    from myria.topics import unspaced  # noqa: PLC0415 - its expressions take 10 ms to compile

    if not unspaced.is_in(text):
        return words
    tokens = [token for token in words.tokens() if not unspaced.is_in(token.surface)]
    words_end = words.ends[-1] if words.ends else 0
    for surface, start in unspaced.words(text[:words_end]):
        tokens.append(Token(surface, surface, start, start + len(surface)))
    tokens.sort(key=lambda token: token.start)
    return TextWords.of(tokens)


def _split_elision(token: Token) -> Iterable[Token]:
    """Return a token as two, the elided word and the rest, if it has an elision; else as it is."""
    elision = _ELISION.match(token.surface)
    term = "".join(terms(token.surface[elision.end() :])[:1]) if elision is not None else ""
    if elision is None or not term:
        return (token,)
    elided, word_start = elision.group(1), token.start + elision.end()
    return (
        Token(elided, lowered(elided), token.start, token.start + len(elided)),
        Token(token.surface[elision.end() :], term, word_start, token.end),
    )


@cache
def language_named(name: str) -> Language:
    """Return the description of a language by its name in English; for a language not known here, one without rules."""
    return Language(
        name=name,
        openers=_words(_OPENERS.get(name, "")),
        actors=_words(_ACTORS) if name == "english" else frozenset(),
        article="ال" if name == "arabic" else "",
        verb=re.compile(_VERBS[name]) if name in _VERBS else None,
        adjective=_ADJECTIVES if name in _ROMANCE else None,
        function_terms=function_terms(name) | frozenset(terms(AUXILIARIES.get(name, ""))),
    )


ENGLISH: Final = language_named("english")
UNKNOWN: Final = Language(name="unknown")


@cache
def _languages_by_function_word() -> dict[str, tuple[str, ...]]:
    """Return the names of the languages of which each term is a function word."""
    languages_by_term: dict[str, tuple[str, ...]] = {}
    for name in FUNCTION_WORDS:
        for term in function_terms(name):
            languages_by_term[term] = (*languages_by_term.get(term, ()), name)
    return languages_by_term


@cache
def _counted_terms() -> frozenset[str]:
    """Return the terms that are votes for a language: stop words and function words."""
    return stop_terms().union(_languages_by_function_word())
