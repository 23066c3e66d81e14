"""The table of the agent's tools: a row for each parameter, with what must come of it.

Rows run one after the other through one server, each as an agent of its own, so that they see nothing of each other.
A tool that is added gets its rows here; `test_agent.py` checks that every parameter has one.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]
Caller = Callable[[str, Json], Awaitable[Json]]
"""Calls a tool with arguments, and returns the contract's JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A call of a tool, for the sake of some of its parameters.

    `before` are calls that come first; `$0`, `$1` and so on in later arguments are the ids or cursors that they answer.
    `answers` are members of the answer; `recalls` the texts that the agent recalls afterwards; `holds` whatever else
    must be true of the answer.
    """

    tool: str
    parameters: tuple[str, ...]
    arguments: Json
    before: tuple[tuple[str, Json], ...] = ()
    answers: Mapping[str, Any] = field(default_factory=dict)
    recalls: frozenset[str] | None = None
    holds: Callable[[Json], bool] = lambda _answer: True

    @property
    def name(self) -> str:
        """What a failure calls it."""
        return f"{self.tool}({', '.join(self.parameters)})"


def keeping(content: str, **more: Any) -> tuple[str, Json]:
    """Return a call that keeps a note."""
    return "remember", {"content": content, **more}


def contents(*texts: str) -> Callable[[Json], bool]:
    """Return a check that an answer's fragments are these, in any order."""
    return lambda answer: sorted(fragment["content"] for fragment in answer["fragments"]) == sorted(texts)


def saying(text: str | None, name: str) -> Callable[[Json], bool]:
    """Return a check that this is what an answer's first fragment says under a name; None for nothing."""
    return lambda answer: answer["fragments"][0].get(name) == text


def opens(*parameters: str, shows: str, hides: str, before: tuple[tuple[str, Json], ...], **arguments: Any) -> Row:
    """Return a row for parameters of context, whose text shows one thing and hides another."""
    return Row(
        tool="context",
        parameters=parameters,
        before=before,
        arguments=arguments,
        answers={"success": True},
        holds=lambda answer: shows in answer["injectionText"] and hides not in str(answer),
    )


def reflect(parameter: str, value: Any, kind: str, content: str) -> Row:
    """Return a row for one part of a reflection."""
    return Row(
        tool="reflect",
        parameters=("summary", parameter),
        arguments={"summary": "A day", parameter: value},
        answers={"success": True, "count": 2},
        holds=lambda answer: (answer["fragments"][1]["type"], answer["fragments"][1]["content"]) == (kind, content),
        recalls=frozenset({"A day", content}),
    )


FRIDAY = "The kiln opens on Friday"
THREE = (
    keeping("kiln decision", type="decision", topic="kiln"),
    keeping("clay procedure", type="procedure", topic="clay"),
    keeping("glaze fact", type="fact", topic="glaze", keywords=["glaze"]),
)
ALL = ("kiln decision", "clay procedure", "glaze fact")


LINKED = (
    keeping("fuse", topic="found", type="fact"),
    keeping("fuse blew", topic="other", type="fact"),
    keeping("fuse replaced", topic="other", type="fact"),
    ("link", {"fromId": "$0", "toId": "$1", "relationType": "caused_by"}),
    ("link", {"fromId": "$2", "toId": "$0", "relationType": "part_of"}),
)


CASES = (
    keeping("the fuse of the kiln blew", type="error", caseId="C-1"),
    keeping("the fuse of the kiln is too small", type="fact", caseId="C-1"),
    keeping("the fuse of the kiln blew again", type="error", caseId="C-1"),
    keeping("the fuse of the shop blew", type="error", caseId="C-2", goal="light"),
    keeping("a new fuse for the shop", type="procedure", caseId="C-2", outcome="it burns", resolutionStatus="resolved"),
    keeping("the fuse of nobody", type="fact"),
)


def remember(parameter: str, value: Any, **answers: Any) -> Row:
    """Return a row for one parameter of remember."""
    return Row(
        tool="remember", parameters=(parameter,), arguments={"content": FRIDAY, parameter: value}, answers=answers
    )


def amend(parameter: str, value: Any, **shown: Any) -> Row:
    """Return a row for one parameter of amend."""
    return Row(
        tool="amend",
        parameters=("id", parameter),
        before=(keeping(FRIDAY, type="fact"),),
        arguments={"id": "$0", parameter: value},
        answers={"success": True, "updated": True},
        holds=lambda answer: {name: answer["fragment"][name] for name in shown} == shown,
    )


def recall(*expected: str, before: tuple[tuple[str, Json], ...] = THREE, **arguments: Any) -> Row:
    """Return a row for parameters of recall."""
    return Row(
        tool="recall",
        parameters=tuple(arguments),
        before=before,
        arguments=arguments,
        answers={"success": True, "count": len(expected)},
        holds=contents(*expected),
    )


def first(expected: str, **arguments: Any) -> Row:
    """Return a row for what recall looks for."""
    return Row(
        tool="recall",
        parameters=tuple(arguments),
        before=THREE,
        arguments=arguments,
        holds=lambda answer: answer["fragments"][0]["content"] == expected,
    )


ROWS: tuple[Row, ...] = (
    Row(
        tool="remember",
        parameters=("content",),
        arguments={"content": "We decided that the kiln opens on Friday"},
        answers={
            "success": True,
            "created": True,
            "type": "decision",
            "ttl_tier": "permanent",
            "scope": "permanent",
            "inferred": ["type", "topic", "keywords", "importance"],
        },
        recalls=frozenset({"We decided that the kiln opens on Friday"}),
    ),
    remember("type", "procedure", type="procedure", importance=0.7, ttl_tier="hot"),
    remember("type", None, type="fact"),
    remember("topic", "kiln", topic="kiln"),
    remember("keywords", ["Kiln", "day"], keywords=["kiln", "day"]),
    remember("importance", 1, importance=1.0, ttl_tier="permanent"),
    remember("importance", 0.1, importance=0.1, ttl_tier="cold"),
    remember("isAnchor", True, ttl_tier="permanent"),
    remember("isAnchor", None, created=True),
    remember("source", "manual.pdf", created=True),
    remember("idempotencyKey", "k1", created=True),
    remember("dryRun", True, created=False, id=None, dryRun=True),
    Row(
        tool="remember",
        parameters=("sessionId", "contextSummary"),
        arguments={"content": FRIDAY, "contextSummary": "", "topic": "", "supersedes": [], "sessionId": None},
        answers={"created": True, "scope": "permanent"},
    ),
    remember("agentId", "row-planner", created=True),
    *(
        remember(parameter, "kiln", created=True)
        for parameter in (
            *("contextSummary", "workspace", "caseId", "goal", "outcome", "phase", "resolutionStatus"),
            "affect",
        )
    ),
    remember("assertionStatus", "observed", created=True),
    Row(
        tool="remember",
        parameters=("assertionStatus",),
        arguments={"content": FRIDAY, "assertionStatus": "guessed"},
        answers={"success": False, "code": "invalid_argument"},
    ),
    Row(
        tool="remember",
        parameters=("scope", "sessionId"),
        arguments={"content": FRIDAY, "scope": "session", "sessionId": "s1"},
        answers={"scope": "session", "created": True},
        recalls=frozenset(),
    ),
    Row(
        tool="remember",
        parameters=("supersedes",),
        before=(keeping("old"),),
        arguments={"content": "new", "supersedes": ["$0"]},
        answers={"created": True},
        recalls=frozenset({"new"}),
    ),
    Row(
        tool="remember",
        parameters=("idempotencyKey",),
        before=(keeping("first", idempotencyKey="k"),),
        arguments={"content": "first", "idempotencyKey": "k"},
        answers={"created": False, "id": "$0"},
        recalls=frozenset({"first"}),
    ),
    Row(
        tool="batch_remember",
        parameters=("items",),
        before=(keeping("known"),),
        arguments={"items": [{"content": "new"}, {"content": "known"}, {"content": ""}]},
        answers={"success": True, "inserted": 1, "skipped": 2},
        recalls=frozenset({"new", "known"}),
    ),
    Row(
        tool="batch_remember",
        parameters=("fragments", "workspace", "stream"),
        arguments={
            "fragments": [{"content": "new", "topic": "kiln", "type": "fact"}],
            "workspace": "w",
            "stream": True,
        },
        answers={"success": True, "inserted": 1},
        recalls=frozenset({"new"}),
    ),
    Row(
        tool="batch_remember",
        parameters=("items",),
        arguments={"items": []},
        answers={"success": False, "code": "invalid_argument"},
    ),
    Row(
        tool="batch_remember",
        parameters=("dryRun",),
        arguments={"items": [{"content": "new"}], "dryRun": True},
        answers={"dryRun": True, "inserted": 0},
        recalls=frozenset(),
    ),
    Row(
        tool="batch_remember",
        parameters=("agentId",),
        arguments={"items": [{"content": "new"}], "agentId": "row-planner"},
        answers={"inserted": 1},
        recalls=frozenset(),
    ),
    first("glaze fact", text="What of the glaze?"),
    first("glaze fact", keywords=["glaze"]),
    recall("glaze fact", topic="Glaze"),
    recall("kiln decision", type="decision"),
    recall("kiln decision", "clay procedure", minImportance=0.6),
    recall(*ALL, timeRange={"from": "2020-01-01T00:00:00Z"}),
    recall(timeRange={"to": "2020-01-01T00:00:00Z"}),
    recall("in it", before=(keeping("in it", scope="session", sessionId="s1"),), sessionId="s1"),
    recall(before=(keeping("in it", scope="session", sessionId="s1"),), sessionId="s2"),
    recall("own kiln", before=(keeping("own kiln", topic="kiln", agentId="row-critic"),), agentId="row-critic"),
    recall(*ALL, format="json"),
    recall(*ALL, fragmentCount=200),
    recall("kiln decision", depth="high-level"),
    *(
        recall(
            *expected,
            before=(*THREE, ("context", {"sessionId": "s1", "types": ["decision"]})),
            sessionId=session,
            excludeSeen=excluded,
        )
        for expected, session, excluded in (
            (("clay procedure", "glaze fact"), "s1", True),
            (("clay procedure", "glaze fact"), "s1", None),
            (ALL, "s1", False),
            (ALL, "s2", True),
        )
    ),
    recall(
        *ALL,
        "A day",
        before=(
            *THREE,
            ("context", {"sessionId": "s1", "types": ["decision"]}),
            ("reflect", {"summary": "A day", "sessionId": "s1"}),
        ),
        sessionId="s1",
    ),
    recall("clay procedure", "glaze fact", depth="tool-level"),
    recall(*ALL, depth="detail"),
    recall("clay procedure", depth="high-level", type="procedure"),
    recall(*ALL, timeRange={"from": "2020-01-01", "to": "2099-12-31"}),
    Row(
        tool="recall",
        parameters=("contextText",),
        before=(keeping("the kiln is hot"), keeping("the kiln of the bakery in Lisbon"), keeping("the kiln is old")),
        arguments={"text": "kiln", "contextText": "We plan a visit to the bakery in Lisbon", "fields": ["content"]},
        holds=lambda answer: answer["fragments"][0]["content"] == "the kiln of the bakery in Lisbon",
    ),
    first("glaze fact", contextText="What of the glaze?"),
    Row(
        tool="recall",
        parameters=("includeKeywords",),
        before=(keeping("kept so", keywords=["kiln", "clay"]),),
        arguments={"includeKeywords": True},
        holds=lambda answer: answer["fragments"][0]["keywords"] == ["kiln", "clay"],
    ),
    Row(
        tool="recall",
        parameters=("includeKeywords",),
        before=(keeping("kept so", keywords=["kiln", "clay"]),),
        arguments={"includeKeywords": False},
        holds=lambda answer: "keywords" not in answer["fragments"][0],
    ),
    Row(
        tool="recall",
        parameters=("fields", "keywords"),
        before=(keeping("kept so", keywords=["kiln"], importance=0.4), keeping("kept else", keywords=["clay"])),
        arguments={"keywords": ["kiln"], "fields": ["importance", "explanations", "keywords", "valid_to"]},
        holds=lambda answer: (
            answer["fragments"][0].keys() == {"id", "importance", "keywords", "explanations"}
            and answer["fragments"][0]["explanations"][0]
            == {"code": "direct_keyword_match", "detail": "keywords kiln", "ruleVersion": "1"}
        ),
    ),
    Row(
        tool="recall",
        parameters=("fields",),
        arguments={"fields": ["colour"]},
        answers={"success": False, "code": "invalid_argument"},
    ),
    Row(
        tool="recall",
        parameters=("text",),
        before=(keeping("the kiln", importance=0.5, type="fact"),),
        arguments={"text": "kiln"},
        holds=lambda answer: (
            {"age_days": 0, "access_count": 0, "confidence": 0.5}.items() <= answer["fragments"][0].items()
            and answer["_meta"]["hints"] == []
            and type(answer["_meta"]["searchEventId"]) is int
        ),
    ),
    Row(
        tool="recall",
        parameters=("text",),
        arguments={"text": "nothing of the kind"},
        answers={"count": 0, "fragments": []},
        holds=lambda answer: [hint["signal"] for hint in answer["_meta"]["hints"]] == ["no_results"],
    ),
    Row(
        tool="recall",
        parameters=("includeContext", "sessionId"),
        before=(
            keeping("first step", sessionId="s1"),
            keeping("second step", sessionId="s1"),
            keeping("a draft", sessionId="s1", scope="session"),
            keeping("elsewhere", sessionId="s2"),
        ),
        arguments={"text": "second", "includeContext": True, "sessionId": "s1"},
        holds=lambda answer: (
            [near["content"] for near in answer["fragments"][0]["nearby_context"]] == ["first step", "a draft"]
        ),
    ),
    Row(
        tool="recall",
        parameters=("includeContext",),
        before=(
            keeping("first step", sessionId="s1"),
            keeping("second step", sessionId="s1"),
            keeping("a draft", sessionId="s1", scope="session"),
        ),
        arguments={"text": "second", "includeContext": True},
        holds=lambda answer: [near["content"] for near in answer["fragments"][0]["nearby_context"]] == ["first step"],
    ),
    *(
        Row(
            tool="recall",
            parameters=("caseMode",),
            before=CASES,
            arguments={"text": "fuse", "caseMode": True, **more},
            answers={"success": True, "caseMode": True, "caseCount": len(expected)},
            holds=lambda answer, expected=expected: (  # type: ignore[misc]
                [(case["case_id"], case["resolution_status"]) for case in answer["cases"]] == expected
                and "fragments" not in answer
            ),
        )
        for more, expected in (
            ({}, [("C-2", "resolved"), ("C-1", "open")]),
            ({"maxCases": 1}, [("C-1", "open")]),
            ({"type": "procedure"}, [("C-2", "resolved")]),
            ({"phase": "nowhere"}, []),
        )
    ),
    Row(
        tool="recall",
        parameters=("caseMode", "maxCases"),
        before=CASES,
        arguments={"text": "fuse", "caseMode": True, "maxCases": 1, "type": "procedure"},
        holds=lambda answer: (
            [(event["event_type"], event["summary"]) for event in answer["cases"][0]["events"]]
            == [("error_observed", "the fuse of the shop blew"), ("fix_attempted", "a new fuse for the shop")]
            and {"goal": "light", "outcome": "it burns", "fragment_count": 2, "relevance_score": 1}.items()
            <= answer["cases"][0].items()
        ),
    ),
    Row(
        tool="recall",
        parameters=("caseMode", "tokenBudget"),
        before=CASES,
        arguments={"text": "fuse", "caseMode": True, "tokenBudget": 30},
        answers={"cases": [], "caseCount": 0, "totalTokens": 0},
    ),
    recall(
        "kept so",
        "kept too",
        before=(keeping("kept so", affect="doubt"), keeping("kept too", affect="surprise"), keeping("not", affect="x")),
        affect=["Doubt", "surprise"],
    ),
    recall(*ALL, threshold=0.9),
    recall(*ALL, includeSuperseded=False),
    recall(
        "old",
        "new",
        before=(keeping("old"), keeping("new", supersedes=["$0"])),
        includeSuperseded=True,
    ),
    recall(before=THREE, asOf="2020-01-01T00:00:00Z"),
    recall(*ALL, before=THREE, asOf="2099-01-01T00:00:00Z"),
    Row(
        tool="recall",
        parameters=("pageSize",),
        before=THREE,
        arguments={"pageSize": 2},
        answers={"count": 2},
        holds=lambda answer: bool(answer["nextCursor"]),
    ),
    Row(
        tool="recall",
        parameters=("cursor",),
        before=(*THREE, ("recall", {"pageSize": 2})),
        arguments={"cursor": "$3"},
        holds=contents("kiln decision"),
    ),
    *(
        recall(
            "kept so",
            before=(keeping("kept so", **{parameter: value}), keeping("not so", **{parameter: "else"})),
            **{parameter: value},
        )
        for parameter, value in (
            ("caseId", "CASE-7"),
            ("phase", "debugging"),
            ("resolutionStatus", "open"),
            ("affect", "doubt"),
        )
    ),
    recall(
        "ours",
        "of all",
        before=(keeping("ours", workspace="kiln"), keeping("of all"), keeping("theirs", workspace="shop")),
        workspace="Kiln",
    ),
    recall("anchor", before=(keeping("anchor", isAnchor=True), keeping("none")), isAnchor=True),
    recall("none", before=(keeping("anchor", isAnchor=True), keeping("none")), isAnchor=False),
    *(
        Row(
            tool="recall",
            parameters=("includeContext",),
            before=(keeping("kept so", **{parameter: "found in May"}),),
            arguments={"includeContext": shown},
            holds=saying("found in May" if shown else None, name),
        )
        for parameter, name in (
            ("contextSummary", "context_summary"),
            ("goal", "goal"),
            ("outcome", "outcome"),
        )
        for shown in (True, False)
    ),
    Row(
        tool="recall",
        parameters=(),
        before=(keeping("kept so", assertionStatus="verified", caseId="CASE-7", phase="done"),),
        arguments={"keywords": ["case-7"]},
        holds=lambda answer: (
            {"assertion_status": "verified", "case_id": "CASE-7", "phase": "done"}.items()
            <= answer["fragments"][0].items()
        ),
    ),
    recall("fuse", "fuse blew", before=LINKED, topic="found"),
    recall("fuse", before=LINKED, topic="found", includeLinks=False),
    Row(
        tool="recall",
        parameters=("includeLinks",),
        before=LINKED,
        arguments={"topic": "found", "includeLinks": False},
        holds=lambda answer: (
            [(linked["relation_type"], linked["preview"]) for linked in answer["fragments"][0]["linked"]]
            == [("caused_by", "fuse blew")]
        ),
    ),
    recall("fuse", "fuse replaced", before=LINKED, topic="found", linkRelationType="part_of"),
    recall("fuse", before=LINKED, topic="found", linkRelationType="contradicts"),
    Row(
        tool="recall",
        parameters=("tokenBudget",),
        before=THREE,
        arguments={"tokenBudget": 20},
        answers={"fragments": [], "count": 0, "totalTokens": 0},
    ),
    Row(
        tool="forget",
        parameters=("id",),
        before=(keeping("one", type="fact"), keeping("two", type="fact")),
        arguments={"id": "$0"},
        answers={"success": True, "deleted": 1, "protected": 0},
        recalls=frozenset({"two"}),
    ),
    Row(
        tool="forget",
        parameters=("id", "force"),
        before=(keeping("one", type="preference"),),
        arguments={"id": "$0", "force": True},
        answers={"deleted": 1, "protected": 0},
        recalls=frozenset(),
    ),
    Row(
        tool="forget",
        parameters=("id",),
        before=(keeping("one", type="preference"),),
        arguments={"id": "$0"},
        answers={"success": True, "deleted": 0, "protected": 1},
        recalls=frozenset({"one"}),
    ),
    Row(
        tool="forget",
        parameters=("topic", "dryRun"),
        before=(keeping("kiln one", type="fact", topic="kiln"), keeping("glaze two", type="fact", topic="glaze")),
        arguments={"topic": "kiln", "dryRun": True},
        answers={"deleted": 0, "dryRun": True},
        holds=contents("kiln one"),
        recalls=frozenset({"kiln one", "glaze two"}),
    ),
    Row(
        tool="forget",
        parameters=("topic",),
        before=(keeping("kiln one", type="fact", topic="kiln"), keeping("glaze two", type="fact", topic="glaze")),
        arguments={"topic": "kiln"},
        answers={"deleted": 1},
        recalls=frozenset({"glaze two"}),
    ),
    Row(
        tool="forget",
        parameters=("text", "dryRun"),
        before=(keeping("kiln one", type="fact"),),
        arguments={"text": "kiln", "dryRun": True},
        answers={"deleted": 0, "dryRun": True},
        holds=contents("kiln one"),
        recalls=frozenset({"kiln one"}),
    ),
    Row(
        tool="forget",
        parameters=("agentId",),
        before=(keeping("one", type="fact", agentId="row-own"),),
        arguments={"id": "$0", "agentId": "row-other"},
        answers={"success": True, "deleted": 0, "protected": 0, "code": "note_not_found"},
    ),
    Row(
        tool="restore",
        parameters=("id",),
        before=(keeping("one", type="fact"), ("forget", {"id": "$0"})),
        arguments={"id": "$0"},
        answers={"success": True, "restored": True, "id": "$0"},
        recalls=frozenset({"one"}),
    ),
    Row(
        tool="restore",
        parameters=("agentId",),
        before=(keeping("one", type="fact", agentId="row-mine"),),
        arguments={"id": "$0", "agentId": "row-theirs"},
        answers={"success": False, "code": "note_not_found"},
    ),
    amend("content", "The kiln opens on Monday", content="The kiln opens on Monday", version=2),
    amend("topic", "opening", topic="opening"),
    amend("keywords", ["day"], keywords=["day"]),
    amend("type", "decision", type="decision"),
    amend("importance", 0.3, importance=0.3),
    amend("isAnchor", True, is_anchor=True, ttl_tier="permanent"),
    amend("source", "manual.pdf", source="manual.pdf"),
    *(
        amend(parameter, "kiln", **{name: "kiln"})
        for parameter, name in (
            ("contextSummary", "context_summary"),
            ("workspace", "workspace"),
            ("caseId", "case_id"),
            ("goal", "goal"),
            ("outcome", "outcome"),
            ("phase", "phase"),
            ("resolutionStatus", "resolution_status"),
            ("affect", "affect"),
        )
    ),
    amend("assertionStatus", "verified", assertion_status="verified"),
    Row(
        tool="amend",
        parameters=("goal", "phase"),
        before=(keeping(FRIDAY, goal="open", phase="planning"),),
        arguments={"id": "$0", "phase": "done", "goal": "", "outcome": None},
        answers={"updated": True},
        holds=lambda answer: {"goal": "open", "phase": "done"}.items() <= answer["fragment"].items(),
    ),
    Row(
        tool="amend",
        parameters=("scope", "sessionId"),
        before=(keeping("The draft", scope="session", sessionId="s1"),),
        arguments={"id": "$0", "scope": "permanent"},
        answers={"updated": True},
        recalls=frozenset({"The draft"}),
    ),
    Row(
        tool="amend",
        parameters=("scope", "sessionId"),
        before=(keeping(FRIDAY),),
        arguments={"id": "$0", "scope": "session", "sessionId": "s1"},
        answers={"updated": True},
        recalls=frozenset(),
    ),
    Row(
        tool="amend",
        parameters=("scope",),
        before=(keeping(FRIDAY),),
        arguments={"id": "$0", "scope": "session"},
        answers={"success": False, "code": "invalid_argument"},
        recalls=frozenset({FRIDAY}),
    ),
    Row(
        tool="amend",
        parameters=("dryRun",),
        before=(keeping(FRIDAY, type="fact"),),
        arguments={"id": "$0", "content": "Monday", "dryRun": True},
        answers={"success": True, "updated": False, "dryRun": True},
        holds=lambda answer: (answer["fragment"]["content"], answer["fragment"]["version"]) == ("Monday", 2),
        recalls=frozenset({FRIDAY}),
    ),
    Row(
        tool="amend",
        parameters=("id",),
        before=(keeping(FRIDAY),),
        arguments={"id": "$0", "content": "", "affect": None},
        answers={"success": False, "code": "invalid_argument"},
    ),
    *(
        Row(
            tool="amend",
            parameters=("reason", "version"),
            before=(keeping(FRIDAY, type="fact"),),
            arguments={"id": "$0", "content": "Monday", "reason": "we met", "version": version},
            answers=answers,
            recalls=frozenset({text}),
        )
        for version, text, answers in (
            (1, "Monday", {"success": True, "updated": True}),
            (2, FRIDAY, {"success": False, "code": "already_superseded"}),
        )
    ),
    Row(
        tool="amend",
        parameters=("supersedes",),
        before=(keeping(FRIDAY),),
        arguments={"id": "$0", "content": "Monday", "supersedes": True},
        answers={"success": False, "code": "invalid_argument"},
        recalls=frozenset({FRIDAY}),
    ),
    Row(
        tool="amend",
        parameters=("agentId",),
        before=(keeping(FRIDAY, agentId="row-first"),),
        arguments={"id": "$0", "content": "Monday", "agentId": "row-second"},
        answers={"success": False, "code": "note_not_found"},
    ),
    Row(
        tool="amend",
        parameters=("content",),
        before=(keeping("one", type="fact"), keeping("two", type="fact")),
        arguments={"id": "$0", "content": "two"},
        answers={"success": False, "updated": False, "merged": True, "existingId": "$1"},
    ),
    opens(
        "workspace",
        shows="Ours",
        hides="Theirs",
        before=(
            keeping("Ours", type="procedure", workspace="Shop"),
            keeping("Theirs", type="procedure", workspace="Studio", topic="clay"),
        ),
        workspace="shop",
    ),
    Row(
        tool="context",
        parameters=("structured",),
        before=(
            keeping("Fire slowly", type="procedure"),
            keeping("The studio is in Porto", type="fact", isAnchor=True),
            keeping("The draft", type="fact", scope="session", sessionId="s1"),
            ("reflect", {"summary": "A quiet day", "open_questions": ["Who paid?"]}),
        ),
        arguments={"structured": True, "sessionId": "s1"},
        answers={"success": True, "structured": True, "count": 5, "anchorCount": 1, "wmCount": 1},
        holds=lambda answer: (
            [note["content"] for note in answer["core"]["procedures"]] == ["Fire slowly"]
            and answer["core"]["errors"] == answer["core"]["decisions"] == answer["core"]["preferences"] == []
            and [note["content"] for note in answer["anchors"]["permanent"]] == ["The studio is in Porto"]
            and [note["content"] for note in answer["working"]["current_session"]] == ["The draft"]
            and [note["content"] for note in answer["open_questions"]] == ["Who paid?"]
            and "fragments" not in answer
        ),
    ),
    opens("types", shows="kiln decision", hides="clay procedure", before=THREE, types=["decision"]),
    opens(
        "sessionId",
        shows="The draft",
        hides="Another draft",
        before=(
            keeping("The draft", type="fact", scope="session", sessionId="s1"),
            keeping("Another draft", type="fact", scope="session", sessionId="s2"),
        ),
        sessionId="s1",
    ),
    opens(
        "agentId",
        shows="mine",
        hides="theirs",
        before=(
            keeping("mine", type="procedure", agentId="row-opens"),
            keeping("theirs", type="procedure", agentId="row-shut"),
        ),
        agentId="row-opens",
    ),
    Row(
        tool="context",
        parameters=("tokenBudget",),
        before=THREE,
        arguments={"tokenBudget": 1},
        answers={"totalTokens": 0, "count": 0, "coreTokens": 0, "wmTokens": 0, "wmCount": 0, "injectionText": ""},
    ),
    reflect("decisions", ["Fire on Fridays"], "decision", "Fire on Fridays"),
    reflect("errors_resolved", ["The fuse blew"], "error", "The fuse blew"),
    reflect("new_procedures", ["Check the fuse"], "procedure", "Check the fuse"),
    reflect("open_questions", ["Who pays?"], "fact", "Who pays?"),
    Row(
        tool="reflect",
        parameters=("summary", "narrative_summary"),
        arguments={"summary": ["A day", "", "Two kilns"], "narrative_summary": "It rained"},
        answers={"success": True, "count": 3},
        holds=lambda answer: answer["fragments"][2]["type"] == "episode" and answer["breakdown"]["episode"] == 1,
        recalls=frozenset({"A day", "Two kilns", "It rained"}),
    ),
    Row(
        tool="reflect",
        parameters=("summary",),
        arguments={"summary": ["", " "]},
        answers={"success": False, "code": "invalid_argument"},
    ),
    Row(
        tool="reflect",
        parameters=("sessionId",),
        before=(keeping("The draft", scope="session", sessionId="s1"),),
        arguments={"summary": "A day", "sessionId": "s1"},
        answers={"success": True, "count": 1},
        recalls=frozenset({"A day"}),
    ),
    Row(
        tool="reflect",
        parameters=("task_effectiveness",),
        arguments={"summary": "A day", "task_effectiveness": {"overall_success": True, "tool_highlights": ["recall"]}},
        answers={"success": True},
        holds=lambda answer: answer["breakdown"]["task_feedback"] == 1,
    ),
    Row(
        tool="reflect",
        parameters=("agentId",),
        arguments={"summary": "A day", "agentId": "row-reflects"},
        answers={"success": True, "count": 1},
        recalls=frozenset(),
    ),
    Row(
        tool="memory_consolidate",
        parameters=("agentId",),
        before=(
            keeping("The kiln is hot", type="fact", agentId="row-tidy"),
            keeping("The kiln is hot.", type="fact", agentId="row-tidy"),
        ),
        arguments={"agentId": "row-tidy"},
        answers={
            "success": True,
            "ttlTransitions": 0,
            "importanceDecay": 0,
            "expiredDeleted": 0,
            "duplicatesMerged": 1,
            "embeddingsAdded": "off",
            "utilityUpdated": 1,
            "contradictionsFound": 0,
            "feedbackReportGenerated": False,
            "indexesPruned": 1,
            "stale_fragments": [],
            "contradictions": [],
            "remaining": False,
        },
        holds=lambda answer: [stage["stage"] for stage in answer["stages"]] == list(range(1, 11)),
    ),
    Row(
        tool="remember",
        parameters=("linkedTo",),
        before=(keeping("The kiln broke", type="error"),),
        arguments={"content": "A fuse blew", "linkedTo": ["$0"]},
        answers={"created": True, "conflicts": []},
        recalls=frozenset({"The kiln broke", "A fuse blew"}),
    ),
    Row(
        tool="remember",
        parameters=("content",),
        before=(keeping("The kiln opens on Friday at nine"),),
        arguments={"content": "The kiln opens on Monday at nine"},
        holds=lambda answer: (
            [(found["existing_content"], found["similarity"]) for found in answer["conflicts"]]
            == [("The kiln opens on Friday at nine", 0.75)]
        ),
    ),
    Row(
        tool="link",
        parameters=("fromId", "toId"),
        before=(keeping("one"), keeping("two")),
        arguments={"fromId": "$0", "toId": "$1"},
        answers={"success": True, "linked": True, "relationType": "related"},
    ),
    Row(
        tool="link",
        parameters=("relationType",),
        before=(keeping("one"), keeping("two")),
        arguments={"fromId": "$0", "toId": "$1", "relationType": "contradicts"},
        answers={"relationType": "contradicts"},
    ),
    Row(
        tool="graph_explore",
        parameters=("startId",),
        before=(
            keeping("one"),
            keeping("two"),
            ("link", {"fromId": "$0", "toId": "$1", "relationType": "caused_by", "weight": 0.25}),
        ),
        arguments={"startId": "$0"},
        answers={"success": True},
        holds=lambda answer: [edge["weight"] for edge in answer["edges"]] == [0.25],
    ),
    Row(
        tool="link",
        parameters=("weight",),
        before=(keeping("one"), keeping("two")),
        arguments={"fromId": "$0", "toId": "$1", "weight": 2},
        answers={"success": False, "code": "invalid_argument"},
    ),
    Row(
        tool="link",
        parameters=("replaces",),
        before=(
            keeping("one"),
            keeping("two"),
            ("link", {"fromId": "$0", "toId": "$1", "relationType": "caused_by"}),
        ),
        arguments={"fromId": "$0", "toId": "$1", "relationType": "part_of", "replaces": True},
        answers={"success": True, "linked": True, "relationType": "part_of"},
    ),
    Row(
        tool="link",
        parameters=("dryRun",),
        before=(keeping("one", topic="it"), keeping("two", topic="other")),
        arguments={"fromId": "$0", "toId": "$1", "dryRun": True},
        answers={"success": True, "linked": False, "dryRun": True},
    ),
    Row(
        tool="link",
        parameters=("agentId",),
        before=(keeping("one", agentId="row-linker"), keeping("two")),
        arguments={"fromId": "$1", "toId": "$0"},
        answers={"success": False, "code": "note_not_found"},
    ),
    Row(
        tool="graph_explore",
        parameters=("startId",),
        before=(
            keeping("The kiln broke", type="error"),
            keeping("A fuse blew", type="fact"),
            keeping("Replace the fuse", type="procedure"),
            keeping("Kilns are hot", type="fact"),
            ("link", {"fromId": "$0", "toId": "$1", "relationType": "caused_by"}),
            ("link", {"fromId": "$0", "toId": "$2", "relationType": "resolved_by"}),
            ("link", {"fromId": "$0", "toId": "$3"}),
        ),
        arguments={"startId": "$0"},
        answers={"success": True, "startId": "$0", "count": 3},
        holds=lambda answer: (
            {(node["content"], node["relation_type"], node["depth"]) for node in answer["nodes"]}
            == {
                ("The kiln broke", None, 0),
                ("A fuse blew", "caused_by", 1),
                ("Replace the fuse", "resolved_by", 1),
            }
            and {edge["relation_type"] for edge in answer["edges"]} == {"caused_by", "resolved_by"}
        ),
    ),
    Row(
        tool="graph_explore",
        parameters=("agentId",),
        before=(keeping("one", agentId="row-explorer"),),
        arguments={"startId": "$0"},
        answers={"success": False, "code": "note_not_found"},
    ),
    Row(
        tool="fragment_history",
        parameters=("id",),
        before=(keeping(FRIDAY), ("amend", {"id": "$0", "content": "The kiln opens on Monday"})),
        arguments={"id": "$0"},
        answers={"success": True, "count": 2, "superseded_by": []},
        holds=lambda answer: (
            [(version["version"], version["content"]) for version in answer["versions"]]
            == [(2, "The kiln opens on Monday"), (1, FRIDAY)]
            and answer["current"] == answer["versions"][0]
        ),
    ),
    Row(
        tool="fragment_history",
        parameters=("agentId",),
        before=(keeping("one", agentId="row-historian"),),
        arguments={"id": "$0"},
        answers={"success": False, "code": "note_not_found"},
    ),
    Row(
        tool="memory_stats",
        parameters=("agentId",),
        before=THREE,
        arguments={},
        answers={"success": True},
        holds=lambda answer: (
            {name: answer["stats"][name] for name in ("total", "permanent", "decision_count", "topic_count")}
            == {"total": 3, "permanent": 1, "decision_count": 1, "topic_count": 3}
            and answer["stats"]["avg_importance"] == "0.667"
        ),
    ),
    Row(
        tool="tool_feedback",
        parameters=("tool_name", "relevant", "sufficient", "suggestion", "context", "session_id", "trigger_type"),
        arguments={
            "tool_name": "recall",
            "relevant": True,
            "sufficient": False,
            "suggestion": "say more",
            "context": "asked for the kiln",
            "session_id": "s1",
            "trigger_type": "sampled",
        },
        answers={"success": True, "tool_name": "recall", "relevant": True, "sufficient": False},
        recalls=frozenset(),
    ),
    Row(
        tool="tool_feedback",
        parameters=("search_event_id", "fragment_ids"),
        before=(keeping("one"),),
        arguments={
            "tool_name": "recall",
            "relevant": True,
            "sufficient": True,
            "search_event_id": 7,
            "fragment_ids": ["$0"],
        },
        answers={"success": True},
    ),
    Row(
        tool="tool_feedback",
        parameters=("fragment_ids",),
        before=(keeping("one", agentId="row-felt"),),
        arguments={"tool_name": "recall", "relevant": True, "sufficient": True, "fragment_ids": ["$0"]},
        answers={"success": False, "code": "note_not_found"},
    ),
    Row(
        tool="tool_feedback",
        parameters=("agentId",),
        arguments={"tool_name": "recall", "relevant": True, "sufficient": True, "agentId": "row-judges"},
        answers={"success": True},
    ),
    remember("agentId", "default", created=True),  # the last one: all others read the pool too
)


async def run(ask: Caller, rows: Sequence[Row] = ROWS) -> dict[str, str]:
    """Run rows; return what is wrong by the row's name."""
    wrong = {}
    for number, row in enumerate(rows):
        agent = f"agent-{number}"
        if problem := await _problem(row, agent, ask):
            wrong[f"{number}: {row.name}"] = problem
    return wrong


async def _problem(row: Row, agent: str, ask: Caller) -> str | None:
    ids: list[str] = []
    for tool, arguments in row.before:
        answer = await ask(tool, {"agentId": agent, **_filled(arguments, ids)})
        ids.append(answer.get("id") or answer.get("nextCursor", ""))
    answer = await ask(row.tool, {"agentId": agent, **_filled(row.arguments, ids)})
    for name, value in _filled(dict(row.answers), ids).items():
        if name not in answer or answer[name] != value:
            return f"{name} is not {value!r}: {answer}"
    if not row.holds(answer):
        return f"not as it should be: {answer}"
    if row.recalls is not None:
        recalled = await ask("recall", {"agentId": agent})
        texts = {fragment["content"] for fragment in recalled["fragments"]}
        if texts != row.recalls:
            return f"afterwards it recalls {texts}"
    return None


def _filled(value: Any, ids: list[str]) -> Any:
    """Return a value with ids in place of `$0`, `$1` and so on."""
    if isinstance(value, dict):
        return {name: _filled(inner, ids) for name, inner in value.items()}
    if isinstance(value, list):
        return [_filled(inner, ids) for inner in value]
    if isinstance(value, str) and value.startswith("$"):
        return ids[int(value[1:])]
    return value
