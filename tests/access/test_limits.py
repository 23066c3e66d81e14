"""How much a credential may ask for, how often somebody may fail, and from which address a request comes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from myria.access import limits
from myria.access.addresses import UNKNOWN, Proxies
from myria.access.limits import CredentialLimits, Failures, network_of
from myria.access.principal import Principal, local_principal
from myria.errors import ConfigurationError, RateLimited
from myria.log.quotas import TokenBucket


class Clock:
    """A steady clock that a test moves."""

    def __init__(self) -> None:
        self.at = 1_000.0

    def __call__(self) -> float:
        return self.at


def principal(credential: str = "abcdef", *, tenant: str = "default", **more: float | int | None) -> Principal:
    """Return a key's principal."""
    return Principal(
        tenant=tenant,
        actor=f"key:{credential}",
        roles=frozenset({"read"}),
        faces=frozenset({"core"}),
        own=("ada",),
        credential=credential,
        **more,  # type: ignore[arg-type]
    )


def begun(within: CredentialLimits, who: Principal, times: int) -> int:
    """Begin and end so many requests; return how many were let in."""
    count = 0
    for _ in range(times):
        usage = within.of(who)
        assert usage is not None
        try:
            usage.begin()
        except RateLimited:
            continue
        usage.end()
        count += 1
    return count


@given(
    rate=st.floats(0.01, 1000),
    steps=st.lists(st.tuples(st.floats(0, 100), st.integers(1, 50)), min_size=1, max_size=60),
)
def test_a_bucket_gives_no_more_than_its_burst_and_its_rate(rate: float, steps: list[tuple[float, int]]) -> None:
    """Over any time, whatever is asked for when; a full bucket passes even what is larger, and waits are honest."""
    burst = max(1.0, 2 * rate)
    bucket, now, taken, largest = TokenBucket(rate, burst, 0.0), 0.0, 0, 0
    for wait, count in steps:
        now += wait
        refused_for = bucket.take(count, now)
        if refused_for:
            assert bucket.take(count, now) == pytest.approx(refused_for)
            now += refused_for
            assert bucket.take(count, now) == 0.0
        taken, largest = taken + count, max(largest, count)
        assert taken <= burst + rate * now + largest + 1e-6


def test_the_rate_of_a_key_counts_before_the_default() -> None:
    """Two seconds' worth at once, then as time goes by; others are not touched."""
    clock = Clock()
    within = CredentialLimits(requests_per_s=5, ticks=clock)
    ours, slow, other = principal("ours"), principal("slow", requests_per_s=1.0), principal("other")
    assert begun(within, ours, 100) == 10
    assert begun(within, slow, 100) == 2
    clock.at += 1
    assert begun(within, ours, 100) == 5
    assert begun(within, slow, 100) == 1
    assert begun(within, other, 100) == 10
    assert begun(within, principal("ours", tenant="elsewhere"), 100) == 10


def test_a_refusal_says_when_to_come_again() -> None:
    """And then it holds."""
    clock = Clock()
    within = CredentialLimits(ticks=clock)
    who = principal(requests_per_s=0.1)
    assert begun(within, who, 1) == 1
    usage = within.of(who)
    assert usage is not None
    with pytest.raises(RateLimited) as refused:
        usage.begin()
    assert refused.value.to_json()["retryable"] is True
    assert refused.value.details == {"limit": "requests_per_s", "value": 0.1, "retry_after_s": 10}
    clock.at += 10
    assert begun(within, who, 1) == 1


def test_a_batch_counts_every_message() -> None:
    """Also one that is larger than what may come at once: it is paid for afterwards."""
    clock = Clock()
    within = CredentialLimits(ticks=clock)
    who = principal(requests_per_s=2.0)
    usage = within.of(who)
    assert usage is not None
    usage.begin()
    with pytest.raises(RateLimited):
        usage.more(9)
    clock.at += 10
    usage.more(9)
    with pytest.raises(RateLimited):
        usage.more(1)
    clock.at += 3
    usage.more(1)


def test_requests_at_once_are_bounded_and_given_back() -> None:
    """By the key's own number before the default."""
    within = CredentialLimits(concurrency=3)
    usage = within.of(principal(concurrency=2))
    assert usage is not None
    usage.begin()
    usage.begin()
    with pytest.raises(RateLimited) as refused:
        usage.begin()
    assert refused.value.details["limit"] == "concurrency"
    usage.end()
    usage.begin()
    default = within.of(principal("other"))
    assert default is not None
    for _ in range(3):
        default.begin()
    with pytest.raises(RateLimited):
        default.begin()


def test_a_new_limit_of_a_key_holds_at_once_and_an_old_one_is_not_refilled() -> None:
    """A principal is made anew after every change of any key."""
    clock = Clock()
    within = CredentialLimits(ticks=clock)
    assert begun(within, principal(requests_per_s=5.0), 100) == 10
    assert begun(within, principal(requests_per_s=5.0), 100) == 0
    assert begun(within, principal(requests_per_s=1.0), 100) == 2
    assert begun(within, principal(), 100) == 100


def test_nothing_limits_who_proves_nothing() -> None:
    """The local principal is this machine's own."""
    assert CredentialLimits(requests_per_s=0.1, concurrency=1).of(local_principal("default")) is None


def test_headers_tell_what_is_left() -> None:
    """In the draft's form and the older one; none where no rate holds."""
    clock = Clock()
    within = CredentialLimits(ticks=clock)
    usage = within.of(principal(requests_per_s=5.0))
    assert usage is not None
    usage.begin()
    told = dict(usage.headers())
    assert told[b"ratelimit-policy"] == b'"credential";q=10;w=2'
    assert told[b"ratelimit"] == b'"credential";r=9;t=1'
    assert (told[b"ratelimit-limit"], told[b"ratelimit-remaining"], told[b"ratelimit-reset"]) == (b"10", b"9", b"1")
    unlimited = within.of(principal("other"))
    assert unlimited is not None
    assert unlimited.headers() == ()


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A credential at work is never forgotten: it would get its number anew."""
    monkeypatch.setattr(limits, "MAX_REMEMBERED", 5)
    within, failures = CredentialLimits(concurrency=1), Failures(1)
    busy = within.of(principal("busy0"))
    assert busy is not None
    busy.begin()
    for number in range(50):
        within.of(principal(f"idle{number}"))
        failures.note([f"address {number}"])
    assert within.of(principal("busy0")) is busy
    assert len(failures) == 5


def test_failures_are_counted_under_each_name() -> None:
    """Too many under one are enough; a minute later there is room again."""
    clock = Clock()
    failures = Failures(3, ticks=clock)
    for _ in range(3):
        failures.note(["address a", "key x"])
    for names in (["address a", "key y"], ["address b", "key x"]):
        with pytest.raises(RateLimited) as refused:
            failures.note(names)
        assert refused.value.details["retry_after_s"] == 20
    failures.note(["address c", "key z"])
    clock.at += 60
    failures.note(["address a", "key x"])
    for _ in range(100):
        Failures(None).note(["address a"])


@pytest.mark.parametrize(
    ("address", "network"),
    [("10.1.2.3", "10.1.2.3"), ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"), (UNKNOWN, UNKNOWN)],
)
def test_a_host_of_ipv6_has_a_whole_network(address: str, network: str) -> None:
    """So its failures count together."""
    assert network_of(address) == network


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("203.0.113.9", [b"198.51.100.1"], "203.0.113.9"),
        ("10.0.0.1", [], "10.0.0.1"),
        ("10.0.0.1", [b"198.51.100.1"], "198.51.100.1"),
        ("10.0.0.1", [b"1.1.1.1, 198.51.100.1"], "198.51.100.1"),
        ("10.0.0.1", [b"1.1.1.1, 198.51.100.1, 10.9.9.9"], "198.51.100.1"),
        ("10.0.0.1", [b"1.1.1.1", b"198.51.100.1"], "198.51.100.1"),
        ("10.0.0.1", [b"198.51.100.1:4711"], "198.51.100.1"),
        ("10.0.0.1", [b'"[2001:db8::1]:80"'], "10.0.0.1"),
        ("10.0.0.1", [b"[2001:db8::1]:80"], "2001:db8::1"),
        ("::ffff:10.0.0.1", [b"198.51.100.1"], "198.51.100.1"),
        ("10.0.0.1", [b"198.51.100.1, nonsense"], "10.0.0.1"),
        ("10.0.0.1", [b"10.0.0.2, 10.0.0.3"], "10.0.0.2"),
        (None, [b"198.51.100.1"], UNKNOWN),
    ],
)
def test_only_proxies_of_ours_say_where_a_request_comes_from(
    peer: str | None, forwarded: list[bytes], client: str
) -> None:
    """What a client wrote into the header itself stands before what they added, and is not looked at."""
    assert Proxies(["10.0.0.0/8"]).client(peer, forwarded) == client


def test_without_proxies_a_header_says_nothing() -> None:
    """Anybody can send it."""
    assert Proxies([]).client("10.0.0.1", [b"198.51.100.1"]) == "10.0.0.1"


def test_what_is_no_network_is_refused_at_the_start() -> None:
    """Naming the setting."""
    with pytest.raises(ConfigurationError, match=r"auth\.proxies"):
        Proxies(["10.0.0.0/33"])
