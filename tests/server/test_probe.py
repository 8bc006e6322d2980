"""The probe of the cost test sees work wherever it is done; a probe that sees nothing would let everything pass."""

import json
import os
import subprocess
import sys

from tests.server.costs.world import PROBE
from tests.server.harness import SOURCES

WORK_MS = 200
PROGRAM = f"""
import asyncio, json, runpy, sys, threading, time

probe = runpy.run_path({str(PROBE)!r})
meter = probe["Meter"]()
probe["plain_loops"]()
probe["measure_callbacks"](meter)
probe["measure_pauses"](meter)
import uvloop

def work():
    ending = time.thread_time() + {WORK_MS} / 1000
    while time.thread_time() < ending:
        pass

async def main():
    work()
    await asyncio.sleep(0)

def of_agents():
    loop = uvloop.new_event_loop()
    loop.run_until_complete(main())
    loop.close()

uvloop.run(main())
thread = threading.Thread(target=of_agents, name="agents")
thread.start()
thread.join()
unpaused = meter.read()
sum(range(3 * 10**7))
time.sleep(0.05)
print(json.dumps([unpaused, meter.read()]))
"""


def test_the_probe_sees_the_longest_callback_of_each_loop_and_who_it_was():
    unpaused, _ = _probed()
    longest, what = unpaused["longest_ms"], unpaused["what"]
    assert longest["loop MainThread"] >= WORK_MS
    assert longest["loop agents"] >= WORK_MS
    assert (what["loop MainThread"], what["loop agents"]) == ("main", "main")


def test_the_probe_sees_a_call_that_lets_nobody_else_run_and_tells_it_from_mere_work():
    unpaused, paused = _probed()
    assert paused["longest_ms"]["pause"] > 2 * unpaused["longest_ms"]["pause"]


def _probed() -> list[dict]:
    done = subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM],
        env=os.environ | {"PYTHONPATH": SOURCES},
        capture_output=True,
        timeout=60,
        check=True,
    )
    found: list[dict] = json.loads(done.stdout)
    return found
