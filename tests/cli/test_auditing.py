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
