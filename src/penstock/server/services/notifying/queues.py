"""What waits for each destination: at most one message that is being sent, and one digest that gathers what follows.

So a destination costs little however much happens. The first event of a quiet time waits `GATHER_MS` for others; the
time doubles with each message that said several things, up to `GATHER_MAX_MS`, and falls back after a quiet time. An
array of 10,000 jobs that ends at once is one message, with counts.
"""

from collections import Counter
from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from penstock.core.explain.notices import Notice
from penstock.core.model.ids import JobId
from penstock.server.services.notifying.places import KEPT_MS, JobPlace

GATHER_MS = 3_000
GATHER_MAX_MS = 600_000
NAMED_MAX = 5
"""Things of one kind that a message says in words; the others are counted."""
TRIES_MAX = 9
RETRY_FIRST_MS = 10_000
RETRY_MAX_MS = 1_800_000
"""Waits between tries: 10 s, doubled each time up to half an hour: two hours in all."""


class Digest(msgspec.Struct, omit_defaults=True):
    """Notices for one destination."""

    counts: dict[str, int] = {}
    """By event."""
    named: list[Notice] = []
    first_seq: int = 0
    last_seq: int = 0
    due_ms: int = 0
    array_id: JobId | None = None
    """The array that all of them are about."""

    def add(self, notice: Notice) -> None:
        array_id = notice.array_id if notice.job_id is not None else None
        self.array_id = array_id if not self.counts or self.array_id == array_id else None
        self.counts[notice.event] = self.counts.get(notice.event, 0) + 1
        if self.counts[notice.event] <= NAMED_MAX:
            self.named.append(notice)
        self.first_seq, self.last_seq = self.first_seq or notice.seq, notice.seq

    def merge(self, other: "Digest") -> None:
        """Add the notices of another one, which came later."""
        if not self.counts:
            self.first_seq, self.array_id = other.first_seq, other.array_id
        elif self.array_id != other.array_id:
            self.array_id = None
        have = Counter(one.event for one in self.named)
        for notice in other.named:
            if have[notice.event] < NAMED_MAX:
                have[notice.event] += 1
                self.named.append(notice)
        for event, count in other.counts.items():
            self.counts[event] = self.counts.get(event, 0) + count
        self.last_seq = other.last_seq


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message as it is sent, again with the same id where that failed."""

    id: str
    made_ms: int
    counts: dict[str, int]
    notices: tuple[Notice, ...]
    array_id: JobId | None = None
    tries: int = 0
    next_ms: int = 0


class DeliveryStats(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of the messages to one destination."""

    sent: int = 0
    given_up: int = 0
    last_sent_ms: int = 0
    last_error: str = ""
    last_error_ms: int = 0


class Queue(msgspec.Struct, omit_defaults=True):
    """Everything for one destination."""

    waiting: Digest = msgspec.field(default_factory=Digest)
    message: Message | None = None
    gather_ms: int = GATHER_MS
    quiet_ms: int = 0
    """From then on it is quiet again (unix ms)."""
    stats: DeliveryStats = DeliveryStats()
    place: JobPlace | None = None
    """Where jobs want it; None: to the destination of a user."""

    @property
    def empty(self) -> bool:
        return self.message is None and not self.waiting.counts

    @property
    def used_ms(self) -> int:
        """When something of it was sent, failed, or was said to be over last (unix ms)."""
        return max(self.stats.last_sent_ms, self.stats.last_error_ms, self.quiet_ms)

    def over(self, now_ms: int) -> bool:
        """Return whether it is of jobs, and what became of its messages is not shown any more."""
        return self.place is not None and self.empty and now_ms >= self.used_ms + KEPT_MS

    def add(self, notices: Digest, now_ms: int) -> None:
        """Gather further notices."""
        if not self.waiting.counts:
            if now_ms >= self.quiet_ms:
                self.gather_ms = GATHER_MS
            self.waiting = Digest(due_ms=now_ms + self.gather_ms)
        self.waiting.merge(notices)

    def compose(self, name: str, now_ms: int) -> bool:
        """Make a message of what was gathered, where that is due and none is being sent; return whether one was."""
        gathered = self.waiting
        if self.message is not None or not gathered.counts or now_ms < gathered.due_ms:
            return False
        made = f"{gathered.first_seq}-{gathered.last_seq}-{name}"
        self.message = Message(made, now_ms, gathered.counts, tuple(gathered.named), gathered.array_id, next_ms=now_ms)
        several = sum(gathered.counts.values()) > 1
        self.gather_ms = min(GATHER_MAX_MS, self.gather_ms * 2) if several else self.gather_ms
        self.quiet_ms = now_ms + 2 * self.gather_ms
        self.waiting = Digest()
        return True

    def arrived(self, now_ms: int) -> None:
        """Note that the message was taken."""
        self.message = None
        self.stats = replace(self.stats, sent=self.stats.sent + 1, last_sent_ms=now_ms, last_error="", last_error_ms=0)

    def failed(self, why: str, now_ms: int, *, again: bool) -> bool:
        """Note that the message was not taken; return whether it is tried again."""
        message = self.message
        assert message is not None
        tries = message.tries + 1
        goes_on = again and tries < TRIES_MAX
        wait_ms = min(RETRY_MAX_MS, RETRY_FIRST_MS * 2 ** (tries - 1))
        self.message = replace(message, tries=tries, next_ms=now_ms + wait_ms) if goes_on else None
        given_up = self.stats.given_up + (not goes_on)
        self.stats = replace(self.stats, given_up=given_up, last_error=why, last_error_ms=now_ms)
        return goes_on


def sums_text(counts: Mapping[str, int]) -> str:
    """Return `9,990 succeeded, 10 failed`."""
    return ", ".join(f"{counts[event]:,} {word}" for event, word in WORDS.items() if counts.get(event))


WORDS = {
    "success": "succeeded",
    "failure": "failed",
    "cancelled": "cancelled",
    "start": "started",
    "preempted": "preempted",
    "requeued": "waiting again",
    "never": "can never start",
    "budget": "about spending",
    "exhausted": "about credit that is used up or back",
    "node_lost": "about lost nodes",
    "node_closed": "about closed nodes",
}
"""What a count of events is called."""
