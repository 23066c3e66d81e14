"""Tenants and keys in the database: made, shown, rotated, revoked, and what of them is stored."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime

import asyncpg
import pytest

from myria.access.key_cache import KeyCache
from myria.access.secrets import make_key, parse_key
from myria.access.store import AccessStore, NewKey
from myria.db.database import Database as Pool
from myria.errors import (
    CredentialInvalid,
    InvalidArgument,
    InvalidParticipants,
    InvalidText,
    KeyNameTaken,
    KeyNotFound,
    MyriaError,
    TenantExists,
    TenantNotFound,
    TenantSuspended,
)
from myria_cli.commands.keys import parse_duration
from tests.support.clock import Clock
from tests.support.postgres import Database


@pytest.fixture
async def cache(database: Database, clock: Clock) -> AsyncIterator[KeyCache]:
    """What a serving process knows of keys; its steady clock stands still."""
    async with Pool(database.server_dsn) as pool:
        yield KeyCache(pool, ticks=clock)


@pytest.fixture
def clock() -> Clock:
    """A clock that stands still until a test moves it."""
    return Clock()


async def refused(cache: KeyCache, text: str) -> MyriaError:
    """Return why a key is refused."""
    with pytest.raises(MyriaError) as caught:
        await cache.principal(text)
    return caught.value


async def test_a_key_says_what_its_text_is(store: AccessStore, cache: KeyCache) -> None:
    """The form of answers goes with the key and with those that replace it; what is no form is refused."""
    new = NewKey(name="old client", tenant="other", own=("bot",), text_format="json")
    made, details = await store.create_key(new)
    assert details["format"] == "json"
    assert (await cache.principal(made.text)).text_format == "json"
    rotated, _ = await store.rotate_key(made.key_id, overlap_s=3600)
    assert (await cache.principal(rotated.text)).text_format == "json"
    plain, _ = await store.create_key(NewKey(name="plain", tenant="other", own=("bot",)))
    assert (await cache.principal(plain.text)).text_format is None
    with pytest.raises(InvalidArgument) as caught:
        NewKey(name="k", tenant="other", own=("bot",), text_format="yaml").checked()  # type: ignore[arg-type]
    assert caught.value.details["field"] == "format"


async def test_a_key_proves_its_principal(store: AccessStore, cache: KeyCache) -> None:
    """Its tenant, roles, faces, participants, patterns, channels and limits are those it was made with."""
    new = NewKey(
        name="host",
        tenant="other",
        roles=("read", "append"),
        own=("bot", "ada"),
        may_ask=("user:*",),
        channels=("chat:*",),
        requests_per_s=5.0,
        concurrency=3,
    )
    made, details = await store.create_key(new)
    principal = await cache.principal(made.text)
    assert principal.tenant == "other"
    assert principal.actor == f"key:{made.key_id}"
    assert principal.roles == {"append", "read"}
    assert principal.faces == {"core", "agent", "turns", "rest"}
    assert principal.own == ("ada", "bot")
    assert principal.may_ask == ("user:*",)
    assert principal.channels == ("chat:*",)
    assert (principal.requests_per_s, principal.concurrency) == (5.0, 3)
    assert details["created_by"] == "test"


async def test_a_known_key_is_a_look_up(store: AccessStore, cache: KeyCache) -> None:
    """Verified once, a key asks the database nothing until something changes."""
    made, _ = await store.create_key(NewKey(name="a", tenant="default", own=("ada",)))
    first = await cache.principal(made.text)
    assert cache.looks == 1
    for _ in range(100):
        assert await cache.principal(made.text) is first
    assert cache.looks == 1


async def test_what_was_read_over_a_second_ago_is_read_again(store: AccessStore, cache: KeyCache, clock: Clock) -> None:
    """A process whose looks at the epoch do not come asks before it believes."""
    made, _ = await store.create_key(NewKey(name="a", tenant="default", own=("ada",)))
    await cache.principal(made.text)
    clock.at += 1.5
    await store.revoke_key(made.key_id)
    assert (await refused(cache, made.text)).details["reason"] == "revoked"


async def test_a_secret_is_nowhere_in_the_database(database: Database, store: AccessStore) -> None:
    """Only its digest is; and it is in no answer but the first."""
    made, details = await store.create_key(NewKey(name="a", tenant="default", own=("ada",)))
    secret = made.text.rpartition("_")[2]
    assert secret not in repr(made) + str(details)
    connection = await asyncpg.connect(database.superuser_dsn)
    try:
        for table in ("keys", "key_uses", "tenants"):
            rows = await connection.fetch(f"SELECT t::text FROM myria.{table} t")
            assert all(secret not in row[0] and secret.encode().hex() not in row[0] for row in rows)
    finally:
        await connection.close()


async def test_what_is_no_key_of_ours_is_refused_alike(store: AccessStore, cache: KeyCache) -> None:
    """An unknown id, and a known id with another secret, answer in the same words."""
    made, _ = await store.create_key(NewKey(name="a", tenant="default", own=("ada",)))
    other = make_key().text
    wrong = f"myr_{made.key_id}_{other.rpartition('_')[2]}"
    unknown, mistaken = await refused(cache, other), await refused(cache, wrong)
    assert isinstance(unknown, CredentialInvalid)
    assert unknown.to_json() == mistaken.to_json()
    for text in (
        "",
        "myr_",
        "myr_a_b",
        made.text + "x",
        made.text[:-1],
        made.text.upper(),
        "Bearer",
        "\ud800",
        "x" * 9000,
    ):
        assert isinstance(await refused(cache, text), CredentialInvalid), text


async def test_a_revoked_and_an_expired_key_say_so_to_who_knows_the_secret(
    store: AccessStore, cache: KeyCache, clock: Clock
) -> None:
    """Whoever has the secret learns what became of the key."""
    revoked, _ = await store.create_key(NewKey(name="a", tenant="default", own=("ada",)))
    await store.revoke_key(revoked.key_id)
    expired, _ = await store.create_key(NewKey(name="b", tenant="default", own=("ada",), expires_s=0.001))
    assert (await refused(cache, revoked.text)).details == {"reason": "revoked"}
    assert (await refused(cache, expired.text)).details == {"reason": "expired"}


async def test_rotation_has_an_overlap(store: AccessStore, cache: KeyCache, clock: Clock) -> None:
    """Both keys work until the old one ends; the new one may do the same and names the old one."""
    old, _ = await store.create_key(
        NewKey(name="host", tenant="other", roles=("read",), may_ask=("user:*",), channels=())
    )
    new, details = await store.rotate_key(old.key_id, overlap_s=3600)
    before, after = await cache.principal(old.text), await cache.principal(new.text)
    assert (before.roles, before.may_ask, before.channels, before.tenant) == (
        after.roles,
        after.may_ask,
        after.channels,
        after.tenant,
    )
    assert details["replaces"] == old.key_id
    assert (await store.key(old.key_id))["expires_at"] is not None
    again, _ = await store.rotate_key(new.key_id, overlap_s=0)
    clock.at += 1.5
    assert (await refused(cache, new.text)).details == {"reason": "replaced"}
    assert (await cache.principal(again.text)).own == after.own
    with pytest.raises(KeyNotFound, match="has ended"):
        await store.rotate_key(new.key_id, overlap_s=0)


async def test_rotation_makes_no_key_that_outlives_its_kind(store: AccessStore) -> None:
    """A key for thirty days is replaced by one for thirty days, and only once; one without an end by one without."""
    new = NewKey(name="a", tenant="default", own=("ada",), expires_s=30 * 86_400.0)
    old, _ = await store.create_key(new)
    made, details = await store.rotate_key(old.key_id, overlap_s=3600)
    lifetime = datetime.fromisoformat(details["expires_at"]) - datetime.fromisoformat(details["created_at"])
    assert abs(lifetime.total_seconds() - 30 * 86_400) < 1
    with pytest.raises(InvalidArgument, match=made.key_id):
        await store.rotate_key(old.key_id, overlap_s=3600)
    assert (await store.key(old.key_id))["replaced_by"] == made.key_id
    forever, _ = await store.create_key(NewKey(name="b", tenant="default", own=("ada",)))
    assert (await store.rotate_key(forever.key_id, overlap_s=0))[1]["expires_at"] is None


async def test_a_suspended_tenant_is_refused_until_it_is_resumed(
    store: AccessStore, cache: KeyCache, clock: Clock
) -> None:
    """Its keys stay; another tenant's are not touched."""
    theirs, _ = await store.create_key(NewKey(name="a", tenant="other", own=("ada",)))
    ours, _ = await store.create_key(NewKey(name="b", tenant="default", own=("ada",)))
    await store.suspend_tenant("other", "unpaid")
    assert isinstance(await refused(cache, theirs.text), TenantSuspended)
    assert (await cache.principal(ours.text)).tenant == "default"
    clock.at += 1.5
    await store.resume_tenant("other")
    assert (await cache.principal(theirs.text)).tenant == "other"


async def test_uses_are_noted(store: AccessStore, cache: KeyCache) -> None:
    """When a key was last used is shown, though not to the second; noting it does not unsettle anybody's keys."""
    made, _ = await store.create_key(NewKey(name="a", tenant="default", own=("ada",)))
    assert (await store.key(made.key_id))["last_used_at"] is None
    principal = await cache.principal(made.text)
    await cache.note_uses()
    assert (await store.key(made.key_id))["last_used_at"] is not None
    looks = cache.looks
    assert await cache.principal(made.text) is principal
    assert cache.looks == looks


async def test_a_key_of_ones_own_is_made_once(store: AccessStore, cache: KeyCache) -> None:
    """A text from a file or Secret becomes a key; a second time nothing changes; another secret is refused."""
    mine = make_key()
    new = NewKey(name="ops", tenant="default", own=("ada",))
    first, was_made = await store.ensure_key(new, mine)
    second, was_made_again = await store.ensure_key(new, mine)
    assert (was_made, was_made_again) == (True, False)
    assert first == second
    assert (await cache.principal(mine.text)).own == ("ada",)
    forged = parse_key(f"myr_{mine.key_id}_{make_key().text.rpartition('_')[2]}")
    assert forged is not None
    with pytest.raises(InvalidArgument, match="another secret"):
        await store.ensure_key(new, forged)


async def test_no_two_living_keys_have_one_name(store: AccessStore, cache: KeyCache) -> None:
    """Other tenants' do not count, nor those that ended; a key that replaces one, or was given, may keep the name."""
    new = NewKey(name="caf\u00e9", tenant="default", own=("ada",))
    first, _ = await store.create_key(new)
    for name in ("caf\u00e9", " cafe\u0301 "):
        with pytest.raises(KeyNameTaken) as caught:
            await store.create_key(replace(new, name=name))
        assert caught.value.details == {"field": "name", "key_id": first.key_id}
    await store.create_key(replace(new, name="Caf\u00e9"))
    await store.create_key(replace(new, tenant="other"))
    second, rotated = await store.rotate_key(first.key_id, overlap_s=0)
    assert rotated["name"] == new.name
    with pytest.raises(KeyNameTaken):
        await store.create_key(new)
    await store.ensure_key(new, given := make_key())
    for key_id in (second.key_id, given.key_id):
        await store.revoke_key(key_id)
    await store.create_key(new)
    attempts = (store.create_key(replace(new, name="at once")) for _ in range(4))
    outcomes = await asyncio.gather(*attempts, return_exceptions=True)
    assert sorted(isinstance(outcome, KeyNameTaken) for outcome in outcomes) == [False, True, True, True]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"name": ""}, "name"),
        ({"roles": ("root",)}, "role"),
        ({"roles": ()}, "role"),
        ({"faces": ("console",)}, "face"),
        ({"own": (), "may_ask": ()}, "as"),
        ({"own": ("",)}, "as[0]"),
        ({"may_ask": ("a*b*c",)}, "may_ask"),
        ({"channels": ("x" * 300,)}, "channel[0]"),
        ({"expires_s": 0.0}, "expires"),
        ({"expires_s": float("nan")}, "expires"),
        ({"tenant": "../etc"}, "tenant"),
        ({"name": "ad\u202ea"}, "name"),
        ({"name": "ada\u200b"}, "name"),
        ({"name": "a\x1b[2Jb"}, "name"),
        ({"name": "a\nb"}, "name"),
    ],
)
async def test_what_cannot_be_a_key_is_refused_by_field(
    store: AccessStore, changes: dict[str, object], field: str
) -> None:
    """Nothing is stored then."""
    given = {"name": "a", "tenant": "default", "own": ("ada",), **changes}
    with pytest.raises((InvalidArgument, InvalidParticipants, MyriaError)) as caught:
        await store.create_key(NewKey(**given))  # type: ignore[arg-type]
    assert caught.value.details["field"] == field
    assert await store.keys() == []


async def test_absent_tenants_and_keys_are_named(store: AccessStore) -> None:
    """With what to do."""
    with pytest.raises(TenantNotFound, match="tenant create nobody"):
        await store.create_key(NewKey(name="a", tenant="nobody", own=("ada",)))
    with pytest.raises(TenantExists):
        await store.create_tenant("other")
    for work in (store.tenant("nobody"), store.suspend_tenant("nobody"), store.resume_tenant("nobody")):
        with pytest.raises(TenantNotFound):
            await work
    for work_on_key in (
        store.key("nokey1"),
        store.revoke_key("nokey1"),
        store.rotate_key("nokey1", overlap_s=0),
    ):
        with pytest.raises(KeyNotFound):
            await work_on_key


@pytest.mark.parametrize("text", ["\udcff", "a\0b"])
async def test_what_the_database_cannot_hold_is_refused_by_field(store: AccessStore, text: str) -> None:
    """An argument that is no Unicode, or holds NUL, is the caller's mistake wherever it stands."""
    for refused, field in (
        (store.revoke_key(text), "key_id"),
        (store.rotate_key(text, overlap_s=0), "key_id"),
        (store.key(text), "key_id"),
        (store.suspend_tenant("default", text), "reason"),
        (store.create_key(NewKey(name=text, tenant="default", own=("ada",))), "name"),
    ):
        with pytest.raises(InvalidText) as caught:
            await refused
        assert caught.value.message.startswith(field)


async def test_serving_cannot_list_keys(database: Database, store: AccessStore) -> None:
    """It may prove a key whose secret it is shown, and read none; nor may a build."""
    made, _ = await store.create_key(NewKey(name="a", tenant="default", own=("ada",)))
    for dsn in (database.server_dsn, database.builder_dsn):
        connection = await asyncpg.connect(dsn)
        try:
            async with connection.transaction():
                await connection.execute("SELECT set_config('myria.tenant', 'default', true)")
                with pytest.raises(asyncpg.InsufficientPrivilegeError):
                    await connection.fetch("SELECT * FROM myria.keys")
        finally:
            await connection.close()
    connection = await asyncpg.connect(database.server_dsn)
    try:
        async with connection.transaction():
            await connection.execute("SELECT set_config('myria.tenant', 'other', true)")
            assert await connection.fetch("SELECT * FROM myria.find_key($1, $2)", made.key_id, b"\0" * 32) == []
            assert len(await connection.fetch("SELECT * FROM myria.find_key($1, $2)", made.key_id, made.digest)) == 1
            assert await connection.fetchval("SELECT current_setting('myria.tenant')") == "other"
    finally:
        await connection.close()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("30m", 1800),
        ("12h", 43_200),
        ("30d", 2_592_000),
        ("8w", 4_838_400),
        ("P1D", 86_400),
        ("PT2H", 7200),
    ],
)
def test_durations_read_as_people_write_them(text: str, seconds: float) -> None:
    """Short forms and ISO 8601."""
    assert parse_duration(text, "expires") == seconds


@pytest.mark.parametrize("text", ["", "30", "d", "-1d", "1y", "soon", "P", "1d2h", "\u0661d"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    """With examples."""
    with pytest.raises(InvalidArgument, match="30d"):
        parse_duration(text, "expires")


async def test_a_flood_of_unknown_keys_costs_few_looks_and_pushes_no_good_key_out(
    store: AccessStore, cache: KeyCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes while a look is under way is looked at together, a good key among it; each bad one once."""
    monkeypatch.setattr("myria.access.key_cache.MAX_KNOWN", 50)
    new = NewKey(name="k", tenant="default", own=("ada",))
    known, _ = await store.create_key(new)
    unknown, _ = await store.create_key(replace(new, name="unknown"))
    await cache.principal(known.text)
    guesses = [make_key().text for _ in range(400)]
    before = cache.looks
    answers = await asyncio.gather(
        *(cache.principal(text) for text in [*guesses, unknown.text, *guesses]), return_exceptions=True
    )
    assert [type(answer) for answer in answers].count(CredentialInvalid) == 800
    assert not isinstance(answers[400], BaseException)
    assert cache.looks - before <= 4
    before = cache.looks
    for text in guesses[-20:]:
        assert isinstance(await refused(cache, text), CredentialInvalid)
    await cache.principal(known.text)
    assert cache.looks == before
