"""Destinations that jobs name themselves. Jobs that name the same one share its queue, made when it is needed."""

import hashlib
from collections.abc import Iterator

import msgspec

from penstock.core.explain.notices import JobFacts
from penstock.core.model.ids import TenantName, UserName
from penstock.core.model.notifications import Channel, Subscription
from penstock.core.state.subscriptions import Subscriptions

OWN_MAX = 100
"""Places of one user's jobs that messages wait for, or were sent to lately; what is for further ones is dropped."""
ALL_MAX = 10_000
KEPT_MS = 86_400_000
"""What became of the messages to a place is shown so long after the last one."""
SHOWN_MAX = 100


class JobPlace(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where messages about jobs go: as far as a job says it, so a secret by its name."""

    owner: UserName
    tenant: TenantName
    channel: Channel
    to: str = ""
    secret: str = ""
    delegated: bool = False
    """Of jobs of a token that reaches no secrets of its user."""
    signed_by: str = ""
    """The secret with the keys that sign; empty: the one of the usual name, where there is one."""

    @property
    def name(self) -> str:
        """What tells it from other places: no notification of a user has such a name."""
        words = [self.tenant, self.channel, self.to, self.secret, "delegated" * self.delegated]
        words += [self.signed_by] if self.signed_by else []
        return f"job:{hashlib.sha256(chr(0).join(words).encode()).hexdigest()[:12]}"

    @property
    def key(self) -> tuple[UserName, str]:
        return self.owner, self.name

    @property
    def shown(self) -> str:
        """It without what may be a secret: of a URL the host."""
        if self.secret:
            return f"secret {self.secret}"
        if self.channel == "command":
            return self.to
        scheme, _, rest = self.to.partition("://")
        return f"{scheme}://{rest.partition('/')[0].partition('?')[0][:SHOWN_MAX]}/..."


Target = Subscription | JobPlace


def targets_of(job: JobFacts, event: str, known: Subscriptions) -> Iterator[Target]:
    """Yield where an event of a job is to be sent, each place once, whether or not its user may still hear of it."""
    seen: set[tuple[UserName, str]] = set()
    for own in known.of_user(job.user):
        if event in (job.spec.notify or own.events):
            seen.add(own.key)
            yield own
    for one in job.spec.notify_to:
        if event not in one.events:
            continue
        if one.channel == "own":
            target: Target | None = known.by_key.get((job.user, one.to))
        else:
            where = (one.channel, one.to, one.secret, job.delegated, one.signed_by)
            target = JobPlace(job.user, job.spec.tenant, *where)
        if target is not None and target.key not in seen:
            seen.add(target.key)
            yield target
