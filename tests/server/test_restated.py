"""One fact that was kept six times fills no budget: it is told once, the newest time, with how often besides."""

from __future__ import annotations

from typing import Any

import pytest

from tests.server.test_agent import ask, keep, raw
from tests.server.wire import Served

FACTS = {
    "deploy": (
        [
            "The deploy of the billing service must be approved by Petra.",
            "Petra must approve the deploy of the billing service.",
            "Deploys of the billing service need approval by Petra!",
            "Billing service deploy: Petra has to approve it.",
            "As said, the deploy of billing service must be approved by Petra.",
            "Reminder: the billing service deploy must be approved by Petra.",
        ],
        "The billing service deploy window is Tuesday from 9 to 11.",
        "What do I need for the deploy of the billing service?",
    ),
    "alarm": (
        [
            "The alarm code of the workshop is 4471.",
            "Note: the alarm code of the workshop is 4471",
            "The alarm code of the workshop is 4471!",
            "By the way, the alarm code of the workshop is 4471",
            "The alarm code of the workshop is 4471, as I said before",
            "To repeat: the workshop alarm code is 4471",
        ],
        "The alarm of the workshop is off on Sundays from 8 to 20.",
        "What do I need to know of the alarm of the workshop?",
    ),
    "ofen": (
        [
            "Der Brennofen wird jeden Freitag von Inês gereinigt.",
            "Wie gesagt, der Brennofen wird jeden Freitag von Inês gereinigt.",
            "Zur Erinnerung: Der Brennofen wird jeden Freitag von Inês gereinigt!",
            "Übrigens: der Brennofen wird jeden Freitag von Inês gereinigt",
            "Hinweis: Der Brennofen wird jeden Freitag von Inês gereinigt",
        ],
        "Der Brennofen bleibt am 24. Dezember kalt.",
        "Was gilt für den Brennofen?",
    ),
    "会社": (
        [
            "本社は渋谷にあります。",
            "念のため、本社は渋谷にあります",
            "本社は渋谷にあります！",
            "再掲：本社は渋谷にあります。",
        ],
        "本社の社員は八十人です。",
        "本社について教えてください",
    ),
}
EACH = pytest.mark.parametrize(("again", "other", "question"), FACTS.values(), ids=list(FACTS))


async def keep_all(served: Served, again: list[str], other: str) -> None:
    for text in again:
        await keep(served, text, type="fact")
    await keep(served, other, type="fact")


@EACH
async def test_recall_tells_a_fact_once(served: Served, again: list[str], other: str, question: str) -> None:
    """In a small budget there is room for the other fact; the structured content says how many were alike."""
    await keep_all(served, again, other)
    result = await raw(served, "recall", {"text": question, "tokenBudget": 120})
    text = result["content"][0]["text"]
    assert other in text
    assert again[-1] in text
    assert f"({len(again) - 1} more alike)" in text
    answer = await ask(served, "recall", text=question)
    assert {item["content"]: item.get("alike", 0) for item in answer["fragments"]} == {
        again[-1]: len(again) - 1,
        other: 0,
    }


@EACH
async def test_context_tells_a_fact_once(served: Served, again: list[str], other: str, question: str) -> None:
    """The same where a session begins."""
    await keep_all(served, again, other)
    text = (await ask(served, "context"))["injectionText"]
    assert other in text
    assert f"{again[-1]} ({len(again) - 1} more alike)" in text
    assert text.count("- 2") == 2


async def test_pages_miss_nothing_that_is_told_once(served: Served) -> None:
    """Page by page every fact is shown, and each page counts those that it stands for."""
    again, other, question = FACTS["deploy"]
    await keep_all(served, again, other)
    told: list[dict[str, Any]] = []
    cursor = None
    while cursor is not None or not told:
        more = {} if cursor is None else {"cursor": cursor}
        page = await ask(served, "recall", text=question, pageSize=3, tokenBudget=400, **more)
        told += page["fragments"]
        cursor = page.get("nextCursor")
    assert sum(1 + item.get("alike", 0) for item in told) == len(again) + 1
    assert other in {item["content"] for item in told}
