"""Who is let in: one table of credentials, against every tool, protocol, method and path.

A new way to be refused is a row of `REFUSED` or `FORBIDDEN`; a new tool takes part by itself; a new route must be
named in `OPEN`, or else stand behind the gate.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp_types import INVALID_PARAMS

from myria.access.principal import ROLES
from myria.access.secrets import make_key
from myria.access.store import AccessStore, NewKey
from myria.builds.snapshots import Registry
from myria.db.database import Database as Pool
from myria.erasure.tenants import TenantDeletion
from myria.log.limits import Limits
from myria.memory import Memory
from myria.settings import AuthSettings, McpSettings, Settings, TurnsSettings
from myria_server.api.memento.offered import listed_prompts, listed_resources
from myria_server.api.memtrace.handlers import ROUTES
from myria_server.api.tools import TOOLS, Tool, input_schema, path_of
from myria_server.http.resource import WELL_KNOWN
from myria_server.paths import PATH_OF, TURNS_OVER_HTTP
from myria_server.paths import REST_PREFIX as PREFIX
from tests.server.wire import BASE_HEADERS, META, MODERN, Served, call, event, headers, serving
from tests.support.builds import rows
from tests.support.counts import SOAK
from tests.support.issuer import NOW, RunningIssuer, encoded, hmac_token, public_pem, rsa_key
from tests.support.postgres import Database

Headers = list[tuple[str, str]]

Asked = tuple[str, str, Any, dict[str, str]]
"""A request of the table: method, path, body (bytes as they are, anything else as JSON) and headers."""

OPEN = {"/livez", "/healthz", "/readyz", "/health", "/ready", "/metrics", WELL_KNOWN} | {
    *(WELL_KNOWN + path for path in PATH_OF.values()),
    *(PREFIX + path for path in ("/health", "/ready", "/openapi.json", "/docs")),
}
"""The routes that ask for no credential: probes, figures without content, and who issues tokens."""

JSON = {"content-type": "application/json"}

OLD = {"/sse": "GET", "/message": "POST"}
"""The routes of the old transport, which is on here, and their methods: they belong to the agent's face."""

ARGUMENTS: dict[str, Any] = {
    "append_event": event(participants=["ada", "bot"]),
    "append_events": {"events": [event(participants=["ada", "bot"])]},
    "get_event": {"event_id": "evt_" + "0" * 32},
    "get_topic": {"topic_id": "top_" + "0" * 32},
    "publish_snapshot": {"snapshot_id": "snp_" + "0" * 32},
    "discard_snapshot": {"snapshot_id": "snp_" + "0" * 32},
    "abort_build": {"build_id": "bld_" + "0" * 32},
    "decide_notes": {"note_ids": ["note_" + "0" * 32], "decision": "approve"},
    "withdraw_events": {"event_ids": ["evt_" + "0" * 32], "reason": "forgotten"},
    "restore_events": {"event_ids": ["evt_" + "0" * 32]},
    "erase": {"event_ids": ["evt_" + "0" * 32], "expected_events": 1, "reason": "request 17"},
    "preview_erasure": {"event_ids": ["evt_" + "0" * 32]},
    "get_erasure_receipt": {"erasure_id": "era_" + "0" * 32},
    "remember": {"content": "We design the memory system"},
    "batch_remember": {"items": [{"content": "We build the memory system"}]},
    "recall": {"text": "memory"},
    "forget": {"id": "note_" + "0" * 32},
    "restore": {"id": "note_" + "0" * 32},
    "amend": {"id": "note_" + "0" * 32, "content": "We design it"},
    "link": {"fromId": "note_" + "0" * 32, "toId": "note_" + "1" * 32},
    "graph_explore": {"startId": "note_" + "0" * 32},
    "fragment_history": {"id": "note_" + "0" * 32},
    "reflect": {"summary": "A quiet day"},
    "memory_before_turn": {"current_input": "What do we design?"},
    "memory_run_turn": {"current_input": "What do we design?"},
    "memtrace_remember": {"agent_id": "bot", "content": "We design the memory system"},
    "memtrace_recall": {"agent_id": "bot"},
    "memtrace_decide": {"agent_id": "bot", "decision": "We design it", "reasoning": "Nobody else does"},
    "memtrace_session_create": {"agent_id": "bot"},
    "memtrace_session_context": {"session_id": "s"},
    "memtrace_agent_register": {"name": "bot"},
    "tool_feedback": {"tool_name": "recall", "relevant": True, "sufficient": True},
}
"""Arguments that nothing is wrong with; none where a tool needs none."""

PROPERTIES = {tool.name: input_schema(tool, Limits())["properties"] for tool in TOOLS}

APPENDING = ("append_event", "append_events")
ASKING = tuple(name for name, fields in PROPERTIES.items() if "participants" in fields and name not in APPENDING)
MASKED = tuple(name for name, fields in PROPERTIES.items() if "masks" in fields)
ACTING = tuple(name for name, fields in PROPERTIES.items() if "agentId" in fields)
SPEAKING = tuple(name for name, fields in PROPERTIES.items() if "user_id" in fields)
"""Tools whose calls name participants of a question or an append, masks, an agent, or a user."""

OWN_SESSION = {"memory_run_maintenance", "memory_list_dir_with_abstract"}
"""Tools about a session of the key's own participants: their calls name nobody."""

SHARING = {tool.name for tool in TOOLS if "rest" in tool.apis}
"""Tools about what an organisation shares: their calls name nobody, and ask as the key and as all of it."""

BODIES: dict[str, Any] = {
    "keep_memories": ARGUMENTS["memtrace_remember"],
    "amend_memory": {"content": "We build it"},
    "search_memories": {"content_contains": "design"},
    "register_agent": {"name": "bot"},
    "open_session": {"agent_id": "bot"},
    "change_session": {"status": "closed"},
    "get_session_context": {},
}
"""Bodies of the routes of REST that take one, with which nothing is wrong."""

DENIED = "PERMISSION_DENIED"
"""What the contract of turns calls every refusal for want of a right."""

NAMELESS = {
    "get_active_snapshot",
    "list_snapshots",
    "get_snapshot_status",
    "trigger_build",
    "abort_build",
    "publish_snapshot",
    "discard_snapshot",
    "rollback",
    "resume_builds",
    "list_held_notes",
    "decide_notes",
    "preview_erasure",
    "erase",
    "get_erasures",
    "get_erasure_receipt",
}
"""Tools about a tenant's snapshots, builds, reviews and erasures: what they answer depends on nobody else."""

NAMES = {tool.name: tool.plain() for tool in TOOLS}

STATUS_OF = {"credential_missing": 401, "credential_invalid": 401}


class Keys:
    """Makes the credentials of the table: keys, and tokens of an issuer that the server accepts."""

    def __init__(self, store: AccessStore, issuer: RunningIssuer) -> None:
        self.store = store
        self.issuer = issuer

    async def key(self, *own: str, **more: Any) -> str:
        """Return a new key; of ada and bot, with every role and face, where nothing else is said."""
        chosen = {"name": "k", "tenant": "default", "roles": ROLES, "faces": tuple(PATH_OF), **more}
        chosen["own"] = own or chosen.get("own", ("ada", "bot"))
        made, _ = await self.store.create_key(NewKey(**chosen), make_key())
        return made.text

    async def nothing(self) -> Headers:
        """No credential."""
        return []

    async def unknown(self) -> Headers:
        """A well-formed key that nobody made."""
        return bearer(make_key().text)

    async def wrong_secret(self) -> Headers:
        """The id of one key with the secret of another."""
        ours, other = await self.key(), await self.key()
        return bearer("_".join([*ours.split("_")[:2], other.split("_")[2]]))

    async def expired(self) -> Headers:
        """A key that ended a microsecond after it began."""
        return bearer(await self.key(expires_s=1e-6))

    async def revoked(self) -> Headers:
        """A key that was revoked before its first use."""
        text = await self.key()
        await self.store.revoke_key(text.split("_")[1])
        return bearer(text)

    async def suspended(self) -> Headers:
        """A key whose tenant is suspended."""
        text = await self.key(tenant="other")
        await self.store.suspend_tenant("other")
        return bearer(text)

    async def deleting(self) -> Headers:
        """A key whose tenant is being deleted."""
        return await self._deleted(whole=True)

    async def deleted(self) -> Headers:
        """A key whose tenant was deleted."""
        return await self._deleted(whole=False)

    async def _deleted(self, *, whole: bool) -> Headers:
        text = await self.key(tenant="other")
        database = self.store._database
        deletion = TenantDeletion(database, Registry(database, Settings()), "other", actor="test")
        await deletion.stop()
        if not whole:
            await deletion.remove()
        return bearer(text)

    async def two(self) -> Headers:
        """Two good keys in one request."""
        return [*bearer(await self.key()), *bearer(await self.key())]

    async def other_scheme(self) -> Headers:
        """A good key under a scheme that is not ours."""
        return [("authorization", f"Basic {await self.key()}")]

    async def two_in_one(self) -> Headers:
        """Two good keys in one header."""
        return bearer(f"{await self.key()}, {await self.key()}")

    async def longer(self) -> Headers:
        """A good key and one character more."""
        return bearer(await self.key() + "a")


def token(**changes: Any) -> Callable[[Keys], Awaitable[Headers]]:
    """Return a maker of a token that is signed as it must be, with other claims; None leaves one out."""

    async def make(keys: Keys) -> Headers:
        return bearer(keys.issuer.token(**changes))

    return make


async def unsigned(keys: Keys) -> Headers:
    """A token that says that it needs no signature."""
    return bearer(
        f"{encoded({'alg': 'none', 'typ': 'at+jwt', 'kid': 'k1'})}.{encoded(keys.issuer.claims(org='ours'))}."
    )


async def confused(keys: Keys) -> Headers:
    """A token signed by the issuer's public key, as if it were a shared secret."""
    header = {"alg": "HS256", "typ": "at+jwt", "kid": "k1"}
    return bearer(hmac_token(header, keys.issuer.claims(org="ours"), public_pem(keys.issuer.keys["k1"])))


def bearer(text: str) -> Headers:
    """Return the header that carries a credential."""
    return [("authorization", f"Bearer {text}")]


def fixed(text: str) -> Callable[[Keys], Awaitable[Headers]]:
    """Return a maker of one header, whatever keys there are."""

    async def make(_keys: Keys) -> Headers:
        return [("authorization", text)]

    return make


REFUSED: dict[str, tuple[Callable[[Keys], Awaitable[Headers]], str]] = {
    "none": (Keys.nothing, "credential_missing"),
    "empty": (fixed(""), "credential_missing"),
    "no credential after the scheme": (fixed("Bearer"), "credential_invalid"),
    "no key": (fixed("Bearer nonsense"), "credential_invalid"),
    "no scheme": (fixed(make_key().text), "credential_invalid"),
    "basic": (fixed("Basic YWRhOmFkYQ=="), "credential_invalid"),
    "giant": (fixed("Bearer " + "x" * 20_000), "credential_invalid"),
    "a key of another letter": (fixed("Bearer myr_aaaaaaaaaaaa_" + "\u00e4" * 32), "credential_invalid"),
    "an unsigned token": (fixed("Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJhZGEifQ."), "credential_invalid"),
    "other scheme": (Keys.other_scheme, "credential_invalid"),
    "unknown": (Keys.unknown, "credential_invalid"),
    "wrong secret": (Keys.wrong_secret, "credential_invalid"),
    "longer": (Keys.longer, "credential_invalid"),
    "expired": (Keys.expired, "credential_invalid"),
    "revoked": (Keys.revoked, "credential_invalid"),
    "two": (Keys.two, "credential_invalid"),
    "two in one": (Keys.two_in_one, "credential_invalid"),
    "suspended tenant": (Keys.suspended, "tenant_suspended"),
    "tenant that is being deleted": (Keys.deleting, "tenant_suspended"),
    "deleted tenant": (Keys.deleted, "credential_invalid"),
    "token of another audience": (token(org="ours", aud="https://elsewhere.example.com/mcp"), "credential_invalid"),
    "token of another issuer": (token(org="ours", iss="https://login.example.com"), "credential_invalid"),
    "token that expired": (token(org="ours", exp=NOW - 3600), "credential_invalid"),
    "token of nobody": (token(org="ours", sub=None), "credential_invalid"),
    "token for a tenant that is not there": (token(org="gone"), "credential_invalid"),
    "token with alg none": (unsigned, "credential_invalid"),
    "token with alg swapped": (token(org="ours", algorithm="RS512"), "credential_invalid"),
    "token with the public key as secret": (confused, "credential_invalid"),
    "token of a stranger's key": (token(org="ours", key=rsa_key(99)), "credential_invalid"),
}
"""Credentials that open nothing: how to make each, and the code of the refusal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forbidden:
    """A key, and calls that it may not make although it is good.

    `refused` maps tools to the arguments with which they are refused; `code` is the tool's own error.
    """

    code: str
    key: dict[str, Any]
    refused: dict[str, tuple[Any, ...]]


def asking_for(*names: str) -> dict[str, tuple[Any, ...]]:
    """Return the arguments of every tool that reads, and names these participants."""
    return {tool: ({**ARGUMENTS.get(tool, {}), "participants": [*names]},) for tool in ASKING}


def masking(*names: str) -> dict[str, tuple[Any, ...]]:
    """Return the arguments of every tool that takes masks: one that is good, and one that names these participants."""
    masks = [{"participants": ["ada", "bot"]}, {"participants": [*names], "exact": True}]
    return {tool: ({**ARGUMENTS.get(tool, {}), "masks": masks},) for tool in MASKED}


def appending_for(*names: str) -> dict[str, tuple[Any, ...]]:
    """Return the arguments of every tool that appends, and names these participants."""
    new = event(participants=[*names])
    return {"append_event": (new,), "append_events": ({"events": [event(participants=["ada", "bot"]), new]},)}


def acting_as(agent: str | None) -> dict[str, tuple[Any, ...]]:
    """Return the arguments of every tool of the agent's face, as an agent, or as none."""
    named = {} if agent is None else {"agentId": agent}
    return {tool: ({**ARGUMENTS.get(tool, {}), **named},) for tool in ACTING}


def speaking_as(user: str | None) -> dict[str, tuple[Any, ...]]:
    """Return the arguments of every tool of turns that takes a user, as one, or as none."""
    named = {} if user is None else {"user_id": user}
    return {tool: ({**ARGUMENTS.get(tool, {}), **named},) for tool in SPEAKING}


def naming_nobody() -> dict[str, tuple[Any, ...]]:
    """Return the arguments of every tool with participants, without any."""
    new = {name: value for name, value in event().items() if name != "participants"}
    return {tool: (ARGUMENTS.get(tool, {}),) for tool in (*ASKING, *SPEAKING, *OWN_SESSION, *SHARING)} | {
        "append_event": (new,),
        "append_events": ({"events": [new]},),
    }


HOST = {"own": ("host",), "may_ask": ("user:*",)}
ELSEWHERE = event(participants=["ada", "bot"], channel="telegram")

FORBIDDEN: dict[str, Forbidden] = {
    "a participant outside": Forbidden(
        code="participants_not_allowed", key={}, refused={**asking_for("carl"), **appending_for("carl")}
    ),
    "all of its own and one outside": Forbidden(
        code="participants_not_allowed",
        key={},
        refused={**asking_for("ada", "bot", "carl"), **appending_for("ada", "bot", "carl")},
    ),
    "a part of its own": Forbidden(code="participants_not_allowed", key={}, refused=asking_for("ada")),
    "the other part of its own": Forbidden(code="participants_not_allowed", key={}, refused=asking_for("bot")),
    "a mask of a participant outside": Forbidden(
        code="participants_not_allowed", key={}, refused=masking("ada", "bot", "carl")
    ),
    "a mask of a part of its own": Forbidden(code="participants_not_allowed", key={}, refused=masking("ada")),
    "no match of a pattern": Forbidden(
        code="participants_not_allowed", key=HOST, refused={**asking_for("users:1"), **appending_for("users:1")}
    ),
    "a pattern itself, not a name": Forbidden(
        code="participants_not_allowed", key={"own": ("host",), "may_ask": ("user:?",)}, refused=asking_for("user:1")
    ),
    "a key of many that names nobody": Forbidden(code="participants_not_allowed", key=HOST, refused=naming_nobody()),
    "a key of many that names itself": Forbidden(
        code="participants_not_allowed", key=HOST, refused={**asking_for("host"), **appending_for("host")}
    ),
    "a user outside": Forbidden(code="participants_not_allowed", key={}, refused=speaking_as("carl")),
    "a user that matches no pattern": Forbidden(
        code="participants_not_allowed", key=HOST, refused=speaking_as("users:1")
    ),
    "an agent outside": Forbidden(code="participants_not_allowed", key={}, refused=acting_as("carl")),
    "an agent that matches no pattern": Forbidden(
        code="participants_not_allowed", key=HOST, refused=acting_as("users:1")
    ),
    "no agent, and nobody whose pool it could be": Forbidden(
        code="participants_not_allowed", key={"own": (), "may_ask": ("user:*",)}, refused=acting_as(None)
    ),
    "a channel outside": Forbidden(
        code="channel_not_allowed",
        key={"channels": ("mail", "chat:*")},
        refused={
            "append_event": (ELSEWHERE,),
            "append_events": ({"events": [{**ELSEWHERE, "channel": "mail"}, ELSEWHERE]},),
            **{
                tool.name: (ARGUMENTS.get(tool.name, {}),)
                for tool in TOOLS
                if tool.roles == ("append",) and tool.name in {*ACTING, *SPEAKING, *OWN_SESSION, *SHARING}
            },
        },
    ),
}
"""Good credentials, and what each may not do: the refusal is the tool's, so that a model can mend its call."""


@pytest.fixture
def issuer() -> Iterator[RunningIssuer]:
    """An authorization server that runs."""
    with RunningIssuer() as running:
        yield running


@pytest.fixture
async def keys(database: Database, issuer: RunningIssuer) -> AsyncIterator[Keys]:
    """Where credentials are made; there are two tenants."""
    async with Pool(database.operator_dsn) as pool:
        store = AccessStore(pool)
        await store.ensure_tenant("default")
        await store.ensure_tenant("other")
        yield Keys(store, issuer)


@pytest.fixture
async def guarded(memory: Memory, issuer: RunningIssuer, tmp_path: Path) -> AsyncIterator[Served]:
    """A server that asks for keys or an issuer's tokens, and goes on to say why it refuses one, however often."""
    entry = {
        "name": "login",
        "issuer": issuer.url,
        "jwks_uri": f"{issuer.url}/keys",
        "audiences": ["https://memory.example.com/mcp"],
        "algorithms": ["RS256"],
        "tenant": {"claim": "org", "values": {"ours": ["default"], "gone": ["not-there"]}},
        "participants": {"claim": "sub"},
        "roles": {"always": ["read", "append", "admin"]},
        "faces": {"always": list(PATH_OF)},
    }
    path = tmp_path / "issuers.json"
    path.write_text(json.dumps({"issuers": [entry]}))
    auth = AuthSettings(
        mode="keys", failures_per_minute=None, public_url="https://memory.example.com", issuers_file=str(path)
    )
    async with serving(
        memory,
        Settings(auth=auth, mcp=McpSettings(legacy_sse=True), turns=TurnsSettings(enabled=True)),
        now=lambda: NOW,
    ) as served:
        yield served


def requests(*, faces: tuple[str, ...] = tuple(PATH_OF)) -> Iterator[Asked]:
    """Yield every request of the table."""
    for face, path in PATH_OF.items():
        if face not in faces:
            continue
        for method in ("GET", "HEAD", "DELETE", "PUT", "PATCH", "OPTIONS"):
            yield method, path, None, {}
        yield "POST", path + "/", b"", {}
        yield "POST", path, b"{", BASE_HEADERS
        for method_name in ("tools/list", "ping", "initialize", "notifications/initialized", "resources/list"):
            message = {"jsonrpc": "2.0", "id": 1, "method": method_name, "params": {}}
            yield "POST", path, message, headers(version=None)
            yield "POST", path, {**message, "params": {"_meta": META}}, headers(method=method_name)
        for method_name, named in [
            ("server/discover", {}),
            ("resources/templates/list", {}),
            ("prompts/list", {}),
            *(("resources/read", {"uri": str(resource.uri)}) for resource in listed_resources()),
            *(("prompts/get", {"name": prompt.name}) for prompt in listed_prompts()),
        ]:
            message = {"jsonrpc": "2.0", "id": 1, "method": method_name, "params": {**named, "_meta": META}}
            yield "POST", path, message, headers(method=method_name)
        for tool in TOOLS:
            for version in (MODERN, None):
                message = call(tool.plain(), ARGUMENTS.get(tool.name, {}), version=version)
                yield "POST", path, message, headers(tool.plain(), version=version)
        batch = [call(tool.plain(), ARGUMENTS.get(tool.name, {}), version=None) for tool in TOOLS]
        yield "POST", path, batch, headers(version=None)
    if "rest" in faces:
        yield from rest_requests()
    if "agent" in faces:
        for path, method in OLD.items():
            yield method, f"{path}?sessionId={'0' * 32}", None, {}


def a_third(table: Iterable[Asked], number: int) -> list[Asked]:
    """Return every third request, another third for the next number: checks before the endpoint see no tool, so that
    each request meets many of the credentials, and each credential many of the requests. All of them in a soak run."""
    every = list(table)
    return every if SOAK else every[number % 3 :: 3]


def rest_requests() -> Iterator[Asked]:
    """Yield a request of every route of REST, and of paths that are none."""
    for route in ROUTES:
        body = BODIES.get(route.name)
        yield route.method, PREFIX + route.path.replace("{id}", "x"), body, {} if body is None else JSON
    for method, path in (("GET", "/nothing"), ("HEAD", "/memories"), ("PUT", "/memories"), ("OPTIONS", "/agents")):
        yield method, PREFIX + path, None, {}
    yield "POST", PREFIX + "/memories", b"{", JSON
    yield "GET", PREFIX, None, {}


async def ask(served: Served, asked: Asked, credential: Headers) -> httpx.Response:
    """Send one request of the table with a credential."""
    method, path, body, sent = asked
    content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    return await served.line.ask(method, path, [*({"accept": "*/*"} | sent).items(), *credential], content)


async def stored(database: Database) -> tuple[int, int]:
    """Return how many events, and requests to build, the tenants have."""
    counts = []
    for table in ("events", "rebuild_requests"):
        found = [await rows(database, f"SELECT 1 FROM myria.{table}", tenant=tenant) for tenant in ("default", "other")]
        counts.append(sum(map(len, found)))
    return counts[0], counts[1]


@pytest.mark.parametrize("name", REFUSED)
async def test_a_credential_that_opens_nothing(name: str, guarded: Served, keys: Keys, database: Database) -> None:
    """Tools, methods and paths refuse it with one code, challenge for a better one, and do nothing."""
    make, code = REFUSED[name]
    credential = await make(keys)
    texts: dict[int, set[str]] = {}
    for method, path, body, sent in a_third(requests(), list(REFUSED).index(name)):
        response = await ask(guarded, (method, path, body, sent), credential)
        where = (name, method, path, body)
        status = STATUS_OF.get(code, 403)
        if code == "tenant_suspended" and path.startswith(PREFIX):
            status = 503
        assert response.status_code == status, where
        if method != "HEAD":
            refused, text = refusal_of(response)
            assert refused == code, where
            texts.setdefault(status, set()).add(text)
        challenge = response.headers.get("www-authenticate")
        if status == 401:
            assert challenge is not None, where
            assert challenge.startswith("Bearer "), where
            assert ('error="invalid_token"' in challenge) == (code != "credential_missing"), where
    assert {len(of_one) for of_one in texts.values()} == {1}, "the refusal tells something of what was asked for"
    for path in sorted(OPEN):
        assert (await ask(guarded, ("GET", path, None, {}), credential)).status_code == 200, (name, path)
    assert await stored(database) == (0, 0)


@pytest.mark.parametrize("role", [None, *ROLES])
async def test_a_role_opens_its_tools_alone(role: str | None, guarded: Served, keys: Keys, database: Database) -> None:
    """Of every tool at both faces, in every form of a call; what it may not call, it is not offered either."""
    text = bearer(await keys.key(roles=ROLES if role is None else (role,)))
    for face, path in PATH_OF.items():
        listing = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": META}}
        answer = await ask(guarded, ("POST", path, listing, headers(method="tools/list")), text)
        offered = {tool["name"] for tool in answer.json()["result"]["tools"]}
        for tool in TOOLS:
            may = face in tool.apis and (role is None or role in tool.roles)
            assert (tool.plain() in offered) == may, (role, path, tool.name)
            await check_role(guarded, text, tool, path, offers=face in tool.apis, may=may)
    if role in ("read", "erase"):
        assert await stored(database) == (0, 0)


def refusal_of(response: httpx.Response) -> tuple[str, str]:
    """Return the code and the text of a refusal before any tool ran; over REST what to do is the hint."""
    body = response.json()
    error = body["error"]
    if isinstance(error, str):
        return body["code"], body.get("hint", error)
    return error.get("data", error)["code"], error["message"]


@pytest.mark.parametrize("role", ROLES)
async def test_a_role_opens_its_routes_alone(role: str, guarded: Served, keys: Keys) -> None:
    """Of REST; the refusal says which role it needs."""
    credential = bearer(await keys.key(roles=(role,)))
    for route in ROUTES:
        body = BODIES.get(route.name)
        asked = (route.method, PREFIX + route.path.replace("{id}", "x"), body, {} if body is None else JSON)
        response = await ask(guarded, asked, credential)
        assert (response.status_code == 403) == (role not in route.roles), route.name
        if response.status_code == 403:
            assert refusal_of(response)[0] == "role_required"
            assert f'scope="{" ".join(route.roles)}"' in response.headers["www-authenticate"]


async def check_role(served: Served, credential: Headers, tool: Tool, path: str, *, offers: bool, may: bool) -> None:
    """Call a tool in every form, and check that it runs, is not offered there, or is refused for want of a role."""
    arguments = ARGUMENTS.get(tool.name, {})
    for version in (MODERN, None):
        sent = headers(tool.plain(), version=version)
        response = await ask(served, ("POST", path, call(tool.plain(), arguments, version=version), sent), credential)
        if offers and not may:
            assert (response.status_code, response.json()["error"]["data"]["code"]) == (403, "role_required")
            challenge = response.headers["www-authenticate"]
            assert 'error="insufficient_scope"' in challenge
            assert f'scope="{" ".join(tool.roles)}"' in challenge
            continue
        assert response.status_code == 200, response.text
        code = code_of(response.json()["result"]["structuredContent"])
        assert (code in {"tool_not_enabled", DENIED}) == (not offers), (tool.name, path, code)
        assert code not in {"role_required", "participants_not_allowed", "channel_not_allowed"}
    batch = [call(tool.plain(), arguments, version=None)]
    response = await ask(served, ("POST", path, batch, headers(version=None)), credential)
    refused = response.json()[0].get("error", {}).get("data", {}).get("code")
    assert (refused == "role_required") == (offers and not may), (tool.name, path)


def code_of(content: dict[str, Any]) -> str | None:
    """Return the code of a refusal, in the form of any face; None of an answer."""
    error = content.get("error")
    code: str | None = error["code"] if isinstance(error, dict) else content.get("code")
    return code


@pytest.mark.parametrize("face", PATH_OF)
async def test_a_face_is_its_own_door(face: str, guarded: Served, keys: Keys, database: Database) -> None:
    """A key for one face gets nothing at another's path, whatever it asks."""
    credential = bearer(await keys.key(faces=(face,)))
    others = tuple(other for other in PATH_OF if other != face)
    for method, path, body, sent in a_third(requests(faces=others), list(map(str, PATH_OF)).index(face)):
        response = await ask(guarded, (method, path, body, sent), credential)
        assert response.status_code == 403, (method, path, body)
        if method != "HEAD":
            assert refusal_of(response)[0] == "face_not_allowed", (method, path, body)
    assert await stored(database) == (0, 0)


@pytest.mark.parametrize("name", FORBIDDEN)
async def test_what_a_good_key_may_not_name(name: str, guarded: Served, keys: Keys, database: Database) -> None:
    """The tool refuses it in every protocol and batch, and stores nothing."""
    row = FORBIDDEN[name]
    credential = bearer(await keys.key(**row.key))
    for tool, each in row.refused.items():
        full, path = NAMES[tool], path_of(tool)
        for arguments in each:
            answers = []
            for version in (MODERN, None, "2025-06-18"):
                message = call(full, arguments, version=version)
                answer = await ask(guarded, ("POST", path, message, headers(full, version=version)), credential)
                assert answer.status_code == 200, answer.text
                answers.append(answer.json())
            batch = [call(full, arguments, version=None)]
            answers += (await ask(guarded, ("POST", path, batch, headers(version=None)), credential)).json()
            for answer_body in answers:
                result = answer_body["result"]
                assert result["isError"], (name, tool)
                expected = DENIED if path == PATH_OF["turns"] else row.code
                assert code_of(result["structuredContent"]) == expected, (name, tool)
    assert await stored(database) == (0, 0)


@pytest.mark.parametrize("role", ROLES)
async def test_a_role_opens_what_resources_tell(role: str, guarded: Served, keys: Keys) -> None:
    """What a resource tells of notes is for who may read; the rules by which notes are kept are for everybody here."""
    text = bearer(await keys.key(roles=(role,)))
    for resource in listed_resources():
        read = {"uri": str(resource.uri), "_meta": META}
        message = {"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": read}
        sent = headers(method="resources/read") | {"mcp-name": str(resource.uri)}
        answer = (await ask(guarded, ("POST", PATH_OF["agent"], message, sent), text)).json()
        may = role == "read" or str(resource.uri) == "memory://config"
        assert ("result" in answer) == may, (role, answer)
        assert may or answer["error"]["data"]["code"] == "role_required"
        assert may or answer["error"]["code"] == INVALID_PARAMS


def test_every_tool_takes_part_in_the_tables() -> None:
    """Its arguments are here, and whom or what its calls name is held against the rows, or it is listed as nameless."""
    for tool in TOOLS:
        needed = set(input_schema(tool, Limits()).get("required", ()))
        assert needed <= ARGUMENTS.get(tool.name, {}).keys(), tool.name
    naming = {*ASKING, *APPENDING, *ACTING, *SPEAKING, *OWN_SESSION, *SHARING}
    assert {route.name for route in ROUTES if route.body} == BODIES.keys()
    assert naming.isdisjoint(NAMELESS)
    assert naming | NAMELESS == {tool.name for tool in TOOLS}
    assert {tool for row in FORBIDDEN.values() for tool in row.refused} == naming
    assert all(tool.roles == ("append",) for tool in TOOLS if tool.name in APPENDING)
    assert ARGUMENTS.keys() <= {tool.name for tool in TOOLS}


async def test_a_token_that_is_good_is_let_in(guarded: Served, keys: Keys) -> None:
    """The table's tokens are refused for what is wrong with them alone."""
    for path in PATH_OF.values():
        message, sent = call("myria_get_snapshot_status", {}), headers("myria_get_snapshot_status")
        good = bearer(keys.issuer.token(org="ours"))
        assert (await ask(guarded, ("POST", path, message, sent), good)).status_code == 200


async def test_what_a_good_key_may_name(guarded: Served, keys: Keys) -> None:
    """The table's refusals are not of everything: the same calls with participants and channels inside are answered."""
    own, host = bearer(await keys.key(channels=("mail",))), bearer(await keys.key(**HOST))
    inside = {
        **asking_for("ada", "bot"),
        "append_event": ({**ELSEWHERE, "channel": "mail", "participants": ["ada"]},),
    }
    for credential, calls in (
        (own, {**inside, "recall": (ARGUMENTS["recall"],)}),
        (host, {**asking_for("user:1"), **appending_for_host(), **acting_as("user:1"), **speaking_as("user:1")}),
        (host, acting_as(None)),
    ):
        for tool, each in calls.items():
            full, path = NAMES[tool], path_of(tool)
            for arguments in each:
                answer = await ask(guarded, ("POST", path, call(full, arguments), headers(full)), credential)
                content = answer.json()["result"]["structuredContent"]
                assert code_of(content) in (None, "event_not_found", "topic_not_found", "note_not_found"), tool


def appending_for_host() -> dict[str, tuple[Any, ...]]:
    """Return appends that the key of many may make."""
    return {
        "append_event": (event(participants=["user:1"]),),
        "append_events": ({"events": [event(participants=["host", "user:2"])]},),
    }


async def test_no_route_lies_outside_the_table(guarded: Served) -> None:
    """The application serves the APIs' paths behind its checks, and beside them the open routes alone."""
    app = guarded.server.app
    assert {*app.at} == {*PATH_OF.values(), *TURNS_OVER_HTTP, PREFIX, *OLD}
    assert {*app.below} == {PREFIX + "/"}
    assert {getattr(route, "path", None) for route in app.beside.routes} == OPEN
    for path in sorted(OPEN):
        assert (await guarded.client.get(path)).status_code == 200
    for path in ("/", "/mcp/x", "/mcp/admin/x", "//mcp", "/MCP", "/mcp;a", "/api", "/admin"):
        response = await guarded.client.get(path)
        assert response.status_code == 404, path
