"""The log of a job: it follows the end, stays where one reads, and is searched."""

import pytest

from tests.cli.top.conftest import World
from tests.cli.top.stage import Screen, opened, played


@pytest.fixture
def job(own: World) -> int:
    made = own.submit(name="train", devices=1)
    own.printed.written[made, 1, 0] = b"".join(b"step %d\n" % at for at in range(100))
    return made


def write(world: World, job: int, *lines: str) -> None:
    world.printed.written[job, 1, 0] += "".join(f"{line}\n" for line in lines).encode()


async def read(screen: Screen) -> None:
    await screen.looks()
    await screen.press("l")
    await screen.shows("attempt 1, 100 lines", "step 99")


def test_the_end_is_followed_and_where_one_reads_stays(own: World, job: int) -> None:
    async def walk() -> None:
        async with opened(own.server, token=own.ann, view="running") as screen:
            await read(screen)
            write(own, job, "step 100")
            await screen.looks()
            await screen.shows("attempt 1, 101 lines", "step 100")
            await screen.press("pageup")
            await screen.until(lambda: "step 100" not in screen.text, "what was before")
            before = [line[:70].rstrip() for line in screen.lines[3:-2]]  # without the scroll bar
            write(own, job, "step 101")
            await screen.looks()
            await screen.shows("attempt 1, 102 lines")
            assert [line[:70].rstrip() for line in screen.lines[3:-2]] == before
            await screen.press("G")
            await screen.shows("step 101")

    played(walk())


def test_a_search_begins_at_the_end_and_goes_both_ways(own: World, job: int) -> None:
    async def walk() -> None:
        async with opened(own.server, token=own.ann, view="running") as screen:
            await read(screen)
            await screen.press("slash")
            await screen.shows("Search in the log")
            await screen.type("STEP 1")
            await screen.press("enter")
            await screen.shows("match 11 of 11", "step 19")
            await screen.press("n")
            await screen.shows("match 10 of 11")
            await screen.press("N", "N")
            await screen.shows("match 1 of 11", "step 1")
            await screen.press("slash", "ctrl+u")
            await screen.type("nowhere")
            await screen.press("enter")
            await screen.shows("nothing matches in these 100 lines")

    played(walk())


def test_of_lines_beyond_the_most_the_first_are_given_up(own: World, job: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.cli.top.jobs.LINES_MAX", 100)

    async def walk() -> None:
        async with opened(own.server, token=own.ann, view="running") as screen:
            await read(screen)
            await screen.press("g")
            await screen.press("j", "j", "j", "j", "j")
            await screen.until(lambda: screen.lines[3].startswith("step 5"), "the sixth line")
            write(own, job, "more", "and more")
            await screen.looks()
            await screen.shows("attempt 1, 100 lines")
            assert screen.lines[3].startswith("step 5")
            await screen.press("g")
            await screen.until(lambda: screen.lines[3].startswith("step 2"), "the first line that is left")

    played(walk())


def test_a_job_that_is_not_there_is_said_and_one_goes_back(own: World) -> None:
    async def walk() -> None:
        async with opened(own.server, token=own.ann) as screen:
            await screen.press("slash", "9", "9", "enter")
            await screen.shows("error: there is no job 99")
            await screen.press("escape")
            await screen.shows("no jobs wait")

    played(walk())
