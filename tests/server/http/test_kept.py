"""Answers that are kept: one question is worked out once, and a stale answer is given only to those who accept it."""

import asyncio
import threading

import pytest
from starlette.responses import Response

from penstock.core.order.turns import Submitter, WaitingLimit
from penstock.server.http.kept import (
    COST_TIMES,
    REFRESH_TIMES,
    REPEATED_MS,
    REPEATED_PER_USER,
    KeptAnswers,
    RepeatedRequests,
    max_stale_ms,
    max_stale_of,
)
from penstock.server.http.responses import ApiError
from penstock.server.http.turns import CallerGone, WorkerPool, is_gone
from tests.server.http.test_turns import ANN, BOB, EVE, PLENTY, alone, asked, run, settled


def test_a_question_that_many_ask_at_once_is_worked_out_once():
    async def work() -> None:
        kept, times = KeptAnswers(Clock()), []

        async def make() -> Response:
            times.append(1)
            await asyncio.sleep(0)
            return Response(b"42", media_type="text/plain")

        found = await asyncio.gather(*(kept.of("question", make) for _ in range(10)))
        assert ({one.body for one in found}, len(times)) == ({b"42"}, 1)

    run(work())


def test_nobody_is_refused_for_the_share_of_another_who_asks_the_same():
    async def work() -> None:
        kept, free = KeptAnswers(Clock()), threading.Event()
        pool = WorkerPool("test", 1, WaitingLimit(user=1, tenant=2, total=9), alone())
        queued = [asked(ANN, pool.run(free.wait)) for _ in range(2)]  # one has begun, one waits
        await asyncio.sleep(0)
        asking = [asked(one, kept.of("question", lambda: pool.run(Response, b"42"))) for one in (ANN, BOB, BOB)]
        refused, *answers = await asyncio.gather(*asking, settled(free.set), return_exceptions=True)
        assert (refused.details.code, [one.body for one in answers[:2]]) == ("too_many_requests", [b"42"] * 2)
        await asyncio.gather(*queued)
        pool.close()

    run(work())


def test_no_question_waits_for_the_turn_of_another_tenant_that_asks_the_same():
    async def work() -> None:
        kept, turn = KeptAnswers(Clock()), asyncio.get_running_loop().create_future()

        async def soon() -> Response:
            return Response(b"42")

        waiting = asked(ANN, kept.of("question", lambda: turn))
        await asyncio.sleep(0)
        found = await asked(EVE, kept.of("question", soon))
        assert (found.body, waiting.done()) == (b"42", False)
        turn.set_result(found)
        await waiting

    run(work())


class Clock:
    """Goes on by itself whenever it is read, so that each answer costs that much."""

    def __init__(self, step_ms: int = 0) -> None:
        self.now_ms, self.step_ms = 0, step_ms

    def monotonic_ms(self) -> int:
        self.now_ms += self.step_ms
        return self.now_ms

    unix_ms = monotonic_ms


def test_an_answer_is_kept_for_a_moment_and_longer_where_it_was_dear():
    async def work() -> None:
        clock = Clock(step_ms=1_000)
        kept, times = KeptAnswers(clock), []

        async def make() -> Response:
            times.append(1)
            return Response(b"")

        await kept.of("dear", make)  # it took 1,000 ms
        clock.step_ms = 0
        clock.now_ms += COST_TIMES * 1_000 - 1
        await kept.of("dear", make)
        assert len(times) == 1
        clock.now_ms += 1
        await kept.of("dear", make)
        assert len(times) == 2

    run(work())


class Counted:
    """Works out answers that say how many were; each takes `cost_ms`."""

    def __init__(self, cost_ms: int) -> None:
        self.clock, self.cost_ms, self.made = Clock(), cost_ms, 0
        self.kept, self.fails = KeptAnswers(self.clock), False

    async def make(self) -> Response:
        if self.fails:
            raise ApiError("overloaded", "too busy")
        self.made += 1
        self.clock.now_ms += self.cost_ms
        return Response(str(self.made).encode())

    async def ask(self, version: int, stale_s: int = 0) -> tuple[bytes, str | None]:
        max_stale_ms.set(max_stale_of(f"max-stale={stale_s}"))
        found = await self.kept.of("question", self.make, version)
        for _ in range(5):  # what is worked out behind it
            await asyncio.sleep(0)
        return found.body, found.headers.get("age")


def test_an_answer_from_before_a_change_is_given_to_those_alone_who_accept_it():
    async def work() -> None:
        asked = Counted(cost_ms=1_000)
        assert await asked.ask(1) == (b"1", None)
        asked.clock.now_ms += 3_000
        assert await asked.ask(1) == (b"1", None), "nothing has changed"
        assert await asked.ask(2, stale_s=5) == (b"1", "3")
        assert await asked.ask(2, stale_s=2) == (b"2", None), "it is older than is accepted"
        assert await asked.ask(3) == (b"3", None)

    run(work())


def test_an_answer_that_is_given_although_stale_is_worked_out_anew_at_a_small_share_of_a_processor():
    async def work() -> None:
        asked = Counted(cost_ms=1_000)
        await asked.ask(1)
        asked.clock.now_ms += REFRESH_TIMES * 1_000 - 1
        assert await asked.ask(2, stale_s=600) == (b"1", "19")
        assert asked.made == 1
        asked.clock.now_ms += 1
        assert await asked.ask(3, stale_s=600) == (b"1", "20"), "nobody waits for the next"
        assert await asked.ask(4, stale_s=600) == (b"2", "0")
        assert asked.made == 2

    run(work())


def test_one_answer_at_a_time_is_worked_out_behind_all_who_are_given_a_stale_one():
    async def work() -> None:
        asked, free = Counted(cost_ms=10), asyncio.Event()
        await asked.ask(1)
        make = asked.make

        async def slow() -> Response:
            await free.wait()
            return await make()

        asked.make = slow
        asked.clock.now_ms += 1_000
        assert {await asked.ask(version, stale_s=9) for version in range(2, 9)} == {(b"1", "1")}
        free.set()
        assert (await asked.ask(9, stale_s=9), asked.made) == ((b"1", "1"), 2)
        assert await asked.ask(10, stale_s=9) == (b"2", "0")

    run(work())


def test_a_stale_answer_stays_where_no_newer_can_be_worked_out():
    async def work() -> None:
        asked = Counted(cost_ms=10)
        await asked.ask(1)
        asked.fails = True
        asked.clock.now_ms += 1_000
        assert [await asked.ask(version, stale_s=9) for version in (2, 3)] == [(b"1", "1")] * 2
        with pytest.raises(ApiError, match="too busy"):
            await asked.ask(4)

    run(work())


class Held:
    """Works out answers that wait until they may come; each says which it was, and takes no time."""

    def __init__(self) -> None:
        self.clock, self.free = Clock(), list[asyncio.Event]()
        self.kept = KeptAnswers(self.clock)

    async def make(self) -> Response:
        self.free.append(asyncio.Event())
        number = len(self.free)
        await self.free[-1].wait()
        return Response(str(number).encode())

    async def ask(self, version: int, stale_s: int = 0) -> "asyncio.Task[tuple[bytes, str | None]]":
        """Begin to ask, and return once the answer is being worked out or comes."""

        async def asking() -> tuple[bytes, str | None]:
            max_stale_ms.set(1_000 * stale_s)
            found = await self.kept.of("question", self.make, version)
            return found.body, found.headers.get("age")

        task = asyncio.create_task(asking())
        await settled(lambda: None)
        return task


def test_who_accepts_a_stale_answer_waits_for_the_one_that_is_being_worked_out():
    async def work() -> None:
        held = Held()
        first, second = await held.ask(1, stale_s=1), await held.ask(2, stale_s=1)
        held.clock.now_ms += 999
        third, exact = await held.ask(3, stale_s=1), await held.ask(4)
        assert len(held.free) == 2, "who accepts none has another"
        for one in held.free:
            one.set()
        answers = [await one for one in (first, second, third, exact)]
        assert answers == [(b"1", None), (b"1", "0"), (b"1", "0"), (b"2", None)]

    run(work())


def test_nobody_waits_for_an_answer_that_was_begun_before_what_they_accept():
    async def work() -> None:
        held = Held()
        first = await held.ask(1, stale_s=1)
        held.clock.now_ms += 1_000
        second = await held.ask(2, stale_s=1)
        held.free[1].set()
        assert await second == (b"2", None)
        held.free[0].set()
        assert await first == (b"1", None)
        assert await (await held.ask(3, stale_s=1)) == (b"2", "0"), "the one that was overtaken is not kept"

    run(work())


def test_an_answer_of_the_present_version_has_no_age_in_its_first_second():
    async def work() -> None:
        asked = Counted(cost_ms=0)
        await asked.ask(1)
        asked.clock.now_ms += 999
        assert await asked.ask(1, stale_s=9) == (b"1", None)
        assert await asked.ask(2, stale_s=9) == (b"1", "0")
        asked.clock.now_ms += 1
        assert await asked.ask(1, stale_s=9) == (b"1", "1")

    run(work())


def test_an_answer_comes_although_who_asked_first_has_gone():
    async def work() -> None:
        kept, pool, free = KeptAnswers(Clock()), WorkerPool("test", 1, PLENTY, alone()), threading.Event()
        busy = asked(ANN, pool.run(free.wait))
        await asyncio.sleep(0)

        async def leaving() -> Response:
            is_gone.set(lambda: True)
            return await kept.of("question", lambda: pool.run(Response, b"42"))

        first = asked(ANN, leaving())
        await asyncio.sleep(0)
        second = asked(BOB, kept.of("question", lambda: pool.run(Response, b"42")))
        _, gone, found, _ = await asyncio.gather(busy, first, second, settled(free.set), return_exceptions=True)
        assert (type(gone), found.body) == (CallerGone, b"42")
        pool.close()

    run(work())


@pytest.mark.parametrize("size", [1, 30])
def test_questions_of_one_user_push_out_none_of_others(size):
    async def work() -> None:
        kept, made = KeptAnswers(Clock(), most=40, most_bytes=400, share=4), list[object]()

        async def ask(user: Submitter, question: int, bytes_: int) -> None:
            async def make() -> Response:
                made.append((user, question))
                return Response(b"x" * bytes_)

            await asked(user, kept.of((user, question), make))

        for i in range(3):
            await ask(BOB, i, 1)
        for i in range(100):
            await ask(EVE, i, size)
        made.clear()
        held = min(10, 100 // size)
        for i in range(3):
            await ask(BOB, i, 1)
        for i in range(99, 99 - held, -1):
            await ask(EVE, i, size)
        assert made == []
        await ask(EVE, 99 - held, size)
        assert made == [(EVE, 99 - held)]
        assert (len(kept._answers), kept._bytes) == (3 + held, 3 + held * size)

    run(work())


def test_what_is_kept_of_all_users_together_is_bounded():
    async def work() -> None:
        kept = KeptAnswers(Clock(), most=10, most_bytes=100, share=5)

        async def make() -> Response:
            return Response(b"x" * 11)

        for i in range(50):
            await asked(Submitter("red", f"user{i}"), kept.of(i, make))
        assert (len(kept._answers), kept._bytes, len(kept._of_user)) == (9, 99, 9)
        last = Submitter("red", "user49")
        await asked(last, kept.of("large", lambda: asyncio.sleep(0, Response(b"x" * 21))))
        assert (49 in kept._answers, "large" in kept._answers) == (True, False)

    run(work())


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("max-stale=60", 60),
        ("no-cache, Max-Stale=5 ", 5),
        ("", 0),
        ("max-stale", 0),
        ("max-stale=", 0),
        ("max-stale=-1", 0),
        ("max-stale=1e9", 0),
        ("max-stale=99999999", 0),
        ("x-max-stale=60", 0),
        ("stale-while-revalidate=60", 0),
    ],
)
def test_a_request_says_how_stale_an_answer_it_accepts(header, seconds):
    assert max_stale_of(header) == 1_000 * seconds


def test_what_failed_is_not_kept():
    async def work() -> None:
        kept, answers = KeptAnswers(Clock()), [ZeroDivisionError(), Response(b"42")]

        async def make() -> Response:
            found = answers.pop(0)
            if isinstance(found, Exception):
                raise found
            return found

        with pytest.raises(ZeroDivisionError):
            await kept.of("question", make)
        assert (await kept.of("question", make)).body == b"42"

    run(work())


class Changing:
    """Requests that change something, counted; `fails` makes the next one fail."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.repeats, self.changes, self.fails = RepeatedRequests(self.clock), 0, False

    async def ask(self, user: str, key: str, body: bytes = b"{}") -> bytes:
        return (await self.repeats.of(user, key, body, self._change)).body

    async def _change(self) -> Response:
        if self.fails:
            self.fails = False
            raise ApiError("invalid", "no such queue")
        self.changes += 1
        return Response(str(self.changes).encode())


def test_a_key_of_a_request_that_failed_is_free_for_the_corrected_one():
    async def work() -> None:
        server = Changing()
        server.fails = True
        with pytest.raises(ApiError, match="no such queue"):
            await server.ask("ann", "key", b"wrong")
        assert await server.ask("ann", "key", b"right") == b"1"
        with pytest.raises(ApiError, match="was used for another request"):
            await server.ask("ann", "key", b"wrong")

    run(work())


def test_a_key_is_free_once_its_answer_is_forgotten():
    async def work() -> None:
        server = Changing()
        assert await server.ask("ann", "key", b"one") == b"1"
        server.clock.now_ms += REPEATED_MS - 1
        assert await server.ask("ann", "key", b"one") == b"1"
        with pytest.raises(ApiError, match="was used for another request"):
            await server.ask("ann", "key", b"two")
        server.clock.now_ms += 1
        assert await server.ask("ann", "key", b"two") == b"2"
        assert await server.ask("ann", "key", b"two") == b"2"

    run(work())


def test_many_keys_of_one_user_leave_those_of_others_alone():
    async def work() -> None:
        server = Changing()
        first = await server.ask("ann", "key")
        for i in range(REPEATED_PER_USER + 1):
            await server.ask("eve", str(i))
        assert await server.ask("ann", "key") == first
        assert await server.ask("eve", str(REPEATED_PER_USER)) == str(server.changes).encode()
        assert await server.ask("eve", "0") == str(server.changes).encode(), "the oldest key was given up"

    run(work())
