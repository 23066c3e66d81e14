"""What the claims of a verified token stand for: nothing that is lost in translation may let its bearer see more."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from myria.access.claims import check_times, principal_of
from myria.access.issuers import Issuer
from myria.access.principal import ROLES
from myria.errors import CredentialInvalid


def issuer(**changes: Any) -> Issuer:
    """Return an issuer, with changes of its entry."""
    return Issuer.model_validate(
        {
            "name": "login",
            "issuer": "https://login.example.com",
            "algorithms": ["RS256"],
            "tenant": {"always": ["team-a"]},
            "participants": {"claim": "sub", "always": ["bot"]},
            "roles": {"claim": "scope", "values": {"r": ["read"], "w": ["append", "read"]}},
            **changes,
        }
    )


def test_every_field_of_a_principal_has_its_claim() -> None:
    """Tenant, participants, patterns, channels, roles and faces, nested claims and translations among them."""
    principal = principal_of(
        {
            "sub": "ada",
            "org": "acme",
            "realm_access": {"roles": ["writer", "unheard-of"]},
            "groups": ["red", "blue"],
            "speaks": "anybody",
            "chat": ["mail"],
        },
        issuer(
            tenant={"claim": "org", "prefix": "t-"},
            participants={"always": ["bot"], "claim": "groups", "values": {"red": ["r1", "r2"], "blue": ["b"]}},
            may_ask={"claim": "speaks", "values": {"anybody": ["user:*"]}, "always": ["guest"]},
            channels={"claim": "chat"},
            roles={"claim": ["realm_access", "roles"], "values": {"writer": ["append"]}, "always": ["read"]},
            faces={"always": ["core"], "claim": "groups", "values": {"red": ["admin"]}},
            requests_per_s=5,
            concurrency=2,
        ),
        appends_for_anyone=True,
    )
    assert (principal.tenant, principal.own) == ("t-acme", ("b", "bot", "r1", "r2"))
    assert sorted(principal.may_ask) == ["guest", "user:*"]
    assert principal.channels == ("mail",)
    assert (sorted(principal.roles), sorted(principal.faces)) == (["append", "read"], ["admin", "core"])
    assert (principal.credential, principal.actor) == ("login:ada", "token:login:ada")
    assert (principal.requests_per_s, principal.concurrency, principal.appends_for_anyone) == (5, 2, True)


NAMES = {"claim": "groups", "values": {"red": ["r"], "blue": ["b"]}}


@pytest.mark.parametrize(
    ("changes", "claims"),
    [
        ({"participants": {**NAMES, "always": ["bot"]}}, {}),
        ({"participants": {**NAMES, "always": ["bot"]}}, {"groups": []}),
        ({"participants": {**NAMES, "always": ["bot"]}}, {"groups": ""}),
        ({"participants": {**NAMES, "always": ["bot"]}}, {"groups": ["red", "green"]}),
        ({"participants": {**NAMES, "always": ["bot"]}}, {"groups": "red blue"}),
        ({"participants": {**NAMES, "always": ["bot"]}}, {"groups": ["red", None]}),
        ({"participants": {**NAMES, "always": ["bot"]}}, {"groups": {"red": 1}}),
        ({"participants": {**NAMES, "always": ["bot"]}}, {"groups": ["red"] * 65}),
        ({"participants": {"claim": ["a", "b"]}}, {"a": "b"}),
        ({"participants": {"claim": ["a", "b"]}}, {"a": {"b": {}}}),
        ({"may_ask": {"claim": "speaks"}}, {}),
        ({"may_ask": {"claim": "speaks"}}, {"speaks": "*"}),
        ({"may_ask": {"claim": "speaks", "prefix": "user:"}}, {"speaks": ["ada", "*"]}),
        ({"channels": {"claim": "chat"}}, {}),
        ({"channels": {"claim": "chat"}}, {"chat": "mail*"}),
        ({"tenant": {"claim": "org"}}, {}),
        ({"tenant": {"claim": "org"}}, {"org": "*"}),
        ({"tenant": {"claim": "org"}}, {"org": ["a", "b"]}),
        ({"tenant": {"claim": "org"}}, {"org": 7}),
        ({"roles": {"claim": "scope", "values": {"r": ["read"]}}}, {"scope": 7}),
        ({"roles": {"claim": ["scope", "x"], "values": {"r": ["read"]}}}, {"scope": "r"}),
    ],
)
def test_what_is_not_understood_whole_is_refused(changes: dict[str, Any], claims: dict[str, Any]) -> None:
    """A participant left out would show more; a star from outside would name everybody."""
    with pytest.raises(CredentialInvalid) as refused:
        principal_of({"sub": "ada", **claims}, issuer(**changes))
    assert refused.value.details["reason"] == "claim"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["red", "r", "*"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "roles"]), inner, max_size=2),
    max_leaves=5,
)


@given(claims=st.dictionaries(st.sampled_from(["sub", "groups", "scope", "org", "speaks", "exp", "nbf"]), JSON))
def test_any_claims_give_a_coded_refusal_or_a_principal_within_its_rules(claims: dict[str, Any]) -> None:
    """Nothing that a token says goes beyond the configuration, and nothing makes the server stumble."""
    entry = issuer(
        tenant={"claim": "org", "values": {"red": ["team-a"]}},
        participants={"always": ["bot"], **NAMES},
        may_ask={"claim": "speaks", "prefix": "user:"},
    )
    try:
        principal = principal_of(claims, entry)
        check_times(claims, now=0.0, leeway_s=30)
    except CredentialInvalid:
        return
    assert principal.tenant == "team-a"
    assert {"bot"} < set(principal.own) <= {"bot", "r", "b"}
    assert principal.roles <= set(ROLES) - {"admin", "erase"}
    assert all(pattern.startswith("user:") and "*" not in pattern for pattern in principal.may_ask)
