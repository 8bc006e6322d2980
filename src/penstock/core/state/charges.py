"""The charge of each attempt in the use of its queue, and the sums of those that are alike."""

from collections.abc import Iterator, Mapping

from penstock.core.model.ids import JobId, PoolName, QueueName, TenantName, UserName
from penstock.core.model.jobs import Job
from penstock.core.order.usage_over_time import UsedAmounts

HeldAlike = tuple[TenantName, UserName, QueueName, PoolName, UsedAmounts]
"""What attempts have in common that count as one: most jobs of a user ask for the same."""


def alike_of(job: Job, charge: UsedAmounts) -> HeldAlike:
    spec = job.spec
    return spec.tenant, job.user, spec.queue, job.placed.pool, charge


class Charges(Mapping[JobId, UsedAmounts]):
    """Charges by job. Who holds what is read from `alike`, which costs as much as there are different holdings."""

    def __init__(self) -> None:
        self._held: dict[JobId, HeldAlike] = {}
        self.alike: dict[HeldAlike, int] = {}
        """Number of attempts."""

    def __getitem__(self, job_id: JobId) -> UsedAmounts:
        return self._held[job_id][4]

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[JobId]:
        return iter(self._held)

    def put(self, job: Job, charge: UsedAmounts) -> None:
        """Charge an attempt, in the place of its former charge."""
        if job.id in self._held:
            self.pop(job.id)
        held = self._held[job.id] = alike_of(job, charge)
        self.alike[held] = self.alike.get(held, 0) + 1

    def pop(self, job_id: JobId) -> UsedAmounts:
        """Forget and return the charge of an attempt that has ended."""
        held = self._held.pop(job_id)
        left = self.alike[held] - 1
        if left:
            self.alike[held] = left
        else:
            del self.alike[held]
        return held[4]
