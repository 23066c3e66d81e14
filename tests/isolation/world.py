"""Twenty-five credentials of five tenants with the same names, and an oracle that knows what each may see.

Every event holds a word that is its own, `zq00017qz`: whichever bytes of an answer hold a word, an id of an event, a
topic or a snapshot, the oracle says whether they may be there.
"""

from __future__ import annotations

import itertools
import json
import random
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from myria.access.principal import Role
from myria.access.store import AccessStore, NewKey
from myria.builds.snapshots import Registry
from myria.db.database import Database as Pool
from myria.db.queries import sql
from myria.erasure.carrying import ErasureCarrier
from myria.notes.folding import event_log
from myria.settings import AuthSettings, ErasureSettings, McpSettings, Settings, TurnsSettings
from myria_server.api.tools import TOOLS
from myria_server.paths import PATH_OF
from tests.server.wire import META, MODERN, Served, call, headers
from tests.support.builds import build, rows
from tests.support.postgres import Database

Json = dict[str, Any]

TENANTS = ("north", "south", "east", "west", "default")
OTHERS = ("user:1", "user:2", "carl", "dora")
WORDS = ("garden", "tomato", "bridge", "river", "piano", "ticket", "doctor", "harbour")
FORMS = ("modern", "modern through the SDK", "legacy", "2025-06-18", "legacy through the SDK", "batch")
SETTINGS = Settings(
    auth=AuthSettings(mode="keys", append_others="anyone", failures_per_minute=None),
    turns=TurnsSettings(enabled=True),
    erasure=ErasureSettings(max_open=10_000),
    mcp=McpSettings(request_deadline_s=3600, append_deadline_s=3600),
)

NAMES = {tool.name: tool.plain() for tool in TOOLS}
DOTTED = {tool.name: tool.dotted() for tool in TOOLS}
AGENT = PATH_OF["agent"]

_WORD = re.compile(r"zq(\d{5})qz", re.IGNORECASE)
_ID = re.compile(r"\b(?:evt|note|top|snp|snap|bld|req|node)_[0-9a-z]{8,}|\b[0-9a-f]{64}\b")


@dataclass(frozen=True, slots=True)
class Asking:
    """As whom something is asked, by the words of the rule: what any mask sees, names and whether exactly they."""

    masks: frozenset[tuple[frozenset[str], bool]]

    @classmethod
    def as_all(cls, names: Iterable[str]) -> Asking:
        """Return the one mask of a call that names no masks."""
        return cls(frozenset({(frozenset(names), False)}))

    def sees(self, scope: frozenset[str]) -> bool:
        """Tell whether it may see the scope of these participants."""
        return any(scope == names if exact else names <= scope for names, exact in self.masks)

    def same(self, other: Asking | None) -> bool:
        """Tell whether two lists see the same, whatever adds nothing to them."""
        return other is not None and self._needed() == other._needed()

    def _needed(self) -> set[tuple[frozenset[str], bool]]:
        wide = [names for names, exact in self.masks if not exact]
        return {
            (names, exact)
            for names, exact in self.masks
            if not any(other <= names if exact else other < names for other in wide)
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Credential:
    """One of twenty-five: its key, and what the oracle knows of it."""

    tenant: str
    text: str
    own: frozenset[str]
    patterns: bool
    roles: tuple[Role, ...]
    faces: tuple[str, ...]

    def asking(self, arguments: Json) -> Asking | None:
        """Return as whom it asks by the participants or masks of a call; None where that must be refused."""
        given = arguments.get("masks") or [{"participants": arguments.get("participants")}]
        masks = [(self._naming(mask.get("participants")), mask.get("exact", False)) for mask in given]
        if any(names is None for names, _ in masks):
            return None
        return Asking(frozenset((names, exact) for names, exact in masks if names is not None))

    def acting(self, agent: str | None) -> tuple[frozenset[str], Asking] | None:
        """Return for whom it keeps a note as an agent, and as whom it asks; None where that must be refused."""
        pool = (self.own, True)
        shared = (frozenset({"org"}), False) if "rest" in self.faces else (self.own | {"org"}, True)
        beside = set() if self.patterns else {shared}
        if agent is None or agent == "default":
            return self.own, Asking(frozenset({pool, *beside}))
        if not (self.patterns and agent.startswith("user:")):
            return None
        together = self.own | {agent}
        return together, Asking(frozenset({(together, False), pool}))

    def _naming(self, named: Iterable[str] | None) -> frozenset[str] | None:
        named = frozenset(named or ())
        if named & self.own and not named >= self.own:
            return None
        added = named - self.own
        if any(not (self.patterns and name.startswith("user:")) for name in added):
            return None
        if (self.patterns and not added) or "read" not in self.roles:
            return None
        return self.own | added


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One event of the oracle."""

    number: int
    event_id: str
    tenant: str
    participants: frozenset[str]
    internal: bool
    context: str | None = None

    @property
    def word(self) -> str:
        """The word that it alone holds."""
        return f"zq{self.number:05d}qz"


class Statements:
    """Counts the SQL statements that requests run on one pool of connections: make it before the pool is used.

    What a process reads on its own, however few requests come, is not counted, nor what the driver asks about types on
    a connection that meets them first: a request may get any connection of the pool.
    """

    def __init__(self, pool: Pool) -> None:
        self.run = 0
        prepare = pool._prepare

        async def counted(connection: Any) -> None:
            await prepare(connection)
            connection.add_query_logger(self._count)

        pool._prepare = counted  # type: ignore[method-assign]

    def _count(self, record: Any) -> None:
        of_the_driver = "typeinfo_tree" in record.query or "set_config('jit'" in record.query
        self.run += not of_the_driver and record.query not in (sql("erasures.epochs"), sql("session.clock"))


@dataclass(slots=True, kw_only=True)
class World:
    """Credentials, a server, and everything that was told to it.

    `memories` were kept over REST; `others` counts, by tenant, what turns and REST keep that may be notes, too; `gone`
    are the numbers of what an erasure took, from the answer on that says it has begun. `forget` lets the server look
    whether something was erased, as it else does by itself.
    """

    served: Served
    statements: Statements
    database: Database
    control: Pool
    forget: Callable[[], Awaitable[None]]
    rng: random.Random
    credentials: list[Credential]
    gone: set[int] = field(default_factory=set)
    events: dict[str, Told] = field(default_factory=dict)
    notes: dict[str, Told] = field(default_factory=dict)
    numbered: dict[int, Told] = field(default_factory=dict)
    memories: dict[str, Told] = field(default_factory=dict)
    others: Counter[str] = field(default_factory=Counter)
    topics: dict[str, set[tuple[str, frozenset[str]]]] = field(default_factory=dict)
    snapshots: dict[str, str] = field(default_factory=dict)
    builds: dict[str, str] = field(default_factory=dict)
    cursors: list[tuple[Credential, str, Json, str]] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)
    numbers: Any = field(default_factory=lambda: itertools.count(1))

    async def learn_index(self, tenant: str) -> None:
        """Read from the database, as its owner, whose every topic, node and snapshot of a tenant is."""
        scopes = {
            row["scope_id"]: frozenset(row["participants"])
            for row in await rows(self.database, "SELECT scope_id, participants FROM myria.scopes", tenant=tenant)
        }
        for row in await rows(
            self.database,
            "SELECT DISTINCT topic_id, node_id, rendering_id, scope_id FROM myria.renderings",
            tenant=tenant,
        ):
            for name in (row["topic_id"], row["node_id"].hex(), row["rendering_id"].hex()):
                self.topics.setdefault(name, set()).add((tenant, scopes[row["scope_id"]]))
        for row in await rows(self.database, "SELECT snapshot_id FROM myria.snapshots", tenant=tenant):
            self.snapshots[row["snapshot_id"]] = tenant
        for row in await rows(self.database, "SELECT build_id FROM myria.builds", tenant=tenant):
            self.builds[row["build_id"]] = tenant

    async def build(self, tenant: str) -> None:
        """Carry out the erasures that have begun, compile a tenant's events, and learn what came of it."""
        carrier = ErasureCarrier(
            self.control, Registry(self.control, SETTINGS), event_log(self.control), SETTINGS.erasure,
            unproved=False,
        )  # fmt: skip
        unfinished = "SELECT FROM myria.erasures WHERE state <> 'done'"
        for _ in [row for name in TENANTS for row in await rows(self.database, unfinished, tenant=name)]:
            await carrier.look()
            await carrier.settle()
        await self.forget()
        await build(self.database, tenant=tenant)
        await self.learn_index(tenant)
        self.done["builds"] += 1

    async def send(
        self, credential: Credential | None, name: str, arguments: Json, *, form: str = "modern", path: str = "/mcp"
    ) -> httpx.Response:
        """Call a tool in one of the forms that reach different parts of the server."""
        full = NAMES[name] if form != "legacy" else DOTTED[name]
        modern = form.startswith("modern")
        version = MODERN if modern else "2025-06-18" if form == "2025-06-18" else None
        message: Any = call(full, arguments, version=version)
        sent = headers(full, version=version)
        if form.endswith("the SDK"):
            sent |= {"accept": "application/json;q=1, text/event-stream;q=0.5"}
        if credential is not None:
            sent |= {"authorization": f"Bearer {credential.text}"}
        return await self.served.post([message] if form == "batch" else message, sent, path=path)

    def scan(
        self,
        response: httpx.Response,
        credential: Credential | None,
        asking: Asking | None,
        *,
        said: str = "",
        internal: bool = False,
    ) -> int:
        """Check every byte of an answer against the oracle; return how many words it rightly holds.

        Args:
            asking: as whom it was asked; None where nothing of any scope may be in the answer.
            said: what the request itself held: an answer may repeat it.
            internal: whether internal events were asked for.
        """
        text = response.text + "\n" + "\n".join(f"{name}: {value}" for name, value in response.headers.items())
        words = 0
        for number in {int(found) for found in _WORD.findall(text)}:
            told = self.numbered[number]
            if told.word in said:
                continue
            assert self._may_see(told, credential, asking, internal), (told, credential, asking, text[:2000])
            words += 1
        for name in set(_ID.findall(text)) - set(_ID.findall(said)):
            if (told_as := self.events.get(name) or self.notes.get(name)) is not None:
                assert self._may_see(told_as, credential, asking, internal), (name, credential, asking)
            elif name in self.topics:
                owners = self.topics[name]
                assert credential is not None, name
                assert asking is not None, name
                assert any(tenant == credential.tenant and asking.sees(who) for tenant, who in owners), (name, owners)
            elif (owner := self.snapshots.get(name) or self.builds.get(name)) is not None:
                assert credential is not None, name
                assert owner == credential.tenant, (name, credential)
        for tenant in TENANTS[:-1]:
            if credential is None or tenant != credential.tenant:
                assert f'"{tenant}"' not in text, (tenant, credential, text[:500])
        return words

    def _may_see(self, told: Told, credential: Credential | None, asking: Asking | None, internal: bool) -> bool:
        if credential is None or asking is None or told.tenant != credential.tenant or told.number in self.gone:
            return False
        return asking.sees(told.participants) and (internal or not told.internal)

    def may_see(self, told: Told, credential: Credential, asking: Asking) -> bool:
        """Tell whether somebody may see what was told."""
        return self._may_see(told, credential, asking, internal=False)

    async def append(self, credential: Credential, *, form: str = "modern") -> None:
        """Append one event for its own participants and some others, and tell the oracle."""
        number = next(self.numbers)
        named = set(self.rng.sample(OTHERS, self.rng.randint(0, 2)))
        if credential.patterns:
            named.add(self.rng.choice(("user:1", "user:2")))
        told_number = f"zq{number:05d}qz"
        arguments: Json = {
            "timestamp": f"2026-0{1 + number % 6}-{1 + number % 28:02d}T{number % 24:02d}:{number % 60:02d}:00Z",
            "channel": self.rng.choice(("chat", "mail")),
            "payload": {"text": f"{told_number} {' '.join(self.rng.choices(WORDS, k=4))}", "speaker": told_number},
            "context_id": f"context {self.rng.randint(1, 3)}",
            "topic_hints": [{"hint": told_number, "confidence": 0.9}],
            "internal": self.rng.random() < 0.1,
        }
        if named:
            arguments["participants"] = sorted(named)
        tool, sent = ("append_event", arguments)
        if self.rng.random() < 0.3:
            tool, sent = "append_events", {"events": [arguments]}
        response = await self.send(credential, tool, sent, form=form)
        assert response.status_code == 200, response.text
        answered = content(response)
        result = answered["results"][0] if tool == "append_events" else answered
        self.events[result["event_id"]] = self.numbered[number] = Told(
            number=number,
            event_id=result["event_id"],
            tenant=credential.tenant,
            participants=credential.own | named,
            internal=arguments["internal"],
            context=arguments["context_id"],
        )
        asking = Asking.as_all(credential.own | named)
        self.scan(response, credential, asking, said=json.dumps(arguments), internal=True)
        self.done["appends"] += 1


def content(response: httpx.Response) -> Any:
    """Return what a tool answered, in any form."""
    body = response.json()
    message = body[0] if isinstance(body, list) else body
    return message["result"]["structuredContent"] if "result" in message else {"error": message["error"].get("data")}


def absent_like(name: str, rng: random.Random) -> str:
    """Return an id of the same shape that nothing has."""
    prefix, underscore, rest = name.rpartition("_")
    return prefix + underscore + "".join(rng.choice("0123456789abcdef") for _ in rest)


def listing(method: str) -> tuple[Json, dict[str, str]]:
    """Return the message of a method without arguments, and its headers."""
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"_meta": META}}, headers(method=method)


async def make_credentials(database: Database) -> list[Credential]:
    """Make five tenants with five keys each: two people, a host that speaks for many, an administrator, an eraser."""
    made = []
    async with Pool(database.operator_dsn) as pool:
        store = AccessStore(pool)
        for tenant in TENANTS:
            await store.ensure_tenant(tenant)
            kinds: tuple[tuple[tuple[str, ...], tuple[str, ...], tuple[Role, ...], tuple[str, ...]], ...] = (
                (("ada", "bot"), (), ("append", "read"), ("core", "agent", "turns")),
                (("bob",), (), ("append", "read"), ("core", "agent", "rest")),
                (("host",), ("user:*",), ("append", "read"), ("core", "agent", "turns")),
                (("ada",), (), ("append", "read", "admin"), tuple(PATH_OF)),
                (("eve",), (), ("append", "read", "admin", "erase"), ("core", "agent", "admin")),
            )
            for own, patterns, roles, faces in kinds:
                new = NewKey(
                    name=" ".join((*own, *roles)),
                    tenant=tenant,
                    own=own,
                    may_ask=patterns,
                    roles=roles,
                    faces=faces,  # type: ignore[arg-type]
                )
                key, _ = await store.create_key(new)
                made.append(
                    Credential(
                        tenant=tenant,
                        text=key.text,
                        own=frozenset(own),
                        patterns=bool(patterns),
                        roles=roles,
                        faces=faces,
                    )
                )
    return made


Operation = Callable[[World, Credential, str], Awaitable[None]]
Acting = tuple[frozenset[str], Asking] | None


async def operate(world: World, further: Mapping[Operation, int]) -> None:
    """Do one random thing, and check its answer.

    Args:
        further: operations beside those here, each with its weight.
    """
    rng = world.rng
    kinds: dict[Operation, int] = {
        _append: 15, _ask: 25, _look_up: 20, _withdraw: 5, _foreign_cursor: 10, _steer: 10, _look_around: 10,
        _beside: 5, _act_as_agent: 25, **further,
    }  # fmt: skip
    await perform(world, rng.choices(list(kinds), list(kinds.values()))[0])


async def perform(world: World, kind: Operation) -> None:
    """Do one thing of this kind by a random credential in a random form."""
    world.done[kind.__name__.strip("_")] += 1
    await kind(world, world.rng.choice(world.credentials), world.rng.choice(FORMS))


async def _append(world: World, credential: Credential, form: str) -> None:
    await world.append(credential, form=form)


def _named(world: World, credential: Credential) -> list[str] | None:
    """Return participants as honest callers and others name them: none, all of its own, parts, and outside."""
    rng = world.rng
    if rng.random() < 0.3:
        return None
    honest = sorted(credential.own) if rng.random() < 0.5 else []
    pool = [*OTHERS, "user:1", "user:2", "ada", "bot", "bob", "host", "user:*", "*"]
    more = rng.sample(pool, rng.randint(0, 2)) if rng.random() < 0.5 else []
    if credential.patterns and rng.random() < 0.8:
        more.append(rng.choice(("user:1", "user:2")))
    return sorted({*honest, *more}) or None


def _mask(world: World, credential: Credential) -> Json:
    """Return one of several masks, mostly an honest one: one that may not be asked refuses the whole list."""
    rng = world.rng
    mask: Json = {}
    if rng.random() < 0.1:
        named = _named(world, credential)
    elif credential.patterns:
        named = rng.choice((["user:1"], ["user:2"], ["user:1", "user:2"], ["host", "user:1"]))
    else:
        named = rng.choice((None, sorted(credential.own)))
    if named is not None:
        mask["participants"] = named
    if rng.random() < 0.6:
        mask["exact"] = rng.random() < 0.8
    return mask


def _query(world: World) -> Json:
    rng = world.rng
    query: Json = {}
    if rng.random() < 0.7:
        word = rng.choice(list(world.events.values())).word if world.events and rng.random() < 0.5 else ""
        query["query"] = f"{rng.choice(WORDS)} {word}".strip()
    if rng.random() < 0.3:
        query["include_internal"] = True
    if rng.random() < 0.2:
        query["context_id"] = f"context {rng.randint(1, 3)}"
    if rng.random() < 0.2:
        query["order"] = rng.choice(("newest", "oldest"))
    return query


async def _ask(world: World, credential: Credential, form: str) -> None:
    rng = world.rng
    tool = rng.choice(("query_event_nodes", "query_references"))
    arguments = _query(world)
    size = rng.choice((1, 3, 20))
    if tool == "query_event_nodes":
        arguments["limit"] = size
    else:
        arguments |= {"max_nodes": size + 2, "include_payload": rng.random() < 0.5}
        if world.topics and rng.random() < 0.3:
            arguments["root"] = rng.choice(list(world.topics))
    if rng.random() < 0.4:
        arguments["masks"] = [_mask(world, credential) for _ in range(rng.choice((1, 2, 2, 3, 8)))]
    elif (named := _named(world, credential)) is not None:
        arguments["participants"] = named
    asking = credential.asking(arguments)
    response = await world.send(credential, tool, arguments, form=form)
    assert response.status_code == 200, response.text
    answer = content(response)
    internal = arguments.get("include_internal", False)
    words = world.scan(response, credential, asking, said=json.dumps(arguments), internal=internal)
    if asking is None:
        assert answer["error"]["code"] == "participants_not_allowed", answer
        return
    world.done["words seen"] += words
    world.done["words seen under several masks"] += words if len(arguments.get("masks", ())) > 1 else 0
    if answer.get("next_cursor"):
        world.cursors.append((credential, tool, arguments, answer["next_cursor"]))
    root = arguments.get("root")
    if root is not None:
        seen = any(tenant == credential.tenant and asking.sees(who) for tenant, who in world.topics[root])
        if not seen:
            absent = {**arguments, "root": absent_like(root, rng)}
            await alike(world, credential, form, (tool, arguments, "/mcp"), (tool, absent, "/mcp"))


async def _look_up(world: World, credential: Credential, form: str) -> None:
    rng = world.rng
    events = rng.random() < 0.6 or not world.topics
    names = list(world.events) if events else [name for name in world.topics if name.startswith("top")]
    if not names:
        return
    tool, argument = ("get_event", "event_id") if events else ("get_topic", "topic_id")
    name = rng.choice(names)
    arguments: Json = {argument: name}
    if (named := _named(world, credential)) is not None:
        arguments["participants"] = named
    if events and rng.random() < 0.5:
        arguments["include_internal"] = True
    internal = arguments.get("include_internal", False)
    asking = credential.asking(arguments)
    response = await world.send(credential, tool, arguments, form=form)
    answer = content(response)
    world.scan(response, credential, asking, said=json.dumps(arguments), internal=internal)
    if asking is None:
        assert answer["error"]["code"] == "participants_not_allowed", answer
        return
    if events:
        may = world._may_see(world.events[name], credential, asking, internal)
        assert ("error" not in answer) == may, (answer, world.events[name])
    else:
        may = any(tenant == credential.tenant and asking.sees(who) for tenant, who in world.topics[name])
        assert may or "error" in answer
    world.done["found" if may else "forbidden"] += 1
    if not may:
        absent = {**arguments, argument: absent_like(name, rng)}
        await alike(world, credential, form, (tool, arguments, "/mcp"), (tool, absent, "/mcp"))


async def _withdraw(world: World, credential: Credential, form: str) -> None:
    """Withdraw or restore events that one may not see, by their ids: they are as absent as ids that nothing has."""
    rng = world.rng
    tool = rng.choice(("withdraw_events", "restore_events"))
    arguments: Json = {"dry_run": True} if rng.random() < 0.2 else {}
    if (named := _named(world, credential)) is not None:
        arguments["participants"] = named
    asking = credential.asking(arguments)
    names = [
        name
        for name, told in world.events.items()
        if told.tenant != credential.tenant
        or told.number in world.gone
        or (asking is not None and not asking.sees(told.participants))
    ]
    erased = [name for name in names if world.events[name].number in world.gone]
    if erased and rng.random() < 0.2:
        names = erased
    if not names:
        return
    arguments["event_ids"] = rng.sample(names, min(len(names), rng.choice((1, 1, 3))))
    response = await world.send(credential, tool, arguments, form=form)
    answer = content(response)
    world.scan(response, credential, asking, said=json.dumps(arguments))
    if asking is None:
        assert answer["error"]["code"] == "participants_not_allowed", answer
        return
    assert answer["error"]["code"] == "event_not_found", answer
    world.done["withdrawals refused"] += 1
    absent = {**arguments, "event_ids": [absent_like(name, rng) for name in arguments["event_ids"]]}
    await alike(world, credential, form, (tool, arguments, "/mcp"), (tool, absent, "/mcp"))


async def _act_as_agent(world: World, credential: Credential, form: str) -> None:
    """Keep, recall and change notes at the agent's face, as an agent that one may be, or not."""
    what = world.rng.choice(
        (
            *(
                _remember,
                _recall,
                _recall,
                _change_note,
                _look_at_notes,
                _begin_a_session,
                _end_a_session,
                _consolidate,
            ),
            *(_remember_several, _give_feedback, _read_resource),
        )
    )
    await as_agent(what)(world, credential, form)


def as_agent(what: Callable[[World, Credential, str, Json, Acting], Awaitable[None]]) -> Operation:
    """Return the operation that does this as a random agent."""

    async def act(world: World, credential: Credential, form: str) -> None:
        agent = world.rng.choice((None, "default", "user:1", "user:2", "carl"))
        arguments: Json = {} if agent is None else {"agentId": agent}
        await what(world, credential, form, arguments, credential.acting(agent))

    return act


async def _remember(world: World, credential: Credential, form: str, arguments: Json, acting: Acting) -> None:
    rng = world.rng
    number = next(world.numbers)
    word = f"zq{number:05d}qz"
    said = {"content": f"{word} {' '.join(rng.choices(WORDS, k=4))}", "topic": word, "keywords": [word], "source": word}
    arguments |= said | ({"scope": "session", "sessionId": word} if rng.random() < 0.2 else {})
    arguments |= {"idempotencyKey": word} if rng.random() < 0.3 else {}
    response = await world.send(credential, "remember", arguments, form=form, path=AGENT)
    answer = content(response)
    if acting is None:
        assert answer["code"] == "participants_not_allowed", answer
        return
    assert answer["created"], answer
    who, asking = acting
    told = Told(
        number=number,
        event_id=answer["id"],
        tenant=credential.tenant,
        participants=who,
        internal=False,
        context=arguments.get("sessionId"),
    )
    world.notes[answer["id"]] = world.numbered[number] = told
    world.scan(response, credential, asking, said=json.dumps(arguments))
    world.done["notes"] += 1


async def _remember_several(world: World, credential: Credential, form: str, arguments: Json, acting: Acting) -> None:
    rng = world.rng
    numbers = [next(world.numbers) for _ in range(2)]
    items = [{"content": f"zq{number:05d}qz {rng.choice(WORDS)}", "topic": f"zq{number:05d}qz"} for number in numbers]
    arguments |= {"items": items}
    response = await world.send(credential, "batch_remember", arguments, form=form, path=AGENT)
    answer = content(response)
    if acting is None:
        assert answer["code"] == "participants_not_allowed", answer
        return
    assert answer["inserted"] == 2, answer
    who, asking = acting
    for number, kept in zip(numbers, answer["results"], strict=True):
        told = Told(number=number, event_id=kept["id"], tenant=credential.tenant, participants=who, internal=False)
        world.notes[kept["id"]] = world.numbered[number] = told
    world.scan(response, credential, asking, said=json.dumps(arguments))
    world.done["notes together"] += 2


async def _give_feedback(world: World, credential: Credential, form: str, arguments: Json, acting: Acting) -> None:
    """Say something of an answer: what is said is an internal event of the agent's own participants."""
    number = next(world.numbers)
    word = f"zq{number:05d}qz"
    arguments |= {"tool_name": "recall", "relevant": True, "sufficient": False, "suggestion": word, "context": word}
    response = await world.send(credential, "tool_feedback", arguments, form=form, path=AGENT)
    answer = content(response)
    if acting is None:
        assert answer["code"] == "participants_not_allowed", answer
        return
    who, asking = acting
    told = Told(number=number, event_id=answer["id"], tenant=credential.tenant, participants=who, internal=True)
    world.events[answer["id"]] = world.numbered[number] = told
    world.scan(response, credential, asking, said=json.dumps(arguments), internal=True)
    world.done["feedback"] += 1


async def _read_resource(world: World, credential: Credential, _form: str, _arguments: Json, _acting: Acting) -> None:
    """Read what hosts show: it is of the agent that a call without a name is."""
    uri = world.rng.choice(("memory://stats", "memory://topics", "memory://config"))
    message = {"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": uri, "_meta": META}}
    sent = headers(uri, method="resources/read") | {"authorization": f"Bearer {credential.text}"}
    response = await world.served.post(message, sent, path=AGENT)
    body = response.json()
    acting = credential.acting(None)
    words = world.scan(response, credential, acting and acting[1])
    if acting is None:
        assert body["error"]["data"]["code"] == "participants_not_allowed", body
        return
    assert "result" in body, body
    world.done["words of resources"] += words


async def _recall(world: World, credential: Credential, form: str, arguments: Json, acting: Acting) -> None:
    rng = world.rng
    told = rng.choice(list(world.numbered.values())) if world.numbered and rng.random() < 0.5 else None
    word = "" if told is None else told.word
    arguments |= rng.choice(
        ({}, {"text": f"{rng.choice(WORDS)} {word}".strip()}, {"keywords": [rng.choice(WORDS)]}, {"type": "fact"})
    )
    arguments |= rng.choice(({}, {"topic": word}, {"sessionId": word}, {"format": "json"}, {"tokenBudget": 5000}))
    response = await world.send(credential, "recall", arguments, form=form, path=AGENT)
    answer = content(response)
    words = world.scan(response, credential, acting and acting[1], said=json.dumps(arguments))
    if acting is None:
        assert answer["code"] == "participants_not_allowed", answer
        return
    assert answer["success"], answer
    world.done["words recalled"] += words


async def _change_note(world: World, credential: Credential, form: str, arguments: Json, acting: Acting) -> None:
    """Amend, forget or restore a note; one that may not be seen is as absent as an id that nothing has."""
    rng = world.rng
    if not world.notes:
        return
    tool = rng.choice(("amend", "forget", "restore"))
    seen = acting and [name for name, told in world.notes.items() if world._may_see(told, credential, acting[1], False)]
    name = rng.choice(seen if seen and rng.random() < 0.6 else list(world.notes))
    told = world.notes[name]
    arguments |= {"id": name} | ({"importance": rng.choice((0.1, 0.6))} if tool == "amend" else {})
    response = await world.send(credential, tool, arguments, form=form, path=AGENT)
    answer = content(response)
    world.scan(response, credential, acting and acting[1], said=json.dumps(arguments))
    if acting is None:
        assert answer["code"] == "participants_not_allowed", answer
    elif not world._may_see(told, credential, acting[1], internal=False):
        assert answer["code"] == "note_not_found", answer
        absent = {**arguments, "id": absent_like(name, rng)}
        await alike(world, credential, form, (tool, arguments, AGENT), (tool, absent, AGENT))
        world.done["notes refused"] += 1
    else:
        world.done["notes changed"] += 1


_NOTES_NAMED = {
    "link": ("fromId", "toId"),
    "graph_explore": ("startId",),
    "fragment_history": ("id",),
    "memory_stats": (),
}
"""The arguments by which tools name notes."""


async def _look_at_notes(world: World, credential: Credential, form: str, arguments: Json, acting: Acting) -> None:
    """Link notes, follow links, ask for histories and counts: what may not be seen is absent, and counts nowhere."""
    rng = world.rng
    if not world.notes:
        return
    tool = rng.choice(("link", *_NOTES_NAMED))
    seen = [name for name, told in world.notes.items() if acting and world._may_see(told, credential, acting[1], False)]
    named = {
        field_name: rng.choice(seen if seen and rng.random() < 0.75 else list(world.notes))
        for field_name in _NOTES_NAMED[tool]
    }
    arguments |= named | ({"relationType": rng.choice(("related", "caused_by"))} if tool == "link" else {})
    response = await world.send(credential, tool, arguments, form=form, path=AGENT)
    answer = content(response)
    world.scan(response, credential, acting and acting[1], said=json.dumps(arguments))
    hidden = {field_name: name for field_name, name in named.items() if name not in seen}
    if acting is None:
        assert answer["code"] == "participants_not_allowed", answer
    elif len(set(named.values())) < len(named):
        assert answer["code"] == "invalid_argument", answer
    elif hidden:
        assert answer["code"] == "note_not_found", answer
        absent = arguments | {field_name: absent_like(name, rng) for field_name, name in hidden.items()}
        await alike(world, credential, form, (tool, arguments, AGENT), (tool, absent, AGENT))
        world.done["looks refused"] += 1
    elif tool == "memory_stats":
        most = len(seen) + world.others[credential.tenant]
        assert answer["stats"]["total"] <= most, (answer, len(seen))
        assert answer["stats"]["topic_count"] <= most, (answer, len(seen))
    elif answer["success"]:
        assert {edge[end] for edge in answer.get("edges", ()) for end in ("from", "to")} <= set(seen), answer
        world.done["notes linked" if tool == "link" else "notes looked at"] += 1
        world.done["links followed"] += len(answer.get("edges", ()))
    else:
        assert answer["code"] == "note_not_found", answer


async def _begin_a_session(world: World, credential: Credential, form: str, arguments: Json, acting: Acting) -> None:
    """Ask for what a session begins with: one's own, one that others may have, or none."""
    rng = world.rng
    session = rng.choice(list(world.numbered.values())).word if world.numbered else "s1"
    arguments |= rng.choice(({}, {"sessionId": session}, {"types": ["fact", "decision"]}, {"tokenBudget": 20_000}))
    response = await world.send(credential, "context", arguments, form=form, path=AGENT)
    answer = content(response)
    words = world.scan(response, credential, acting and acting[1], said=json.dumps(arguments))
    if acting is None:
        assert answer["code"] == "participants_not_allowed", answer
        return
    assert answer["success"], answer
    world.done["words of context"] += words


async def _end_a_session(world: World, credential: Credential, form: str, arguments: Json, acting: Acting) -> None:
    """Reflect upon a session, whose name others may use too; what it leaves is its participants' alone."""
    rng = world.rng
    number = next(world.numbers)
    word = f"zq{number:05d}qz"
    arguments |= {"summary": f"{word} {rng.choice(WORDS)}", "sessionId": rng.choice((word, "s1", "s2"))}
    response = await world.send(credential, "reflect", arguments, form=form, path=AGENT)
    answer = content(response)
    if acting is None:
        assert answer["code"] == "participants_not_allowed", answer
        return
    who, asking = acting
    (note,) = answer["fragments"]
    told = Told(
        number=number,
        event_id=note["id"],
        tenant=credential.tenant,
        participants=who,
        internal=False,
        context=arguments["sessionId"],
    )
    world.notes[note["id"]] = world.numbered[number] = told
    world.scan(response, credential, asking, said=json.dumps(arguments))
    world.done["reflections"] += 1


async def _consolidate(world: World, credential: Credential, form: str, arguments: Json, acting: Acting) -> None:
    """Consolidate what one sees: nothing of it is due but looks, and nothing of others is named."""
    response = await world.send(credential, "memory_consolidate", arguments, form=form, path=AGENT)
    answer = content(response)
    world.scan(response, credential, acting and acting[1], said=json.dumps(arguments))
    if acting is None:
        assert answer["code"] == "participants_not_allowed", answer
        return
    assert answer["expiredDeleted"] == answer["duplicatesMerged"] == 0, answer
    world.done["consolidations"] += 1


async def _foreign_cursor(world: World, credential: Credential, form: str) -> None:
    """Go on from a cursor: one's own, another's, another query's, a damaged one, one that was used before."""
    rng = world.rng
    if not world.cursors:
        return
    owner, tool, arguments, cursor = rng.choice(world.cursors[-60:])
    asker = owner if rng.random() < 0.4 else credential
    what = rng.choice(("as it is", "damaged", "another query", "as it is"))
    if what == "damaged":
        at = rng.randrange(len(cursor))
        cursor = cursor[:at] + ("A" if cursor[at] != "A" else "B") + cursor[at + 1 :]
    changed = {**arguments, "cursor": cursor} | ({"query": "something else"} if what == "another query" else {})
    asking = asker.asking(changed)
    response = await world.send(asker, tool, changed, form=form)
    answer = content(response)
    world.scan(response, asker, asking, said=json.dumps(changed), internal=changed.get("include_internal", False))
    if asking is None:
        assert answer["error"]["code"] == "participants_not_allowed", answer
    elif what == "another query" or asker.tenant != owner.tenant or not asking.same(owner.asking(arguments)):
        assert answer["error"]["code"] == "cursor_invalid", answer
    elif what == "as it is" and "error" in answer:
        assert answer["error"]["code"] == "cursor_expired", answer
    world.done[f"cursor {what}"] += 1


async def _steer(world: World, credential: Credential, form: str) -> None:
    """Call a tool of administration, mostly without the right to, or with a snapshot or build of somebody else."""
    rng = world.rng
    fields = {
        "publish_snapshot": "snapshot_id",
        "discard_snapshot": "snapshot_id",
        "rollback": "to",
        "abort_build": "build_id",
    }
    tool = rng.choice(("trigger_build", "resume_builds", *fields))
    owners = world.builds if tool == "abort_build" else world.snapshots
    path = rng.choice(("/mcp", AGENT, "/mcp/admin", "/mcp/admin"))
    arguments: Json = {}
    foreign = [name for name, tenant in owners.items() if tenant != credential.tenant]
    own = [name for name, tenant in owners.items() if tenant == credential.tenant]
    name = rng.choice(foreign) if foreign and (rng.random() < 0.7 or not own) else rng.choice(own) if own else None
    if tool in fields:
        if name is None:
            return
        arguments = {fields[tool]: name}
    response = await world.send(credential, tool, arguments, form=form, path=path)
    world.scan(response, credential, None, said=json.dumps(arguments))
    if path == "/mcp/admin" and "admin" not in credential.faces:
        assert (response.status_code, response.json()["error"]["data"]["code"]) == (403, "face_not_allowed")
        return
    answer = content(response)
    if path != "/mcp/admin":
        code = answer["code"] if path == AGENT else answer["error"]["code"]
        assert code == "tool_not_enabled"
        return
    if name in foreign and arguments:
        assert answer["error"]["code"] in ("snapshot_not_found", "no_previous_snapshot", "build_not_found"), answer
        field_name = next(iter(arguments))
        absent = {field_name: absent_like(arguments[field_name], rng)}
        await alike(world, credential, form, (tool, arguments, path), (tool, absent, path))
        world.done["foreign snapshots"] += 1


async def _look_around(world: World, credential: Credential, form: str) -> None:
    """Ask for what a tenant shows to all its credentials: never another's."""
    tool = world.rng.choice(("get_active_snapshot", "list_snapshots", "get_snapshot_status"))
    path = world.rng.choice(("/mcp", "/mcp/admin"))
    response = await world.send(credential, tool, {}, form=form, path=path)
    world.scan(response, credential, None)


async def _beside(world: World, credential: Credential, _form: str) -> None:
    """Ask every other endpoint, with and without a credential."""
    rng = world.rng
    sent = {} if rng.random() < 0.5 else {"authorization": f"Bearer {credential.text}"}
    path = rng.choice(
        ("/metrics", "/livez", "/readyz", "/healthz", "/", "/mcp/x", "/.well-known/oauth-protected-resource")
    )
    world.scan(await world.served.client.get(path, headers=sent), None, None)
    for method in ("tools/list", "resources/list", "prompts/list", "server/discover"):
        message, lines = listing(method)
        response = await world.served.post(message, lines | sent, path=rng.choice(tuple(PATH_OF.values())))
        assert response.status_code < 500
        world.scan(response, credential if sent else None, None)


Call = tuple[str, Json, str]


async def alike(world: World, credential: Credential, form: str, forbidden: Call, absent: Call) -> None:
    """Check that what is forbidden answers as what is absent: text, code, and number of SQL statements."""
    seen = []
    for tool, arguments, path in (forbidden, absent, forbidden):
        before = world.statements.run
        response = await world.send(credential, tool, arguments, form=form, path=path)
        text = response.text
        for said in _ID.findall(json.dumps(arguments)):
            text = text.replace(said, "ID")
        names = sorted(name for name in response.headers if name != "date")
        seen.append((response.status_code, text, names, world.statements.run - before))
    # The first of them may fill caches of the asker's own; the two after it stand for what is asked again and again.
    assert seen[1] == seen[2], (tool, forbidden, seen)
    assert seen[0][:2] == seen[1][:2], (tool, forbidden, seen)
    world.done["compared"] += 1


REACHING: Mapping[str, Operation] = {
    "found": _look_up,
    "forbidden": _look_up,
    "compared": _look_up,
    "foreign snapshots": _steer,
    "withdrawals refused": _withdraw,
    "words seen": _ask,
    "words seen under several masks": _ask,
    "cursor as it is": _foreign_cursor,
    "notes": as_agent(_remember),
    "notes together": as_agent(_remember_several),
    "words recalled": as_agent(_recall),
    "notes refused": as_agent(_change_note),
    "notes changed": as_agent(_change_note),
    "notes linked": as_agent(_look_at_notes),
    "notes looked at": as_agent(_look_at_notes),
    "looks refused": as_agent(_look_at_notes),
    "words of context": as_agent(_begin_a_session),
    "reflections": as_agent(_end_a_session),
    "consolidations": as_agent(_consolidate),
    "feedback": as_agent(_give_feedback),
    "words of resources": as_agent(_read_resource),
}
"""Which operation may reach what: see `World.done`."""
