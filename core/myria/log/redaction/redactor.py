"""Redact JSON: find secrets and personal data in texts, field names and numbers, and replace them by placeholders."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, AnyStr, TypeVar

import orjson

from myria.log.redaction.expressions import compiled, first_look
from myria.log.redaction.numbers import FIRST_LOOK_CARD, FIRST_LOOK_PHONE, find_cards, find_phones, is_card
from myria.log.redaction.secrets import find_secrets, first_look_for_secrets, holds_proven_secret
from myria.settings.database import KINDS, Kind

PLACEHOLDERS: Mapping[Kind, str] = {
    "secret": "[REDACTED_API_KEY]",
    "password": "[REDACTED_PWD]",
    "card": "[REDACTED_CARD]",
    "email": "[REDACTED_EMAIL]",
    "phone": "[REDACTED_PHONE]",
}
"""The placeholder of each kind; the words are those of Memento's contract."""

_RAW: Mapping[Kind, bytes] = {kind: text.encode() for kind, text in PLACEHOLDERS.items()}
_MARK = b"[REDACTED_"
_PASSES = 4
"""The most passes over one text: redacting one item may uncover another beside it."""

_NAMES_WITHHELD = (
    "password|passwd|pwd|passphrase|passcode|passwort|kennwort|contraseña|mot de passe|senha|пароль|"
    "비밀번호|비번|パスワード|暗証番号|密码|密碼"
)
_NAMES_OF_KEYS = "api[_-]?key|secret[_-]?key|access[_-]?key|private[_-]?key|client[_-]?secret|[a-z]*[_-]?token"
_PASSWORD_FIELD = first_look(f"(?:^|[^\\pL])(?:[\\w-]*[_-])?(?:{_NAMES_WITHHELD})$|[a-z](?-i:Password|Passwd|Pwd)$")
_TOKEN_FIELD = first_look(f"(?:^|[_-])(?:{_NAMES_OF_KEYS}|secret|authorization)$|[a-z](?-i:Token|Secret|ApiKey)$")
_PASSWORD_TEXT = compiled(
    f"(?i)(?:^|[^\\pL])(?:{_NAMES_WITHHELD})['\"]?[ \\t]*(?:[:=：]|=>)[ \\t]*"
    r"(?:\"([^\"\n]+)\"|'([^'\n]+)'|`([^`\n]+)`|([^\s\"'`][^\s]*))"
)
_URL_PASSWORD = compiled(r"[a-zA-Z][a-zA-Z0-9+.-]*://[^\s/:@\"'<>]*:([^\s/@\"'<>]+)@")
_EMAIL = compiled(
    r"[\pL\pN](?:[\pL\pN._%+'-]*[\pL\pN_%+-])?@[\pL\pN](?:[\pL\pN-]*[\pL\pN])?(?:\.[\pL\pN](?:[\pL\pN-]*[\pL\pN])?)+"
)
_INVISIBLE = compiled(
    r"[\x{00AD}\x{034F}\x{061C}\x{115F}\x{1160}\x{17B4}\x{17B5}\x{180B}-\x{180F}\x{200B}-\x{200F}\x{2028}-\x{202E}"
    r"\x{2060}-\x{206F}\x{3164}\x{FE00}-\x{FE0F}\x{FEFF}\x{FFA0}\x{FFF0}-\x{FFFB}\x{E0000}-\x{E0FFF}]+"
)
"""Invisible characters (`log.names`): within a key they hide it from every rule, but the key still works if copied."""
_LEAST_TOKEN = 8
_LEAST_PROVEN = 16
"""Characters of the shortest key that its shape alone proves; nearly every name is shorter, so is not searched."""

_FIRST_LOOKS: Mapping[Kind, str] = {
    "password": rf"(?:{_NAMES_WITHHELD})(?:[\s'\"]|\\[tnrf]?){{0,7}}[:=：]|://[^\s/:@\"]*:[^\s/@\"]+@",
    "card": FIRST_LOOK_CARD,
    "email": "@",
    "phone": FIRST_LOOK_PHONE,
}


T = TypeVar("T")


class PayloadRedactor:
    """Redacts some kinds of secrets and personal data from payloads. Redacting twice changes nothing.

    Args:
        kinds: the kinds to redact.
        regions: whose telephone numbers are recognised without a country code; see `find_phones`.
    """

    def __init__(self, kinds: Collection[Kind], regions: Sequence[str] = ()) -> None:
        self.kinds = frozenset(kinds)
        self._regions = tuple(regions)
        looks = [_FIRST_LOOKS[kind] for kind in KINDS if kind in self.kinds and kind in _FIRST_LOOKS]
        if "secret" in self.kinds:
            looks.append(first_look_for_secrets())
        self._first_look = first_look("|".join(looks)) if looks else None

    def suspects(self, payload_json: bytes) -> bool:
        """Tell quickly whether a payload may hold something to redact. False is certain, True may be a false alarm."""
        if self._first_look is None:
            return False
        if self._first_look.search(payload_json) is not None:
            return True
        visible = _visible(payload_json)
        return visible is not payload_json and self._first_look.search(visible) is not None

    def names_secret(self, *names: str | None) -> bool:
        """Tell whether a name (of a session, a channel, a key) holds a key or token, recognised by its shape alone."""
        for name in names:
            if name is None or len(name) < _LEAST_PROVEN or "secret" not in self.kinds:
                continue
            if holds_proven_secret(_visible(name.encode("utf-8", "surrogatepass"))):
                return True
        return False

    def payload(self, payload_json: bytes) -> tuple[bytes, Mapping[Kind, int]]:
        """Redact a payload (canonical JSON of an object); return it, and the counts by kind; see `value`."""
        if not self.suspects(payload_json):
            return payload_json, {}
        value, counts = self.value(orjson.loads(payload_json))
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS) if counts else payload_json, counts

    def value(self, value: T) -> tuple[T, Mapping[Kind, int]]:
        """Redact a text or any other JSON value; return it, and the number of items redacted by kind.

        Field names are redacted like values. Integers may be card numbers. A field that is named like a password or a
        token loses its value, whatever that is.
        """
        counts: Counter[Kind] = Counter()
        return self._value(value, counts), dict(counts)

    def _value(self, value: Any, counts: Counter[Kind]) -> Any:
        """Return a redacted JSON value, and add to `counts`."""
        if isinstance(value, str):
            return self._text(value, counts)
        if isinstance(value, dict):
            fields: dict[str, Any] = {}
            for name, inner in value.items():
                new_name = redacted_name = self._text(name, counts)
                # Two names may become equal once redacted; number them, so that no field is lost.
                repeat = 1
                while new_name in fields or (new_name != name and new_name in value):
                    repeat += 1
                    new_name = f"{redacted_name}#{repeat}"
                fields[new_name] = self._field(name, inner, counts)
            return fields
        if isinstance(value, list | tuple):
            return [self._value(inner, counts) for inner in value]
        if type(value) is int and "card" in self.kinds and is_card(str(value)):
            counts["card"] += 1
            return PLACEHOLDERS["card"]
        return value

    def _field(self, name: str, value: Any, counts: Counter[Kind]) -> Any:
        """Return the redacted value of a field; a field named like a password or token loses its whole value."""
        if isinstance(value, str | int | list | tuple) and not isinstance(value, bool):
            raw = _visible(name.encode("utf-8", "surrogatepass"))
            if "password" in self.kinds and _PASSWORD_FIELD.search(raw):
                return self._withhold(value, "password", counts, least=1)
            if "secret" in self.kinds and _TOKEN_FIELD.search(raw):
                value = self._withhold(value, "secret", counts, least=_LEAST_TOKEN)
        return self._value(value, counts)

    def _withhold(self, value: Any, kind: Kind, counts: Counter[Kind], *, least: int) -> Any:
        """Return a placeholder for the value of a field named like a password or token; `least` is in characters.

        A shorter value, or for a token a text of several words, stays.
        """
        if isinstance(value, list | tuple):
            return [self._withhold(inner, kind, counts, least=least) for inner in value]
        if kind == "secret" and not isinstance(value, str):
            return value
        if isinstance(value, bool) or not isinstance(value, str | int):
            return self._value(value, counts)
        text = str(value)
        if len(text) < least or text.startswith("[REDACTED_") or (kind == "secret" and len(text.split()) != 1):
            return value
        counts[kind] += 1
        return PLACEHOLDERS[kind]

    def _text(self, text: str, counts: Counter[Kind]) -> str:
        """Return a redacted text; if invisible characters hide something, the text loses these characters, too."""
        raw = text.encode("utf-8", "surrogatepass")
        if not self.suspects(raw):
            return text
        raw_counts: Counter[Kind] = Counter()
        redacted = self._redact_in_passes(raw, raw_counts)
        visible = _visible(raw)
        if visible is not raw:
            visible_counts: Counter[Kind] = Counter()
            redacted_visible = self._redact_in_passes(visible, visible_counts)
            if redacted_visible != _visible(redacted):
                redacted, raw_counts = redacted_visible, visible_counts
        counts.update(raw_counts)
        return redacted.decode("utf-8", "surrogatepass")

    def _redact_in_passes(self, raw: bytes, counts: Counter[Kind]) -> bytes:
        """Redact UTF-8 text in up to `_PASSES` passes, until one changes nothing."""
        for _ in range(_PASSES):
            before = raw
            if "secret" in self.kinds:
                raw = _replace_spans(raw, find_secrets(raw), "secret", counts, _RAW["secret"])
            if "password" in self.kinds:
                raw = _replace_spans(raw, _passwords(raw), "password", counts, _RAW["password"])
            if "email" in self.kinds:
                raw = _replace_spans(
                    raw, [match.span() for match in _EMAIL.finditer(raw)], "email", counts, _RAW["email"]
                )
            if "card" in self.kinds:
                raw = _replace_spans(raw, find_cards(raw), "card", counts, _RAW["card"])
            if "phone" in self.kinds:
                raw = self._without_phones(raw, counts)
            if raw == before:
                break
        return raw

    def _without_phones(self, raw: bytes, counts: Counter[Kind]) -> bytes:
        text = raw.decode("utf-8", "surrogatepass")
        spans = find_phones(text, self._regions)
        return _replace_spans(text, spans, "phone", counts, PLACEHOLDERS["phone"]).encode("utf-8", "surrogatepass")


_CREDENTIALS = PayloadRedactor(("secret", "password"))


def without_credentials(text: str) -> str:
    """Return a text without keys, tokens and passwords; for logs and states that many people read, not for events."""
    return _CREDENTIALS.value(text)[0]


def _visible(text: bytes) -> bytes:
    """Return a text without invisible characters; the same object if it has none."""
    if text.isascii() or _INVISIBLE.search(text) is None:
        return text
    visible: bytes = _INVISIBLE.sub(b"", text)
    return visible


def _passwords(text: bytes) -> list[tuple[int, int]]:
    spans = []
    for match in _PASSWORD_TEXT.finditer(text):
        group = next(number for number in (1, 2, 3, 4) if match.group(number) is not None)
        if not match.group(group).startswith(_MARK):
            spans.append(match.span(group))
    spans += [match.span(1) for match in _URL_PASSWORD.finditer(text) if not match.group(1).startswith(_MARK)]
    return spans


def _replace_spans(
    text: AnyStr, spans: Sequence[tuple[int, int]], kind: Kind, counts: Counter[Kind], placeholder: AnyStr
) -> AnyStr:
    """Return text with a placeholder for each span; a span that overlaps an earlier one extends its end only."""
    if not spans:
        return text
    parts: list[AnyStr] = []
    copied_to = 0
    for begin, end in sorted(spans):
        if end <= copied_to:
            continue
        if begin < copied_to:
            copied_to = end
            continue
        parts += [text[copied_to:begin], placeholder]
        counts[kind] += 1
        copied_to = end
    parts.append(text[copied_to:])
    return text[:0].join(parts)
