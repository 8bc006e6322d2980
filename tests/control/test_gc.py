"""The collector leaves what is loaded alone."""

import subprocess
import sys

PROGRAM = """
import gc
from penstock.control import gc as collector
held = [[i] for i in range(1_000)]
collector.settle()
assert gc.get_freeze_count() >= 1_000
assert gc.get_threshold() == (collector.YOUNG_MAX, collector.YOUNG_COLLECTIONS, 10), gc.get_threshold()
"""


def test_what_lives_at_the_start_is_left_out_of_collections():
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=60)
