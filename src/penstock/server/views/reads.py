"""Reads of tenants' data. Each takes the caller's scope first: data out of scope is not found.

Routes have no other way to jobs, records and finished rows, so a new one cannot forget to ask.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from penstock.control.service import ControlService
from penstock.core.lifecycle.health import LAST_FAILURE
from penstock.core.model import events as ev
from penstock.core.model.access import Scope
from penstock.core.model.cluster import CHECKED_BY
from penstock.core.model.events import MoneyEvent
from penstock.core.model.ids import JobId, TenantName, UserName
from penstock.core.model.jobs import Job, JobState
from penstock.core.model.notifications import Subscription
from penstock.core.model.schedule_events import tenant_of_schedule
from penstock.core.model.secrets import Secret
from penstock.core.order.queues import TENANT_PREFIX
from penstock.core.state.accounts import tenant_of
from penstock.core.state.live_jobs import LIVE_STATES
from penstock.core.state.state import State
from penstock.ports import EventReader, FinishedJob

BATCH = 1_000
BATCHES_MAX = 10
"""Batches of finished jobs searched for those of the caller before a short page is returned."""
READ_MAX = 200
"""Records that are read at once."""
LOOKED_MAX = 20_000
"""Records searched by one call for those of the caller."""
PAGE_MAX_BYTES = 8 * 2**20
"""A page of records ends where it is larger."""
TENANTS_KEPT = 100_000
_OF_ALL = (ev.LeaderElected, ev.NodeRegistered, ev.NodeReady, ev.NodeLost, ev.NodeRemoved, ev.NodeDrainChanged,
           ev.NodeStruck, ev.NodeChecked, ev.OthersLoadChanged, ev.NodeLeaveNoted, ev.HostLoadNoted, ev.DeviceClosed,
           ev.DeviceCleared, ev.DeviceOpened, ev.InstancesChanged)  # fmt: skip
"""What happens to the machines that all share."""
_OF_NOBODY = (ev.ConfigChanged, ev.RunTimesPredicted, ev.StartsEstimated, ev.CapacityRequested)
"""Events about many tenants at once."""


_encode = msgspec.msgpack.Encoder().encode


Wanted = Callable[[ev.Record], bool]


class Page(NamedTuple):
    """Finished jobs, newest first, and what to go on before; None at the end."""

    jobs: list[FinishedJob]
    before: JobId | None


class Reads:
    """Any thread."""

    def __init__(self, service: ControlService, reader: EventReader, durable: Callable[[], int]) -> None:
        self._service, self._reader, self._durable = service, reader, durable
        self._tenants: dict[JobId, str] = {}

    @property
    def _state(self) -> State:
        return self._service.controller.state

    def live_job(self, scope: Scope, job_id: JobId) -> Job | None:
        """Return a job whose submit is on disk and whose end is not, as it stands."""
        job = self._state.jobs.get(job_id)
        if job is None:
            job = self._ending(job_id)
        durable = job is not None and job.submit_seq <= self._durable()
        return job if job is not None and durable and scope.sees(job.spec.tenant) else None

    def _ending(self, job_id: JobId) -> Job | None:
        """Return a job that is no longer in the state, and whose end is not on disk yet."""
        return next((ended for ended, _ in list(self._service.controller.ending) if ended.id == job_id), None)

    def live_page(
        self,
        scope: Scope,
        after: int,
        limit: int,
        *,
        tenant: str | None = None,
        states: Iterable[JobState] = LIVE_STATES,
    ) -> list[Job]:
        """Return up to `limit` such jobs with numbers above `after`, ascending.

        Args:
            tenant: only its jobs; None: those of all that the caller sees.
        """
        tenants = scope.sight if tenant is None else {TenantName(tenant)} if scope.sees(tenant) else set()
        wanted = tuple(states)
        page = self._state.jobs.page(after, limit, tenants, wanted)  # first: jobs that leave it are in `ending`
        ending = {
            job.id: job
            for job, _ in list(self._service.controller.ending)
            if job.id > after and (tenants is None or job.spec.tenant in tenants) and job.state in wanted
        }
        durable = self._durable()
        if not ending:
            return [job for job in page if job.submit_seq <= durable]
        found = ending | {job.id: job for job in page}
        return [found[i] for i in sorted(found) if found[i].submit_seq <= durable][:limit]

    def finished_job(self, scope: Scope, job_id: JobId) -> FinishedJob | None:
        job = self._reader.finished_job(job_id)
        return job if job is not None and scope.sees(job.tenant) else None

    def finished_jobs(self, scope: Scope, limit: int, before: JobId | None = None) -> Page:
        """Return up to `limit` finished jobs, newest first. A page may be short, or empty, though older ones follow."""
        found: list[FinishedJob] = []
        for _ in range(BATCHES_MAX):
            batch = self._reader.finished_jobs(limit if scope.sees_all else max(limit, BATCH), before)
            for job in batch:
                before = job.id
                if scope.sees(job.tenant):
                    found.append(job)
                if len(found) == limit:
                    return Page(found, before)
            if not batch:
                return Page(found, None)
        return Page(found, before)

    def submits(self, jobs: Sequence[FinishedJob]) -> Mapping[JobId, ev.JobSubmitted]:
        """Return the submits of finished jobs that the caller may see, as far as the log has them."""
        return self._reader.submits([job.id for job in jobs]) if jobs else {}

    def owner(self, scope: Scope, job_id: JobId) -> tuple[str, str] | None:
        """Return tenant and user of a job, live or finished."""
        job = self.live_job(scope, job_id)
        if job is not None:
            return job.spec.tenant, job.user
        finished = self.finished_job(scope, job_id)
        return (finished.tenant, finished.user) if finished is not None else None

    def records(
        self, scope: Scope, after: int, limit: int, most_bytes: int = 0, wanted: Wanted | None = None
    ) -> tuple[list[ev.Record], int]:
        """Return up to `limit` records with seq > `after`, in order, and up to where was looked.

        Where nothing was searched, the log has no more. A page is shorter where records are rare or large: the log of a
        tenant with the largest jobs must not fill the memory.

        Args:
            wanted: only records of which it holds.
        """
        found: list[ev.Record] = []
        size, most = 0, after + LOOKED_MAX
        most_bytes = most_bytes or PAGE_MAX_BYTES
        while after < most and (batch := self._reader.records(after, READ_MAX)):
            for record in batch:
                after = record.seq
                seen = self._shown(scope, record) if wanted is None or wanted(record) else None
                if seen is not None:
                    found.append(seen)
                    size += len(_encode(seen))
                if len(found) >= limit or size > most_bytes:
                    return found, after
        return found, after

    def before_time(self, time_ms: int) -> int:
        """Return the number after which the first record of a time or later follows; the last one where none does."""
        low, high = 0, self._durable()
        while low < high:
            middle = (low + high) // 2
            following = self._reader.records(middle, 1)
            if not following or following[0].time_ms >= time_ms:
                high = middle
            else:
                low = following[0].seq
        return low

    def records_of_job(self, scope: Scope, job_id: JobId) -> list[ev.Record]:
        return self._reader.records_of_job(job_id) if self.owner(scope, job_id) is not None else []

    def _shown(self, scope: Scope, record: ev.Record) -> ev.Record | None:
        """Return a record as the caller may see it, or None."""
        event = record.event
        if isinstance(event, ev.AccessNoted):
            return record if scope.administers else None
        if isinstance(event, ev.TokenIssued | ev.TokenRevoked):
            return _without_secrets(record) if scope.administers else None
        if isinstance(event, ev.SecretSet | ev.SecretRemoved):
            return _unsealed(record) if sees_secret(scope, event) else None
        if isinstance(event, ev.NotificationSet | ev.NotificationRemoved):
            return _without_destination(record) if sees_notification(scope, event) else None
        if scope.sees_all:
            return record
        if isinstance(event, _OF_ALL):
            return self._without_jobs(scope, record)
        if isinstance(event, ev.NodeShut):
            return record if scope.sees(event.tenant) else None
        if isinstance(event, _OF_NOBODY):
            return None
        if isinstance(event, ev.QuotaNoted):
            return record if sees_holder(scope, event.holder) else None
        if isinstance(event, MoneyEvent):
            return record if scope.sees(tenant_of(event)) else None
        if isinstance(event, ev.ScheduleEvent):
            return record if scope.sees(tenant_of_schedule(event)) else None
        return record if scope.sees(self._tenant_of(event.job_id)) else None

    def _without_jobs(self, scope: Scope, record: ev.Record) -> ev.Record:
        """Return an event of a machine without the output of other tenants' jobs."""
        event = record.event
        if isinstance(event, ev.NodeStruck) and event.job_id is not None:
            seen = scope.sees(self._tenant_of(event.job_id))
            bare = ev.NodeStruck(event.node, "", own=event.own)
            return record if seen else ev.Record(record.seq, record.time_ms, bare)
        if isinstance(event, ev.NodeDrainChanged):
            reason = public_reason(event.by, event.reason)
            return ev.Record(record.seq, record.time_ms, replace(event, reason=reason))
        hidden = self._state.config.settings.holders_shown != "users"
        if isinstance(event, ev.OthersLoadChanged) and event.load.users and hidden:
            return ev.Record(record.seq, record.time_ms, replace(event, load=replace(event.load, users=())))
        return record

    def _tenant_of(self, job_id: JobId) -> str:
        """Return the tenant of any job that the log has named; "" (in no scope of a tenant) if unknown."""
        known = self._tenants.get(job_id)
        if known is None:
            job = self._state.jobs.get(job_id) or self._ending(job_id)
            finished = self._reader.finished_job(job_id) if job is None else None
            known = job.spec.tenant if job is not None else finished.tenant if finished is not None else ""
            if known:
                if len(self._tenants) >= TENANTS_KEPT:
                    self._tenants.clear()
                self._tenants[job_id] = known
        return known


def sees_holder(scope: Scope, holder: str) -> bool:
    """Return whether the use of a quota is the caller's to see: of all queues, and of their own tenants."""
    tenant = holder.removeprefix(TENANT_PREFIX)
    return tenant == holder or scope.sees(tenant)


def public_reason(by: UserName, reason: str) -> str:
    """Return why a node takes no work, without the words of the last job that failed there."""
    return reason.partition(LAST_FAILURE)[0] if by == CHECKED_BY else reason


def sees_secret(scope: Scope, of: "ev.SecretRemoved | ev.SecretSet | Secret") -> bool:
    """Return whether the caller sees that there is a secret: of a tenant all who see it, of users these alone."""
    secret = of.secret if isinstance(of, ev.SecretSet) else of
    if secret.tenant:
        return scope.sees(secret.tenant)
    return scope.administers or (secret.owner == scope.user and not scope.only and not scope.delegated)


def _unsealed(record: ev.Record) -> ev.Record:
    """Return the record of a set secret without the sealed value."""
    if not isinstance(record.event, ev.SecretSet):
        return record
    hidden = replace(record.event.secret, sealed="", key_id="")
    return ev.Record(record.seq, record.time_ms, ev.SecretSet(hidden))


def sees_notification(scope: Scope, of: "ev.NotificationRemoved | ev.NotificationSet | Subscription") -> bool:
    """Return whether the caller sees what a user chose to hear of: the user alone, and administrators."""
    chosen = of.subscription if isinstance(of, ev.NotificationSet) else of
    return scope.administers or (chosen.owner == scope.user and not scope.only and not scope.delegated)


def _without_destination(record: ev.Record) -> ev.Record:
    if not isinstance(record.event, ev.NotificationSet):
        return record
    chosen = record.event.subscription
    hidden = replace(chosen, to=replace(chosen.to, sealed="", key_id=""))
    return ev.Record(record.seq, record.time_ms, ev.NotificationSet(hidden))


def _without_secrets(record: ev.Record) -> ev.Record:
    if not isinstance(record.event, ev.TokenIssued):
        return record
    hidden = replace(record.event.token, sha256="")
    return ev.Record(record.seq, record.time_ms, ev.TokenIssued(hidden))
