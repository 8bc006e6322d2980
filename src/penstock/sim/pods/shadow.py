"""A world in which others decide: kube-scheduler and Kueue in small, and a shadow beside them, which only watches.

What the shadow has in its log is held against what was bound, and each request to the API server has to be a read.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from penstock.core.model import events as ev
from penstock.engines.kubernetes.shadow import engine, gangs
from penstock.sim.apiserver.kinds import bind
from penstock.sim.apiserver.selecting import Object
from penstock.sim.apiserver.store import merged
from penstock.sim.pods.checks import GPU
from penstock.sim.pods.people import People
from penstock.sim.pods.server import PodServer
from penstock.sim.pods.world import SAFETY_S, PodOutcome, PodWorld, play_world

SETTLED_S = 5.0
"""What stands is in the log so long after the last fault."""
KNOWN_S = 1.0
"""A pod that was bound longer ago is in the log."""
PACE: tuple[tuple[Any, str, float], ...] = (
    (engine, "FLUSH_S", 0.1), (gangs, "AGAIN_S", 0.3), (gangs, "PARTIAL_S", 1.0),
)  # fmt: skip
"""Pauses of the engine that are shorter here."""


class _Plain(People):
    """People who have nothing of Penstock's own kinds."""

    def elastic(self) -> None:
        self.job()

    def change_elastic(self) -> None:
        self.delete()

    def claiming(self) -> None:
        self.gang()


class _NoChecks:
    """Stands in for the checks of bindings by Penstock, which are none here."""

    def __init__(self) -> None:
        self.violations: list[str] = []
        self.bound = 0

    def found(self, text: str) -> None:
        """Note a violation."""
        self.violations.append(text)

    def look(self, gangs: Mapping[str, list[str]]) -> None:
        """There is nothing to look at while things move."""


class ShadowWorld(PodWorld):
    """Chosen by a seed."""

    disks_share = 0.0

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.bindings: dict[str, str] = {}
        """Where each pod was bound, by its uid; `bound_s`: when."""
        self.bound_s: dict[str, float] = {}

    def made(self) -> tuple[People, Any]:
        return _Plain(self.store, self.rng, self.now_s, SAFETY_S - 3.0, self.disks), _NoChecks()

    def make_server(self, rng: Any) -> PodServer:
        return PodServer(self.api, self.disk, self.config, self._servers, rng, self._after_commit, shadow=True)

    async def other_scheduler(self) -> None:
        """Bind what fits, one pod after the other; let Jobs start, and some be suspended again."""
        while True:
            await asyncio.sleep(self.rng.uniform(0.1, 1.0))
            for key, pod in list(self.store.all_of("pods").items()):
                nodes = [name for _, name in self.store.all_of("nodes") if self._fits(pod, name)]
                if nodes and not pod["spec"].get("nodeName") and not pod["metadata"].get("deletionTimestamp"):
                    node = self.rng.choice(nodes)
                    binding = {"metadata": {"name": key[1]}, "target": {"name": node}}
                    bind(self.store, self.kind("pods"), key[0], binding)
                    uid = pod["metadata"]["uid"]
                    self.bindings[uid], self.bound_s[uid] = node, self.now_s()
                    self.checks.bound += 1
            for key, job in list(self.store.all_of("jobs").items()):
                suspended = job["spec"]["suspend"]
                if self.rng.random() < (0.5 if suspended else 0.05 if self.now_s() < SAFETY_S else 0.0):
                    self.probe("job_started" if suspended else "job_evicted")
                    self._suspend(key, on=not suspended)

    def _suspend(self, key: tuple[str, str], *, on: bool) -> None:
        self.store.update(self.kind("jobs", "batch"), key, lambda one: merged(one, {"spec": {"suspend": on}}))

    async def settled(self) -> None:
        """Hold what stands against the log while faults and people rest."""
        await asyncio.sleep(SETTLED_S)
        standing = {pod["metadata"]["uid"]: pod for pod in self.store.all_of("pods").values() if _stands(pod)}
        jobs = tuple(self.server.controller.state.jobs.values()) if self.server is not None else ()
        held = {
            attempt.names[replica.rank]: (replica.place.node, len(replica.place.devices))
            for job in jobs
            if (attempt := job.attempt) is not None
            for replica in attempt.replicas
            if replica.holds
        }
        waits = {job.spec.name for job in jobs if job.attempt is None}
        known = {job.spec.name for job in jobs}
        for uid, (node, gpus) in held.items():
            if ("", node) not in self.store.all_of("nodes"):
                waits |= {job.spec.name for job in jobs if job.attempt is not None and uid in job.attempt.names}
                continue  # it went while no server ran: its lease has to end first
            if uid not in standing or (standing[uid]["spec"]["nodeName"], _gpus(standing[uid])) != (node, gpus):
                self.checks.violations.append(f"{uid} has {gpus} GPUs on {node} in the log, and not in the cluster")
        for uid, pod in standing.items():
            gang = _gang_of(pod)
            in_part = gang in waits or (gang not in known and "penstock.dev/gang" in pod["metadata"].get("labels", {}))
            late = self.now_s() - self.bound_s[uid] < KNOWN_S
            if uid not in held and not in_part and not late:
                self.checks.violations.append(f"{pod['metadata']['name']} runs, and its job does not")
        self.probes["compared"] = self.probes.get("compared", 0) + len(held)

    def last_checks(self) -> list[str]:
        """Return what is wrong with the whole run."""
        found = [f"a write: {seen.method} {seen.path}" for seen in self.api.seen if seen.method != "GET"]
        for record in self.disk.tail(0):
            event = record.event
            if isinstance(event, ev.AttemptAllocated):
                places = zip(event.names, event.places, strict=True)
                wrong = [(name, place.node) for name, place in places if self.bindings.get(name) != place.node]
                found += [f"job {event.job_id}: {name} was never bound to {node}" for name, node in wrong]
                self.probe("started")
            elif isinstance(event, ev.JobFinished):
                self.probe(event.state)
                if event.reason.startswith("it runs, but"):
                    found.append(f"job {event.job_id}: {event.reason}")
        return found


def _gang_of(pod: Object) -> str:
    """Return the name of the Job or gang that a pod is of, '' where it is alone."""
    owners = [one["name"] for one in pod["metadata"].get("ownerReferences") or ()]
    return str(owners[0] if owners else pod["metadata"].get("labels", {}).get("penstock.dev/gang", ""))


def _gpus(pod: Object) -> int:
    return sum(int(box["resources"]["limits"].get(GPU, 0)) for box in pod["spec"]["containers"])


def _stands(pod: Object) -> bool:
    over = pod["status"]["phase"] in ("Succeeded", "Failed") or pod["metadata"].get("deletionTimestamp")
    return bool(pod["spec"].get("nodeName")) and not over


def play(seed: int) -> PodOutcome:
    """Play one seed."""
    saved = [(module, name, getattr(module, name)) for module, name, _ in PACE]
    for module, name, value in PACE:
        setattr(module, name, value)
    try:
        return play_world(ShadowWorld(seed))
    finally:
        for module, name, value in saved:
            setattr(module, name, value)
