"""Card numbers and telephone numbers in text."""

from __future__ import annotations

import re
from collections.abc import Sequence

from myria.log.redaction.expressions import compiled

Span = tuple[int, int]

FIRST_LOOK_CARD = r"\d(?:[ -]?\d){12}"
FIRST_LOOK_PHONE = r"\p{Nd}(?:[\s().\-–/]{0,3}\p{Nd}){6}"

MAX_LOOKED_AT = 500
"""The most possible telephone numbers of one text that are checked one by one. If there are more, all of them count as
telephone numbers, unchecked."""

_DIGITS = compiled(r"\d(?:[ -]?\d){12,18}")
_BRANDS = (
    (re.compile(r"4"), (13, 16, 19)),  # Visa
    (re.compile(r"5[1-5]|222[1-9]|22[3-9]|2[3-6]|27[01]|2720"), (16,)),  # Mastercard
    (re.compile(r"3[47]"), (15,)),  # American Express
    (re.compile(r"6011|65|64[4-9]"), (16, 19)),  # Discover
    (re.compile(r"30[0-5]|36|38|39"), (14, 16)),  # Diners Club
    (re.compile(r"35(?:2[89]|[3-8])"), (16,)),  # JCB
    (re.compile(r"62|81"), (16, 17, 18, 19)),  # UnionPay
    (re.compile(r"50(?:18|20|38)|5[678]|6304|6759|676[1-3]"), (16, 18, 19)),  # Maestro
)
_GROUPS = re.compile(rb"\d+")
_POSSIBLE_PHONE = compiled(FIRST_LOOK_PHONE)


def is_card(digits: str) -> bool:
    """Tell whether digits are a card number: a brand's prefix and length, and Luhn's check digit (ISO/IEC 7812)."""
    if not any(len(digits) in lengths and prefix.match(digits) for prefix, lengths in _BRANDS):
        return False
    doubled = (sum(divmod(2 * int(digit), 10)) for digit in digits[-2::-2])
    # Equal digits only, such as 0000000000000000, pass Luhn's check but are no card.
    return (sum(map(int, digits[-1::-2])) + sum(doubled)) % 10 == 0 and len(set(digits)) > 1


def find_cards(text: bytes) -> list[Span]:
    """Return the spans of card numbers, whole or in groups separated by single spaces or hyphens."""
    spans: list[Span] = []
    for match in _DIGITS.finditer(text):
        begin, end = match.span()
        if _within_a_word(text, begin, end):
            continue
        groups = [(begin + group.start(), begin + group.end()) for group in _GROUPS.finditer(text[begin:end])]
        spans += _cards_of(text, groups)
    return spans


def _cards_of(text: bytes, groups: Sequence[Span]) -> list[Span]:
    """Return the cards among whole groups of digits: `12 4111 1111 1111 1111` holds one."""
    spans = []
    first = 0
    while first < len(groups):
        for last in range(len(groups), first, -1):
            digits = b"".join(text[slice(*group)] for group in groups[first:last]).decode()
            if is_card(digits):
                spans.append((groups[first][0], groups[last - 1][1]))
                first = last - 1
                break
        first += 1
    return spans


def _within_a_word(text: bytes, begin: int, end: int) -> bool:
    """Tell whether digits are part of a longer word or number (so no card), by the characters around them."""
    before, after = text[begin - 1 : begin], text[end : end + 1]
    next_after = text[end + 1 : end + 2]
    return (
        before.isalnum()
        or before in (b"_", b".", b"\\")
        or after.isalnum()
        or after == b"_"
        or (after == b"." and next_after.isdigit())
    )


def find_phones(text: str, regions: Sequence[str]) -> list[Span]:
    """Return the spans of telephone numbers, as character offsets: international ones, and those of regions.

    Args:
        regions: two letters each (ISO 3166-1), such as `KR`, whose numbers are recognised without a country code.
    """
    from phonenumbers import Leniency, PhoneNumberMatcher  # noqa: PLC0415 - 50 ms that few processes need

    possible = [match.span() for match in _POSSIBLE_PHONE.finditer(text)]
    if len(possible) > MAX_LOOKED_AT:
        return possible
    if not possible:
        return []
    spans = set()
    for region in (None, *regions):
        for match in PhoneNumberMatcher(text, region, leniency=Leniency.VALID):
            spans.add((match.start, match.end))
    return sorted(spans)
