"""Names and log lines of others: shown as they are, never as markup or commands to the terminal."""

from tests.cli.test_foreign_text import COMMANDS, HOSTILE, SHOWN
from tests.cli.top.conftest import World
from tests.cli.top.stage import LARGE, Screen, opened, played

MARKUP = "[red]evil[/] [@click=app.exit]x[/] [link=http://a]"


def harmless(screen: Screen) -> None:
    for line in screen.lines:
        assert COMMANDS.search(line) is None, line


def links(screen: Screen) -> list[str]:
    """Return links and click actions in the styles of what is shown."""
    strips = screen.app.screen._compositor.render_strips()
    styles = [segment.style for strip in strips for segment in strip if segment.style is not None]
    return [str(style) for style in styles if style.link or "@click" in style.meta]


def test_names_and_log_lines_are_never_markup_or_commands(own: World) -> None:
    own.submit(name=MARKUP, devices=4, replicas=2)
    own.submit(name=HOSTILE, devices=4)
    own.printed.written[1, 1, 0] = f"{HOSTILE}\n{MARKUP}\nbar 1\rbar 2\r\n\x1b[1;31mred\x1b[0m\tend\n".encode()
    own.server.client.drain("n1", reason=HOSTILE)

    async def walk() -> None:
        async with opened(own.server, token=own.ann, size=LARGE) as screen:
            await screen.shows(SHOWN[:40])
            harmless(screen)
            for keys, seen in (
                (("enter",), "job 2"),
                (("escape", "c"), "Cancel job 2"),
                (("n", "2"), MARKUP),
                (("3",), "draining: " + SHOWN[:20]),
                (("4",), "who holds each"),
                (("2", "l"), "bar 2"),
            ):
                await screen.press(*keys)
                await screen.shows(seen)
                harmless(screen)
                assert [style for style in links(screen) if "footer" not in style] == []
            assert MARKUP in screen.text
            assert "bar 1" not in screen.text
            assert "red     end" in screen.text

    played(walk())


def test_an_error_with_hostile_words_is_shown_as_it_is(own: World) -> None:
    async def walk() -> None:
        async with opened(own.server, token=own.ann) as screen:
            await screen.press("slash")
            await screen.type("queue:[red]x[/]")
            await screen.press("enter")
            await screen.shows("error: ", "[red]x[/]")
            harmless(screen)

    played(walk())
