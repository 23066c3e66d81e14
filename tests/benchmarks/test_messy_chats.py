"""The questions about chats as people type them: what the ranking is promised to find."""

from __future__ import annotations

from benchmarks.messy_chats import chats, figures, places


def test_six_of_ten_messages_that_answer_are_among_the_first_ten() -> None:
    """Although they are short, mistyped and seldom hold a word of the question, planned or fresh."""
    for made in (chats(), chats(tail=True)):
        first = [chat for chat in made if chat.set == "first"]
        found = [(question, places(chat, question)) for chat in first for question in chat.questions]
        _, at_ten, _ = figures(found)
        assert at_ten >= 0.6
