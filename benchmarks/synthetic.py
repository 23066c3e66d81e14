"""A deterministic workload for measuring speed: conversations of participant sets.

Participant sets have Zipf activity; a set talks in sessions, a session in runs on one subject; messages take a quarter
of their words from the subject and the others from a Zipf vocabulary. Good for speed, useless for quality.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from random import Random
from typing import Any

EVENTS_PER_SET = 600
VOCABULARY = 30_000
SUBJECTS = 1200
SUBJECTS_PER_SET = 60
WORDS_PER_SUBJECT = 40
TURNS_PER_SESSION = 21.6
TURNS_PER_RUN = 6.0
HINT_RATE = 0.15

_START = datetime(2022, 1, 1, tzinfo=UTC)
_CONSONANTS, _VOWELS = "bcdfghjklmnprstvz", "aeiou"


class _Zipf:
    """Draws 0 .. n-1 with probability falling as rank to the power of `exponent`."""

    def __init__(self, n: int, exponent: float) -> None:
        self._totals = list(accumulate(1.0 / rank**exponent for rank in range(1, n + 1)))

    def draw(self, random: Random) -> int:
        return min(bisect(self._totals, random.random() * self._totals[-1]), len(self._totals) - 1)


def word(i: int) -> str:
    """Return the i-th made-up word: pronounceable, unique."""
    letters = []
    i += 85
    while i > 0:
        i, digit = divmod(i, 85)
        letters.append(_CONSONANTS[digit // 5] + _VOWELS[digit % 5])
    return "".join(letters)


def events(n: int, *, sets: int = 0, seed: int = 1) -> Iterator[dict[str, Any]]:
    """Yield n events as arguments of append_event; the same arguments give the same events.

    Args:
        sets: participant sets; 0 for one per 600 events, at least 4.
    """
    random = Random(seed)
    sets = sets or max(4, n // EVENTS_PER_SET)
    people = [f"p{i:06d}" for i in range(int(1.2 * sets) + 2)]
    words = [word(i) for i in range(VOCABULARY)]
    common, own = _Zipf(VOCABULARY, 1.05), _Zipf(WORDS_PER_SUBJECT, 0.9)
    which_subject, which_set = _Zipf(SUBJECTS_PER_SET, 1.0), _Zipf(sets, 0.8)
    subject_words = [[random.randrange(200, VOCABULARY) for _ in range(WORDS_PER_SUBJECT)] for _ in range(SUBJECTS)]
    sizes = random.choices((2, 3, 4, 5), (75, 15, 7, 3), k=sets)
    members = [random.sample(people, min(size, len(people))) for size in sizes]
    subjects = [random.sample(range(SUBJECTS), SUBJECTS_PER_SET) for _ in range(sets)]
    clocks = [_START + timedelta(days=30 * random.random()) for _ in range(sets)]
    made = 0
    while made < n:
        s = which_set.draw(random)
        clocks[s] += timedelta(days=random.expovariate(1 / 4) / (1 + n / 200_000))
        left = subject = 0
        for _ in range(min(n - made, 1 + int(random.expovariate(1 / TURNS_PER_SESSION)))):
            if left == 0:
                subject = subjects[s][which_subject.draw(random)]
                left = 1 + int(random.expovariate(1 / TURNS_PER_RUN))
            left -= 1
            text = " ".join(
                words[subject_words[subject][own.draw(random)] if random.random() < 0.25 else common.draw(random)]
                for _ in range(max(1, int(random.gammavariate(3, 8))))
            )
            clocks[s] += timedelta(seconds=int(random.expovariate(1 / 45)) + 1)
            speaker = random.choice(members[s])
            yield {
                "timestamp": clocks[s].strftime("%Y-%m-%dT%H:%M:%SZ"),
                "channel": f"s{s:05d}",
                "participants": [speaker, *(name for name in members[s] if name != speaker)],
                "source_event_key": f"e{made:08d}",
                "type": "message",
                "payload": {"text": text, "speaker": speaker},
                "topic_hints": [{"hint": f"t{subject:05d}", "confidence": 0.8}] * (random.random() < HINT_RATE),
            }
            made += 1
