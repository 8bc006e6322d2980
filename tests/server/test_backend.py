"""Replies come back to the event loop, each to whoever asked."""

import asyncio

from penstock.control import messages as msg
from penstock.server.backend import deliver_on


def test_whoever_cannot_take_a_reply_keeps_nobody_else_waiting(caplog):
    async def ask() -> msg.Reply:
        answered = asyncio.get_running_loop().create_future()

        def fail(reply: msg.Reply) -> None:
            raise ValueError("it is too long for this node")

        deliver_on(asyncio.get_running_loop())([(fail, msg.Done()), (answered.set_result, msg.Done())])
        return await asyncio.wait_for(answered, 5)

    assert asyncio.run(ask()) == msg.Done()
    assert "a reply could not be given" in caplog.text
