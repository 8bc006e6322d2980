"""The API server for tests in a process of its own, with kubelets and a Job controller that keep pace with a benchmark.

`python -m bench.kubernetes_api` prints its address and runs until its standard input ends. Kubelets run what is bound;
a pod with the annotation `RUN_ANNOTATION` succeeds after so many seconds. They hear of each change instead of looking
at everything in turns, as those of the simulator do.
"""

import asyncio
import contextlib
import heapq
import sys
import time
from collections.abc import Iterator
from typing import Any

from penstock.sim.apiserver.controllers import Controllers, let_run
from penstock.sim.apiserver.refusals import Refused
from penstock.sim.apiserver.selecting import Object
from penstock.sim.apiserver.store import Change, Key, Store, merged
from penstock.testing.kubernetes.server import ApiServer

RUN_ANNOTATION = "bench.penstock.dev/run-s"
TICK_S = 0.005
STEPS_MAX = 200
"""Of each kind in one tick: requests are answered in between."""


class Jobs(Controllers):
    """The Job controller: looks at the Jobs that have changed, and of each at its own pods."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._pods_of: dict[str, dict[Key, Object]] = {}
        self._changed: dict[Key, None] = {}
        self._looked_at = ""

    def hear(self, change: Change) -> None:
        meta = change.new["metadata"]
        if change.kind.plural == "jobs":
            self._changed[meta["namespace"], meta["name"]] = None
        for owner in meta.get("ownerReferences") or () if change.kind.plural == "pods" else ():
            pods = self._pods_of.setdefault(owner["uid"], {})
            pods[meta["namespace"], meta["name"]] = change.new
            if change.type == "DELETED":
                del pods[meta["namespace"], meta["name"]]
            self._changed[meta["namespace"], owner["name"]] = None

    def reconcile(self) -> None:
        for key in list(self._changed)[:STEPS_MAX]:
            del self._changed[key]
            job = self._store.all_of("jobs").get(key)
            if job is not None:
                self._looked_at = job["metadata"]["uid"]
                self._job(key, job)

    def _all(self, plural: str) -> Iterator[Object]:
        yield from list(self._pods_of.get(self._looked_at, {}).values())


class Kubelets:
    """All kubelets: run what is bound, end what has run long enough, let go of what is deleted."""

    def __init__(self, store: Store) -> None:
        self._store, self._kind = store, store.kind("", "pods")
        self._due: dict[Key, None] = {}
        self._ends: list[tuple[float, Key, str]] = []

    def hear(self, change: Change) -> None:
        if change.kind is self._kind and change.type != "DELETED" and change.new["spec"].get("nodeName"):
            meta = change.new["metadata"]
            if change.new["status"]["phase"] == "Pending" or meta.get("deletionTimestamp"):
                self._due[meta["namespace"], meta["name"]] = None

    def reconcile(self, now_s: float) -> None:
        for key in list(self._due)[:STEPS_MAX]:
            del self._due[key]
            pod = self._store.all_of("pods").get(key)
            if pod is not None:
                self._step(key, pod, now_s)
        while self._ends and self._ends[0][0] <= now_s:
            _, key, uid = heapq.heappop(self._ends)
            pod = self._store.all_of("pods").get(key)
            if pod is not None and pod["metadata"]["uid"] == uid and pod["status"]["phase"] == "Running":
                ended = {"name": "main", "state": {"terminated": {"exitCode": 0}}}
                self._set(key, phase="Succeeded", containerStatuses=[ended])

    def _step(self, key: Key, pod: Object, now_s: float) -> None:
        meta = pod["metadata"]
        if meta.get("deletionTimestamp"):
            with contextlib.suppress(Refused):
                self._store.delete(self._kind, key, 0)
        elif pod["status"]["phase"] == "Pending":
            let_run(self._store, key)
            run_s = (meta.get("annotations") or {}).get(RUN_ANNOTATION)
            if run_s is not None:
                heapq.heappush(self._ends, (now_s + float(run_s), key, meta["uid"]))

    def _set(self, key: Key, **status: Any) -> None:
        self._store.update(self._kind, key, lambda one: merged(one, {"status": status}), part="status")


async def serve() -> None:
    async with ApiServer() as api:
        jobs, kubelets = Jobs(api.store), Kubelets(api.store)
        api.store.listeners += [jobs.hear, kubelets.hear]
        print(api.url, flush=True)
        ended = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
        while not ended.done():
            jobs.reconcile()
            kubelets.reconcile(time.monotonic())
            api.seen.clear()
            await asyncio.sleep(TICK_S)


if __name__ == "__main__":
    asyncio.run(serve())
