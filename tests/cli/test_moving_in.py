"""`myria import --from` takes each published format of other systems once, and says what it left out."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from myria_cli.commands.events import WHOLE
from myria_cli.importers.run import FORMATS
from tests.cli.conftest import Call


def written(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    path.write_text(text, encoding="utf-8")
    return path


def zipped(path: Path, members: dict[str, Any]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content if isinstance(content, str) else json.dumps(content, ensure_ascii=False))
    return path


def node(key: str, parent: str | None, role: str, parts: list[Any], at: float | None, **content: Any) -> dict[str, Any]:
    message = {
        "id": key,
        "author": {"role": role},
        "create_time": at,
        "content": {"content_type": "text", "parts": parts, **content},
    }
    return {"id": key, "parent": parent, "children": [], "message": message}


def chatgpt(tmp_path: Path) -> Path:
    picture = {"content_type": "image_asset_pointer", "asset_pointer": "file-service://x"}
    heard = {"content_type": "audio_transcription", "text": "And a small shelf."}
    nodes = [
        {"id": "root", "parent": None, "children": ["sys"], "message": None},
        node("sys", "root", "system", [""], None),
        node("q", "sys", "user", ["Which kiln should the studio buy?"], 1741600001.25),
        node("gas", "q", "assistant", ["Buy the gas kiln."], 1741600010.0),
        node("electric", "q", "assistant", ["Buy the electric kiln."], 1741600020.0),
        node("run", "electric", "assistant", [], 1741600021.0, content_type="code", text="print(1)"),
        node("ok", "run", "user", [picture, "Agreed.", heard], None, content_type="multimodal_text"),
    ]
    kiln = {
        "title": "Kiln plan",
        "create_time": 1741600000.5,
        "current_node": "ok",
        "conversation_id": "c-1",
        "mapping": {each["id"]: each for each in nodes},
    }
    lost = {
        "title": "No end",
        "create_time": 1741700000,
        "current_node": None,
        "id": "c-2",
        "mapping": {
            "a": node("a", "b", "user", ["A circle \ud83d"], 1741700001),
            "b": node("b", "a", "assistant", ["of messages"], 1741700002),
            "c": node("c", None, "user", ["The newest end counts."], 1741700003),
        },
    }
    return zipped(
        tmp_path / "chatgpt.zip",
        {"conversations.json": json.dumps([kiln, lost]), "chat.html": "<html>", "user.json": {}},
    )


def claude(tmp_path: Path) -> Path:
    def said(uuid: str, sender: str, parent: str | None, blocks: list[Any], text: str = "") -> dict[str, Any]:
        return {
            "uuid": uuid,
            "sender": sender,
            "text": text,
            "content": blocks,
            "created_at": f"2026-03-12T19:0{len(uuid)}:00.5+00:00",
            "parent_message_uuid": parent,
            "attachments": [],
            "files": [],
        }

    branching = [
        said("m", "human", "00000000-0000-4000-8000-000000000000", [{"type": "text", "text": "Plan the glaze tests"}]),
        said("mm", "assistant", "m", [{"type": "text", "text": "First answer"}]),
        said(
            "mmm",
            "assistant",
            "m",
            [
                {"type": "thinking", "thinking": "hm"},
                {"type": "text", "text": "Test celadon first"},
                {"type": "tool_use"},
            ],
        ),
        said("mmmm", "human", "mmm", [], text="Celadon it is"),
    ]
    plain = [{"uuid": "p1", "sender": "human", "text": "Only text", "created_at": "2025-01-01T00:00:00Z"}]
    return written(
        tmp_path / "claude" / "conversations.json",
        [
            {"uuid": "k-1", "name": "Glazes", "created_at": "2026-03-12T19:00:00Z", "chat_messages": branching},
            {"uuid": "k-2", "name": "", "created_at": "2025-01-01T00:00:00Z", "chat_messages": plain},
            {"uuid": "k-3", "name": "empty", "created_at": "2025-01-01T00:00:00Z", "chat_messages": []},
        ],
    )


def slack(tmp_path: Path) -> Path:
    users = [
        {"id": "U1", "name": "ana", "profile": {"real_name": "Ana Lima", "display_name": "ana"}},
        {"id": "U2", "name": "ben", "real_name": "Ben Ito"},
    ]
    day = [
        {"type": "message", "subtype": "channel_join", "user": "U1", "text": "joined", "ts": "1741600000.000100"},
        {
            "type": "message",
            "user": "U1",
            "text": "<@U2> see <https://example.org/a|the plan> &amp; reply",
            "ts": "1741600001.000200",
        },
        {
            "type": "message",
            "user": "U2",
            "text": "Kiln arrives Friday",
            "ts": "1741600001.000300",
            "thread_ts": "1741600001.000200",
        },
        {
            "type": "message",
            "subtype": "bot_message",
            "username": "ci",
            "text": "build green",
            "ts": "1741600003.000000",
        },
        {"type": "message", "user": "U2", "text": "", "files": [{}], "ts": "1741600004.000000"},
    ]
    return zipped(
        tmp_path / "slack.zip",
        {
            "users.json": users,
            "channels.json": [{"id": "C1", "name": "studio", "members": ["U1", "U2"]}],
            "studio/2025-03-10.json": day,
        },
    )


WHATSAPP = """\ufeff[12/03/2026, 19:05:33] Studio: \u200eMessages and calls are end-to-end encrypted.
[12/03/2026, 19:05:40] Ana Lima: The kiln key
is under the \u200eblue pot.

It is spare.
[13/03/2026, 07:10:01] ~\u202fBen: \u200eimage omitted
[13/03/2026, 07:11:00] ~\u202fBen: Thanks: I will look
[13/03/2026, 07:11:00] ~\u202fBen: Thanks: I will look
"""
ANDROID = """3/12/26, 7:05\u202fPM - Messages and calls are end-to-end encrypted.
3/12/26, 7:06\u202fPM - Ana: See you at the ferry
3/13/26, 12:01\u202fAM - Ben: <Media omitted>
"""


def whatsapp(tmp_path: Path) -> Path:
    return zipped(tmp_path / "WhatsApp Chat.zip", {"_chat.txt": WHATSAPP, "photo.jpg": "x"})


def telegram(tmp_path: Path) -> Path:
    messages = [
        {
            "id": 1,
            "type": "service",
            "date": "2026-03-12T20:00:00",
            "actor": "Ana",
            "action": "create_group",
            "text": "",
        },
        {
            "id": 2,
            "type": "message",
            "date": "2026-03-12T20:05:00",
            "date_unixtime": "1773342300",
            "from": "Ana",
            "from_id": "user11",
            "text": ["Ferry at ", {"type": "bold", "text": "nine"}, "."],
        },
        {"id": 3, "type": "message", "date": "2026-03-12T20:06:00", "from": None, "from_id": "user12", "text": "Good"},
        {
            "id": 4,
            "type": "message",
            "date": "2026-03-12T20:07:00",
            "from": "Ana",
            "from_id": "user11",
            "text": "",
            "photo": "x",
        },
    ]
    chat = {"name": "Ferry", "type": "private_group", "id": 77, "messages": messages}
    return written(tmp_path / "result.json", {"about": "...", "chats": {"about": "", "list": [chat]}})


def mem0(tmp_path: Path) -> Path:
    results = [
        {
            "id": "1",
            "memory": "Dev works at TechCorp",
            "user_id": "dev",
            "created_at": "2025-07-01T09:00:00-07:00",
            "categories": ["work"],
        },
        {
            "id": "2",
            "memory": "Arjun prefers mornings",
            "user_id": "arjun",
            "created_at": "2025-07-01T09:00:00-07:00",
            "updated_at": None,
        },
        {"id": "3", "memory": "", "user_id": "arjun"},
    ]
    return written(tmp_path / "mem0.json", {"count": 3, "results": results})


def zep(tmp_path: Path) -> Path:
    edges = [
        {
            "uuid": "e1",
            "name": "LIVES_IN",
            "fact": "Ana lives in Porto",
            "valid_at": "2026-01-02T00:00:00Z",
            "created_at": "2026-01-03T00:00:00Z",
        },
        {
            "uuid": "e2",
            "fact": "Ana lives in Lisbon",
            "created_at": "2025-01-03T00:00:00Z",
            "invalid_at": "2026-01-02T00:00:00Z",
        },
    ]
    episodes = [
        {
            "uuid": "p1",
            "content": "I moved to Porto",
            "role": "Ana",
            "role_type": "user",
            "created_at": "2026-01-02T00:00:00Z",
            "thread_id": "t1",
        },
        {"uuid": "p2", "content": "Noted.", "role_type": "assistant", "created_at": "bad", "thread_id": "t1"},
    ]
    return written(tmp_path / "zep.json", {"edges": edges, "episodes": episodes})


PAGE = """---
title: Coffee Brewing Methods
type: note
tags: [coffee]
permalink: coffee-brewing-methods
created: 2026-02-03
---

# Coffee Brewing Methods

Pour slowly.

## Observations
- [method] Pour over gives more clarity than French press #brewing
- [ ] buy filters

## Relations
- relates_to [[Coffee Bean Origins]] (see there)
"""


def basic_memory(tmp_path: Path) -> Path:
    written(tmp_path / "pages" / "coffee.md", PAGE)
    written(tmp_path / "pages" / "deep" / "plain.md", "Just one sentence.")
    written(tmp_path / "pages" / ".obsidian" / "skip.md", "settings")
    return tmp_path / "pages"


def memory_server(tmp_path: Path) -> Path:
    lines = [
        {"type": "entity", "name": "Ana", "entityType": "person", "observations": ["speaks Portuguese", "Ana rows"]},
        {"type": "relation", "from": "Ana", "to": "Studio", "relationType": "works_at"},
    ]
    return written(tmp_path / "memory.jsonl", "\n".join(map(json.dumps, lines)))


def csv(tmp_path: Path) -> Path:
    rows = (
        "Date;Author;Message;Channel",
        '2026-03-12 19:05;Ana;"Kiln; ""big"" one";studio',
        "2026-03-12 19:06;Ben;;studio",
        "never;Ben;x;studio",
    )
    text = "\n".join(rows)
    return written(tmp_path / "talk.csv", text)


EXPORTS = {
    # format: what makes a file, messages or statements it holds, how many are refused, what is left out
    "chatgpt": (chatgpt, 4, 0, 5),
    "claude": (claude, 4, 0, 1),
    "slack": (slack, 3, 0, 2),
    "whatsapp": (whatsapp, 3, 0, 2),
    "telegram": (telegram, 2, 0, 2),
    "mem0": (mem0, 2, 0, 1),
    "zep": (zep, 2, 1, 1),
    "basic-memory": (basic_memory, 4, 0, 0),
    "memory-server": (memory_server, 3, 0, 0),
    "csv": (csv, 1, 1, 1),
}


@pytest.mark.parametrize("system", EXPORTS)
def test_an_export_comes_in_once(system: str, myria: Call, tmp_path: Path) -> None:
    """A dry run stores nothing and counts the same; the import stores all of it; run again, it adds nothing."""
    make, held, refused, left_out = EXPORTS[system]
    file = make(tmp_path)
    command = ("import", file, "--from", system, "--as", "me", "--json")
    dry = myria(*command, "--dry-run").json
    assert (dry["imported"], dry["refused"], sum(dry["left_out"].values())) == (held, refused, left_out)
    assert myria("events", "--json").lines == []
    first = myria(*command).json
    assert (first["imported"], first["already_there"], first["refused"]) == (held, 0, refused)
    again = myria(*command).json
    assert (again["imported"], again["already_there"], again["refused"]) == (0, held, refused)
    assert len(myria("events", "--json").lines) == held


def test_every_format_is_tried() -> None:
    """The formats of the command are those that exist, and each has an export here."""
    assert set(WHOLE) == set(FORMATS) == set(EXPORTS)


def events(myria: Call, system: str, file: Path, *more: str) -> list[dict[str, Any]]:
    assert myria("import", file, "--from", system, "--as", "me", *more, "--json").json["imported"]
    return myria("events", "--json").lines


def texts(lines: list[dict[str, Any]]) -> list[str]:
    return [line["payload"]["text"] for line in lines]


def test_chatgpt_gives_the_branch_that_was_seen(myria: Call, tmp_path: Path) -> None:
    """The path to current_node, a message without a time behind the one before; without an end, the newest."""
    lines = events(myria, "chatgpt", chatgpt(tmp_path))
    assert texts(lines) == [
        "Which kiln should the studio buy?",
        "Buy the electric kiln.",
        "Agreed.\n\nAnd a small shelf.",
        "The newest end counts.",
    ]
    assert [line["payload"]["speaker"] for line in lines] == ["user", "assistant", "user", "user"]
    assert lines[0]["timestamp"].startswith("2025-03-10T09:46:41.25")
    assert lines[0]["topic_hints"] == [{"hint": "Kiln plan", "confidence": 1.0}]
    assert "topic_hints" not in lines[1] or not lines[1]["topic_hints"]


@pytest.mark.parametrize(
    ("written_so", "read_so"),
    [
        ("It rains. \ue200cite\ue202turn0search1\ue201", "It rains."),
        ("Up\ue200cite\ue202turn0search1\ue202turn0news3\ue201, then down", "Up, then down"),
        ("See page 3 \ue200filecite\ue202turn1file0\ue202L2-L9\ue201.", "See page 3."),
        ("One \ue200other\ue202kept\ue201 mark", "One \ue200other\ue202kept\ue201 mark"),
    ],
)
def test_chatgpts_marks_of_sources_are_no_words(written_so: str, read_so: str, myria: Call, tmp_path: Path) -> None:
    """They point at results of a search that no export holds; marks that may show something stay."""
    said = {"id": "c", "current_node": "a", "mapping": {"a": node("a", None, "assistant", [written_so], 1741600001)}}
    assert texts(events(myria, "chatgpt", written(tmp_path / "conversations-000.json", [said]))) == [read_so]


def test_claude_gives_the_branch_that_was_seen(myria: Call, tmp_path: Path) -> None:
    """Text blocks alone, and the older `text` where there are none."""
    assert texts(events(myria, "claude", claude(tmp_path))) == [
        "Only text",
        "Plan the glaze tests",
        "Test celadon first",
        "Celadon it is",
    ]


def test_slack_shows_names_and_keeps_threads(myria: Call, tmp_path: Path) -> None:
    """Ids of people become their names, threads are contexts, and the order within a second is kept."""
    lines = events(myria, "slack", slack(tmp_path))
    assert texts(lines) == [
        "@Ben Ito see the plan (https://example.org/a) & reply",
        "Kiln arrives Friday",
        "build green",
    ]
    assert [line["payload"]["speaker"] for line in lines] == ["Ana Lima", "Ben Ito", "ci"]
    assert lines[1]["context_id"] != lines[0]["context_id"]


def slack_day(tmp_path: Path, name: str, *, answered: bool) -> Path:
    """Return an export of one question, and of the answer that began a thread under it later."""
    question = {"type": "message", "user": "U1", "text": "Which kiln?", "ts": "1741600001.000200"}
    answer = {"type": "message", "user": "U2", "text": "The gas kiln", "ts": "1741600009.000100"}
    thread = {"thread_ts": question["ts"]}
    day = [{**question, **thread, "reply_count": 1}, {**answer, **thread}] if answered else [question]
    return zipped(tmp_path / name, {"channels.json": [{"id": "C1", "name": "studio"}], "studio/2025-03-10.json": day})


def test_a_thread_that_began_since_brings_its_answers_alone(myria: Call, tmp_path: Path) -> None:
    """A message that is answered between two exports is known again; the answers are a context of their own."""
    events(myria, "slack", slack_day(tmp_path, "first.zip", answered=False))
    lines = events(myria, "slack", slack_day(tmp_path, "second.zip", answered=True))
    assert texts(lines) == ["Which kiln?", "The gas kiln"]
    assert lines[0]["context_id"] != lines[1]["context_id"]


@pytest.mark.parametrize(
    ("said", "read_so"),
    [
        (
            {"text": "ask <mailto:ana@example.org|ana@example.org> or <tel:+351123|+351123>"},
            "ask ana@example.org or +351123",
        ),
        ({"text": "<#C1|studio>, <#C1> and <#C9|>"}, "#studio, #studio and #C9"),
        ({"text": "<!here> <!channel> <!everyone|everyone>"}, "@here @channel @everyone"),
        ({"text": "<!subteam^S1|@potters> by <!date^1741600001^{date_short}|10 March>"}, "@potters by 10 March"),
        (
            {"text": "<https://example.org> <https://example.org/a|plan>"},
            "https://example.org plan (https://example.org/a)",
        ),
        ({"text": "<@U1> &lt;3 <@U9> &amp;amp;"}, "@Ana Lima <3 @U9 &amp;"),
        (
            {
                "subtype": "bot_message",
                "text": "",
                "attachments": [{"fallback": "no", "title": "Build 7", "text": "failed"}],
            },
            "Build 7\nfailed",
        ),
        (
            {"subtype": "bot_message", "attachments": [{"fallback": "[red] build <https://ci.example|7>"}]},
            "[red] build 7 (https://ci.example)",
        ),
        (
            {"attachments": [{"pretext": "Alert", "fields": [{"title": "Host", "value": "kiln-2"}]}]},
            "Alert\nHost: kiln-2",
        ),
        (
            {
                "bot_id": "B1",
                "text": "This content can't be displayed.",
                "blocks": [
                    {"type": "header", "text": {"type": "plain_text", "text": "Deploy"}},
                    {"type": "divider"},
                    {
                        "type": "section",
                        "text": {"type": "mrkdwn", "text": "by <@U1>"},
                        "fields": [{"type": "mrkdwn", "text": "*ok*"}],
                    },
                    {
                        "type": "actions",
                        "elements": [{"type": "button", "text": {"type": "plain_text", "text": "Undo"}}],
                    },
                    {"type": "context", "elements": [{"type": "mrkdwn", "text": "took 3 s"}]},
                ],
            },
            "Deploy\nby @Ana Lima\n*ok*\ntook 3 s",
        ),
        (
            {
                "blocks": [
                    {
                        "type": "rich_text",
                        "elements": [
                            {
                                "type": "rich_text_section",
                                "elements": [
                                    {"type": "text", "text": "Hi "},
                                    {"type": "user", "user_id": "U2"},
                                    {"type": "text", "text": ", see "},
                                    {"type": "link", "url": "https://example.org"},
                                    {"type": "emoji", "name": "wave"},
                                ],
                            },
                            {
                                "type": "rich_text_list",
                                "elements": [
                                    {"type": "rich_text_section", "elements": [{"type": "text", "text": line}]}
                                    for line in ("clay", "glaze")
                                ],
                            },
                        ],
                    }
                ]
            },
            "Hi @Ben Ito, see https://example.org:wave:\nclay\nglaze",
        ),
    ],
)
def test_slack_is_read_as_it_is_shown(said: dict[str, Any], read_so: str, myria: Call, tmp_path: Path) -> None:
    """Marks of its text, and texts that stand in blocks or attachments alone, as those of bots do."""
    users = [{"id": "U1", "real_name": "Ana Lima"}, {"id": "U2", "name": "ben", "profile": {"real_name": "Ben Ito"}}]
    members = {
        "users.json": users,
        "channels.json": [{"id": "C1", "name": "studio", "members": []}],
        "studio/2025-03-10.json": [{"type": "message", "ts": "1741600001.000200", **said}],
    }
    assert texts(events(myria, "slack", zipped(tmp_path / "slack.zip", members))) == [read_so]


@pytest.mark.parametrize("subtype", ["tombstone", "channel_join", "channel_topic", "bot_add", "huddle_thread"])
def test_slacks_own_words_are_notices(subtype: str, myria: Call, tmp_path: Path) -> None:
    """What nobody wrote is counted, a message that was deleted too."""
    notice = {"type": "message", "subtype": subtype, "text": "This message was deleted.", "ts": "1741600001.000200"}
    file = written(tmp_path / "slack" / "D1" / "2025-03-10.json", [notice, {"type": "other"}]).parents[1]
    called = myria("import", file, "--from", "slack", "--as", "me", "--json")
    assert (called.json["imported"], called.json["left_out"]) == (0, {"notices of the system": 2})


def zep_file(tmp_path: Path, content: Any) -> Path:
    return written(tmp_path / "zep.json", content)


def said_to_zep(uuid: str, text: str, **more: Any) -> dict[str, Any]:
    return {"uuid": uuid, "content": text, "role": "user", "name": "Ana", "created_at": "2026-01-02T00:00:00Z", **more}


@pytest.mark.parametrize(
    ("content", "conversations", "unknown"),
    [
        (
            [
                {"thread_id": "t1", "messages": [said_to_zep("1", "a")]},
                {"thread_id": "t2", "messages": [said_to_zep("2", "b")]},
            ],
            2,
            0,
        ),
        (
            [
                {
                    "messages": [said_to_zep("1", "a")],
                    "user_id": "u",
                    "thread_created_at": "2026-01-01T00:00:00Z",
                    "row_count": 1,
                },
                {
                    "messages": [said_to_zep("2", "b")],
                    "user_id": "u",
                    "thread_created_at": "2026-01-09T00:00:00Z",
                    "row_count": 1,
                },
            ],
            2,
            0,
        ),
        ({"sessions": [{"session_id": "s1", "messages": [said_to_zep("1", "a"), said_to_zep("2", "b")]}]}, 1, 0),
        ({"episodes": [said_to_zep("1", "a", session_id="s1"), said_to_zep("2", "b", session_id="s2")]}, 2, 0),
        ({"messages": [said_to_zep("1", "a", user_id="u1"), said_to_zep("2", "b", user_id="u2")]}, 2, 2),
        ({"messages": [said_to_zep("1", "a"), said_to_zep("2", "b")], "user_id": "u1", "thread_id": None}, 1, 2),
    ],
)
def test_zeps_threads_are_conversations(
    content: Any, conversations: int, unknown: int, myria: Call, tmp_path: Path
) -> None:
    """By the thread or session of a message or of what holds it; where none is said, by the user, and counted."""
    answer = myria("import", zep_file(tmp_path, content), "--from", "zep", "--as", "me", "--json").json
    assert (answer["imported"], sum(answer["remarks"].values())) == (2, unknown)
    assert len({line["context_id"] for line in myria("events", "--json").lines}) == conversations


def test_zeps_edges_name_episodes_and_are_none(myria: Call, tmp_path: Path) -> None:
    """The ids of the episodes of a fact hold nothing; a node says what it is known for."""
    edge = {"uuid": "e", "fact": "Ana lives in Porto", "episodes": ["p1"], "created_at": "2026-01-03T00:00:00Z"}
    node = {"uuid": "n", "name": "Ana", "summary": "rows on Sundays", "created_at": "2026-01-03T00:00:00Z"}
    lines = events(myria, "zep", written(tmp_path / "zep.jsonl", "\n".join(map(json.dumps, [edge, node]))))
    assert sorted(texts(lines)) == ["Ana lives in Porto", "Ana: rows on Sundays"]


def test_the_memory_server_says_what_things_are(myria: Call, tmp_path: Path) -> None:
    """The kind of an entity is a keyword of what is known of it, and is itself known where nothing else is."""
    lines = [
        {"type": "entity", "name": "Ana", "entityType": "Person", "observations": ["speaks Portuguese"]},
        {"type": "entity", "name": "Studio", "entityType": "workshop", "observations": []},
        {"type": "entity", "name": "Kiln", "entityType": "", "observations": ["is red"]},
        {"type": "relation", "from": "Ana", "to": "Studio", "relationType": "works_at"},
        {"type": "else"},
    ]
    command = ("import", written(tmp_path / "m.jsonl", "\n".join(map(json.dumps, lines))), "--from", "memory-server")
    assert myria(*command, "--as", "me", "--json").json["left_out"] == {"neither entity nor relation": 1}
    notes = {line["payload"]["text"]: line["payload"]["note"] for line in myria("events", "--json").lines}
    assert set(notes) == {"Ana: speaks Portuguese", "Studio: workshop", "Kiln: is red", "Ana works at Studio"}
    assert notes["Ana: speaks Portuguese"]["keywords"][0] == "person"
    assert "portuguese" in notes["Ana: speaks Portuguese"]["keywords"]


def test_mem0_says_what_belongs_together(myria: Call, tmp_path: Path) -> None:
    """The relations of its graph are notes, in either spelling; the memories of its store have their text as data."""
    content = {
        "results": [{"id": "1", "data": "Likes tea", "user_id": "dev"}],
        "relations": [
            {"source": "dev", "relationship": "works_at", "target": "TechCorp"},
            {"source": "dev", "relationship": "lives_in", "destination": "Porto"},
        ],
    }
    lines = events(myria, "mem0", written(tmp_path / "m.json", content))
    assert sorted(texts(lines)) == ["Likes tea", "dev lives in Porto", "dev works at TechCorp"]


def test_a_later_export_of_whatsapp_adds_what_is_new(myria: Call, tmp_path: Path) -> None:
    """Though no message has an id: an edited one is known by its place, a deleted one moves no other."""
    lines = [
        "3/5/26, 7:05\u202fPM - Ana: The kiln is red",
        "3/5/26, 7:05\u202fPM - Ana: The wheel is oak",
        "3/5/26, 7:05\u202fPM - Ana: The clay is grey",
        "3/5/26, 7:06\u202fPM - Ben: The glaze is blue",
        "3/6/26, 7:06\u202fPM - Ben: Deleted soon",
    ]

    def counts(text: list[str]) -> tuple[int, int, int]:
        file = written(tmp_path / "chat.txt", "\n".join(text))
        called = myria("import", file, "--from", "whatsapp", "--as", "me", "--json")
        assert called.status == 0
        return tuple(called.json[name] for name in ("imported", "edited", "already_there"))

    assert counts(lines) == (5, 0, 0)
    assert {line["timestamp"][:7] for line in myria("events", "--json").lines} == {"2026-03"}
    lines[3] = "3/5/26, 7:06\u202fPM - Ben: The glaze is green <This message was edited>"
    lines[4] = "3/6/26, 7:06\u202fPM - Ben: This message was deleted"
    lines += ["3/13/26, 7:06\u202fPM - Ben: The shelf is full"]
    assert counts(lines) == (1, 1, 3)
    assert counts(lines[1:]) == (0, 0, 4)
    assert held(myria) == [
        "Deleted soon",
        "The clay is grey",
        "The glaze is green",
        "The kiln is red",
        "The shelf is full",
        "The wheel is oak",
    ]


def test_whatsapp_says_more_beneath_a_picture(myria: Call, tmp_path: Path) -> None:
    """A name of a file is no word; what stands beneath it is."""
    text = (
        "12/03/2026, 19:05 - Ana: IMG-20260312-WA0001.jpg (file attached)\nThe red kiln\n"
        "12/03/2026, 19:06 - Ana: \u200eVID-20260312-WA0002.mp4 (Datei angehängt)\nThe wheel\n"
        "12/03/2026, 19:07 - Ana: AUD-20260312-WA0003.opus (file attached)\n"
    )
    assert texts(events(myria, "whatsapp", written(tmp_path / "chat.txt", text))) == ["The red kiln", "The wheel"]


def test_what_people_sent_is_no_chat_of_telegram(myria: Call, tmp_path: Path) -> None:
    """A folder of an export holds files beside result.json."""
    telegram(tmp_path / "export")
    written(tmp_path / "export" / "files" / "data.json", {"hello": "world"})
    assert len(events(myria, "telegram", tmp_path / "export")) == 2


def test_claude_shows_no_blocks_but_text(myria: Call, tmp_path: Path) -> None:
    """What stands for a block in the old text field is not what was said."""
    message: dict[str, Any] = {"uuid": "1", "sender": "assistant", "created_at": "2026-01-01T00:00:00Z"}
    message |= {"text": "This block is not supported on your current device yet.", "content": [{"type": "tool_use"}]}
    file = written(tmp_path / "conversations.json", [{"uuid": "k", "chat_messages": [message]}])
    called = myria("import", file, "--from", "claude", "--as", "me", "--json")
    assert (called.json["imported"], called.json["left_out"]) == (0, {"without text": 1})


@pytest.mark.parametrize(
    "at", ["1741600001", "1741600001.0", "1741600001000", "2025-03-10T09:46:41Z", "2025-03-10 09:46:41 UTC"]
)
def test_a_table_says_its_times_in_many_ways(at: str, myria: Call, tmp_path: Path) -> None:
    """With a mark of UTF-8 first, semicolons, lines within quotes, and columns that are not read but counted."""
    file = written(tmp_path / "t.csv", f'\ufeff"time";"text";"mood"\n{at};"The kiln;\nthe ""red"" one";good\n')
    called = myria("import", file, "--from", "csv", "--as", "me", "--json")
    assert called.json["remarks"] == {"have columns that were left out: mood": 1}
    [line] = myria("events", "--json").lines
    assert (line["timestamp"], line["payload"]["text"]) == ("2025-03-10T09:46:41Z", 'The kiln;\nthe "red" one')


def test_telegram_chats_that_were_left_come_too(myria: Call, tmp_path: Path) -> None:
    """An account's export lists them apart."""
    chats = [
        {
            "id": number,
            "messages": [{"id": 1, "type": "message", "date_unixtime": "1773342300", "text": f"in {number}"}],
        }
        for number in (1, 2)
    ]
    file = written(tmp_path / "result.json", {"chats": {"list": chats[:1]}, "left_chats": {"list": chats[1:]}})
    assert sorted(texts(events(myria, "telegram", file))) == ["in 1", "in 2"]


@pytest.mark.parametrize(
    "header",
    ["Created At,Sender Name,Message Text", "createdAt,user_name,messageText", "Date/Time,From,Message (plain)"],
)
def test_columns_are_known_however_they_are_written(header: str, myria: Call, tmp_path: Path) -> None:
    """In capitals, with spaces, underscores or slashes, in one word, or with a remark in brackets."""
    lines = events(myria, "csv", written(tmp_path / "t.csv", f"{header}\n2026-03-12 19:05,Ana,The kiln is hot\n"))
    assert [line["payload"] for line in lines] == [{"text": "The kiln is hot", "speaker": "Ana"}]


def test_letters_are_kept_or_the_file_is_refused(myria: Call, tmp_path: Path) -> None:
    """UTF-16 of spreadsheets is read by its mark; what does not say its encoding is refused, and not spoilt."""
    table = "timestamp\tspeaker\ttext\n2026-03-12T19:05:00Z\tJörg\tGrüße aus Köln\n"
    (tmp_path / "old.csv").write_bytes(table.encode("cp1252"))
    refused = myria("import", tmp_path / "old.csv", "--from", "csv", "--as", "me")
    assert (refused.status, "UTF-8" in refused.err) == (2, True)
    (tmp_path / "new.csv").write_bytes(table.encode("utf-16"))
    assert texts(events(myria, "csv", tmp_path / "new.csv")) == ["Grüße aus Köln"]


def test_a_folder_without_such_a_file_is_refused(myria: Call, tmp_path: Path) -> None:
    """Nothing to read is no success."""
    (tmp_path / "empty").mkdir()
    for system in EXPORTS:
        assert myria("import", tmp_path / "empty", "--from", system, "--as", "me").status == 2, system


def test_people_become_participants_only_by_the_people_file(myria: Call, tmp_path: Path) -> None:
    """By name or by id: who is named there may see what was said where they were, and speaks under that name."""
    file = slack(tmp_path)
    assert {tuple(line["participants"]) for line in events(myria, "slack", file)} == {("me",)}
    people = written(tmp_path / "people.yaml", "U1: ana\nBen Ito: ben\n")
    command = ("import", file, "--from", "slack", "--as", "team", "--people", str(people), "--json")
    assert myria(*command).status == 2  # the same messages with other participants: the first ones stay
    other = written(tmp_path / "r.json", {"name": "x", "id": 5, "messages": [
        {"id": 1, "type": "message", "date_unixtime": "1773342300", "from": "Ana", "from_id": "U1", "text": "hello"},
    ]})  # fmt: skip
    lines = events(myria, "telegram", other, "--people", str(people))
    assert lines[-1]["participants"] == ["ana", "me"]


def test_mem0_keeps_people_apart(myria: Call, tmp_path: Path) -> None:
    """A memory belongs to its user beside those of --as, so that one user does not read another's."""
    by_text = {line["payload"]["text"]: line for line in events(myria, "mem0", mem0(tmp_path))}
    assert by_text["Dev works at TechCorp"]["participants"] == ["dev", "me"]
    assert by_text["Arjun prefers mornings"]["participants"] == ["arjun", "me"]
    assert by_text["Dev works at TechCorp"]["timestamp"] == "2025-07-01T16:00:00Z"
    assert by_text["Dev works at TechCorp"]["payload"]["note"]["keywords"] == ["work"]


PM = "2025-03-14T21:27:53Z"


@pytest.mark.parametrize(
    ("text", "times"),
    [
        (WHATSAPP, ["2026-03-12T19:05:40Z", "2026-03-13T07:11:00Z", "2026-03-13T07:11:00Z"]),
        (ANDROID, ["2026-03-12T19:06:00Z"]),
        ("12.03.26, 19:06 - Ana: Bis morgen\n", ["2026-03-12T19:06:00Z"]),
        ("2026-03-12, 19:06 - Ana: ja\n", ["2026-03-12T19:06:00Z"]),
        ("1/2/26, 9:00 - Ana: a\n2/1/26, 9:00 - Ana: b\n", ["2026-02-01T09:00:00Z", "2026-01-02T09:00:00Z"]),
        ("1/31/26, 9:00 AM - Ana: a\n", ["2026-01-31T09:00:00Z"]),
        (
            '3/14/26, 9:00 AM - Ana changed the subject to "Trip: Rome"\n3/14/26, 9:01 AM - Ana: ok\n',
            ["2026-03-14T09:01:00Z"],
        ),
        ("[12.3.2022 klo 14.08.18] Matias: moi\n", ["2022-03-12T14:08:18Z"]),
        ("2025. 3. 14. 오전 9:26 - 아나: 네\n[2025. 3. 14. 오후 9:27:53] 벤: 네\n", ["2025-03-14T09:26:00Z", PM]),
        ("2025/3/14 上午9:26 - 安娜: 好\n[2025/3/14 下午9:27:53] 本: 好\n", ["2025-03-14T09:26:00Z", PM]),
        ("١٤\u200f/٣\u200f/٢٠٢٥، ٩:٢٦ ص - آنا: نعم\n[١٤/٣/٢٠٢٥، ٩:٢٧:٥٣ م] بن: نعم\n", ["2025-03-14T09:26:00Z", PM]),
        ("14/3/25, 12:26 π.μ. - Άνα: α\n14/3/25, 9:27:53 μ.μ. - Μπεν: β\n", ["2025-03-14T00:26:00Z", PM]),
        ("2025. 03. 14. 9:26 - Ana: Szia\n", ["2025-03-14T09:26:00Z"]),
        ("14.03.25 г., 9:26 ч. - Ана: да\n", ["2025-03-14T09:26:00Z"]),
        ("09:26, 14/03/2025 - Ana: vâng\n", ["2025-03-14T09:26:00Z"]),
        ("14/3/2568 09:26 - Ana: ครับ\n", ["2025-03-14T09:26:00Z"]),
        ("3/5/26, 7:06\u202fPM - Ana: one day alone\n", ["2026-03-05T19:06:00Z"]),
        ("[3/5/26, 7:06:33\u202fPM] Ana: one day alone\n", ["2026-03-05T19:06:33Z"]),
        ("05/03/26, 7:06 PM - Ana: one day alone\n", ["2026-03-05T19:06:00Z"]),
        ("5/3/26, 19:06 - Ana: one day alone, at 7 PM\n", ["2026-03-05T19:06:00Z"]),
        ("3/4/26, 19:06 - Ana: a\n3/5/26, 19:06 - Ana: b\n", ["2026-03-04T19:06:00Z", "2026-03-05T19:06:00Z"]),
        ("[12/03/2026 à 19:05:34] Ana : bonjour\n", ["2026-03-12T19:05:34Z"]),
        ("12-03-2026 19:05 - Ana: hoi\n", ["2026-03-12T19:05:00Z"]),
    ],
)
def test_whatsapp_times_in_any_language(text: str, times: list[str], myria: Call, tmp_path: Path) -> None:
    """Day, month and year are told by the file as a whole; several lines are one message."""
    lines = events(myria, "whatsapp", written(tmp_path / "_chat.txt", text))
    assert sorted(line["timestamp"] for line in lines) == sorted(times)


def test_whatsapp_says_local_time(myria: Call, tmp_path: Path) -> None:
    """--zone says where the telephone was; the message keeps its lines."""
    file = whatsapp(tmp_path)
    lines = events(myria, "whatsapp", file, "--zone", "America/New_York")
    by_speaker = {line["payload"]["speaker"]: line for line in lines}
    assert by_speaker["Ana Lima"]["payload"]["text"] == "The kiln key\nis under the blue pot.\n\nIt is spare."
    assert by_speaker["Ana Lima"]["timestamp"].startswith(("2026-03-12T23:05:40", "2026-03-12T19:05:40-04:00"))
    assert by_speaker["Ben"]["payload"]["text"] == "Thanks: I will look"
    assert myria("import", file, "--from", "whatsapp", "--zone", "Mars/Olympus").status == 2


def test_basic_memory_keeps_what_a_page_says(myria: Call, tmp_path: Path) -> None:
    """Observations and relations are statements with their page as topic; the rest of the page is one text."""
    by_text = {line["payload"]["text"]: line for line in events(myria, "basic-memory", basic_memory(tmp_path))}
    method = by_text["Coffee Brewing Methods: Pour over gives more clarity than French press #brewing"]
    assert method["payload"]["note"]["topic"] == "Coffee Brewing Methods"
    assert method["payload"]["note"]["keywords"] == ["method", "brewing"]
    assert method["timestamp"] == "2026-02-03T00:00:00Z"
    assert "Coffee Brewing Methods relates to Coffee Bean Origins (see there)" in by_text
    assert any("Pour slowly." in text and "buy filters" in text for text in by_text)


def test_a_file_that_is_something_else_is_refused(myria: Call, tmp_path: Path) -> None:
    """With a sentence that says what the format looks like, or which formats there are; nothing is stored."""
    stranger = written(tmp_path / "x.json", {"hello": "world"})
    for system in EXPORTS:
        answer = myria("import", stranger, "--from", system, "--as", "me")
        assert answer.status == 2, system
        assert "error[" in answer.err, system
        assert all(other in answer.err for other in FORMATS), system
    assert "chatgpt" in myria("import", stranger, "--from", "elsewhere").err
    unsaid = myria("import", written(tmp_path / "c.json", [{"mapping": {}}]))
    assert "--from" in unsaid.err
    assert myria("events", "--json").lines == []


def test_hostile_files_do_no_harm(myria: Call, tmp_path: Path) -> None:
    """JSON that is cut off or nested without end, NUL and wrong types are told, not raised."""
    for number, content in enumerate(
        ["[" * 100_000, '[{"mapping": {"a"', "null", '[{"mapping": 7, "chat_messages": 7}]', ""]
    ):
        file = written(tmp_path / f"conversations{number}.json", content)
        for system in ("chatgpt", "claude"):
            assert myria("import", file, "--from", system, "--as", "me").status in (0, 2)
    nul = node("a", None, "user", ["before\x00after"], 1741600001)
    odd = node("b", "a", "user", ["fine", 7, None, {"text": 9}], "yesterday")  # type: ignore[arg-type]
    file = written(tmp_path / "c.json", [{"id": "c", "current_node": "b", "mapping": {"a": nul, "b": odd}}])
    answer = myria("import", file, "--from", "chatgpt", "--as", "me", "--json")
    assert (answer.json["imported"], answer.json["refused"]) == (0, 2)
    (tmp_path / "broken.zip").write_bytes(b"PK\x03\x04 no archive")
    assert myria("import", tmp_path / "broken.zip", "--from", "slack", "--as", "me").status == 2


def held(myria: Call) -> list[str]:
    """Return what the log shows of messages and notes: of each the newest version."""
    return sorted(texts(myria("events", "--json", "--limit", "100").lines))


def said_in(system: str, tmp_path: Path, name: str, said: dict[str, str]) -> Path:
    """Return an export of a system in which each of these ids says its text."""
    at = [f"2026-03-12T19:0{number}:00+00:00" for number in range(9)]
    if system == "chatgpt":
        ids = [None, *said]
        nodes = {
            key: node(key, ids[place], "user", [text], 1741600001.0 + place)
            for place, (key, text) in enumerate(said.items())
        }
        return zipped(
            tmp_path / f"{name}.zip",
            {"conversations.json": [{"id": "c", "title": "T", "current_node": [*said][-1], "mapping": nodes}]},
        )
    if system == "claude":
        messages = [
            {"uuid": key, "sender": "human", "text": text, "created_at": at[place]}
            for place, (key, text) in enumerate(said.items())
        ]
        return zipped(tmp_path / f"{name}.zip", {"conversations.json": [{"uuid": "k", "chat_messages": messages}]})
    if system == "slack":
        day = [{"type": "message", "user": "U1", "text": text, "ts": f"1741600001.{key}"} for key, text in said.items()]
        return zipped(tmp_path / f"{name}.zip", {"studio/2025-03-10.json": day})
    if system == "telegram":
        sent = [
            {"id": key, "type": "message", "date_unixtime": "1773342300", "from": "Ana", "text": text}
            for key, text in said.items()
        ]
        return written(tmp_path / f"{name}.json", {"id": 1, "name": "F", "messages": sent})
    if system == "mem0":
        kept = [{"id": key, "memory": text, "user_id": "dev", "created_at": at[0]} for key, text in said.items()]
        return written(tmp_path / f"{name}.json", {"results": kept})
    if system == "zep":
        facts = [{"uuid": key, "fact": text, "created_at": at[0]} for key, text in said.items()]
        return written(tmp_path / f"{name}.json", {"edges": facts})
    rows = "".join(f'{at[0]},"{text}",{key}\n' for key, text in said.items())
    return written(tmp_path / f"{name}.csv", "time,text,id\n" + rows)


@pytest.mark.parametrize("system", ["chatgpt", "claude", "slack", "telegram", "mem0", "zep", "csv"])
def test_a_later_export_brings_what_was_edited_and_added(system: str, myria: Call, tmp_path: Path) -> None:
    """What says something else takes the place of what it said; what is gone stays; no older export goes back."""
    exports = [
        said_in(system, tmp_path, str(number), said)
        for number, said in enumerate(
            [
                {"000100": "The kiln is red", "000200": "The glaze is blue", "000300": "The wheel is oak"},
                {"000100": "The kiln is green", "000300": "The wheel is oak", "000400": "The clay is grey"},
                {"000100": "The kiln is white", "000300": "The wheel is ash", "000400": "The clay is grey"},
            ]
        )
    ]

    def counts(number: int) -> tuple[int, int, int, int]:
        called = myria("import", exports[number], "--from", system, "--as", "me", "--json")
        assert called.status == 0, called.err
        return tuple(called.json[name] for name in ("imported", "edited", "already_there", "refused"))

    assert counts(0) == (3, 0, 0, 0)
    assert counts(1) == (1, 1, 1, 0)
    assert held(myria) == ["The clay is grey", "The glaze is blue", "The kiln is green", "The wheel is oak"]
    assert counts(2) == (0, 2, 1, 0)
    newest = ["The clay is grey", "The glaze is blue", "The kiln is white", "The wheel is ash"]
    assert held(myria) == newest
    assert [counts(number) for number in (2, 1, 0)] == [(0, 0, 3, 0)] * 3
    assert held(myria) == newest


@pytest.mark.parametrize("system", ["slack", "mem0"])
def test_what_was_forgotten_stays_forgotten(system: str, myria: Call, tmp_path: Path) -> None:
    """Neither the same export brings it back, nor one in which it was edited; nor is either an error."""
    exports = [
        said_in(system, tmp_path, text[-3:], {"000100": text}) for text in ("The kiln is red", "The kiln is tan")
    ]
    command = ("--from", system, "--as", "me", "--json")
    assert myria("import", exports[0], *command).json["imported"] == 1
    [event] = myria("events", "--json").lines
    withdrawal = {"timestamp": event["timestamp"], "channel": "myria", "type": "myria.withdrawal", "internal": True}
    withdrawal |= {
        "participants": event["participants"],
        "payload": {"reason": "forgotten", "events": [event["event_id"]]},
    }
    assert myria("import", written(tmp_path / "withdrawal.jsonl", withdrawal)).status == 0
    assert held(myria) == []
    for export in exports:
        called = myria("import", export, *command)
        assert (called.status, called.json["already_there"]) == (0, 1)
    assert held(myria) == []


def test_a_message_keeps_the_people_of_its_first_import(myria: Call, tmp_path: Path) -> None:
    """Somebody who is mapped or renamed later changes no message: they are counted and said to stay."""
    file = said_in("telegram", tmp_path, "a", {"1": "The kiln is red"})
    people = written(tmp_path / "people.yaml", "Ana: ana\n")
    assert myria("import", file, "--from", "telegram", "--as", "me").status == 0
    again = myria("import", file, "--from", "telegram", "--as", "me", "--people", people, "--json")
    assert (again.status, again.json["already_there"], sum(again.json["remarks"].values())) == (0, 1, 1)
    changed = said_in("telegram", tmp_path, "b", {"1": "The kiln is tan"})
    assert (
        myria("import", changed, "--from", "telegram", "--as", "me", "--people", people, "--json").json["edited"] == 1
    )
    [line] = myria("events", "--json").lines
    assert (line["participants"], line["payload"]["text"]) == (["me"], "The kiln is tan")


def test_two_messages_of_one_id_are_not_versions(myria: Call, tmp_path: Path) -> None:
    """An export that says two things under one id is no edit: the first counts, the second is refused, each time."""
    file = written(
        tmp_path / "t.csv", "time,text,id\n2026-03-12,The kiln,7\n2026-03-13,The wheel,7\n2026-03-12,The kiln,7\n"
    )
    for imported in (1, 0):
        called = myria("import", file, "--from", "csv", "--as", "me", "--json")
        assert (called.json["imported"], called.json["already_there"], called.json["refused"]) == (
            imported,
            2 - imported,
            1,
        )
    assert held(myria) == ["The kiln"]


def test_a_page_that_was_edited_says_what_it_says_now(myria: Call, tmp_path: Path) -> None:
    """Its text is one note by its permalink; a sentence names its subject unless it does so itself, as a word."""
    page = tmp_path / "pages" / "ana.md"
    command = ("import", page.parent, "--from", "basic-memory", "--as", "me", "--json")
    front = "---\ntitle: Ana\npermalink: people/ana\ntags: [potters]\n---\n"
    written(page, front + "Rows on Sundays.\n\n- [food] likes banana bread\n")
    assert myria(*command).json["imported"] == 2
    assert held(myria) == ["Ana\n\nRows on Sundays.", "Ana: likes banana bread"]
    written(page, front + "Rows on Mondays.\n\n- [food] likes banana bread\n")
    again = myria(*command)
    assert (again.status, again.json["imported"], again.json["edited"], again.json["already_there"]) == (0, 0, 1, 1)
    assert held(myria) == ["Ana\n\nRows on Mondays.", "Ana: likes banana bread"]


def test_an_old_export_of_telegram_is_in_the_zone_that_is_said(myria: Call, tmp_path: Path) -> None:
    """Before it told seconds since 1970, it told local time alone."""
    message = {"id": 1, "type": "message", "date": "2021-07-12T20:05:00", "from": "Ana", "text": "hello"}
    [line] = events(
        myria,
        "telegram",
        written(tmp_path / "result.json", {"id": 1, "messages": [message]}),
        "--zone",
        "Europe/Lisbon",
    )
    assert line["timestamp"].startswith(("2021-07-12T19:05:00Z", "2021-07-12T20:05:00+01:00"))


def test_an_organisation_of_slack_lists_its_people_apart(myria: Call, tmp_path: Path) -> None:
    """The export of an Enterprise Grid names them in org_users.json, and has a folder for each workspace."""
    members = {
        "org_users.json": [{"id": "W1", "real_name": "Ana Lima"}],
        "teams/studio/general/2025-03-10.json": [
            {"type": "message", "user": "W1", "text": "hello <@W1>", "ts": "1741600001.000200"}
        ],
    }
    [line] = events(myria, "slack", zipped(tmp_path / "grid.zip", members))
    assert line["payload"] == {"text": "hello @Ana Lima", "speaker": "Ana Lima"}


def test_an_edited_question_of_chatgpt_is_a_new_branch(myria: Call, tmp_path: Path) -> None:
    """ChatGPT keeps both: the later export adds what is seen now, and what was seen before stays."""

    def export(nodes: list[dict[str, Any]], end: str) -> Path:
        conversation = {"id": "c", "current_node": end, "mapping": {each["id"]: each for each in nodes}}
        return written(tmp_path / "conversations.json", [conversation])

    before = [node("q", None, "user", ["Which kiln?"], 1741600001), node("a", "q", "assistant", ["Gas"], 1741600002)]
    since = [node("r", None, "user", ["Which wheel?"], 1741600009), node("b", "r", "assistant", ["Oak"], None)]
    assert len(events(myria, "chatgpt", export(before, "a"))) == 2
    called = myria("import", export([*before, *since], "b"), "--from", "chatgpt", "--as", "me", "--json")
    assert (called.status, called.json["imported"], called.json["refused"]) == (0, 2, 0)
    assert held(myria) == ["Gas", "Oak", "Which kiln?", "Which wheel?"]


def test_a_chat_without_a_beginning_begins_with_its_first_time(myria: Call, tmp_path: Path) -> None:
    """Neither the conversation nor its first message says when: the next that does is as early as anybody knows."""
    nodes = {
        each["id"]: each
        for each in [node("q", None, "user", ["Which kiln?"], None), node("a", "q", "assistant", ["Gas"], 1741600001)]
    }
    conversation = {"id": "c", "create_time": None, "current_node": "a", "mapping": nodes}
    lines = events(myria, "chatgpt", written(tmp_path / "conversations.json", [conversation]))
    assert {line["payload"]["text"]: line["timestamp"] for line in lines} == {
        "Which kiln?": "2025-03-10T09:46:41Z",
        "Gas": "2025-03-10T09:46:41Z",
    }
