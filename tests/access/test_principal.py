"""What a principal may do: as whom it asks and appends, its roles, faces and channels."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from myria.access.principal import NamedMask, Principal, checked_pattern, local_principal, matches
from myria.errors import (
    ChannelNotAllowed,
    FaceNotAllowed,
    InvalidArgument,
    InvalidParticipants,
    MyriaError,
    ParticipantsNotAllowed,
    RoleRequired,
)
from myria.log.masks import Mask, Masks

NAMES = ("ada", "bot", "carl", "user:1", "user:2")


def principal(*own: str, may_ask: tuple[str, ...] = (), channels: tuple[str, ...] | None = None) -> Principal:
    """Return a principal that reads and appends on the core face."""
    return Principal(
        tenant="default",
        actor="key:k",
        credential="k",
        roles=frozenset({"append", "read"}),
        faces=frozenset({"core"}),
        own=tuple(sorted(own)),
        may_ask=may_ask,
        channels=channels,
    )


def test_without_names_it_asks_and_appends_as_its_own() -> None:
    """A model never has to say who it is."""
    both = principal("ada", "bot")
    assert both.asking_as(None) == both.appending_as(None) == ("ada", "bot")


def test_it_never_asks_as_a_part_of_its_own() -> None:
    """Fewer who ask see more, so a part is refused; all of them are what it asks as anyway."""
    both = principal("ada", "bot")
    with pytest.raises(ParticipantsNotAllowed, match="fewer who ask see more"):
        both.asking_as(("bot",))
    assert both.asking_as(("ada", "bot")) == ("ada", "bot")


def test_each_of_several_masks_keeps_the_rule() -> None:
    """Its own are added to each, exact ones too; a part of them, or somebody beyond the patterns, is refused."""
    both = principal("ada", "bot", may_ask=("user:*",))
    user = NamedMask(participants=("user:1",))
    pool = NamedMask(participants=("ada", "bot", "user:1"), exact=True)
    other = NamedMask(participants=("user:2",), exact=True)
    assert both.asking_under([user, other, pool]) == Masks.of(
        [Mask(("ada", "bot", "user:1")), Mask(("ada", "bot", "user:2"), exact=True)]
    )
    for exact in (False, True):
        for named in (("bot", "user:1"), ("carl", "user:1"), ("ada", "bot"), None):
            with pytest.raises(ParticipantsNotAllowed) as refused:
                both.asking_under([user, NamedMask(participants=named, exact=exact)])
            assert refused.value.details["field"] == "masks[1].participants"


def test_a_pool_is_of_exactly_its_own() -> None:
    """A face may ask so beside other masks, also for a key with patterns; a key of nobody has none."""
    host = principal("host", may_ask=("agent:*",))
    masks = Masks.of([*host.asking(("agent:1",)), host.pool()])
    assert [scope for scope in (("host",), ("agent:1", "host"), ("agent:2", "host")) if masks.sees(scope)] == [
        ("host",),
        ("agent:1", "host"),
    ]
    assert local_principal("default").pool() == Mask(("agent", "me"), exact=True)
    with pytest.raises(ParticipantsNotAllowed, match="no pool"):
        principal(may_ask=("agent:*",)).pool()


def test_an_append_carries_all_of_its_own() -> None:
    """What it names adds to its own, and never replaces them."""
    assert principal("ada", "bot", may_ask=("user:*",)).appending_as(("bot", "user:1")) == ("ada", "bot", "user:1")


def test_a_name_beyond_the_patterns_is_refused() -> None:
    """For reads and appends alike."""
    host = principal("bot", may_ask=("user:*",))
    for ask in (host.asking_as, host.appending_as):
        with pytest.raises(ParticipantsNotAllowed):
            ask(("carl", "user:1"))


def test_a_key_with_patterns_names_a_match_in_every_call() -> None:
    """Whether or not it has participants of its own: else it would see what all its users have in common."""
    for host in (principal(may_ask=("user:*",)), principal("bot", may_ask=("user:*",))):
        for ask in (host.asking_as, host.appending_as):
            for named in (None, host.own or None):
                with pytest.raises(ParticipantsNotAllowed, match="user:"):
                    ask(named)
    assert principal("bot", may_ask=("user:*",)).asking_as(("user:1",)) == ("bot", "user:1")


def test_a_key_for_nobody_asks_nothing() -> None:
    """An empty set would see everything."""
    with pytest.raises(ParticipantsNotAllowed, match="nobody"):
        principal().asking_as(None)


def test_a_setting_lets_an_append_name_anybody() -> None:
    """More participants are fewer readers; a read stays bound to the patterns."""
    wide = Principal(
        tenant="default",
        actor="k",
        roles=frozenset({"append"}),
        faces=frozenset({"core"}),
        own=("ada",),
        appends_for_anyone=True,
    )
    assert wide.appending_as(("carl",)) == ("ada", "carl")
    with pytest.raises(ParticipantsNotAllowed):
        wide.asking_as(("carl",))


def test_more_participants_than_an_event_can_have_are_refused() -> None:
    """Its own count."""
    names = tuple(f"user:{number:03}" for number in range(64))
    with pytest.raises(InvalidParticipants, match="own included"):
        principal("ada", may_ask=("user:*",)).asking_as(names)


def test_the_local_principal_names_whom_it_likes() -> None:
    """As before there were credentials; where it names nobody, a setting does."""
    local = local_principal("default", fallback=("me", "agent"))
    assert local.asking_as(("bob",)) == ("bob",)
    assert local.appending_as(None) == ("agent", "me")


def test_roles_faces_and_channels_are_asked_for_by_name() -> None:
    """Each refusal says what is missing."""
    some = principal("ada", channels=("mail", "chat:*"))
    some.need(("read", "admin"), what="x")
    some.need_api("core")
    some.need_channel("chat:42")
    with pytest.raises(RoleRequired, match="admin"):
        some.need(("admin",), what="rollback")
    with pytest.raises(FaceNotAllowed, match="admin"):
        some.need_api("admin")
    with pytest.raises(ChannelNotAllowed):
        some.need_channel("mailbox")


@pytest.mark.parametrize(
    ("pattern", "name", "is_match"),
    [
        ("user:*", "user:1", True),
        ("user:*", "user:", True),
        ("user:*", "xuser:1", False),
        ("*@example.org", "a@example.org", True),
        ("*", "anybody\nat all", True),
        ("a.c", "abc", False),
        ("ada", "ada", True),
        ("ada", "adamant", False),
        ("a*b", "ab", True),
        ("a*a", "a", False),
    ],
)
def test_a_pattern_is_a_name_with_one_star(pattern: str, name: str, *, is_match: bool) -> None:
    """The star stands for any text; everything else for itself."""
    assert matches(pattern, name) == is_match


@pytest.mark.parametrize("pattern", ["", "a*b*c", "x" * 300, "user:\u200b*"])
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    """When a key is made, not when it is used."""
    with pytest.raises((InvalidArgument, InvalidParticipants)):
        checked_pattern(pattern, "may_ask")


@given(
    own=st.sets(st.sampled_from(NAMES), max_size=3),
    may_ask=st.sets(st.sampled_from(("user:*", "carl", "b*")), max_size=2),
    named=st.none() | st.sets(st.sampled_from(NAMES), min_size=1, max_size=4),
    scope=st.sets(st.sampled_from(NAMES), min_size=1, max_size=5),
)
def test_nobody_sees_beyond_their_own_mask(
    own: set[str], may_ask: set[str], named: set[str] | None, scope: set[str]
) -> None:
    """Whatever is named: what is seen has all of one's own, and somebody who matches where there are patterns."""
    one = principal(*own, may_ask=tuple(sorted(may_ask)))
    try:
        asking = one.asking_as(None if named is None else tuple(sorted(named)))
    except MyriaError:
        return
    assert asking
    assert own <= set(asking) <= own | (named or set())
    masks = one.asking_under([NamedMask(participants=asking, exact=exact) for exact in (False, True)])
    assert masks == one.asking(asking)
    if masks.sees(scope):
        assert own <= scope
        if may_ask:
            assert any(matches(pattern, name) for pattern in may_ask for name in scope - own)
