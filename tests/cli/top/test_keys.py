"""Keys and the mouse: moving, opening, filtering, paging; what is selected stays selected."""

from tests.cli.top.conftest import World
from tests.cli.top.stage import LARGE, SMALL, opened, played

BELOW_HEADING = 4
"""The line of the first row."""


def test_the_cursor_moves_by_keys_and_stops_at_the_ends(world: World) -> None:
    async def walk() -> None:
        async with opened(world.server, token=world.ann) as screen:
            for key, job in (("j", "tune"), ("down", "wide"), ("k", "tune"), ("G", "later"), ("j", "later")):
                await screen.press(key)
                await screen.looks(1)
                assert job in screen.cursor
            await screen.press("g", "up", "pagedown")
            assert "later" in screen.cursor

    played(walk())


def test_views_open_by_number_by_tab_and_by_a_click(world: World) -> None:
    async def walk() -> None:
        async with opened(world.server, token=world.ann) as screen:
            await screen.press("tab")
            await screen.shows("2 running")
            await screen.press("shift+tab")
            await screen.shows("12 waiting, in 4 rows")
            await screen.click(screen.lines[2].index("Nodes"), 2)
            await screen.shows("n3    ready, draining: new disk")

    played(walk())


def test_a_click_selects_a_row_and_a_second_one_opens_it(world: World) -> None:
    async def walk() -> None:
        async with opened(world.server, token=world.ann, view="running") as screen:
            await screen.looks()
            await screen.click(3, BELOW_HEADING + 1)
            await screen.until(lambda: "pretrain" in screen.cursor, "the cursor on the row")
            await screen.click(3, BELOW_HEADING + 1)
            await screen.shows("job 1 pretrain  running", "attempt 1 is running on n1")
            await screen.press("escape")
            await screen.shows("2 running")

    played(walk())


def test_an_array_opens_as_its_members_and_closes_again(world: World) -> None:
    async def walk() -> None:
        async with opened(world.server, token=world.ann) as screen:
            await screen.looks()
            await screen.press("j", "enter")
            await screen.shows("tune[8]", "filter array:3: 9 waiting")
            await screen.press("escape")
            await screen.shows("12 waiting, in 4 rows")

    played(walk())


def test_a_device_leads_to_the_job_that_holds_it(world: World) -> None:
    async def walk() -> None:
        async with opened(world.server, token=world.ann, view="devices") as screen:
            await screen.looks()
            await screen.press("j", "enter")
            await screen.shows("node n2", "held by job 12")
            await screen.press("enter")
            await screen.shows("job 12 urgent-eval  running")

    played(walk())


def test_a_filter_is_text_or_conditions_and_a_number_is_a_job(world: World) -> None:
    async def walk() -> None:
        async with opened(world.server, token=world.ann) as screen:
            for typed, seen in (
                ("user:ben tenant:vision", "10 waiting"),
                ("WIDE", "1 waiting"),
                ("name:*x*", "no jobs wait"),
            ):
                await screen.press("slash")
                await screen.shows("Filter of Queue")
                await screen.press("ctrl+u")
                await screen.type(typed)
                await screen.press("enter")
                await screen.shows(f"filter {typed}: {seen}", "Alerts   filtered")
            await screen.press("slash", "ctrl+u", "1", "2", "enter")
            await screen.shows("job 12 urgent-eval")

    played(walk())


def test_a_filter_that_cannot_be_read_is_named_and_can_be_mended(world: World) -> None:
    async def walk() -> None:
        async with opened(world.server, token=world.ann) as screen:
            await screen.press("slash")
            await screen.type("usr:ann")
            await screen.press("enter")
            await screen.shows("error: the filter has 'usr:', expected one of name, user,", "did you mean 'user'?")
            await screen.press("escape")
            await screen.shows("12 waiting, in 4 rows")

    played(walk())


def test_nodes_are_filtered_by_the_server(world: World) -> None:
    async def walk() -> None:
        async with opened(world.server, token=world.ann, view="nodes") as screen:
            await screen.press("slash")
            await screen.type("n2")
            await screen.press("enter")
            await screen.shows("1 node: 1 ready; SIM-80G 4 of 4 held")
            assert "n1 " not in screen.text

    played(walk())


def test_of_many_jobs_one_page_is_asked_for_and_the_cursor_leads_to_the_next(own: World) -> None:
    own.submit(name="first", devices=4)
    own.submit(name="many", devices=4, array=300)

    async def walk() -> None:
        async with opened(own.server, token=own.ann) as screen:
            await screen.press("slash")
            await screen.type("array:2")
            await screen.press("enter")
            await screen.shows("rows 1-100; 299 waiting")
            await screen.press("G")
            assert "many[100]" in screen.cursor
            await screen.press("j")
            await screen.shows("rows 101-200; 299 waiting")
            assert "many[101]" in screen.cursor
            await screen.press("k")
            await screen.shows("rows 1-100; 299 waiting")
            assert "many[100]" in screen.cursor

    played(walk())


def test_the_selected_job_stays_selected_on_its_line_when_others_come_before_it(own: World) -> None:
    own.submit(name="runs", devices=4, replicas=2)
    for number in range(40):
        own.submit(name=f"waits-{number}", devices=4)

    async def walk() -> None:
        async with opened(own.server, token=own.ann) as screen:
            await screen.looks()
            await screen.press(*("j" for _ in range(25)))
            selected, line = screen.cursor, screen.lines.index(next(one for one in screen.lines if "waits-25" in one))
            for number in range(3):
                own.submit(name=f"urgent-{number}", devices=4, priority=600)
            await screen.looks()
            assert "waits-25" in selected
            assert "waits-25" in screen.cursor
            assert "waits-25" in screen.lines[line]

    played(walk())


def test_a_selected_job_that_leaves_the_list_stays_under_the_cursor_until_it_moves(own: World) -> None:
    own.submit(name="runs", devices=4, replicas=2)
    jobs = [own.submit(name=f"waits-{number}", devices=4) for number in range(4)]

    async def walk() -> None:
        async with opened(own.server, token=own.ann) as screen:
            await screen.looks()
            await screen.press("j")
            own.server.client.cancel(jobs[1])
            own.server.settle()
            await screen.looks()
            await screen.shows("3 waiting")
            assert "waits-1" in screen.cursor
            await screen.press("j")
            assert "waits-2" in screen.cursor
            assert "waits-1" not in screen.text

    played(walk())


def test_resizing_keeps_the_place(own: World) -> None:
    own.submit(name="runs", devices=4, replicas=2)
    own.submit(name="waits", devices=4, array=60)

    async def walk() -> None:
        async with opened(own.server, token=own.ann, size=LARGE) as screen:
            await screen.press("slash")
            await screen.type("array:2")
            await screen.press("enter")
            await screen.shows("60 waiting")
            await screen.press(*("j" for _ in range(35)))
            for size in (SMALL, (60, 12), LARGE):
                await screen.resize(size)
                await screen.looks()
                assert "waits[35]" in screen.cursor
                assert len(screen.lines) == size[1]

    played(walk())


def test_help_opens_over_any_page_and_keys_of_actions_do_nothing_below_it(world: World) -> None:
    async def walk() -> None:
        async with opened(world.server, token=world.ann) as screen:
            await screen.press("question_mark")
            await screen.shows("struck through")
            await screen.press("c")
            await screen.looks()
            assert "Cancel job" not in screen.text
            await screen.press("escape")
            await screen.until(lambda: "struck through" not in screen.text, "the list")

    played(walk())


def test_orders_are_the_servers_and_the_filter_stays(own: World) -> None:
    own.submit(name="runs", devices=4, replicas=2)
    own.submit(name="low", devices=4, priority="low")
    own.submit(name="high", devices=4, priority="high", replicas=2)

    async def walk() -> None:
        async with opened(own.server, token=own.ann) as screen:
            await screen.shows("by priority")
            await screen.press("slash")
            await screen.type("user:ann")
            await screen.press("enter")
            for order, first in (
                ("by priority", "high"),
                ("next to start first", "low"),
                ("longest waiting first", "low"),
                ("most devices first", "high"),
            ):
                await screen.shows(f"filter user:ann: 2 waiting; {order}")
                await screen.looks(1)
                assert f" {first} " in screen.cursor
                await screen.press("s")
            await screen.press("3", "s")
            await screen.shows("2 nodes: 2 ready", "most free first")

    played(walk())


def test_your_jobs_that_have_ended_are_shown_when_asked_for(own: World) -> None:
    own.submit(name="short", command="exit 3")
    own.server.advance(30)

    async def walk() -> None:
        async with opened(own.server, token=own.ann, view="mine") as screen:
            await screen.shows("you have no live jobs")
            await screen.press("a")
            await screen.shows("short", "failed", "then those that have ended")
            await screen.press("a")
            await screen.shows("you have no live jobs")
            await screen.press("1", "a")
            await screen.shows("ended jobs are listed with your own: 5, then a")

    played(walk())


def test_what_is_wider_than_the_screen_is_marked_and_can_be_moved_to(own: World) -> None:
    async def walk() -> None:
        async with opened(own.server, token=own.ann, view="devices", size=(30, 12)) as screen:
            await screen.shows("n1    4 free  │ . │ . │ . │ .›")
            await screen.press("right")
            await screen.until(lambda: screen.lines[BELOW_HEADING].endswith("│ . │ . │"), "the last device")
            await screen.press("left")
            await screen.shows("n1    4 free  │ . │ . │ . │ .›")

    played(walk())
