"""Each signal and stage of an explanation has its words for a person."""

from __future__ import annotations

from typing import get_args

from myria.search.reasons import SIGNALS, STAGES, Signal, Stage


def test_each_name_has_its_words() -> None:
    """No signal and no stage is without words, and none has words that is not one."""
    assert SIGNALS.keys() == set(get_args(Signal))
    assert STAGES.keys() == set(get_args(Stage))
