"""Shares of what all use together: one alone gets half, and whoever comes next finds some."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.core.lifecycle.thresholds import Holding, OverShare, SharedAmount, over_share


def filled(room: SharedAmount, *names: str) -> int:
    """Take one after the other until no more is given; return how much that was."""
    taken = 0
    while room.take(names, 1) is None:
        taken += 1
    return taken


def test_one_alone_gets_half_and_each_newcomer_half_of_what_is_left():
    room = SharedAmount(1_000)
    assert [filled(room, name) for name in ("ann", "bob", "eve")] == [500, 250, 125]


def test_a_group_gets_no_more_than_one_caller_whoever_of_it_asks():
    room = SharedAmount(1_000)
    assert sum(filled(room, user, "red") for user in ("ann", "bob", "joe")) == 500
    assert filled(room, "eve", "blue") == 250


def test_a_refusal_says_who_has_how_much_and_what_is_left():
    claims = [Holding("bob", 1), Holding("tenant red", 6)]
    assert over_share(claims, used=6, most=10) == OverShare("tenant red", 6, 4)
    assert over_share(claims[:1], used=6, most=10) is None


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 30))), st.integers(1, 200))
def test_what_was_given_back_is_there_again(steps, most):
    room = SharedAmount(most)
    taken = [(name, amount) for name, amount in steps if room.take((name,), amount) is None]
    assert room.used == sum(amount for _, amount in taken) <= most
    for name, amount in taken:
        room.give_back((name,), amount)
    assert (room.used, filled(room, "z")) == (0, most // 2)
