"""What is known of a job before it runs, and which jobs are the same thing run again."""

from collections.abc import Hashable

import msgspec

from penstock.core.model.ids import QueueName, TenantName, UserName
from penstock.core.model.matching import stem_of as stem_of

GroupKey = tuple[Hashable, ...]


class JobFeatures(msgspec.Struct, frozen=True):
    """Features of a job that are known before it runs. Empty texts and 0 mean: not known."""

    devices: int
    """Devices of all replicas together."""
    user: UserName = UserName("")
    tenant: TenantName = TenantName("")
    queue: QueueName = QueueName("")
    name: str = ""
    estimate_ms: int = 0
    limit_ms: int = 0
    """No run is longer than this."""


def kind_of(features: JobFeatures) -> GroupKey:
    """Return the common key of jobs of one owner, queue, size and name, the numbers in the name aside."""
    return (features.user, features.tenant, features.queue, stem_of(features.name), features.devices)
