"""Clients that submit jobs whose programs prove from outside Penstock what happened to them."""

import contextlib
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from penstock.api.types import SubmitAnswer
from penstock.client import ApiProblem, Client, ServerNotRunning
from penstock.core.model.errors import PenstockError
from tests.crash.cluster import Cluster

ABANDON_PERCENT = 4
"""Share of requests that a client gives up at its first connection error: their jobs may exist or not."""
RETRY_S = 0.02

PROGRAM = """\
# usage: program FOLDER NUMBER KIND CODE SECONDS
ledger="$1/$2.$RANK"
exec 9>>"$1/lock.$2.$RANK"
flock -n 9 || { echo "$2.$RANK attempt $PENSTOCK_ATTEMPT" >> "$1/twice"; exit 125; }
echo "start $PENSTOCK_ATTEMPT $$" >> "$ledger"
case "$3" in
    deaf) trap '' TERM ;;
    leaves) setsid -f sleep 300; sleep 300 & ;;
esac
sleep "$5"
echo "end $PENSTOCK_ATTEMPT $4" >> "$ledger"
case "$3" in
    signal) kill "-$4" $$ ;;
    *) exit "$4" ;;
esac
"""
KINDS = ("plain", "plain", "leaves", "deaf", "signal", "gang")
SIGNALS = (9, 15, 6, 11)


class Job(msgspec.Struct, frozen=True):
    """One job of the load and the only way in which it may end."""

    number: int
    kind: str
    code: int
    seconds: float

    @classmethod
    def made(cls, number: int, seed: int) -> "Job":
        chosen = random.Random(f"{seed}/{number}")
        kind = chosen.choice(KINDS)
        code = {"signal": chosen.choice(SIGNALS), "gang": 0}.get(kind, number % 121)
        if kind == "plain" and number % 10 == 0:
            code = 128 + chosen.choice(SIGNALS)  # an exit code that only looks like a signal
        return cls(number, kind, code, round(chosen.uniform(0, 0.5), 3))

    @property
    def name(self) -> str:
        return f"j{self.number}"

    @property
    def replicas(self) -> int:
        return 2 if self.kind == "gang" else 1

    def outcome(self) -> tuple[str, int | None, int | None]:
        """Return the state, exit code and signal with which it must end."""
        if self.kind == "signal":
            return "failed", None, self.code
        return ("succeeded" if self.code == 0 else "failed"), self.code, None

    def request(self, folder: Path) -> dict[str, Any]:
        words = [str(folder), str(self.number), self.kind, str(self.code), f"{self.seconds}"]
        return {
            "name": self.name,
            "command": ["sh", str(folder / "program"), *words],
            "cpus": 4,
            "replicas": self.replicas,
            "grace": "1s",
        }


class Load:
    """Keeps about `target` jobs in flight until `finish`, from several threads.

    Attributes: `asked` (jobs by number), `accepted` (number to job id), `refused` (answers that were no acceptance),
    `in_flight` (jobs waiting and active as the server last said) and `seen_s` (when it said so).
    """

    def __init__(self, cluster: Cluster, *, seed: int, target: int, clients: int = 3) -> None:
        self._cluster, self._seed, self._target = cluster, seed, target
        self.folder = cluster.root.parent / "ledgers"
        self.folder.mkdir()
        (self.folder / "program").write_text(PROGRAM, encoding="utf-8")
        self.asked: dict[int, Job] = {}
        self.accepted: dict[int, int] = {}
        self.repeated = 0
        self.abandoned: set[int] = set()
        self.refused: list[str] = []
        self.in_flight, self.seen_s = 0, 0.0
        self._chance = random.Random(seed)
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._guarded, args=(self._submit,)) for _ in range(clients)]
        self._gauge = threading.Thread(target=self._guarded, args=(self._watch,))

    def start(self) -> None:
        for thread in [*self._threads, self._gauge]:
            thread.start()

    def finish(self, timeout_s: float = 60.0) -> None:
        """Let every client get its last answer. Raises AssertionError when one does not."""
        self._ending.set()
        for thread in self._threads:
            thread.join(timeout_s)
        alive = sum(t.is_alive() for t in self._threads)
        self.stop()
        assert not alive, f"{alive} clients got no answer"

    def stop(self) -> None:
        """End all threads, answered or not."""
        self._ending.set()
        self._stopping.set()
        for thread in [*self._threads, self._gauge]:
            if thread.ident is not None:
                thread.join(70)

    def _guarded(self, loop: Callable[[], None]) -> None:
        try:
            loop()
        except BaseException as error:
            self.refused.append(f"a client failed: {error!r}")
            raise

    def _submit(self) -> None:
        while not self._ending.is_set():
            if self.in_flight >= self._target:
                self._ending.wait(RETRY_S)
                continue
            with self._lock:
                number = len(self.asked) + 1
                job = self.asked[number] = Job.made(number, self._seed)
                patient = self._chance.randrange(100) >= ABANDON_PERCENT
                self.in_flight += 1
            self._ask(job, patient=patient)

    def _ask(self, job: Job, *, patient: bool) -> None:
        """Submit under one key until there is an answer; every second job is asked for twice."""
        request, key = job.request(self.folder), f"{self._seed}-{job.number}"
        while not self._stopping.is_set():
            try:
                first, again = self._cluster.ask(lambda c: self._twice(c, job, request, key))
            except ApiProblem as error:
                if error.details.status < 500:
                    self.refused.append(f"{job.name}: {error.details}")
                    return
            except (ServerNotRunning, PenstockError):
                if not patient:
                    self.abandoned.add(job.number)
                    return
            else:
                self._note(job, [*first.jobs, *again.jobs], repeated=first.repeated)
                return
            time.sleep(RETRY_S)

    def _twice(self, client: Client, job: Job, request: Any, key: str) -> tuple[SubmitAnswer, SubmitAnswer]:
        first = client.submit(request, idempotency_key=key)
        return first, client.submit(request, idempotency_key=key) if job.number % 2 else first

    def _note(self, job: Job, refs: list[Any], *, repeated: bool) -> None:
        ids = {ref.id for ref in refs}
        if len(ids) != 1:
            self.refused.append(f"{job.name} got the ids {sorted(ids)} under one key")
        with self._lock:
            self.accepted[job.number] = ids.pop()
            self.repeated += repeated

    def _watch(self) -> None:
        while not self._stopping.wait(0.03):
            with contextlib.suppress(PenstockError):
                shown = self._cluster.ask(Client.cluster)
                self.in_flight, self.seen_s = shown.jobs_waiting + shown.jobs_active, time.monotonic()
