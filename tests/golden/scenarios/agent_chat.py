"""A person and an agent at work: long answers with lists and code, results of tools, a task that goes on."""

from __future__ import annotations

from typing import Any

from tests.golden.replay import Golden

COMMANDS = (("verify",), ("export",))

_PLAN = """Here is a plan for the migration, in five steps:

1. **Freeze writes** to the old table for about ten minutes.
2. Copy the rows in batches of 5,000, ordered by `id`.
3. Compare counts and checksums of both tables.
4. Switch the view `orders_current` to the new table.
5. Keep the old table for two weeks, then drop it.

Risks:
- The copy competes with the nightly report; run it after 02:00.
- Two consumers read the old table directly (billing and the export job).

Do you want me to write the script?"""

_SCRIPT = """```python
def copy(batch: int = 5_000) -> int:
    last, copied = 0, 0
    while rows := fetch("SELECT * FROM orders WHERE id > %s ORDER BY id LIMIT %s", last, batch):
        insert("orders_new", rows)
        last, copied = rows[-1]["id"], copied + len(rows)
    return copied
```

It remembers the last id alone, so it can be run again after a failure: rows that are there already are skipped by
`ON CONFLICT DO NOTHING`."""

_LONG = "\n\n".join(
    f"## Part {number}\n\nThe service {name} reads its settings once, at its start. A change of `{name}.yaml` needs a "
    f"restart of all {number + 2} replicas, one after the other; that takes about {number * 3 + 4} minutes. "
    "The dashboard shows the version that each replica runs."
    for number, name in enumerate(("gateway", "billing", "search", "mailer", "ledger", "export"))
)

_TALK: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("ada", "Can you help me move the orders table to the new schema?", {}),
    ("agent", _PLAN, {}),
    ("ada", "Yes, but billing must not notice. And call the new table orders_2026, not orders_new.", {}),
    ("agent", _SCRIPT, {}),
    ("tool", '{"rows": 184220, "seconds": 12.4, "errors": []}', {"type": "tool_result"}),
    ("agent", "The dry run copied 184,220 rows in 12.4 seconds, without errors.", {}),
    ("ada", "Great. Schedule the real run for Thursday, 02:15.", {}),
    (
        "agent",
        "Done: job `copy-orders` runs on Thursday at 02:15 and tells you when it has ended.",
        {"type": "task_update"},
    ),
    ("ada", "Who reads the old table directly again?", {}),
    (
        "agent",
        "Two consumers: billing and the export job. Billing moves on Wednesday; the export job reads the view.",
        {},
    ),
    ("ada", "Please write down how restarts of all services work.", {}),
    ("agent", _LONG, {}),
    ("ada", "Thursday does not work after all, make it Friday 02:30.", {}),
    ("agent", "Moved: `copy-orders` now runs on Friday at 02:30.", {"type": "task_update"}),
    ("ada", "I prefer short answers from now on, three lines at most.", {}),
    ("agent", "Understood: three lines at most.", {}),
    ("ada", "How long does a restart of billing take?", {}),
    ("agent", "About 7 minutes: 3 replicas, one after the other.", {}),
)


async def play(golden: Golden) -> None:
    """Keep the chat in batches of a day, and ask for plans, code, results and what changed."""
    for number, (speaker, text, more) in enumerate(_TALK):
        participants = ["ada", "agent_ops"]
        event = {
            "timestamp": f"2026-03-{16 + number // 6:02}T09:{number * 3 % 60:02}:00+01:00",
            "channel": "chat",
            "participants": participants,
            "payload": {"text": text, "speaker": speaker, "task_id": "T-81"},
            "source_event_key": f"chat:{number}",
            "context_id": "orders",
            **more,
        }
        await golden.tool("myria_append_event", **event)
        if number in (9, 13):
            await golden.build()
    for query in (
        "When does copy-orders run?",
        "the script that copies rows in batches",
        "How many rows did the dry run copy?",
        "who reads the old table",
        "how long are answers to be",
        "what was said yesterday",
    ):
        asked = {"participants": ["ada", "agent_ops"], "query": query, "now": "2026-03-18T18:00:00+01:00"}
        await golden.tool("myria_query_event_nodes", **asked, limit=2)
        await golden.tool("myria_query_event_nodes", **asked, format="text", max_tokens=200)
        await golden.tool("myria_query_references", **asked, max_nodes=6, view="lean")
    await golden.tool(
        "myria_query_event_nodes", participants=["ada"], types=["tool_result", "task_update"], limit=5, view="lean"
    )
    await golden.tool("myria_query_event_nodes", participants=["ada"], query="replicas restart gateway", max_tokens=60)
    await golden.build(full=True)
    await golden.tool("myria_query_references", participants=["ada"], max_nodes=20)
