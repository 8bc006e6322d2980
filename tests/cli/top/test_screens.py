"""What is seen in each view, at 80x24 and 200x50: compared with the screens kept beside this file.

`PENSTOCK_SCREENS=write` writes them anew: look at the difference before you commit it.
"""

import os
from pathlib import Path

import pytest

from tests.cli.top.conftest import World
from tests.cli.top.stage import LARGE, SMALL, Screen, opened, played

SCREENS = Path(__file__).parent / "screens"
WALK = (
    ("queue", (), "wide"),
    ("help", ("question_mark",), "struck through"),
    ("cancel", ("escape", "c"), "Cancel job"),
    ("running", ("escape", "2"), "pretrain"),
    ("nodes", ("3",), "draining"),
    ("devices", ("4",), "who holds each"),
    ("node", ("enter",), "SIM-80G"),
    ("mine", ("escape", "5"), "live of yours"),
    ("alerts", ("6",), "alert "),
    ("alert", ("enter",), "to resolve it"),
    ("explain", ("escape", "1", "down", "down", "e"), "no latest start"),
    ("job", ("i",), "command"),
    ("log", ("l",), "epoch 29"),
    ("filter", ("escape", "slash"), "Filter of Queue"),
)
"""Screen by screen: its name, the keys that lead to it, and what is seen once it is there."""


def compared(name: str, screen: Screen, size: tuple[int, int]) -> None:
    path = SCREENS / f"{name}-{size[0]}x{size[1]}.txt"
    if os.environ.get("PENSTOCK_SCREENS") == "write":
        path.write_text(screen.text + "\n", encoding="utf-8")
    assert screen.text + "\n" == path.read_text(encoding="utf-8"), f"{path.name} is another one"


@pytest.mark.parametrize("size", [SMALL, LARGE], ids=["80x24", "200x50"])
def test_each_view_is_seen_as_it_was_looked_at(world: World, utc: None, size: tuple[int, int]) -> None:
    job = next(one.id for one in world.client().jobs(name="wide").jobs)
    world.printed.written[job, 1, 0] = b"".join(b"epoch %d loss %.3f\n" % (at, 2 / (at + 1)) for at in range(30))

    async def walk() -> None:
        async with opened(world.server, token=world.ann, size=size) as screen:
            for name, keys, seen in WALK:
                await screen.press(*keys)
                await screen.shows(seen)
                await screen.looks()
                compared(name, screen, size)
                assert all(len(line) <= size[0] for line in screen.lines)

    played(walk())
