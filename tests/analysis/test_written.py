"""What is written with signs is found whole and by its parts, however it is written."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from myria.index import Corpus, Doc, LooseBlock
from myria.search.question import Question
from myria.search.ranking import rank
from myria.text.written import written_in, written_terms

MINUTE = 60_000_000


def _found(question: str, *texts: str) -> list[str]:
    docs = [
        Doc.of_payload({"text": text}, event_seq=seq, timestamp=seq * MINUTE, channel="notes", type="myria.note")
        for seq, text in enumerate(texts, 1)
    ]
    corpus = Corpus(participants=("me",), tail=LooseBlock().extended(docs))
    return [texts[hit.event_seq - 1] for hit in rank(Question(text=question), corpus).hits]


NAMES = (
    "unlockWithFingerprint fails on the old tablets.",
    "HTTPMaxRetryCount is 7 in worker.toml.",
    "Set max_open_files before the import.",
    "The flag is dry-run-first, as ever.",
    "src/billing/invoiceWriter.ts writes the totals.",
    "MAX_UPLOAD_BYTES was raised.",
    "Lunch is at noon on Fridays.",
)


@pytest.mark.parametrize(
    ("question", "at"),
    [
        ("unlock with fingerprint", 0),
        ("fingerprint", 0),
        ("unlock_with_fingerprint", 0),
        ("unlock-with-fingerprint", 0),
        ("UnlockWithFingerprint", 0),
        ("unlockwithfingerprint", 0),
        ("max retry count", 1),
        ("HTTP_MAX_RETRY_COUNT", 1),
        ("httpmaxretrycount", 1),
        ("worker.toml", 1),
        ("maxOpenFiles", 2),
        ("open files", 2),
        ("maxopenfiles", 2),
        ("dryRunFirst", 3),
        ("dry_run_first", 3),
        ("dry run", 3),
        ("invoice writer", 4),
        ("invoiceWriter", 4),
        ("invoice_writer", 4),
        ("src/billing/invoiceWriter.ts", 4),
        ("billing", 4),
        ("maxUploadBytes", 5),
        ("upload bytes", 5),
    ],
)
def test_an_identifier_is_found_whole_and_by_its_parts(question: str, at: int) -> None:
    """Whichever way it is written, in the text and in the question: camel, snake, kebab, a path, in small letters."""
    assert _found(question, *NAMES)[:1] == [NAMES[at]]


SIGNS = (
    "Ben writes C# at work.",
    "The parser is in C++.",
    "The old tools are in C.",
    "We moved to .NET in spring.",
    "The net is torn.",
    "Python 3.11.2 breaks the wheel.",
    "Python 3.12.1 is fine.",
    "The shelf is 11 cm deep and 2 m long.",
)


@pytest.mark.parametrize(
    ("question", "found"),
    [
        ("c#", [0]),
        ("C#?", [0]),
        ("Who knows C++?", [1]),
        (".net", [3]),
        ("When did we move to .NET?", [3]),
        ("3.11.2", [5]),
        ("v3.11.2", [5]),
        ("3.11", [5]),
        ("3.12", [6]),
        ("3.11.4", []),
        ("F#", []),
    ],
)
def test_signs_that_tell_things_apart_are_read(question: str, found: list[int]) -> None:
    """C, C++ and C# are three things, and a version is not any text with one of its numbers."""
    assert _found(question, *SIGNS) == [SIGNS[at] for at in found]


EMOJI = (
    "Marta voted 🚀 for the blue tiles.",
    "Jon voted 🐢 for the red tiles.",
    "Kim voted 👍🏽 for no tiles.",
    "Lea is an 👩🏿‍🚀 now.",
    "We meet in 🇯🇵 next.",
    "He wrote ❤️ on the card.",
)


@pytest.mark.parametrize(
    ("question", "found"),
    [
        ("🚀", [0]),
        ("👍", [2]),
        ("👍🏿", [2]),
        ("👩‍🚀", [3]),
        ("👩🏻‍🚀", [3]),
        ("🇯🇵", [4]),
        ("❤", [5]),
        ("❤️", [5]),
        ("🎉", []),
        ("🇵🇹", []),
    ],
)
def test_an_emoji_is_a_word(question: str, found: list[int]) -> None:
    """Whatever its skin tone or variation; a sequence is one, and not its pieces."""
    assert _found(question, *EMOJI) == [EMOJI[at] for at in found]


def test_an_emoji_tells_which_of_many_is_meant() -> None:
    """Beside words that all of them hold."""
    assert _found("who voted 🚀?", *EMOJI)[0] == EMOJI[0]


def test_prose_and_dates_have_little_of_it() -> None:
    """A date is no version, and hyphenated words are one word besides."""
    assert written_terms("On 2026-03-12, at 12:30 or on 12.03.2024, she said: well, I'll e-mail you.") == ["email"]


@given(st.text(st.characters() | st.sampled_from("aB_-./#+:\u200d\ufe0f\U0001f680\U0001f3fd\U0001f1ef"), max_size=60))
def test_any_text_can_be_read(text: str) -> None:
    """It stands where it says, in order, and has terms."""
    found = written_in(text)
    assert all(written.terms and 0 <= written.start < written.end <= len(text) for written in found)
    assert all(one.end <= other.start for one, other in pairwise(found))
    assert set(written_terms(text)) == {term for written in found for term in written.terms}
