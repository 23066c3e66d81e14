"""Finds words in scripts without spaces, as a reader would mark them, for the labels and summaries of nodes.

Without a dictionary they cannot be found exactly. What a person reads as one word is mostly a run of characters of one
kind between particles: ideographs and katakana in Japanese, the text between function words in Chinese and Thai, a word
without its particle in Korean.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_HAN = "\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_KATAKANA = "\u30a1-\u30fa\u30fc-\u30fe\u31f0-\u31ff\uff66-\uff9f"
_HIRAGANA = "\u3041-\u309f"
_HANGUL = "\u1100-\u11ff\u3131-\u318e\uac00-\ud7af"
_SYLLABLES = "\uac00-\ud7a3"
_THAI_AND_NEIGHBOURS = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"

_UNSPACED = re.compile(f"[{_HAN}{_KATAKANA}{_HIRAGANA}{_HANGUL}{_THAI_AND_NEIGHBOURS}]")
_KANA = re.compile(f"[{_HIRAGANA}{_KATAKANA}]")
_JAPANESE_RUN = re.compile(
    f"[{_HAN}{_KATAKANA}]+(?:(?<=[{_HAN}])[りきみちけれえめ](?=[のはがをにでとも、。]))?(?!し[たてまち]|する|さ[れせ]|でき)"
)
_HAN_RUN = re.compile(f"[{_HAN}]+")
_HANGUL_RUN = re.compile(f"[{_SYLLABLES}]+")
_THAI_RUN = re.compile(f"[{_THAI_AND_NEIGHBOURS}]+")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _word_tuple(text: str) -> tuple[str, ...]:
    return tuple(text.split())


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
    "要?多少钱?|大概|应该|應該|然后|然後|或者|以及|关于|關於|附近|星期[一二三四五六日天]|[的了吗嗎呢吧啊呀哦是我你您他她它这這那很太挺把被就也们們与與给給着著和在请請]"
)
_CHINESE_EDGES = "会會要有对對为為到说說都不再去来來个個从從让讓将將还還又只能可想做看已一两兩三找买買帮幫用等"
_THAI_BREAKS = re.compile(
    "และ|หรือ|ที่|ของ|ให้|ได้|เป็น|ไม่|กับ|ว่า|ครับ|ค่ะ|คะ|นี้|นั้น|เรา|ฉัน|คุณ|เขา|แล้ว|จาก|ด้วย|สวัสดี"
    "|ขอบคุณ|ขอโทษ|สบายดี|ไหม|มาก|โอเค|หรือยัง|จอง|ใกล้|ครั้ง|ต่อไป|วันนี้|พรุ่งนี้|เมื่อวาน|กำลัง|จะ|ก็|นะ|เลย|อยู่"
)
_KOREAN_ENDINGS = _word_tuple("""
    다 요 까 죠 지만 는데 했고 았고 었고 해서 아서 어서 려고 면서 세요 네요 있는 없는 하는 되는 같은 좋은 많은 려면
    다면 으면 니까 군요 해야 게요 어요
""")
_KOREAN_PARTICLES = _word_tuple("""
    에서 으로 에게 까지 부터 하고 이랑 처럼 보다
    은 는 이 가 을 를 에 의 도 로 와 과 만
""")
_KOREAN_WHOLE = _words("""
    고양이 강아지 아이 어린이 나이 놀이 먹이 높이 길이 종이 거북이 호랑이 회의 강의 동의 주의 제주도 휴가 평가
    물가 작가 국가 영화 보도 속도 온도 지도 정도 사과 결과 효과 도로 새로
""")
"""Nouns whose last syllable looks like a particle but belongs to the word."""

_KOREAN_WEAK = _words("""
    오늘 내일 어제 이번 다음 지난 우리 저희 그리고 그래서 하지만 정말 너무 아주 같이 함께 지금 보내 해서 있어
    없어 안녕 네 응 감사 화이팅 파이팅 축하 많이 매일 조금 그냥 혹시 아마 아직 벌써 다시 먼저 나중 여기 거기
    저기 이거 그거 그럼 그런데 근데 안녕히 주무 고마워 미안 괜찮 어떻게 얼마 언제 어디 누구 무엇 오전 오후 요일
    월요일 화요일 수요일 목요일 금요일 토요일 일요일 해요 봐요 가요 와요 줘요 했나 해야 했어 봐야 있다 없다 하나
    모두 모든 제가 내가 네가
""")

_LONGEST_CHINESE = 10
_LONGEST_JAPANESE = 12
_LONGEST_THAI = 24
_SHORTEST_THAI = 4


def is_in(text: str) -> bool:
    """Tell whether a text has characters of a script without spaces, or of Korean, whose particles join words."""
    return _UNSPACED.search(text) is not None


def words(text: str) -> Iterable[tuple[str, int]]:
    """Yield the words of a text in these scripts, each with its start."""
    if _KANA.search(text):
        yield from _japanese(text)
    else:
        yield from _between_breaks(
            text, _HAN_RUN, _CHINESE_BREAKS, _CHINESE_EDGES, shortest=2, longest=_LONGEST_CHINESE
        )
    yield from _korean(text)
    yield from _between_breaks(text, _THAI_RUN, _THAI_BREAKS, "", shortest=_SHORTEST_THAI, longest=_LONGEST_THAI)


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
            ""
            if surface in _KOREAN_WHOLE
            else next((end for end in _KOREAN_PARTICLES if _has_particle(surface, end)), "")
        )
        if particle:
            surface = surface[: -len(particle)]
        if len(surface) >= 2 and surface not in _KOREAN_WEAK:
            yield surface, run.start()


def _has_particle(surface: str, particle: str) -> bool:
    """Tell whether a Korean word ends with a particle, in the form that belongs after its last consonant or vowel."""
    if not surface.endswith(particle) or surface == particle:
        return False
    # A Hangul syllable's code tells its final consonant: 0 of 28 is none.
    ends_in_consonant = (ord(surface[-len(particle) - 1]) - 0xAC00) % 28 > 0
    return not (particle in "은이을과" and not ends_in_consonant) and not (particle in "는가를와" and ends_in_consonant)


def _between_breaks(
    text: str, runs: re.Pattern[str], breaks: re.Pattern[str], edges: str, *, shortest: int, longest: int
) -> Iterable[tuple[str, int]]:
    """Yield the pieces between function words in each run of a script, each with its start, if of a fitting length."""
    for run in runs.finditer(text):
        start = run.start()
        for stop, next_start in [
            *(match.span() for match in breaks.finditer(text, *run.span())),
            (run.end(), run.end()),
        ]:
            surface = text[start:stop].strip(edges) if edges else text[start:stop]
            if shortest <= len(surface) <= longest:
                yield surface, text.index(surface, start)
            start = next_start
