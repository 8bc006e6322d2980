"""Lets the writes and forks of an agent's worker and guardian fail while jobs run: none is lost, none runs twice.

`python -m tests.engines.agent.faulty RUNS [SEED]` plays as many rounds on one agent after the other, and says what was
refused where.
"""

import argparse
import contextlib
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from penstock.engines.local.launch import agent_pid
from penstock.engines.processes import procfs
from tests.engines.agent.overlap import Witness
from tests.server import harness
from tests.server.harness import Jobs, Server, cluster_file, until

FAULTS = Path(__file__).with_name("faults")
DISK = ("ENOSPC", "EDQUOT", "EIO", "EROFS")
WRITING = ("write", "pwrite", "open", "rename", "mkdir", "chmod", "ftruncate", "fsync", "posix_fallocate")
KINDS: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("write",), (*DISK, "short")),
    (WRITING, (*DISK, "short")),
    ((*WRITING, "unlink", "rmdir", "replace"), ("EIO", "EROFS")),
    (("open", "pipe", "memfd_create", "posix_spawn"), ("EMFILE", "ENFILE")),
    (("fork", "posix_spawn", "execve"), ("EAGAIN", "ENOMEM")),
    ((*WRITING, "fork", "posix_spawn", "execve", "pipe", "memfd_create"), ("ENOMEM", "memory")),
)
ALERT_S = 60
ROUNDS_OF_ONE = 50
"""On one agent, before another is started."""


class Round(NamedTuple):
    """What fails while jobs run, and who is killed meanwhile."""

    calls: tuple[str, ...]
    errors: tuple[str, ...]
    rate: float
    killed: str
    for_s: float

    @classmethod
    def of(cls, seed: int) -> "Round":
        """Return the round of a seed: each kind of fault in turn, each of its errors alone or all of them."""
        rng = random.Random(seed)
        calls, errors = KINDS[seed % len(KINDS)]
        some = rng.choice((errors, (rng.choice(errors),)))
        killed = rng.choice(("", "", "worker", "guardian"))
        return cls(calls, some, rng.choice((0.1, 0.5, 1.0)), killed, rng.choice((0.3, 1.0, 2.0)))

    @property
    def alerts(self) -> bool:
        """Whether no line of the journal can be written, while there is a worker to say so."""
        return "write" in self.calls and self.rate == 1.0 and "short" not in self.errors and not self.killed


class FaultyServer(Server):
    """A server with one node, whose agent fails as told; its files and what the jobs note lie elsewhere."""

    anew = True

    def __init__(self, root: Path) -> None:
        settings = {"node_strikes_max": 0, "lease_ttl": "20s", "lease_margin": "4s"}
        super().__init__(root / "server", cluster_file(1, 0, **settings))
        self.plan, self.refused, self.witness = root / "plan", root / "refused", Witness(root / "witness")

    def start(self) -> None:
        sources = f"{FAULTS}{os.pathsep}{harness.SOURCES}"
        with patch.object(harness, "SOURCES", sources), patch.dict(os.environ, {"FAULTS_PLAN": str(self.plan)}):
            super().start()

    @contextlib.contextmanager
    def failing(self, seed: int, wanted: Round) -> Iterator[None]:
        plan = {"seed": seed, "calls": wanted.calls, "errors": wanted.errors, "rate": wanted.rate}
        fresh = self.plan.with_suffix(".new")
        fresh.write_text(json.dumps(plan | {"log": str(self.refused)}))
        fresh.rename(self.plan)
        try:
            yield
        finally:
            self.plan.unlink()

    @property
    def guardian(self) -> int:
        return agent_pid(self.data, "n1") or -1

    def worker(self) -> int | None:
        guardian = self.guardian
        return next((p for p in procfs.all_pids() if procfs.parent_of(p) == guardian and _is_agent(p)), None)


def _is_agent(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return b"penstock.engines.agent.guardian" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def play(server: FaultyServer, seed: int) -> None:
    """Play a round. Raises: AssertionError."""
    wanted, jobs, witness = Round.of(seed), Jobs(server.client), server.witness
    rng = random.Random(f"{seed} jobs")
    before = [jobs.submit(witness.command(f"sleep {rng.choice((0.1, 0.5, 1.5))}"), cpus=0.1) for _ in range(3)]
    for job in before:
        jobs.state(job, "running", *harness.FINAL)
    guardian = server.guardian
    with server.failing(seed, wanted):
        during = [jobs.submit(witness.command("sleep 0.1"), cpus=0.1) for _ in range(2)]
        if wanted.killed == "worker" and (worker := server.worker()) is not None:
            os.kill(worker, signal.SIGKILL)
        elif wanted.killed == "guardian":
            os.kill(guardian, signal.SIGKILL)
        time.sleep(wanted.for_s)  # how long it lasts is a part of the round, and nothing waits for it
        if wanted.alerts:
            until(lambda: "node_disk" in [one.code for one in server.client.alerts()], "an alert", ALERT_S)
    for job in (*before, *during):
        ended = jobs.ended(job)
        assert ended.state == "succeeded", f"job {job} {ended.state}: {ended.reason}"
    until(lambda: not server.client.alerts(), "no alert is left", ALERT_S)
    assert witness.problems() == []
    assert server.guardian == guardian or wanted.killed == "guardian", "the guardian is another"
    assert server.guardian > 0


def main(words: list[str]) -> int:
    """Play rounds until one fails; return 1 then."""
    parser = argparse.ArgumentParser(prog="python -m tests.engines.agent.faulty", description=__doc__)
    parser.add_argument("runs", type=int)
    parser.add_argument("seed", type=int, nargs="?", default=0)
    asked = parser.parse_args(words)
    refused: Counter[str] = Counter()
    done, failed = 0, []
    while done < asked.runs:
        with tempfile.TemporaryDirectory(prefix="faulty-") as folder, FaultyServer(Path(folder)) as server:
            for seed in range(asked.seed + done, asked.seed + min(asked.runs, done + ROUNDS_OF_ONE)):
                done += 1
                try:
                    play(server, seed)
                except AssertionError as error:
                    failed.append(seed)
                    log = (server.data.node("n1") / "agent.log").read_text(errors="replace")
                    print(f"seed {seed} {Round.of(seed)}: {error}\n{log[-4_000:]}{server.log()}", flush=True)
                    break
            with contextlib.suppress(FileNotFoundError):
                refused.update(server.refused.read_text().splitlines())
        print(f"{done} rounds, {len(failed)} failed: {failed}", flush=True)
    for line, count in sorted(refused.items()):
        print(f"{count:6} {line}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
