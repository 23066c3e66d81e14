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
from dataclasses import dataclass
from functools import cache

from myria.analysis import Token, is_stopword, terms

_LANGUAGES = {
    "german": """
        der die das den dem des ein eine einen einem einer eines und oder aber ich du er sie es wir ihr mich dich
        sich uns euch mir dir ihm ihn ihnen ist sind war waren bin bist sein seine seinen mein meine dein
        deine unser unsere hat habe haben hatte nicht kein keine auch noch nur schon mit von vom zu zum zur
        in im ins an am auf aus bei beim für über unter um nach vor durch als wie wenn dass ob weil dann da
        so sehr mal doch ja nein was wer wo wann warum wird werden wurde kann können muss müssen soll will
        wollen heute morgen gestern jetzt hier dort alle alles mehr diese dieser dieses man bis""",
    "french": """
        le la les un une des du de et ou mais je tu il elle on nous vous ils elles me te se moi toi lui leur mon ma
        mes ton ta tes son sa ses notre votre nos vos est sont suis es êtes être été était a ai as avons
        avez ont avoir avait ne pas plus que qui quoi dont où quand comment pourquoi ce cet cette ces ça
        c'est j'ai n'est qu'il d'un d'une dans en sur sous avec sans pour par chez vers au aux si bien très
        aussi encore déjà tout tous toute toutes y enfin fait faire peut va aujourd'hui demain hier ici""",
    "spanish": """
        el la los las un una unos unas de del y o u pero yo tú él ella nosotros ustedes ellos me te se le les lo nos
        mi mis tu tus su sus nuestro nuestra es son soy eres está están estoy estaba ser fue era ha he hay
        han había tiene tengo no sí que qué quién cómo cuándo dónde porque por para con sin en a al sobre
        entre hasta desde como más muy también ya todavía este esta esto ese esa eso si bien todo todos toda
        hoy mañana ayer aquí cuando va vamos""",
    "portuguese": """
        o a os as um uma uns umas de do da dos das e ou mas eu tu você ele ela nós vocês eles elas me te se lhe meu
        minha meus seu sua seus nosso nossa é são sou está estão estou era foi ser tem tenho há não sim que
        quem como quando onde porque qual quais por para pelo pela com sem em no na nos nas ao aos à às sobre entre até
        mais muito também já ainda este esta isto esse essa isso aquele se bem tudo todos hoje amanhã ontem
        aqui vai vamos""",
    "italian": """
        il lo la i gli le un uno una di del dello della dei degli delle e o ma io tu lui lei noi voi loro mi ti si
        ci vi mio mia tuo tua suo sua nostro è sono sei siamo era stato essere ha ho hai abbiamo hanno avere
        non sì che chi cosa come quando dove perché per con senza in nel nella nei al allo alla ai agli alle
        da dal dalla su sul sulla tra fra più molto anche già ancora questo questa questi quello quella se
        bene tutto tutti oggi domani ieri qui""",
    "dutch": """
        de het een en of maar ik jij je hij zij ze wij we jullie mij jou hem haar ons hun mijn jouw zijn is was
        waren ben bent heeft heb hebben had niet geen ook nog al alleen met van te tot in op aan uit bij
        voor over onder om na door als dan dat die dit deze er wat wie waar wanneer hoe waarom wordt worden
        kan kunnen moet moeten zal wil zeer heel wel naar vandaag morgen gisteren nu hier daar alle alles
        meer""",
    "swedish": """
        och eller men jag du han hon den det vi ni de mig dig sig oss er dem min din sin vår är var vara varit har
        hade inte ingen också bara med av till i på från för om under över efter som när att vad vem hur
        varför ska kan måste vill mycket nu här där en ett idag imorgon igår alla allt""",
    "polish": """
        i oraz lub ale ja ty on ona ono my wy oni mnie mi ci się go jej ich im mój moja twój jest są był była było
        być nie tak też tylko już jeszcze z ze w we na do od dla po przy o przed za jak kiedy gdzie co kto
        że czy bo bardzo to ten ta te tego tej dziś dzisiaj jutro wczoraj tu tam""",
    "turkish": """
        ve veya ama ben sen o biz siz onlar bana sana bu şu bir de da ki mi mı mu mü için ile gibi kadar çok daha en
        var yok değil ne kim nasıl neden nerede evet hayır bugün yarın dün""",
    "russian": """
        и или но а я ты он она оно мы вы они меня тебя его её нас вас их мне тебе ему ей нам вам им мой моя твой наш
        есть был была было были быть не нет да тоже только уже ещё в во на с со к ко от до из за по для при
        о об у как когда где что кто чем это этот эта эти тот так очень если бы же ли сегодня завтра вчера
        там здесь""",
    "indonesian": """
        dan atau tetapi tapi saya aku kamu anda dia kami kita mereka ini itu yang di ke dari untuk dengan pada
        adalah ada tidak bukan sudah akan bisa juga hanya lagi sangat lebih apa siapa kapan bagaimana karena
        oleh hari besok kemarin""",
}

_CONJUNCTIONS = {
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
    "indonesian": "dan",
}

_HAN = "\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_KATAKANA = "\u30a1-\u30fa\u30fc-\u30fe\u31f0-\u31ff\uff66-\uff9f"
_HIRAGANA = "\u3041-\u309f"
_HANGUL = "\u1100-\u11ff\u3131-\u318e\uac00-\ud7af"
_THAI_AND_NEIGHBOURS = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"

_OWN_WORDS = re.compile(f"[{_HAN}{_KATAKANA}{_HIRAGANA}{_HANGUL}{_THAI_AND_NEIGHBOURS}]")
_KANA = re.compile(f"[{_HIRAGANA}{_KATAKANA}]")
_JAPANESE_RUN = re.compile(f"[{_HAN}{_KATAKANA}]+")
_HAN_RUN = re.compile(f"[{_HAN}]+")
_HANGUL_RUN = re.compile(f"[{_HANGUL}]+")
_THAI_RUN = re.compile(f"[{_THAI_AND_NEIGHBOURS}]+")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_JAPANESE_WEAK = _words("""
    今日 明日 昨日 今週 来週 先週 今月 来月 先月 今年 来年 去年 今回 今度 最近 以前 以上 以下 皆様 私達
    自分 本当 本日 大丈夫 時間 最初 最後 一緒 全部 場合 予定 必要 結構 有難 御座 一番 毎日 今朝 今夜 午前
    午後
""")
_JAPANESE_DATE = re.compile(f"[{_HAN}]*[一二三四五六七八九十月日時分年回個人円火水木金土]$")

_CHINESE_BREAKS = re.compile(
    "我们|你们|他们|她们|咱们|我們|你們|他們|什么|什麼|怎么|怎麼|这个|那个|這個|那個|这些|那些|因为|因為|所以|但是|如果|可以|已经|已經|没有|"
    "沒有|还是|還是|就是|不是|一个|一個|一下|一起|现在|現在|今天|明天|昨天|下周|上周|本周|下週|上週|时候|時候|大家|自己|非常|觉得|覺得|知道|需要|"
    "应该|應該|然后|然後|或者|以及|关于|關於|星期[一二三四五六日天]|[的了吗嗎呢吧啊是我你您他她它这這那很把被就也们們与與给給着著在和请請]"
)
_CHINESE_EDGES = "会會要有对對为為到说說都不再去来來个個从從让讓将將还還又只能可想做看已一两兩三"
_THAI_BREAKS = re.compile("และ|หรือ|ที่|ของ|ให้|ได้|เป็น|ไม่|กับ|ว่า|ครับ|ค่ะ|คะ|นี้|นั้น|เรา|ฉัน|คุณ|เขา|แล้ว|จาก|ด้วย")
_KOREAN_ENDINGS = ("다", "요", "까", "죠", "지만", "는데")
_KOREAN_PARTICLES = (
    *("에서", "으로", "에게", "까지", "부터", "하고", "이랑", "처럼", "보다"),
    *("은", "는", "이", "가", "을", "를", "에", "의", "도", "로", "와", "과", "만"),
)
_KOREAN_WEAK = _words("""
    오늘 내일 어제 이번 다음 지난 우리 저희 그리고 그래서 하지만 정말 너무 아주 같이 함께 지금 보내 해서 있어 없어 안녕
""")

_LONGEST_CHINESE = 10
_LONGEST_JAPANESE = 12
_LONGEST_THAI = 24
_SHORTEST_THAI = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Language:
    """What a description must know of a language: the terms of its function words, and how it lists things."""

    function_terms: frozenset[str] = frozenset()
    conjunction: str = "and"
    capitalises_nouns: bool = False


ENGLISH = Language()


def language_of(tokens: Iterable[Token]) -> Language:
    """Return the language that most of the function words of a text belong to; English where it is unknown."""
    seen = Counter(token.term for token in tokens if not token.surface.isdigit())
    best, most = ENGLISH, max(1, sum(times for term, times in seen.items() if is_stopword(term)))
    for language in _known():
        times = sum(seen[term] for term in language.function_terms if term in seen)
        if times > most:
            best, most = language, times
    return best


def words_of(text: str, tokens: Sequence[Token]) -> Sequence[Token]:
    """Return the words of a text in order, those of scripts without spaces as a reader would mark them."""
    if text.isascii() or not _OWN_WORDS.search(text):
        return tokens
    words = [token for token in tokens if not _OWN_WORDS.search(token.surface)]
    limit = tokens[-1].end if tokens else 0
    for surface, start in _unspaced(text[:limit]):
        words.append(Token(surface, surface, start, start + len(surface)))
    words.sort(key=lambda word: word.start)
    return words


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
        particle = next((end for end in _KOREAN_PARTICLES if surface.endswith(end)), "")
        if particle and len(surface) - len(particle) >= 2:
            surface = surface[: -len(particle)]
        if len(surface) >= 2 and surface not in _KOREAN_WEAK:
            yield surface, run.start()


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


@cache
def _known() -> tuple[Language, ...]:
    return tuple(
        Language(
            function_terms=frozenset(term for word in words.split() for term in terms(word)),
            conjunction=_CONJUNCTIONS[name],
            capitalises_nouns=name == "german",
        )
        for name, words in _LANGUAGES.items()
    )
