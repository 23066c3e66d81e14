"""Events withdrawn, restored, superseded and erased, with what answers, snapshots and receipts say of them then."""

from __future__ import annotations

from typing import Any

from tests.golden.replay import Golden

COMMANDS = (("verify",), ("show", "--json"), ("events", "--json"), ("export",))


def _event(number: int, text: str, **more: Any) -> dict[str, Any]:
    return {
        "timestamp": f"2026-03-{10 + number // 6:02}T08:{number % 6 * 7:02}:00Z",
        "channel": "letters",
        "participants": ["ana", "ben"],
        "payload": {"text": text, "speaker": "ana" if number % 2 else "ben"},
        "source_event_key": f"letter:{number}",
        **more,
    }


async def play(golden: Golden) -> None:
    """Take events out in every way, and ask for them before and after, across builds and a rollback."""
    ask = "myria_query_event_nodes"
    texts = [
        *("The quokka arrives on Monday.", "Feed the quokka leaves, no bread.", "The piano is tuned on Tuesdays."),
        *(
            "Our code for the gate is 4711.",
            "The gate's code changed to 1174.",
            "Ben's aunt Clara has a clinic in Évora.",
        ),
        *("Clara said the results are fine.", "The garden needs water.", "The quokka's cage needs a new lock."),
        *("Rent is due on the third.", "Rent is 900 euros.", "The harbour is closed in April."),
    ]
    events = [_event(number, text) for number, text in enumerate(texts)]
    events[7] |= {"context_id": "garden"}
    events[9] |= {"participants": ["ana", "ben", "dora"]}
    stored = await golden.tool("myria_append_events", events=events)
    ids = [one["event_id"] for one in stored["results"]]
    first = await golden.build()
    note = await golden.tool("remember", content="Clara's clinic is closed on Fridays.", agentId="ana")
    await golden.tool("myria_append_event", **_event(13, "The gate's code is 2025 now.", supersedes=[ids[4]]))
    await golden.tool("myria_append_event", **_event(14, "It replaces nothing.", supersedes=["evt_unknown"]))
    await golden.tool(ask, participants=["ana"], query="code of the gate", limit=3, view="lean")
    await golden.tool(ask, participants=["ana"], query="code of the gate", limit=3, include_superseded=True)
    await golden.tool("myria_get_event", event_id=ids[4], participants=["ana"])
    await golden.tool("myria_get_event", event_id=ids[4], participants=["ana"], include_superseded=True)
    withdraw = "myria_withdraw_events"
    await golden.tool(withdraw, event_ids=[ids[0]], participants=["ana"], dry_run=True)
    await golden.tool(withdraw, event_ids=[ids[0], ids[1]], participants=["ana", "ben"])
    await golden.tool(withdraw, event_ids=[ids[0]], participants=["ana"], reason="expired")
    await golden.tool(withdraw, event_ids=[ids[2]], participants=["ana"], reason="superseded")
    await golden.tool(withdraw, event_ids=[ids[9]], participants=["carla"])
    await golden.tool(withdraw, event_ids=["evt_unknown"])
    await golden.tool(withdraw, event_ids=[])
    await golden.tool(ask, participants=["ana"], query="quokka", limit=3, view="lean")
    await golden.tool("myria_get_event", event_id=ids[0], participants=["ana"])
    await golden.tool("myria_query_references", participants=["ana"], query="quokka", max_nodes=6, format="text")
    await golden.build()
    await golden.tool("myria_restore_events", event_ids=[ids[0], ids[2]], participants=["ana"], dry_run=True)
    await golden.tool("myria_restore_events", event_ids=[ids[0], ids[2]], participants=["ana"])
    await golden.tool("myria_restore_events", event_ids=["evt_unknown"])
    await golden.tool(ask, participants=["ana"], query="quokka", limit=3, view="lean")
    await golden.build()
    await golden.tool("myria_list_snapshots")
    await golden.build(hold=True, force=True)
    held = (await golden.tool("myria_get_snapshot_status"))["held_snapshot_id"]
    await golden.tool("myria_publish_snapshot", snapshot_id=held, reason="looked at")
    await golden.tool("myria_publish_snapshot", snapshot_id=held)
    await golden.build(hold=True, force=True)
    held = (await golden.tool("myria_get_snapshot_status"))["held_snapshot_id"]
    await golden.tool("myria_discard_snapshot", snapshot_id=held, reason="not wanted")
    given_up = (await golden.tool("myria_discard_snapshot", snapshot_id=held))["build_id"]
    await golden.tool("myria_abort_build", build_id=given_up, reason="not wanted either")
    await golden.tool("myria_abort_build", build_id=first.build_id)
    await golden.tool("myria_rollback", to="snap_unknown")
    await golden.tool("myria_rollback", to=first.snapshot_id, reason="back to the first")
    await golden.tool(ask, participants=["ana"], query="quokka code", limit=3, view="lean")
    await golden.tool("myria_get_snapshot_status")
    await golden.tool("myria_resume_builds")
    await golden.tool("myria_resume_builds")
    preview, erase = "myria_preview_erasure", "myria_erase"
    await golden.tool(preview, query="quokka", limit=2)
    await golden.tool(preview, of_participants=["dora"], shared="remove")
    await golden.tool(preview, context_ids=["garden"])
    await golden.tool(preview, source_keys=[{"channel": "letters", "source_event_key": "letter:11"}])
    await golden.tool(preview)
    await golden.tool(preview, event_ids=["evt_unknown"])
    planned = await golden.tool(preview, event_ids=[ids[5], ids[6]], note_ids=[note["id"]])
    count = planned["counts"]["events"]
    chosen: dict[str, Any] = {"event_ids": [ids[5], ids[6]], "note_ids": [note["id"]]}
    await golden.tool(erase, **chosen, expected_events=count + 1, reason="request 17")
    begun = await golden.tool(erase, **chosen, expected_events=count, reason="request 17")
    await golden.tool("myria_get_erasures")
    await golden.tool("myria_get_erasure_receipt", erasure_id=begun["erasure_id"])
    await golden.tool(ask, participants=["ana"], query="Clara clinic", limit=3, view="lean")
    await golden.erasures()
    await golden.tool("myria_get_erasures", erasure_id=begun["erasure_id"])
    await golden.tool("myria_get_erasure_receipt", erasure_id=begun["erasure_id"])
    await golden.tool("myria_get_erasure_receipt", erasure_id="era_unknown")
    await golden.tool("recall", text="clinic", agentId="ana")
    await golden.tool("myria_get_event", event_id=ids[5], participants=["ana"])
    await golden.tool("myria_append_event", **_event(5, texts[5]))
    await golden.build(full=True)
    await golden.tool(ask, participants=["ana"], query="Clara clinic", limit=3, view="lean")
    planned = await golden.tool(preview, query="quokka")
    await golden.tool(erase, query="quokka", expected_events=planned["counts"]["events"], reason="request 18")
    await golden.erasures()
    await golden.build()
    await golden.tool(ask, participants=["ana"], query="quokka", limit=3, view="lean")
    await golden.tool("myria_query_references", participants=["ana"], max_nodes=10, format="text")
    await golden.tool("myria_get_erasures", limit=5)
    await golden.tool("myria_trigger_build", reason="by hand")
    await golden.tool("myria_trigger_build", full=True)
