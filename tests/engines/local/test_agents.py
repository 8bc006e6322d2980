"""The agents of a server's own nodes: each is started once, and again when it has died."""

import asyncio
import contextlib
import os
import signal

import pytest

from penstock import starts
from penstock.engines.local import agents as local
from penstock.engines.local.launch import agent_pid
from penstock.engines.processes.paths import DataFolder
from penstock.testing.builders import node
from tests.server.harness import MARK, started_for, sweep

WAIT_S = 20


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.setenv(MARK, str(tmp_path.resolve()))  # of the agents, too: they can be found by it
    yield DataFolder(tmp_path)
    sweep(tmp_path)


@pytest.fixture
def begun(monkeypatch):
    """The starts of agents, noted as they really happen."""
    noted, begin = [], starts.begin

    def note(*words, **named):
        noted.append(words)
        return begin(*words, **named)

    monkeypatch.setattr(starts, "begin", note)
    monkeypatch.setattr(local, "CHECK_S", 0.005)
    return noted


async def kept(agents, *steps):
    """Keep the agents while each step waits for its condition."""
    keeper = asyncio.create_task(agents.keep())
    try:
        async with asyncio.timeout(WAIT_S):
            for step in steps:
                while not step():
                    await asyncio.sleep(0)
    finally:
        keeper.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await keeper


def test_an_agent_that_is_still_starting_is_not_started_again(data, begun):
    agents = local.LocalAgents(data, [node("n1"), node("n2")], respawn=True)
    asyncio.run(kept(agents, lambda: all(agent_pid(data, name) for name in ("n1", "n2"))))
    assert len(begun) == 2


def test_others_have_their_turn_between_the_starts_of_many_agents(data, begun):
    agents = local.LocalAgents(data, [node(f"n{i}") for i in range(4)], respawn=False)
    seen = []
    asyncio.run(kept(agents, lambda: seen.append(len(begun)) or len(begun) == 4))
    assert {1, 2, 3} <= set(seen)


def test_an_agent_that_has_died_is_started_again(data, begun):
    agents = local.LocalAgents(data, [node("n1")], respawn=True)

    def kill():
        if len(begun) == 1 and (agent_pid(data, "n1") or -1) > 0:
            for pid in started_for(data.root):
                if pid != os.getpid():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
        return len(begun) == 2

    asyncio.run(kept(agents, kill, lambda: (agent_pid(data, "n1") or -1) > 0))
    assert len(begun) == 2
