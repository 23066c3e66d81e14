"""Find the facts that a text states or denies of its writer, by the form of its clauses (memory-tools). Pure.

Precision comes first. A text is read clause by clause: a clause states a fact only where all of it is a phrase of
facts.toml, at the beginning of a sentence or right after a clause that states one. So a clause behind "if", "she says"
or "I think" states nothing, and neither do quotes, list items, code, or material after a colon. Denials are read
likewise: "I no longer live in Porto" withdraws the fact that says Porto, and no other.
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
"""Characters of a turn that are read: a longer text is material, not talk. The bound also limits what a turn costs."""

_MOST_FACTS = 16
"""Facts that one turn states at most."""

_LEAST_PART = 4
"""Letters from which on an allergen of ASCII letters is also found at the beginning or end of a longer word."""

_MOST_CLAUSE = 2 * VALUE_BYTES
_MOST_WORDS = 8
_MOST_NAME_WORDS = 5
_MOST_LISTED_WORDS = 4
_MOST_UNSPACED = 10
_LEAST_QUESTION = 4
"""Words of a question behind a statement from which on the statement stands; with fewer it is a tag that asks about
the statement ("I live in Porto, don't I?")."""

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
        """Return the fact that this rule states with a value."""
        fact_id = f"{self.fact_id}:{value.lower()}" if self.each else self.fact_id
        return Fact(fact_id=fact_id, key=self.key, value=value, tier=self.tier, confidence=self.confidence)


class StatedFacts(NamedTuple):
    """Facts that texts state of their writer, in the order of the rules, and those denied, with their texts' places."""

    facts: tuple[Fact, ...] = ()
    denied: tuple[tuple[int, Fact], ...] = ()


class _Clause(NamedTuple):
    """The fact that a clause states or denies; `alone` says that it counts only where no other words follow."""

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
    """Return the words of the list with a name in facts.toml."""
    return frozenset(_file()["words"][name])


@cache
def _phrases() -> tuple[tuple[Rule, str, str, bool], ...]:
    """Return each phrase as its rule, the texts before and after its value, and whether it denies; longest first."""
    phrases = [
        (rule, phrase, is_denied)
        for rule in rules()
        for is_denied, texts in ((False, rule.phrases), (True, rule.denied))
        for phrase in texts
    ]
    phrases.sort(key=lambda item: -len(item[1]))
    parts = ((rule, phrase.partition(_SLOT), is_denied) for rule, phrase, is_denied in phrases)
    return tuple((rule, before, after, is_denied) for rule, (before, _, after), is_denied in parts)


@cache
def _first_look() -> Any:
    """Return the expression that tells, in little and linear time, that a text has no phrase of any rule."""
    parts = {max(before, after, key=len) for _, before, after, _ in _phrases()}
    return first_look("|".join(r"\s+".join(map(literal, part.split())) for part in parts))


def _any_of(texts: Iterable[str]) -> str:
    """Return the regular expression that matches any of some texts, the longest first."""
    return "|".join(map(re.escape, sorted(texts, key=lambda text: (-len(text), text))))


@cache
def _separator() -> re.Pattern[str]:
    """Return the expression of what divides clauses: a mark, a "but", or an "and" before another statement."""
    beginnings = {before for rule, before, *_ in _phrases() if rule.form != "diet" and before}
    without_subject = {before.removeprefix(subject) for before in beginnings for subject in words_of("subject")}
    next_statement = rf"{_any_of(beginnings | without_subject)}|(?:{_any_of(words_of('another'))}) "
    conjunctions = rf" (?:{_any_of(words_of('but'))})(?= )| (?:{_any_of(words_of('and'))}) (?={next_statement})"
    return re.compile(rf" ?(?:[,，、(（)）—–…]|\.{{2,}}) ?| -+ |{conjunctions}", re.IGNORECASE)


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
    """Return the facts that texts state and deny of their writer.

    Of several facts of one identity the first counts, unless a later text or clause denies it.
    """
    found: dict[str, Fact] = {}
    denied: dict[str, tuple[int, Fact]] = {}
    rule_index: dict[str, int] = {}
    room = _READ
    for place, text in enumerate(texts):
        readable = _NO_LONGER.sub(r"já não \1 ", text[:room].replace("\N{RIGHT SINGLE QUOTATION MARK}", "'"))
        if _first_look().search(readable.encode("utf-8", "surrogatepass")) is None:
            continue
        room -= len(readable)
        for clause in _clauses_in(readable):
            fact = clause.rule.fact(clause.value)
            if not clause.is_denied:
                denied.pop(fact.identity, None)
                found.setdefault(fact.identity, fact)
                rule_index.setdefault(fact.identity, rules().index(clause.rule))
            elif fact.identity not in found or found[fact.identity].is_denied_by(fact):
                found.pop(fact.identity, None)
                denied[fact.identity] = (place, fact)
    facts = sorted(found.values(), key=lambda fact: rule_index[fact.identity])
    return StatedFacts(facts=tuple(facts[:_MOST_FACTS]), denied=tuple(denied.values())[:_MOST_FACTS])


def _clauses_in(text: str) -> Iterator[_Clause]:
    """Yield the facts that the clauses of a text state and deny."""
    for pattern, substitute in ((_ASIDE, ""), (_FENCED, ' " '), (_QUOTED, ' " '), (_SPACES, " ")):
        text = pattern.sub(substitute, text)
    if _not_meant().search(text) is not None:
        return
    if (material := _MATERIAL.search(text)) is not None:
        text = text[: material.start()]
    begin = 0
    for sentence_end in _SENTENCE_END.finditer(f"{text}\n"):
        yield from _clauses_of_sentence(
            text[begin : sentence_end.start()].strip(), is_question=any(mark in sentence_end[0] for mark in "?？")
        )
        begin = sentence_end.end()


def _clauses_of_sentence(sentence: str, *, is_question: bool) -> list[_Clause]:
    """Return the facts of a sentence's first clauses, up to the first clause that states none.

    The clauses behind decide whether they count: doubt there, or the end of a short question, takes them all back.
    """
    if (lead := _lead().match(sentence)) is not None:
        sentence = sentence[lead.end() :]
    clauses = [clause for clause in _separator().split(sentence) if clause]
    stating: list[_Clause] = []
    for index, clause in enumerate(clauses):
        stated = next(filter(None, map(_read_clause, _with_subject(clause, follows=index > 0))), None)
        if stated is None:
            break
        stating.append(stated)
    rest = clauses[len(stating) :]
    if any(clause.alone for clause in stating) and rest and not all(map(_is_capitalised, " ".join(rest).split())):
        return []
    if not stating or _doubt().match(rest_text := " ".join(rest)) is not None:
        return []
    if is_question and len(rest_text.split()) < _LEAST_QUESTION:
        return []
    return _with_list(stating, rest)


def _with_list(stating: Sequence[_Clause], rest: Sequence[str]) -> list[_Clause]:
    """Return stating clauses, the last one's value extended by the clauses behind: more things, or a place's region."""
    *others, last = stating
    rule, first = last.rule, last.value
    if rule.form == "place":
        extends_value = len(rest) == 1 and all(map(_is_capitalised, rest[0].split()))
    else:
        are_short = all(len(clause.split()) <= _MOST_LISTED_WORDS for clause in rest)
        extends_value = bool(rest) and are_short and not words_of("and").isdisjoint(rest[-1].lower().split()[:-1])
    if not extends_value or rule.form in ("name", "diet"):
        return list(stating)
    whole_value = ", ".join([first, *rest])
    is_value = rule.form == "place" or _value(rule, "", whole_value)
    return [*others, last._replace(value=whole_value)] if is_value else others


def _with_subject(clause: str, *, follows: bool) -> Iterator[str]:
    """Yield a clause and, behind another clause, also without its "and" and with each subject it may leave out."""
    yield clause
    if follows:
        first_word, _, rest = clause.partition(" ")
        bare = rest if first_word.lower() in words_of("and") else clause
        yield bare
        yield from (f"{subject}{bare}" for subject in words_of("subject"))


def _read_clause(clause: str) -> _Clause | None:
    """Return the fact that a clause states or denies; None where the clause is no phrase of any rule."""
    lowered = clause.lower()
    if len(clause) > _MOST_CLAUSE or clause.isupper() or len(lowered) != len(clause):
        return None  # where all letters are capitals, they tell no name
    for rule, before, after, is_denied in _phrases():
        if lowered.startswith(before) and lowered.endswith(after):
            beginning, value_text = clause[: len(before)], clause[len(before) : len(clause) - len(after)]
            if beginning.istitle() and " " in beginning.strip():
                return None  # a title, such as that of a film
            if is_denied:
                value_text = _at_its_end().sub("", value_text.strip())
            value = _value(rule, before, value_text)
            if value and not is_denied:
                return _Clause(rule, value, rule.alone, is_denied=False)
            if value and value == value_text:  # a longer denied text may deny only part of itself
                return _Clause(rule, value, _no_more().search(clause) is None, is_denied=True)
    return None


def _value(rule: Rule, before: str, text: str) -> str:
    """Return a phrase's value without politeness behind it; empty where it does not fit the form of the rule.

    Args:
        before: the words of the phrase before the value.
    """
    value = _POLITE.sub("", text.strip())
    if not value or len(value.encode()) > VALUE_BYTES or _NO_VALUE.search(value) is not None:
        return ""
    if rule.form in ("thing", "allergen", "task"):
        if rule.form == "allergen" and not _names_allergen(value):
            return ""
        is_possessive = rule.form == "thing" and not words_of("own").isdisjoint(value.lower().split())
        return value if _is_thing(value) and not is_possessive else ""
    if rule.form == "diet":
        return _leading(value, lambda word: word.lower() in words_of("diet"), most=1)
    if len(value) == 1 or not words_of("no_name").isdisjoint({value, *value.split()}):
        return ""
    if value[0].isupper() or value[0].islower():
        return _leading(value, _is_capitalised, most=_MOST_NAME_WORDS)
    return value if _is_name_without_capitals(value, before, rule.form) else ""


def _leading(value: str, is_one: Callable[[str], bool], *, most: int) -> str:
    """Return the first words of a value that `is_one` accepts, with particles ("de", "van") between such words.

    Empty where there are none or more than `most`, or where other words follow than those that begin a new thought.
    """
    words = value.split()
    fits = [is_one(word) or word in words_of("particle") for word in words]
    length = fits.index(False) if False in fits else len(words)
    while length and not is_one(words[length - 1]):
        length -= 1  # a particle joins two words
    rest = words[length:]
    goes_on = not rest or (rest[0].lower() in words_of("goes_on") and not (len(rest) > 1 and is_one(rest[1])))
    begins = length > 0 and is_one(words[0])
    return " ".join(words[:length]) if begins and length <= most and goes_on else ""


def _is_capitalised(word: str) -> bool:
    return word[0].isupper() and word != "I" and _NAME_WORD.fullmatch(word) is not None and not word.startswith("I'")


def _is_name_without_capitals(value: str, before: str, form: str) -> bool:
    """Tell whether a value in a script without capitals is a name, or a place that is listed or ends as places do."""
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
    """Tell whether a word of a value is an allergen, or begins or ends with one; being "allergic to work" is a joke."""
    words = [word.lower() for word in _WORD.findall(value)]
    parts = tuple(part for part in words_of("allergen") if len(part) >= _LEAST_PART or not part.isascii())
    return any(word in words_of("allergen") or word.startswith(parts) or word.endswith(parts) for word in words)


def _is_thing(value: str) -> bool:
    """Tell whether a value can be understood by itself: short, and without words that point to its context."""
    words = [word.lower() for word in _WORD.findall(value)]
    if not words or len(words) > _MOST_WORDS or "n't" in value or words[0] in words_of("vague_first"):
        return False
    is_unspaced = _UNSPACED.search(value) is not None
    if (is_unspaced and (len(value) > 2 * _MOST_UNSPACED or value[-1] == "の")) or (
        not is_unspaced and len(value) == 1
    ):
        return False
    return _SOMEBODYS.search(value) is None and words_of("vague").isdisjoint(words) and not _has_vague_part(value)
