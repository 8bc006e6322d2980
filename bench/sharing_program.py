"""A training of which each step computes on a device and then reads data: the device runs one step at a time.

Arguments: folder of the simulated devices, milliseconds of computing, milliseconds of reading. Holding the lock of a
device's file is having its processor: a step that computes for long makes the other program wait.
"""

import fcntl
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

FOLDER, COMPUTE_S, READ_S = Path(sys.argv[1]), int(sys.argv[2]) / 1000, int(sys.argv[3]) / 1000
REPORTS = Path(os.environ["PENSTOCK_REPORT_FILE"])
SAVED = FOLDER / f"step{os.environ['PENSTOCK_JOB_ID']}"
step = int(SAVED.read_text()) if SAVED.exists() else 0


def say(**entry: Any) -> None:
    with REPORTS.open("a") as file:
        file.write(json.dumps(entry) + "\n")


def save(*_: object) -> None:
    SAVED.write_text(str(step))
    say(kind="checkpoint", step=step)


def leave(*_: object) -> None:
    save()
    sys.exit(0)


signal.signal(signal.SIGUSR1, save)
signal.signal(signal.SIGTERM, leave)
if step:
    say(kind="resumed", step=step)
with (FOLDER / os.environ["PENSTOCK_DEVICES"]).open() as device:
    while True:
        fcntl.flock(device, fcntl.LOCK_EX)
        time.sleep(COMPUTE_S)
        fcntl.flock(device, fcntl.LOCK_UN)
        time.sleep(READ_S)
        step += 1
        say(kind="progress", step=step)
