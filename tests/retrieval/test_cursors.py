"""Cursors are bound to their query and cannot be forged."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from myria import errors
from myria.search import cursors
from myria.search.cursors import Cursor
from myria.versions import RANKING_VERSION

SECRET = b"s" * 32
CURSOR = Cursor(snapshot_id="snap_1", visible="10:20:11,12", after=(5, 7), period_end=1000)


def test_a_cursor_survives_the_round_trip() -> None:
    """Decoding what was encoded gives the same cursor."""
    text = cursors.encode(CURSOR, digest="d", secret=SECRET)

    assert cursors.decode(text, digest="d", secret=SECRET, lifetime=60, now=1010) == CURSOR


def test_a_cursor_of_another_query_is_refused() -> None:
    """A cursor works only with the arguments it was made for."""
    text = cursors.encode(CURSOR, digest="d", secret=SECRET)

    with pytest.raises(errors.CursorInvalid, match="not made for this query"):
        cursors.decode(text, digest="e", secret=SECRET, lifetime=60, now=1010)


def test_a_cursor_expires() -> None:
    """Past its lifetime a cursor says so."""
    text = cursors.encode(CURSOR, digest="d", secret=SECRET)

    with pytest.raises(errors.CursorExpired):
        cursors.decode(text, digest="d", secret=SECRET, lifetime=60, now=1061)


def test_a_page_that_another_ranking_began_is_not_gone_on_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its last key means another place: the client asks anew instead of getting hits twice or never."""
    with monkeypatch.context() as before:
        before.setattr(cursors, "RANKING_VERSION", RANKING_VERSION - 1)
        text = cursors.encode(CURSOR, digest="d", secret=SECRET)

    with pytest.raises(errors.CursorExpired):
        cursors.decode(text, digest="d", secret=SECRET, lifetime=60, now=1010)


@given(now=st.floats(0, 1e12), lifetime=st.floats(1, 2_592_000))
def test_a_cursor_lives_as_long_as_it_must(now: float, lifetime: float) -> None:
    """From any moment its lifetime at least, and never more than twice that and a second."""
    end = cursors.period_end(lifetime, now)
    text = cursors.encode(replace(CURSOR, period_end=end), digest="d", secret=SECRET)
    assert cursors.decode(text, digest="d", secret=SECRET, lifetime=lifetime, now=now + lifetime)
    with pytest.raises(errors.CursorExpired):
        cursors.decode(text, digest="d", secret=SECRET, lifetime=lifetime, now=now + 2 * lifetime + 1)


@given(position=st.integers(0, 10_000), replacement=st.sampled_from("Ab0-_"))
def test_a_changed_cursor_is_refused(position: int, replacement: str) -> None:
    """Changing any character makes a cursor foreign."""
    text = cursors.encode(CURSOR, digest="d", secret=SECRET)
    position %= len(text) - 1
    changed = text[:position] + replacement + text[position + 1 :]

    if changed != text:
        with pytest.raises(errors.CursorInvalid):
            cursors.decode(changed, digest="d", secret=SECRET, lifetime=60, now=1010)


@given(text=st.text())
def test_no_text_at_all_breaks_decoding(text: str) -> None:
    """Arbitrary text is refused with the same clear error."""
    with pytest.raises(errors.CursorInvalid):
        cursors.decode(text, digest="d", secret=SECRET, lifetime=60, now=1010)
