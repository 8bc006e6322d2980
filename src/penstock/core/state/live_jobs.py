"""Live jobs by number, and their numbers by tenant and state: the cost of a page follows its length.

One thread writes while others read pages. A list that changed before its end while it was read is read again.
"""

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Iterable
from heapq import merge
from itertools import chain, islice, product
from typing import Literal, TypeVar

from penstock.core.model.ids import JobId, QueueName, TenantName, UserName
from penstock.core.model.jobs import Job, JobSpec, JobState

SPEC_BYTES, TEXT_BYTES, VALUE_BYTES = 1_024, 56, 256
"""Of a request, of each of its texts, and of each dependency and group, beside the characters."""
_NOBODY, _NO_TENANT = UserName(""), TenantName("")
K = TypeVar("K")
LIVE_STATES: tuple[JobState, ...] = ("waiting", "starting", "running", "suspended", "stopping")
READ_TRIES = 8
SORTED_TIMES = 8
"""Lists that have up to so many numbers for each of a page are sorted, which is quicker than to merge them lazily."""

Phase = Literal["waiting", "blocked", "active"]
"""Of a live job: it waits for capacity, it waits for a dependency or is held, or it is past waiting."""


_Key = tuple[tuple[TenantName, JobState], tuple[QueueName, Phase], tuple[QueueName, TenantName, UserName] | None]
"""Where a job is listed, its phase, and of a job that waits for whom it counts. A plain tuple: made for each change."""


class _Numbers:
    """Job numbers, ascending."""

    __slots__ = ("numbers", "shifts")

    def __init__(self) -> None:
        self.numbers: list[JobId] = []
        self.shifts = 0
        """Changes before the end so far: a position that was looked up before one is not good after it."""

    def add(self, job_id: JobId) -> None:
        if self.numbers and self.numbers[-1] > job_id:
            self.shifts += 1
            insort(self.numbers, job_id)
            self.shifts += 1
        else:
            self.numbers.append(job_id)

    def remove(self, job_id: JobId) -> None:
        self.shifts += 1
        del self.numbers[bisect_left(self.numbers, job_id)]
        self.shifts += 1

    def page(self, after: int, limit: int) -> list[JobId]:
        """Return up to `limit` numbers above `after`, ascending. Any thread."""
        for _ in range(READ_TRIES):
            before = self.shifts
            at = bisect_right(self.numbers, after)
            found = self.numbers[at : at + limit]
            if self.shifts == before and not before % 2:
                return found
        numbers = self.numbers.copy()
        at = bisect_right(numbers, after)
        return numbers[at : at + limit]


class LiveJobs(dict[JobId, Job]):
    """A dictionary of live jobs that keeps its own indexes; only `[]=` and `del` change it."""

    def __init__(self) -> None:
        super().__init__()
        self._by_tenant: dict[tuple[TenantName, JobState], _Numbers] = {}
        self._by_state: dict[JobState, _Numbers] = {}
        self._phases: Counter[tuple[QueueName, Phase]] = Counter()
        self._queued: dict[tuple[QueueName, TenantName, UserName], int] = {}
        """Waiting jobs, blocked ones too, of a tenant (all its users), and of a user (in all tenants)."""
        self._secrets: dict[tuple[TenantName | UserName, str], dict[JobId, None]] = {}
        """Jobs that name a secret, by tenant and by user."""
        self._specs: dict[int, tuple[int, int]] = {}
        """How many jobs share a spec (by identity), and its bytes."""
        self._spec_bytes: Counter[TenantName] = Counter()

    def __setitem__(self, job_id: JobId, job: Job) -> None:
        old = self.get(job_id)
        super().__setitem__(job_id, job)
        if old is None:
            self._add(job_id, _key(job))
            self._note_spec(job)
        elif old.state != job.state or old.spec is not job.spec or (job.state == "waiting" and old.ready != job.ready):
            former, key = _key(old), _key(job)
            if former != key:
                self._add(job_id, key, former)  # first: a reader finds it twice rather than not at all
                self._remove(job_id, former, key)
            if old.spec is not job.spec:
                self._forget_spec(old)  # first: both may name the same secrets
                self._note_spec(job)

    def __delitem__(self, job_id: JobId) -> None:
        old = self[job_id]
        super().__delitem__(job_id)
        self._remove(job_id, _key(old))
        self._forget_spec(old)

    def page(
        self,
        after: int,
        limit: int,
        tenants: Iterable[TenantName] | None = None,
        states: Iterable[JobState] = LIVE_STATES,
    ) -> list[Job]:
        """Return up to `limit` jobs with numbers above `after`, ascending, as they stand. Any thread.

        Args:
            tenants: only theirs; None: everybody's.
        """
        if tenants is None:
            lists: Iterable[_Numbers | None] = map(self._by_state.get, states)
        else:
            lists = map(self._by_tenant.get, product(tenants, states))
        pages = [numbers.page(after, limit) for numbers in lists if numbers is not None]
        if sum(map(len, pages)) <= SORTED_TIMES * limit:
            numbers: Iterable[JobId] = dict.fromkeys(sorted(chain.from_iterable(pages)))
        else:
            numbers = _once(merge(*pages))
        return [job for job in map(self.get, islice(numbers, limit)) if job is not None]

    def count(self, tenants: Iterable[TenantName] | None, state: JobState) -> int:
        """Return how many jobs are in a state, of some tenants or (None) of all."""
        if tenants is None:
            return len(self._by_state[state].numbers) if state in self._by_state else 0
        lists = (self._by_tenant.get((tenant, state)) for tenant in tenants)
        return sum(len(one.numbers) for one in lists if one is not None)

    def of_tenant(self, tenant: TenantName) -> int:
        """Return how many live jobs a tenant has."""
        return sum(self.count((tenant,), state) for state in LIVE_STATES)

    def in_queue(self, queue: QueueName, phase: Phase) -> int:
        """Return how many jobs of a queue are in a phase."""
        return self._phases[queue, phase]

    def queued(self, queue: QueueName, tenant: str = "", user: str = "") -> int:
        """Return how many jobs wait in a queue: all, those of a tenant, or those of a user."""
        if not tenant and not user:
            return self._phases[queue, "waiting"] + self._phases[queue, "blocked"]
        return self._queued.get((queue, TenantName(tenant), UserName(user)), 0)

    def naming_secret(self, name: str, *, tenant: TenantName | None = None, user: UserName | None = None) -> list[Job]:
        """Return the jobs of a tenant, or of a user, that name a secret, by number."""
        at = tenant if tenant is not None else user
        assert at is not None, "whose it is"
        key = (TenantName(f"tenant {at}") if tenant is not None else UserName(f"user {at}"), name)
        return [self[job_id] for job_id in self._secrets.get(key, ())]

    def spec_bytes(self, tenant: TenantName | None = None) -> int:
        """Return about how many bytes the specs of live jobs take, a shared spec counted once."""
        return self._spec_bytes.total() if tenant is None else self._spec_bytes[tenant]

    def _note_spec(self, job: Job) -> None:
        spec = job.spec
        for key in _secret_keys(job) if spec.secrets or spec.notify_to else ():
            self._secrets.setdefault(key, {})[job.id] = None
        sharing, size = self._specs.get(id(spec), (0, 0))
        if not sharing:
            size = spec_size(spec)
            self._spec_bytes[spec.tenant] += size
        self._specs[id(spec)] = (sharing + 1, size)

    def _forget_spec(self, job: Job) -> None:
        spec = job.spec
        for key in _secret_keys(job) if spec.secrets or spec.notify_to else ():
            del self._secrets[key][job.id]
            if not self._secrets[key]:
                del self._secrets[key]
        sharing, size = self._specs[id(spec)]
        if sharing > 1:
            self._specs[id(spec)] = (sharing - 1, size)
            return
        del self._specs[id(spec)]
        self._spec_bytes[spec.tenant] -= size
        if not self._spec_bytes[spec.tenant]:
            del self._spec_bytes[spec.tenant]

    def indexes(self) -> tuple[object, ...]:
        """Return all that is kept beside the jobs, for a comparison with a recount."""
        by_tenant = {key: one.numbers for key, one in self._by_tenant.items() if one.numbers}
        by_state = {state: one.numbers for state, one in self._by_state.items() if one.numbers}
        secrets = {key: sorted(jobs) for key, jobs in self._secrets.items()}
        return by_tenant, by_state, +self._phases, dict(self._queued), secrets, dict(self._spec_bytes)

    def _add(self, job_id: JobId, key: _Key, former: _Key | None = None) -> None:
        at = key[0]
        if former is None or former[0] != at:
            _of(self._by_tenant, at).add(job_id)
            if former is None or former[0][1] != at[1]:
                _of(self._by_state, at[1]).add(job_id)
        self._count(key, former, 1)

    def _remove(self, job_id: JobId, key: _Key, following: _Key | None = None) -> None:
        at = key[0]
        if following is None or following[0] != at:
            self._by_tenant[at].remove(job_id)
            if following is None or following[0][1] != at[1]:
                self._by_state[at[1]].remove(job_id)
        self._count(key, following, -1)

    def _count(self, key: _Key, other: _Key | None, sign: int) -> None:
        """Count a job by `key`, less what it counts for by `other` too."""
        _, phase, waits = key
        if other is None or other[1] != phase:
            self._phases[phase] += sign
        if waits is not None and (other is None or other[2] != waits):
            queue, tenant, user = waits
            for whose in ((queue, tenant, _NOBODY), (queue, _NO_TENANT, user)):
                count = self._queued.get(whose, 0) + sign
                if count:
                    self._queued[whose] = count
                else:
                    del self._queued[whose]


def _key(job: Job) -> _Key:
    spec, state = job.spec, job.state
    if state != "waiting":
        return (spec.tenant, state), (spec.queue, "active"), None
    phase: Phase = "waiting" if job.ready else "blocked"
    return (spec.tenant, state), (spec.queue, phase), (spec.queue, spec.tenant, job.user)


def _secret_keys(job: Job) -> Iterable[tuple[TenantName | UserName, str]]:
    named = {name for _, name in job.spec.secrets}
    for name in named.union(*(one.secrets for one in job.spec.notify_to)):
        yield TenantName(f"tenant {job.spec.tenant}"), name
        yield UserName(f"user {job.user}"), name


def spec_size(spec: JobSpec) -> int:
    """Return about how many bytes a spec takes: its texts, and an estimate for the rest."""
    size = SPEC_BYTES + len(spec.name) + len(spec.workdir) + len(spec.snapshot) + VALUE_BYTES * len(spec.after)
    for word in spec.command:
        size += TEXT_BYTES + len(word)
    for pairs in (spec.env, spec.labels, spec.secrets):
        for name, value in pairs:
            size += 2 * TEXT_BYTES + len(name) + len(value)
    for place in spec.notify_to:
        texts = (place.to, *place.secrets)
        size += (2 + len(place.events) + len(texts)) * TEXT_BYTES + sum(map(len, texts))
    for one in spec.inputs:
        size += 3 * TEXT_BYTES + len(one.path) + len(one.url) + len(one.sha256)
    if spec.image is not None:
        size += 2 * TEXT_BYTES + len(spec.image.name)
        size += sum(3 * TEXT_BYTES + len(mount.source) + len(mount.target) for mount in spec.image.mounts)
    for ask in (spec.ask, *spec.alternatives):
        size += VALUE_BYTES * (len(ask.others) + len(ask.labels_wanted) + len(ask.labels_shunned))
        size += VALUE_BYTES * (len(ask.tolerations) + sum(1 + len(rule.values) for t in ask.label_terms for rule in t))
    return size


def _of(lists: dict[K, _Numbers], key: K) -> _Numbers:
    found = lists.get(key)
    if found is None:
        found = lists[key] = _Numbers()
    return found


def _once(numbers: Iterable[JobId]) -> Iterable[JobId]:
    last = None
    for number in numbers:
        if number != last:
            yield number
        last = number
