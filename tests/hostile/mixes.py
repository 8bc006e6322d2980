"""Hostile jobs of one tenant, some at a time, beside a tenant whose jobs all have to end well and in time.

    python -m tests.hostile.mixes MIXES SEED

plays many mixes on one server, and prints a JSON line: what was lost, what was found, how late the lease was renewed.
"""

import json
import os
import random
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from penstock.client import Client
from penstock.engines.agent.lease import LeaseCell, boot_ms
from tests.hostile.deeds import DEEDS
from tests.server.harness import FINAL, Jobs, Server, cluster_file, until

USERS = [
    {"name": "ann", "account": "nobody", "tenants": {"quiet": "member"}},
    {"name": "eve", "account": "daemon", "tenants": {"loud": "member"}},
]
LEASE_MS = 7_000
"""Of the agent: that of the server, less the margin."""
SETTINGS = {"heartbeat": "500ms", "lease_ttl": "12s", "lease_margin": "5s"}
QUIET_JOBS = 6
PORT_TRIES = 5
"""Attempts of a gang, whose rendezvous port may be one that another program has taken."""
ARRAY = 200
AT_IT_S = 15.0
END_S = 120.0


class LeaseWatch:
    """Samples how long the lease of a node still lasts: renewed at each heartbeat, it is never below its half."""

    def __init__(self, cell: Path) -> None:
        self._cell = LeaseCell(cell)
        self.least_ms = LEASE_MS
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._end.wait(0.02):
            until_ms = self._cell.get()
            if until_ms is not None:
                self.least_ms = min(self.least_ms, until_ms - boot_ms())

    def close(self) -> int:
        self._end.set()
        self._thread.join()
        return self.least_ms


class Stage:
    """A server of root with a quiet and a loud user, and files that are none of the loud one's business."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.victim, self.other = folder / "victim", folder / "other"
        self.victim.mkdir(mode=0o700)
        (self.victim / "secret").write_text("SECRET of root")
        self.other.mkdir(mode=0o700)
        (self.other / "secret").write_text("SECRET of ann")
        for path in (self.other, self.other / "secret"):
            shutil.chown(path, "nobody")
        declared = cluster_file(1, 0, **SETTINGS)
        declared |= {"users": USERS, "tenants": [{"name": "quiet"}, {"name": "loud"}]}
        self.server = Server(folder / "data", declared)
        self.server.__enter__()
        self._clients: list[Client] = []
        self.ann, self.eve = self._of("ann"), self._of("eve")
        self.node = next((self.server.data.root / "nodes").iterdir())
        self._before = self._state()

    def _of(self, user: str) -> Jobs:
        made = self.server.client.create_token({"user": user})
        self._clients.append(Client.of(self.server.data.root, token=made.token))
        return Jobs(self._clients[-1])

    def _state(self) -> list[tuple[str, int, int, int, bytes]]:
        """Return what nobody may change: mode, owner and content of root's and of ann's files."""
        found = []
        for path in (self.victim, self.victim / "secret", self.other, self.other / "secret", self.server.data.root):
            about = path.lstat()
            content = path.read_bytes() if path.is_file() else b""
            found.append((str(path), about.st_mode, about.st_uid, about.st_gid, content))
        return found

    def play(self, names: list[str], *, array: bool = False, restart: bool = False) -> dict[str, Any]:
        """Let these deeds be done beside quiet jobs; return what came of it."""
        env = {"ROOT": str(self.server.data.root), "VICTIM": str(self.victim), "OTHER": str(self.other)}
        loud = [
            self.eve.submit(
                DEEDS[name].command, env=env, name=name, time_limit="60s", **{"cpus": 0.1, **DEEDS[name].fields}
            )
            for name in names
        ]
        watch = LeaseWatch(self.node / "lease")
        try:
            deadline_s = time.monotonic() + AT_IT_S  # what they do to each other is their own matter
            while time.monotonic() < deadline_s and not all(map(self._at_it, loud)):
                time.sleep(0.05)
            if array:
                made = self.eve.client.submit({"command": "true", "cpus": 0.01, "array": ARRAY}).jobs
                loud += [job.id for job in made]
            if restart:
                self._kill_worker()
            begun_s = time.monotonic()
            quiet = [self.ann.submit("echo SECRET; echo done", cpus=0.2) for _ in range(QUIET_JOBS)]
            quiet += [self.ann.submit("echo ok", cpus=0.1, setup=["echo prepared"]) for _ in range(2)]
            quiet.append(self.ann.submit("echo $RANK", cpus=0.1, replicas=2))
            until(lambda: all(self._state_of(job) in FINAL for job in quiet), "the quiet jobs end", END_S)
            took_s = time.monotonic() - begun_s
        finally:
            for job in loud[: len(names)]:
                self.eve.client.cancel(job)
            until(lambda: all(self._state_of(job) in FINAL for job in loud), "the loud jobs end", END_S)
            least_ms = watch.close()
        ends = [self.ann.client.job(job) for job in quiet]
        lost = [
            f"{job.id}: {job.state}, attempt {job.attempt}, {job.reason}"
            for job in ends
            if job.state != "succeeded" or job.attempt > (1 if job.replicas == 1 else PORT_TRIES)
        ]
        told = [line for job in loud[: len(names)] for line in self._said(job) if line.startswith(("FOUND", "WROTE"))]
        after = self._state()
        changed = [str(pair) for pair in zip(self._before, after, strict=True) if pair[0] != pair[1]]
        return {"lost": lost, "told": told, "changed": changed, "least_ms": least_ms, "took_s": round(took_s, 1)}

    def _at_it(self, job: int) -> bool:
        """It says so; of what prints without end the beginning may be gone."""
        said = self._said(job)
        return self._state_of(job) in FINAL or "ready" in said or sum(map(len, said)) > 4096

    def _state_of(self, job: int) -> str:
        return self.server.client.job(job).state

    def _said(self, job: int) -> list[str]:
        try:
            text = self.server.http("GET", f"/api/v1/jobs/{job}/logs?attempt=1&limit=65536").body
        except OSError:
            return []
        return text.decode(errors="replace").splitlines()

    def _kill_worker(self) -> None:
        """Kill the node's worker: the next one finds what the accounts have left."""
        guardian = (self.node / "agent.pid").read_text().strip()
        children = Path(f"/proc/{guardian}/task/{guardian}/children").read_text().split()
        for pid in children[:1]:
            os.kill(int(pid), 9)

    def close(self) -> None:
        for client in self._clients:
            client.close()
        self.server.close()


@contextmanager
def stage() -> Iterator[Stage]:
    folder = Path(tempfile.mkdtemp(prefix="penstock-hostile-"))
    folder.chmod(0o711)
    made = None
    try:
        made = Stage(folder)
        yield made
    finally:
        if made is not None:
            made.close()
        shutil.rmtree(folder, ignore_errors=True)


def faults(found: dict[str, Any]) -> list[str]:
    """Return what should not have come of a mix."""
    late = [f"the lease had {found['least_ms']} ms left"] if found["least_ms"] < LEASE_MS // 2 else []
    return [*found["lost"], *found["told"], *found["changed"], *late]


def main(mixes: int, seed: int) -> None:
    rng = random.Random(seed)
    bad, least_ms, took = [], LEASE_MS, []
    with stage() as played:
        for number in range(mixes):
            names = rng.sample(sorted(DEEDS), rng.randint(1, 4))
            found = played.play(names, array=rng.random() < 0.2, restart=rng.random() < 0.2)
            least_ms, took = min(least_ms, found["least_ms"]), [*took, found["took_s"]]
            if wrong := faults(found):
                bad.append({"mix": number, "deeds": names, "faults": wrong[:5]})
                print(json.dumps(bad[-1]), (played.node / "agent.log").read_text()[-2_000:], flush=True)
            print(
                f"{number + 1} of {mixes}: {found['took_s']} s, lease {found['least_ms']} ms, {names}",
                file=sys.stderr,
                flush=True,
            )
    print(
        json.dumps(
            {
                "mixes": mixes,
                "seed": seed,
                "bad": len(bad),
                "least_lease_ms": least_ms,
                "half_lease_ms": LEASE_MS // 2,
                "slowest_s": max(took),
            }
        )
    )


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
