"""A simulated user who attacks with huge, cyclic, repeated and racing requests, and with as many jobs as a queue takes.

The limits of a request are small in such a world, so that small requests reach them. The effects are counted here
from the log alone, and the cost of a refusal from the shapes that the core tried.
"""

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from penstock.control import messages as msg
from penstock.core.config.job import parse_request
from penstock.core.lifecycle.requests import Submit
from penstock.core.lifecycle.size import RequestBounds
from penstock.core.messages.access import RemoveSecret, SetSecret
from penstock.core.messages.requests import NewJob, Refusal, Submitted
from penstock.core.model.cluster import ClusterConfig, Queue
from penstock.core.model.errors import PROBLEMS_MAX
from penstock.core.model.events import JobSubmitted, Record
from penstock.core.model.ids import JobId, QueueName, TenantName, UserName
from penstock.core.model.secrets import Secret
from penstock.core.state.idempotency import Remembered, remember
from penstock.core.state.state import State
from penstock.sim.world.clients import Clients
from penstock.sim.world.ground import Ground, Server
from penstock.sim.world.programs import Behaviour

BOUNDS = RequestBounds(
    jobs=48,
    dependencies_of_job=8,
    numbers=16,
    dependencies=64,
    dependencies_of_all=400,
    job_bytes=2_048,
    log_bytes=24_000,
    shapes=12,
    replicas_tried=64,
)
"""Requests of honest users stay below it."""
OVER_SIZE = {"too_many_jobs", "too_many_dependencies", "too_large"}
OVER_SHARE = {"share_used_up", "queue_full"}
USER, HONEST = UserName("h"), UserName("u")
QUEUE = QueueName("shared")
WAITING_MAX = 24
HONEST_JOBS = 5
"""In the shared queue, one by one: together less than what is left when another user holds its maximum."""
ATTACKS = (10, 14, 18)
NEEDED = "pass-to-data"
"""The secret that jobs of the hostile user need."""
WATCH_MS = 4_000
KEYS_KEPT = 2
"""Idempotency keys that are kept beyond the number that the honest users have."""


def is_hostile(seed: int) -> bool:
    """Return whether a seed's world has a hostile user: every seventh, and none that has found a bug before."""
    return seed % 7 == 0


class Hostile:
    """The hostile user's requests and their times; `rng` has no other use, so a seed otherwise keeps its meaning."""

    def __init__(self, world: Ground, rng: random.Random) -> None:
        self._world, self._rng = world, rng
        self.tenant = TenantName(world.tenants[-1])
        self._clients: Clients
        self.asked: dict[str, tuple[NewJob, ...]] = {}
        self.accepted: dict[tuple[str, str], tuple[JobId, ...]] = {}
        """Jobs by key and digest."""

    def declare(self, config: ClusterConfig) -> ClusterConfig:
        return replace(config, queues=(*config.queues, Queue(QUEUE, max_waiting=WAITING_MAX)))

    def plan_requests(self, clients: Clients, over_ms: int, *, with_money: bool) -> None:
        """Spread attacks, and the requests of an honest user of the same queue, over a time."""
        self._clients = clients
        attacks = (
            self._huge, self._heavy, self._shapes, self._named, self._cyclic, self._again, self._other_body,
            self._keys, self._cancel, self._secret, self._crowd,
        )  # fmt: skip
        count = self._rng.choice(ATTACKS)
        chosen = [*attacks, *self._rng.choices(attacks, k=count)]
        for attack in chosen:
            self._world.agenda.after(self._rng.randint(3_000, over_ms), attack)
        if with_money:
            for at_ms in range(0, over_ms, WATCH_MS):
                self._world.agenda.after(at_ms, self._while_held)
        for number in range(HONEST_JOBS):
            self._honest(f"honest-{number}", self._rng.randint(3_000, over_ms))

    def _honest(self, key: str, at_ms: int) -> None:
        """Let an honest user ask for one job, and later for the same again."""
        clients = self._clients
        entry = self._entry("honest", tenant=self._world.tenants[0], queue=QUEUE)
        clients.asked[key] = self._parsed([entry])
        self._world.agenda.after(at_ms, lambda: clients.submit(key))
        for _ in range(2):
            self._world.agenda.after(self._rng.randint(at_ms, at_ms + 20_000), self._honest_again)

    def _honest_again(self) -> None:
        """Repeat an accepted request of an honest user: the answer is the same jobs."""
        clients, server = self._clients, self._world.server
        if server is None or not clients.accepted:
            return
        key = self._rng.choice(sorted(clients.accepted))

        def on_reply(reply: msg.Reply) -> None:
            same = isinstance(reply, Submitted) and reply.repeated and reply.job_ids == clients.accepted[key]
            if not same and not isinstance(reply, msg.RequestFailed):
                self._world.violation(f"{key} was answered with {clients.accepted[key]}, and then with {reply}")
            self._world.probe("honest_key_repeated")

        server.ask(Submit(clients.asked[key], HONEST, key, key), on_reply)

    # Attacks.

    def _huge(self) -> None:
        self._ask([self._entry("huge", array=self._rng.choice((BOUNDS.jobs + 1, 100, 2_000)), cpus=self._odd_cpus())])

    def _heavy(self) -> None:
        """Send one job that is too large, or many that are too large together."""
        if self._rng.random() < 0.5:
            self._ask([self._entry("heavy", env={"A": "x" * BOUNDS.job_bytes})])
        else:
            count = BOUNDS.log_bytes // 1_000
            self._ask([self._entry(f"heavy-{i}", env={"A": f"{i:04}" * 250}) for i in range(count)])

    def _shapes(self) -> None:
        extra = self._rng.choice((1, 10))
        self._ask([self._entry(f"shape-{i}", cpus=self._odd_cpus()) for i in range(BOUNDS.shapes + extra)])

    def _named(self) -> None:
        """Arrays that wait for arrays that wait for arrays: entries share names in turn, so each name is many jobs.

        As it is written each entry has two dependencies.
        """
        rng, cpus = self._rng, self._odd_cpus()
        entries = [self._entry("ab"[i % 2], cpus=cpus) for i in range(2 * rng.randint(5, 7))]
        entries += [self._entry("cd"[i % 2], array=2, after_any=["a"]) for i in range(2 * rng.randint(1, 3))]
        entries.append(self._entry("e", array=rng.randint(1, 8), after_any=["a", "b", "c"]))
        self._ask(entries)

    def _cyclic(self) -> None:
        """A ring of jobs that wait for each other: the parser has to report it, with few problems."""
        count = self._rng.choice((1, 2, 20, 300))
        entries = [self._entry(f"r{i}", after_ok=[f"r{(i + 1) % count}"]) for i in range(count)]
        self._rng.shuffle(entries)
        parsed, problems = parse_request(entries)
        if parsed or "dependency_cycle" not in {one.code for one in problems} or len(problems) > PROBLEMS_MAX + 1:
            self._world.violation(f"a ring of {count} jobs was read as {len(parsed)} jobs and {len(problems)} problems")
        self._world.probe("refused_cycle")

    def _again(self) -> None:
        for key in self._rng.sample(sorted(self.asked), min(3, len(self.asked))):
            self._send(key, self.asked[key])

    def _other_body(self) -> None:
        for key in self._rng.sample(sorted(self.asked), min(3, len(self.asked))):
            self._send(key, self._parsed([self._entry("other")]), f"{key} other")

    def _keys(self) -> None:
        for number in range(KEYS_KEPT + 2):
            self._ask([self._entry(f"key-{number}")], then=self._cancel_all)

    def _cancel(self) -> None:
        """Ask, cancel while the answer is on its way, ask again under the same key, cancel twice."""

        def twice(job_ids: tuple[JobId, ...]) -> None:
            self._cancel_all(job_ids)
            self._send(key, self.asked[key])
            self._cancel_all(job_ids)

        self._cancel_all([job_id for ids in self.accepted.values() for job_id in ids])
        key = self._ask([self._entry("race", array=3)], then=twice)

    def _secret(self) -> None:
        """Set a secret, submit a job that needs it, and remove the secret at once and a moment later."""
        server = self._world.server
        if server is None:
            return
        server.ask(SetSecret(Secret(NEEDED, owner=USER, by=USER)))
        self._ask([self._entry("secret", secrets={"TOKEN": NEEDED})])
        self._remove_secret()
        self._world.agenda.after(self._rng.randint(1, 3_000), self._remove_secret)

    def _remove_secret(self) -> None:
        def on_reply(reply: msg.Reply) -> None:
            self._world.probes["secret_kept_for_job"] += isinstance(reply, Refusal)

        if self._world.server is not None:
            self._world.server.ask(RemoveSecret(TenantName(""), USER, NEEDED, USER), on_reply)

    def _crowd(self) -> None:
        """Fill a queue, and cancel the jobs after a while."""

        def later(job_ids: tuple[JobId, ...]) -> None:
            self._world.agenda.after(5_000, lambda: self._cancel_all(job_ids))

        for size in (10, 10, 5, 3, 2, 1, 1, 1, 1):
            self._ask([self._entry("crowd", array=size, queue=QUEUE, cpus=4)], then=later)

    def _while_held(self) -> None:
        """Submit jobs of a tenant that is held, and cancel one of them: the others wait."""
        server = self._world.server
        if server is not None and self.tenant in server.controller.state.money.holds():
            self._world.probe("asked_while_held")
            self._ask([self._entry("held", array=2)], then=lambda job_ids: self._cancel_all(job_ids[:1]))

    # How it asks.

    def _entry(self, name: str, **fields: Any) -> dict[str, Any]:
        command = list(Behaviour(steps=1).command())
        plain = {"name": name, "command": command, "tenant": self.tenant, "queue": "a", "cpus": 1, "grace": 1}
        return plain | {"retries": 0} | fields

    def _odd_cpus(self) -> float:
        """Return a random number of CPUs, a new shape: the core has to try whether it ever fits."""
        return self._rng.randint(1, 3_999) / 1000

    @staticmethod
    def _parsed(raw: Sequence[dict[str, Any]]) -> tuple[NewJob, ...]:
        parsed, problems = parse_request(list(raw))
        assert not problems, problems
        return parsed

    def _ask(self, raw: Sequence[dict[str, Any]], then: Callable[[tuple[JobId, ...]], None] | None = None) -> str:
        key = f"h/{len(self.asked)}"
        self.asked[key] = self._parsed(raw)
        self._send(key, self.asked[key], then=then)
        return key

    def _send(
        self,
        key: str,
        jobs: tuple[NewJob, ...],
        digest: str = "",
        then: Callable[[tuple[JobId, ...]], None] | None = None,
    ) -> None:
        server = self._world.server
        if server is None:
            return

        def on_reply(reply: msg.Reply) -> None:
            self._answered(server, key, digest or key, reply)
            if then is not None and isinstance(reply, Submitted):
                then(reply.job_ids)

        server.ask(Submit(jobs, USER, key, digest or key), on_reply)

    def _cancel_all(self, job_ids: Iterable[JobId]) -> None:
        if self._world.server is not None:
            for job_id in job_ids:
                self._world.server.ask(msg.Cancel(job_id, USER))

    def _answered(self, server: Server, key: str, digest: str, reply: msg.Reply) -> None:
        if isinstance(reply, Submitted):
            self._world.probes["key_repeated"] += reply.repeated
            if self.accepted.setdefault((key, digest), reply.job_ids) != reply.job_ids:
                known = self.accepted[key, digest]
                self._world.violation(f"request {key} was answered with jobs {known} and with {reply.job_ids}")
        elif isinstance(reply, Refusal):
            codes = {one.code for one in reply.problems}
            self._world.probes["refused_too_large"] += bool(codes & OVER_SIZE)
            self._world.probes["refused_shapes"] += "too_many_shapes" in codes
            self._world.probes["refused_share"] += bool(codes & OVER_SHARE)
            self._world.probes["refused_key_reused"] += "idempotency_key_reused" in codes
            if server is self._world.server:
                for job_id in left_behind(self._world.disk.records, key, digest):
                    self._world.violation(f"request {key} was refused ({sorted(codes)}), and its job {job_id} is there")

    # Checks.

    def worked(self, group: Sequence[msg.Request], replies: Sequence[msg.Reply], tried: int) -> None:
        """Compare the shapes that were tried for a group of requests with the number that their answers allow."""
        allowed = 0
        for request, reply in zip(group, replies, strict=True):
            if isinstance(request, Submit):
                codes = {one.code for one in reply.problems} if isinstance(reply, Refusal) else set()
                asks = {ask for new in request.jobs for ask in (new.spec.ask, *new.spec.alternatives)}
                allowed += 0 if codes & OVER_SIZE else min(BOUNDS.shapes, len(asks))
        if tried > allowed:
            self._world.violation(f"{tried} shapes were tried for requests that may cost {allowed}")

    def after_commit(self, state: State) -> None:
        """Look for live jobs whose secret was removed."""
        for job in state.jobs.naming_secret(NEEDED, user=USER):
            if state.secrets.of(job.spec.tenant, USER, NEEDED) is None:
                self._world.violation(f"job {job.id} needs secret {NEEDED}, which was removed")

    def violations(self, records: Sequence[Record]) -> Iterator[str]:
        """Yield forbidden records of the log, and refused requests of honest users."""
        yield from oversize(records, BOUNDS)
        honest = sorted(self._clients.accepted)
        yield from (f"key {key} was pushed out by others'" for key in pushed_out(records, honest))
        for key, text in sorted(self._clients.refused.items()):
            if any(f"'{code}'" in text for code in OVER_SIZE | OVER_SHARE | {"too_many_shapes"}):
                yield f"honest request {key} was refused: {text}"
        bodies = [key for key, _ in self.accepted]
        yield from (
            f"key {key} was taken for two requests" for key in sorted({k for k in bodies if bodies.count(k) > 1})
        )


def left_behind(records: Iterable[Record], key: str, digest: str) -> list[JobId]:
    """Return the first jobs that the log has of a request: none when it was refused."""
    made = (record.event for record in records if isinstance(record.event, JobSubmitted))
    return [event.job_id for event in made if event.idempotency_key == key and event.digest == digest]


def oversize(records: Iterable[Record], bounds: RequestBounds) -> Iterator[str]:
    """Yield each request of the log that is over a bound; all have keys."""
    groups: list[list[Record]] = []
    left = 0
    for record in records:
        if isinstance(record.event, JobSubmitted):
            if record.event.idempotency_key:
                groups.append([])
                left = record.event.batch
            if not left:
                yield f"job {record.event.job_id} belongs to no request"
                continue
            left -= 1
            groups[-1].append(record)
    for group in groups:
        yield from _over(group, bounds)


def _over(group: Sequence[Record], bounds: RequestBounds) -> Iterator[str]:
    made = [record.event for record in group if isinstance(record.event, JobSubmitted)]
    waits = [len(event.spec.after) for event in made]
    entries = {event.array_id or event.job_id: len(event.spec.after) for event in made}
    encoded = [msgspec.msgpack.encode(event.spec) for event in made]
    rest = sum(len(msgspec.msgpack.encode(record)) for record in group) - sum(map(len, encoded))
    for what, count, most in (
        ("jobs", max(len(made), made[0].batch), bounds.jobs),
        ("dependencies of one job", max(waits), bounds.dependencies_of_job),
        ("dependencies of its entries", sum(entries.values()), bounds.dependencies),
        ("dependencies", sum(waits), bounds.dependencies_of_all),
        ("bytes of one job", max(map(len, encoded)), bounds.job_bytes),
        ("bytes", sum(map(len, set(encoded))) + rest, bounds.log_bytes),
    ):
        if count > most:
            yield f"request {made[0].idempotency_key} was accepted with {count} {what}, at most {most} may be"


def pushed_out(records: Iterable[Record], honest: Sequence[str]) -> list[str]:
    """Return the honest keys that would be forgotten if only `KEYS_KEPT` more than theirs were kept."""
    kept = Remembered()
    for record in records:
        if isinstance(record.event, JobSubmitted) and record.event.idempotency_key:
            remember(kept, record.event, record.time_ms, most=len(honest) + KEYS_KEPT)
    return [key for key in honest if key not in kept]
