"""Every command but the long-running ones: what it prints, what it changes, how it ends."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from myria.builds.loop import BuildLoop
from myria.errors import ConfigurationError, DatabaseUnavailable
from myria.notes.answertext import NOTHING
from myria_cli.app import app
from tests.cli.conftest import Call, call
from tests.support import builds
from tests.support.postgres import Database, Databases
from tests.support.processes import free_port

COMMANDS = (
    *("up", "demo", "serve", "build", "migrate", "rebuild", "abort", "snapshots", "show", "diff", "publish", "discard"),
    *("rollback", "resume", "status", "query", "events", "import", "export", "verify", "version", "audit", "replay"),
)


def test_every_command_of_the_contract_is_there() -> None:
    """No promised command is missing."""
    assert set(COMMANDS) <= set(typer.main.get_group(app).commands)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_teaches_with_an_example(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """--help says what the command is for, shows an example, and offers the options of every command."""
    monkeypatch.setenv("COLUMNS", "160")
    text = CliRunner().invoke(app, [command, "--help"]).stdout
    assert f"myria {command}" in text.split("Examples:", 1)[1]
    for option in ("--dsn", "--data-dir", "--tenant", "--config", "--json"):
        assert option in text


def test_the_version_is_an_option_too() -> None:
    """As of any other program; the command says more."""
    assert call("--version").out.split() == ["myria", call("version", "--json").json["myria"]]


def test_a_mistyped_command_is_answered_with_the_nearest() -> None:
    """A typo gets a suggestion and exit status 2."""
    result = CliRunner().invoke(app, ["quer"])
    assert result.exit_code == 2
    assert "query" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("key", "create", "n", "--rolee", "read"), "--role"),
        (("key", "create"), "NAME"),
        (("key", "create", "n", "--rate", "-1"), "--rate"),
        (("tenant", "creat", "n"), "create"),
        (("query", "x", "--topk", "5"), "(Possible options: --limit)"),
        (("query", "x", "--user-id", "ada"), "(Possible options: --as)"),
        (("query", "x", "--from", "2026-01-01"), "(Possible options: --since)"),
        (("quer",), "query"),
    ],
)
def test_arguments_that_no_command_takes_are_coded_too(arguments: tuple[str, ...], told: str) -> None:
    """With --json the refusal is one object on standard error, and standard output stays empty."""
    result = CliRunner().invoke(app, [*arguments, "--json"])
    assert (result.exit_code, result.stdout) == (2, "")
    error = json.loads(result.stderr)["error"]
    assert error["code"] == "invalid_argument"
    assert told in error["message"]


def test_a_rebuild_here_waits_for_the_database_and_for_nothing_else(
    databases: Databases, myria: Call, sample_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An outage at its first look for the build is waited for; a role that may not build ends it, with the reason."""
    assert myria("import", sample_file).status == 0
    looked, look = 0, BuildLoop.look

    async def cut_off(loop: BuildLoop, tenant: str) -> None:
        nonlocal looked
        looked += 1
        if looked < 3:
            raise DatabaseUnavailable("the connection was lost")
        await look(loop, tenant)

    monkeypatch.setattr(BuildLoop, "look", cut_off)
    assert myria("rebuild", "--here").status == 0
    assert looked > 2

    with databases.fresh() as other:
        refused = call("rebuild", "--here", "--json", "--dsn", other.server_dsn)
    assert refused.status == ConfigurationError.exit_status
    assert json.loads(refused.err)["error"]["code"] == ConfigurationError.code


def test_import_rebuild_and_query_show_the_answer_as_a_tree(myria: Call, sample_file: Path) -> None:
    """From a file to a drawn answer, with scores only when asked, and only what the asker may see is there."""
    imported = myria("import", sample_file)
    assert imported.status == 0
    assert "60 imported, 0 already there, 0 refused of 60 lines" in imported.err
    built = myria("rebuild", "--here")
    assert built.status == 0, built.err
    drawn = myria("query", "sourdough oven", "--as", "chloé")
    assert drawn.status == 0
    assert "└─" in drawn.out
    assert "score" not in drawn.out
    assert "score" in myria("query", "sourdough oven", "--as", "chloé", "--scores").out
    assert "snapshot snap_" in drawn.out
    assert myria("query", "what do you remember about zebras?", "--as", "chloé").out.strip() == NOTHING
    answer = myria("query", "sourdough oven", "--as", "chloé", "--json").json
    assert answer["root"]["kind"] == "root"
    assert "chloé" in answer["root"]["participants"]
    events = myria("query", "--as", "ana", "--events", "--limit", "5", "--order", "newest", "--json").json
    keys = [child["source_event_key"] for child in events["root"]["children"]]
    assert keys == ["k59", "k58", "k57", "k56", "k55"]


def test_a_second_import_finds_everything_there(myria: Call, sample_file: Path) -> None:
    """Importing again changes nothing and says so."""
    myria("import", sample_file)
    again = myria("import", sample_file, "--json")
    assert again.status == 0
    assert again.json == {"lines": 60, "imported": 0, "already_there": 60, "refused": 0, "blank": 0, "redacted": 0}


def test_an_import_takes_what_lies_ahead_only_on_request(myria: Call, tmp_path: Path) -> None:
    """A line dated beyond the limit is refused by name of the setting; --allow-future takes it."""
    line = {"timestamp": "2099-03-01T10:00:00Z", "channel": "c", "participants": ["a"], "payload": {}}
    path = tmp_path / "ahead.jsonl"
    path.write_text(json.dumps(line) + "\n", encoding="utf-8")
    refused = myria("import", path)
    assert (refused.status, "ingest.future_limit_s" in refused.err) == (2, True)
    assert myria("import", path, "--allow-future", "--json").json["imported"] == 1


def test_bad_lines_are_named_and_the_exit_status_says_so(myria: Call, tmp_path: Path) -> None:
    """Each refused line is reported with number, code and reason; the good ones go in; the status is 2."""
    good = {"timestamp": "2026-03-01T10:00:00Z", "channel": "c", "participants": ["a"], "payload": {}}
    path = tmp_path / "bad.jsonl"
    path.write_text(
        "\n".join(["nonsense", json.dumps(good), json.dumps({**good, "conversation": 1}), json.dumps({"a": 1})])
    )
    result = myria("import", path)
    assert result.status == 2
    assert "line 1: error[malformed_json]" in result.err
    assert "line 3: error[unknown_field]" in result.err
    assert "line 4: error[unknown_field]" in result.err
    assert "1 imported" in result.err
    assert myria("import", path, "--ignore-field", "conversation").status == 2
    assert len(myria("events", "--json").lines) == 2


def test_many_lines_refused_for_one_reason_are_counted(myria: Call, tmp_path: Path) -> None:
    """The first ten are named, then how many more there are and what helps; as JSON each is named."""
    line = {"timestamp": "2026-03-01T10:00:00Z", "channel": "c", "participants": ["a"], "payload": {}, "room": 1}
    path = tmp_path / "rooms.jsonl"
    path.write_text("\n".join([json.dumps(line)] * 1_030 + ["nonsense"]))
    result = myria("import", path)
    said = result.err.splitlines()
    assert len([one for one in said if one.startswith("line ")]) == 11
    assert [one for one in said if one.startswith("1,020 more lines: error[unknown_field]: unknown field room;")]
    assert [one for one in said if "--ignore-field NAME" in one]
    assert "0 imported, 0 already there, 1,031 refused of 1,031 lines" in result.err
    assert len(myria("import", path, "--json").err.splitlines()) == 1_031


def test_standard_input_can_be_imported(myria: Call, sample_file: Path) -> None:
    """`-` reads lines from standard input."""
    assert myria("import", "-", stdin=sample_file.read_bytes()).status == 0
    assert len(myria("events", "--limit", "100", "--json").lines) == 60


def test_export_import_and_rebuild_elsewhere_give_the_same_tree(
    databases: Databases, sample_file: Path, tmp_path: Path
) -> None:
    """A memory moved by file has the same node_ids and renderings after a deterministic rebuild."""
    exported = tmp_path / "memory.jsonl"
    trees = []
    with databases.fresh() as one, databases.fresh() as other:
        assert call("import", sample_file, "--dsn", one.dsn).status == 0
        assert call("rebuild", "--here", "--dsn", one.dsn).status == 0
        assert call("export", exported, "--dsn", one.dsn).status == 0
        assert call("import", exported, "--dsn", other.dsn).status == 0
        assert call("rebuild", "--here", "--dsn", other.dsn).status == 0
        for database in (one, other):
            scopes = call("show", "--json", "--dsn", database.dsn).json["scopes"]
            trees.append(sorted((tuple(scope["participants"]), _ids(scope["root"])) for scope in scopes))
            assert call("verify", "--deep", "--dsn", database.dsn).status == 0
    assert trees[0] == trees[1]


def _ids(topic: dict[str, object]) -> str:
    return json.dumps(
        [topic["node_id"], topic["rendering_id"], [_ids(child) for child in topic.get("children", ())]]  # type: ignore[attr-defined]
    )


def test_an_export_file_appears_whole_or_not_at_all(myria: Call, sample_file: Path, tmp_path: Path) -> None:
    """A place that cannot be written is an error; nothing half-written is left behind."""
    myria("import", sample_file)
    target = tmp_path / "out" / "memory.jsonl"
    refused = myria("export", target)
    assert refused.status == 2
    assert refused.err.startswith("error[invalid_argument]: ")
    target.parent.mkdir()
    assert myria("export", target).status == 0
    assert [path.name for path in target.parent.iterdir()] == ["memory.jsonl"]
    assert len(target.read_bytes().splitlines()) == 60
    assert myria("export").out == target.read_text(encoding="utf-8")


def test_the_log_can_be_filtered(myria: Call, sample_file: Path) -> None:
    """Filters of the log narrow it by channel, participant and time, oldest first."""
    myria("import", sample_file)
    rows = myria("events", "--as", "chloé", "--channel", "email", "--since", "2026-03-03T00:00:00Z", "--json").lines
    assert rows
    assert [row["event_seq"] for row in rows] == sorted(row["event_seq"] for row in rows)
    for row in rows:
        assert row["channel"] == "email"
        assert "chloé" in row["participants"]
        assert row["timestamp"] >= "2026-03-03"
    assert "sourdough" in myria("events").out + myria("events", "--limit", "40").out


def test_a_held_snapshot_is_given_up(myria: Call, sample_file: Path) -> None:
    """`myria discard` ends a held snapshot and the pause it caused; a rebuild then does what it would have done."""
    myria("import", sample_file)
    held = myria("rebuild", "--here", "--hold", "--json").json["snapshot_id"]
    assert myria("status", "--json").json["paused_reason"] == "held_snapshot"
    assert myria("discard", held, "--json").json["snapshot_id"] == held
    assert myria("status", "--json").json["paused"] is False
    assert myria("publish", held).status == 4
    assert myria("rebuild", "--here", "--json").json["status"] == "succeeded"
    again = myria("rebuild", "--here")
    assert (again.status, "nothing is new since snapshot" in again.err) == (0, True)
    assert myria("rebuild", "--here", "--force", "--json").json["status"] == "succeeded"


def test_a_build_is_given_up(myria: Call, database: Database, sample_file: Path) -> None:
    """`myria abort` ends the unfinished build, or the held one that is named; where there is none, it says so."""
    myria("import", sample_file)
    build_id = asyncio.run(builds.queue(database))
    assert myria("status", "--json").json["queued"] == 1
    assert myria("abort", "--reason", "wrong model", "--json").json == {"build_id": build_id, "status": "aborted"}
    assert myria("status", "--json").json["last_build"]["status"] == "aborted"
    assert myria("audit", "--access", "--json").json["access"][0]["details"] == {"reason": "wrong model"}
    myria("rebuild", "--json")
    request_id = myria("status", "--json").json["waiting"][0]["request_id"]
    assert f"{request_id} waits for a builder" in " ".join(myria("status").out.split())
    assert myria("abort", "--json").json["status"] == "aborted"
    assert myria("status", "--json").json["queued"] == 0
    nothing = myria("abort")
    assert (nothing.status, "build_not_found" in nothing.err) == (3, True)
    held = myria("rebuild", "--here", "--hold", "--json").json["build_id"]
    assert held in myria("abort", held).err
    built = myria("rebuild", "--here", "--json").json["build_id"]
    ended = myria("abort", built)
    assert (ended.status, "build_ended" in ended.err, "succeeded" in ended.err) == (4, True, True)


def test_snapshots_move_back_and_forth(myria: Call, sample_file: Path, tmp_path: Path) -> None:
    """Build, look, differ, hold, publish, roll back, resume: each step shows in status and snapshots."""
    lines = sample_file.read_text(encoding="utf-8").splitlines(keepends=True)
    first, rest = tmp_path / "first.jsonl", tmp_path / "rest.jsonl"
    first.write_text("".join(lines[:45]), encoding="utf-8")
    rest.write_text("".join(lines[45:]), encoding="utf-8")
    myria("import", first)
    one = myria("rebuild", "--here", "--json").json["snapshot_id"]
    assert one in myria("show").err
    myria("import", rest)
    assert myria("status", "--json").json["tail_events"] == 15
    two = myria("rebuild", "--here", "--hold", "--json").json["snapshot_id"]
    status = myria("status", "--json").json
    assert (status["active_snapshot_id"], status["paused_reason"]) == (one, "held_snapshot")
    difference = myria("diff", "1", "2", "--json").json
    assert (difference["before"], difference["after"]) == (one, two)
    moved = {event["event_seq"] for scope in difference["scopes"] for event in scope["events"] if not event["before"]}
    assert len(moved) == 15
    assert myria("publish", two).status == 0
    assert myria("status", "--json").json["tail_events"] == 0
    back = myria("rollback", "--json").json
    assert back == {"snapshot_id": one, "previous_snapshot_id": two}
    assert myria("status", "--json").json["paused_reason"] == "rollback"
    paused = myria("status").out
    assert "rollback" in paused
    assert "not by themselves while automatic builds are paused" in paused
    assert "without an event" not in paused
    assert myria("resume", "--json").json == {"resumed": True}
    shown = myria("snapshots")
    assert one in shown.out
    assert two in shown.out
    assert "no difference" in myria("diff", one, "active").err
    assert myria("verify", "--all-snapshots").status == 0


def test_show_masks_and_cuts(myria: Call, sample_file: Path) -> None:
    """--as shows only scopes of that participant, --depth only so many levels."""
    myria("import", sample_file)
    myria("rebuild", "--here")
    everything = myria("show", "--json").json["scopes"]
    own = myria("show", "--as", "chloé", "--depth", "1", "--json").json["scopes"]
    assert len(everything) == 2
    assert [scope["participants"] for scope in own] == [["ana", "ben", "chloé"]]
    assert "children" not in own[0]["root"]
    assert "├─" in myria("show").out


def test_show_draws_subjects(myria: Call, sample_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """--subjects draws what topics are about: trees over leaf topics of the trees of time, none without subjects."""
    myria("import", sample_file)
    monkeypatch.setenv("MYRIA_PLANNER_SUBJECTS", "false")
    myria("rebuild", "--here")
    assert myria("show", "--subjects", "--json").json["scopes"] == []
    monkeypatch.delenv("MYRIA_PLANNER_SUBJECTS")
    myria("rebuild", "--here")
    in_time = {tuple(scope["participants"]): scope["root"] for scope in myria("show", "--json").json["scopes"]}
    by_subject = myria("show", "--subjects", "--json").json["scopes"]
    assert by_subject
    for scope in by_subject:
        assert scope["root"]["kind"] == "subject"
        assert _leaves(scope["root"]) <= _leaves(in_time[tuple(scope["participants"])])
    assert "Sourdough" in myria("show", "--subjects").out
    differences = myria("diff", "1", "2", "--json").json["scopes"]
    assert [difference["participants"] for difference in differences] == [scope["participants"] for scope in by_subject]
    for difference, scope in zip(differences, by_subject, strict=True):
        assert (difference["topics"], difference["events"]) == ([], [])
        drawn = {topic["topic_id"] for topic in _topics(scope["root"])}
        assert {subject["change"] for subject in difference["subjects"]} == {"added"}
        assert {subject["topic_id"] for subject in difference["subjects"]} <= drawn
    assert any("+ Sourdough" in line and "subject, " in line for line in myria("diff", "1", "2").out.splitlines())
    assert {
        subject["change"] for scope in myria("diff", "2", "1", "--json").json["scopes"] for subject in scope["subjects"]
    } == {"gone"}


def _topics(topic: dict[str, Any]) -> list[dict[str, Any]]:
    return [topic, *(below for child in topic.get("children", ()) for below in _topics(child))]


def _leaves(topic: dict[str, Any]) -> set[str]:
    if topic["kind"] == "leaf_topic":
        return {topic["rendering_id"]}
    return {leaf for child in topic["children"] for leaf in _leaves(child)}


@pytest.mark.parametrize(
    ("arguments", "status", "code"),
    [
        (["query", "bread"], 2, "invalid_argument"),
        (["query", "bread", "--as", ""], 2, "invalid_participants"),
        (["query", "bread", "--as", "ana", "--limit", "3"], 2, "invalid_argument"),
        (["query", "bread", "--as", "ana", "--events", "--limit", "900"], 2, "invalid_argument"),
        (["query", "bread", "--as", "ana", "--cursor", "forged"], 2, "cursor_invalid"),
        (["query", "bread", "--as", "ana", "--since", "yesterday"], 2, "invalid_timestamp"),
        (["query", "bread", "--as", "ana", "--tenant", "no/such"], 2, "invalid_argument"),
        (["show", "snap_nope"], 3, "snapshot_not_found"),
        (["show"], 3, "snapshot_not_found"),
        (["publish", "snap_nope"], 3, "snapshot_not_found"),
        (["rollback"], 4, "no_previous_snapshot"),
        (["build", "--build", "bld_nope"], 3, "build_not_found"),
        (["import", "no-such-file.jsonl"], 2, "invalid_argument"),
        (["status", "--config", "no-such-file.yaml"], 6, "configuration_error"),
        (["status", "--data-dir", "elsewhere"], 6, "configuration_error"),
    ],
)
def test_an_error_is_one_clear_line_and_a_status(myria: Call, arguments: list[str], status: int, code: str) -> None:
    """What goes wrong is told as `error[code]: message` without a trace; --json gives the same as JSON."""
    result = myria(*arguments)
    assert result.status == status
    assert result.err.startswith(f"error[{code}]: ")
    assert result.err.count("\n") == 1
    assert "Traceback" not in result.err
    told = myria(*arguments, "--json")
    assert json.loads(told.err)["error"]["code"] == code


def test_a_database_that_is_away_is_a_retryable_error() -> None:
    """Nobody listens there: exit status 5, in one line."""
    result = call("status", "--dsn", "postgresql://nobody@127.0.0.1:1/none")
    assert result.status == 5
    assert result.err.startswith("error[database_unavailable]: ")


def test_no_memory_yet_is_told_as_such(tmp_path: Path) -> None:
    """A command that reads does not make a memory; it says which ones do."""
    result = call("status", "--data-dir", tmp_path / "none")
    assert result.status == 6
    assert "myria up" in result.err
    assert not (tmp_path / "none").exists()


def test_migrate_checks_applies_and_prints_roles(databases: Databases) -> None:
    """--check tells what is missing by its status and changes nothing; without it the schema becomes current."""
    database = databases.create_empty()
    try:
        where = ("--dsn", database.dsn)
        missing = call("migrate", "--check", *where)
        assert missing.status == 6
        assert missing.err.startswith("error[schema_outdated]: ")
        assert call("status", *where).status == 6
        assert call("migrate", "--json", *where).json["applied"]
        assert call("migrate", "--check", *where).status == 0
        assert call("migrate", *where).err == "the schema is current\n"
        assert "CREATE ROLE" in call("migrate", "--print-roles", *where).out
    finally:
        databases.drop(database)


def test_version_needs_no_database() -> None:
    """The versions are told wherever one is."""
    versions = call("version", "--json").json
    assert set(versions) == {"myria", "schema", "planner", "search", "ranking", "python"}


def test_control_characters_of_events_do_not_reach_the_terminal(myria: Call, tmp_path: Path) -> None:
    """An event cannot move the cursor or recolour the screen of whoever lists it."""
    line = {
        "timestamp": "2026-03-01T10:00:00Z",
        "channel": "c\x1b[31m",
        "participants": ["a"],
        "payload": {"text": "red \x1b[31malert\x07 \u202eback"},
    }
    path = tmp_path / "evil.jsonl"
    path.write_text(json.dumps(line))
    assert myria("import", path).status == 0
    for result in (myria("events"), myria("query", "alert", "--as", "a")):
        assert result.status == 0
        assert "\x1b" not in result.out
        assert "\x07" not in result.out
        assert "\u202e" not in result.out


def test_keys_and_tenants_are_listed_as_everything_else_is(myria: Call) -> None:
    """Columns without a frame, times to the second, and where nothing is to list, the command that changes that."""
    empty = myria("key", "list")
    assert empty.status == 0
    assert empty.out == ""
    assert "myria key create" in empty.err
    assert "no grants yet" in myria("grant", "list").err
    assert myria("tenant", "create", "team-a").status == 0
    assert myria("key", "create", "ada", "--tenant", "team-a", "--as", "ada", "--expires", "90d").status == 0
    header, row = myria("key", "list", "--tenant", "team-a").out.splitlines()
    assert header.startswith("key ")
    assert re.search(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ +not yet", row)
    assert re.search(r"team-a +active +1 ", myria("tenant", "list").out)
    shown = myria("tenant", "set", "team-a", "events_per_s=200").out
    assert re.search(r"events per s +200 *\n", shown)
    assert re.search(r"bytes stored +0, no limit", shown)


def test_a_snapshot_that_is_not_kept_is_answered_with_where_to_look(myria: Call) -> None:
    """The error names the command that lists the others."""
    refused = myria("show", "snap_nowhere")
    assert refused.status == 3
    assert "`myria snapshots` lists" in refused.err


def test_a_database_that_is_away_is_answered_with_where_to_look() -> None:
    """The refusal of the system says nothing of which database was meant, nor who named it."""
    result = call("status", "--dsn", f"postgresql://nobody@127.0.0.1:{free_port()}/none")
    assert result.status == DatabaseUnavailable.exit_status
    assert "error[database_unavailable]" in result.err
    assert "--dsn or MYRIA_POSTGRES_DSN" in result.err
