"""Signed tokens of another authorization server over HTTP: whose are good, where, and for how long."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from myria.access.issuers import load_issuers
from myria.access.key_cache import KeyCache
from myria.access.store import AccessStore, NewKey
from myria.memory import Memory
from myria.settings import AuthSettings, Settings
from myria_server.http.jwt_tokens import Tokens
from tests.server.wire import MODERN, Served, call, event, headers, serving
from tests.support.issuer import NOW, RunningIssuer, encoded, hmac_token, public_jwk, public_pem, rsa_key

PUBLIC_URL = "https://memory.example.com"
METADATA = f"{PUBLIC_URL}/.well-known/oauth-protected-resource"


@dataclass
class Clock:
    """Both clocks of the server under test; they move when a test moves them."""

    moment: float = NOW
    ticked: float = 1000.0

    def now(self) -> float:
        """Seconds since 1970."""
        return self.moment

    def ticks(self) -> float:
        """Steady seconds."""
        return self.ticked


@pytest.fixture
def clock() -> Clock:
    """The clock of one test."""
    return Clock()


@pytest.fixture
def issuer() -> Iterator[RunningIssuer]:
    """An authorization server that runs."""
    with RunningIssuer() as running:
        yield running


Write = Callable[..., Settings]


@pytest.fixture
def configured(issuer: RunningIssuer, tmp_path: Path) -> Write:
    """Return settings that accept the issuer, with changes of its entry; None leaves a field out."""

    def write(*more: dict[str, Any], **changes: Any) -> Settings:
        entry: dict[str, Any] = {
            "name": "login",
            "issuer": issuer.url,
            "jwks_uri": f"{issuer.url}/keys",
            "algorithms": ["RS256", "ES256", "EdDSA"],
            "tenant": {"always": ["default"]},
            "participants": {"claim": "sub", "prefix": "user:"},
            "roles": {
                "claim": "scope",
                "values": {"memory:read": ["read"], "memory:write": ["append"], "memory:steer": ["read", "admin"]},
            },
            "faces": {"always": ["core", "admin"]},
            **changes,
        }
        first = {name: value for name, value in entry.items() if value is not None}
        path = tmp_path / "issuers.json"
        path.write_text(json.dumps({"issuers": [first, *({**first, **other} for other in more)]}))
        auth = AuthSettings(mode="keys", public_url=PUBLIC_URL, issuers_file=str(path), failures_per_minute=None)
        return Settings(auth=auth)

    return write


@pytest.fixture
async def served(memory: Memory, store: AccessStore, configured: Write, clock: Clock) -> AsyncIterator[Served]:
    """A server that accepts the issuer's tokens beside keys."""
    del store
    async with serving(memory, configured(), now=clock.now, ticks=clock.ticks) as served:
        yield served


async def send(
    served: Served, token: str, name: str = "query_references", arguments: Any = None, *, path: str = "/mcp"
) -> httpx.Response:
    """Call a tool with a token."""
    full = f"myria_{name}"
    sent = headers(full, version=MODERN) | {"authorization": f"Bearer {token}"}
    return await served.post(call(full, {"query": "plan"} if arguments is None else arguments), sent, path=path)


def refusal(response: httpx.Response) -> tuple[int, str, Any]:
    """Return a refusal's status, its code, and the reason in its details."""
    assert response.status_code >= 400, response.text
    error = response.json()["error"]["data"]
    return response.status_code, error["code"], error["details"].get("reason")


async def test_a_token_asks_and_appends_as_its_subject(served: Served, issuer: RunningIssuer) -> None:
    """Who it is comes from its claims; nobody else's memory is seen."""
    ada, bob = issuer.token(), issuer.token(sub="bob")
    new = {name: value for name, value in event("e1").items() if name != "participants"}
    appended = (await send(served, ada, "append_event", new)).json()["result"]["structuredContent"]
    assert appended["participants"] == ["user:ada"]
    mine = await send(served, ada, "get_event", {"event_id": appended["event_id"]})
    assert mine.json()["result"]["structuredContent"]["event"]["source_event_key"] == "e1"
    theirs = await send(served, bob, "get_event", {"event_id": appended["event_id"]})
    absent = await send(served, bob, "get_event", {"event_id": "evt_" + "0" * 32})
    codes = [answer.json()["result"]["structuredContent"]["error"]["code"] for answer in (theirs, absent)]
    assert codes == ["event_not_found", "event_not_found"]


async def test_keys_go_on_to_work_beside_tokens(served: Served, store: AccessStore) -> None:
    """An issuer is added; nothing is taken away."""
    made, _ = await store.create_key(NewKey(name="k", tenant="default", own=("ada",)))
    assert (await send(served, made.text)).status_code == 200


async def test_no_token_is_challenged_with_where_to_get_one(served: Served) -> None:
    """The challenge of each face names its own metadata (RFC 9728), which is open to everybody."""
    for path in ("/mcp", "/mcp/admin"):
        response = await served.client.post(path, content=b"{}")
        assert refusal(response)[:2] == (401, "credential_missing")
        assert f'resource_metadata="{METADATA}{path}"' in response.headers["www-authenticate"]
        assert "error=" not in response.headers["www-authenticate"]


async def test_each_face_is_described(served: Served, issuer: RunningIssuer) -> None:
    """As a resource of its own, with the scopes that are of use there."""
    scopes = {"/mcp": ["memory:read", "memory:write", "memory:steer"]}
    for path in ("/mcp", "/mcp/admin"):
        response = await served.client.get(f"/.well-known/oauth-protected-resource{path}")
        assert response.status_code == 200
        assert response.json() == {
            "resource": PUBLIC_URL + path,
            "resource_name": "Myria",
            "authorization_servers": [issuer.url],
            "bearer_methods_supported": ["header"],
            "scopes_supported": scopes["/mcp"],
        }
    assert (await served.client.get("/.well-known/oauth-protected-resource/livez")).status_code == 404


BAD_CLAIMS: dict[str, tuple[dict[str, Any], str]] = {
    "expired": ({"exp": NOW - 31}, "expired"),
    "expired this moment, leeway over": ({"exp": NOW - 30}, "expired"),
    "without an end": ({"exp": None}, "claim"),
    "end as text": ({"exp": str(NOW + 600)}, "claim"),
    "end as truth": ({"exp": True}, "claim"),
    "end as list": ({"exp": [NOW + 600]}, "claim"),
    "end beyond all numbers": ({"exp": 10**30}, "claim"),
    "not valid yet": ({"nbf": NOW + 31}, "not_yet_valid"),
    "issued in the future": ({"iat": NOW + 31}, "not_yet_valid"),
    "beginning as text": ({"nbf": "soon"}, "claim"),
    "another audience": ({"aud": "https://elsewhere.example.com/mcp"}, "audience"),
    "an audience that begins alike": ({"aud": f"{PUBLIC_URL}/mcp.evil"}, "audience"),
    "the server without its path": ({"aud": PUBLIC_URL}, "audience"),
    "another face": ({"aud": f"{PUBLIC_URL}/mcp/admin"}, "audience"),
    "no audience": ({"aud": None}, "claim"),
    "audience as number": ({"aud": 7}, "claim"),
    "audiences with a number": ({"aud": [f"{PUBLIC_URL}/mcp", 7]}, "claim"),
    "no audiences": ({"aud": []}, "audience"),
    "audience as mapping": ({"aud": {"https://memory.example.com/mcp": True}}, "claim"),
    "another issuer": ({"iss": "https://login.example.com"}, "issuer"),
    "issuer with a slash more": ({"iss": "+/"}, "issuer"),
    "no issuer": ({"iss": None}, "issuer"),
    "issuer as list": ({"iss": ["x"]}, "issuer"),
    "no subject": ({"sub": None}, "claim"),
    "subject as number": ({"sub": 7}, "claim"),
    "empty subject": ({"sub": ""}, "claim"),
    "subject with a line": ({"sub": "ada\nbob"}, "claim"),
    "subject with space around": ({"sub": " ada "}, "claim"),
    "subject that is not composed": ({"sub": "e\u0301ve"}, "claim"),
    "endless subject": ({"sub": "a" * 256}, "claim"),
    "scope as mapping": ({"scope": {"memory:read": True}}, "claim"),
    "scopes with a number": ({"scope": ["memory:read", 1]}, "claim"),
}


@pytest.mark.parametrize("case", BAD_CLAIMS)
async def test_claims_that_are_not_good_are_refused(served: Served, issuer: RunningIssuer, case: str) -> None:
    """Signed or not: 401 with a reason for people, and a challenge that says so."""
    changes, reason = BAD_CLAIMS[case]
    if changes.get("iss") == "+/":
        changes = {"iss": issuer.url + "/"}
    claims = issuer.claims(**changes)
    text = jwt.api_jws.encode(json.dumps(claims).encode(), issuer.keys["k1"], "RS256", {"kid": "k1", "typ": "at+jwt"})
    response = await send(served, text)
    assert refusal(response) == (401, "credential_invalid", reason)
    assert 'error="invalid_token"' in response.headers["www-authenticate"]
    assert f'resource_metadata="{METADATA}/mcp"' in response.headers["www-authenticate"]


@dataclass
class Parts:
    """What forgers have: a good token, and everything that is public."""

    issuer: RunningIssuer

    def __post_init__(self) -> None:
        self.claims = self.issuer.claims()
        self.key = self.issuer.keys["k1"]
        self.header = {"alg": "RS256", "typ": "at+jwt", "kid": "k1"}
        self.signed, self.signature = self.issuer.token().rsplit(".", 1)
        self.jwk = public_jwk(self.key, kid="k1")
        self.stranger = rsa_key(99)


FORGERIES: dict[str, Callable[[Parts], str]] = {
    "alg none": lambda p: f"{encoded({**p.header, 'alg': 'none'})}.{encoded(p.claims)}.",
    "alg None": lambda p: f"{encoded({**p.header, 'alg': 'NonE'})}.{encoded(p.claims)}.{p.signature}",
    "no alg": lambda p: f"{encoded({'typ': 'JWT', 'kid': 'k1'})}.{encoded(p.claims)}.{p.signature}",
    "alg as list": lambda p: f"{encoded({**p.header, 'alg': ['RS256']})}.{encoded(p.claims)}.{p.signature}",
    "HS256 with the public key": lambda p: hmac_token({**p.header, "alg": "HS256"}, p.claims, public_pem(p.key)),
    "HS256 with the key's number": lambda p: hmac_token({**p.header, "alg": "HS256"}, p.claims, p.jwk["n"].encode()),
    "HS256 with nothing": lambda p: hmac_token({**p.header, "alg": "HS256"}, p.claims, b""),
    "an algorithm not configured": lambda p: p.issuer.token(algorithm="RS512"),
    "RS256 said, PS256 made": lambda p: (
        f"{p.signed}.{encoded(jwt.get_algorithm_by_name('PS256').sign(p.signed.encode(), p.key))}"
    ),
    "an algorithm of another kind of key": lambda p: p.issuer.token(
        key=ec.generate_private_key(ec.SECP256R1()), algorithm="ES256"
    ),
    "a stranger's key": lambda p: p.issuer.token(key=p.stranger),
    "a key that it brings itself": lambda p: jwt.encode(
        p.claims, p.stranger, "RS256", {"kid": "k1", "jwk": public_jwk(p.stranger)}
    ),
    "a key elsewhere": lambda p: jwt.encode(
        p.claims,
        p.stranger,
        "RS256",
        {"kid": "other", "jku": f"{p.issuer.url}/stolen", "x5u": f"{p.issuer.url}/stolen"},
    ),
    "no signature": lambda p: f"{p.signed}.",
    "half a signature": lambda p: f"{p.signed}.{p.signature[: len(p.signature) // 2]}",
    "other claims": lambda p: f"{p.signed.split('.')[0]}.{encoded({**p.claims, 'sub': 'bob'})}.{p.signature}",
    "an extension": lambda p: jwt.encode(p.claims, p.key, "RS256", {"kid": "k1", "crit": ["b64"], "b64": True}),
    "kid as number": lambda p: f"{encoded({**p.header, 'kid': 7})}.{encoded(p.claims)}.{p.signature}",
    "a type of its own": lambda p: jwt.encode(p.claims, p.key, "RS256", {"kid": "k1", "typ": "logout+jwt"}),
    "a header of lists": lambda p: f"{encoded(b'[' * 700 + b']' * 700)}.{encoded(p.claims)}.{p.signature}",
    "a nested header": lambda p: f"{encoded({**p.header, 'a': [[[]]]})}.{encoded(p.claims)}.{p.signature}",
    "nested claims": lambda p: f"{encoded(p.header)}.{encoded(b'[' * 2000)}.{p.signature}",
    "claims of a list": lambda p: f"{encoded(p.header)}.{encoded([p.claims])}.{p.signature}",
    "claims of nothing": lambda p: f"{encoded(p.header)}..{p.signature}",
    "no base64": lambda p: f"{encoded(p.header)}.!!!!.{p.signature}",
    "no JSON": lambda p: f"{encoded(b'{')}.{encoded(p.claims)}.{p.signature}",
    "no text": lambda p: f"{encoded(p.header)}.{encoded(bytes([0xFF, 0xFE]))}.{p.signature}",
    "two dots": lambda p: "..",
    "a huge token": lambda p: p.issuer.token(padding="x" * 20_000),
}


@pytest.mark.parametrize("case", FORGERIES)
async def test_what_the_issuer_did_not_sign_is_refused(served: Served, issuer: RunningIssuer, case: str) -> None:
    """Whatever the header says about how it wants to be verified; nothing that it names is fetched."""
    response = await send(served, FORGERIES[case](Parts(issuer)))
    assert refusal(response)[:2] == (401, "credential_invalid")
    assert set(issuer.seen) <= {"/keys"}


async def test_leeway_covers_clocks_that_differ(served: Served, issuer: RunningIssuer) -> None:
    """By the configured seconds, and not one more (see above)."""
    for changes in ({"exp": NOW - 29}, {"nbf": NOW + 30}, {"iat": NOW + 30}, {"iat": None}):
        assert (await send(served, issuer.token(**changes))).status_code == 200


async def test_a_remembered_token_ends_when_it_expires(served: Served, issuer: RunningIssuer, clock: Clock) -> None:
    """Remembering a verified token does not lengthen its life."""
    token = issuer.token()
    assert (await send(served, token)).status_code == 200
    clock.moment = NOW + 629
    assert (await send(served, token)).status_code == 200
    clock.moment = NOW + 630
    assert refusal(await send(served, token)) == (401, "credential_invalid", "expired")


async def test_a_token_is_for_the_face_that_it_was_issued_for(served: Served, issuer: RunningIssuer) -> None:
    """Also when it was verified at that face before."""
    steering = issuer.token(scope="memory:steer", aud=f"{PUBLIC_URL}/mcp/admin")
    reading = issuer.token(scope="memory:steer")
    both = issuer.token(scope="memory:steer", aud=[f"{PUBLIC_URL}/mcp", f"{PUBLIC_URL}/mcp/admin"])
    for _ in range(2):
        assert (await send(served, steering, "get_snapshot_status", {}, path="/mcp/admin")).status_code == 200
        assert refusal(await send(served, steering)) == (401, "credential_invalid", "audience")
        assert (await send(served, reading)).status_code == 200
        wrong = await send(served, reading, "get_snapshot_status", {}, path="/mcp/admin")
        assert refusal(wrong) == (401, "credential_invalid", "audience")
        assert f'resource_metadata="{METADATA}/mcp/admin"' in wrong.headers["www-authenticate"]
        assert (await send(served, both)).status_code == 200
        assert (await send(served, both, "get_snapshot_status", {}, path="/mcp/admin")).status_code == 200


async def test_with_one_audience_for_all_the_face_is_the_wall(
    memory: Memory, store: AccessStore, configured: Write, clock: Clock, issuer: RunningIssuer
) -> None:
    """A token of a common audience stays out of the faces that its claims do not grant."""
    del store
    settings = configured(
        audiences=["api://memory"], faces={"always": ["core"], "claim": "groups", "values": {"ops": ["admin"]}}
    )
    plain = issuer.token(aud="api://memory", scope="memory:steer")
    ops = issuer.token(aud=["api://memory"], scope="memory:steer", groups=["staff", "ops"])
    async with serving(memory, settings, now=clock.now, ticks=clock.ticks) as served:
        for _ in range(2):
            assert (await send(served, plain)).status_code == 200
            refused = await send(served, plain, "trigger_build", {}, path="/mcp/admin")
            assert refusal(refused)[:2] == (403, "face_not_allowed")
            assert (await send(served, ops, "trigger_build", {}, path="/mcp/admin")).status_code == 200
        own_address = issuer.token(aud=f"{PUBLIC_URL}/mcp")
        assert refusal(await send(served, own_address)) == (401, "credential_invalid", "audience")


async def test_a_scope_that_is_missing_is_named(served: Served, issuer: RunningIssuer) -> None:
    """403 with the issuer's own names of scopes, so that a client can ask for more; scopes not listed grant nothing."""
    for scope in ("memory:read", "memory:read admin append erase", ["memory:read"]):
        response = await send(served, issuer.token(scope=scope), "append_event", event(participants=["user:ada"]))
        assert refusal(response)[:2] == (403, "role_required")
        challenge = response.headers["www-authenticate"]
        assert 'error="insufficient_scope"' in challenge
        assert 'scope="memory:write"' in challenge
        assert f'resource_metadata="{METADATA}/mcp"' in challenge
    assert refusal(await send(served, issuer.token(scope=None)))[:2] == (403, "role_required")


@pytest.mark.filterwarnings("ignore:The RSA key is 1024 bits:jwt.InsecureKeyLengthWarning")  # our issuer signs with it
async def test_keys_of_every_kind_are_taken(
    memory: Memory, store: AccessStore, configured: Write, clock: Clock, issuer: RunningIssuer
) -> None:
    """RSA, elliptic curves and Edwards curves; what is no key for signatures is passed over."""
    del store
    issuer.keys |= {"e1": ec.generate_private_key(ec.SECP256R1()), "d1": ed25519.Ed25519PrivateKey.generate()}
    weak = rsa_key(7, 1024)
    issuer.extra = [
        7,
        {"kty": "oct", "kid": "s1", "k": encoded(b"secret" * 8)},
        {**public_jwk(rsa_key(5)), "kid": "c1", "use": "enc"},
        {**public_jwk(rsa_key(5)), "kid": "a1", "alg": "RS512"},
        {"kty": "RSA", "kid": "b1", "n": 5, "e": "AQAB"},
        {"kty": "EC", "kid": "b2", "crv": "P-256", "x": "AA", "y": "AA"},
        public_jwk(weak, kid="w1"),
    ]
    async with serving(memory, configured(), now=clock.now, ticks=clock.ticks) as served:
        for kid, algorithm in (("k1", "RS256"), ("e1", "ES256"), ("d1", "EdDSA")):
            assert (await send(served, issuer.token(kid=kid, algorithm=algorithm))).status_code == 200, kid
        assert (await send(served, issuer.token(kid=None))).status_code == 200, "one key alone fits"
        for kid, key in (("c1", rsa_key(5)), ("a1", rsa_key(5)), ("b1", rsa_key(5)), ("w1", weak)):
            assert refusal(await send(served, issuer.token(kid=kid, key=key))) == (401, "credential_invalid", "key")
        secret = hmac_token({"alg": "HS256", "kid": "s1"}, issuer.claims(), b"secret" * 8)
        assert refusal(await send(served, secret)) == (401, "credential_invalid", "algorithm")


async def test_two_issuers_cannot_sign_for_each_other(
    memory: Memory, store: AccessStore, configured: Write, clock: Clock, issuer: RunningIssuer
) -> None:
    """`iss` says whose keys count, also where key ids are the same."""
    del store
    with RunningIssuer() as second:
        second.keys = {"k1": rsa_key(2), "only-here": rsa_key(2)}
        entry = {
            "name": "second",
            "issuer": second.url,
            "jwks_uri": f"{second.url}/keys",
            "tenant": {"always": ["other"]},
        }
        async with serving(memory, configured(entry), now=clock.now, ticks=clock.ticks) as served:
            assert (await send(served, issuer.token())).status_code == 200
            assert (await send(served, second.token())).status_code == 200
            for kid, reason in (("k1", "signature"), ("only-here", "key")):
                confused = second.token(kid=kid, iss=issuer.url)
                assert refusal(await send(served, confused)) == (401, "credential_invalid", reason)
            document = (await served.client.get("/.well-known/oauth-protected-resource/mcp")).json()
            assert document["authorization_servers"] == [issuer.url, second.url]


async def test_a_new_key_is_fetched_once_when_it_is_first_seen(
    served: Served, issuer: RunningIssuer, clock: Clock
) -> None:
    """A rotation needs nobody's help, and made-up key ids cause no storm of fetches."""
    assert (await send(served, issuer.token())).status_code == 200
    issuer.keys["k2"] = rsa_key(2)
    clock.ticked += 5
    fetched = issuer.fetches
    for _ in range(3):
        assert (await send(served, issuer.token(kid="k2"))).status_code == 200
    assert issuer.fetches == fetched + 1
    for number in range(20):
        response = await send(served, issuer.token(kid=f"made-up-{number}", key=rsa_key(99)))
        assert refusal(response) == (401, "credential_invalid", "key")
    assert issuer.fetches == fetched + 1
    clock.ticked += 5
    for number in range(20):
        await send(served, issuer.token(kid=f"made-up-{number}", key=rsa_key(99)))
    assert issuer.fetches == fetched + 2


async def test_a_key_that_its_issuer_withdraws_ends_its_tokens(
    served: Served, issuer: RunningIssuer, clock: Clock
) -> None:
    """Also of those that were verified before."""
    token = issuer.token()
    assert (await send(served, token)).status_code == 200
    issuer.keys = {"k2": rsa_key(2)}
    clock.ticked += 300
    while (response := await send(served, token)).status_code == 200:
        pass
    assert refusal(response) == (401, "credential_invalid", "key")
    assert (await send(served, issuer.token(kid="k2"))).status_code == 200


@pytest.mark.parametrize("mode", ["closing", "failing", "endless"])
async def test_an_issuer_that_is_away_from_the_start_is_503(  # noqa: PLR0917 - fixtures
    memory: Memory, store: AccessStore, configured: Write, clock: Clock, issuer: RunningIssuer, mode: Any
) -> None:
    """Nobody can tell, so nobody throws a token away; keys work on, and it comes back by itself."""
    issuer.mode = mode
    made, _ = await store.create_key(NewKey(name="k", tenant="default", own=("ada",)))
    async with serving(memory, configured(), now=clock.now, ticks=clock.ticks) as served:
        for _ in range(3):
            response = await send(served, issuer.token())
            assert refusal(response)[:2] == (503, "issuer_unavailable")
            assert "www-authenticate" not in response.headers
        assert issuer.fetches == 1
        assert (await send(served, made.text)).status_code == 200
        issuer.mode = "well"
        clock.ticked += 5
        assert (await send(served, issuer.token())).status_code == 200


async def test_an_issuer_that_goes_away_is_believed_for_a_while(
    served: Served, issuer: RunningIssuer, clock: Clock
) -> None:
    """Known keys go on to count for `stale_s`; then neither new nor remembered tokens are let in, until it is back."""
    old = issuer.token()
    assert (await send(served, old)).status_code == 200
    issuer.mode = "closing"
    clock.ticked += 3600
    assert (await send(served, old)).status_code == 200
    assert (await send(served, issuer.token(sub="bob"))).status_code == 200
    rotated = await send(served, issuer.token(kid="k2", key=rsa_key(2)))
    assert refusal(rotated)[:2] == (503, "issuer_unavailable")
    clock.ticked += 1
    for token in (old, issuer.token(sub="carl")):
        assert refusal(await send(served, token))[:2] == (503, "issuer_unavailable")
    issuer.mode = "well"
    clock.ticked += 5
    assert (await send(served, old)).status_code == 200


async def test_keys_are_found_by_the_issuers_metadata(
    memory: Memory, store: AccessStore, configured: Write, clock: Clock, issuer: RunningIssuer
) -> None:
    """RFC 8414 first, then OpenID Connect Discovery; metadata that speaks for another issuer counts for nothing."""
    del store
    async with serving(memory, configured(jwks_uri=None), now=clock.now, ticks=clock.ticks) as served:
        assert (await send(served, issuer.token())).status_code == 200
    assert issuer.seen[:3] == [
        "/.well-known/oauth-authorization-server",
        "/.well-known/openid-configuration",
        "/keys",
    ]
    issuer.mode = "another"
    async with serving(memory, configured(jwks_uri=None), now=clock.now, ticks=clock.ticks) as served:
        assert refusal(await send(served, issuer.token()))[:2] == (503, "issuer_unavailable")


async def test_a_suspended_tenant_refuses_tokens_too(
    memory: Memory, store: AccessStore, configured: Write, clock: Clock, issuer: RunningIssuer
) -> None:
    """Remembered ones within a second; a tenant that is not there is as a token of nobody."""
    settings = configured(tenant={"claim": "org", "values": {"acme": ["other"], "gone": ["not-there"]}})
    token = issuer.token(org="acme")
    async with serving(memory, settings, now=clock.now, ticks=clock.ticks) as served:
        assert (await send(served, token)).status_code == 200
        await store.suspend_tenant("other")
        while (response := await send(served, token)).status_code == 200:
            pass
        assert refusal(response)[:2] == (403, "tenant_suspended")
        await store.resume_tenant("other")
        while (response := await send(served, token)).status_code != 200:
            assert refusal(response)[:2] == (403, "tenant_suspended")
        for changes in ({"org": "gone"}, {"org": "acme-2"}, {"org": ["acme", "gone"]}, {"org": None}, {}):
            assert refusal(await send(served, issuer.token(**changes)))[:2] == (401, "credential_invalid")


async def test_a_verified_token_is_a_look_up(
    memory: Memory, store: AccessStore, configured: Write, clock: Clock, issuer: RunningIssuer
) -> None:
    """Verified once, the tenant looked at once, nothing fetched: then no look and no cryptography."""
    del store
    path = configured().auth.issuers_file
    assert path is not None
    cache = KeyCache(memory.appending, now=clock.now, ticks=clock.ticks)
    faces: dict[Any, str] = {"core": f"{PUBLIC_URL}/mcp", "admin": f"{PUBLIC_URL}/mcp/admin"}
    tokens = Tokens(load_issuers(path), cache, faces, now=clock.now, ticks=clock.ticks)
    text = issuer.token()
    principal = await tokens.principal(text, "core")
    for _ in range(1000):
        assert await tokens.principal(text, "core") is principal
    assert (tokens.verified, cache.looks, issuer.fetches) == (1, 1, 1)
