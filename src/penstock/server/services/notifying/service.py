"""Tells users what they have chosen to hear: follows the log, gathers for each destination, sends beside the loops.

Nothing is lost, and what arrives twice has the same id: the position in the log and all that waits are kept together
(`ProjectionStore`), a message before it is sent for the first time. After a crash the records since then are read
again, and messages that were being sent are sent again.
"""

import asyncio
import hashlib
import logging
import secrets
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import msgspec

from penstock.core.explain.notices import (
    Happening,
    JobFacts,
    Notice,
    NoticeFold,
    Started,
    notice_of,
    notice_of_job,
    notice_of_never,
)
from penstock.core.model import events as ev
from penstock.core.model.errors import StoreError
from penstock.core.model.ids import JobId, TenantName, UserName
from penstock.core.model.jobs import Job
from penstock.core.model.notifications import NODE_EVENTS, Subscription
from penstock.ports import ProjectionStore
from penstock.server.backend import Backend
from penstock.server.http.pools import ASIDE
from penstock.server.http.responses import ApiError
from penstock.server.services.notifying.channels import Sender
from penstock.server.services.notifying.errors import NotSent
from penstock.server.services.notifying.never import EVENT, NeverWatch
from penstock.server.services.notifying.places import ALL_MAX, OWN_MAX, JobPlace, Target, targets_of
from penstock.server.services.notifying.queues import DeliveryStats, Digest, Message, Queue
from penstock.server.services.notifying.rights import may_hear
from penstock.server.services.periodic import repeat

log = logging.getLogger(__name__)

NAME = "notifications"
LOOK_EVERY_S = 1.0
LOOK_SHARE = 20
BATCH, BATCHES_MAX = 2_000, 20
"""Records read at once, and batches of one look."""
KEEP_EVERY_RECORDS = 20_000
THREADS = 16
AT_ONCE = {"email": 4, "webhook": 8, "slack": 8, "command": 4}
"""Messages of one channel that are being sent: a mail server that is slow delays e-mails alone."""
OWN_AT_ONCE = 2
"""Of one user: receivers of theirs that are slow delay nobody else."""
TESTS_AT_ONCE = 4
Key = tuple[UserName, str]
Gathered = dict[Target, Digest]
"""What is to be sent, by where to."""
_encode = msgspec.msgpack.Encoder().encode


class Kept(msgspec.Struct, frozen=True):
    """What a server that starts goes on from."""

    seq: int
    starting: tuple[Started, ...]
    quiet: tuple[JobId, ...]
    queues: tuple[tuple[UserName, str, bytes], ...]
    """Each as msgpack of `Queue`."""
    never: tuple[JobId, ...] = ()
    """Jobs whose users know that they can never start."""


class NotificationService:
    """One for each server; lives on the event loop.

    Args:
        server_url: address of the server in links, where the administrator declares none.
    """

    def __init__(self, backend: Backend, store: ProjectionStore, server_url: str = "") -> None:
        self._backend, self._store = backend, store
        self._queues: dict[Key, Queue] = {}
        self._fold = NoticeFold()
        self._never = NeverWatch()
        self._seq, self._kept_seq = -1, -1
        """-1: not begun."""
        self._changed: set[Key] = set()
        """Destinations of which something else is to be kept."""
        self._packed: dict[Key, bytes] = {}
        """Queues as they are kept: a destination costs only where something of it changed."""
        assert backend.vault is not None, "every server has one"
        self._sender = Sender(lambda: backend.state, backend.vault, lambda: backend.tokens.users, server_url)
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix=f"{ASIDE}-notify")
        self._sending: dict[Key, asyncio.Task[None]] = {}
        self._channels: Counter[str] = Counter()
        self._owners: Counter[UserName] = Counter()
        self._tests: set[UserName] = set()

    async def keep(self) -> None:
        """Run until cancelled."""
        await repeat(self.look, "the notifications", LOOK_EVERY_S, LOOK_SHARE)

    def close(self) -> None:
        """Send nothing more; messages that are being sent are sent again by the next server."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def look(self) -> None:
        """Read what the log has, gather it, and begin to send what is due."""
        if self._seq < 0:
            await asyncio.to_thread(self._begin)
        self._drop_removed()
        for _ in range(BATCHES_MAX):
            if self._seq >= self._backend.durable_seq:
                break
            await self._follow()
        now_ms = self._backend.clock.unix_ms()
        if self._anyone() and self._never.due(now_ms):
            self._gather(await asyncio.to_thread(self._find_never, now_ms))
        for (owner, name), queue in self._queues.items():
            if queue.compose(_mark(owner, name), now_ms):
                self._changed.add((owner, name))
        if self._changed or self._kept_seq < 0 or self._seq >= self._kept_seq + KEEP_EVERY_RECORDS:
            await self._keep()
        self._send_due(now_ms)

    async def settle(self) -> None:
        """Return when nothing is being sent any more."""
        while self._sending:
            await asyncio.wait(list(self._sending.values()))
            await asyncio.sleep(0)

    def standing(self, key: Key) -> tuple[DeliveryStats, int, Message | None]:
        """Return what became of a subscription's messages, how many events wait, and the message being tried."""
        queue = self._queues.get(key)
        if queue is None:
            return DeliveryStats(), 0, None
        waiting = sum(queue.waiting.counts.values()) + (sum(queue.message.counts.values()) if queue.message else 0)
        return queue.stats, waiting, queue.message

    def of_jobs(self, owner: UserName | None) -> list[JobPlace]:
        """Return the places that jobs of a user (None: of all) named, and that had or get messages, by name."""
        found = [queue.place for queue in list(self._queues.values()) if queue.place is not None]
        return sorted((one for one in found if owner in (None, one.owner)), key=lambda one: one.key)

    # The log.

    def _begin(self) -> None:
        kept = self._store.projection(NAME)
        if kept is not None:
            try:
                found = msgspec.msgpack.decode(kept[1], type=Kept)
                queues = {(one[0], one[1]): msgspec.msgpack.decode(one[2], type=Queue) for one in found.queues}
            except msgspec.DecodeError as error:
                log.error("what waits to be sent is lost: it is of another version", extra={"error": str(error)})
            else:
                self._packed = {(owner, name): body for owner, name, body in found.queues}
                self._queues = queues
                self._fold, self._never = NoticeFold(found.starting, found.quiet), NeverWatch(found.never)
                self._seq = self._kept_seq = found.seq
                return
        self._seq = self._backend.durable_seq

    async def _follow(self) -> None:
        """Read one batch of the log; without subscriptions, and places that jobs may name, nobody hears of it."""
        until = self._backend.durable_seq
        if not self._anyone():
            self._seq, self._fold = until, NoticeFold()
            return
        read, gathered = await asyncio.to_thread(self._read, self._seq, until)
        self._gather(gathered)
        self._seq = read

    def _anyone(self) -> bool:
        """Return whether anybody may want to hear of anything."""
        state = self._backend.state
        declared = state.config.notifications
        hooks = declared.webhooks
        return bool(state.subscriptions.by_key or hooks.hosts or hooks.internal or declared.commands)

    def _gather(self, found: Gathered) -> None:
        now_ms, metrics = self._backend.clock.unix_ms(), self._backend.metrics
        for target, digest in found.items():
            key, count = target.key, sum(digest.counts.values())
            if key not in self._queues:
                if isinstance(target, JobPlace) and not self._has_room(target, now_ms):
                    metrics.count("notifications_dropped", count)
                    continue
                self._queues[key] = Queue(place=target if isinstance(target, JobPlace) else None)
            self._queues[key].add(digest, now_ms)
            metrics.count("notification_events", count)
            self._changed.add(key)

    def _has_room(self, place: JobPlace, now_ms: int) -> bool:
        """Return whether there may be another place of jobs; the oldest one of the user with nothing to send goes."""
        of_jobs = [(key, queue) for key, queue in self._queues.items() if queue.place is not None]
        own = [(key, queue) for key, queue in of_jobs if key[0] == place.owner]
        if len(own) < OWN_MAX:
            return len(of_jobs) < ALL_MAX
        idle = [(queue.used_ms, key) for key, queue in own if queue.empty]
        if not idle:
            return False
        self._drop(min(idle)[1])
        return True

    def _find_never(self, now_ms: int) -> Gathered:
        state, gathered = self._backend.state, defaultdict[Target, Digest](Digest)
        for job, never in self._never.look(state, now_ms):
            notice = notice_of_never(job, never, self._seq, now_ms)
            for one in targets_of(job, EVENT, state.subscriptions):
                if self._may(one, EVENT, job.spec.tenant):
                    gathered[one].add(notice)
        return gathered

    def _read(self, after: int, until: int) -> tuple[int, Gathered]:
        """Return up to where was read, and what is to be sent to whom."""
        records = [one for one in self._backend.log.records(after, BATCH) if one.seq <= until]
        taken = [found for record in records if (found := self._fold.take(record)) is not None]
        facts = self._facts({one.job_id for one, _ in taken if one.job_id is not None})
        gathered: Gathered = defaultdict(Digest)
        for happening, start in taken:
            self._spread(happening, start, facts, gathered)
        return (records[-1].seq if records else until), gathered

    def _facts(self, job_ids: set[JobId]) -> dict[JobId, JobFacts]:
        """Return what is known of jobs, live or ended; of those alone whose users want to hear of them."""
        state, found, ended = self._backend.state, {}, []
        for job_id in job_ids:
            job = state.jobs.get(job_id)
            if job is None:
                ended.append(job_id)
            elif state.subscriptions.of_user(job.user) or job.spec.notify_to:
                found[job_id] = _facts_of(job_id, job)
        for job_id, made in self._backend.log.submits(ended).items() if ended else ():
            if state.subscriptions.of_user(made.user) or made.spec.notify_to:
                found[job_id] = _facts_of(job_id, made)
        return found

    def _spread(
        self, happening: Happening, start: Started | None, facts: dict[JobId, JobFacts], gathered: Gathered
    ) -> None:
        """Give what happened to all who want to hear of it, and may."""
        targets: list[Target]
        if happening.job_id is None:
            targets = list(self._of_others(happening))
            notice = notice_of(happening) if targets else None
        else:
            job = facts.get(happening.job_id)
            targets = [] if job is None else list(self._of_job(happening, job))
            notice = self._about_job(happening, job, start) if targets and job is not None else None
        if notice is not None:
            for one in targets:
                gathered[one].add(notice)

    def _of_job(self, happening: Happening, job: JobFacts) -> Iterator[Target]:
        for one in targets_of(job, happening.event, self._backend.state.subscriptions):
            if self._heard(one, happening, job.spec.tenant):
                yield one

    def _of_others(self, happening: Happening) -> Iterator[Subscription]:
        for one in list(self._backend.state.subscriptions.by_key.values()):
            about = happening.event in NODE_EVENTS or one.tenant == happening.tenant
            if about and happening.event in one.events and self._heard(one, happening, happening.tenant):
                yield one

    def _heard(self, target: Target, happening: Happening, tenant: TenantName) -> bool:
        """Return whether it was chosen before it happened, and may still be heard of."""
        chosen = isinstance(target, JobPlace) or happening.record.seq > target.after
        return chosen and self._may(target, happening.event, tenant)

    def _may(self, target: Target, event: str, tenant: TenantName) -> bool:
        config, operators = self._backend.state.config, self._backend.tokens.users
        return may_hear(target.owner, event, tenant, config, operators)

    def _about_job(self, happening: Happening, job: JobFacts, start: Started | None) -> Notice:
        event, same = happening.record.event, False
        if isinstance(event, ev.AttemptStopRequested) and event.beneficiary is not None:
            other = self._backend.state.jobs.get(event.beneficiary)
            same = other is not None and other.spec.tenant == job.spec.tenant
        return notice_of_job(happening, job, start, same_tenant=same)

    def _drop_removed(self) -> None:
        known, now_ms = self._backend.state.subscriptions.by_key, self._backend.clock.unix_ms()
        for key, queue in list(self._queues.items()):
            if queue.over(now_ms) or (queue.place is None and key not in known):
                self._drop(key)

    def _drop(self, key: Key) -> None:
        del self._queues[key]
        self._changed.add(key)

    async def _keep(self) -> None:
        """Keep the position and what waits. Raises: StoreError: nothing new is sent then."""
        changed, self._changed = self._changed, set()
        for key in changed:
            queue = self._queues.get(key)
            if queue is None:
                self._packed.pop(key, None)
            else:
                self._packed[key] = _encode(queue)
        packed = tuple((*key, body) for key, body in self._packed.items())
        kept = Kept(self._seq, *self._fold.image(), packed, tuple(self._never.said))
        try:
            await asyncio.to_thread(lambda: self._store.save_projection(NAME, kept.seq, _encode(kept)))
        except StoreError:
            self._changed |= changed
            raise
        self._kept_seq = kept.seq

    # Sending.

    def _send_due(self, now_ms: int) -> None:
        known = self._backend.state.subscriptions.by_key
        due = [(queue.message.next_ms, key) for key, queue in self._queues.items() if queue.message is not None]
        for next_ms, key in sorted(due):
            one: Target | None = self._queues[key].place or known.get(key)
            if next_ms > now_ms or one is None or key in self._sending:
                continue
            if self._channels[one.channel] >= AT_ONCE[one.channel] or self._owners[one.owner] >= OWN_AT_ONCE:
                continue
            self._channels[one.channel] += 1
            self._owners[one.owner] += 1
            self._sending[key] = asyncio.create_task(self._send(one, self._queues[key]))

    async def _send(self, one: Target, queue: Queue) -> None:
        message, clock, metrics = queue.message, self._backend.clock, self._backend.metrics
        assert message is not None
        begun = time.monotonic()
        try:
            await self._deliver(message, one)
        except NotSent as error:
            again = queue.failed(error.message, clock.unix_ms(), again=error.again)
            metrics.count("notification_failures", channel=one.channel)
            said = {"user": one.owner, "notification": one.name, "why": error.message, "again": again}
            log.info("a notification was not sent", extra=said)
        else:
            queue.arrived(clock.unix_ms())
            metrics.count("notifications_sent", channel=one.channel)
            metrics.observe("notification_seconds", time.monotonic() - begun, channel=one.channel)
        finally:
            self._changed.add(one.key)
            self._channels[one.channel] -= 1
            self._owners[one.owner] -= 1
            del self._sending[one.key]

    async def _deliver(self, message: Message, one: Target) -> None:
        """Send in a thread. Raises: NotSent, also for faults of our own: they must not keep a queue from going on."""
        if not self._owner_known(one):
            raise NotSent("its user is removed or disabled")
        now_ms, loop = self._backend.clock.unix_ms(), asyncio.get_running_loop()
        operates = may_hear(one.owner, "node_lost", one.tenant, self._backend.state.config, self._backend.tokens.users)
        try:
            send = self._sender.send
            await loop.run_in_executor(self._pool, lambda: send(message, one, now_ms, operates=operates))
        except NotSent:
            raise
        except Exception as error:
            log.error("a notification could not be made", exc_info=error)
            raise NotSent("the server could not make the message", again=True) from error

    def _owner_known(self, one: Target) -> bool:
        user = self._backend.state.config.user_by_name.get(one.owner)
        return one.owner in self._backend.tokens.users or (user is not None and not user.disabled)

    async def test(self, one: Subscription) -> None:
        """Send a test message now. Raises: NotSent; ApiError when too many tests are being made."""
        if one.owner in self._tests or len(self._tests) >= TESTS_AT_ONCE:
            raise ApiError("too_many_requests", "another test is being made", hint="try again in some seconds")
        self._tests.add(one.owner)
        try:
            now_ms = self._backend.clock.unix_ms()
            title = f"this is a test of notification '{one.name}'"
            notice = Notice("test", 0, now_ms, title, "It works.", "penstock notify list")
            await self._deliver(Message(f"test-{secrets.token_hex(8)}", now_ms, {"test": 1}, (notice,)), one)
        finally:
            self._tests.discard(one.owner)


def _mark(owner: UserName, name: str) -> str:
    """Return what tells the messages of one destination from those of others, and shows neither."""
    return hashlib.sha256(f"{owner}\0{name}".encode()).hexdigest()[:12]


def _facts_of(job_id: JobId, job: Job | ev.JobSubmitted) -> JobFacts:
    return JobFacts(job_id, job.spec, job.user, job.array_id, job.array_index, job.delegated)
