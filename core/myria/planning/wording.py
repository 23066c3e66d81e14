"""The words that a description may use: whole words of any script, without those that only hold sentences together.

English has its stop words in `myria.analysis`. Other languages written with spaces are known by their own function
words, of which the fixed lists here hold the most frequent. Scripts without spaces have no words that can be found
without a dictionary; there, what a person reads as one is a run of characters of one kind between particles: ideographs
and katakana in Japanese, what lies between function words in Chinese and Thai, a word without its particle in Korean.
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

_HAN = "\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_KATAKANA = "\u30a1-\u30fa\u30fc-\u30fe\u31f0-\u31ff\uff66-\uff9f"
_HIRAGANA = "\u3041-\u309f"
_HANGUL = "\u1100-\u11ff\u3131-\u318e\uac00-\ud7af"
_SYLLABLES = "\uac00-\ud7a3"
_THAI_AND_NEIGHBOURS = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"

_OWN_WORDS = re.compile(f"[{_HAN}{_KATAKANA}{_HIRAGANA}{_HANGUL}{_THAI_AND_NEIGHBOURS}]")
_KANA = re.compile(f"[{_HIRAGANA}{_KATAKANA}]")
_JAPANESE_RUN = re.compile(
    f"[{_HAN}{_KATAKANA}]+(?:(?<=[{_HAN}])[りきみちけれえめ](?=[のはがをにでとも、。]))?(?!し[たてまち]|する|さ[れせ]|でき)"
)
_HAN_RUN = re.compile(f"[{_HAN}]+")
_HANGUL_RUN = re.compile(f"[{_SYLLABLES}]+")
_THAI_RUN = re.compile(f"[{_THAI_AND_NEIGHBOURS}]+")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_JAPANESE_WEAK = _words("""
    今日 明日 昨日 今週 来週 先週 今月 来月 先月 今年 来年 去年 今回 今度 最近 以前 以上 以下 皆様 私達 自分
    本当 本日 大丈夫 時間 最初 最後 一緒 全部 場合 予定 必要 結構 有難 御座 一番 毎日 今朝 今夜 午前 午後 大事
    了解 御飯 疲 様 疲様 失礼 承知 拝啓 敬具 願 是非 早速 元気 先日 今晩 先程 後程 無理 無事 残念 感謝 世話 有難
    迷惑 挨拶 宜 何卒 恐縮 再来 一昨日 明後日 来月中 今月中 駄目 多分 勿論 実際 普通 全然 随分 途中 次回 好き
    大好き 好 嫌
""")
_JAPANESE_DATE = re.compile(f"[{_HAN}]*[一二三四五六七八九十月日時分年回個人円火水木金土]$")

_CHINESE_BREAKS = re.compile(
    "早上好|晚上好|下午好|你好|您好|谢谢|謝謝|多谢|不客气|不客氣|没关系|沒關係|没事|再见|再見|晚安|拜拜|恭喜|哈哈+|嘿嘿|呵呵|嘻嘻|嗯+|哦+|噢|"
    "好的|好吧|好啊|好呀|太好了|不错|不錯|挺好|麻烦|辛苦|对不起|對不起|抱歉|没问题|沒問題|当然|當然|收到|明白|加油|生日快乐|新年快乐|最近|"
    "我们|你们|他们|她们|咱们|我們|你們|他們|什么|什麼|怎么样|怎麼樣|怎么|怎麼|这个|那个|這個|那個|这些|那些|因为|因為|所以|但是|如果|可以|已经|已經|"
    "没有|沒有|还是|還是|还有|還有|就是|不是|一[个個家位种種次本张張条條天年间間辆輛台下起]|现在|現在|今天|明天|昨天|下周|上周|本周|下週|上週|"
    "下个月|上个月|下個月|上個月|时候|時候|大家|自己|非常|觉得|覺得|知道|需要|帮忙|幫忙|认识|認識|拿到|出来|出來|"
    "应该|應該|然后|然後|或者|以及|关于|關於|附近|星期[一二三四五六日天]|[的了吗嗎呢吧啊呀哦是我你您他她它这這那很太挺把被就也们們与與给給着著和在请請]"
)
_CHINESE_EDGES = "会會要有对對为為到说說都不再去来來个個从從让讓将將还還又只能可想做看已一两兩三找买買帮幫用等"
_THAI_BREAKS = re.compile(
    "และ|หรือ|ที่|ของ|ให้|ได้|เป็น|ไม่|กับ|ว่า|ครับ|ค่ะ|คะ|นี้|นั้น|เรา|ฉัน|คุณ|เขา|แล้ว|จาก|ด้วย|สวัสดี"
    "|ขอบคุณ|ขอโทษ|สบายดี|ไหม|มาก|โอเค|หรือยัง|จอง|ใกล้|ครั้ง|ต่อไป|วันนี้|พรุ่งนี้|เมื่อวาน|กำลัง|จะ|ก็|นะ|เลย|อยู่"
)
_KOREAN_ENDINGS = (
    *(
        "다",
        "요",
        "까",
        "죠",
        "지만",
        "는데",
        "했고",
        "았고",
        "었고",
        "해서",
        "아서",
        "어서",
        "려고",
        "면서",
        "세요",
        "네요",
    ),
    *(
        "있는",
        "없는",
        "하는",
        "되는",
        "같은",
        "좋은",
        "많은",
        "려면",
        "다면",
        "으면",
        "니까",
        "군요",
        "해야",
        "게요",
        "어요",
    ),
)
_KOREAN_PARTICLES = (
    *("에서", "으로", "에게", "까지", "부터", "하고", "이랑", "처럼", "보다"),
    *("은", "는", "이", "가", "을", "를", "에", "의", "도", "로", "와", "과", "만"),
)
_KOREAN_WHOLE = _words("""
    고양이 강아지 아이 어린이 나이 놀이 먹이 높이 길이 종이 거북이 호랑이 회의 강의 동의 주의 제주도 휴가 평가
    물가 작가 국가 영화 보도 속도 온도 지도 정도 사과 결과 효과 도로 새로
""")
"""Words that end as if in a particle."""

_KOREAN_WEAK = _words("""
    오늘 내일 어제 이번 다음 지난 우리 저희 그리고 그래서 하지만 정말 너무 아주 같이 함께 지금 보내 해서 있어
    없어 안녕 네 응 감사 화이팅 파이팅 축하 많이 매일 조금 그냥 혹시 아마 아직 벌써 다시 먼저 나중 여기 거기
    저기 이거 그거 그럼 그런데 근데 안녕히 주무 고마워 미안 괜찮 어떻게 얼마 언제 어디 누구 무엇 오전 오후 요일
    월요일 화요일 수요일 목요일 금요일 토요일 일요일 해요 봐요 가요 와요 줘요 했나 해야 했어 봐야 있다 없다 하나
    모두 모든 제가 내가 네가
""")

_SPEAKING: Final = 20
_STOPWORDS: Final = (1 << _SPEAKING) - 1
"""How words are counted twice by one number: function words of languages from this bit on, stop words below it. No text
that is stored has a million words."""

_DOUBT = 2
"""Function words by which another language than the likely one must lead in a single text."""

_SHORTEST_VERB = 5
_LEAST_SHARE = 8
"""One word in so many is a function word where a text is English."""

_LONGEST_CHINESE = 10
_LONGEST_JAPANESE = 12
_LONGEST_THAI = 24
_SHORTEST_THAI = 4


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
    if text.isascii() or not _OWN_WORDS.search(text):
        return words
    tokens = [token for token in words.tokens() if not _OWN_WORDS.search(token.surface)]
    limit = words.ends[-1] if words.ends else 0
    for surface, start in _unspaced(text[:limit]):
        tokens.append(Token(surface, surface, start, start + len(surface)))
    tokens.sort(key=lambda token: token.start)
    return TextWords.of(tokens)


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


def _unspaced(text: str) -> Iterable[tuple[str, int]]:
    if _KANA.search(text):
        yield from _japanese(text)
    else:
        yield from _between(text, _HAN_RUN, _CHINESE_BREAKS, _CHINESE_EDGES, shortest=2, longest=_LONGEST_CHINESE)
    yield from _korean(text)
    yield from _between(text, _THAI_RUN, _THAI_BREAKS, "", shortest=_SHORTEST_THAI, longest=_LONGEST_THAI)


def _japanese(text: str) -> Iterable[tuple[str, int]]:
    for run in _JAPANESE_RUN.finditer(text):
        surface = run.group().strip("・ー々")
        if (
            2 <= len(surface) <= _LONGEST_JAPANESE
            and surface not in _JAPANESE_WEAK
            and not _JAPANESE_DATE.match(surface)
        ):
            yield surface, run.start() + run.group().index(surface)


def _korean(text: str) -> Iterable[tuple[str, int]]:
    for run in _HANGUL_RUN.finditer(text):
        surface = run.group()
        if surface.endswith(_KOREAN_ENDINGS) and len(surface) > 2:
            continue
        particle = (
            "" if surface in _KOREAN_WHOLE else next((end for end in _KOREAN_PARTICLES if _ends(surface, end)), "")
        )
        if particle:
            surface = surface[: -len(particle)]
        if len(surface) >= 2 and surface not in _KOREAN_WEAK:
            yield surface, run.start()


def _ends(surface: str, particle: str) -> bool:
    """Tell whether a Korean word ends with a particle, in the form that belongs after its last consonant or vowel."""
    if not surface.endswith(particle) or surface == particle:
        return False
    closed = (ord(surface[-len(particle) - 1]) - 0xAC00) % 28 > 0
    return not (particle in "은이을과" and not closed) and not (particle in "는가를와" and closed)


def _between(
    text: str, runs: re.Pattern[str], breaks: re.Pattern[str], edges: str, *, shortest: int, longest: int
) -> Iterable[tuple[str, int]]:
    """Yield what lies between function words in each run of a script."""
    for run in runs.finditer(text):
        at = run.start()
        for stop, following in [
            *(match.span() for match in breaks.finditer(text, *run.span())),
            (run.end(), run.end()),
        ]:
            surface = text[at:stop].strip(edges) if edges else text[at:stop]
            if shortest <= len(surface) <= longest:
                yield surface, text.index(surface, at)
            at = following


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
