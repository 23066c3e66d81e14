"""Keys and grants in the console: what an administrator sees and changes, and that nobody gives more than it has."""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import asyncpg
import httpx
import pytest

from myria.access.administered import TenantKeys
from myria.access.console_sessions import ConsoleSessions
from myria.access.journal import Sought, entries, entries_for
from myria.access.principal import Principal, Proof
from myria.access.secrets import MadeKey, make_key, parse_key, parse_session
from myria.access.store import AccessStore, NewKey
from myria.db.database import Database as Pool
from myria.errors import CredentialInvalid, KeyNotFound, MyriaError, ParticipantsNotAllowed
from myria.log.event import parse_event
from myria.log.limits import Limits
from myria.memory import Memory
from myria.settings import AuthSettings, ConsoleSettings, Settings
from tests.console.conftest import Browser, elements, text_of
from tests.server.signing_in import client_id, tokens
from tests.server.wire import Served, event
from tests.support.keys import make_key as make_text
from tests.support.patience import PATIENCE_S
from tests.support.postgres import Database

ADMIN: dict[str, Any] = {"roles": ("append", "read", "admin"), "faces": ("core", "admin"), "may_ask": ("user:*",)}
PUBLIC_URL = "http://127.0.0.1"  # over TLS alone, browsers would keep the cookie from this server
KEY = re.compile(r"myr_[a-z0-9]{12}_[a-z0-9]{32}")


@pytest.fixture
def settings() -> Settings:
    """Callers need a key; programs may ask for a grant."""
    return Settings(
        console=ConsoleSettings(enabled=True, sessions_per_key=2),
        auth=AuthSettings(mode="keys", public_url=PUBLIC_URL, server=True, sign_ins_per_minute=5),
    )


@pytest.fixture
async def serving_role(database: Database) -> AsyncIterator[Pool]:
    """The database with the rights of serving."""
    async with Pool(database.server_dsn) as pool:
        yield pool


def another(served: Served) -> Browser:
    """Return a browser with cookies of its own."""
    return Browser(httpx.AsyncClient(base_url=served.client.base_url, timeout=PATIENCE_S, verify=False))


def proof_of(key: MadeKey | str | None, tenant: str = "default") -> Proof:
    """Return what a key, or its text, proves."""
    made = parse_key(key) if isinstance(key, str) else key
    assert made is not None
    return Proof(tenant=tenant, key_id=made.key_id, digest=made.digest)


def filled(**more: str) -> dict[str, str]:
    """Return what an administrator fills in for a new key."""
    fields = {"name": "robot", "role_read": "on", "api_core": "on", "own": "user:7", "lifetime": "30 days"}
    return {name: value for name, value in {**fields, **more}.items() if value}


async def test_a_key_is_made_and_shown_once(
    served: Served, browser: Browser, store: AccessStore, database: Database, memory: Memory
) -> None:
    """The page after the form holds the key, which works; no list, journal, address or reload holds it again."""
    await browser.sign_in(await make_text(store, **ADMIN))
    form = await browser.get("/console/keys/new")
    made = await browser.submit(form, "/console/keys/new", filled(reason="a robot for the kiln"))
    assert made.status_code == 200
    assert made.headers["cache-control"] == "no-store"
    (text,) = set(KEY.findall(made.text))
    assert text not in str(made.url)
    robot = another(served)
    assert (await robot.sign_in(text)).status_code == 200
    assert "signed in as robot key:" + text.split("_")[1] in text_of((await robot.get("/console/ask")).text)
    await robot.client.aclose()
    listed = await browser.get("/console/keys")
    assert "robot" in text_of(listed.text)
    again = await browser.submit(form, "/console/keys/new", filled())
    assert again.status_code == 400
    assert "made its key already" in text_of(again.text)
    key = await store.key(text.split("_")[1])
    assert (key["roles"], key["faces"], key["as"]) == (["read"], ["core"], ["user:7"])
    assert len(await store.keys("default")) == 2
    async with Pool(database.operator_dsn) as pool:
        journal = await entries(pool, "default", 100)
    noted = next(entry for entry in journal if entry["action"] == "key.create" and entry["face"] == "admin")
    assert noted["actor"] == key["created_by"]
    assert noted["details"]["reason"] == "a robot for the kiln"
    assert noted["address"] == "127.0.0.1"
    secret = text.rpartition("_")[2]
    audit = await browser.get("/console/audit")
    assert not any(secret in page for page in (listed.text, again.text, audit.text, str(journal)))


REFUSED = (
    ({"role_erase": "on"}, "role_required"),
    ({"api_agent": "on"}, "face_not_allowed"),
    ({"own": "ada"}, "participants_not_allowed"),
    ({"own": "", "may_ask": "*"}, "participants_not_allowed"),
    ({"own": "", "may_ask": ""}, "invalid_argument"),
    ({"own": "user:7\0"}, "invalid_participants"),
    ({"name": "\0"}, "invalid_text"),
    ({"name": " "}, "invalid_argument"),
    ({"name": "ro\u202ebot"}, "invalid_text"),
    ({"name": "ro\x1bbot"}, "invalid_text"),
    ({"name": " k"}, "key_name_taken"),
    ({"name": "x" * 101}, "invalid_argument"),
    ({"lifetime": "2 years"}, "invalid_argument"),
    ({"role_read": "", "own": ""}, "invalid_argument"),
    ({"reason": "x" * 501}, "invalid_argument"),
)


async def test_a_key_beyond_its_maker_is_refused(served: Served, browser: Browser, store: AccessStore) -> None:
    """A role, an API or a name that the maker has not, and what is no key at all, is refused with a code."""
    await browser.sign_in(await make_text(store, **ADMIN))
    form = await browser.get("/console/keys/new")
    for changes, code in REFUSED:
        refused = await browser.submit(form, "/console/keys/new", filled(**changes))
        assert 400 <= refused.status_code < 500
        assert f"Code: {code}" in text_of(refused.text), changes
    assert "Name is that of a key that has not ended" in text_of(
        (await browser.submit(form, "/console/keys/new", filled(name="k"))).text
    )
    assert len(await store.keys("default")) == 1


async def test_who_speaks_for_many_is_asked_for_whom(
    served: Served, browser: Browser, store: AccessStore, memory: Memory
) -> None:
    """A key with patterns alone begins at a form that asks for a name, and offers those it knows; not at a refusal."""
    kept = [parse_event(event(name, participants=[name]), Limits()) for name in ("user:7", "bob")]
    await memory.log.append_events("default", kept)
    page = await browser.sign_in(await make_text(store, **ADMIN))
    chosen = page.text.partition("Or choose:")[2]
    assert "as=user%3A7" in chosen
    assert "bob" not in chosen
    assert (page.status_code, page.url.path) == (200, "/console/ask")
    assert "Your key speaks for many" in text_of(page.text)
    assert "user:*" in text_of(page.text)
    assert (await browser.get("/console/ask", **{"as": "user:7"})).status_code == 200
    refused = await browser.get("/console/ask", **{"as": "ada"})
    assert "participants_not_allowed" in text_of(refused.text)


async def test_names_stand_on_lines_of_their_own(served: Served, browser: Browser, store: AccessStore) -> None:
    """A name may hold a comma; empty lines are none; a key that its maker's patterns cover may add others itself."""
    await browser.sign_in(await make_text(store, "root, the first", **ADMIN))
    form = await browser.get("/console/keys/new")
    assert ">root, the first</textarea>" in form.text
    names = {"own": "root, the first\r\n\r\n user:7 \r\n", "may_ask": "user:a*\nuser:b"}
    made = await browser.submit(form, "/console/keys/new", filled(**names))
    (text,) = set(KEY.findall(made.text))
    key = await store.key(text.split("_")[1])
    assert (key["as"], key["may_ask"]) == (["root, the first", "user:7"], ["user:a*", "user:b"])


async def test_revoking_ends_sessions_at_once(served: Served, browser: Browser, store: AccessStore) -> None:
    """The page says what ends; afterwards the key's browser has to sign in again, and who and why is on record."""
    maker = await make_text(store, name="the desk", **ADMIN)
    await browser.sign_in(maker)
    text = await make_text(store, "user:7", name="lost laptop")
    other = another(served)
    await other.sign_in(text)
    key_id = text.split("_")[1]
    confirm = await browser.get(f"/console/keys/{key_id}/revoke")
    assert "1 browser that is signed in" in text_of(confirm.text)
    assert "Last used never" not in text_of(confirm.text)
    assert (await other.get("/console/ask")).url.path == "/console/ask"
    done = await browser.submit(confirm, f"/console/keys/{key_id}/revoke", {"reason": "stolen"})
    assert "Revoked" in text_of(done.text)
    for _ in range(100):
        page = await other.get("/console/ask")
        if page.url.path == "/console/sign-in":
            break
    assert page.url.path == "/console/sign-in"
    assert f"/console/audit?q={key_id}" in done.text
    said = text_of((await browser.get("/console/audit", q=key_id)).text)
    assert f"the desk {maker.split('_')[1]} revoked the key lost laptop {key_id} stolen" in said
    assert "ok key.revoke" in said
    assert "127.0.0.1" in said
    again = await browser.submit(confirm, f"/console/keys/{key_id}/revoke")
    assert again.status_code == 200
    assert (await store.key(key_id))["state"] == "revoked"
    assert (await browser.get("/console/keys/nobody99/revoke")).status_code == 404
    await other.client.aclose()


async def test_replacing_shows_the_new_key_and_ends_the_old_one_later(
    served: Served, browser: Browser, store: AccessStore
) -> None:
    """The new key may what the old one may; a form sent twice replaces once, and a key is replaced once."""
    await browser.sign_in(await make_text(store, **ADMIN))
    text = await make_text(store, "user:7", roles=("read",), faces=("core",))
    path = f"/console/keys/{text.split('_')[1]}/rotate"
    form = await browser.get(path)
    choices = [a for _, a in elements(form.text) if a.get("name") == "overlap"]
    assert [a["value"] for a in choices if "checked" in a] == ["at once"]  # as a leak wants it
    assert len(choices) == 4
    made = await browser.submit(form, path, {"overlap": "in an hour"})
    (new,) = set(KEY.findall(made.text))
    fresh, old = await store.key(new.split("_")[1]), await store.key(text.split("_")[1])
    assert (fresh["as"], fresh["roles"], fresh["replaces"]) == (old["as"], old["roles"], old["key_id"])
    assert old["state"] == "active"
    assert old["expires_at"] is not None
    revoking = await browser.get(f"/console/keys/{fresh['key_id']}/revoke")
    assert "still works until" in text_of(revoking.text)
    assert f'href="/console/keys/{old["key_id"]}/revoke"' in revoking.text
    for sent in (form, await browser.get(path)):
        again = await browser.submit(sent, path, {"overlap": "at once"})
        assert again.status_code == 400
        assert not KEY.findall(again.text)
    assert len(await store.keys("default")) == 3
    await browser.submit(await browser.get(path.replace("rotate", "revoke")), path.replace("rotate", "revoke"))
    gone, late = await make_text(store, "user:7"), await make_text(store, "user:7", expires_s=0.001)
    await store.rotate_key(gone.split("_")[1], overlap_s=0)
    other = another(served)
    forged = gone[:-32] + "a" * 32
    for key, why in (
        (text, "this key was revoked"),
        (gone, "this key was replaced; ask for the one that replaces it"),
        (late, "this key has expired"),
        (forged, "this key is not known, or is not whole"),
    ):
        assert why in text_of((await other.sign_in(key)).text)
    await other.client.aclose()
    stronger = await make_text(store, "user:7", roles=("read", "erase"), faces=("core",))
    path = f"/console/keys/{stronger.split('_')[1]}/rotate"
    refused = await browser.submit(await browser.get(path), path, {"overlap": "at once"})
    assert "role_required" in text_of(refused.text)
    listed = (await browser.get("/console/keys")).text
    assert path not in listed
    assert path.replace("rotate", "revoke") in listed
    assert "Your key lacks the role erase, so you cannot replace it here" in text_of(listed)
    await make_text(store, "user:7", roles=("read",), faces=("core", "turns"))
    assert "Your key lacks the API turns" in text_of((await browser.get("/console/keys")).text)
    assert "Your own key lacks agent, turns, rest" in text_of((await browser.get("/console/keys/new")).text)


async def test_a_key_with_an_unsightly_name_is_listed_and_replaced_and_revoked(
    served: Served, browser: Browser, store: AccessStore, database: Database
) -> None:
    """Names that are refused by now may have been taken before."""
    await browser.sign_in(await make_text(store, **ADMIN))
    key_id = (await make_text(store, "user:7", roles=("read",), faces=("core",))).split("_")[1]
    connection = await asyncpg.connect(database.superuser_dsn)
    await connection.execute("UPDATE myria.keys SET name = $1 WHERE key_id = $2", "ro\u202ebot\n", key_id)
    await connection.close()
    assert key_id in (await browser.get("/console/keys")).text
    for act in ("rotate", "revoke"):
        path = f"/console/keys/{key_id}/{act}"
        assert (await browser.submit(await browser.get(path), path, {"overlap": "in a day"})).status_code == 200
    assert (await store.key(key_id))["state"] == "revoked"


async def test_an_administrator_may_replace_and_revoke_its_own_key(
    served: Served, browser: Browser, store: AccessStore
) -> None:
    """Whoever replaces the own key sees the new one, although the session ends with the old one."""
    text = await make_text(store, **ADMIN)
    await browser.sign_in(text)
    path = f"/console/keys/{text.split('_')[1]}/rotate"
    form = await browser.get(path)
    assert "You signed in with this key" in text_of(form.text)
    made = await browser.submit(form, path, {"overlap": "at once"})
    (new,) = set(KEY.findall(made.text))
    await browser.sign_in(new)
    listed = await browser.get("/console/keys")
    assert "(yours)" in listed.text
    path = f"/console/keys/{new.split('_')[1]}/revoke"
    done = await browser.submit(await browser.get(path), path)
    for _ in range(100):
        done = await browser.get("/console/keys")
        if done.url.path == "/console/sign-in":
            break
    assert done.url.path == "/console/sign-in"


async def test_a_grant_is_listed_and_ended(
    served: Served, browser: Browser, store: AccessStore, database: Database
) -> None:
    """What a program was allowed is shown with its key; ended, its token is refused, and the audit says by whom, from
    where and why, once."""
    admin = await make_text(store, **ADMIN)
    text = await make_text(store, "user:7", name="the laptop")
    client = await client_id(served)
    issued = await tokens(served, client, text, resource=f"{PUBLIC_URL}/mcp")
    await browser.sign_in(admin)
    listed = await browser.get("/console/keys/grants")
    assert "Editor" in text_of(listed.text)
    assert "the laptop" in text_of(listed.text)
    path = re.findall(r"/console/keys/grants/[0-9a-f-]{36}", listed.text)[0]
    form = await browser.get(path)
    for _ in range(2):
        done = await browser.submit(form, path, {"reason": "the laptop was stolen"})
        assert "Ended" in text_of(done.text)
    (grant,) = await store.grants("default")
    assert grant["state"] == "ended"
    actor = "key:" + admin.split("_")[1]
    assert grant["ended_reason"] == "revoked by " + actor
    async with Pool(database.operator_dsn) as pool:
        (noted,) = [entry for entry in await entries(pool, "default", 100) if entry["action"] == "grant.revoke"]
    assert (noted["actor"], noted["address"], noted["target"]) == (actor, "127.0.0.1", grant["grant_id"])
    assert noted["details"] == {
        "key_id": text.split("_")[1],
        "client_id": client,
        "client": "Editor",
        "scopes": grant["scopes"],
        "reason": "the laptop was stolen",
    }
    link = f"/console/audit?q={grant['grant_id']}"
    assert link in done.text
    said = text_of((await browser.get(link)).text)
    assert f"ended the grant of Editor {grant['grant_id']} the laptop was stolen" in said
    assert "ok grant.revoke" in said
    assert "127.0.0.1" in said
    bearer = {"authorization": f"Bearer {issued['access_token']}", "content-type": "application/json"}
    for _ in range(100):
        answer = await served.client.post("/mcp", content=b"{}", headers=bearer)
        if answer.status_code == 401:
            break
    assert answer.status_code == 401
    for wrong in ("x", "00000000-0000-0000-0000-000000000000"):
        assert (await browser.get(f"/console/keys/grants/{wrong}")).status_code == 404


async def test_only_administrators_see_the_pages(served: Served, browser: Browser, store: AccessStore) -> None:
    """A key without the role or without the API admin is refused, also to send a form."""
    for more in ({"roles": ("read",), "faces": ("core", "admin")}, {"roles": ("read", "admin"), "faces": ("core",)}):
        key = await make_text(store, "user:7", **more)
        await browser.sign_in(key)
        for path in ("keys", "keys/new", "keys/grants", f"keys/{key.split('_')[1]}/revoke"):
            assert (await browser.get(f"/console/{path}")).status_code == 403
        page = await browser.get("/console/ask")
        token = page.text.partition('name="form_token" value="')[2].partition('"')[0]
        sent = {"origin": str(browser.client.base_url).rstrip("/")}
        refused = await browser.client.post("/console/keys/new", data={**filled(), "form_token": token}, headers=sent)
        assert refused.status_code == 403
    assert len(await store.keys("default")) == 2


async def test_without_a_proof_the_database_gives_and_changes_nothing(
    served: Served, store: AccessStore, serving_role: Pool, database: Database
) -> None:
    """Straight against the functions, as serving may call them: who is no administrator of the tenant gets nothing."""
    victim = await make_text(store, "user:7", name="victim")
    key_id = victim.split("_")[1]
    admin = parse_key(await make_text(store, **ADMIN))
    assert admin is not None
    read = await make_text(store, "user:7", roles=("read",), faces=("core", "admin"))
    unfaced = await make_text(store, "user:7", roles=("read", "admin"), faces=("core",))
    revoked = await make_text(store, **ADMIN)
    await store.revoke_key(revoked.split("_")[1])
    sessions = ConsoleSessions(serving_role, lifetime_s=60, most=5)
    expired = ConsoleSessions(serving_role, lifetime_s=-1, most=5)
    signed_out = parse_session(await sessions.sign_in(admin) or "")
    assert signed_out is not None
    await sessions.sign_out(signed_out.text)
    late = parse_session(await expired.sign_in(admin) or "")
    reader = parse_session(await sessions.sign_in(parse_key(read) or admin) or "")
    issued = await tokens(served, await client_id(served), admin.text, resource=f"{PUBLIC_URL}/mcp/admin")
    program = MadeKey("", issued["access_token"])
    keys = TenantKeys(serving_role)
    forged = [
        proof_of(read),
        proof_of(unfaced),
        proof_of(revoked),
        proof_of(signed_out),
        proof_of(late),
        proof_of(reader),
        proof_of(program),
        Proof(tenant="default", key_id=admin.key_id, digest=bytes(32)),
        Proof(tenant="default", key_id="", digest=admin.digest),
        Proof(tenant="default", key_id="", digest=bytes(32)),
        replace(proof_of(admin), key_id=key_id),
        *(proof_of(admin, tenant) for tenant in ("other", "*", "")),
    ]
    new = NewKey(name="mine", tenant="default", roles=("read",), faces=("core",), own=("user:7",))
    before = await store.keys("default")
    for proof in forged:
        for refused in (
            keys.keys(proof, limit=10),
            keys.key(proof, key_id),
            keys.key_names(proof, [key_id]),
            keys.grants(proof, limit=10),
            entries_for(serving_role, proof, Sought(), before=None, limit=10),
            keys.create_key(proof, new, make_key(), reason="", address=None),
            keys.rotate_key(proof, key_id, make_key(), overlap_s=0, reason="", address=None),
            keys.revoke_key(proof, key_id, reason="", address=None),
        ):
            with pytest.raises(CredentialInvalid):
                await refused
        (grant,) = await store.grants("default")
        with pytest.raises(CredentialInvalid):
            await keys.end_grant(proof, grant["grant_id"], reason="", address=None)
    foreign = proof_of(await make_text(store, tenant="other", **ADMIN), "other")
    with pytest.raises(KeyNotFound):
        await keys.revoke_key(foreign, key_id, reason="", address=None)
    with pytest.raises(KeyNotFound):
        await keys.rotate_key(foreign, key_id, make_key(), overlap_s=0, reason="", address=None)
    assert [key["name"] for key in await keys.keys(foreign, limit=10)] == ["k"]
    assert await keys.grants(foreign, limit=10) == []
    assert await keys.key_names(foreign, [key_id]) == {}
    after = await store.keys("default")
    assert [{**key, "last_used_at": None} for key in after] == [{**key, "last_used_at": None} for key in before]
    assert {"digest", "secret"}.isdisjoint((await keys.keys(proof_of(admin), limit=1))[0])
    async with serving_role.connection() as connection:
        for statement in (
            "SELECT myria.administrator('', '')",
            "SELECT myria.begin_console_session('default', 'key:x', 'x', NULL, '', 1, 1, NULL)",
            "SELECT digest FROM myria.keys",
            "UPDATE myria.keys SET revoked_at = NULL",
        ):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await connection.execute(statement)


def _principal(new: NewKey) -> Principal:
    return Principal(
        tenant="default",
        actor="x",
        roles=frozenset(new.roles),
        faces=frozenset(new.faces),
        own=tuple(sorted(new.own)),
        may_ask=tuple(new.may_ask),
    )


def _asked(new: NewKey, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
    try:
        return _principal(new).asking_as(names)
    except MyriaError:
        return None


async def test_no_key_asks_as_its_maker_may_not(store: AccessStore, serving_role: Pool) -> None:
    """Random keys: whatever a made key may ask as, its maker may ask as too; and some are made, some refused."""
    rng = random.Random(7)
    people = ("a", "ab", "b", "ba", "*a", "abba")
    patterns = ("a*", "*a", "a*a", "*", "ab", "b*", "aba*ba")
    keys = TenantKeys(serving_role)
    made = refused = 0
    for number in range(25):
        maker = NewKey(
            name=f"maker {number}",
            tenant="default",
            roles=("read", "admin"),
            faces=("core", "admin"),
            own=tuple(rng.sample(people, rng.randrange(3))),
            may_ask=tuple(rng.sample(patterns, rng.randrange(3))),
        )
        if not maker.own and not maker.may_ask:
            continue
        proof = proof_of((await store.create_key(maker))[0])
        for _ in range(12):
            new = NewKey(
                name=f"made {made}",
                tenant="default",
                roles=("read",),
                faces=("core",),
                own=tuple({*rng.sample(people, rng.randrange(3)), *(maker.own if rng.random() < 0.7 else ())}),
                may_ask=tuple(rng.sample((*patterns, *people), rng.randrange(2))),
            )
            if not new.own and not new.may_ask:
                continue
            try:
                await keys.create_key(proof, new, make_key(), reason="", address=None)
            except ParticipantsNotAllowed:
                refused += 1
                continue
            made += 1
            for names in (None, *itertools.chain(*(itertools.combinations(people, size) for size in (1, 2, 3)))):
                asked = _asked(new, names)
                assert asked is None or _asked(maker, asked) == asked, (maker, new, names)
    assert made > 20
    assert refused > 20


async def test_a_key_ends_no_later_than_its_maker(store: AccessStore, serving_role: Pool) -> None:
    """A lifetime is cut, and limits are the maker's; so is the lifetime of a key that replaces another."""
    text = await make_text(store, **ADMIN, expires_s=3600, requests_per_s=5, channels=("mail",))
    keys, proof = TenantKeys(serving_role), proof_of(text)
    maker = await store.key(text.split("_")[1])
    new = NewKey(name="new", tenant="default", roles=("read",), faces=("core",), own=("user:7",), expires_s=86_400)
    for lifetime_s in (86_400, None):
        made = make_key()
        new = replace(new, name=f"new {lifetime_s}", expires_s=lifetime_s)
        await keys.create_key(proof, new, made, reason="", address=None)
        key = await store.key(made.key_id)
        assert (key["expires_at"], key["requests_per_s"], key["channels"]) == (maker["expires_at"], 5, ["mail"])
    faster = await make_text(store, "user:7", roles=("read",), faces=("core",), channels=("mail",))
    with pytest.raises(MyriaError) as refusal:
        await keys.rotate_key(proof, faster.split("_")[1], make_key(), overlap_s=0, reason="", address=None)
    assert "more requests" in refusal.value.message
    rotated = make_key()
    await keys.rotate_key(proof, maker["key_id"], rotated, overlap_s=0, reason="", address=None)
    assert (await store.key(rotated.key_id))["expires_at"] <= maker["expires_at"]


async def test_lists_go_on_where_they_stopped(store: AccessStore, serving_role: Pool) -> None:
    """Pages of keys, newest first, hold each key once."""
    proof = proof_of(await make_text(store, **ADMIN))
    for number in range(5):
        await make_text(store, "user:7", name=f"k{number}")
    keys, seen, before = TenantKeys(serving_role), [], None
    while page := await keys.keys(proof, before=before, limit=2):
        seen += [key["key_id"] for key in page]
        before = seen[-1]
    assert seen == [key["key_id"] for key in reversed(await store.keys("default"))]
    assert await keys.keys(proof, before="nobody", limit=2) == []


async def test_sessions_and_sign_ins_are_bounded(served: Served, store: AccessStore, database: Database) -> None:
    """One more browser than a key may have signs the oldest out; too many sign-ins a minute are refused."""
    text = await make_text(store, "user:7")
    browsers = [
        Browser(httpx.AsyncClient(base_url=served.client.base_url, timeout=PATIENCE_S, verify=False)) for _ in range(6)
    ]
    for one in browsers[:3]:
        assert (await one.sign_in(text)).url.path == "/console/ask"
    for _ in range(100):
        page = await browsers[0].get("/console/ask")
        if page.url.path == "/console/sign-in":
            break
    assert page.url.path == "/console/sign-in"
    for one in browsers[1:3]:
        assert (await one.get("/console/ask")).url.path == "/console/ask"
    for one in browsers[3:5]:
        await one.sign_in(text)
    refused = await browsers[5].sign_in(text)
    assert refused.status_code == 429
    assert "too often" in text_of(refused.text)
    await browsers[4].submit(await browsers[4].get("/console/ask"), "/console/sign-out")
    async with Pool(database.operator_dsn) as pool:
        journal = await entries(pool, "default", 100)
    addresses = {entry["action"]: entry["address"] for entry in journal}
    assert addresses["console.sign_in"] == addresses["console.sign_out"] == "127.0.0.1"
    for one in browsers:
        await one.client.aclose()
