"""Cancel, hold, release and priority: asked first, by the job's name, and what became of it is said."""

import pytest

from tests.cli.top.conftest import World
from tests.cli.top.stage import Screen, opened, played


@pytest.fixture
def jobs(own: World) -> dict[str, int]:
    """Two jobs that run, three that wait, and an array of which nothing runs."""
    names = ("runs", "too", "first", "second")
    made = {name: own.submit(name=name, devices=4) for name in names}
    return made | {"swept": own.submit(name="swept", devices=4, array=5)}


def state_of(world: World, job: int) -> str:
    world.server.settle()
    return world.client().job(job).state


async def asked(screen: Screen, key: str, question: str, answer: str = "y") -> None:
    await screen.press(key)
    await screen.shows(question, "y yes   n no (Esc)")
    await screen.press(answer)


def test_a_job_is_cancelled_once_that_is_confirmed(own: World, jobs: dict[str, int]) -> None:
    async def walk() -> None:
        async with opened(own.server, token=own.ann) as screen:
            await screen.looks()
            for no in ("n", "escape", "enter"):
                await asked(screen, "c", f"Cancel job {jobs['first']} first?", no)
                await screen.shows(f"job {jobs['first']} first stays as it was")
            assert state_of(own, jobs["first"]) == "waiting"
            await asked(screen, "c", f"Cancel job {jobs['first']} first?")
            await screen.shows(f"cancel requested for job {jobs['first']} first")
            assert state_of(own, jobs["first"]) == "cancelled"
            assert state_of(own, jobs["second"]) == "waiting"

    played(walk())


def test_a_job_is_held_and_released_and_the_list_shows_it(own: World, jobs: dict[str, int]) -> None:
    async def walk() -> None:
        async with opened(own.server, token=own.ann) as screen:
            await screen.looks()
            await screen.press("j")
            await asked(screen, "h", f"Hold job {jobs['second']} second?")
            await screen.shows(f"job {jobs['second']} second held")
            await screen.until(lambda: screen.cursor.endswith("held"), "why it waits")
            await asked(screen, "r", f"Release job {jobs['second']} second?")
            await screen.shows(f"job {jobs['second']} second released")
            await screen.until(lambda: not screen.cursor.endswith("held"), "that it is released")

    played(walk())


def test_what_cannot_be_done_is_said_and_not_asked(own: World, jobs: dict[str, int]) -> None:
    async def walk() -> None:
        async with opened(own.server, token=own.ann, view="running") as screen:
            await screen.looks()
            await screen.press("r")
            await screen.shows(f"error: job {jobs['too']} is not held")
            await screen.press("3", "c")
            await screen.shows("error: no job is selected")

    played(walk())


def test_a_priority_is_asked_for_confirmed_and_refused_with_the_right_words(own: World, jobs: dict[str, int]) -> None:
    async def walk() -> None:
        async with opened(own.server, token=own.ann) as screen:
            await screen.looks()
            await screen.press("j", "p")
            await screen.shows(f"New priority of job {jobs['second']} second")
            await screen.press("ctrl+u")
            await screen.type("hihg")
            await screen.press("enter")
            await screen.shows("'hihg', expected one of low, medium, high", "did you mean 'high'?")
            await screen.press("p", "ctrl+u")
            await screen.type("650")
            await screen.press("enter")
            await screen.shows(f"Change job {jobs['second']} second: priority 650 instead of 500?")
            await screen.press("y")
            await screen.shows(f"job {jobs['second']} second changed")
            await screen.until(lambda: " 650 " in screen.cursor and "second" in screen.cursor, "its new place")
            assert own.client().job(jobs["second"]).priority == 650

    played(walk())


def test_an_action_on_an_array_in_the_queue_is_about_its_waiting_jobs(own: World, jobs: dict[str, int]) -> None:
    own.server.client.cancel(jobs["first"])
    own.server.client.cancel(jobs["second"])
    own.server.client.cancel(jobs["runs"])
    own.server.advance(60)
    first = jobs["swept"]
    assert state_of(own, first) == "running"

    async def walk() -> None:
        async with opened(own.server, token=own.ann) as screen:
            await screen.looks()
            await asked(screen, "c", f"Cancel array {first}[] swept[] (4 jobs)?")
            await screen.shows(f"cancel requested for 4 jobs of array {first}[] swept[]")

    played(walk())
    assert [state_of(own, first + at) for at in range(5)] == ["running", *["cancelled"] * 4]


def test_an_action_works_from_the_page_of_a_job(own: World, jobs: dict[str, int]) -> None:
    async def walk() -> None:
        async with opened(own.server, token=own.ann) as screen:
            await screen.looks()
            await screen.press("enter")
            await screen.shows(f"job {jobs['first']} first  waiting", "needs 1 x 4 devices")
            await asked(screen, "c", f"Cancel job {jobs['first']} first?")
            await screen.shows(f"job {jobs['first']} first  cancelled")

    played(walk())


def test_who_may_not_act_is_refused_by_the_server(own: World, jobs: dict[str, int]) -> None:
    reader = own.server.client.create_token({"user": "ann", "level": "read"}).token

    async def walk() -> None:
        async with opened(own.server, token=reader) as screen:
            await screen.looks()
            await screen.press("c")
            await screen.shows("error: ")
            assert "Cancel job" not in screen.text

    played(walk())
    assert state_of(own, jobs["first"]) == "waiting"
