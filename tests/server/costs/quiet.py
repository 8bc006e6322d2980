"""A tenant that uses the server as it is meant: it submits, looks at its jobs, and reads what it owes."""

import json
import time
from typing import Any, NamedTuple

from tests.server.costs.world import ANSWER_S, Sent, ask
from tests.server.harness import Answer

PAUSE_S = 0.1
JOB = {"pool": "aside", "cpus": 1, "grace": "5s", "name": "quiet"}
READS = ("/jobs", "/bill", "/me", "/nodes", "/queues")


class Asked(NamedTuple):
    what: str
    status: int
    seconds: float
    """Until the whole answer was there; where none came, as long as anybody waits for one."""


class Quiet:
    """Its answers, and the numbers of its jobs."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.answers: list[Asked] = []
        self.jobs: list[int] = []

    def run(self, seconds: float) -> None:
        """Go on for a while, at the pace of a person with a script."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.submit("sleep 0.3; echo done")
            for path in (*READS, *(f"/jobs/{job_id}" for job_id in self.jobs[-1:])):
                self._ask("read", Sent("GET", path))
            time.sleep(PAUSE_S)

    def submit(self, command: str) -> None:
        body = json.dumps({**JOB, "command": command}).encode()
        found = self._ask("submit", Sent("POST", "/jobs", body))
        if found.status == 201:
            self.jobs.append(int(found.json()["jobs"][0]["id"]))

    def job(self, job_id: int) -> dict[str, Any]:
        found = self._ask("read", Sent("GET", f"/jobs/{job_id}"))
        return dict(found.json()) if found.status == 200 else {"state": "unknown"}

    def refused(self) -> list[Asked]:
        """Return what was not answered well."""
        return [one for one in self.answers if one.status not in (200, 201)]

    def _ask(self, what: str, sent: Sent) -> Answer:
        begun = time.perf_counter()
        found = ask(self._port, sent, "quiet")
        taken = time.perf_counter() - begun if found.status else ANSWER_S
        self.answers.append(Asked(what, found.status, taken))
        return found
