"""What was withdrawn, or has ended, is in no byte that anybody gets, and what was restored is found at once.

Random sequences over one database, a tenant each: the log folded anew says what may be shown, and every answer, page,
export, metric, audit and log line is looked through for the words of what may not.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import re
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import orjson
import pytest

from myria import errors
from myria.access.principal import local_principal
from myria.access.store import AccessStore, NewKey
from myria.builds import browse
from myria.builds.run import run_build
from myria.builds.verify import verify
from myria.db.database import Database as Pool
from myria.db.queries import sql
from myria.llm.model import LanguageModel
from myria.log import transfer
from myria.memory import Memory
from myria.notes.evaluator import Evaluator
from myria.notes.feedback import feedback_report
from myria.notes.folding import event_log
from myria.search import unindexed, visible_blocks
from myria.settings import AuthSettings, LlmSettings, Settings
from myria_server.mcp.toolbox import Toolbox
from myria_server.metrics import ServerMetrics
from myria_server.readiness import Readiness
from tests.llm.conftest import Configuring, Starting, configured, provide
from tests.llm.oracle import plan, shown
from tests.llm.provider import Answer, Asked, calling
from tests.server.wire import META, Served, call, headers, serving
from tests.support import builds
from tests.support.counts import SOAK
from tests.support.postgres import Database

__all__ = ["configured", "provide"]

Json = dict[str, Any]

SEQUENCES = 2_000 if SOAK else 9
BATCH = 50 if SOAK else 3
"""Sequences over one database."""

STEPS = 10
HOWS = ("alone", "packed", "model")

SCOPES = (("ana", "ben"), ("ana", "ben", "carl"), ("ana", "dora"))
READERS = (["ana"], ["ben"], ["ana", "carl"])
SETTINGS = builds.settings(
    planner={"gap_s": 3_600},
    topics={},
    mcp={"ready_grace_s": 0, "request_deadline_s": 3_600, "append_deadline_s": 3_600},
    postgres={"connect_timeout_s": 300, "statement_timeout_s": 3_600, "idle_timeout_s": 3_600, "lock_timeout_s": 3_600},
    auth={"local_participants": ("ana", "ben")},
)
"""No deadline of the product ends a step here, however busy the machine is."""
POOL = ("ana", "ben")
"""Whose notes an agent keeps here."""

HOUR_NS = 3_600 * 10**9
DAY_NS = 24 * HOUR_NS

_STATES = """
    SELECT e.event_id, e.payload->>'text' AS text, e.payload->'note'->>'id' AS note_id,
           (SELECT f.reason FROM myria.withdrawn_of_log f
            WHERE f.tenant_id = e.tenant_id AND f.event_seq = e.event_seq
            ORDER BY f.by_event_seq DESC LIMIT 1) AS reason,
           n.event_seq IS NOT NULL AND n.session AND (
               n.event_seq < x.begun_seq OR x.ended_seq IS NOT NULL
               OR x.last_at + x.idle_s * interval '1 second' <= clock_timestamp())
           OR n.event_seq IS NOT NULL AND NOT n.session AND n.kind = 'fact' AND n.importance = 0.2::real
               AND greatest(n.changed_at, u.used_at) + interval '60 days' <= clock_timestamp() AS is_over
    FROM myria.events e
    LEFT JOIN myria.notes_of_log n ON n.tenant_id = e.tenant_id AND n.event_seq = e.event_seq
    LEFT JOIN myria.note_usage u ON u.tenant_id = n.tenant_id AND u.note_id = n.note_id
    LEFT JOIN myria.sessions_of_log x
        ON x.tenant_id = e.tenant_id AND x.scope_id = n.scope_id AND x.context_id = n.context_id
    WHERE e.payload ? 'text'
"""
"""What the log, folded anew, says of every event with a text; `is_over`: it is the current version of a note whose
session is over, or a faint one that nobody used for 60 days."""

_WORDS = ("garden", "tomato", "bridge", "river", "piano", "ticket")
_MARK = re.compile(r"zq(\d{5})qz", re.IGNORECASE)


def echo(asked: Asked) -> Answer:
    """Plan and walk as a model that repeats in labels and summaries what it was shown."""
    data = shown(asked)
    if "events" in data:
        texts = {event["id"]: event["text"] for event in data["events"]}
        planned = plan(data)
        parts: list[Json] = [planned, *planned["leaves"], *planned["groups"]]
        for part in parts:
            repeated = [texts[name] for name in part["rests_on"]]
            part |= {"label": repeated[0][:60], "summary": " ".join(repeated)[:390]}
        return calling(asked, ("submit_plan", planned))
    if "notes" in data:
        rating = {"value": 0.5, "specificity": 0.5, "actionability": 0.5}
        return calling(asked, ("rate", {"ratings": [rating | {"id": note["id"]} for note in data["notes"]]}))
    if "leaves" in data:
        leaf = data["leaves"][0]
        said = f"{leaf.get('label')} {leaf.get('summary')}"
        whole = {"groups": [], "label": said[:60], "summary": said[:390], "rests_on": leaf["rests_on"]}
        return calling(asked, ("submit_groups", whole))
    return calling(asked, ("choose", {"add": [one["id"] for one in data["further"]][:5], "stop": True}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """One database with one server, in which every sequence has a tenant of its own."""

    database: Database
    memory: Memory
    settings: Settings
    metrics: ServerMetrics
    served: Served
    control: Pool
    evaluator: Evaluator | None
    differences: str


class World:
    """A memory behind its tools, and what each event's own word may be shown for."""

    def __init__(self, installation: Installation, tenant: str, key: str, chance: random.Random) -> None:
        self.installation = installation
        self.database = installation.database
        self.memory = installation.memory
        self.settings = installation.settings
        self.tenant = tenant
        self.key = key
        self.chance = chance
        self.metrics = installation.metrics
        self.toolbox = Toolbox(self.memory, self.settings, self.metrics)
        self.admin = Toolbox(self.memory, self.settings, self.metrics, api="admin")
        self.agent = Toolbox(self.memory, self.settings, self.metrics, api="agent")
        self.notes: dict[str, list[int]] = {}
        self.sessions = 0
        self.recalls: list[Json] = []
        self.ids: dict[int, str] = {}
        self.participants: dict[int, tuple[str, ...]] = {}
        self.state: dict[int, str] = {}
        self.topics: set[str] = set()
        self.cursors: list[tuple[str, Json]] = []
        self.at = 0

    async def call(self, name: str, **arguments: Any) -> Json:
        result = await self.toolbox.call(f"myria_{name}", arguments, local_principal(self.tenant))
        answer: Json = orjson.loads(result.body)
        return answer

    async def tell(self, name: str, **arguments: Any) -> tuple[Json, str]:
        """Return what a tool of the agent's face answers, and all of its bytes."""
        result = await self.agent.call(name, arguments, local_principal(self.tenant, fallback=POOL))
        answer: Json = orjson.loads(result.body)
        return answer, f"{result.body.decode()}\n{result.text}"

    async def do(self, name: str, **arguments: Any) -> Json:
        """Return what a command of the agent's face answers, which shows nothing that was gone before."""
        gone = self.gone
        answer, text = await self.tell(name, **arguments)
        self.refuse(text, gone)
        return answer

    async def written(self, name: str, **arguments: Any) -> str:
        """Return the text and the structured content of a query that is asked for text, without the query itself."""
        result = await self.toolbox.call(
            f"myria_{name}", {**arguments, "format": "text"}, local_principal(self.tenant, fallback=POOL)
        )
        assert not result.is_error, result.body
        content: Json = orjson.loads(result.body)
        content.pop("constraints", None)
        return f"{json.dumps(content)}\n{result.text}"

    # What may happen.

    async def append(self, supersedes: int | None = None) -> None:
        number = len(self.ids)
        who = self.chance.choice(SCOPES) if supersedes is None else self.participants[supersedes]
        self.at += self.chance.choice([20, 60, 60, 900, 9_000])
        word = f"zq{number:05}qz"
        text = f"{word} {word} {self.chance.choice(_WORDS)} {self.chance.choice(_WORDS)}"
        named = {} if supersedes is None else {"supersedes": [self.ids[supersedes]]}
        answer = await self.call(
            "append_event",
            timestamp=(datetime(2026, 3, 1, tzinfo=UTC) + timedelta(seconds=self.at)).isoformat(),
            channel="chat",
            participants=list(who),
            payload={"text": text, "speaker": word if self.chance.random() < 0.2 else "Ana"},
            internal=supersedes is None and self.chance.random() < 0.1,
            type="topic_marker" if self.chance.random() < 0.1 else None,
            **named,
        )
        state = "live" if supersedes is None else self.state[supersedes]
        # What has ended may still be replaced, but for an earlier version of a note, which was replaced before.
        if state not in ("live", "ended") or (state == "ended" and "error" in answer):
            assert answer["error"]["code"] in ("already_superseded", "event_not_found")
            return
        assert "error" not in answer, answer
        self.ids[number], self.participants[number] = answer["event_id"], who
        await self.learn()
        assert self.state[number] == "live"
        assert supersedes is None or self.state[supersedes] in ("superseded", "ended")

    async def withdraw(self) -> None:
        reason = self.chance.choice(["forgotten", "forgotten", "superseded", "expired"])
        chosen = self.some()
        answer = await self.call(
            "withdraw_events", event_ids=[self.ids[n] for n in chosen], reason=reason, participants=["ana"]
        )
        await self.learn()
        assert "error" not in answer, answer
        for number in chosen:
            assert self.state[number] in (reason, "ended") or self.ids[number] in answer["unchanged"]

    async def restore(self) -> None:
        chosen = self.some()
        answer = await self.call("restore_events", event_ids=[self.ids[n] for n in chosen], participants=["ana"])
        assert "error" not in answer, answer
        await self.learn()
        assert all(self.state[number] in ("live", "ended") for number in chosen)

    async def build(self) -> None:
        full = self.chance.random() < 0.1
        await builds.build(self.database, tenant=self.tenant, configured=self.settings, full=full)

    async def kill(self) -> None:
        build_id = await builds.queue(self.database, tenant=self.tenant)
        task = asyncio.create_task(run_build(self.settings, self.database.builder_dsn, self.tenant, build_id))
        for _ in range(self.chance.randint(1, 400)):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await run_build(self.settings, self.database.builder_dsn, self.tenant, build_id)

    async def rollback(self) -> None:
        answer = await self.call("list_snapshots")
        assert "error" not in answer, answer
        snapshots = answer["snapshots"]
        if snapshots:
            with suppress(errors.ConflictError):
                await self.memory.registry.rollback(self.tenant, self.chance.choice(snapshots)["snapshot_id"])

    async def publish(self) -> None:
        built = await builds.build(self.database, tenant=self.tenant, configured=self.settings, hold=True)
        if built.snapshot_id is not None:
            await self.withdraw()
            await self.memory.registry.publish(self.tenant, built.snapshot_id)

    async def begin_pages(self) -> None:
        for name, limit in (("query_event_nodes", {"limit": 3}), ("query_references", {"max_nodes": 8})):
            arguments = {"participants": ["ana"], **limit}
            answer = await self.call(name, **arguments)
            assert "error" not in answer, answer
            if answer["next_cursor"]:
                self.cursors.append((name, {**arguments, "cursor": answer["next_cursor"]}))

    async def begin_recall(self) -> None:
        answer, _ = await self.tell("recall", pageSize=2, includeSuperseded=self.chance.random() < 0.3)
        if answer.get("nextCursor"):
            self.recalls.append({"pageSize": 2, "cursor": answer["nextCursor"]})

    async def remember(self, **more: Any) -> None:
        number, content = self.new_text()
        replaced = None
        if not more:
            live = list(self.notes)
            replaced = self.chance.choice(live) if live and self.chance.random() < 0.3 else None
            more = {} if replaced is None else {"supersedes": [replaced]}
        if self.notes and self.chance.random() < 0.3:
            more["linkedTo"] = [self.chance.choice(list(self.notes))]
        if self.chance.random() < 0.5:
            more["topic"] = self.chance.choice((*_WORDS, content.split()[0]))
        answer = await self.do("remember", content=content, importance=self.chance.choice([0.2, 0.5, 0.9]), **more)
        if not answer["success"]:
            assert replaced is not None or "linkedTo" in more, answer
            return
        await self.kept(answer["id"], number)
        if replaced is not None:
            assert self.current(replaced) == "superseded"

    async def remember_for_a_session(self) -> None:
        await self.remember(scope="session", sessionId=f"s{self.sessions}")

    async def remember_for_an_idle_session(self) -> None:
        """Keep a note of a session that was over by itself before: the clock stood two hours earlier."""
        self.sessions += 1
        clock = time.time_ns
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(time, "time_ns", lambda: clock() - 2 * HOUR_NS)
            number, content = self.new_text()
            answer = await self.do("remember", content=content, scope="session", sessionId=f"s{self.sessions}")
        self.sessions += 1
        assert answer["success"], answer
        self.participants[number] = POOL
        self.notes[answer["id"]] = [number]
        await self.learn()
        assert self.state[number] == "ended"

    async def expire(self) -> None:
        """Keep a note that ends by itself: the clock stood as many days earlier. It has ended, or will in a day."""
        days = self.chance.choice([59, 61, 400])
        clock = time.time_ns
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(time, "time_ns", lambda: clock() - days * DAY_NS)
            number, content = self.new_text()
            answer = await self.do("remember", content=content, type="fact", importance=0.2)
        assert answer["success"], answer
        self.participants[number] = POOL
        self.notes[answer["id"]] = [number]
        await self.learn()
        assert self.state[number] == ("live" if days < 60 else "ended")

    async def remember_several(self) -> None:
        first, one = self.new_text()
        other = one.replace(f"zq{first:05}qz", f"zq{first + 1:05}qz")
        answer = await self.do("batch_remember", items=[{"content": one}, {"content": other}])
        assert answer["success"], answer
        for number, kept in zip((first, first + 1), answer["results"], strict=True):
            await self.kept(kept["id"], number)

    async def reflect(self) -> None:
        """End the session; what it came to is notes, too."""
        first = len(self.ids)
        marks = [f"zq{first + at:05}qz" for at in range(3)]
        answer = await self.do(
            "reflect",
            summary=f"{marks[0]} {self.chance.choice(_WORDS)}",
            decisions=[f"{marks[1]} {self.chance.choice(_WORDS)}"],
            open_questions=[f"{marks[2]} why?"],
            sessionId=f"s{self.sessions}",
            task_effectiveness={"overall_success": True, "tool_highlights": ["recall"], "tool_pain_points": []},
        )
        self.sessions += 1
        assert answer["success"], answer
        for fragment in answer["fragments"]:
            await self.kept(fragment["id"], int(_MARK.findall(fragment["content"])[0]))

    async def amend(self) -> None:
        if not self.notes:
            return
        note_id = self.chance.choice(list(self.notes))
        number, content = self.new_text()
        was_live = self.current(note_id) == "live"
        answer = await self.do("amend", id=note_id, content=content)
        assert answer["success"] == was_live, answer
        if was_live:
            before = self.notes[note_id][-1]
            self.notes[note_id].append(number)
            self.participants[number] = POOL
            await self.learn()
            assert (self.state[before], self.state[number]) == ("superseded", "live")

    async def forget(self) -> None:
        if self.notes:
            note_id = self.chance.choice(list(self.notes))
            was_live = self.current(note_id) == "live"
            await self.do("forget", id=note_id, force=True, dryRun=False)
            await self.learn()
            if was_live:
                assert {self.state[version] for version in self.notes[note_id]} == {"forgotten"}

    async def forget_by_topic(self) -> None:
        topic = self.chance.choice(_WORDS)
        await self.do("forget", topic=topic, dryRun=True)
        if self.chance.random() < 0.5:
            await self.do("forget", topic=topic, dryRun=False, force=True)
        await self.learn()

    async def restore_note(self) -> None:
        if self.notes:
            note_id = self.chance.choice(list(self.notes))
            answer, _ = await self.tell("restore", id=note_id)
            was_ended = self.current(note_id) == "ended"
            await self.learn()
            if answer["success"] and not was_ended:
                assert self.current(note_id) == "live"

    async def link(self) -> None:
        if len(self.notes) > 1:
            one, other = self.chance.sample(list(self.notes), 2)
            relation = self.chance.choice(("related", "caused_by", "resolved_by", "contradicts"))
            await self.do("link", fromId=one, toId=other, relationType=relation)

    async def consolidate(self) -> None:
        """Let maintenance withdraw what has ended."""
        await self.memory.consolidation.run(self.tenant)
        await self.learn()
        assert "ended" not in self.state.values()

    async def rate(self) -> None:
        """Let the model rate notes, where there is one: its audit holds what they say."""
        if self.installation.evaluator is not None:
            async with self.installation.control.write(self.tenant) as connection:
                await connection.execute(sql("evaluations.enqueue"), self.tenant, list(self.notes))
            await self.installation.evaluator.run(self.tenant)
            async with self.installation.control.read(self.tenant) as connection:
                assert await connection.fetchval("SELECT count(*) FROM myria.note_evaluations_due") == 0

    async def give_feedback(self) -> None:
        await self.do("tool_feedback", tool_name="recall", relevant=True, sufficient=False, suggestion="more")

    def new_text(self) -> tuple[int, str]:
        """Return the number of an event and a text that nothing else says; the number is taken by `learn`."""
        number = len(self.ids)
        word = f"zq{number:05}qz"
        return number, f"{word} {word} {self.chance.choice(_WORDS)} {self.chance.choice(_WORDS)}"

    async def kept(self, note_id: str, number: int) -> None:
        """Learn of a new note."""
        self.participants[number] = POOL
        self.notes[note_id] = [number]
        await self.learn()
        assert self.state[number] == "live"

    def current(self, note_id: str) -> str:
        """Return what became of the newest version of a note."""
        return self.state[self.notes[note_id][-1]]

    @property
    def gone(self) -> set[int]:
        """The events that may not be shown."""
        return {number for number, state in self.state.items() if state != "live"}

    async def learn(self) -> None:
        """Learn what the log, folded anew, says of every event."""
        async with self.memory.database.read(self.tenant) as connection:
            rows = await connection.fetch(_STATES)
        over = {row["note_id"] for row in rows if row["is_over"] and row["reason"] is None}
        for row in rows:
            number = int(_MARK.findall(row["text"])[0])
            reason = "live" if row["reason"] in (None, "restored") else row["reason"]
            self.ids[number] = row["event_id"]
            self.state[number] = "ended" if row["note_id"] in over and reason in ("live", "superseded") else reason

    def some(self) -> list[int]:
        first = self.chance.randrange(len(self.ids))
        return [n for n in range(first, first + self.chance.choice([1, 1, 2, 6])) if n in self.ids]

    # What must hold.

    async def check(self, *, share: float = 0.08) -> None:
        """Look through answers for the words of what may not be shown.

        Args:
            share: of the questions that are asked: the others are asked after another step.
        """
        await self.learn()
        gone = self.gone
        softly = {number for number, state in self.state.items() if state == "superseded"}
        for include_superseded, refused in ((False, gone), (True, gone - softly)):
            for ask in self.questions(include_superseded=include_superseded):
                if self.chance.random() < share:
                    self.refuse(await ask, refused)
                else:
                    ask.close()
        if self.chance.random() < share:
            for text in [text async for text in self.administration()]:
                self.refuse(text, gone)
        for reader in READERS:
            for more, may_show in ((False, set(self.ids) - gone), (True, (set(self.ids) - gone) | softly)):
                if self.chance.random() < share:
                    answer = await self.call(
                        "query_event_nodes",
                        participants=reader,
                        limit=200,
                        include_internal=True,
                        include_superseded=more,
                    )
                    assert "error" not in answer, answer
                    found = {child["event_id"] for child in answer["root"]["children"]}
                    visible = {self.ids[n] for n in may_show if set(reader) <= set(self.participants[n])}
                    assert found & set(self.ids.values()) == visible

    def refuse(self, text: str, gone: set[int]) -> None:
        in_text = {int(number) for number in _MARK.findall(text)} & gone
        at = min((text.casefold().index(f"zq{number:05}qz") for number in in_text), default=0)
        assert not in_text, ({number: self.state[number] for number in in_text}, text[max(0, at - 1_500) : at + 500])

    def questions(self, *, include_superseded: bool) -> Any:
        """Yield everything that can be asked, each as an awaitable of all its bytes."""
        more = {"include_superseded": True} if include_superseded else {}
        words = [f"zq{n:05}qz" for n in sorted(self.gone)][-3:]
        for reader in READERS:
            asked: list[tuple[str, Json]] = [
                ("query_event_nodes", {"include_internal": True, "limit": 200}),
                ("query_references", {"max_nodes": 500}),
                ("query_references", {"max_nodes": 500, "include_payload": True, "order": "oldest"}),
                ("query_references", {"query": "garden tomato piano", "max_nodes": 30}),
                (
                    "query_references",
                    {"query": "garden tomato", "max_nodes": 12, "mode": "llm", "include_payload": True},
                ),
            ]
            asked += [("query_event_nodes", {"query": word}) for word in words]
            asked += [("query_references", {"query": word}) for word in words]
            for name, arguments in asked:
                yield self.answer(name, participants=reader, **arguments, **more)
            yield self.written("query_references", participants=reader, max_nodes=60, view="full", **more)
            yield self.written("query_event_nodes", participants=reader, max_tokens=900, limit=200, **more)
        for topic in sorted(self.topics)[-20:]:
            yield self.answer("get_topic", topic_id=topic, participants=["ana"])
        for number in list(self.ids)[-30:]:
            yield self.event(number, include_superseded=include_superseded)
        if include_superseded:
            yield self.told("recall", includeSuperseded=True, tokenBudget=4_000)
            yield self.told("recall", includeSuperseded=True, includeLinks=True, text="garden tomato")
            for note_id in list(self.notes)[-6:]:
                yield self.told("fragment_history", id=note_id)
        else:
            for name, arguments in self.cursors:
                yield self.answer(name, **arguments)
            recalls: list[Json] = [
                {"tokenBudget": 4_000}, {"text": "garden tomato piano"}, {"includeLinks": True, "format": "json"},
                {"sessionId": f"s{self.sessions}"}, {"sessionId": f"s{max(0, self.sessions - 1)}"},
                *({name: word} for word in words[-1:] for name in ("topic", "text")), *self.recalls,
            ]  # fmt: skip
            for arguments in recalls:
                yield self.told("recall", **arguments)
            yield self.told("context", tokenBudget=4_000, sessionId=f"s{self.sessions}")
            yield self.told("context", types=["fact", "decision", "episode"])
            yield self.told("memory_stats")
            yield self.told("forget", query="garden tomato", dryRun=True)
            for note_id in list(self.notes)[-6:]:
                yield self.told("graph_explore", startId=note_id)
            for uri in ("memory://stats", "memory://topics", "memory://config"):
                yield self.posted("resources/read", uri, {"uri": uri})
            yield self.posted("prompts/get", "keep_memory", {"name": "keep_memory"})
            yield self.sent("myria_query_references", {"include_payload": True, "max_nodes": 300}, "/mcp")
            yield self.sent("recall", {"tokenBudget": 3_000}, "/mcp/agent")
            for name in ("list_snapshots", "get_snapshot_status"):
                yield self.sent(f"myria_{name}", {}, "/mcp/admin")

    async def answer(self, name: str, **arguments: Any) -> str:
        answer = await self.call(name, **arguments)
        assert "error" not in answer or name == "get_topic" or "cursor" in arguments, answer
        answer.pop("constraints", None)
        text = json.dumps(answer)
        self.topics |= set(re.findall(r"top_[0-9a-f]+", text))
        return text

    async def told(self, name: str, **arguments: Any) -> str:
        return (await self.tell(name, **arguments))[1]

    async def event(self, number: int, *, include_superseded: bool) -> str:
        more = {"include_superseded": True} if include_superseded else {}
        answer = await self.call(
            "get_event", event_id=self.ids[number], participants=["ana"], include_internal=True, **more
        )
        live = self.state[number] == "live" or (include_superseded and self.state[number] == "superseded")
        assert ("event" in answer) is live, (self.state[number], answer)
        return json.dumps(answer)

    async def posted(self, method: str, name: str, params: Json) -> str:
        """Send a message over HTTP."""
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params | {"_meta": META}}
        named = headers(name, method=method) | {"authorization": f"Bearer {self.key}"}
        response = await self.installation.served.post(message, named, path="/mcp/agent")
        assert "result" in response.json(), response.text
        return response.text

    async def sent(self, name: str, arguments: Json, path: str) -> str:
        """Call a tool over HTTP, in an old form or a new one."""
        version = self.chance.choice((None, "2025-06-18", "2026-07-28"))
        named = headers(name, version=version) | {"authorization": f"Bearer {self.key}"}
        message = call(name, arguments, version=version)
        response = await self.installation.served.post(message, named, path=path)
        result = response.json()["result"]
        assert not result["isError"], response.text
        return response.text

    async def administration(self) -> AsyncIterator[str]:
        """Yield what those see who run it: metrics, export, console, audits, feedback."""
        tenant, database = self.tenant, self.memory.database
        yield (await self.metrics.text(Readiness(self.memory.ready, grace_s=0))).decode()
        yield (await self.installation.served.client.get("/metrics")).text
        bound = await transfer.export_bound(self.memory.appending, tenant)
        async for page in transfer.export_pages(database, tenant, bound):
            yield page.text.decode()
        if self.memory.retrieval.walker is not None:
            await self.memory.retrieval.walker.settle()
        async with database.read(tenant) as connection:
            filters: tuple[Any, ...] = ([], None, None, None, None, None, None)
            yield repr(await connection.fetch(sql("browse.events"), tenant, 0, [], *filters, 1_000, False))
            rows = await connection.fetch("SELECT snapshot_id FROM myria.snapshots WHERE number IS NOT NULL")
            chosen = [await browse.find_snapshot(connection, tenant, row["snapshot_id"]) for row in rows]
            for snapshot in chosen:
                reader = await browse.ShownTrees.of(connection, tenant, snapshot)
                async for root in browse.scope_roots(connection, tenant, snapshot):
                    subjects = await browse.subject_root(connection, tenant, snapshot, root.scope_id)
                    waiting = [root.root, *([] if subjects is None else [subjects])]
                    while waiting:
                        nodes = await reader.nodes(waiting)
                        yield repr(nodes)
                        waiting = [child for node in nodes for child in node.children]
            for before, after in pairwise(chosen):
                async for _, difference in browse.differing_scopes(connection, tenant, before, after):
                    yield repr(difference)
        yield repr(await feedback_report(database, tenant, limit=100))
        async with self.installation.control.read(tenant) as connection:
            calls = await connection.fetch(sql("llm.calls"), tenant, None, None, False, 1_000)
            yield repr([dict(row) for row in calls])
            for statement in ("audit.entries", "audit.calls"):
                yield repr([dict(row) for row in await connection.fetch(sql(statement), tenant, 1_000)])

    async def check_the_folds(self) -> None:
        """Compare every projection with a fold of the log."""
        async with self.memory.database.read(self.tenant) as connection:
            differing = await connection.fetch(self.installation.differences)
        assert [row["name"] for row in differing] == []

    async def check_the_trees(self) -> None:
        """Check that the newest build is what a full one makes, where no model planned."""
        report = await verify(self.memory.database, self.tenant, self.settings.planner, deep=True)
        assert report.failed == 0, [check.failures for check in report.checks if check.failed]
        if self.settings.llm.template is None:
            cutoff = await builds.value(
                self.database,
                "SELECT s.cutoff FROM myria.snapshots s JOIN myria.active_snapshots a USING (tenant_id, snapshot_id)",
                tenant=self.tenant,
            )
            planned = await builds.planned(self.database, cutoff, tenant=self.tenant, configured=self.settings)
            assert await builds.roots(self.database, tenant=self.tenant) == planned


PROJECTIONS = ("withdrawn", "notes", "sessions", "note_relations", "tool_feedback", "note_evaluations")


async def differences(memory: Memory) -> str:
    """Return the statement that names the projections that differ from what the log gives when it is folded anew."""
    parts = []
    async with memory.database.read("default") as connection:
        for name in PROJECTIONS:
            log = f"{name}_of_log"
            columns = await connection.fetchval(
                "SELECT string_agg(quote_ident(column_name::text), ', ') FROM information_schema.columns"
                " WHERE table_schema = 'myria' AND table_name = $1",
                log,
            )
            table, folded = f"SELECT {columns} FROM myria.{name}", f"SELECT {columns} FROM myria.{log}"
            both = f"({table} EXCEPT {folded}) UNION ALL ({folded} EXCEPT {table})"
            parts.append(f"SELECT '{name}' AS name WHERE EXISTS ({both})")
    return " UNION ALL ".join(parts)


async def run(world: World) -> None:
    """Do one sequence, and check after each step."""
    for _ in range(8):
        await world.append()
    await world.remember()
    await world.remember_for_a_session()
    steps = [
        world.append, world.append, world.withdraw, world.withdraw, world.restore, world.build, world.build, world.kill,
        world.rollback, world.publish, world.begin_pages, world.begin_recall, world.remember, world.remember,
        world.remember_for_a_session, world.remember_for_a_session, world.remember_for_an_idle_session,
        world.expire, world.expire, world.remember_several, world.reflect, world.reflect, world.amend, world.amend,
        world.forget,
        world.forget_by_topic, world.restore_note, world.link, world.consolidate, world.give_feedback, world.rate,
    ]  # fmt: skip
    done: list[str] = []
    try:
        for _ in range(STEPS):
            step = world.chance.choice([*steps, None, None])
            done.append(step.__name__ if step is not None else "supersede")
            if step is None:
                await world.append(supersedes=world.chance.choice(list(world.ids)))
            else:
                await step()
            await world.check()
            await world.check_the_folds()
        await world.memory.registry.resume(world.tenant)
        await world.build()
        await world.check(share=0.35)
        await world.check_the_trees()
    except BaseException as error:
        error.add_note(f"steps: {done}")
        raise


@pytest.fixture
def model(provide: Starting, configured: Configuring) -> LlmSettings:
    """What leads to a model that echoes: it walks where it is asked for, since a prompt holds the question's words."""
    return configured(provide(echo), audit="full", walk=False)


@pytest.mark.soak
@pytest.mark.parametrize("batch", range(SEQUENCES // BATCH))
async def test_withdrawn_is_in_no_byte(
    database: Database,
    model: LlmSettings,
    batch: int,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Whatever is appended, kept, amended, replaced, forgotten, let expire, restored, built, rolled back or killed."""
    how = HOWS[batch % len(HOWS)]
    caplog.set_level(logging.INFO)
    settings = replace(SETTINGS, auth=AuthSettings(mode="keys", failures_per_minute=None))
    if how != "alone":
        settings = replace(settings, planner=replace(settings.planner, subjects=True))
    if how == "packed":
        monkeypatch.setattr(visible_blocks, "SHARED_FROM", 1)
        monkeypatch.setattr(unindexed, "FEW_SCOPES", 0)
    elif how == "model":
        settings = replace(settings, llm=model)
    async with AsyncExitStack() as stack:
        memory = await stack.enter_async_context(Memory(database.server_dsn, settings))
        metrics = ServerMetrics()
        control = await stack.enter_async_context(Pool(database.operator_dsn))
        asked = LanguageModel.configured(settings.llm) if how == "model" else None
        installation = Installation(
            database=database,
            memory=memory,
            settings=settings,
            metrics=metrics,
            served=await stack.enter_async_context(serving(memory, settings, metrics=metrics)),
            control=control,
            evaluator=None if asked is None else Evaluator(event_log(control), asked, most=100),
            differences=await differences(memory),
        )
        if installation.evaluator is not None:
            stack.push_async_callback(installation.evaluator.close)
        keys = AccessStore(installation.control)
        for seed in range(batch * BATCH, (batch + 1) * BATCH):
            tenant = f"t{seed}"
            await keys.ensure_tenant(tenant)
            new = NewKey(
                name="k", tenant=tenant, own=POOL, roles=("append", "read", "admin"), faces=("core", "agent", "admin")
            )
            key, _ = await keys.create_key(new)
            caplog.clear()
            world = World(installation, tenant, key.text, random.Random(seed))
            try:
                await run(world)
                world.refuse(caplog.text, world.gone)
            except BaseException as error:
                error.add_note(f"sequence {seed}, {how}")
                raise
