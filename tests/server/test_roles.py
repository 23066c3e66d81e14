"""What is stored is shown to keys with the role `read` alone: by every tool and route, in every field of an answer.

Everything that the world of these tests holds has a word of its own, `zq00017qz`: an answer to a key that may not read
holds none of them but those that its own request said.
"""

from __future__ import annotations

import itertools
import json
import random
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import jsonschema
import pytest

from myria.access.principal import ROLES, Role
from myria.access.store import AccessStore
from myria.log.limits import Limits
from myria.memory import Memory
from myria.settings import AuthSettings, RestSettings, Settings, TurnsSettings
from myria_server.api.answers import Answer
from myria_server.api.memtrace.handlers import ROUTES
from myria_server.api.memtrace.routing import Route
from myria_server.api.tools import TOOLS, Tool, input_schema, output_schema, path_of
from myria_server.api.without_read import open_model, open_part
from myria_server.paths import PATH_OF, TURNS_OVER_HTTP
from myria_server.paths import REST_PREFIX as PREFIX
from tests.server.test_auth_matrix import ARGUMENTS, BODIES
from tests.server.wire import BASE_HEADERS, Served, call, event, serving
from tests.support.keys import access_store, make_key
from tests.support.postgres import Database

Json = dict[str, Any]

SETTINGS = Settings(
    auth=AuthSettings(mode="keys", failures_per_minute=None, append_others="anyone"),
    turns=TurnsSettings(enabled=True),
    rest=RestSettings(enabled=True),
)
WORD = re.compile(r"zq\d{5}qz", re.IGNORECASE)
REQUESTS = 200


class World:
    """A memory in which everything has a word of its own, and those who ask it."""

    def __init__(self, served: Served, keys: dict[str, str]) -> None:
        self.served = served
        self.keys = keys
        self.texts: list[str] = []
        self.names: list[str] = []
        self.ids: list[str] = ["note_" + "0" * 32, "evt_" + "0" * 32, "e:481920375", "n:481920375"]
        self._numbers = itertools.count(1)

    def word(self) -> str:
        """Return a word that nothing had before, fit for a name."""
        name = f"zq{next(self._numbers):05d}qz"
        self.names.append(name)
        return name

    def text(self) -> str:
        """Return a text of two such words."""
        said = f"The kiln {self.word()} opens on Friday, says {self.word()}"
        self.texts.append(said)
        return said

    async def call(self, who: str, tool: str, arguments: Any) -> Json:
        """Call a tool; return the status, the whole of the answer as text, and its structured content."""
        sent = BASE_HEADERS | {"authorization": f"Bearer {self.keys[who]}"}
        message = call(tool if tool in _OWN_NAMES else f"myria_{tool}", arguments, version=None)
        response = await self.served.post(message, sent, path=path_of(tool))
        body = response.json()
        return {"status": response.status_code, "text": response.text, **body.get("result", body)}

    async def ask(self, who: str, method: str, path: str, body: Any = None, *, key: str | None = None) -> Json:
        """Send a request over plain HTTP; return the status, the text and the body of the answer."""
        sent = {"authorization": f"Bearer {self.keys[who]}", "content-type": "application/json"}
        sent |= {} if key is None else {"idempotency-key": key}
        content = None if body is None else json.dumps(body).encode()
        response = await self.served.client.request(method, path, content=content, headers=sent)
        return {"status": response.status_code, "text": response.text, "body": response.json() if response.text else {}}

    async def fill(self) -> None:
        """Let somebody who may do everything keep something by every tool and route that keeps."""

        async def kept(tool: str, **arguments: Any) -> Json:
            answer = await self.call("all", tool, arguments)
            assert not answer["isError"], answer["text"]
            content: Json = answer["structuredContent"]
            return content

        about = {
            "contextSummary": self.text(),
            "workspace": self.word(),
            "caseId": self.word(),
            "goal": self.text(),
            "outcome": self.text(),
            "phase": self.word(),
            "resolutionStatus": self.word(),
            "affect": self.word(),
        }
        for number in range(3):
            note = await kept(
                "remember",
                content=self.text(),
                topic=self.word(),
                keywords=[self.word()],
                source=self.word(),
                idempotencyKey=f"key-{number}",
                isAnchor=number == 0,
                **about,
            )
            self.ids.append(note["id"])
        await kept("link", fromId=self.ids[-1], toId=self.ids[-2], relationType="contradicts")
        await kept("reflect", summary=self.text(), decisions=[self.text()], sessionId="s-1")
        for number in range(2):
            stored = await kept(
                "append_event",
                **event(
                    f"source-{number}",
                    participants=["ada", self.word()],
                    payload={"text": self.text(), "speaker": self.word()},
                    type=self.word(),
                    context_id=self.word(),
                    topic_hints=[{"hint": self.word(), "confidence": 0.5}],
                ),
            )
            self.ids.append(stored["event_id"])
        said = {"role": "user", "content": f"My name is {self.word()}. {self.text()}"}
        await kept("memory_after_turn", input_items=[said], turn_id="turn-1", project="p", session_id="s-1")

        async def posted(path: str, key: str, **body: Any) -> str:
            answer = await self.ask("all", "POST", PREFIX + path, body, key=key)
            assert answer["status"] == 201, answer["text"]
            made: str = answer["body"]["id"]
            self.ids.append(made)
            return made

        agent = await posted("/agents", "key-0", name=self.word(), description=self.text(), config={"a": self.word()})
        session = await posted("/sessions", "key-1", agent_id=agent, metadata={"about": self.text()})
        for number in range(2):
            await posted(
                "/memories",
                f"key-{number + 2}",
                agent_id=self.word(),
                session_id=session,
                content=self.text(),
                event_type=self.word(),
                metadata={"more": self.text()},
                tags=[self.word()],
                dedup_key=self.word(),
                importance=0.5,
            )


_KEPT_AS_IT_IS = ("participants", "format", "masks")

_OWN_NAMES = {tool.name for tool in TOOLS if tool.has_own_name}


@pytest.fixture
async def store(database: Database) -> AsyncIterator[AccessStore]:
    """Where keys are made."""
    async with access_store(database) as store:
        yield store


@pytest.fixture
async def world(database: Database, store: AccessStore) -> AsyncIterator[World]:
    """A world that holds something of everything, and keys of the same person with different roles."""
    held: dict[str, tuple[Role, ...]] = {
        "all": ROLES,
        "append": ("append",),
        "append and admin": ("append", "admin"),
    }
    keys = {
        name: await make_key(store, "ada", name=name.replace(" ", "-"), roles=roles, faces=tuple(PATH_OF))
        for name, roles in held.items()
    }
    async with Memory(database.server_dsn, SETTINGS) as memory, serving(memory, SETTINGS) as served:
        made = World(served, keys)
        await made.fill()
        yield made


def unsaid(answer: Json, said: Any) -> set[str]:
    """Return the words of an answer that its request did not say."""
    own = {word.lower() for word in WORD.findall(json.dumps(said))}
    return {word.lower() for word in WORD.findall(answer["text"])} - own


class Asker:
    """Makes requests at random, of every tool and route in turn, out of what is stored and what is not."""

    def __init__(self, world: World, seed: int) -> None:
        self._world = world
        self._rng = random.Random(seed)

    def value(self, name: str, schema: Json) -> Any:
        """Return something that a field may hold: what stands there, a part of it, or something else."""
        rng, world = self._rng, self._world
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return rng.choice(schema["enum"])
        kind = schema.get("type") or next((arm.get("type") for arm in schema.get("anyOf", ())), "string")
        if kind == "boolean":
            return rng.random() < 0.6
        if kind in ("number", "integer"):
            return rng.choice((0, 1))
        if kind == "array":
            return [self.value(name.removesuffix("s"), schema.get("items", {})) for _ in range(rng.choice((1, 2)))]
        if kind == "object":
            named = schema.get("properties", {})
            return {one: self.value(one, named[one]) for one in named if rng.random() < 0.8}
        if name == "timestamp" or schema.get("format") == "date-time":
            return "2026-03-19T20:00:00Z"
        if name.lower().endswith(("id", "ids", "supersedes", "linkedto")):
            return rng.choice(world.ids)
        if "key" in name.lower():
            return rng.choice(("key-0", "key-1", "source-0", "source-1", "mine"))
        text = rng.choice(world.texts)
        return rng.choice((text, text.rpartition(",")[0], text.upper(), rng.choice(world.names), "something else"))

    def arguments(self, tool: Tool) -> Json:
        """Return arguments of a tool: some that are good, some of them changed, and some added."""
        schema = input_schema(tool, Limits())
        made = dict(ARGUMENTS.get(tool.name, {}))
        for name, shape in schema["properties"].items():
            likely = 0.7 if name in made or name in schema.get("required", ()) else 0.25
            if self._rng.random() < likely and name not in _KEPT_AS_IT_IS:
                made[name] = self.value(name, shape)
        if "participants" in made:
            made["participants"] = ["ada"]
        if tool.name == "forget":
            keep = self._rng.choice(("id", "topic", "text"))
            made = {name: one for name, one in made.items() if name not in ("id", "topic", "text") or name == keep}
            made.setdefault(keep, self.value(keep, {}))
        return made

    def body(self, route: Route) -> Json | None:
        """Return a body for a route, or None where it takes none."""
        if not route.body:
            return None
        model = self._rng.choice(route.body)
        if "memories" in model.model_fields:
            return {"memories": [dict(BODIES["keep_memories"], content=self.value("content", {})) for _ in range(2)]}
        made = dict(BODIES.get(route.name) or {})
        for name, shape in model.model_json_schema()["properties"].items():
            if self._rng.random() < 0.4:
                made[name] = self.value(name, shape)
        return made

    def requests(self, number: int) -> Iterator[Request]:
        """Yield so many requests."""
        places: list[Tool | Route | str] = [*TOOLS, *ROUTES, *TURNS_OVER_HTTP]
        for place in itertools.islice(itertools.cycle(places), number):
            key = self._rng.choice((None, "key-0", "key-1", "key-2"))
            entry = self._rng.choice(self._world.ids)
            if isinstance(place, Tool):
                yield Request(place, self.arguments(place))
            elif isinstance(place, Route):
                yield Request(place, self.body(place), entry, key)
            else:
                tool = next(tool for tool in TOOLS if tool.name == TURNS_OVER_HTTP[place])
                yield Request(place, self.arguments(tool))


@dataclass(frozen=True, slots=True)
class Request:
    """A request of a tool, a route or a path of turns: what it says, about which id, under which key of its own."""

    place: Tool | Route | str
    said: Any
    entry: str = ""
    key: str | None = None

    async def answer(self, world: World, who: str) -> Json:
        """Send it; return what it was answered, as `World` does."""
        if isinstance(self.place, Tool):
            return await world.call(who, self.place.name, self.said)
        if isinstance(self.place, str):
            return await world.ask(who, "POST", self.place, self.said)
        path = PREFIX + self.place.path.replace("{id}", self.entry)
        return await world.ask(who, self.place.method, path, self.said, key=self.key)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("who", ["append", "append and admin"])
async def test_no_request_of_a_key_that_may_not_read_shows_what_is_stored(world: World, who: str, seed: int) -> None:
    """Of 200 at random, over every tool and route; and enough of them are carried out for that to mean something."""
    answered = Counter[str]()
    for request in Asker(world, seed).requests(REQUESTS):
        answer = await request.answer(world, who)
        assert not unsaid(answer, request.said), (request, answer["text"])
        is_good = answer["status"] < 300 and not answer.get("isError")
        answered["good" if is_good else "refused"] += 1
    assert answered["good"] > REQUESTS / 10, answered


async def test_the_same_requests_show_it_to_who_may_read(world: World) -> None:
    """So the words of these tests are there to be found."""
    shown = set[str]()
    for request in Asker(world, 1).requests(REQUESTS):
        shown |= unsaid(await request.answer(world, "all"), request.said)
    assert len(shown) > 20


@pytest.mark.parametrize("role", ROLES)
async def test_each_answer_holds_the_fields_of_its_role(role: Role, world: World, store: AccessStore) -> None:
    """Of every tool and route: a role that does not open it is refused, and without `read` an answer is its open part.

    The table of it is docs/roles.md.
    """
    world.keys[role] = await make_key(store, "ada", name=f"only-{role}", roles=(role,), faces=tuple(PATH_OF))
    models: tuple[type[Answer], ...]
    for tool in TOOLS:
        answer = await world.call(role, tool.name, ARGUMENTS.get(tool.name, {}))
        assert (answer["status"] == 403) == (role not in tool.roles), tool.name
        if answer["status"] == 200:
            models = (tool.answer,) if tool.lean is None else (tool.answer, tool.lean)
            check_fields(answer["structuredContent"], models, tool.refusal, role)
            jsonschema.Draft202012Validator(output_schema(tool)).validate(answer["structuredContent"])
            if role != "read":
                assert json.loads(answer["content"][0]["text"]) == answer["structuredContent"]
    for route in ROUTES:
        path = PREFIX + route.path.replace("{id}", world.ids[-1])
        answer = await world.ask(role, route.method, path, BODIES.get(route.name))
        assert (answer["status"] == 403) == (role not in route.roles), route.name
        if answer["status"] in (200, 201):
            check_fields(answer["body"], route.answer, Answer, role)


def check_fields(content: Json, models: tuple[type[Answer], ...], refusal: type[Answer], role: Role) -> None:
    """Check that an answer is one of these models, or a refusal; to a role that does not read, its open part."""
    if role != "read":
        assert content == open_part((*models, _all_of(refusal)), content)
    shapes = [*(models if role == "read" else map(open_model, models)), refusal]
    assert any(_fits(shape, content) for shape in shapes), content


def _all_of(refusal: type[Answer]) -> type[Answer]:
    """Return a model that opens every field of a refusal: those never quote what is stored."""
    return type(refusal.__name__, (refusal,), {"OPEN": frozenset(refusal.model_fields)})


def _fits(model: type[Answer], content: Json) -> bool:
    try:
        model.model_validate(content)
    except ValueError:
        return False
    return True


async def test_what_is_like_a_note_is_not_shown_to_who_only_appends(world: World) -> None:
    """Neither by a dry run nor by keeping it, nor by keeping the very same."""
    stored = world.texts[8]
    for content in (stored.rpartition(",")[0], stored):
        for dry_run in (True, False):
            answer = await world.call("append", "remember", {"content": content, "dryRun": dry_run})
            assert set(answer["structuredContent"]) <= {"success", "id", "created", "dryRun"}
            assert not unsaid(answer, content)


async def test_a_dry_run_shows_no_note_to_who_only_appends(world: World) -> None:
    """Of forget and of amend, by the id of a note."""
    note_id = next(name for name in world.ids if name.startswith("note_") and not name.endswith("0" * 32))
    forget = await world.call("append", "forget", {"id": note_id, "dryRun": True, "force": True})
    assert forget["structuredContent"] == {"success": True, "deleted": 0, "protected": 0, "dryRun": True}
    amend = await world.call("append", "amend", {"id": note_id, "importance": 0.7, "dryRun": True})
    assert amend["structuredContent"] == {"success": True, "updated": False, "dryRun": True}


@pytest.mark.parametrize("name", ["topic", "text"])
@pytest.mark.parametrize("dry_run", [True, False])
async def test_who_only_appends_does_not_forget_by_what_is_found(world: World, name: str, dry_run: bool) -> None:
    """How many notes say something is a part of what they say."""
    answer = await world.call("append", "forget", {name: world.names[0], "dryRun": dry_run})
    assert answer["status"] == 403
    assert answer["error"]["data"]["details"] == {"roles": ["read"]}


async def test_a_turn_that_is_begun_without_read_is_given_its_token_alone(world: World) -> None:
    """With which it is kept."""
    begun = await world.call("append", "memory_run_turn", {"current_input": "What is my name?", "session_id": "s-1"})
    assert set(begun["structuredContent"]) == {"operation_token", "turn_id"}
    token = begun["structuredContent"]["operation_token"]
    output = [{"role": "assistant", "content": "I do not know"}]
    kept = await world.call("append", "memory_run_turn", {"operation_token": token, "output_items": output})
    assert kept["structuredContent"]["ok"] is True


@pytest.mark.parametrize("body", [{"importance": 0.1}, {"tags": ["x"]}, {"event_type": "seen"}, {"content": "Other"}])
async def test_a_change_over_rest_shows_the_memory_to_readers_alone(world: World, body: Json) -> None:
    """Who only appends is told its id and its version."""
    memory_id = world.ids[-1]
    changed = await world.ask("append", "PATCH", f"{PREFIX}/memories/{memory_id}", body, key="mine")
    again = await world.ask("append", "PATCH", f"{PREFIX}/memories/{memory_id}", body, key="mine")
    for answer in (changed, again):
        assert answer["status"] == 200, answer["text"]
        assert set(answer["body"]) == {"id", "time", "org_id", "version", "updated_at"}
    whole = await world.ask("all", "PATCH", f"{PREFIX}/memories/{memory_id}", {"importance": 0.3})
    assert unsaid(whole, body)


async def test_a_session_and_an_agent_are_shown_to_readers_alone(world: World) -> None:
    """By what changes them, and by a repeat of what made them."""
    session = next(name for name in world.ids if name.startswith("ses"))
    changed = await world.ask("append", "PUT", f"{PREFIX}/sessions/{session}", {"status": "closed"})
    assert set(changed["body"]) <= {"id", "org_id", "created_at", "updated_at", "closed_at"}, changed["text"]
    made = {"name": "zed", "description": "x"}
    for _ in range(2):
        answer = await world.ask("append", "POST", f"{PREFIX}/agents", made, key="mine")
        assert set(answer["body"]) == {"id", "org_id", "created_at"}


def answer_models() -> list[type[Answer]]:
    """Return every model of an answer of a tool or route."""
    return [tool.answer for tool in TOOLS] + [model for route in ROUTES for model in route.answer]


@pytest.mark.parametrize("model", dict.fromkeys(answer_models()), ids=lambda model: model.__name__)
def test_the_open_fields_of_an_answer_are_fields_of_it(model: type[Answer]) -> None:
    """So a field that is renamed does not stay open under its old name."""
    assert {field.alias or name for name, field in model.model_fields.items()} >= model.OPEN
