"""Periodic work of the server, which goes on after failures."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import NoReturn

log = logging.getLogger(__name__)


async def repeat(look: Callable[[], Awaitable[None]], what: str, every_s: float, share: int = 0) -> NoReturn:
    """Look, pause, look again until cancelled. A look that fails is logged: the next finds the same again.

    Args:
        what: for the log, such as `the books`.
        share: a pause is this many times as long as the look before it, at least: it never keeps a processor busy.
    """
    while True:
        begun = time.monotonic()
        try:
            await look()
        except Exception as error:  # noqa: BLE001 - the top of a loop
            log.warning("%s: not looked at", what, extra={"error": repr(error)})
        await asyncio.sleep(max(every_s, share * (time.monotonic() - begun)))
