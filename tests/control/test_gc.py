"""The collector leaves alone what is loaded, and what it has scanned at length."""

import subprocess
import sys

LOADED = """
import gc
from penstock.control import gc as collector
held = [[i] for i in range(1_000)]
collector.settle()
assert gc.get_freeze_count() >= 1_000
assert gc.get_threshold() == (collector.YOUNG_MAX, collector.YOUNG_COLLECTIONS, 10), gc.get_threshold()
"""
SCANNED = """
import gc
from penstock.control import gc as collector
collector.settle()
collector.LONG_S = {long_s}
before = gc.get_freeze_count()
held = [[i] for i in range(1_000)]
circle = []
circle.append(circle)
del circle
assert gc.collect() >= 1
assert gc.get_freeze_count() {comparison} before + 1_000, (before, gc.get_freeze_count())
"""


def run(program: str) -> None:
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_what_lives_at_the_start_is_left_out_of_collections() -> None:
    run(LOADED)


def test_what_a_long_collection_has_found_alive_is_left_out_of_the_next() -> None:
    run(SCANNED.format(long_s=0.0, comparison=">="))


def test_what_a_short_collection_has_found_alive_may_still_become_garbage() -> None:
    run(SCANNED.format(long_s=60.0, comparison="<"))
