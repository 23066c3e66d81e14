"""Finds words by which a text tells that something has changed: "The Golf is sold", "no Kickstarter after all".

A short, fixed list of English phrases by which people tell of a change. What a sentence with one of them is about may
have replaced what was said before about the same: evidence for a ranking, never a rule that hides anything. Texts in
other languages have no such words and are ranked as if nothing ever changed.
"""

from __future__ import annotations

import re
from typing import Any, Final

import re2

from myria.text.words import is_stopword, terms

MAX_CHANGED: Final = 24
"""Most words kept of a text: its first ones."""

_MEMORY_BYTES: Final = 32 << 20
"""Memory for the states of the expression: enough that none must be built twice."""
_READ_BYTES: Final = 8 * 1024

_WHOLE_WORDS: Final = 30
"""A text of fewer words is about one thing: all its terms belong to the change, not only those of the sentence."""

_WILD: Final = {"*": r"(?:[\w']+ ){0,4}", "~": r"[\w'-]+ "}
_DAY: Final = "(?:monday|tuesday|wednesday|thursday|friday|saturday|sunday)"
_MONTH: Final = "(?:january|february|march|april|may|june|july|august|september|october|november|december)"
_PHRASES: Final = """
no longer
no more
not * any more
not * any longer
never * again
anymore
any more
from now on
from today
from tomorrow
from next week
from next month
from DAY
from MONTH
as of (today|now|next|DAY|MONTH)
(from|as of|starting|beginning|commencing) ((on|in)\\s)?(the\\s)?[0-9]+(st|nd|rd|th)? (of\\s)?MONTH
(starting|beginning|commencing) ((on|in|from)\\s)?(next|tomorrow|DAY|MONTH)
from next (DAY|year)
effective (from|on|as|next|DAY|MONTH|[0-9]+)
with effect from
these days
nowadays
no ~ after all
not ~ after all
turns out (the|my|our|it)
turned out (the|my|our|it)
switched (to|from|over|back|jobs|schools|teams|sides|it|my|our)
swapped
traded (in|it|my|our|the)
upgraded (to|my|our|the|it)
downgraded
migrated
(went|go|goes|gone|moved|changed|came) (over|back) to
moved (to|into|in|out|away|back|my|our|the|it|them|him|her)
relocated
transferred
(gave|given) up
giving up (on|my|the|our)
quit
stopped (my|the|our|going|eating|drinking|smoking|using|working|taking|doing|seeing|playing)
dropped (it|that|this|the|out|my|our|them)
(is|are|got|been|have|has) sold
sold (the|my|our|his|her|their|it)
got rid of
ditched
scrapped
abandoned
replaced
replaces
changed (to|from|jobs|schools|teams|sides|names|banks|doctors|our|its)
became
called (it|that|this|everything) off
called off
cancelled
canceled
had to cancel
had to (push|move|change|drop|postpone|sell)
fell through
postponed
rescheduled
pushed (it|back|the)
push the
put off
brought forward
retired
resigned
promoted
laid off
passed away
broke up
split up
divorced
it's over
(is|are) (out|off|over|gone)
called the
closed (the|my|our|down|for)
shut down
shut (the|my|our) ~ down
halved
doubled
(raised|lowered|increased|reduced|extended) (the|my|our|it|to)
(goes|went|go) (up|down) (to|by)
settled (on|for)
talked (me|us) (into|out)
in (its|his|her|their) place
(taken|took|takes) (my|our|his|her|their|its|[\\w-]+'s) place
(taken|took|takes|take) over
(got|found|has|have|is) another
renamed
for the first time
in favor of
in favour of
outgrew
outgrown
(i'm|we're|he's|she's|they're|it's) ~ now
(is|are|live|lives|works|work|am) ~ now
(is|are|live|lives|works|work|am) (in|at|on|with|for|by|a|an|the) * now
for (me|us|him|her|them) now
now (i|we|he|she|it|they) (am|is|are|use|uses|live|lives|work|works|go|goes|have|has|do|does|prefer|take|drive|eat)
(i|we) changed our minds
changed (my|our|his|her|their) mind
scratch that
i was wrong
was wrong
(my|our|his|her|their) new ~ (is|are)
like it much better
said goodbye to
days without
weeks without
that makes (two|three|four|five|six)
caved in
took ~ on
(has|have) taken (me|us|him|her|them) on
(got|has) company
went to live
(a|an) new ~ (now|instead)
"""

_SIGN_WORDS: Final = """
now new anymore instead changed renamed reassigned
jetzt nun neu neue neuer neues neuen neuem künftig inzwischen mittlerweile neuerdings stattdessen umgezogen gewechselt
geändert verschoben verlegt ersetzt abgelöst umbenannt ab_sofort nicht_mehr kein_mehr keine_mehr keinen_mehr
maintenant désormais dorénavant nouveau nouvel nouvelle changé déménagé déplacé déplacée remplacé remplacée remplace
reporté reportée
ahora nuevo nueva cambió cambiaron cambiado trasladó reemplaza sustituye mudó mudaron ya_no pasó_a pasaron_a
agora novo nova mudou mudaram mudei mudamos trocou trocamos substitui adiado adiada já_não passou_a passou_para
adesso ormai nuovo nuova cambiato cambiata trasferito trasferita spostato spostata sostituisce
nu nieuw nieuwe voortaan veranderd verhuisd verplaatst vervangen gewijzigd niet_meer
teraz nowy nowa nowe zmienił zmieniła przeniesiony przeniesione przeprowadził przeprowadziła odtąd już_nie
теперь сейчас отныне новый новая новое новые вместо переехал переехала сменил сменила изменился изменилась перенесли
перенесён перенесено заменил заменила больше_не
artık yeni şimdi değişti taşındı ertelendi
numera flyttat flyttades ändrat ändrades istället inte_längre
"""
_SIGNS: Final = re.compile(rf"(?<!\w)(?:{'|'.join(_SIGN_WORDS.split())})(?!\w)".replace("_", r"\s+"))
"""Single words that tell of a change, in languages with spaces between words."""

_WORDS_WITHIN: Final = """
今は 今では 現在は 新しい に変わ に変更 変更され 変更し になりました になった 移転 引っ越 移りまし 延びまし 延期
现在 現在 改为 改成 改到 换成 換成 搬到 搬家 不再 新的 推迟
이제 새로운 바뀌 바뀐 변경 이사 옮겼 미뤄 เปลี่ยน ย้าย ใหม่ ตอนนี้ الآن الجديد تغير انتقل
"""
_UNSPACED_SIGNS: Final = tuple(_WORDS_WITHIN.split())
"""The same in languages without spaces, or with other words joined to them."""


_LIVING: Final = re.compile(
    r"(?<!\w)(?:lives?|living|resides?|located|based|wohn(?:t|e|en)|leb(?:t|e|en)|vive[ns]?|vivo|vivimos|mor[ao]|moram|habit(?:e|ent)"
    r"|abit[ao]|woont|woon|wonen|mieszkam?|жив[её]т|живу|живут|находится)(?!\w)|住んで|にあります|位于|住在|살고|에 있"
)
_MOVING: Final = re.compile(
    r"(?<!\w)(?:moved|relocated|umgezogen|gezogen|zogen|zog|mud(?:ó|é|aron|ado|amos|ou|ei|aram)|déménagée?s?|trasferit[aoi]|verhuisd"
    r"|przeprowadził[ao]?|переехал[аио]?)(?!\w)|引っ越|移転|搬到|搬家|이사"
)
"""Words for where somebody or something is (`_LIVING`), and for moving elsewhere (`_MOVING`): the most frequent change,
though the two share no words."""


def tells_where(text: str) -> bool:
    """Tell whether a short text says where somebody lives or where something is."""
    return _LIVING.search(text[:_READ_BYTES].casefold()) is not None


def tells_of_move(text: str) -> bool:
    """Tell whether a short text says that somebody or something has moved."""
    return _MOVING.search(text[:_READ_BYTES].casefold()) is not None


def changed(text: str) -> list[str]:
    """Return the terms of what has changed according to a text, in document order, each once; none for most texts."""
    lowercase = text[:_READ_BYTES].lower().replace("\u2019", "'").encode("utf-8", "replace")[:_READ_BYTES]
    if not _CHANGES.Match(lowercase):
        return []
    changed_terms: list[str] = []
    if lowercase.count(b" ") < _WHOLE_WORDS:
        changed_terms = terms(lowercase.decode("utf-8", "ignore"))
    else:
        for sentence in _SENTENCES.split(lowercase):
            if _CHANGES.Match(sentence):
                changed_terms += terms(sentence.decode("utf-8", "ignore"))
    return [term for term in dict.fromkeys(changed_terms) if not is_stopword(term)][:MAX_CHANGED]


def tells_of_change(text: str) -> bool:
    """Tell whether a short text says that something is no longer as it was, in any of the languages known here.

    Only for decisions on reading: what is stored rests on the English phrases alone (`changed`).
    """
    lowercase = text[:_READ_BYTES].casefold()
    if any(sign in lowercase for sign in _UNSPACED_SIGNS) or _SIGNS.search(lowercase):
        return True
    return bool(_CHANGES.Match(lowercase.replace("\u2019", "'").encode("utf-8", "replace")[:_READ_BYTES]))


def _phrase_expression(phrase: str) -> str:
    """Return the expression of a phrase; `*` stands for up to four words, `~` for one, DAY and MONTH for any name."""
    words = [_WILD.get(word) or f"{word.replace('(', '(?:')} " for word in phrase.split()]
    return "".join(words).rstrip(" ").replace("DAY", _DAY).replace("MONTH", _MONTH)


def _compile_phrases() -> Any:
    """Return the phrases as an RE2 set of one expression: a set tells whether one matches in half a search's time."""
    options = re2.Options()
    options.never_capture = True
    options.max_mem = _MEMORY_BYTES
    alternatives = "|".join(_phrase_expression(phrase) for phrase in _PHRASES.strip().split("\n"))
    expressions = re2.Set.SearchSet(options)
    expressions.Add(rf"\b(?:(?:{alternatives})\b|instead[.,;!]|instead$)".replace(" ", r"\s"))
    expressions.Compile()
    return expressions


_CHANGES = _compile_phrases()
_SENTENCES = re.compile(rb"[.!?\n]+(?:\s|$)")
