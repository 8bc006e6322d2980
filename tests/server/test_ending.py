"""A server that is asked to end does so, whatever is still being worked out."""

import asyncio
import time

from penstock.bootstrap import say_why
from tests.server.harness import Jobs, Server, cluster_file, until

END_S = 10.0


def test_a_provider_that_takes_its_time_does_not_hold_up_the_end(tmp_path):
    said = tmp_path / "asked"
    declared = cluster_file(1)
    declared["settings"] |= {"scale_command": f"touch {said}; sleep 45", "scale_after": "0s"}
    declared["settings"]["allow_waiting_for_nodes"] = True
    with Server(tmp_path / "data", declared) as server:
        Jobs(server.client).submit("true", devices=8)
        until(said.exists, "the provider is asked")
        server.hang_up()
        begin = time.monotonic()
        server.process.terminate()
        server.process.wait(30)
        assert (server.process.returncode, time.monotonic() - begin < END_S) == (0, True)


def test_what_was_to_go_on_and_ends_by_a_fault_says_so(caplog):
    async def fail() -> None:
        raise ValueError("never thought of")

    async def keep() -> None:
        task = asyncio.create_task(fail())
        task.add_done_callback(say_why)
        await asyncio.wait([task])

    asyncio.run(keep())
    assert "never thought of" in caplog.text
