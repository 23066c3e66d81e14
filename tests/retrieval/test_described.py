"""What describes an event's pictures: which fields count, and what they count beside the text."""

from __future__ import annotations

from typing import Any

import pytest

from myria.index import Corpus, Doc, LooseBlock
from myria.log.payloads import described, whole_text
from myria.search.question import Question
from myria.search.ranking import rank

MINUTE = 60_000_000


def _corpus(*payloads: dict[str, Any]) -> Corpus:
    docs = [
        Doc.of_payload(payload, event_seq=seq, timestamp=seq * 600 * MINUTE, channel="chat")
        for seq, payload in enumerate(payloads, 1)
    ]
    return Corpus(participants=("Ana", "Ben"), tail=LooseBlock().extended(docs))


def _ask(text: str, *payloads: dict[str, Any]) -> list[int]:
    return [hit.event_seq for hit in rank(Question(text=text), _corpus(*payloads), limit=10).hits]


@pytest.mark.parametrize(
    "beside",
    [
        {"caption": "a heron"},
        {"image_caption": "a heron"},
        {"attachments": [{"type": "image", "alt": "a heron"}]},
        {"attachments": [{"image": {"altText": "a heron", "url": "https://x.example/1.png"}}]},
        {"files": [{"alt_txt": " a heron ", "name": "IMG_1.png"}]},
        {"media": [{"description": "a heron"}, {"description": "a heron"}]},
        {"voice": {"Transcript": "a heron"}},
        {"image": {"captions": ["a heron"]}},
    ],
)
def test_what_a_picture_shows_is_described_by_the_fields_that_hosts_use(beside: dict[str, Any]) -> None:
    """A caption, alternative text, description or transcript, wherever it stands; what is said twice counts once."""
    assert described({"text": "Look!", **beside}) == "a heron"
    assert whole_text({"text": "Look!", **beside}) == "Look!\n[a heron]"


@pytest.mark.parametrize(
    "payload",
    [
        {"text": "Look!", "speaker": "Ana", "url": "https://x.example/heron.png", "title": "a heron"},
        {"text": "Look!", "caption": "  ", "alt": None, "description": 7},
        {"text": "Look!", "salt": "a heron", "descriptions_of": "a heron", "default": "a heron"},
        {"text": "Look!", "note": {"memory": {"metadata": {"description": "a heron"}}}},
        {"body": "Look!", "caption": "a heron"},
    ],
)
def test_other_fields_describe_nothing(payload: dict[str, Any]) -> None:
    """Neither addresses, nor what Myria keeps of a note; without a text all strings are the text."""
    assert described(payload) == ""


def test_a_picture_without_words_is_shown_by_what_it_shows() -> None:
    """An empty text leaves no empty line."""
    assert whole_text({"text": "", "caption": "a heron"}) == "[a heron]"


@pytest.mark.parametrize(
    ("asked", "caption"),
    [
        ("the photo of the sunset painting", "a photo of a painting of a sunset over a lake"),
        ("Where is the picture of the receipt?", "a crumpled receipt on a table"),
        ("Wo ist das Bild von den alten Häusern?", "zwei alte Häuser am Fluss"),
        ("富士山の写真", "雪の富士山"),
    ],
)
def test_a_picture_is_found_by_what_it_shows(asked: str, caption: str) -> None:
    """In the words of its language, where no text says it."""
    others = [{"text": text} for text in ("The train was late again.", "Bread is dear.", "Der Zug war voll.")]
    assert _ask(asked, *others, {"text": "Look at this!", "image_caption": caption})[:1] == [4]


def test_what_is_said_stands_above_what_a_picture_shows() -> None:
    """A caption is lesser evidence than the same words in a text."""
    shown = {"text": "That was our day out there.", "caption": "a heron in the reeds"}
    said = {"text": "We saw a heron in the reeds."}
    assert _ask("Who saw the heron in the reeds?", shown, said, {"text": "Bread is dear."}) == [2, 1]


def test_a_caption_moves_no_hit_that_holds_the_word_itself() -> None:
    """Where the text has the word, the caption that repeats it adds nothing."""
    said = [{"text": "We saw a heron."}, {"text": "The rain came late."}]
    again = [{**said[0], "alt": "a heron"}, said[1]]
    scores = [rank(Question(text="heron"), _corpus(*payloads), limit=10).hits[0].score for payloads in (said, again)]
    assert scores[0] == scores[1]
