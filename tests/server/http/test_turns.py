"""Whose request is served next: at the door, in pools of threads, one after the other; and answers that are kept."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from penstock.control.inbox import SERVER
from penstock.core.model.access import Scope
from penstock.core.model.ids import TenantName, UserName
from penstock.core.order.turns import Submitter, WaitingLimit
from penstock.core.state.tokens import local_scope
from penstock.server.http.door import PIECE_BYTES, send_in_pieces
from penstock.server.http.responses import ApiError
from penstock.server.http.turns import (
    CLUSTER,
    LATELY_S,
    AdmissionPace,
    CallerGone,
    Crowd,
    Lane,
    Turn,
    WorkerPool,
    caller_of,
    calling,
    for_all,
    is_gone,
)

PLENTY = WaitingLimit(1_000, 1_000, 1_000)
ANN, BOB, EVE = Submitter("red", "ann"), Submitter("red", "bob"), Submitter("blue", "eve")


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 30))


async def as_caller(caller: Submitter, work: Coroutine[Any, Any, Any]) -> Any:
    calling.set(caller)
    return await work


async def settled(do: Callable[[], None]) -> None:
    """Do something once whatever was asked has begun or waits."""
    for _ in range(10):
        await asyncio.sleep(0)
    do()


def asked(caller: Submitter, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
    return asyncio.create_task(as_caller(caller, work))


def alone() -> Lane:
    return Lane(Crowd())


def test_requests_begin_in_turn_a_few_in_each_pass_of_the_loop():
    async def work() -> None:
        pace, order = AdmissionPace(1, PLENTY), []

        async def serve(caller: Submitter) -> None:
            await pace.begin(caller)
            order.append(caller)

        await asyncio.gather(*(serve(caller) for caller in [*[ANN] * 50, EVE]))
        assert order.index(EVE) <= 3

    run(work())


def test_more_than_a_callers_share_is_refused_at_the_door():
    async def work() -> None:
        pace = AdmissionPace(1, WaitingLimit(1, 9, 9))
        found = await asyncio.gather(*(pace.begin(ANN) for _ in range(3)), pace.begin(EVE), return_exceptions=True)
        assert [isinstance(one, ApiError) for one in found] == [False, False, True, False]

    run(work())


def test_a_pool_serves_callers_in_turn():
    async def work() -> None:
        pool, order, may_go_on = WorkerPool("test", 1, PLENTY, alone()), [], threading.Event()
        first = asked(ANN, pool.run(may_go_on.wait))
        await asyncio.sleep(0)
        rest = [asked(ANN, pool.run(order.append, "ann")) for _ in range(20)]
        await asyncio.sleep(0)
        rest.append(asked(EVE, pool.run(order.append, "eve")))
        await asyncio.sleep(0)
        may_go_on.set()
        await asyncio.gather(first, *rest)
        assert order.index("eve") <= 1
        pool.close()

    run(work())


def test_work_whose_caller_has_gone_before_it_began_is_not_done():
    async def work() -> None:
        pool, done, may_go_on = WorkerPool("test", 1, PLENTY, alone()), [], threading.Event()
        left = False

        async def leaving(name: str) -> None:
            is_gone.set(lambda: left)
            await pool.run(done.append, name)

        begun = asked(ANN, pool.run(may_go_on.wait))
        await asyncio.sleep(0)
        others = [asked(ANN, leaving("gone")), asked(EVE, pool.run(done.append, "stays"))]
        await asyncio.sleep(0)
        left = True
        may_go_on.set()
        found = await asyncio.gather(begun, *others, return_exceptions=True)
        assert (type(found[1]), done) == (CallerGone, ["stays"])
        pool.close()

    run(work())


def test_work_for_all_is_done_although_who_caused_it_has_gone():
    async def work() -> None:
        pool = WorkerPool("test", 1, PLENTY, alone())

        async def leaving() -> tuple[Submitter, tuple[int, int]]:
            is_gone.set(lambda: True)
            for_all()
            return calling.get(), await pool.run(divmod, 7, 2)

        assert await asked(ANN, leaving()) == (SERVER, (3, 1))
        pool.close()

    run(work())


def test_the_last_thread_of_a_pool_is_kept_for_another_tenant():
    async def work() -> None:
        pool, may_go_on = WorkerPool("test", 2, PLENTY, alone()), threading.Event()
        mine = [asked(ANN, pool.run(may_go_on.wait)) for _ in range(3)]
        await asyncio.sleep(0)
        assert await asyncio.wait_for(asked(EVE, pool.run(divmod, 7, 2)), 10) == (3, 1)
        may_go_on.set()
        await asyncio.gather(*mine)
        pool.close()

    run(work())


def test_while_others_call_a_tenant_has_one_thread_of_all_pools_of_a_lane():
    async def work() -> None:
        now_s = 0.0
        crowd = Crowd(lambda: now_s)
        lane, may_go_on = Lane(crowd), threading.Event()
        first, second = WorkerPool("first", 3, PLENTY, lane), WorkerPool("second", 3, PLENTY, lane)
        crowd.note(EVE.tenant)
        crowd.note(ANN.tenant)
        begun: list[str] = []

        def busy(name: str) -> None:
            begun.append(name)
            may_go_on.wait()

        mine = [asked(ANN, pool.run(busy, name)) for pool, name in ((first, "a"), (first, "b"), (second, "c"))]
        await asyncio.sleep(0)
        assert await asyncio.wait_for(asked(EVE, second.run(divmod, 7, 2)), 10) == (3, 1)
        assert begun == ["a"]
        now_s = LATELY_S  # the other one has gone
        crowd.note(ANN.tenant)
        second.fill()
        while len(begun) < 2:
            await asyncio.sleep(0)
        may_go_on.set()
        await asyncio.gather(*mine)
        assert begun == ["a", "c", "b"]
        first.close()
        second.close()

    run(work())


def test_work_that_ends_in_one_pool_lets_what_waits_in_another_of_its_lane_begin():
    async def work() -> None:
        crowd = Crowd(lambda: 0.0)
        lane, may_go_on = Lane(crowd), threading.Event()
        first, second = WorkerPool("first", 1, PLENTY, lane), WorkerPool("second", 1, PLENTY, lane)
        crowd.note(EVE.tenant)
        busy = asked(ANN, first.run(may_go_on.wait))
        await asyncio.sleep(0)
        waiting = asked(ANN, second.run(divmod, 7, 2))
        await asyncio.sleep(0)
        may_go_on.set()
        assert await asyncio.wait_for(waiting, 10) == (3, 1)
        await busy
        first.close()
        second.close()

    run(work())


def test_a_tenant_is_alone_again_once_the_others_are_silent():
    now_s = 10.0
    crowd = Crowd(lambda: now_s)
    for tenant in ("a", "b", "c", "c"):
        crowd.note(tenant)
    assert crowd.beside("a")
    assert crowd.beside("c")
    now_s += LATELY_S - 0.1
    crowd.note("c")
    now_s += 0.1
    assert not crowd.beside("c")
    assert crowd.beside("a")


def test_a_pool_gives_back_what_is_raised_and_goes_on():
    async def work() -> None:
        pool = WorkerPool("test", 1, PLENTY, alone())
        with pytest.raises(ZeroDivisionError):
            await pool.run(divmod, 1, 0)
        assert await pool.run(divmod, 7, 2) == (3, 1)
        pool.close()

    run(work())


@pytest.mark.parametrize(
    ("share", "code"), [(WaitingLimit(1, 9, 9), "too_many_requests"), (WaitingLimit(9, 9, 1), "overloaded")]
)
def test_a_pool_that_is_full_says_whose_share_is_used_up(share, code):
    async def work() -> None:
        pool, may_go_on = WorkerPool("test", 1, share, alone()), threading.Event()
        busy = asyncio.create_task(pool.run(may_go_on.wait))
        await asyncio.sleep(0)
        waiting = asyncio.create_task(pool.run(int))
        await asyncio.sleep(0)
        with pytest.raises(ApiError) as refused:
            await pool.run(int)
        assert refused.value.details.code == code
        may_go_on.set()
        await asyncio.gather(busy, waiting)
        pool.close()

    run(work())


def test_one_has_the_turn_at_a_time_and_who_gave_up_is_passed_over():
    async def work() -> None:
        turn, order = Turn(PLENTY, "questions"), []

        async def hold(name: str) -> None:
            async with turn.mine():
                order.append(name)
                await asyncio.sleep(0.01)
                order.append(name)

        asking = [asyncio.create_task(hold(name)) for name in "abc"]
        await asyncio.sleep(0)
        asking[1].cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        assert order == ["a", "a", "c", "c"]

    run(work())


def test_nobody_waits_for_a_pool_that_is_closed():
    async def work() -> None:
        pool, free = WorkerPool("test", 1, PLENTY, alone()), threading.Event()
        begun, waiting = (asked(ANN, pool.run(do)) for do in (free.wait, free.is_set))
        await asyncio.sleep(0)
        pool.close()
        free.set()
        assert await begun is True
        for late in (waiting, pool.run(free.is_set)):
            with pytest.raises(ApiError, match="the server is ending"):
                await late

    run(work())


def test_callers_count_as_users_of_their_tenant_and_those_of_the_cluster_apart():
    member = Scope(UserName("ann"), tenants={TenantName("red"): "member", TenantName("blue"): "viewer"})
    assert caller_of(member) == Submitter("blue", "ann")
    assert caller_of(local_scope(UserName("root"))) == Submitter(CLUSTER, "root")


@pytest.mark.parametrize("size", [0, 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES, 3 * PIECE_BYTES + 1])
@pytest.mark.parametrize("more", [True, False])
def test_a_large_answer_is_sent_in_pieces_between_which_others_have_the_loop(size, more):
    async def work() -> None:
        body, sent, passes = bytes(range(256)) * (size // 256 + 1), [], 0

        async def send(message: Any) -> None:
            sent.append((passes, message))

        async def others() -> None:
            nonlocal passes
            while True:
                passes += 1
                await asyncio.sleep(0)

        beside = asyncio.create_task(others())
        await asyncio.sleep(0)
        await send_in_pieces(send, {"type": "http.response.body", "body": body[:size], "more_body": more})
        beside.cancel()
        assert b"".join(message["body"] for _, message in sent) == body[:size]
        assert all(len(message["body"]) <= PIECE_BYTES for _, message in sent)
        assert [message.get("more_body", False) for _, message in sent] == [True] * (len(sent) - 1) + [more]
        assert len({at for at, _ in sent}) == len(sent) == max(1, -(-size // PIECE_BYTES))

    run(work())
