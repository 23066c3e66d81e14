"""Facts that a text states, or denies, of its writer, found by form (memory-tools; facts.toml). Pure.

Precision comes first. A text is read clause by clause: a clause states a fact only where all of it is a phrase of
facts.toml, at the beginning of a sentence or right after a clause that states one. So what stands behind "if", "she
says" or "I think" states nothing, and neither does what is quoted, listed, code, or material after a colon. What is
denied is read likewise: "I no longer live in Porto" withdraws the fact that says Porto, and no other.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from importlib import resources
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import ConfigDict, Field, TypeAdapter
from pydantic.dataclasses import dataclass as checked_dataclass

from myria.log.redaction.expressions import first_look, literal
from myria.notes.turns.facts import VALUE_BYTES, Fact, Tier

_READ = 4_000
"""Characters of a turn that are read: who writes more hands over material. It bounds what a turn costs, too."""

_MOST_FACTS = 16
"""Facts that one turn states at most."""

_LEAST_PART = 4
"""Letters by which a word of Latin letters is known by its part."""

_MOST_CLAUSE = 2 * VALUE_BYTES
_MOST_WORDS = 8
_MOST_NAME_WORDS = 5
_MOST_LISTED_WORDS = 4
_MOST_UNSPACED = 10
_LEAST_QUESTION = 4
"""Words of a question from which on what comes before its comma is no part of it ("..., isn't it?" is)."""

_SLOT = "…"
_FENCED = re.compile(r"```.*?(?:```|\Z)|`[^`\n]*`", re.DOTALL)
_QUOTED = re.compile(
    r"""["“”„«»「『][^"“”„«»「『」』]*["“”»«」』]|(?<!\w)['‘][^'‘’\n]{0,400}['’](?!\w)|["“„«「『].*\Z""", re.DOTALL
)
_ASIDE = re.compile(r"^[ \t]*(?:[-*•+>#|]|\d+[.)]|[a-zA-Z]\)|\t| {4}).*$", re.MULTILINE)
_SPACES = re.compile(r"[^\S\n]+")
_MATERIAL = re.compile(r"[:：](?=\s|[^\x00-\x7f]|\Z)")
_SENTENCE_END = re.compile(
    r"(?:(?<!\b\w)(?<!\bSt)(?<!\bDr)(?<!\bMr)(?<!\bMs)(?<!\bMrs)(?<!\bSte)(?<!\.)\.(?=\s|\Z)|[!?。！？¿¡;；\n\r]|(?:\.{2,}|…)(?!\.*\s*[^\W\d_A-Z]))+"
)
_NO_LONGER = re.compile(r"\bnão (\w+) mais (?=\w)", re.IGNORECASE)
"""Portuguese "não moro mais em": read as "já não moro em", since "mais" joins clauses in French."""

_POLITE = re.compile(
    r" (?:please|thanks|thank you|bitte|danke|por favor|gracias|merci|too|as well|auch)\Z", re.IGNORECASE
)
_NO_VALUE = re.compile(r"[{}<>=\\|@#$^~_*%+\[\]/:\"\N{REPLACEMENT CHARACTER}]|\[redacted_", re.IGNORECASE)
_WORD = re.compile(r"[^\W_]+")
_NAME_WORD = re.compile(r"[^\W\d_]+(?:[-'][^\W\d_]+)*\.?")
_UNSPACED = re.compile(r"[\u3005\u3040-\u30ff\u3400-\u9fff]")
_CHINESE_NAME = re.compile(r"[\u4e00-\u9fff]{2,4}")
_GRAMMAR = re.compile(r"[のがをはにでもと个的字語]|仮名|カナ|[\u4e00-\u9fff]し?い\Z|[은는을를] ")
_HANGUL = re.compile(r"[\uac00-\ud7a3]")
_KOREAN_NAME = re.compile(r"[\uac00-\ud7a3]{3}")
_PLACE = re.compile(r"(?:\S{2,} )?\S{2,}(?:(?<![城都小])[市镇町]|[省县縣県府郡]|(?<!도)시|[도군구동])")
_SOMEBODYS = re.compile(r"[A-Z]\w*'s\b")


@checked_dataclass(frozen=True, slots=True, kw_only=True, config=ConfigDict(extra="forbid"))
class Rule:
    """How one fact is stated; facts.toml says what each field means."""

    fact_id: str
    key: str
    tier: Tier
    confidence: Annotated[float, Field(ge=0, le=1)]
    form: Literal["name", "place", "diet", "thing", "allergen", "task"]
    phrases: tuple[str, ...]
    denied: tuple[str, ...] = ()
    each: bool = False
    alone: bool = False
    always: bool = False
    about: tuple[str, ...] = ()

    def fact(self, value: str) -> Fact:
        """Return the fact that it finds."""
        fact_id = f"{self.fact_id}:{value.lower()}" if self.each else self.fact_id
        return Fact(fact_id=fact_id, key=self.key, value=value, tier=self.tier, confidence=self.confidence)


class StatedFacts(NamedTuple):
    """What texts say of their writer: facts in the order of the rules, and those denied, by the places of the texts."""

    facts: tuple[Fact, ...] = ()
    denied: tuple[tuple[int, Fact], ...] = ()


class _Clause(NamedTuple):
    """What a clause states, or denies; `alone` tells that it is certain only where nothing follows."""

    rule: Rule
    value: str
    alone: bool
    is_denied: bool


@cache
def _file() -> dict[str, Any]:
    return tomllib.loads(resources.files("myria.notes.turns").joinpath("facts.toml").read_text(encoding="utf-8"))


@cache
def rules() -> tuple[Rule, ...]:
    """Return the rules of facts.toml in the file's order."""
    return TypeAdapter(tuple[Rule, ...]).validate_python(_file()["rules"])


@cache
def words_of(name: str) -> frozenset[str]:
    """Return a list of words of facts.toml."""
    return frozenset(_file()["words"][name])


@cache
def _phrases() -> tuple[tuple[Rule, str, str, bool], ...]:
    """Return what comes before and after the value of each phrase, and whether it denies, the longest phrase first."""
    phrases = [
        (rule, phrase, is_denied)
        for rule in rules()
        for is_denied, said in ((False, rule.phrases), (True, rule.denied))
        for phrase in said
    ]
    phrases.sort(key=lambda each: -len(each[1]))
    parts = ((rule, phrase.partition(_SLOT), is_denied) for rule, phrase, is_denied in phrases)
    return tuple((rule, before, after, is_denied) for rule, (before, _, after), is_denied in parts)


@cache
def _first_look() -> Any:
    """Return what tells in time linear in a text, and small, that no rule's phrase is in it."""
    parts = {max(before, after, key=len) for _, before, after, _ in _phrases()}
    return first_look("|".join(r"\s+".join(map(literal, part.split())) for part in parts))


def _any_of(texts: Iterable[str]) -> str:
    """Return the expression of any of some texts, the longest first."""
    return "|".join(map(re.escape, sorted(texts, key=lambda text: (-len(text), text))))


@cache
def _separator() -> re.Pattern[str]:
    """Return what stands between two clauses: a mark, what contrasts them, or an "and" before another statement."""
    begun = {before for rule, before, *_ in _phrases() if rule.form != "diet" and before}
    bare = {before.removeprefix(subject) for before in begun for subject in words_of("subject")}
    other = rf"{_any_of(begun | bare)}|(?:{_any_of(words_of('another'))}) "
    joins = rf" (?:{_any_of(words_of('but'))})(?= )| (?:{_any_of(words_of('and'))}) (?={other})"
    return re.compile(rf" ?(?:[,，、(（)）—–…]|\.{{2,}}) ?| -+ |{joins}", re.IGNORECASE)


@cache
def _lead() -> re.Pattern[str]:
    return re.compile(rf"(?:(?:{_any_of(words_of('lead'))})(?!\w)(?: [^ ,，]+[,，])?[ ,，、]*)+", re.IGNORECASE)


@cache
def _doubt() -> re.Pattern[str]:
    return re.compile(rf"(?:{_any_of(words_of('doubt'))})(?!\w)|not\Z|no\Z", re.IGNORECASE)


@cache
def _not_meant() -> re.Pattern[str]:
    return re.compile(rf"(?<![a-zA-Z])(?:{_any_of(words_of('not_meant'))})", re.IGNORECASE)


@cache
def _no_more() -> re.Pattern[str]:
    return re.compile(rf"\b(?:{_any_of(words_of('no_more'))})", re.IGNORECASE)


@cache
def _at_its_end() -> re.Pattern[str]:
    return re.compile(rf" (?:{_any_of(words_of('no_more'))})\Z", re.IGNORECASE)


def statements_in(texts: Iterable[str]) -> StatedFacts:
    """Return what texts say of whoever wrote them. Of one identity the first fact counts, unless it is denied later."""
    found: dict[str, Fact] = {}
    denied: dict[str, tuple[int, Fact]] = {}
    order: dict[str, int] = {}
    left = _READ
    for place, written in enumerate(texts):
        begun = _NO_LONGER.sub(r"já não \1 ", written[:left].replace("\N{RIGHT SINGLE QUOTATION MARK}", "'"))
        if _first_look().search(begun.encode("utf-8", "surrogatepass")) is None:
            continue
        left -= len(begun)
        for clause in _stated(begun):
            fact = clause.rule.fact(clause.value)
            if not clause.is_denied:
                denied.pop(fact.identity, None)
                found.setdefault(fact.identity, fact)
                order.setdefault(fact.identity, rules().index(clause.rule))
            elif fact.identity not in found or found[fact.identity].is_denied_by(fact):
                found.pop(fact.identity, None)
                denied[fact.identity] = (place, fact)
    facts = sorted(found.values(), key=lambda fact: order[fact.identity])
    return StatedFacts(facts=tuple(facts[:_MOST_FACTS]), denied=tuple(denied.values())[:_MOST_FACTS])


def _stated(text: str) -> Iterator[_Clause]:
    """Yield what the clauses of a text state and deny."""
    for aside, stands_for in ((_ASIDE, ""), (_FENCED, ' " '), (_QUOTED, ' " '), (_SPACES, " ")):
        text = aside.sub(stands_for, text)
    if _not_meant().search(text) is not None:
        return
    if (material := _MATERIAL.search(text)) is not None:
        text = text[: material.start()]
    begin = 0
    for end in _SENTENCE_END.finditer(f"{text}\n"):
        yield from _of_sentence(text[begin : end.start()].strip(), is_question=any(mark in end[0] for mark in "?？"))
        begin = end.end()


def _of_sentence(sentence: str, *, is_question: bool) -> list[_Clause]:
    if (lead := _lead().match(sentence)) is not None:
        sentence = sentence[lead.end() :]
    clauses = [clause for clause in _separator().split(sentence) if clause]
    found: list[_Clause] = []
    for place, clause in enumerate(clauses):
        stated = next(filter(None, map(_of_clause, _said_whole(clause, follows=place > 0))), None)
        if stated is None:
            break
        found.append(stated)
    rest = clauses[len(found) :]
    if any(clause.alone for clause in found) and rest and not all(map(_is_capitalised, " ".join(rest).split())):
        return []
    if not found or _doubt().match(tail := " ".join(rest)) is not None:
        return []
    if is_question and len(tail.split()) < _LEAST_QUESTION:
        return []
    return _with_list(found, rest)


def _with_list(found: Sequence[_Clause], rest: Sequence[str]) -> list[_Clause]:
    """Return what is stated, with what the clauses after it add to the last value: more things, or where a place is."""
    *others, last = found
    rule, first = last.rule, last.value
    if rule.form == "place":
        belongs = len(rest) == 1 and all(map(_is_capitalised, rest[0].split()))
    else:
        are_short = all(len(clause.split()) <= _MOST_LISTED_WORDS for clause in rest)
        belongs = bool(rest) and are_short and not words_of("and").isdisjoint(rest[-1].lower().split()[:-1])
    if not belongs or rule.form in ("name", "diet"):
        return list(found)
    listed = ", ".join([first, *rest])
    is_value = rule.form == "place" or _value(rule, "", listed)
    return [*others, last._replace(value=listed)] if is_value else others


def _said_whole(clause: str, *, follows: bool) -> Iterator[str]:
    """Yield a clause, and what it says where it leaves out its subject after another clause."""
    yield clause
    if follows:
        joined, _, said = clause.partition(" ")
        whole = said if joined.lower() in words_of("and") else clause
        yield whole
        yield from (f"{subject}{whole}" for subject in words_of("subject"))


def _of_clause(clause: str) -> _Clause | None:
    """Return what a clause states or denies where it is a phrase of a rule."""
    lowered = clause.lower()
    if len(clause) > _MOST_CLAUSE or clause.isupper() or len(lowered) != len(clause):
        return None  # where all letters are capitals, they tell no name
    for rule, before, after, is_denied in _phrases():
        if lowered.startswith(before) and lowered.endswith(after):
            said, given = clause[: len(before)], clause[len(before) : len(clause) - len(after)]
            if said.istitle() and " " in said.strip():
                return None  # a title, such as that of a film
            if is_denied:
                given = _at_its_end().sub("", given.strip())
            value = _value(rule, before, given)
            if value and not is_denied:
                return _Clause(rule, value, rule.alone, is_denied=False)
            if value and value == given:  # of what is denied with more words, part may hold
                return _Clause(rule, value, _no_more().search(clause) is None, is_denied=True)
    return None


def _value(rule: Rule, before: str, given: str) -> str:
    """Return the value that a phrase has, empty where it is none by its form."""
    value = _POLITE.sub("", given.strip())
    if not value or len(value.encode()) > VALUE_BYTES or _NO_VALUE.search(value) is not None:
        return ""
    if rule.form in ("thing", "allergen", "task"):
        if rule.form == "allergen" and not _names_allergen(value):
            return ""
        is_own = rule.form == "thing" and not words_of("own").isdisjoint(value.lower().split())
        return value if _is_thing(value) and not is_own else ""
    if rule.form == "diet":
        return _leading(value, lambda word: word.lower() in words_of("diet"), most=1)
    if len(value) == 1 or not words_of("no_name").isdisjoint({value, *value.split()}):
        return ""
    if value[0].isupper() or value[0].islower():
        return _leading(value, _is_capitalised, most=_MOST_NAME_WORDS)
    return value if _is_name_without_capitals(value, before, rule.form) else ""


def _leading(value: str, is_one: Callable[[str], bool], *, most: int) -> str:
    """Return the words with which a value begins that are of a kind, where nothing else but a new thought follows."""
    words = value.split()
    belongs = [is_one(word) or word in words_of("particle") for word in words]
    count = belongs.index(False) if False in belongs else len(words)
    while count and not is_one(words[count - 1]):
        count -= 1  # a particle joins two words
    rest = words[count:]
    goes_on = not rest or (rest[0].lower() in words_of("goes_on") and not (len(rest) > 1 and is_one(rest[1])))
    begins = count > 0 and is_one(words[0])
    return " ".join(words[:count]) if begins and count <= most and goes_on else ""


def _is_capitalised(word: str) -> bool:
    return word[0].isupper() and word != "I" and _NAME_WORD.fullmatch(word) is not None and not word.startswith("I'")


def _is_name_without_capitals(value: str, before: str, form: str) -> bool:
    """Tell whether a value of a script without capitals is a name, or a place that is known or ends as they do."""
    if len(value) > _MOST_UNSPACED or _has_vague_part(value):
        return False
    if form == "place":
        return value in words_of("place") or (_PLACE.fullmatch(value) is not None and _GRAMMAR.search(value) is None)
    family = _file()["words"]["family"]
    if before in words_of("before_chinese_name"):
        return value[0] in family and _CHINESE_NAME.fullmatch(value) is not None
    if _HANGUL.search(value) is not None:
        return value[0] in family and _KOREAN_NAME.fullmatch(value) is not None
    return _GRAMMAR.search(value) is None


def _has_vague_part(value: str) -> bool:
    return any(part in value for part in words_of("vague_part"))


def _names_allergen(value: str) -> bool:
    """Tell whether a value has a word that is an allergen, or begins or ends as one: of other things people joke."""
    words = [word.lower() for word in _WORD.findall(value)]
    parts = tuple(part for part in words_of("allergen") if len(part) >= _LEAST_PART or not part.isascii())
    return any(word in words_of("allergen") or word.startswith(parts) or word.endswith(parts) for word in words)


def _is_thing(value: str) -> bool:
    """Tell whether a value stands by itself, wherever it is read again."""
    words = [word.lower() for word in _WORD.findall(value)]
    if not words or len(words) > _MOST_WORDS or "n't" in value or words[0] in words_of("vague_first"):
        return False
    is_unspaced = _UNSPACED.search(value) is not None
    if (is_unspaced and (len(value) > 2 * _MOST_UNSPACED or value[-1] == "の")) or (
        not is_unspaced and len(value) == 1
    ):
        return False
    return _SOMEBODYS.search(value) is None and words_of("vague").isdisjoint(words) and not _has_vague_part(value)
