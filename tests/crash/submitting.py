"""Submits jobs through a real controller and store. Run as `python -m tests.crash.submitting FOLDER MARKER [normal]`.

After each answer one write to MARKER lists the jobs answered. With `normal` the store syncs as SQLite's
`synchronous=NORMAL` does, which the product must not.
"""

import os
import sys
import time
from pathlib import Path

from penstock.control import messages as msg
from penstock.control.controller import Controller
from penstock.core.config.job import parse_request
from penstock.core.lifecycle.requests import Submit
from penstock.core.messages.requests import Submitted
from penstock.core.model.cluster import ClusterConfig, Settings
from penstock.core.model.ids import JobId, UserName
from penstock.store.sqlite import SqliteStore

SESSIONS = (30, 330, 40)
"""Groups of each life of the server; the long one fills the write-ahead log so that SQLite checkpoints it by itself."""
SNAPSHOT_EVERY = 45


class NormalStore(SqliteStore):
    """What the store would be with the setting that most programs use."""

    def _prepare(self) -> None:
        super()._prepare()
        self._writer.execute("PRAGMA synchronous=NORMAL")


class Clock:
    def unix_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


def submit(number: int) -> Submit:
    wanted = {"name": f"j{number}", "command": ["true"], "devices": 1}
    jobs, problems = parse_request(wanted | ({"array": 3} if number % 3 == 0 else {}))
    assert not problems
    return Submit(jobs, UserName("me"), f"key{number}", "digest")


def session(folder: Path, marker: int, groups: range, kind: type[SqliteStore]) -> None:
    """Live once: open, answer, keep a snapshot now and then, close."""
    store = kind(folder)
    controller = Controller(store, Clock(), name="here")
    controller.open(ClusterConfig(settings=Settings(allow_waiting_for_nodes=True)))
    for number in groups:
        group: list[msg.Request] = [submit(number)]
        if number % 4 == 0:
            group.append(msg.Cancel(JobId(number // 2 + 1), UserName("me")))
        answers = controller.handle(group).replies
        ids = [job_id for answer in answers if isinstance(answer, Submitted) for job_id in answer.job_ids]
        os.write(marker, " ".join(map(str, ids)).encode())
        if number % SNAPSHOT_EVERY == 0:
            store.save_snapshot(controller.state.image())
    store.close()


def main() -> None:
    folder, marker = Path(sys.argv[1]), os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT)
    kind = NormalStore if "normal" in sys.argv[3:] else SqliteStore
    begin = 1
    for count in SESSIONS:
        session(folder, marker, range(begin, begin + count), kind)
        begin += count


if __name__ == "__main__":
    main()
