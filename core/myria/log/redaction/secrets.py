"""API keys and tokens in text: the rules of gitleaks (`secret_rules.json`, written by scripts/renew_secret_rules.py).

They are applied as gitleaks does: a rule is tried on a text that holds one of its keywords; a match counts if it is as
random as the rule demands and no exception allows it. A match whose shape alone proves it always counts, even if it is
an example from documentation: nothing is lost by redacting that.
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
"""Keywords that also stand in ordinary sentences: the first look wants an assignment after them."""

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
    (r"\b((?:myr_[a-z0-9]{6,32}_|my[acfs]_)[A-Za-z0-9]{20,})", "my"),
    (r"(?i)\bbearer[ \t]+([A-Za-z0-9._~+/=-]{16,})", "bearer"),
    (r"(?i)\bauthorization['\"]?[ \t]*:[ \t]*['\"]?basic[ \t]+([A-Za-z0-9+/=]{8,})", "basic"),
)

FIRST_LOOK_OWN = (
    r"sk-[\w-]{20}|AIza[\w-]{35}|my(?:r_[a-z0-9]{6,32}|[acfs])_[a-z0-9]{20}|bearer(?:[ \t]|\\t)+[\w.~+/=-]{16}"
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
    """Return an expression, ignoring case, that matches every text with a secret that `find_secrets` would find."""
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
    """Tell whether UTF-8 text (a name) holds a key or token that its shape alone proves, without a word such as `key`
    beside it. Cached, since most names come again."""
    return bool(find_secrets(text, proven=True))


def find_secrets(text: bytes, *, proven: bool = False) -> list[Span]:
    """Return the spans of keys and tokens in UTF-8 text, as byte offsets.

    Args:
        proven: only find those that their shape alone proves; see `holds_proven_secret`.
    """
    rules, allowed_everywhere = _rules()
    lowered = text.lower()
    spans = []
    rules_by_keyword = _rules_by_keyword(proven=proven)
    rules_to_try = {index for keyword, indices in rules_by_keyword if keyword in lowered for index in indices}
    for rule in (rules[index] for index in sorted(rules_to_try)):
        for match in _expression(rule.regex).finditer(text):
            span = _secret(match, rule)
            if span[0] == span[1]:
                continue
            secret = text[slice(*span)]
            if rule.entropy and _entropy(secret) <= rule.entropy:
                continue
            if any(
                _allows(exception, text, match, secret)
                for exception in (*rule.allowed, *(allowed_everywhere if rule.entropy else ()))
            ):
                continue
            spans.append(span)
    return spans


@cache
def _rules_by_keyword(*, proven: bool) -> tuple[tuple[bytes, tuple[int, ...]], ...]:
    """Return each keyword with the indices of the rules to try on texts that hold it."""
    indices_by_keyword: dict[bytes, list[int]] = {}
    for index, rule in enumerate(_rules()[0]):
        if proven and not _GENERIC.isdisjoint(rule.keywords):
            continue
        for keyword in rule.keywords:
            indices_by_keyword.setdefault(keyword, []).append(index)
    return tuple((keyword, tuple(indices)) for keyword, indices in indices_by_keyword.items())


def _secret(match: Any, rule: _Rule) -> Span:
    """Return the span of the secret in a match: the rule's group, else the first group that is not empty, else all."""
    if rule.group:
        span: Span = match.span(rule.group)
        return span
    for group in range(1, len(match.groups()) + 1):
        if match.group(group):
            inner: Span = match.span(group)
            return inner
    whole: Span = match.span()
    return whole


def _allows(exception: _Allowed, text: bytes, match: Any, secret: bytes) -> bool:
    """Tell whether an exception allows a secret to stay: by its target (secret, match or line), or by a stopword."""
    target = secret
    if exception.target == "match":
        target = match.group()
    elif exception.target == "line":
        begin = text.rfind(b"\n", 0, match.start()) + 1
        end = text.find(b"\n", match.end())
        target = text[begin : len(text) if end < 0 else end]
    if any(_expression(regex).search(target) for regex in exception.regexes):
        return True
    lowered = secret.lower()
    return any(word in lowered for word in exception.stopwords)


def _entropy(secret: bytes) -> float:
    """Return Shannon's entropy of the bytes, in bits per byte."""
    size = len(secret)
    return -sum(count / size * math.log2(count / size) for count in Counter(secret).values())


@cache
def _expression(regex: str) -> Any:
    return compiled(regex)


@cache
def _rules() -> tuple[tuple[_Rule, ...], tuple[_Allowed, ...]]:
    """Return all rules, and the exceptions that hold for every rule with an entropy."""
    document = orjson.loads(resources.files("myria.log.redaction").joinpath("secret_rules.json").read_bytes())
    own_rules = (_Rule(regex, (keyword.lower().encode(),)) for regex, keyword in _OWN)
    gitleaks_rules = (
        _Rule(
            rule["regex"],
            tuple(keyword.encode() for keyword in rule["keywords"]),
            rule["group"],
            rule["entropy"],
            tuple(_allowed(item) for item in rule["allowed"]),
        )
        for rule in document["rules"]
    )
    return (*own_rules, *gitleaks_rules), (_allowed(document["allowed"]),)


def _allowed(item: Any) -> _Allowed:
    return _Allowed(item["target"], tuple(item["regexes"]), tuple(word.encode() for word in item["stopwords"]))
