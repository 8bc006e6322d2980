"""What demand is to come, hour by hour, and whether room kept for it has paid: a fold over submits and starts.

For each pool and priority the devices that jobs asked for are counted by the hour of the calendar (UTC). What the next
hour brings is said by three sources: the same hour of the same weekday, the same hour of the last days, the last hours.
Each says the amount that a further hour like its own reaches as surely as the settings want; the one with the least
pinball loss so far speaks. An hour for which it expects something is *told*: it counts as right where as much came.

Room has paid where the wait that it saved is worth the device time that it left idle:

- what it leaves idle is counted from `predictive_ahead` before the hour until jobs of the priority take it, in each
  told hour, kept or not, and as many times as the pool's devices are asked for by jobs that wait: a device that is
  idle makes all of them wait;
- what it saves is the difference between the waits in told hours without room and those in told hours with room. One
  told hour in `CONTROL_EVERY` stays without while room is kept: else nothing would be known of waits without.

Nothing is kept before that is known. Integers, bounded counts, no clock: equal logs say the same.

Sources: pinball loss, Koenker and Bassett 1978; quantile of a further value, as in split conformal prediction, Vovk et
al. 2005.
"""

from collections.abc import Iterable, Mapping

import msgspec

from penstock.core.model import events as ev
from penstock.core.model.cluster import ClusterConfig, Node, Settings
from penstock.core.model.expected import HOUR_MS, ExpectedDemand
from penstock.core.model.ids import JobId, NodeName, PoolName
from penstock.core.model.jobs import GangAsk, Job
from penstock.core.state.pending import PendingClasses

DAY_H, WEEK_H = 24, 168
HOURS_KEPT = 4 * WEEK_H
TIERS_MAX = 64
"""Pools and priorities of which demand is counted: those of most demand; twice as many within an hour."""
TOLD_MIN = 8
"""Told hours before room is kept."""
TOLD_MAX = 4 * DAY_H
"""Told hours after which all sums are halved: what is long past counts less."""
CONTROL_EVERY = 4
"""Of told hours one in so many stays without room."""
WAIT_MAX_MS = DAY_H * HOUR_MS
"""A wait counts as no longer than this: one job that never fitted says little of the others."""
SAMPLES_MIN = 3
"""A source with fewer hours expects nothing."""
SOURCES = (
    tuple(range(WEEK_H, HOURS_KEPT + 1, WEEK_H)),
    tuple(range(DAY_H, WEEK_H + 1, DAY_H)),
    tuple(range(2, 8)),
)
"""How many hours before the hour in question the hours of each source lie. The hour before it is not over yet."""
UNTOLD, WITHOUT, WITH = 0, 1, 2
"""How an hour was: nothing was expected; it was, and no room was kept; room was kept."""
DEVICE_MILLI = 1_000


class Told(msgspec.Struct):
    """What is said of one hour."""

    guesses: list[int]
    """By source."""
    devices: int = 0
    kept: bool = False

    @property
    def mark(self) -> int:
        return UNTOLD if not self.devices else WITH if self.kept else WITHOUT


class Tier(msgspec.Struct):
    """The demand of one priority in one pool. Waits in device-milliseconds, as idle time."""

    pool: PoolName
    priority: int
    hours: list[int] = []
    """Devices that came in each whole hour, the latest last."""
    marks: list[int] = []
    """How each of them was."""
    now: Told = msgspec.field(default_factory=lambda: Told([0] * len(SOURCES)))
    next: Told = msgspec.field(default_factory=lambda: Told([0] * len(SOURCES)))
    came: int = 0
    """In the hour that is under way."""
    idle_ms: int = 0
    """In it: for how long room for what has come was, or would have been, idle."""
    each: int = 1
    """Devices of the widest replica of the last hour in which any came."""
    widest: int = 1
    """The same of the hour that is under way."""
    losses: list[int] = msgspec.field(default_factory=lambda: [0] * len(SOURCES))
    scored: int = 0
    told: int = 0
    right: int = 0
    told_ever: int = 0
    covered: int = 0
    """Devices that came in told hours, as far as they were expected."""
    idle_cost_ms: int = 0
    without_devices: int = 0
    without_wait_ms: int = 0
    with_devices: int = 0
    with_wait_ms: int = 0

    def copy(self) -> "Tier":
        now, following = (msgspec.structs.replace(one, guesses=list(one.guesses)) for one in (self.now, self.next))
        lists = {"hours": list(self.hours), "marks": list(self.marks), "losses": list(self.losses)}
        return msgspec.structs.replace(self, now=now, next=following, **lists)

    @property
    def saved_each_ms(self) -> int:
        """How much shorter a device's wait is with room than without, as far as known; none, while nothing was kept."""
        if not self.without_devices:
            return 0
        kept_ms = self.with_wait_ms // self.with_devices if self.with_devices else 0
        return max(0, self.without_wait_ms // self.without_devices - kept_ms)

    def pays(self, settings: Settings) -> bool:
        """Return whether room has paid so far, by forecasts that were right as often as the settings want."""
        if self.told < TOLD_MIN or self.right * 1000 < _sure(settings) * self.told:
            return False
        saved_ms = self.saved_each_ms * self.covered
        return saved_ms > 0 and saved_ms * 1000 >= settings.predictive_gain_milli * self.idle_cost_ms


class DemandImage(msgspec.Struct, frozen=True):
    """The whole of `Demand`."""

    hour: int = 0
    tiers: tuple[Tier, ...] = ()


class Demand:
    """Takes records in order. One thread folds; others read `expected`, which is never changed in place."""

    def __init__(self, image: DemandImage | None = None) -> None:
        image = image or DemandImage()
        self._hour = image.hour
        """Since 1970; 0: nothing was seen yet."""
        self._tiers = {(one.pool, one.priority): one.copy() for one in image.tiers}
        self._rolls_ms = (image.hour + 1) * HOUR_MS if image.hour or image.tiers else 0
        self.expected: tuple[ExpectedDemand, ...] = tuple(self._kept())
        """What room is to be kept for, in this hour and the next, in the order of pools and priorities."""

    def image(self) -> DemandImage:
        """Return a copy, in the order of pools and priorities."""
        return DemandImage(self._hour, tuple(tier.copy() for _, tier in sorted(self._tiers.items())))

    def _kept(self) -> Iterable[ExpectedDemand]:
        for (pool, priority), tier in sorted(self._tiers.items()):
            for told, hour, came in ((tier.now, self._hour, tier.came), (tier.next, self._hour + 1, 0)):
                left = told.devices - came
                if told.kept and left > 0:
                    counts = (tier.right, tier.told)
                    yield ExpectedDemand(pool, priority, told.devices, left, tier.each, hour * HOUR_MS, *counts)

    def observe(
        self,
        record: ev.Record,
        jobs: Mapping[JobId, Job],
        nodes: Mapping[NodeName, Node],
        pending: PendingClasses,
        config: ClusterConfig,
    ) -> None:
        """Take in a record; the rest is the state before it."""
        if record.time_ms >= self._rolls_ms:
            self._roll(record.time_ms // HOUR_MS, nodes, pending, config.settings)
        event = record.event
        if isinstance(event, ev.JobSubmitted):
            if event.spec.ask.device_milli and not event.spec.after:
                self._comes(event.spec.ask, event.spec.priority, record.time_ms, config.settings)
        elif isinstance(event, ev.AttemptAllocated) and event.attempt == 1:
            job = jobs.get(event.job_id)
            if job is not None and job.spec.ask.device_milli and not job.spec.after:
                self._starts(job, record.time_ms)

    def _comes(self, ask: GangAsk, priority: int, at_ms: int, settings: Settings) -> None:
        key = (ask.pool, priority)
        tier = self._tiers.get(key)
        if tier is None:
            if len(self._tiers) >= 2 * TIERS_MAX:
                return
            tier = self._tiers[key] = Tier(*key)
        devices, left = _whole(ask.device_milli), tier.now.devices - tier.came
        if left > 0:
            tier.idle_ms += min(devices, left) * max(0, at_ms - self._kept_ms(settings))
        tier.came += devices
        if left > 0 and tier.now.kept:
            self.expected = tuple(self._kept())
        wanted = ask.each.devices
        tier.widest = max(tier.widest, wanted.count if wanted is not None else 1)

    def _starts(self, job: Job, at_ms: int) -> None:
        """Note how long a job of a told hour has waited for its first places."""
        tier, back = self._tiers.get((job.spec.ask.pool, job.spec.priority)), self._hour - job.submitted_ms // HOUR_MS
        if tier is None or back > len(tier.marks):
            return
        mark = tier.marks[-back] if back > 0 else tier.now.mark
        devices, waited_ms = _whole(job.spec.ask.device_milli), min(WAIT_MAX_MS, max(0, at_ms - job.submitted_ms))
        if mark == WITHOUT:
            tier.without_devices += devices
            tier.without_wait_ms += devices * waited_ms
        elif mark == WITH:
            tier.with_devices += devices
            tier.with_wait_ms += devices * waited_ms

    def _kept_ms(self, settings: Settings) -> int:
        """Return since when room for the present hour is kept."""
        return self._hour * HOUR_MS - ahead_ms(settings)

    def _roll(self, hour: int, nodes: Mapping[NodeName, Node], pending: PendingClasses, settings: Settings) -> None:
        """Close the hours before `hour`, and say what comes in the one after it."""
        if self._tiers:
            devices, waiting = _devices(nodes), _waiting_milli(pending)
            for at in range(max(self._hour, hour - HOURS_KEPT - 1), hour):
                self._hour = at
                for tier in self._tiers.values():
                    total = devices.get(tier.pool, 0)
                    backlog = waiting.get(tier.pool, 0) // DEVICE_MILLI
                    self._close(tier, settings, backlog=backlog, total=total)
                    _tell_next(tier, settings, total)
            self._forget()
        self._hour, self._rolls_ms = hour, (hour + 1) * HOUR_MS
        self.expected = tuple(self._kept())

    def _close(self, tier: Tier, settings: Settings, *, backlog: int, total: int) -> None:
        """Score what was said of the hour that is over, and count what its room cost."""
        quantile = 1000 - _sure(settings)
        for source, guess in enumerate(tier.now.guesses):
            tier.losses[source] += _pinball(tier.came, guess, quantile)
        tier.scored += 1
        if tier.scored >= HOURS_KEPT:
            tier.losses, tier.scored = [loss // 2 for loss in tier.losses], tier.scored // 2
        told = tier.now.devices
        if told:
            tier.told += 1
            tier.told_ever += 1
            tier.right += tier.came >= told
            tier.covered += min(tier.came, told)
            unused_ms = max(0, told - tier.came) * (HOUR_MS + ahead_ms(settings))
            idle_ms = tier.idle_ms + unused_ms
            tier.idle_cost_ms += idle_ms * max(total, backlog) // total if total else idle_ms
            if tier.told >= TOLD_MAX:
                _halve(tier)
        tier.hours.append(tier.came)
        tier.marks.append(tier.now.mark)
        del tier.hours[:-HOURS_KEPT], tier.marks[:-HOURS_KEPT]
        tier.each = tier.widest if tier.came else tier.each
        tier.now, tier.came, tier.idle_ms, tier.widest = tier.next, 0, 0, 1

    def _forget(self) -> None:
        """Drop what has had no demand for weeks, and all but the tiers of most demand."""
        demand = {key: sum(tier.hours) for key, tier in self._tiers.items()}
        kept = sorted((key for key in demand if demand[key]), key=lambda key: (-demand[key], key))[:TIERS_MAX]
        self._tiers = {key: self._tiers[key] for key in kept}


def _tell_next(tier: Tier, settings: Settings, total: int) -> None:
    """Say what comes in the hour after the one that begins now: the former is `tier.hours` + 2."""
    each = max(1, tier.each)
    guesses = [_at_least(tier.hours, back, _sure(settings)) for back in SOURCES]
    best = min(range(len(SOURCES)), key=lambda source: (tier.losses[source], source))
    most = total * settings.predictive_share_milli // 1000
    devices = min(guesses[best], most) // each * each
    control = tier.told_ever % CONTROL_EVERY == CONTROL_EVERY - 1
    tier.next = Told(guesses, devices, devices > 0 and not control and tier.pays(settings))


def _at_least(hours: list[int], back: tuple[int, ...], confidence_milli: int) -> int:
    """Return an amount that a further hour like those that lie so far back reaches as surely as that; 0 unknown.

    Of n hours the one at place i from below is reached by a further one with probability (n - i) / (n + 1): what as
    large a part of them reached is promised too high, the more so the fewer they are.

    Args:
        hours: whole hours; the last of them is 2 before the hour in question.
        back: each at least 2.
    """
    known = sorted(hours[len(hours) + 1 - far] for far in back if far <= len(hours) + 1)
    place = (1000 * len(known) - confidence_milli * (len(known) + 1)) // 1000
    return known[place] if len(known) >= SAMPLES_MIN and place >= 0 else 0


def _pinball(came: int, guess: int, quantile_milli: int) -> int:
    """Return the loss of a quantile that was guessed, in thousandths of a device."""
    return quantile_milli * (came - guess) if came >= guess else (1000 - quantile_milli) * (guess - came)


def _halve(tier: Tier) -> None:
    for name in (
        "told", "right", "covered", "idle_cost_ms",
        "without_devices", "without_wait_ms", "with_devices", "with_wait_ms",
    ):  # fmt: skip
        setattr(tier, name, getattr(tier, name) // 2)


def ahead_ms(settings: Settings) -> int:
    """Return for how long before its hour room is kept: no more is known of an hour before that."""
    return min(settings.predictive_ahead_ms, HOUR_MS)


def _sure(settings: Settings) -> int:
    return min(settings.predictive_confidence_milli, 1000)


def _whole(milli: int) -> int:
    return -(-milli // DEVICE_MILLI)


def _devices(nodes: Mapping[NodeName, Node]) -> dict[PoolName, int]:
    """Return the healthy devices of each pool, on nodes that are there."""
    found: dict[PoolName, int] = {}
    for node in nodes.values():
        if node.state == "ready":
            healthy = sum(device.healthy for device in node.spec.devices)
            found[node.spec.pool] = found.get(node.spec.pool, 0) + healthy
    return found


def _waiting_milli(pending: PendingClasses) -> dict[PoolName, int]:
    """Return the devices that waiting jobs ask for, by pool."""
    found: dict[PoolName, int] = {}
    for one in pending.values():
        pool = one.key.ask.pool
        found[pool] = found.get(pool, 0) + one.key.ask.device_milli * len(one.jobs)
    return found
