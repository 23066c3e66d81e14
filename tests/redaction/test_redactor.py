"""What redaction finds, what it leaves alone, and that it misses nothing it looks past."""

from __future__ import annotations

import random
import re
from typing import Any

import orjson
import pytest
import re2
from hypothesis import given, settings
from hypothesis import strategies as st

from myria.log.redaction import secrets
from myria.log.redaction.numbers import is_card
from myria.log.redaction.redactor import PLACEHOLDERS, PayloadRedactor
from myria.settings.database import KINDS, Kind
from tests.support.counts import examples

EVERYTHING = PayloadRedactor(KINDS, ("KR", "US"))
DEFAULT = PayloadRedactor(("secret", "password", "card"))


def written(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


@pytest.mark.parametrize(
    ("text", "kept", "kind"),
    [
        ("key sk-abcdefghijklmnopqrstuvwxyz123456 it is", "key [REDACTED_API_KEY] it is", "secret"),
        ("sk-proj-A1b2C3d4E5f6G7h8I9j0_K1", "[REDACTED_API_KEY]", "secret"),
        ("AIza" + "b" * 35, "[REDACTED_API_KEY]", "secret"),
        ("AKIAIOSFODNN7EXAMPLE", "[REDACTED_API_KEY]", "secret"),
        ("token ghp_" + "a" * 36 + ".", "token [REDACTED_API_KEY].", "secret"),
        ("xoxb-1234567890-1234567890123-abcdefghijklmnopqrstuvwx", "[REDACTED_API_KEY]", "secret"),
        ("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYzzKQEMOKEY", None, "secret"),
        ("Authorization: Bearer abcdef1234567890abcdef", "Authorization: Bearer [REDACTED_API_KEY]", "secret"),
        ("myr_abcdefghijkm_" + "a" * 32, "[REDACTED_API_KEY]", "secret"),
        ("-----BEGIN RSA PRIVATE KEY-----\n" + "MIIE" * 30 + "\n-----END RSA PRIVATE KEY-----", None, "secret"),
        ("the password: hunter2 works", "the password: [REDACTED_PWD] works", "password"),
        ('PASSWORD="correct horse battery"', 'PASSWORD="[REDACTED_PWD]"', "password"),
        ("비밀번호: abc123!", "비밀번호: [REDACTED_PWD]", "password"),
        ("パスワード：himitsu", "パスワード：[REDACTED_PWD]", "password"),
        ("postgresql://ana:s3cret@db/x", "postgresql://ana:[REDACTED_PWD]@db/x", "password"),
        ("card 4111 1111 1111 1111 exp 12/29", "card [REDACTED_CARD] exp 12/29", "card"),
        ("5555-5555-5555-4444", "[REDACTED_CARD]", "card"),
        ("amex 378282246310005", "amex [REDACTED_CARD]", "card"),
        ("write ana.b+x@example.co.uk.", "write [REDACTED_EMAIL].", "email"),
        ("李雷@例子.公司", "[REDACTED_EMAIL]", "email"),
        ("call 010-1234-5678 now", "call [REDACTED_PHONE] now", "phone"),
        ("ring +49 170 1234567", "ring [REDACTED_PHONE]", "phone"),
        ("ring (415) 555-2671", "ring [REDACTED_PHONE]", "phone"),
    ],
)
def test_each_kind_is_taken_out_of_text(text: str, kept: str | None, kind: Kind) -> None:
    """A find is replaced by its kind's words, the text around it stays, and it is counted once."""
    redacted, counts = EVERYTHING.value(text)
    assert kept is None or redacted == kept
    assert PLACEHOLDERS[kind] in redacted
    assert counts == {kind: 1}


@pytest.mark.parametrize(
    "text",
    [
        "my key to the house is on the secret shelf, they said",
        "the key: project-overview-2026",
        "order 4111111111111112, at 1700000000000000 microseconds",
        "evt_018f2b3c4d5e6f708192a3b4c5d6e7f8 of 3f786850e387550fdab836ed7e6dc881de23001b",
        "rows 4111.1111111111111 and id_4111111111111111",
        "meet @ana at 10:30, password reset was asked for",
        "日本語のテキスト、鍵はない",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    """Ordinary words, identifiers and numbers are left as they are."""
    assert EVERYTHING.value(text) == (text, {})


def test_fields_that_are_named_like_passwords_and_tokens_lose_their_value() -> None:
    """Whatever a password is, it goes; a token field loses what may be one; names, booleans and the rest stay."""
    payload = {
        "password": "x",
        "db_password": 1234,
        "userPassword": ["a", None],
        "password_policy": "strict",
        "token": "abcdefgh1",
        "max_token": "few",
        "card": 4111111111111111,
        "ok": True,
        "text": "fine",
    }
    redacted, counts = DEFAULT.payload(written(payload))
    assert orjson.loads(redacted) == {
        **payload,
        "password": "[REDACTED_PWD]",
        "db_password": "[REDACTED_PWD]",
        "userPassword": ["[REDACTED_PWD]", None],
        "token": "[REDACTED_API_KEY]",
        "card": "[REDACTED_CARD]",
    }
    assert counts == {"password": 3, "secret": 1, "card": 1}


def test_names_of_fields_are_redacted_without_losing_one() -> None:
    """Two fields whose names become the same both stay."""
    redacted, _ = EVERYTHING.payload(written({"a@example.com": 1, "b@example.com": 2}))
    assert sorted(orjson.loads(redacted).items()) == [("[REDACTED_EMAIL]", 1), ("[REDACTED_EMAIL]#2", 2)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_that_is_off_is_left_alone(kind: Kind) -> None:
    """Each kind is found by its own switch and by no other."""
    holds: dict[Kind, str] = {
        "secret": "AKIAIOSFODNN7EXAMPLE",
        "password": "password: hunter2",
        "card": "4111111111111111",
        "email": "ana@example.com",
        "phone": "+49 170 1234567",
    }
    alone = PayloadRedactor((kind,))
    for other, text in holds.items():
        assert (alone.value(text)[0] != text) == (other == kind), other
    assert PayloadRedactor(()).payload(written(holds))[0] == written(holds)


def _examples(rule: Any) -> st.SearchStrategy[str]:
    """Return texts that a rule of RE2's dialect matches, made by way of Python's."""
    pattern = rule.regex
    insensitive = "(?i" in pattern
    for mark in ("(?i:", "(?-i:", "(?s:"):
        pattern = pattern.replace(mark, "(?:")
    pattern = pattern.replace("(?i)", "").replace("\\z", "\\Z").replace("[[:alnum:]]", "[a-zA-Z0-9]")
    pattern = pattern.replace("[:alnum:]", "a-zA-Z0-9")
    return st.from_regex(re.compile(pattern, re.ASCII | (re.IGNORECASE if insensitive else 0)))


@settings(max_examples=examples(150), deadline=None)
@given(data=st.data())
def test_the_first_look_suspects_whatever_a_rule_finds(data: st.DataObject) -> None:
    """No text in which a rule finds a secret passes as innocent, inside JSON as it is stored."""
    rule = data.draw(st.sampled_from(secrets._rules()[0]))
    text = data.draw(_examples(rule))
    raw = text.encode()
    if any(span[0] < span[1] for span in secrets.find_secrets(raw)):
        assert DEFAULT.suspects(raw)
        assert DEFAULT.suspects(written({"text": text}))


_PIECES = st.sampled_from(
    [
        "sk-abcdefghijklmnopqrstuvwxyz123456",
        "AKIAIOSFODNN7EXAMPLE",
        "password: ",
        "passwd='a b'",
        "api_key = ",
        "4111 1111 1111 1111",
        "4111",
        "-",
        "ana@example.com",
        "@",
        "+49 170 1234567",
        "010-1234-5678",
        "://u:p@h",
        "[REDACTED_PWD]",
        '"',
        "\n",
        " ",
    ]
)
_TEXTS = st.lists(st.one_of(_PIECES, st.text(max_size=6)), max_size=12).map("".join)
_JSON = st.recursive(
    st.one_of(_TEXTS, st.integers(-(2**63), 2**63), st.booleans(), st.none(), st.floats(allow_nan=False)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXTS, inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=examples(200), deadline=None)
@given(payload=st.dictionaries(_TEXTS, _JSON, max_size=4))
def test_redacting_what_is_redacted_changes_nothing(payload: dict[str, Any]) -> None:
    """So an export that is imported, and an append that is repeated, keep their bytes; and it is always JSON."""
    once, _ = EVERYTHING.payload(written(payload))
    assert EVERYTHING.payload(once) == (once, {})


@given(digits=st.text("0123456789", min_size=12, max_size=20))
def test_a_card_has_a_valid_check_digit(digits: str) -> None:
    """Of ten numbers that differ in the last digit at most one is a card's."""
    assert sum(is_card(digits + str(last)) for last in range(10)) <= 1


@pytest.mark.parametrize("shape", ["keywords", "cards", "phones", "addresses", "passwords"])
def test_hostile_text_costs_work_in_proportion_to_its_length(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice the text is looked at by the same number of expressions, and by as many more matches at most."""
    rng = random.Random(1)
    words = [word.decode() for rule in secrets._rules()[0] for word in rule.keywords]
    unit = {
        "keywords": "".join(f"{word}_key = '{rng.randbytes(16).hex()}' " for word in words),
        "cards": "4111 1111 1111 1112 " * 50,
        "phones": "+49 30 123456, " * 50,
        "addresses": "a@b" * 300,
        "passwords": "password: password: " * 50,
    }[shape]
    matches = 0
    plain = re2._Regexp._match

    def counting(self: Any, *arguments: Any) -> Any:
        nonlocal matches
        for match in plain(self, *arguments):
            matches += 1
            yield match

    monkeypatch.setattr(re2._Regexp, "_match", counting)

    def cost(times: int) -> int:
        nonlocal matches
        matches = 0
        EVERYTHING.value(unit * times)
        return matches

    cost(1)
    assert cost(8) <= 2.5 * cost(4) + 100


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("password\t: hunter2", "hunter2"),
        ("bearer\tabcdefghij0123456789", "abcdefghij0123456789"),
        ("access\r=0123456789=A;", "0123456789=A"),
        ("api_key\tof it\t= '8f3kq0zt5wv1x7yb2nd9'", "8f3kq0zt5wv1x7yb2nd9"),
    ],
)
def test_tabs_and_ends_of_lines_hide_nothing(text: str, hidden: str) -> None:
    """JSON writes them as a backslash and a letter, which the first look must pass over as a rule passes over them."""
    assert hidden not in DEFAULT.payload(written({"text": text}))[0].decode()
