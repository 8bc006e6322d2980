"""A queue that serves callers in turn: however much one has queued, another waits for one piece of each other's."""

from collections import defaultdict, deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.order.turns import FairQueue, Submitter, TooManyWaiting, WaitingLimit

PLENTY = WaitingLimit(1_000, 1_000, 1_000)
ANN, BOB, EVE = Submitter("red", "ann"), Submitter("red", "bob"), Submitter("blue", "eve")


def queued(*callers: Submitter, share: WaitingLimit = PLENTY) -> FairQueue[Submitter]:
    queue: FairQueue[Submitter] = FairQueue(share)
    for caller in callers:
        queue.put(caller, caller)
    return queue


def test_tenants_take_turns_and_within_a_tenant_its_users():
    queue = queued(*[ANN] * 4, *[BOB] * 2, *[EVE] * 3)
    assert [queue.take() for _ in range(9)] == [ANN, EVE, BOB, EVE, ANN, EVE, BOB, ANN, ANN]


def test_what_comes_last_is_served_after_one_piece_of_each_other_tenant():
    queue = queued(*[ANN] * 500)
    queue.take()
    queue.put(EVE, EVE)
    assert [queue.take(), queue.take()] == [ANN, EVE]


@pytest.mark.parametrize(
    ("share", "own"),
    [(WaitingLimit(1, 9, 9), True), (WaitingLimit(9, 1, 9), True), (WaitingLimit(9, 9, 1), False)],
    ids=str,
)
def test_a_share_that_is_used_up_refuses_and_queues_nothing(share, own):
    queue = queued(ANN, share=share)
    with pytest.raises(TooManyWaiting) as refused:
        queue.put(ANN, ANN)
    assert (refused.value.own, len(queue)) == (own, 1)
    queue.take()
    queue.put(ANN, ANN)


def test_the_share_of_one_tenant_leaves_room_for_another():
    queue = queued(ANN, BOB, share=WaitingLimit(1, 2, 3))
    queue.put(EVE, EVE)
    assert [queue.take() for _ in range(3)] == [ANN, EVE, BOB]
    with pytest.raises(IndexError):
        queue.take()


callers = st.builds(Submitter, st.sampled_from("abc"), st.sampled_from("xyz"))


@given(st.lists(st.tuples(st.booleans(), callers), max_size=80))
def test_nothing_is_lost_and_each_caller_is_served_in_order(steps):
    queue: FairQueue[tuple[Submitter, int]] = FairQueue(PLENTY)
    waiting: dict[Submitter, deque[int]] = defaultdict(deque)
    for number, (put, caller) in enumerate(steps):
        if put or not len(queue):
            queue.put(caller, (caller, number))
            waiting[caller].append(number)
        else:
            taken, its = queue.take()
            assert waiting[taken].popleft() == its
    assert len(queue) == sum(map(len, waiting.values()))
