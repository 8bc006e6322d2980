"""The server's own main with clocks in it: what a request costs, and for how long it keeps which thread.

Started by `python -P probe.py OPTIONS`, with the ends of two pipes as file descriptors in PENSTOCK_PROBE. Each line
that comes in asks for what was measured since the line before; the answer is one line of JSON. All clocks count CPU
time, so that other load on the machine changes little.

Event loops are asyncio's own here, in place of uvloop's: their callbacks can be measured, and cost the same Python.
"""

import asyncio
import json
import os
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import uvloop

from penstock import wire
from penstock.control.inbox import Inbox

BEAT_S = 0.005


class Meter:
    """The longest piece of work of each thread, since it was last asked."""

    def __init__(self) -> None:
        self._longest: dict[str, float] = {}
        self._what: dict[str, str] = {}

    def note(self, kind: str, seconds: float, what: str = "") -> None:
        if seconds > self._longest.get(kind, 0.0):
            self._longest[kind], self._what[kind] = seconds, what

    def read(self) -> dict[str, Any]:
        longest, what = self._longest, self._what
        self._longest, self._what = {}, {}
        return {"longest_ms": {k: round(s * 1000, 1) for k, s in longest.items()}, "what": what}


def measure_callbacks(meter: Meter) -> None:
    """Note the CPU time of every callback of every event loop, by its thread."""
    run = asyncio.events.Handle._run

    def measured(handle: asyncio.events.Handle) -> None:
        begun = time.thread_time()
        try:
            run(handle)
        finally:
            kind, taken = f"loop {threading.current_thread().name}", time.thread_time() - begun
            meter.note(kind, taken, _named(handle))

    asyncio.events.Handle._run = measured  # type: ignore[method-assign]


def _named(handle: asyncio.events.Handle) -> str:
    """Return what a callback is called. Not its text: that would show results of any size."""
    callback = handle._callback
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        return str(getattr(owner.get_coro(), "__qualname__", ""))
    return str(getattr(callback, "__qualname__", ""))


def measure_control(meter: Meter) -> None:
    """Note the CPU time of the control thread from one look into its inbox to the next."""
    collect = Inbox.collect
    last = [0.0]

    def measured(inbox: Inbox, wait_s: float) -> Any:
        if last[0]:
            meter.note("control", time.thread_time() - last[0])
        try:
            return collect(inbox, wait_s)
        finally:
            last[0] = time.thread_time()

    Inbox.collect = measured  # type: ignore[method-assign]


def measure_pauses(meter: Meter) -> None:
    """Note for how much CPU time of the process a thread that only wakes up again and again could not do so.

    Nothing of Python runs meanwhile: one call of a library held the interpreter's lock.
    """

    def beat() -> None:
        last = time.process_time()
        while True:
            time.sleep(BEAT_S)
            now = time.process_time()
            meter.note("pause", now - last)
            last = now

    threading.Thread(target=beat, name="probe-beat", daemon=True).start()


def answer(meter: Meter, asked: int, told: int) -> None:
    """Answer questions until nobody can ask any more."""

    def talk() -> None:
        with os.fdopen(asked) as questions, os.fdopen(told, "w") as answers:
            for _ in questions:
                found = {"cpu_s": time.process_time(), "threads": threading.active_count(), **meter.read()}
                answers.write(json.dumps(found) + "\n")
                answers.flush()

    threading.Thread(target=talk, name="probe", daemon=True).start()


def plain_loops() -> None:
    """Let asyncio's loops stand for uvloop's, wherever one is made."""

    def run(main: Coroutine[Any, Any, Any], *, loop_factory: Callable[[], Any] | None = None, **_: Any) -> Any:
        with asyncio.Runner(loop_factory=loop_factory or asyncio.new_event_loop) as runner:
            return runner.run(main)

    uvloop.run = run
    uvloop.new_event_loop = asyncio.new_event_loop
    uvloop.Loop = asyncio.SelectorEventLoop  # type: ignore[misc]


def main() -> None:
    asked, told = (int(end) for end in os.environ.pop("PENSTOCK_PROBE").split(","))
    for end in (asked, told):
        os.set_inheritable(end, False)
    meter = Meter()
    plain_loops()
    measure_callbacks(meter)
    measure_control(meter)
    measure_pauses(meter)
    answer(meter, asked, told)
    wire.main()


if __name__ == "__main__":
    main()
