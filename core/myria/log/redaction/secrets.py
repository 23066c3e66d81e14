"""API keys and tokens in text: the rules of gitleaks (`secret_rules.json`, written by scripts/renew_secret_rules.py).

They are applied as gitleaks does: a rule is tried where one of its keywords stands, and a find counts when it is as
random as the rule asks and nothing allows it. A find whose shape alone proves it counts always, also where it is some
documentation's example: nothing is lost by not remembering that.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from typing import Any

import orjson

from myria.log.redaction.expressions import compiled, literal

Span = tuple[int, int]

_ANYWHERE = frozenset({"access", "api", "auth", "credential", "creds", "key", "passwd", "password", "secret", "token"})
"""Keywords that ordinary sentences hold: what they name must follow for a first look to care."""

_GENERIC = frozenset(word.encode() for word in _ANYWHERE)
_ASSIGNED = r"(?:[ \t\w.-]|\\t){0,20}(?:[\s'\"]|\\[tnrf]?){0,7}[=:>,|?]"
"""In JSON a tab or the end of a line is a backslash and a letter."""
_SHORT = 3
_RUN = {"sc_": 5, "ext_": 5}
"""How many characters of a token follow a short keyword in every find of its rules, where not fourteen."""

_OWN = (
    # the contracts: OpenAI and Google, whatever follows the prefix
    (r"\b(sk-[A-Za-z0-9_-]{20,})", "sk-"),
    (r"(AIza[0-9A-Za-z_-]{35})", "AIza"),
    # this project's keys, tokens and codes
    (r"\b((?:myr_[a-z0-9]{6,32}_|my[acf]_)[A-Za-z0-9]{20,})", "my"),
    (r"(?i)\bbearer[ \t]+([A-Za-z0-9._~+/=-]{16,})", "bearer"),
    (r"(?i)\bauthorization['\"]?[ \t]*:[ \t]*['\"]?basic[ \t]+([A-Za-z0-9+/=]{8,})", "basic"),
)

FIRST_LOOK_OWN = (
    r"sk-[\w-]{20}|AIza[\w-]{35}|my(?:r_[a-z0-9]{6,32}|[acf])_[a-z0-9]{20}|bearer(?:[ \t]|\\t)+[\w.~+/=-]{16}"
    r"|basic(?:[ \t]|\\t)+[a-z0-9+/=]{8}"
)


@dataclass(frozen=True, slots=True)
class _Rule:
    regex: str
    keywords: tuple[bytes, ...]
    group: int = 0
    entropy: float = 0.0
    allowed: tuple[_Allowed, ...] = ()


@dataclass(frozen=True, slots=True)
class _Allowed:
    target: str
    regexes: tuple[str, ...]
    stopwords: tuple[bytes, ...]


def first_look_for_secrets() -> str:
    """Return an expression that matches, in any case of letters, whatever holds a find."""
    keywords = sorted({keyword.decode() for rule in _rules()[0] for keyword in rule.keywords})
    long = [literal(word) for word in keywords if len(word) > _SHORT and word not in _ANYWHERE | _RUN.keys()]
    short = [
        f"{literal(word)}[\\w=+~-]{{{_RUN.get(word, 14)}}}"
        for word in keywords
        if word not in _ANYWHERE and (len(word) <= _SHORT or word in _RUN)
    ]
    words = "|".join(sorted(_ANYWHERE & set(keywords)))
    return "|".join([*long, *short, f"(?:{words}){_ASSIGNED}", FIRST_LOOK_OWN])


@lru_cache(maxsize=4096)
def holds_proven_secret(text: bytes) -> bool:
    """Tell whether a key or token stands in UTF-8 text of which its own shape says what it is, and no word such as
    `key` beside it: what a name is looked at for. Most names come again."""
    return bool(find_secrets(text, proven=True))


def find_secrets(text: bytes, *, proven: bool = False) -> list[Span]:
    """Return where keys and tokens stand in UTF-8 text, as byte offsets.

    Args:
        proven: only those of `holds_proven_secret`.
    """
    rules, everywhere = _rules()
    lowered = text.lower()
    spans = []
    known = _places_of_keywords(proven=proven)
    tried = {place for keyword, places in known if keyword in lowered for place in places}
    for rule in (rules[place] for place in sorted(tried)):
        for match in _expression(rule.regex).finditer(text):
            span = _secret(match, rule)
            if span[0] == span[1]:
                continue
            secret = text[slice(*span)]
            if rule.entropy and _entropy(secret) <= rule.entropy:
                continue
            if any(
                _allows(item, text, match, secret) for item in (*rule.allowed, *(everywhere if rule.entropy else ()))
            ):
                continue
            spans.append(span)
    return spans


@cache
def _places_of_keywords(*, proven: bool) -> tuple[tuple[bytes, tuple[int, ...]], ...]:
    """Return each keyword with the places of the rules that are tried where it stands."""
    places: dict[bytes, list[int]] = {}
    for place, rule in enumerate(_rules()[0]):
        if proven and not _GENERIC.isdisjoint(rule.keywords):
            continue
        for keyword in rule.keywords:
            places.setdefault(keyword, []).append(place)
    return tuple((keyword, tuple(of)) for keyword, of in places.items())


def _secret(match: Any, rule: _Rule) -> Span:
    if rule.group:
        span: Span = match.span(rule.group)
        return span
    for group in range(1, len(match.groups()) + 1):
        if match.group(group):
            inner: Span = match.span(group)
            return inner
    whole: Span = match.span()
    return whole


def _allows(item: _Allowed, text: bytes, match: Any, secret: bytes) -> bool:
    target = secret
    if item.target == "match":
        target = match.group()
    elif item.target == "line":
        begin = text.rfind(b"\n", 0, match.start()) + 1
        end = text.find(b"\n", match.end())
        target = text[begin : len(text) if end < 0 else end]
    if any(_expression(regex).search(target) for regex in item.regexes):
        return True
    lowered = secret.lower()
    return any(word in lowered for word in item.stopwords)


def _entropy(secret: bytes) -> float:
    """Return Shannon's entropy of the bytes, in bits per byte."""
    size = len(secret)
    return -sum(count / size * math.log2(count / size) for count in Counter(secret).values())


@cache
def _expression(regex: str) -> Any:
    return compiled(regex)


@cache
def _rules() -> tuple[tuple[_Rule, ...], tuple[_Allowed, ...]]:
    kept = orjson.loads(resources.files("myria.log.redaction").joinpath("secret_rules.json").read_bytes())
    own = (_Rule(regex, (keyword.lower().encode(),)) for regex, keyword in _OWN)
    theirs = (
        _Rule(
            rule["regex"],
            tuple(keyword.encode() for keyword in rule["keywords"]),
            rule["group"],
            rule["entropy"],
            tuple(_allowed(item) for item in rule["allowed"]),
        )
        for rule in kept["rules"]
    )
    return (*own, *theirs), (_allowed(kept["allowed"]),)


def _allowed(item: Any) -> _Allowed:
    return _Allowed(item["target"], tuple(item["regexes"]), tuple(word.encode() for word in item["stopwords"]))
