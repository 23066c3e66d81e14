"""`myria audit --access` and `--calls` on the command line."""

from __future__ import annotations

from tests.cli.conftest import Call


def test_what_was_administered_is_shown(myria: Call) -> None:
    """Of every tenant, or of the one that is named; as JSON without any secret, and as a table."""
    for tenant in ("team-a", "team-b"):
        assert myria("tenant", "create", tenant).status == 0
    made = myria("key", "create", "ada", "--tenant", "team-a", "--as", "ada", "--json").json
    assert myria("key", "revoke", made["key_id"]).status == 0
    shown = myria("audit", "--access", "--json")
    assert [(entry["tenant"], entry["action"]) for entry in shown.json["access"]] == [
        ("team-a", "key.revoke"),
        ("team-a", "key.create"),
        ("team-b", "tenant.create"),
        ("team-a", "tenant.create"),
    ]
    assert {entry["actor"].partition(":")[0] for entry in shown.json["access"]} == {"cli"}
    assert made["key"].rpartition("_")[2] not in shown.out
    named = myria("audit", "--access", "--tenant", "team-b", "--json").json
    assert [entry["target"] for entry in named["access"]] == ["team-b"]
    assert made["key_id"] in myria("audit", "--access").out


def test_calls_are_a_list_of_their_own(myria: Call) -> None:
    """Empty where nobody called; not to be mixed with the other."""
    assert myria("audit", "--calls", "--json").json == {"calls": []}
    assert myria("audit", "--calls").status == 0
    assert myria("audit", "--calls", "--access").status == 2


def test_builds_and_moves_of_the_pointer_are_written_down(myria: Call) -> None:
    """Each by who asked for it, with what it was done to and how it ended, refusals too."""
    snapshot = "snap_" + "a" * 32
    assert myria("rebuild").status == 0
    for arguments in (("publish", snapshot), ("discard", snapshot), ("rollback",), ("abort", "bld_1")):
        assert myria(*arguments).status != 0
    assert myria("abort").status == 0
    assert myria("resume", "--reason", "mended").status == 0
    entries = myria("audit", "--access", "--json").json["access"]
    assert [(entry["action"], entry["outcome"]) for entry in reversed(entries)] == [
        ("trigger_build", "ok"),
        ("publish_snapshot", "snapshot_not_found"),
        ("discard_snapshot", "snapshot_not_found"),
        ("rollback", "no_previous_snapshot"),
        ("abort_build", "build_not_found"),
        ("abort_build", "ok"),
        ("resume_builds", "ok"),
    ]
    assert entries[0]["details"] == {"reason": "mended"}
    assert {entry["actor"].partition(":")[0] for entry in entries} == {"cli"}
    assert entries[-1]["target"].startswith("req_")
    assert entries[-2]["target"] == snapshot
