"""Simulated users: submit until answered, cancel, drain. Their answers are kept, to be checked against the log."""

import random
from typing import Any

import msgspec

from penstock.control import messages as msg
from penstock.core.config.job import parse_request
from penstock.core.lifecycle.requests import Submit
from penstock.core.messages.requests import Submitted
from penstock.core.model.ids import JobId, NodeName, UserName
from penstock.sim.world.ground import Ground
from penstock.sim.world.hands import hands_of
from penstock.sim.world.programs import Behaviour, random_behaviour
from penstock.sim.world.stages import REQUESTS, staged_request, stages_of

RETRY_MS = 3_000
PRIORITIES = ("low", "low", "medium", "medium", "high", 120, 700)


class Clients:
    """All users of one world. Each request is repeated under one idempotency key until it is answered."""

    def __init__(self, world: Ground, rng: random.Random, more: random.Random) -> None:
        """`more` draws features added later, so that a seed keeps meaning the same world."""
        self._world, self._rng, self._more = world, rng, more
        self._stages = stages_of(world.seed)
        self._hands = hands_of(world, lambda: [job_id for made in self.accepted.values() for job_id in made])
        self.accepted: dict[str, tuple[JobId, ...]] = {}
        self.refused: dict[str, str] = {}
        self.asked: dict[str, tuple[Any, ...]] = {}
        self.behaviours: dict[str, Behaviour] = {}
        self.cancelled: set[JobId] = set()

    def plan_requests(self, jobs: int, over_ms: int) -> None:
        """Spread submits of about `jobs` jobs, and some cancels and drains, over a time."""
        made = 0
        while made < jobs:
            raw = self._request()
            made += sum(entry.get("array", 1) for entry in raw)
            if self._world.seed % 4 == 3:
                raw = [_a_few_at_a_time(entry) for entry in raw]
            self._plan(raw, self._rng.randint(0, over_ms))
        if self._stages is not None:
            for _ in range(self._stages.choice(REQUESTS)):
                self._plan(staged_request(self._stages, self._world.tenants), self._stages.randint(0, over_ms))
        for _ in range(self._rng.randint(0, 4)):
            self._world.agenda.after(self._rng.randint(1, over_ms), self._cancel_one)
        for _ in range(self._rng.randint(0, 1)):
            self._world.agenda.after(self._rng.randint(1, over_ms), self._drain_one)
        if self._hands is not None:
            self._hands.plan(over_ms)

    def _plan(self, raw: list[dict[str, Any]], in_ms: int) -> None:
        """Plan a request after this delay."""
        key = f"key-{len(self.asked)}"
        parsed, problems = parse_request(raw)
        assert not problems, problems
        self.asked[key] = parsed
        self._world.agenda.after(in_ms, lambda: self.submit(key))

    def _request(self) -> list[dict[str, Any]]:
        rng = self._rng
        count = rng.choice((1, 1, 1, 1, 2, 3))
        entries = []
        for index in range(count):
            behaviour = random_behaviour(rng)
            entry: dict[str, Any] = {
                "name": f"j{index}",
                "command": list(behaviour.command()),
                "tenant": rng.choice(self._world.tenants),
                "queue": rng.choice(("a", "b", "b1", "c", "d")),
                "priority": rng.choice(PRIORITIES),
                "cpus": rng.choice((0, 1, 2)),
                "devices": rng.choice((0, 1, 1, 2, 4)),
                "grace": rng.choice((1, 5)),
                "retries": rng.choice((0, 0, 1)),
                "preemptible": rng.random() < 0.9,
            }
            if rng.random() < 0.3:
                entry["replicas"] = rng.randint(2, 3)
                entry["devices"] = rng.choice((0, 1, 2))
            elif rng.random() < 0.1:
                entry["array"] = rng.randint(2, 4)
            if index and rng.random() < 0.7:
                entry[rng.choice(("after_ok", "after_any", "after_failed"))] = f"j{index - 1}"
            if rng.random() < 0.1:
                entry["time_limit"] = rng.choice((1, 5))
            if rng.random() < 0.4:
                entry |= self._shape()
            if rng.random() < 0.3:
                entry["estimated_duration"] = rng.choice((1, 3, 10))
            if not entry["devices"]:
                entry |= self._cpu_job(behaviour)
            entries.append(entry)
        return entries

    def _cpu_job(self, behaviour: Behaviour) -> dict[str, Any]:
        """Return a long job that may be frozen, or an urgent one that takes all CPUs of a small node."""
        if self._more.random() < 0.6:
            long = msgspec.structs.replace(behaviour, steps=120)
            command = list(long.command())
            return {"on_preempt": "suspend", "priority": "low", "cpus": self._more.choice((2, 4)), "command": command}
        return {"priority": "high", "cpus": 4, "preemptible": self._more.random() < 0.5}

    def _shape(self) -> dict[str, Any]:
        """Return one of the rarer shapes of a request."""
        rng = self._rng
        shapes: tuple[dict[str, Any], ...] = (
            {"devices": rng.choice((0.25, 0.5, 0.3)), "replicas": rng.choice((1, 2))},
            {"devices": {"profile": rng.choice(("1g.10gb", "2g.20gb", "3g.40gb"))}, "replicas": 1},
            {"devices": 1, "cpus": 0, "replicas": {"min": 1, "max": rng.choice((2, 3, 4))}, "preemptible": True},
            {"devices": 1, "replicas": 1, "groups": [{"replicas": rng.choice((1, 2)), "devices": 0, "cpus": 1}]},
            {"devices": 4, "replicas": 1, "alternatives": [{"devices": 2}, {"devices": 1, "replicas": 2}]},
            {"devices": 1, "replicas": 2, "topology": rng.choice(("spread", "same_rack", "same_node"))},
            {"devices": 1, "replicas": 1, "placement": rng.choice(("best_fit", "worst_fit", "first_fit", "random"))},
        )
        return rng.choice(shapes)

    def submit(self, key: str) -> None:
        """Send the request that `asked` has under the key, repeatedly until it is answered."""
        if key in self.accepted or key in self.refused:
            return

        def on_reply(reply: msg.Reply) -> None:
            if self._rng.random() < self._world.network.loss:
                return
            if isinstance(reply, Submitted):
                self._take(key, reply.job_ids)
            elif not isinstance(reply, msg.RequestFailed):
                self.refused[key] = str(reply)

        server = self._world.server
        if server is not None:
            server.ask(Submit(self.asked[key], UserName("u"), key, key), on_reply)
        self._world.agenda.after(self._rng.randint(500, RETRY_MS), lambda: self.submit(key))

    def _take(self, key: str, job_ids: tuple[JobId, ...]) -> None:
        known = self.accepted.get(key)
        if known is not None and known != job_ids:
            self._world.violation(f"request {key} was answered with jobs {known} and with {job_ids}")
        self.accepted[key] = job_ids

    def _cancel_one(self) -> None:
        if self.accepted and self._world.server is not None:
            job_id = self._rng.choice(self._rng.choice(sorted(self.accepted.values())))
            self.cancelled.add(job_id)
            self._world.server.ask(msg.Cancel(job_id, UserName("u")))

    def _drain_one(self) -> None:
        node = NodeName(self._rng.choice(sorted(self._world.nodes)))
        evict = self._rng.random() < 0.5
        if self._world.server is not None:
            self._world.probe("node_drained_with_eviction" if evict else "node_drained")
            self._world.server.ask(msg.Drain(node, True, UserName("u"), "maintenance", evict))
        self._world.agenda.after(self._rng.randint(2_000, 20_000), lambda: self._open(node))

    def _open(self, node: NodeName) -> None:
        """Open the node again; repeated until the server says so."""
        done = False

        def on_reply(reply: msg.Reply) -> None:
            nonlocal done
            done = done or isinstance(reply, msg.Done)

        if self._world.server is not None:
            self._world.server.ask(msg.Drain(node, False, UserName("u")), on_reply)
        self._world.agenda.after(4_000, lambda: None if done else self._open(node))


def _a_few_at_a_time(entry: dict[str, Any]) -> dict[str, Any]:
    """Return an entry whose array, if it is one, runs one or two jobs at a time."""
    count = entry.get("array", 0)
    return {**entry, "array": f"{count}%{1 + count % 2}"} if count else entry
